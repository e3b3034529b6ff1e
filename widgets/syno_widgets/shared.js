// What the views share. It is put before a widget's own files (scripts.py) and loads nothing: no address stands in it
// but the name of SVG.

const SVG = "http://www.w3.org/2000/svg";
const ANSWER_WITHIN_MS = 20000;
const SHOWN_AFTER_MS = 300;

/** An element with attributes and children; texts become text nodes and are never parsed as HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Drawn in a square of 16 (docs/design.md), in the colour of the text beside it. */
const ICONS = {
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  save: "M8 2v8m-3.5-3.5L8 10l3.5-3.5M2.5 13.5h11",
  undo: "M5.5 3L2.5 6l3 3M3 6h6.5a3.75 3.75 0 0 1 0 7.5H6",
  redo: "M10.5 3l3 3-3 3M13 6H6.5a3.75 3.75 0 0 0 0 7.5H10",
  play: "M4.5 2.5l8 5.5-8 5.5z",
  pause: "M5 3v10M11 3v10",
  back: "M10 3L5 8l5 5",
  next: "M6 3l5 5-5 5",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  search: "M2.5 7a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0M10.3 10.3l3.5 3.5",
  more: "M3 8h.01M8 8h.01M13 8h.01",
  add: "M8 3v10M3 8h10",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  help: "M6 6a2 2 0 1 1 2.8 1.8Q8 8.2 8 9.5M8 12.2h.01",
};

function icon(name) {
  const drawing = document.createElementNS(SVG, "svg");
  for (const [key, value] of [["class", "syno-icon"], ["viewBox", "0 0 16 16"], ["aria-hidden", "true"]]) drawing.setAttribute(key, value);
  drawing.append(document.createElementNS(SVG, "path"));
  drawing.firstChild.setAttribute("d", ICONS[name]);
  return drawing;
}

/** A menu of what is seldom wanted; it closes when something of it is pressed, by Escape, and when the focus leaves. */
function menu(label, drawing, ...items) {
  const close = () => {
    if (element.contains(document.activeElement)) summary.focus();
    element.open = false;
  };
  const summary = make("summary", { class: "syno-button syno-quiet", "aria-label": label, title: label }, icon(drawing));
  const element = make("details", { class: "syno-drop" }, summary, make("div", {}, ...items));
  element.addEventListener("click", (event) => event.target.closest("button") && close());
  element.addEventListener("focusout", (event) => event.relatedTarget && !element.contains(event.relatedTarget) && close());
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !element.open) return;
    event.stopPropagation();
    close();
  });
  return element;
}

/** A text is written only where it differs, so that what a reader has marked or focused stays. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const NAME = /(?<!\w)[A-Za-z]_\w*[A-Za-z0-9]/g; // of a letter: words such as fold_avg are no mathematics

const INDEX = /^(\d+|(?!by$)[a-z]{2,})$/; // of a variable, such as C_out: another part of a name is a factor

/** What is read, copied and found as it is written, and shown as something else. */
function shownAs(written, shown) {
  const hidden = make("span", { class: "syno-hidden-sign" }, written);
  return make("span", { class: shown ? "syno-shown-sign" : undefined, "data-shown": shown || undefined }, hidden);
}

/**
 * A text as the pictures set it (drawing/text.py): names with their indices lowered, a prime for the second of a
 * name, a dot for a product, a stroke for `_by_`. Its text content stays what it was.
 */
function asMath(text) {
  const found = [];
  const plain = (part) =>
    part.split("*").forEach((piece, at) => found.push(...(at ? [shownAs("*", "\u00b7")] : []), ...(piece ? [piece] : [])));
  let end = 0;
  for (const name of text.matchAll(NAME)) {
    plain(text.slice(end, name.index));
    const [, stem, indices, number] = /^([A-Za-z])(\w*?)(__\d+)?$/.exec(name[0]);
    const set = make("span", {}, stem);
    const below = indices.split("_by_")[1]?.split("_").filter((part) => !INDEX.test(part)) ?? [];
    let isFirst = true;
    for (const [, line, part] of indices.matchAll(/(_+)([^_]*)/g)) {
      const isIndex = !isFirst && INDEX.test(part);
      const low = make("span", { class: `syno-low syno-low-${isIndex ? 2 : 1}` });
      if (part === "by" && below.length) low.append(shownAs(`${line}by`, below.length > 1 ? "/(" : "/"));
      else low.append(shownAs(line, isFirst || isIndex ? "" : "\u00b7"), part);
      set.append(low);
      isFirst = part === "by" && below.length > 0;
    }
    if (below.length > 1) set.append(make("span", { class: "syno-low syno-low-1" }, shownAs("", ")")));
    if (number) set.append(shownAs(number, "\u2032".repeat(Number(number.slice(2)) - 1)));
    found.push(set);
    end = name.index + name[0].length;
  }
  plain(text.slice(end));
  return found;
}

