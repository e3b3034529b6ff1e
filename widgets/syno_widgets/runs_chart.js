// Charts as SVG: scales, axes and lines. It stands behind shared.js and loads nothing.

function svgPart(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

/** Numbers as people read them: four digits, thousands as k, M, G. */
function shortNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "";
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return `${Number((value / (name === "k" ? 1e3 : unit)).toPrecision(4))} ${name}`;
  }
  return String(Number(value.toPrecision(4)));
}

/** Round values between two, about so many; whole ones alone where things are counted. */
function roundTicks(low, high, count, isWhole = false) {
  const raw = Math.max((high - low) / count, isWhole ? 1 : 0);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) ?? power;
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k += 1) ticks.push(k * step);
  return ticks;
}

/** From values to places; logarithmic where all are above 0 and far apart. */
function makeScale(values, from, to, mayBeLog = false, isWhole = false) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) [low, high] = [0, 1];
  const isLog = mayBeLog && low > 0 && high / low > 50;
  const map = isLog ? Math.log10 : (value) => value;
  let [a, b] = [map(low), map(high)];
  const room = 0.05 * (b - a || Math.abs(a) || 1);
  [a, b] = [a - room, b + room];
  const place = (value) => from + ((map(value) - a) / (b - a)) * (to - from);
  let ticks = isLog ? [] : roundTicks(a, b, 6, isWhole);
  if (isLog) {
    for (let power = Math.ceil(a); power <= b; power += 1) ticks.push(10 ** power);
    if (ticks.length < 2) ticks = roundTicks(10 ** a, 10 ** b, 4, isWhole).filter((tick) => tick > 0);
  }
  return { place, ticks };
}

/** A picture is drawn in the page's own pixels, so that its letters are as large at every width; from `least` on. */
function watchWidth(element, least, draw) {
  const sized = new ResizeObserver(() => {
    const width = Math.max(least, Math.round(element.clientWidth));
    if (element.clientWidth) draw(width);
  });
  sized.observe(element);
}

const PAD = { left: 62, right: 12, top: 10, bottom: 40 };

/** Grid, numbers and titles of both axes. */
function drawAxes(group, width, height, xs, ys, xTitle, yTitle) {
  group.replaceChildren();
  for (const tick of xs.ticks) {
    const at = xs.place(tick);
    group.append(svgPart("line", { class: "syno-grid", x1: at, x2: at, y1: PAD.top, y2: height - PAD.bottom }));
    const text = svgPart("text", { x: at, y: height - PAD.bottom + 15, "text-anchor": "middle" });
    text.textContent = shortNumber(tick);
    group.append(text);
  }
  for (const tick of ys.ticks) {
    const at = ys.place(tick);
    group.append(svgPart("line", { class: "syno-grid", x1: PAD.left, x2: width - PAD.right, y1: at, y2: at }));
    const text = svgPart("text", { x: PAD.left - 6, y: at + 4, "text-anchor": "end" });
    text.textContent = shortNumber(tick);
    group.append(text);
  }
  const below = svgPart("text", { x: (PAD.left + width) / 2, y: height - 6, "text-anchor": "middle" });
  below.textContent = xTitle;
  const turned = { "text-anchor": "middle", transform: `translate(13 ${(height - PAD.bottom) / 2}) rotate(-90)` };
  const beside = svgPart("text", turned);
  beside.textContent = yTitle;
  group.append(below, beside);
}

/** A figure of lines over what is counted (trials, epochs), with a legend; it says in words what it shows. */
class LineChart {
  constructor(title, xTitle, yTitle, { width = 460, height = 240, steps = false, mayBeLog = false } = {}) {
    Object.assign(this, { title, xTitle, yTitle, width, height, steps, mayBeLog });
    this.axes = svgPart("g", { class: "syno-axes" });
    this.drawn = svgPart("g", {});
    this.picture = svgPart("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "syno-chart" });
    this.picture.append(this.axes, this.drawn);
    this.legend = make("ul", { class: "syno-legend" });
    this.root = make("figure", {}, make("figcaption", {}, title), this.picture, this.legend);
    this.last = "";
    watchWidth(this.root, 240, (wide) => {
      if (wide === this.width) return;
      this.width = wide;
      this.picture.setAttribute("viewBox", `0 0 ${wide} ${this.height}`);
      const lines = this.lines;
      this.last = "";
      if (lines) this.draw(lines);
    });
  }

  /** Lines of {name, points, isOver}; nothing is drawn anew where they are the same. */
  draw(lines) {
    const now = JSON.stringify(lines);
    if (now === this.last) return;
    this.last = now;
    this.lines = lines;
    const { width, height } = this;
    const counts = lines.flatMap((line) => line.points.map((p) => p[0]));
    const xs = makeScale(counts, PAD.left, width - PAD.right, false, true);
    const heights = lines.flatMap((line) => line.points.map((p) => p[1]));
    const ys = makeScale(heights, height - PAD.bottom, PAD.top, this.mayBeLog);
    drawAxes(this.axes, width, height, xs, ys, this.xTitle, this.yTitle);
    this.drawn.replaceChildren();
    this.legend.replaceChildren();
    lines.forEach((line, number) => {
      const path = line.points
        .map(([x, y], at) => {
          const [px, py] = [xs.place(x).toFixed(1), ys.place(y).toFixed(1)];
          if (at === 0) return `M${px} ${py}`;
          return this.steps ? `H${px}V${py}` : `L${px} ${py}`;
        })
        .join("");
      const part = svgPart("path", { class: `syno-line syno-hue-${number % 8}`, d: path });
      if (line.isOver) part.classList.add("syno-over");
      const name = svgPart("title");
      name.textContent = line.name;
      part.append(name);
      this.drawn.append(part);
      if (line.points.length === 1) {
        const [x, y] = line.points[0];
        const dot = { class: `syno-dot syno-hue-${number % 8}`, cx: xs.place(x), cy: ys.place(y), r: 3 };
        this.drawn.append(svgPart("circle", dot));
      }
      const end = line.points[line.points.length - 1];
      const said = `${line.name}: ${shortNumber(end[1])} at ${shortNumber(end[0])}`;
      if (lines.length > 1 || line.name) {
        this.legend.append(make("li", {}, make("span", { class: `syno-key syno-hue-${number % 8}` }), said));
      }
    });
    const words = lines.map((line) => `${line.name} ends at ${shortNumber(line.points[line.points.length - 1][1])}`);
    this.picture.setAttribute("aria-label", `${this.title}. ${words.join("; ") || "Nothing yet"}.`);
  }
}
