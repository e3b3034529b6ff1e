// The view of `Explorer`: what branches, as boxes and as a table. Everything it shows is a trait; it asks by setting traits
// and by small messages. It stands behind shared.js (scripts.py) and loads nothing: no address stands in this file.

const BOX_HIGH = 24;
const FILTER_MS = 250;
const BOXES_HELP =
  "The next places as boxes, each below the place that it follows. Arrow keys go down, up and sideways, Enter chooses, " +
  "plus or a double click begins the picture here, minus one place earlier.";
const FACTS = [
  ["kind", "kind"],
  ["searches", "searches"],
  ["outstanding", "under way"],
  ["fruitless", "without an operator"],
  ["reward", "mean reward"],
  ["best", "best reward"],
  ["distance", ""], // in the words of the system
  ["probe", "probe"],
];

const COLOURS = ["reward", "searches", "distance", "probe", "primitive"];
const PLAY_MS = 300;
const [EDGES, NARROW_EDGES] = [12, 5]; // of a box, left and right of its text

function shownNumber(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(4))) : String(value);
}

class ExplorerPage extends LiveView {
  constructor(model, el) {
    super();
    this.model = model;
    this.parts = new Map();
    this.buildParts();
    this.attach(el, "The picture stays; run the cell again to continue.");
    this.child = new ChildView(model, this.opened, (text) => this.complain(`The stepper cannot be shown: ${text}`));
    this.listen(["headline"], () => write(this.headline, model.get("headline")));
    this.listen(["sources", "source"], this.drawSources);
    this.listen(["depth", "colour", "filter", "pruned", "measure"], this.drawChoices);
    this.listen(["boxes"], this.drawBoxes);
    this.listen(["trials", "upto"], this.drawReplay);
    this.listen(["chosen"], this.drawChosen);
    this.listen(["way", "root"], this.drawWay);
    this.resized = new ResizeObserver(() => this.fitTexts());
    this.resized.observe(this.boxes);
    this.listen(["table", "measure"], this.drawTable);
    this.listen(["facts"], this.drawFacts);
    this.listen(["opened"], () => this.child.draw(model.get("opened")));
  }

  destroy() {
    clearTimeout(this.typing);
    this.pause();
    this.resized.disconnect();
    this.ground.stop();
    this.child.close();
    super.destroy();
  }

  // -- building