/** As `write`, set as mathematics. */
function writeMath(element, text) {
  if (element.textContent !== text) element.replaceChildren(...asMath(text));
}

const DRAWN = new Set(["svg", "g", "title", "path", "polygon", "polyline", "ellipse", "rect", "text", "tspan"]);

/** Only what a drawing consists of is taken from the text of an SVG: no scripts, no links, no handlers. */
function parsePicture(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (parsed.namespaceURI !== SVG || parsed.localName !== "svg") return null;
  for (const element of [parsed, ...parsed.querySelectorAll("*")]) {
    if (!DRAWN.has(element.localName)) element.remove();
    for (const { name } of [...element.attributes]) {
      if (/^on|href$/i.test(name)) element.removeAttribute(name);
    }
  }
  return document.adoptNode(parsed); // it is moved, not copied
}

/** A style that hides the static picture beside a widget, as long as it is on the page. */
function hideStatic(id) {
  const mark = `[data-syno-static="${CSS.escape(id)}"]`;
  const style = make("style");
  style.textContent =
    `${mark}, .jp-OutputArea-child:has(${mark}), .cell-output-ipywidget-background + div:has(${mark}) ` +
    "{ display: none !important; }";
  document.head.append(style);
  return style;
}

/** Marks a part whose ground is dark, as seen from its colour: every host has a way of its own to say so. */
class Ground {
  constructor(part) {
    this.part = part;
    this.changes = new MutationObserver(() => requestAnimationFrame(() => this.look()));
    this.changes.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light", "data-jp-theme-name"] });
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.looks = () => this.look();
    this.scheme.addEventListener("change", this.looks);
  }

  look() {
    const ground = getComputedStyle(this.part.closest(".syno-shared") ?? document.body).backgroundColor;
    const [red, green, blue] = ground.match(/[\d.]+/g)?.map(Number) ?? [];
    this.part.classList.toggle("syno-dark", red * 0.3 + green * 0.6 + blue * 0.1 < 110);
  }

  stop() {
    this.changes.disconnect();
    this.scheme.removeEventListener("change", this.looks);
  }
}

/** `render` of a widget with this view; an error while it is made is shown in its place. */
function renderer(View, what) {
  return ({ model, el }) => {
    try {
      const view = new View(model, el);
      return () => view.destroy();
    } catch (error) {
      const words = `${what} cannot be shown: ${error.message}`;
      el.append(make("div", { class: "syno-shared" }, make("p", { class: "syno-error", role: "alert" }, words)));
      return () => {};
    }
  };
}

/** Draws anew when traits change; what it returns takes the listeners off again. */
function listener(model) {
  const taken = [];
  return {
    on(names, draw) {
      for (const name of names) {
        model.on(`change:${name}`, draw);
        taken.push([name, draw]);
      }
      draw();
    },
    off() {
      for (const [name, draw] of taken) model.off(`change:${name}`, draw);
    },
  };
}

/** Sends messages, each with a number, and notices that nobody answers. */
class Asker {
  /** `told.complain(text)` says what `told.gone` says once nobody has answered; numbers begin behind `first`. */
  constructor(model, root, told, first = 0) {
    Object.assign(this, { model, root, told, first, number: first, waiting: null });
  }

  /** `isQuiet`: nothing is said where it is not answered. */
  ask(kind, more, isQuiet = false) {
    if (!this.model.get("live")) return;
    this.number += 1;
    this.root.setAttribute("aria-busy", "true");
    this.model.send({ kind, request: this.number, ...more });
    this.wait(isQuiet);
  }

  wait(isQuiet = false) {
    this.stop();
    this.waiting = setTimeout(() => {
      this.root.removeAttribute("aria-busy");
      if (!isQuiet) this.told.complain(`The kernel does not answer: it is busy or gone. ${this.told.gone}`);
    }, ANSWER_WITHIN_MS);
  }

