// The picture of `OperatorView`, and of the stepper: moved by dragging, Shift and arrows; enlarged by + and -, buttons, Ctrl and the wheel;
// searched by words; its parts reached by the arrow keys.

const ZOOM = 1.25;
const MOST_ZOOM = 12;
const MOVES_MS = 180;
const MOST_SCALE = 1.1; // pixels of a point: a small picture is not enlarged beyond it
const BELOW = 20; // pixels between the lower end of the output and that of the frame
const ANCHOR = 0.22; // of the frame's width on the left of the output: pGraphs grow to the right
const LEAST_KEPT = 0.6;
const SCALE_STEP = 0.9; // it shrinks by so much at a time, so that most steps leave its size as it is
const PARTS = "Arrow keys go from part to part, Enter chooses one, Escape clears the choice; ";
const HELP = "plus and minus enlarge, 0 shows all, Shift with arrow keys moves the picture.";

const NUMBER = /-?\d+(?:\.\d+)?/g;

/** How far a group's drawing is moved within the picture. */
function movedBy(part) {
  const [, across = 0, down = 0] = /translate\((-?[\d.]+)[ ,]+(-?[\d.]+)/.exec(part.parentNode.getAttribute("transform") ?? "") ?? [];
  return [Number(across), Number(down)];
}

/** The middle of a node's outlines; null for a part without one. */
function middleOf(part) {
  let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  const add = (x, y) => {
    [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
  };
  for (const one of part.querySelectorAll("polygon, path, ellipse")) {
    if (one.localName === "ellipse") {
      add(Number(one.getAttribute("cx")), Number(one.getAttribute("cy")));
      continue;
    }
    const numbers = one.getAttribute(one.localName === "path" ? "d" : "points").match(NUMBER)?.map(Number) ?? [];
    for (let at = 0; at + 1 < numbers.length; at += 2) add(numbers[at], numbers[at + 1]);
  }
  const [across, down] = movedBy(part);
  return left > right ? null : [(left + right) / 2 + across, (top + bottom) / 2 + down];
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
    this.frame = null; // the frame's width and height, where they are watched
    this.sized = new ResizeObserver(() => {
      this.frame = [this.element.clientWidth, this.element.clientHeight];
      this.ground.look();
      if (this.svg && !this.isMoved) this.fit();
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
  draw(text, links, description) {
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
    this.svg = picture;
    this.sayHelp();
    this.element.replaceChildren(picture);
    if (!this.anchor) this.element.style.aspectRatio = `${this.full[2]} / ${this.full[3]}`; // else it has a height of its own
    this.fit();
    if (!this.frame) this.ground.look();
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

  /** The search box, how much was found, and the buttons that enlarge. */
  bar() {
    const button = (text, title, onclick) => make("button", { type: "button", title, "aria-label": title, onclick }, text);
    return make(
      "div",
      { class: "syno-bar" },
      this.searchBox,
      this.count,
      make("span", { class: "syno-gap" }),
      button("+", "Enlarge", () => this.zoom(ZOOM)),
      button("−", "Make smaller", () => this.zoom(1 / ZOOM)),
      button("Fit", "Show all", () => this.fit()),
    );
  }

  nodes() {
    return Object.keys(this.links).map((id) => this.parts.get(id)).filter(Boolean);
  }

  // -- where we look --------------------------------------------------------------------------------------------------

  fit() {
    this.isMoved = false;
    this.box = this.anchored() ?? [...this.full];
    this.fitted = this.box[2];
    this.show();
  }

  /** What is seen where the output keeps its place; it leaves it only where all else would become too small for it. */
  anchored() {
    const [wide, high] = this.size();
    const found = this.footOf(this.anchor);
    if (!found || !wide || !high) return null;
    const [at, foot] = found;
    const [left, top, width, height] = this.full;
    const [before, behind] = [at - left, left + width - at];
    const largest = (across) => {
      let scale = MOST_SCALE;
      while (across(scale) || scale * (foot - top) + BELOW > high || scale * (top + height - foot) > BELOW) scale *= SCALE_STEP;
      return scale;
    };
    const free = largest((scale) => scale * width > wide);
    const kept = largest((scale) => scale * before > ANCHOR * wide || scale * behind > (1 - ANCHOR) * wide);
    const scale = kept < LEAST_KEPT * free ? free : kept;
    const seen = wide / scale;
    const start = Math.min(left, Math.max(left + width - seen, at - ANCHOR * seen));
    return [start, foot - (high - BELOW) / scale, seen, high / scale];
  }

  /** The middle and the lower end of a tensor, in the picture's own numbers: nothing is laid out for it. */
  footOf(id) {
    const part = this.parts.get(id);
    const points = [...(part?.querySelectorAll("polygon") ?? [])].flatMap((one) => one.getAttribute("points").trim().split(/\s+/));
    const numbers = points.map((point) => point.split(",").map(Number)).filter((pair) => pair.every(Number.isFinite));
    if (!numbers.length) return null;
    const [across, down] = movedBy(part);
    const xs = numbers.map(([x]) => x);
    return [(Math.min(...xs) + Math.max(...xs)) / 2 + across, Math.max(...numbers.map(([, y]) => y)) + down];
  }

  show() {
    this.svg?.setAttribute("viewBox", this.box.map((number) => number.toFixed(2)).join(" "));
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