  buildParts() {
    const live = this.model.get("live");
    this.headline = make("p", { class: "syno-status", role: "status", "aria-live": "polite" });
    this.error = make("p", { class: "syno-error", role: "alert" });
    this.said = make("p", { class: "syno-said syno-quiet" });
    this.choices = {};
    const choose = (name, label, values, read = String) => {
      const select = make("select", { disabled: !live, onchange: () => this.put(name, read(select.value)) });
      select.append(...values.map((value) => make("option", { value }, String(value))));
      this.choices[name] = select;
      return make("label", {}, `${label} `, select);
    };
    const input = make("input", { type: "search", maxlength: "200", disabled: !live, placeholder: "words, reward>0.5, distance<=2, kind=dead" });
    input.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.put("filter", input.value), FILTER_MS);
    });
    this.choices.filter = input;
    this.choices.pruned = make("input", { type: "checkbox", disabled: !live, onchange: (event) => this.put("pruned", event.target.checked) });
    const depths = Array.from({ length: 16 }, (_, place) => place + 1);
    const bar = make("div", { class: "syno-bar" });
    bar.append(choose("source", "Source", []), choose("depth", "Levels", depths, Number));
    bar.append(choose("colour", "Colour", []));
    bar.append(make("label", {}, this.choices.pruned, " pruned steps"), make("label", {}, "Filter ", input));
    const press = (text, onclick, kind = "syno-quiet") => make("button", { class: kind, type: "button", disabled: !live, onclick }, text);
    this.buttons = {
      zoom: press("Begin the picture here", () => this.put("root", this.at())),
      all: press("Show all", () => this.put("root", "")),
      open: press("Open in the stepper", () => this.asker.ask("open", { key: this.at() }), "syno-primary"),
      around: press("Space around it", () => this.asker.ask("around", { key: this.at() })),
    };
    const tools = make("div", { class: "syno-bar", role: "group", "aria-label": "The chosen place" }, ...Object.values(this.buttons));
    this.boxes = make("div", {
      class: "syno-icicle",
      role: "tree",
      "aria-label": BOXES_HELP,
      onclick: (event) => this.onClick(event),
      ondblclick: (event) => this.onDouble(event),
      onkeydown: (event) => this.onKey(event),
      onpointerover: (event) => this.tell(event.target),
      onfocusin: (event) => this.tell(event.target),
    });
    this.way = make("ol", { class: "syno-way" });
    this.facts = make("div", { class: "syno-facts", role: "status", "aria-live": "polite" });
    this.picture = make("div", { class: "syno-picture" });
    this.ground = new Ground(this.picture);
    this.body = make("tbody");
    this.heads = make("tr");
    this.caption = make("caption");
    this.table = make("table", { class: "syno-table" }, this.caption, make("thead", {}, this.heads), this.body);
    const behind = make("div", { class: "syno-behind", tabindex: "0", role: "group", "aria-label": "Table of the next places" }, this.table);
    this.opened = make("div", { class: "syno-opened" });
    this.root = make("div", {
      class: "syno-shared syno-explorer",
      role: "group",
      "aria-label": "Explorer",
      // Letters typed here are not commands of the notebook around it.
      "data-lm-suppress-shortcuts": "true",
    });
    const way = make("nav", { "aria-label": "Way to the chosen place" }, this.way);
    this.buildReplay();
    const columns = make("div", { class: "syno-columns" }, this.picture, behind);
    this.root.append(this.headline, this.error, bar, this.replay, way, this.boxes, this.said, tools, this.facts, columns, this.opened);
  }

  /** The slider over the trials of a search. */
  buildReplay() {
    this.ticks = make("datalist", { id: `syno-trials-${Math.random().toString(36).slice(2)}` });
    this.slider = make("input", {
      type: "range",
      min: "1",
      step: "1",
      list: this.ticks.id,
      oninput: () => this.goTo(Number(this.slider.value)),
      onkeydown: (event) => this.onSlide(event),
    });
    this.playing = null;
    this.play = make("button", { type: "button", onclick: () => (this.playing ? this.pause() : this.playOn()) }, "Play");
    this.now = make("button", { type: "button", onclick: () => this.goTo(0) }, "As it is now");
    this.replayed = make("p", { class: "syno-quiet", role: "status", "aria-live": "polite" });
    const bar = make("div", { class: "syno-bar" }, make("label", {}, "Replay of the trials ", this.slider), this.ticks, this.play, this.now);
    this.replay = make("div", { class: "syno-replay", hidden: true }, bar, this.replayed);
  }

  drawReplay() {
    const { count, best, words } = this.model.get("trials");
    const upto = this.model.get("upto");
    this.replay.hidden = !count || !this.model.get("live");
    if (!count) return;
    this.slider.max = String(count);
    if (document.activeElement !== this.slider || !upto) this.slider.value = String(upto || count);
    this.slider.setAttribute("aria-valuetext", words || "as it is now");
    this.ticks.replaceChildren(...best.map((place) => make("option", { value: place })));
    this.now.disabled = !upto;
    write(this.replayed, words);
  }

  /** JupyterLab keeps the arrow keys from moving a slider. */
  onSlide(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    this.slider.value = String(Number(this.slider.value) + step); // the slider keeps it within its ends
    this.goTo(Number(this.slider.value));
    event.preventDefault();
    event.stopPropagation();
  }

  goTo(upto) {
    this.pause();
    this.put("upto", upto);
  }

  /** From the first trial, or from the one that is shown. */
  playOn() {
    write(this.play, "Pause");
    const count = this.model.get("trials").count;
    if (this.model.get("upto") >= count) this.put("upto", 0);
    this.playing = setInterval(() => {
      const next = this.model.get("upto") + 1;
      this.put("upto", next);
      this.slider.value = String(next);
      if (next >= count) this.pause();
    }, PLAY_MS);
  }

  pause() {
    clearInterval(this.playing);
    this.playing = null;
    write(this.play, "Play");
  }

  /** What a number is called: the distance as its system calls it. */
  inWords(name, words) {
    return name === "distance" ? this.model.get("measure") || name : words;
  }

  /** The place that is chosen, or the one on top. */
  at() {
    return this.model.get("chosen") || this.model.get("boxes")[0]?.key || "";
  }

  // -- drawing

  drawSources() {
    const sources = this.model.get("sources").map((one) => [one.key, one.title]);
    const chosen = this.model.get("source");
    if (!sources.some(([key]) => key === chosen)) sources.push([chosen, chosen || "nothing yet"]);
    fillSelect(this.choices.source, sources, chosen);
    const isSpace = chosen === "space";
    this.choices.pruned.parentElement.hidden = !isSpace;
    this.buttons.around.hidden = isSpace;
  }

  drawChoices() {
    this.choices.depth.value = String(this.model.get("depth"));
    fillSelect(this.choices.colour, COLOURS.map((name) => [name, this.inWords(name, name)]), this.model.get("colour"));
    this.choices.pruned.checked = this.model.get("pruned");
    if (document.activeElement !== this.choices.filter) this.choices.filter.value = this.model.get("filter");
  }

  /** Boxes stay where they are the same, so that the focus stays while a tree grows. */
  drawBoxes() {
    const rows = this.model.get("boxes");
    const seen = new Set();
    const levels = rows.reduce((most, row) => Math.max(most, row.level + 1), 0);
    this.boxes.style.height = `${levels * BOX_HIGH}px`;
    this.boxes.hidden = rows.length === 0;
    for (const [place, row] of rows.entries()) {
      const id = row.key || `more-${place}`;
      seen.add(id);
      let box = this.parts.get(id);
      if (!box) {
        box = make("div", { class: "syno-box", role: "treeitem", tabindex: "-1", "data-key": row.key });
        this.parts.set(id, box);
        this.boxes.append(box);
      }
      box.title = row.words;
      box.dataset.kind = row.kind;
      box.setAttribute("aria-label", row.words);
      box.setAttribute("aria-level", String(row.level + 1));
      Object.assign(box.style, {
        left: `${100 * row.left}%`,
        width: `${100 * row.width}%`,
        top: `${BOX_HIGH * row.level}px`,
        background: row.fill,
        borderLeftColor: row.edge || "",
      });
      box.dataset.best = String(row.is_best);
      box.classList.toggle("syno-edged", row.edge !== "");
      box.place = row;
    }
    for (const [id, box] of this.parts) {
      if (seen.has(id)) continue;
      box.remove();
      this.parts.delete(id);
    }
    this.fitTexts();
    this.drawChosen();
  }

  /** Each box says as much as it has room for: the step, else its sign and its primitive, else the sign, else nothing. */
  fitTexts() {
    const width = this.boxes.clientWidth;
    const pen = (this.pen ??= document.createElement("canvas").getContext("2d"));
    const any = this.boxes.firstChild;
    if (!any || !width) return;
    const style = getComputedStyle(any);
    for (const box of this.parts.values()) {
      const { text, short, sign, is_best, kind } = box.place;
      pen.font = `${kind === "operator" ? 700 : 400} ${style.fontSize} ${style.fontFamily}`;
      const star = is_best ? "\u2605 " : "";
      const room = box.place.width * width;
      const fits = (one, edges) => pen.measureText(one.replace(/_+/g, "")).width <= room - edges; // indices are set lower
      const shown = [text, short, sign].map((one) => (star + one).trim()).find((one) => fits(one, EDGES));
      box.classList.toggle("syno-narrow", shown === undefined);
      writeMath(box, shown ?? [star + sign, sign].map((one) => one.trim()).find((one) => fits(one, NARROW_EDGES)) ?? "");
    }
  }

  drawChosen() {
    const chosen = this.model.get("chosen");
    for (const box of this.parts.values()) {
      const is = box.dataset.key !== "" && box.dataset.key === chosen;
      box.setAttribute("aria-selected", String(is));
    }
    const held = this.boxes.contains(document.activeElement) ? document.activeElement : null;
    this.reach(held ?? this.parts.get(chosen) ?? this.boxes.firstChild);
    if (!this.model.get("live")) this.drawFacts();
  }

  /** One box alone is in the order of Tab. */
  reach(box) {
    for (const other of this.boxes.children) other.setAttribute("tabindex", other === box ? "0" : "-1");
  }

  tell(target) {
    const box = target.closest?.(".syno-box");
    if (box) writeMath(this.said, box.place.words);
  }

  onClick(event) {
    const key = event.target.closest(".syno-box")?.dataset.key;
    if (key) this.choose(key);
  }

  onDouble(event) {
    const key = event.target.closest(".syno-box")?.dataset.key;
    if (!key || !this.model.get("live")) return;
    this.put("root", key);
    this.put("chosen", key); // two clicks have chosen it, and let it go again
  }

  /** A place on the way: where the picture begins below it, the picture begins there. */
  goUp(key) {
    if (!this.parts.has(key)) this.put("root", key);
    this.put("chosen", key);
  }

  choose(key) {
    this.put("chosen", key === this.model.get("chosen") ? "" : key);
  }

  onKey(event) {
    const box = event.target.closest(".syno-box");
    if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = this.beside(box.place, event.key);
    if (next) {
      this.reach(next);
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      if (box.dataset.key) this.choose(box.dataset.key);
    } else if (event.key === "+" && box.dataset.key) this.put("root", box.dataset.key);
    else if (event.key === "-") {
      const way = this.model.get("way").map((one) => one.key);
      this.put("root", way[way.indexOf(this.model.get("boxes")[0]?.key) - 1] ?? "");
    } else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The box that an arrow key leads to: of the row below the first under it, of the row above what it hangs on. */
  beside(row, key) {
    const boxes = [...this.parts.values()];
    const rowOf = (level) => boxes.filter((box) => box.place.level === level).sort((a, b) => a.place.left - b.place.left);
    const room = 1e-6;
    if (key === "ArrowDown") {
      return rowOf(row.level + 1).find((box) => box.place.left > row.left - room && box.place.left < row.left + row.width - room);
    }
    if (key === "ArrowUp") return rowOf(row.level - 1).filter((box) => box.place.left < row.left + room).pop();
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (!step) return undefined;
    const siblings = rowOf(row.level);
    return siblings[siblings.findIndex((box) => box.place === row) + step];
  }

  drawWay() {
    const way = this.model.get("way");
    const live = this.model.get("live");
    this.way.replaceChildren(
      ...way.map(({ key, text }, place) => {
        const current = place === way.length - 1 ? "step" : undefined;
        return make("li", {}, make("button", { type: "button", disabled: !live, "aria-current": current, onclick: () => this.goUp(key) }, ...asMath(text)));
      }),
    );
    const last = way[way.length - 1]?.text;
    writeMath(this.caption, last ? `Next places ${last.startsWith("after ") ? "" : "after "}${last}` : "Next places");
    this.buttons.all.disabled = !live || !this.model.get("root");
    for (const name of ["zoom", "open", "around"]) this.buttons[name].disabled = !live || !way.length;
  }

  drawTable() {
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const live = this.model.get("live");
    const rows = this.model.get("table");
    // The space around a state knows no searches: columns of which nothing is known are left out.
    const facts = FACTS.filter(([name]) => name === "kind" || rows.some((row) => row[name]));
    this.heads.replaceChildren(...["step", ...facts.map(([name, title]) => this.inWords(name, title))].map((title) => make("th", { scope: "col" }, title)));
    this.body.replaceChildren(
      ...rows.map((row) => {
        const button = make("button", { type: "button", disabled: !live, "data-key": row.key, title: row.reason, onclick: () => this.put("chosen", row.key) }, ...asMath(row.text));
        const cells = facts.map(([name]) => make("td", { class: name === "kind" ? "" : "syno-number" }, shownNumber(row[name])));
        return make("tr", { "data-kind": row.kind }, make("th", { scope: "row" }, button), ...cells);
      }),
    );
    if (focused) (this.body.querySelector(`[data-key="${CSS.escape(focused)}"]`) ?? this.body.querySelector("button"))?.focus();
  }

  drawFacts() {
    const facts = this.model.get("facts");
    const chosen = this.model.get("chosen");
    const words = this.model.get("live") ? facts.words : this.parts.get(chosen)?.place.words;
    writeMath(this.facts, [words, facts.note].filter(Boolean).join(". "));
    const drawn = facts.svg && facts.key === chosen ? parsePicture(facts.svg) : null;
    if (drawn) {
      drawn.setAttribute("role", "img");
      drawn.setAttribute("aria-label", facts.description);
    }
    this.picture.hidden = !drawn;
    this.picture.replaceChildren(drawn ?? "");
    this.ground.look();
  }
}

const render = renderer(ExplorerPage, "The explorer");