  /** What was asked last has been answered. */
  drawAnswer() {
    if (this.number > this.first && this.model.get("answered") !== this.number) return;
    this.stop();
    this.root.removeAttribute("aria-busy");
  }

  stop() {
    clearTimeout(this.waiting);
  }
}

/** What the kernel does beside a view, said as long as it lasts, with a button that cancels it; Escape does the same. */
class Running {
  /** `cancel()` asks for the end; the element is put where a reader looks for it. */
  constructor(model, cancel) {
    Object.assign(this, { model, cancel, since: 0, begun: 0, ticking: null, before: null });
    this.words = make("span", { "aria-live": "polite" });
    this.time = make("span", { class: "syno-quiet", "aria-hidden": "true" });
    this.button = make("button", { type: "button", class: "syno-cancel", onclick: () => this.end() }, "Cancel");
    this.rest = make("span", { hidden: true }, this.time, " ", this.button);
    this.element = make("div", { class: "syno-running" }, this.words, " ", this.rest);
  }

  /** Escape anywhere in the view is for what runs, before it is for anything else. */
  listen(root) {
    const onEscape = (event) => {
      if (event.key !== "Escape" || this.rest.hidden) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      this.end();
    };
    root.addEventListener("keydown", onEscape, true);
  }

  end() {
    this.cancel();
  }

  draw() {
    const { what, since } = this.model.get("live") ? this.model.get("running") : {};
    if (!what) return this.hide();
    if (since !== this.since) {
      this.stop();
      this.since = since;
      this.begun = performance.now(); // by the page's clock: the kernel's may be another
      this.ticking = setTimeout(() => this.show(), SHOWN_AFTER_MS);
    } else if (!this.rest.hidden) write(this.words, `Under way: ${what}.`);
  }

  /** Work that ends in a moment is not announced. */
  show() {
    const { what } = this.model.get("running");
    if (!what) return;
    write(this.words, `Under way: ${what}.`);
    if (this.rest.hidden) this.before = document.activeElement;
    this.rest.hidden = false;
    this.tick();
  }

  tick() {
    write(this.time, `${Math.round((performance.now() - this.begun) / 1000)} s`);
    this.ticking = setTimeout(() => this.tick(), 1000);
  }

  hide() {
    const had = document.activeElement === this.button;
    this.stop();
    this.since = 0;
    write(this.words, "");
    this.rest.hidden = true;
    if (!had) return;
    // The focus was on the button: return it to the place where the work was begun.
    const back = [this.before, this.element.parentElement?.querySelector("button:enabled")];
    back.find((one) => one?.isConnected && one !== document.body && !one.disabled)?.focus();
  }

  stop() {
    clearTimeout(this.ticking);
  }
}

/**
 * What a view has that asks and is drawn anew. A class of its own makes `model`, `root` and `error`, then attaches itself.
 */
class LiveView {
  /** Onto the page; `gone` is said after that nobody answers, and numbers of requests begin behind `first`. */
  attach(el, gone, first = 0) {
    el.append(this.root);
    this.asker = new Asker(this.model, this.root, { gone, complain: (text) => this.complain(text) }, first);
    this.listener = listener(this.model);
    this.running = new Running(this.model, () => this.asker.ask("cancel_work"));
    this.error.before(this.running.element);
    this.running.listen(this.root);
    this.listen(["error"], () => this.complain(this.model.get("error")));
    this.listen(["running"], () => this.drawRunning());
    this.listen(["answered"], () => this.asker.drawAnswer());
    this.style = hideStatic(this.model.get("static_id"));
  }

  /** Everything that was attached to the model or the page is taken off again. */
  destroy() {
    this.listener.off();
    this.asker.stop();
    this.running.stop();
    this.style.remove();
    this.root.remove();
  }

  drawRunning() {
    if (this.model.get("running").what) this.asker.stop(); // the kernel is there
    this.running.draw();
  }

  /** Draw now, and whenever one of these traits changes. */
  listen(names, draw) {
    this.listener.on(names, draw.bind(this));
  }

  put(trait, value) {
    if (this.model.get(trait) === value) return;
    this.model.set(trait, value);
    this.model.save_changes();
  }

  complain(text) {
    write(this.error, text);
    this.error.hidden = !text;
  }
}

/** Another widget within a view, by the name that a trait has for it. */
class ChildView {
  constructor(model, place, complain) {
    Object.assign(this, { model, place, complain, child: null });
  }

