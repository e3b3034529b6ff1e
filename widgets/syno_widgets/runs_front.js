// The front of `RunsView`: points, the line of the front, lasso and box, by pointer and by keyboard. It stands behind
// runs_chart.js and loads nothing.

const NEAR = 12;

/** Whether a place lies within a closed line (rays to the right cross it an odd number of times). */
function isWithin(x, y, line) {
  let inside = false;
  for (let i = 0, j = line.length - 1; i < line.length; j = i, i += 1) {
    const [xi, yi] = line[i];
    const [xj, yj] = line[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
  }
  return inside;
}

class FrontChart {
  /** `told` has: hover(place or null, x, y), choose(place), select(places), say(text). */
  constructor(told) {
    this.told = told;
    this.width = 640;
    this.height = 400;
    this.tool = "lasso";
    this.points = [];
    this.dots = [];
    this.marked = new Set();
    this.at = -1;
    this.trace = null;
    this.axes = svgPart("g", { class: "syno-axes" });
    this.paper = svgPart("g", { class: "syno-paper" });
    this.line = svgPart("path", { class: "syno-front-line" });
    this.dotted = svgPart("g", {});
    this.wide = svgPart("path", { class: "syno-interval" });
    this.band = svgPart("g", { class: "syno-band" });
    this.finals = svgPart("g", {});
    this.finalAt = new Map();
    this.ring = svgPart("circle", { class: "syno-ring", r: 9 });
    this.lasso = svgPart("path", { class: "syno-lasso" });
    this.picture = svgPart("svg", { viewBox: `0 0 ${this.width} ${this.height}`, class: "syno-front" });
    this.picture.append(this.axes, this.band, this.paper, this.line, this.wide, this.dotted, this.finals, this.ring, this.lasso);
    this.root = make("div", { class: "syno-plot", tabindex: "0", role: "application" }, this.picture);
    this.ring.style.display = "none";
    watchWidth(this.root, 320, (wide) => {
      if (wide === this.width) return;
      this.width = wide;
      this.height = Math.round(Math.min(0.625 * wide, 520));
      this.picture.setAttribute("viewBox", `0 0 ${wide} ${this.height}`);
      if (this.front) this.draw(this.front);
    });
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener("blur", () => this.told.hover(null));
    this.picture.addEventListener("pointerdown", (event) => this.down(event));
    this.picture.addEventListener("pointermove", (event) => this.move(event));
    this.picture.addEventListener("pointerup", (event) => this.up(event));
    this.picture.addEventListener("pointercancel", () => this.ended());
    this.picture.addEventListener("pointerleave", () => this.trace === null && this.told.hover(null));
  }

  /** The front as the trait has it; dots are kept and moved, so a thousand of them cost little. */
  draw(front) {
    this.front = front;
    this.root.setAttribute("aria-label", `${front.text ?? ""} Arrow keys lead from point to point, Enter opens one.`);
    const [xv, yv, zv] = front.values ?? [[], []];
    const here = this.at >= 0 ? this.keys[this.at] : null;
    this.keys = front.keys ?? [];
    this.labels = front.labels ?? [];
    this.values = front.values ?? [];
    this.systems = front.legend?.length > 1 ? front.systems : [];
    this.titles = (front.axes ?? []).map((axis) => axis.text);
    const paper = front.paper ?? [];
    this.intervals = front.intervals ?? [];
    const ends = (axis) => (this.intervals[axis] ?? []).flatMap((one) => one ?? []);
    const base = front.baseline ?? [];
    const beside = (front.finals ?? []).flatMap(([, ...numbers]) => numbers).concat(base);
    const spread = (axis) => [...paper.flatMap((one) => one.ranges[axis] ?? []), ...ends(axis), ...(axis === 1 ? beside : [])];
    const isWhole = (axis) => ["flops", "params"].includes(front.axes?.[axis]?.name) && !front.axes[axis].text.includes("over the");
    const mayBeLog = (axis) => paper.length === 0 && !front.axes?.[axis]?.name.startsWith("accuracy");
    const xs = makeScale([...(xv ?? []), ...spread(0)], PAD.left, this.width - PAD.right, mayBeLog(0), isWhole(0));
    const ys = makeScale([...(yv ?? []), ...spread(1)], this.height - PAD.bottom, PAD.top, mayBeLog(1), isWhole(1));
    drawAxes(this.axes, this.width, this.height, xs, ys, this.titles[0] ?? "", front.title ?? this.titles[1] ?? "");
    const onFront = new Set(front.front ?? []);
    const baselines = new Set(front.baselines ?? []);
    const known = new Set(front.known ?? []);
    const depth = zv ? makeScale(zv, 0, 7.99) : null;
    while (this.dots.length > this.keys.length) this.dots.pop().remove();
    while (this.dots.length < this.keys.length) {
      const dot = svgPart("path");
      this.dots.push(dot);
      this.dotted.append(dot);
    }
    this.points = this.keys.map((key, place) => {
      const [x, y] = [xs.place(xv[place]), ys.place(yv[place])];
      const dot = this.dots[place];
      const kind = baselines.has(place) ? "syno-base" : onFront.has(place) ? "syno-best" : "syno-rest";
      dot.setAttribute("d", front.outlines[front.marks[place]]);
      dot.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${kind === "syno-rest" ? 3.5 : 5.5})`);
      const hollow = known.has(place) ? " syno-known" : "";
      dot.setAttribute("class", (depth ? `${kind} syno-depth-${Math.floor(depth.place(zv[place]))}` : kind) + hollow);
      dot.dataset.key = key;
      return [x, y];
    });
    for (const place of [...onFront, ...baselines]) this.dotted.append(this.dots[place]); // on top
    const way = zv ? [] : (front.front ?? []).map((place) => this.points[place]);
    const turn = front.axes?.[0]?.maximise;
    this.line.setAttribute(
      "d",
      way.map(([x, y], at) => (at === 0 ? `M${x} ${y}` : turn ? `V${y}H${x}` : `H${x}V${y}`)).join(""),
    );
    this.drawPaper(paper, xs, ys);
    this.drawIntervals(xs, ys);
    this.drawFinals(front.finals ?? [], base, known, ys);
    this.order = this.keys.map((_, place) => place).sort((a, b) => xv[a] - xv[b] || yv[a] - yv[b]);
    this.at = here === null ? -1 : this.keys.indexOf(here);
    this.drawRing();
    this.mark(this.marked);
  }

  drawPaper(paper, xs, ys) {
    this.paper.replaceChildren();
    for (const one of paper) {
      const [[x0, x1], [y0, y1]] = one.ranges.map(([low, high]) => [low, high]);
      const [a, b] = [xs.place(x0), xs.place(x1)];
      const [c, d] = [ys.place(y1), ys.place(y0)];
      const box = svgPart("rect", { x: a - 2, y: c - 2, width: b - a + 4, height: d - c + 4 });
      const name = svgPart("title");
      name.textContent = `The paper: ${one.text}`;
      box.append(name);
      this.paper.append(box);
    }
  }

  /** A bar over each interval of the finals, with a line across its ends. */
  drawIntervals(xs, ys) {
    const [xw, yw] = [this.intervals[0] ?? [], this.intervals[1] ?? []];
    const bars = this.points.map(([x, y], place) => {
      const [across, up] = [xw[place]?.map(xs.place), yw[place]?.map(ys.place)];
      const level = across ? `M${across[0]} ${y}H${across[1]}M${across[0]} ${y - 4}v8M${across[1]} ${y - 4}v8` : "";
      return level + (up ? `M${x} ${up[0]}V${up[1]}M${x - 4} ${up[0]}h8M${x - 4} ${up[1]}h8` : "");
    });
    this.wide.setAttribute("d", bars.join(""));
  }

  /** The finals over the cloud: large marks with bars, and the baseline's line with the band of its seeds. */
  drawFinals(finals, base, known, ys) {
    this.finalAt = new Map();
    this.inFinals = new Map(finals.map(([place, ...numbers]) => [place, numbers]));
    const parts = finals.flatMap(([place, ...numbers]) => {
      const [y, low, high] = numbers.map(ys.place);
      const x = this.points[place][0];
      this.finalAt.set(place, [x, y]);
      const bar = `M${x} ${low}V${high}M${x - 6} ${low}h12M${x - 6} ${high}h12`;
      const outline = { d: this.front.outlines[this.front.marks[place]], transform: `translate(${x} ${y}) scale(8)` };
      const look = `syno-final${known.has(place) ? " syno-known" : ""}`;
      return [svgPart("path", { class: "syno-interval syno-strong", d: bar }), svgPart("path", { class: look, ...outline })];
    });
    this.finals.replaceChildren(...parts);
    const [mean, low, high] = base.map(ys.place);
    const [left, right] = [PAD.left, this.width - PAD.right];
    const seeds = { x: left, y: high, width: right - left, height: Math.max(low - high, 1) };
    const line = { x1: left, x2: right, y1: mean, y2: mean };
    this.band.replaceChildren(...(base.length ? [svgPart("rect", seeds), svgPart("line", line)] : []));
  }

  /** The keys that are selected. */
  mark(keys) {
    this.marked = keys;
    this.dots.forEach((dot, place) => dot.classList.toggle("syno-marked", keys.has(this.keys[place])));
  }

  drawRing() {
    const there = this.finalAt.get(this.at) ?? this.points[this.at];
    this.ring.setAttribute("r", this.finalAt.has(this.at) ? 14 : 9);
    this.ring.style.display = there ? "" : "none";
    if (!there) return;
    this.ring.setAttribute("cx", there[0]);
    this.ring.setAttribute("cy", there[1]);
  }

  /** A point is selected, or no longer. */
  toggle(place) {
    const keys = new Set(this.marked);
    if (!keys.delete(this.keys[place])) keys.add(this.keys[place]);
    this.told.select([...keys]);
  }

  /** A point in words. */
  words(place) {
    const values = this.values.map((axis, number) => {
      const wide = this.intervals[number]?.[place];
      const between = wide ? ` (${shortNumber(wide[0])} to ${shortNumber(wide[1])})` : "";
      return `${this.titles[number]} ${shortNumber(axis[place])}${between}`;
    });
    const [mean, low, high] = (this.inFinals.get(place) ?? []).map(shortNumber);
    if (mean) values.push(`in the finals ${mean} (${low} to ${high})`);
    const system = this.systems[place] ? `, ${this.systems[place]}` : "";
    return `${this.labels[place]}${system}: ${values.join(", ")}`;
  }

  // -- by keyboard

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.order?.length) return;
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    const now = this.order.indexOf(this.at);
    if (step) this.at = this.order[(now + step + this.order.length) % this.order.length];
    else if (event.key === "Home") this.at = this.order[0];
    else if (event.key === "End") this.at = this.order[this.order.length - 1];
    else if (event.key === "Enter" && this.at >= 0) this.told.choose(this.at);
    else if (event.key === " " && this.at >= 0) {
      this.toggle(this.at);
    } else if (event.key === "Escape") this.told.select([]);
    else return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own meaning for these keys
    this.drawRing();
    if (this.at >= 0 && event.key !== "Enter" && event.key !== "Escape") {
      this.told.say(this.words(this.at));
      this.told.hover(this.at, ...this.points[this.at]);
    }
  }

  // -- by pointer

  where(event) {
    const box = this.picture.getBoundingClientRect();
    const scale = this.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  nearest(x, y) {
    let best = -1;
    let least = NEAR * NEAR;
    this.points.forEach(([px, py], place) => {
      const far = (px - x) ** 2 + (py - y) ** 2;
      const [fx, fy] = this.finalAt.get(place) ?? [Infinity, Infinity];
      const toFinal = (fx - x) ** 2 + (fy - y) ** 2;
      if (toFinal < least) [best, least] = [place, toFinal];
      if (far < least || (far === least && this.dots[place].classList.contains("syno-best"))) [best, least] = [place, far];
    });
    return best;
  }

  down(event) {
    if (event.button !== 0) return;
    this.trace = [this.where(event)];
    this.picture.setPointerCapture(event.pointerId);
    this.told.hover(null);
  }

  move(event) {
    const [x, y] = this.where(event);
    if (this.trace === null) {
      const place = this.nearest(x, y);
      this.told.hover(place < 0 ? null : place, x, y);
      return;
    }
    if (this.tool === "box") {
      const [a, b] = this.trace[0];
      this.trace = [[a, b], [x, b], [x, y], [a, y]];
    } else {
      this.trace.push([x, y]);
    }
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      if (this.trace === null) return;
      this.lasso.setAttribute("d", `M${this.trace.map((p) => `${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("L")}Z`);
      this.mark(new Set(this.caught()));
    });
  }

  caught() {
    const found = [];
    this.points.forEach(([x, y], place) => {
      const final = this.finalAt.get(place);
      if (isWithin(x, y, this.trace) || (final && isWithin(...final, this.trace))) found.push(this.keys[place]);
    });
    return found;
  }

  up(event) {
    if (this.trace === null) return;
    const [first, last] = [this.trace[0], this.where(event)];
    const isClick = Math.max(...this.trace.map((p) => Math.hypot(p[0] - first[0], p[1] - first[1]))) < 4;
    if (isClick) {
      const place = this.nearest(...last);
      this.ended();
      if (place >= 0) {
        this.at = place;
        this.drawRing();
        if (event.ctrlKey || event.metaKey || event.shiftKey) this.toggle(place);
        else this.told.choose(place);
      } else this.told.select([]);
      return;
    }
    const keys = this.caught();
    this.ended();
    this.told.select(keys);
  }

  ended() {
    this.trace = null;
    this.lasso.setAttribute("d", "");
  }
}
