// The picture of `OperatorView`, and of the stepper: moved by dragging, Shift and arrows; enlarged by + and -, buttons, Ctrl and the wheel;
// searched by words; its parts reached by the arrow keys.

const ZOOM = 1.25;
const MOST_ZOOM = 12;
const MOVES_MS = 180;
const [LEAST_LETTER, MOST_LETTER] = [11, 18]; // pixels of a font, of all that is not an index
const [EDGE, BELOW] = [12, 20]; // pixels between the picture and its frame, and below the output
const ANCHOR = 0.22; // of the frame's width on the left of the output at the start: pGraphs grow to the right
const SCALE_STEP = 0.88; // it shrinks by so much at a time, so that most steps leave its size as it is
const FILLED = 0.75; // of the frame in one direction, at the end
const SMALL = 0.82; // of the largest scale that fits: below it a picture is enlarged
const PARTS = "Arrow keys go from part to part, Enter chooses one, Escape clears the choice; ";
const HELP = "plus and minus enlarge, 0 shows all, Shift with arrow keys moves the picture.";

const NUMBER = /-?\d+(?:\.\d+)?/g;

/** How far a group's drawing is moved within the picture. */
function movedBy(part) {
  const [, across = 0, down = 0] = /translate\((-?[\d.]+)[ ,]+(-?[\d.]+)/.exec(part.parentNode.getAttribute("transform") ?? "") ?? [];
  return [Number(across), Number(down)];
}

/** The ends of a node's outlines: left, top, right, bottom; null for a part without one. */
function boundsOf(part) {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  const add = (x, y) => {
    [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
  };
  for (const one of part.querySelectorAll("polygon, path, ellipse")) {
    if (one.localName === "ellipse") {
      const [x, y, across, down] = ["cx", "cy", "rx", "ry"].map((name) => Number(one.getAttribute(name)));
      add(x - across, y - down);
      add(x + across, y + down);
      continue;
    }
    const numbers = one.getAttribute(one.localName === "path" ? "d" : "points").match(NUMBER)?.map(Number) ?? [];
    for (let at = 0; at + 1 < numbers.length; at += 2) add(numbers[at], numbers[at + 1]);
  }
  const [across, down] = movedBy(part);
  return left > right ? null : [left + across, top + down, right + across, bottom + down];
}

/** The middle of a node's outlines; null for a part without one. */
function middleOf(part) {
  const bounds = boundsOf(part);
  return bounds && [(bounds[0] + bounds[2]) / 2, (bounds[1] + bounds[3]) / 2];
}

/** A line's label goes from beside the line onto it, at the same height. */
function setOnLine(edge) {
  const [path, label] = [edge.querySelector("path"), edge.querySelector("text")];
  const plate = edge.querySelector('polygon[stroke="none"]');
  if (!path || !label || !plate) return;
  const corners = plate.getAttribute("points").match(NUMBER).map(Number);
  const middle = (at) => (Math.min(...corners.filter((_, n) => n % 2 === at)) + Math.max(...corners.filter((_, n) => n % 2 === at))) / 2;
  const length = path.getTotalLength();
  const points = Array.from({ length: 33 }, (_, at) => path.getPointAtLength((at / 32) * length));
  const off = (point) => Math.abs(point.y - middle(1));
  const nearest = points.reduce((best, point) => (off(point) < off(best) ? point : best));
  for (const one of [plate, label]) one.setAttribute("transform", `translate(${nearest.x - middle(0)} 0)`);
}

class GraphView {
  /**
   * `told.hover(ids)` is called with what is under the pointer or has the focus, `told.choose(id)` on a click,
   * `told.search(text)` with what is typed into the search box, and `told.next()`, if there, on Enter in it. The node
   * `anchor`, if given, stays where it is on the screen from one picture to the next, below all else.
   */
  constructor(told, anchor = "") {
    this.told = told;
    this.anchor = anchor;
    this.links = {};
    this.parts = new Map();
    this.element = make("div", {
      class: "syno-graph",
      role: "group",
      tabindex: "0",
      onkeydown: (event) => this.onKey(event),
      onpointerdown: (event) => this.onDown(event),
      onpointermove: (event) => this.onMove(event),
      onpointerup: () => (this.held = null),
      onpointercancel: () => (this.held = null),
      onpointerover: (event) => this.hover(event),
      onpointerleave: () => told.hover([]),
      onfocusin: (event) => this.hover(event),
      onfocusout: () => told.hover([]),
      onclick: (event) => this.onClick(event),
    });
    // Where the whole does not fit: a small one, with what is seen of it.
    this.map = document.createElementNS(SVG, "svg");
    this.map.setAttribute("aria-hidden", "true");
    this.map.onpointerdown = (event) => this.onMap(event);
    this.map.onpointermove = (event) => event.buttons && this.onMap(event);
    this.element.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    this.searchBox = make("input", {
      type: "search",
      maxlength: "100",
      oninput: () => told.search(this.searchBox.value),
      onkeydown: (event) => event.key === "Enter" && told.next?.(),
    });
    this.count = make("span", { class: "syno-found-count", role: "status", "aria-live": "polite" });
    this.call("pGraph");
    this.ground = new Ground(this.element);
    this.stood = ANCHOR; // of the frame's width, on the left of the anchor
    this.frame = null; // the frame's width and height, where they are watched
    this.sized = new ResizeObserver(() => {
      this.frame = [this.element.clientWidth, this.element.clientHeight];
      this.ground.look();
      if (!this.svg || this.isMoved) return;
      this.scale = 0;
      this.settle();
    });
    if (anchor) this.sized.observe(this.element);
  }

  stop() {
    this.ground.stop();
    this.sized.disconnect();
  }

  /** What the picture is called. */
  call(noun) {
    this.noun = noun;
    this.searchBox.setAttribute("placeholder", `Search the ${noun}`);
    this.searchBox.setAttribute("aria-label", `Search the ${noun}`);
    this.sayHelp();
  }

  /** A picture without parts cannot be searched, and has none to choose. */
  sayHelp() {
    const hasParts = Object.keys(this.links).length > 0;
    this.element.setAttribute("aria-label", `The ${this.noun}. ${hasParts ? PARTS : ""}${HELP}`);
    this.searchBox.hidden = this.count.hidden = this.svg !== undefined && !hasParts;
  }

  /** Another drawing; ids go into `data-id`, because several views of one operator can be on a page. */
  draw(text, links, description, isComplete = false) {
    const before = this.places();
    this.drawn = new Set(this.parts.keys());
    this.links = links;
    this.parts = new Map();
    const picture = parsePicture(text);
    if (!picture) {
      this.svg = null;
      this.element.replaceChildren(make("p", {}, description));
      return;
    }
    picture.removeAttribute("style");
    picture.setAttribute("role", "group");
    picture.setAttribute("aria-label", description);
    picture.setAttribute("preserveAspectRatio", this.anchor ? "xMidYMax meet" : "xMidYMid meet");
    this.full = (picture.getAttribute("viewBox") || "0 0 100 100").split(/\s+/).map(Number);
    for (const name of ["width", "height"]) picture.removeAttribute(name);
    for (const part of picture.querySelectorAll("[id]")) {
      part.dataset.id = part.id;
      part.removeAttribute("id");
      this.parts.set(part.dataset.id, part);
    }
    for (const id of Object.keys(links)) {
      const part = this.parts.get(id);
      if (!part) continue;
      part.setAttribute("role", "button");
      part.setAttribute("aria-label", links[id].words);
      part.setAttribute("aria-pressed", "false");
      part.setAttribute("tabindex", "-1");
    }
    this.nodes()[0]?.setAttribute("tabindex", "0");
    if (this.anchor) for (const edge of picture.querySelectorAll(".edge.line")) setOnLine(edge);
    this.svg = picture;
    this.sayHelp();
    this.map.replaceChildren();
    this.element.replaceChildren(picture);
    if (!this.anchor) this.element.style.aspectRatio = `${this.full[2]} / ${this.full[3]}`;
    else {
      // As high before a step as after it; at the end not much higher than a small picture in large letters.
      this.element.style.height = "";
      const most = this.scales()[1];
      const [wide, high] = this.size();
      this.isSmall = isComplete && most * this.full[2] < FILLED * wide && most * this.full[3] < FILLED * high;
      if (this.isSmall) this.element.style.height = `${Math.ceil(most * this.full[3] + EDGE + BELOW)}px`;
      if (this.isSmall || this.wasSmall) this.frame = null;
      this.wasSmall = this.isSmall;
      this.frame ??= [this.element.clientWidth, this.element.clientHeight];
    }
    this.settle();
    if (!this.anchor) this.ground.look();
    this.moveFrom(before);
  }

  // -- from one picture to the next -----------------------------------------------------------------------------------

  /** The width and the height of the frame; where they are watched nothing is laid out for them. */
  size() {
    return this.frame ?? [this.element.clientWidth, this.element.clientHeight];
  }

  /** How what is seen fits the frame: the scale, and where the picture's origin is in the frame. */
  seen() {
    const [wide, high] = this.size();
    const [x, y, width, height] = this.box;
    const scale = Math.min(wide / width, high / height);
    const below = high - scale * height;
    return [scale, (wide - scale * width) / 2 - scale * x, (this.anchor ? below : below / 2) - scale * y];
  }

  /** The middles of the nodes in the frame, by id: in the picture's own numbers, so that nothing is laid out for them. */
  places() {
    if (!this.svg?.isConnected || matchMedia("(prefers-reduced-motion: reduce)").matches) return null;
    const [scale, left, top] = this.seen();
    if (!scale) return null; // it is folded away
    const found = new Map();
    for (const id of Object.keys(this.links)) {
      const part = this.parts.get(id);
      const middle = part && middleOf(part);
      if (middle) found.set(id, [left + scale * middle[0], top + scale * middle[1]]);
    }
    return found;
  }

  /** What stays goes to its new place, what is new appears; the frame that has the new graph is the first one. */
  moveFrom(before) {
    const now = before && this.places();
    if (!now) return;
    const [scale] = this.seen();
    const options = { duration: MOVES_MS, easing: "ease-out" };
    const ways = new Map();
    for (const [id, [x, y]] of now) {
      const from = before.get(id);
      if (from) ways.set(id, [(from[0] - x) / scale, (from[1] - y) / scale]);
    }
    for (const [id, part] of this.parts) {
      const ends = id.split("--").map((end) => ways.get(end) ?? ways.get(end.replace(/_[ad]\d+$/, "")));
      // A line goes along with the middle between its ends.
      const way = ends.every(Boolean) && [0, 1].map((axis) => ends.reduce((sum, end) => sum + end[axis], 0) / ends.length);
      if (!way || !(before.has(id) || this.drawn.has(id))) part.animate([{ opacity: 0 }, { opacity: 1 }], options);
      else if (Math.hypot(...way) > 1) part.animate([{ transform: `translate(${way[0]}px, ${way[1]}px)` }, { transform: "none" }], options);
    }
  }

  /** What is said of the chosen part, the search box, how much was found, and the buttons that enlarge. */
  bar(said = "") {
    const button = (text, title, onclick) => make("button", { type: "button", class: "syno-quiet", title, "aria-label": title, onclick }, text);
    return make(
      "div",
      { class: "syno-bar" },
      said,
      this.searchBox,
      this.count,
      said ? "" : make("span", { class: "syno-gap" }),
      button("+", "Enlarge", () => this.zoom(ZOOM)),
      button("−", "Make smaller", () => this.zoom(1 / ZOOM)),
      button(icon("fit"), "Show all", () => this.fit()),
    );
  }

  nodes() {
    return Object.keys(this.links).map((id) => this.parts.get(id)).filter(Boolean);
  }

  // -- where we look --------------------------------------------------------------------------------------------------

  /** All of it, however small. A frame that is not yet laid out has no scale. */
  fit() {
    this.isMoved = false;
    this.box = [...this.full];
    const scale = this.anchor ? Math.min(this.scaleFor(0), this.scales()[1]) : 0;
    if (scale) this.lookAt(scale);
    this.fitted = this.box[2];
    this.show();
  }

  /** The smallest and the largest scale, by its letters. */
  scales() {
    const sizes = [...this.svg.querySelectorAll("text[font-size]")].map((text) => Number.parseFloat(text.getAttribute("font-size")));
    const most = MOST_LETTER / Math.max(12, ...sizes);
    return [Math.min(most, LEAST_LETTER / Math.min(12, ...sizes)), most];
  }

  /** The largest scale at which all of it is seen, but not below `least`. */
  scaleFor(least) {
    const [wide, high] = this.size();
    return Math.max(least, Math.min((wide - 2 * EDGE) / this.full[2], (high - EDGE - BELOW) / this.full[3]));
  }

  /**
   * In letters that can be read: the scale changes only when it must, the anchor stays where it is, and where the whole
   * does not fit, the latest step is in sight.
   */
  settle() {
    if (!this.anchor || !Math.min(...this.size())) return this.fit();
    this.isMoved = false;
    const [least, most] = this.scales();
    const stepped = (largest) => {
      let scale = most;
      while (scale > largest) scale = Math.max(least, scale > least ? scale * SCALE_STEP : largest);
      return scale;
    };
    const free = stepped(this.scaleFor(least));
    const kept = this.isSmall ? free : Math.min(free, stepped(Math.max(least, this.keptScale())));
    if (!(this.scale <= kept && this.scale >= SMALL * free)) this.scale = kept >= SMALL * free ? kept : free;
    this.lookAt(this.scale);
    this.fitted = this.box[2];
    this.show();
    const latest = this.svg.querySelector(".node.highlight");
    if (latest) this.reveal(latest.dataset.id);
  }

  /** The largest scale at which all of it is seen beside the anchor, which stays where it is. */
  keptScale() {
    const [left, , width] = this.full;
    const part = this.parts.get(this.anchor);
    const [start, , end] = (part && boundsOf(part)) ?? [left, 0, left + width];
    const [wide, at] = [this.size()[0], (start + end) / 2 - left];
    return Math.min((this.stood * wide - EDGE) / at, ((1 - this.stood) * wide - EDGE) / (width - at));
  }

  /** What is seen at a scale: the anchor at the lower end, and where it was before if nothing is hidden by that. */
  lookAt(scale) {
    const [wide, high] = this.size();
    const [left, top, width, height] = this.full;
    const part = this.parts.get(this.anchor);
    const bounds = (part && boundsOf(part)) ?? [left, top, left + width, top + height];
    const at = (bounds[0] + bounds[2]) / 2;
    const [seen, edge] = [wide / scale, EDGE / scale];
    const ends = [left - edge, left + width + edge - seen].sort((one, other) => one - other);
    const start = Math.min(ends[1], Math.max(ends[0], at - this.stood * seen));
    this.stood = (at - start) / seen;
    this.box = [start, bounds[3] + BELOW / scale - high / scale, seen, high / scale];
  }

  show() {
    this.svg?.setAttribute("viewBox", this.box.map((number) => number.toFixed(2)).join(" "));
    const [left, top, width, height] = this.full;
    const [x, y, wide, high] = this.box;
    const isWhole = x <= left + 1 && y <= top + 1 && x + wide >= left + width - 1 && y + high >= top + height - 1;
    const stays = !isWhole && this.map.childElementCount;
    this.map.setAttribute("class", isWhole ? "syno-map syno-whole" : "syno-map");
    if (isWhole) this.map.replaceChildren();
    else if (!stays) this.drawMap();
    const [eye] = this.map.children;
    for (const [name, value] of Object.entries(isWhole ? {} : { x, y, width: wide, height: high })) eye.setAttribute(name, value);
  }

  drawMap() {
    this.map.setAttribute("viewBox", this.full.join(" "));
    const rectangles = [...this.nodes().map(boundsOf).filter(Boolean), [0, 0, 0, 0]].map(([left, top, right, bottom]) => {
      const one = document.createElementNS(SVG, "rect");
      for (const [name, value] of Object.entries({ x: left, y: top, width: right - left, height: bottom - top })) one.setAttribute(name, value);
      return one;
    });
    rectangles.at(-1).setAttribute("class", "syno-eye");
    this.map.replaceChildren(...rectangles.reverse());
  }

  /** The place of the map that is pressed comes to the middle. */
  onMap(event) {
    event.preventDefault();
    event.stopPropagation();
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.map.getScreenCTM().inverse());
    this.isMoved = true;
    [this.box[0], this.box[1]] = [point.x - this.box[2] / 2, point.y - this.box[3] / 2];
    this.show();
  }

  /** Larger or smaller around a place given as shares of the width and height. */
  zoom(factor, across = 0.5, down = 0.5) {
    if (!this.svg) return;
    this.isMoved = true;
    const [x, y, width, height] = this.box;
    const less = Math.min(Math.max(this.full[2] / width / MOST_ZOOM, 1 / factor), (2 * (this.fitted ?? this.full[2])) / width);
    this.box = [x + across * width * (1 - less), y + down * height * (1 - less), width * less, height * less];
    this.show();
  }

  move(across, down) {
    if (!this.svg) return;
    this.isMoved = true;
    this.box[0] += across * this.box[2];
    this.box[1] += down * this.box[3];
    this.show();
  }

  /** Moved so that a part is in the middle, where it is not to be seen. */
  reveal(id) {
    const part = this.parts.get(id);
    if (!part || !this.svg) return;
    const [frame, place] = [this.element.getBoundingClientRect(), part.getBoundingClientRect()];
    const middle = [(place.left + place.right) / 2, (place.top + place.bottom) / 2];
    const inside = middle[0] > frame.left && middle[0] < frame.right && middle[1] > frame.top && middle[1] < frame.bottom;
    if (inside) return;
    this.isMoved = true;
    const scale = this.svg.getScreenCTM()?.a || 1;
    this.box[0] += (middle[0] - (frame.left + frame.right) / 2) / scale;
    this.box[1] += (middle[1] - (frame.top + frame.bottom) / 2) / scale;
    this.show();
  }

  // -- what is asked of it --------------------------------------------------------------------------------------------

  idOf(target) {
    const part = target.closest?.("[data-id]");
    return part && part.dataset.id in this.links ? part.dataset.id : "";
  }

  hover(event) {
    const id = this.idOf(event.target);
    this.told.hover(id ? [id] : []);
  }

  onClick(event) {
    if (this.dragged) return;
    const id = this.idOf(event.target);
    if (id) this.told.choose(id);
  }

  onDown(event) {
    this.dragged = false;
    if (event.button === 0) this.held = [event.clientX, event.clientY];
  }

  onMove(event) {
    if (!this.held || !this.svg) return;
    const [across, down] = [event.clientX - this.held[0], event.clientY - this.held[1]];
    if (!this.dragged && Math.hypot(across, down) < 4) return;
    if (!this.dragged) this.element.setPointerCapture?.(event.pointerId);
    this.dragged = this.isMoved = true;
    this.held = [event.clientX, event.clientY];
    const scale = this.svg.getScreenCTM()?.a || 1;
    this.box[0] -= across / scale;
    this.box[1] -= down / scale;
    this.show();
  }

  /** The wheel alone scrolls the notebook. */
  onWheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const frame = this.element.getBoundingClientRect();
    const place = [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
    this.zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, ...place);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moveAmong(event, this.nodes())) {
      this.reveal(this.idOf(document.activeElement));
      return;
    }
    const shifted = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
    const id = this.idOf(event.target);
    if (event.key === "+" || event.key === "=") this.zoom(ZOOM);
    else if (event.key === "-") this.zoom(1 / ZOOM);
    else if (event.key === "0") this.fit();
    else if (shifted && event.shiftKey) this.move(...shifted);
    else if ((event.key === "Enter" || event.key === " ") && id) this.told.choose(id);
    else if (event.key === "Escape") this.told.choose("");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** What a step would add, above what it uses: `item` has its `text`, `operands` and `given`; null takes it away. */
  ghost(item) {
    for (const part of this.svg?.querySelectorAll(".syno-marked") ?? []) part.classList.remove("syno-marked");
    this.ghosted?.remove();
    this.ghosted = null;
    if (!item || !this.svg) return;
    const parts = [...item.operands, ...item.given].map((id) => this.parts.get(id)).filter(Boolean);
    for (const part of parts) part.classList.add("syno-marked");
    const bounds = parts.map(boundsOf).filter(Boolean);
    const draw = (name, attributes) => {
      const one = document.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
      return one;
    };
    const [left, top, width] = this.full;
    const mean = bounds.reduce((sum, [start, , end]) => sum + (start + end) / 2, 0) / bounds.length || left + width / 2;
    const wide = 8 * item.text.length + 16;
    const x = Math.min(Math.max(mean, this.box[0] + wide / 2 + 4), this.box[0] + this.box[2] - wide / 2 - 4);
    const y = Math.max(top - 24, this.box[1] + 16);
    const label = draw("text", { x, y: y + 4, "text-anchor": "middle", "font-size": 12 });
    label.textContent = item.text;
    this.ghosted = draw("g", { class: "syno-ghost", "aria-hidden": "true" });
    const lines = bounds.map(([start, high, end]) => draw("path", { d: `M${(start + end) / 2},${high}L${x},${y + 13}` }));
    this.ghosted.append(...lines, draw("rect", { x: x - wide / 2, y: y - 13, width: wide, height: 26, rx: 6 }), label);
    this.svg.append(this.ghosted);
  }

  // -- what is marked -------------------------------------------------------------------------------------------------

  /** The light of `ids`, and which of them is chosen. */
  light(ids, chosen) {
    this.lightParts(new Set(ids.flatMap((id) => this.links[id]?.light ?? [])), chosen);
  }

  /** These parts alone are lit. */
  lightParts(lit, chosen) {
    if (!this.svg) return;
    this.svg.classList.toggle("syno-lighted", lit.size > 0);
    for (const [id, part] of this.parts) {
      part.classList.toggle("syno-lit", lit.has(id));
      if (part.getAttribute("role") === "button") part.setAttribute("aria-pressed", String(id === chosen));
    }
  }

  /** A class for each part that is named, and words that a screen reader reads out with it. */
  mark(classes, words) {
    for (const [id, name] of Object.entries(classes)) {
      const part = this.parts.get(id);
      part?.classList.add(name);
      if (part?.hasAttribute("aria-label")) part.setAttribute("aria-label", `${this.links[id].words}; ${words[name]}`);
    }
  }

  /** Marks the parts whose words contain the text, says how many beside the search box, and returns which they are. */
  search(text) {
    if (this.searchBox.value !== text) this.searchBox.value = text;
    const wanted = text.trim().toLowerCase();
    const found = [];
    for (const [id, link] of Object.entries(this.links)) {
      const fits = wanted !== "" && `${id} ${link.words}`.toLowerCase().includes(wanted);
      this.parts.get(id)?.classList.toggle("syno-found", fits);
      if (fits) found.push(id);
    }
    write(this.count, wanted ? `${found.length} found` : "");
    return found;
  }
}