  async draw(name) {
    if (!name || !this.model.widget_manager || typeof name !== "string") return;
    const id = name.replace("IPY_MODEL_", "");
    if (this.child?.id === id) return;
    this.close();
    try {
      const manager = this.model.widget_manager;
      const view = await manager.create_view(await manager.get_model(id));
      this.child = { id, view };
      this.place.replaceChildren(view.el);
    } catch (error) {
      this.complain(error.message);
    }
  }

  close() {
    this.child?.view.remove?.();
    this.child = null;
  }
}

/** Options, each a value and a text, made anew only where they differ, so that an open list stays open. */
function fillSelect(select, options, chosen) {
  const now = JSON.stringify(options);
  if (select.dataset.options !== now) {
    select.dataset.options = now;
    select.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
  }
  select.value = chosen;
}

/** The sizes of an operator's variables in a `<details>`, with a form where others can be asked for. */
function drawSizes(box, title, sizes, live, bind) {
  const words = Object.entries(sizes).map(([name, number]) => `${name}=${number}`).join(", ");
  const form = make(
    "form",
    {
      class: "syno-bar",
      onsubmit: (event) => {
        event.preventDefault();
        bind(Object.fromEntries([...form.querySelectorAll("input")].map((one) => [one.name, Number(one.value)])));
      },
      // In JupyterLab, Chromium does not submit a form of numbers by itself.
      onkeydown: (event) => {
        if (event.key !== "Enter" || !event.target.matches("input")) return;
        event.preventDefault();
        form.requestSubmit();
      },
    },
    ...Object.entries(sizes).map(([name, value]) =>
      make("label", {}, `${name} `, make("input", { type: "number", name, value, min: 1, max: 100000, required: true })),
    ),
    make("button", { type: "submit" }, "Use these sizes"),
  );
  const active = box.contains(document.activeElement) ? document.activeElement.name : undefined; // after Enter
  box.replaceChildren(make("summary", {}, ...asMath(`${title}: ${words}`)), live ? form : "");
  if (active !== undefined) (form.elements[active] ?? form.elements[form.elements.length - 1]).focus();
}

/** A menu of the layers of a network: the sizes of the chosen layer are bound. */
class LayerMenu {
  constructor(bind) {
    this.select = make("select", { onchange: () => this.select.value && bind(this.layers[Number(this.select.value)][1]) });
    this.element = make("p", { class: "syno-places", hidden: true }, make("label", {}, "Layer of a network ", this.select));
  }

  draw(layers, sizes, live) {
    this.layers = layers;
    const shown = layers.findIndex(([, bound]) => Object.entries(sizes).every(([name, number]) => bound[name] === number));
    this.element.hidden = layers.length === 0 || !live;
    const options = layers.map(([name], number) => [String(number), name]);
    fillSelect(this.select, shown < 0 ? [["", "other sizes"], ...options] : options, shown < 0 ? "" : String(shown));
  }
}

/** The arrow keys lead from one of `items()` to the next; only one of them is in the order of Tab. */
function moveAmong(event, items) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return false;
  const at = items.indexOf(event.target);
  if (at < 0) return false;
  const next = items[(at + step + items.length) % items.length];
  for (const item of items) item.setAttribute("tabindex", item === next ? "0" : "-1");
  next.focus();
  event.preventDefault();
  event.stopPropagation();
  return true;
}

/** Text to the clipboard, also where a page may not use the clipboard's own interface. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("this page may not write to the clipboard");
  }
}

/** A file for the reader to keep. */
function saveFile(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = make("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function loadImage(address) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("the picture cannot be drawn"));
    image.src = address;
  });
}

function canvasBlob(canvas) {
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png"),
  );
}

/** An SVG as a PNG on white, twice as fine as its own size. */
async function pngOfSvg(text) {
  const image = await loadImage(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`);
  const canvas = make("canvas");
  canvas.width = Math.min(2 * image.width, 8000);
  canvas.height = Math.round((canvas.width * image.height) / image.width);
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvasBlob(canvas);
}

/** PNG pictures side by side as one. */
async function pngOfPictures(addresses) {
  const gap = 4;
  const images = await Promise.all(addresses.map(loadImage));
  const canvas = make("canvas");
  canvas.width = images.reduce((sum, image) => sum + image.width + gap, -gap);
  canvas.height = Math.max(...images.map((image) => image.height));
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  let at = 0;
  for (const image of images) {
    context.drawImage(image, at, 0);
    at += image.width + gap;
  }
  return canvasBlob(canvas);
}
