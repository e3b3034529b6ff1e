// The stepper's view. Everything it shows is a trait of `Stepper`; everything it asks for is one small message.
// It stands behind shared.js (scripts.py) and loads nothing: no address stands in this file.

/** How far a step leads, in words: never by colour alone. */
function distanceText(item) {
  if (item.distance === null) return "out of reach";
  const text = item.distance === 0 ? "complete" : `distance ${item.distance}`;
  return item.reaches ? text : `${text}, over budget`;
}

class View {
  constructor(model, el) {
    this.model = model;
    this.el = el;
    this.number = 0;
    this.waiting = null;
    this.share = new Set();
    this.give = new Set();
    this.open = new Set();
    this.build();
    this.listener = listener(model);
    const listen = (names, draw) => this.listener.on(names, draw.bind(this));
    listen(["svg", "description"], this.drawPicture);
    listen(["revision"], this.drawLists);
    listen(["preview"], this.drawPreview);
    listen(["history", "position"], this.drawHistory);
    listen(["status", "complete"], this.drawStatus);
    listen(["error"], this.drawError);
    listen(["known"], this.drawKnown);
    listen(["answered"], this.drawAnswer);
    this.style = hideStatic(model.get("static_id"));
  }

  /** Everything that was attached to the model or the page is taken off again. */
  destroy() {
    this.listener.off();
    clearTimeout(this.waiting);
    this.style.remove();
    this.root.remove();
  }

  // -- asking ---------------------------------------------------------------------------------------------------------

  ask(kind, more = {}) {
    this.number += 1;
    const revision = this.model.get("revision");
    this.root.setAttribute("aria-busy", "true");
    this.model.send({ kind, request: this.number, revision, ...more });
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      this.root.removeAttribute("aria-busy");
      this.say("The kernel does not answer: this is the last picture. Run the cell again to go on.");
    }, ANSWER_WITHIN_MS);
  }

  drawAnswer() {
    if (this.number && this.model.get("answered") !== this.number) return;
    clearTimeout(this.waiting);
    this.root.removeAttribute("aria-busy");
  }

  // -- building -------------------------------------------------------------------------------------------------------

  build() {
    const button = (text, kind, title) =>
      make("button", { type: "button", class: "syno-button", title, "data-kind": kind, onclick: () => this.ask(kind) }, text);
    this.undo = button("Undo", "undo", "Back by one place (Ctrl+Z)");
    this.redo = button("Redo", "redo", "Forth by one place (Ctrl+Shift+Z or Ctrl+Y)");
    this.reset = button("Start over", "reset", "Begin again with the output; Undo brings back what was");
    this.select = make("select", { class: "syno-select", "aria-label": "Known operator" });
    const load = (text, kind, title) =>
      make(
        "button",
        { type: "button", class: "syno-button", title, "data-kind": kind, onclick: () => this.ask(kind, { name: this.select.value }) },
        text,
      );
    this.status = make("p", { class: "syno-status", role: "status", "aria-live": "polite" });
    this.error = make("p", { class: "syno-error", role: "alert" });
    this.picture = make("div", { class: "syno-picture", tabindex: "0", role: "group", "aria-label": "The pGraph" });
    this.stepsHeading = make("h3", { tabindex: "-1" }, "Next steps");
    this.menu = make("div", { class: "syno-menu" });
    this.contraction = make("div", { class: "syno-contraction" });
    this.historyList = make("ol", { class: "syno-history", start: "0" });
    this.root = make(
      "div",
      {
        class: "syno-shared syno-stepper",
        role: "group",
        "aria-label": "Stepper",
        // Letters typed here are not commands of the notebook around it.
        "data-lm-suppress-shortcuts": "true",
        onkeydown: (event) => this.onKey(event),
      },
      make(
        "div",
        { class: "syno-bar", role: "toolbar", "aria-label": "History and operators" },
        this.undo,
        this.redo,
        this.reset,
        make("span", { class: "syno-gap" }),
        this.select,
        load("Load", "load", "Show this operator, all steps taken"),
        load("Replay", "replay", "Show this operator from its start; Redo takes the next step"),
      ),
      this.status,
      this.error,
      make(
        "div",
        { class: "syno-columns" },
        make(
          "div",
          { class: "syno-left" },
          make("section", { "aria-label": "Picture" }, this.picture),
          make("section", { "aria-label": "History" }, make("h3", {}, "History"), this.historyList),
        ),
        make("section", { class: "syno-right", "aria-label": "Next steps" }, this.stepsHeading, this.menu),
      ),
    );
    this.el.append(this.root);
  }

  onKey(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    const kind = key === "z" ? (event.shiftKey ? "redo" : "undo") : key === "y" ? "redo" : null;
    if (!kind) return;
    event.preventDefault();
    event.stopPropagation();
    if (!this[kind].disabled) this.ask(kind);
  }

  say(text) {
    this.status.textContent = text;
  }

  // -- drawing --------------------------------------------------------------------------------------------------------

  drawPicture() {
    const picture = parsePicture(this.model.get("svg"));
    this.picture.replaceChildren(picture ?? make("p", {}, this.model.get("description")));
  }

  drawStatus() {
    this.say(this.model.get("status"));
    this.root.classList.toggle("syno-complete", this.model.get("complete"));
  }

  drawError() {
    const text = this.model.get("error");
    this.error.textContent = text;
    this.error.hidden = !text;
  }

  drawKnown() {
    const chosen = this.select.value;
    this.select.replaceChildren(...this.model.get("known").map((name) => make("option", { value: name }, name)));
    if (chosen) this.select.value = chosen;
  }

  drawHistory() {
    const places = this.model.get("history");
    const position = this.model.get("position");
    const focused = this.historyList.contains(document.activeElement);
    this.undo.disabled = position <= 0;
    this.redo.disabled = position >= places.length - 1;
    this.historyList.replaceChildren(
      ...places.map((place, index) =>
        make(
          "li",
          { class: index > position ? "syno-ahead" : "" },
          make(
            "button",
            {
              type: "button",
              class: "syno-place",
              "data-place": index,
              "aria-current": index === position ? "step" : null,
              onclick: () => this.ask("jump", { index }),
            },
            place.text,
            index > position ? " (undone)" : "",
          ),
        ),
      ),
    );
    if (focused) this.historyList.querySelector(`[data-place="${position}"]`)?.focus();
    const current = this.historyList.querySelector('[aria-current="step"]');
    if (current) this.historyList.scrollTop = current.offsetTop - this.historyList.offsetTop - 80;
  }

  /** The lists of next steps are made anew for each state; the focus stays in the group it was in. */
  drawLists() {
    const inside = this.menu.contains(document.activeElement);
    const group = document.activeElement?.closest?.("[data-group]")?.dataset.group;
    const known = new Set(this.model.get("ticks").map((tick) => tick.id));
    this.share = new Set([...this.share].filter((id) => known.has(id)));
    this.give = new Set([...this.give].filter((id) => known.has(id)));
    const groups = this.model.get("menu");
    const blocks = groups.map((entry) => this.groupBlock(entry));
    // A contraction can be put together by hand even where the budget lists none.
    if (!groups.some((entry) => entry.primitive === "SHARE")) {
      blocks.push(this.groupBlock({
        primitive: "SHARE", title: "CONTRACTION (SHARE)", sign: "×", colour: "#0b7480", signature: "", meaning: "",
        canonical: [], pruned: [], more_canonical: 0, more_pruned: 0,
      }));
    }
    this.menu.replaceChildren(...blocks);
    this.drawPreview();
    if (this.share.size || this.give.size) this.askPreview();
    if (inside) {
      const again = group && this.menu.querySelector(`[data-group="${CSS.escape(group)}"] summary`);
      (again || this.stepsHeading).focus();
    }
  }

  groupBlock(entry) {
    const count = entry.canonical.length + entry.more_canonical;
    const pruned = entry.pruned.length + entry.more_pruned;
    const reached = entry.canonical.filter((item) => item.distance !== null);
    const nearest = reached.length ? `, nearest: ${distanceText(reached[0])}` : "";
    const sign = make("span", { class: "syno-sign", "aria-hidden": "true" }, entry.sign);
    sign.style.color = entry.colour;
    const details = make(
      "details",
      {
        class: "syno-group",
        "data-group": entry.primitive,
        open: this.open.has(entry.primitive),
        ontoggle: (event) => {
          if (event.target !== details) return;
          this.open[details.open ? "add" : "delete"](entry.primitive);
        },
      },
      make("summary", {}, sign, make("b", {}, entry.title), make("span", { class: "syno-count" }, ` ${count} canonical${nearest}; ${pruned} pruned`)),
      entry.signature ? make("p", { class: "syno-card" }, make("code", {}, entry.signature), ` ${entry.meaning}`) : "",
      entry.primitive === "SHARE" ? this.contractionBlock() : "",
      this.itemList(entry.canonical, entry.more_canonical, false),
      pruned
        ? make(
            "details",
            { class: "syno-pruned" },
            make("summary", {}, `${pruned} pruned: why, and take one all the same`),
            this.itemList(entry.pruned, entry.more_pruned, true),
          )
        : "",
    );
    return details;
  }

  itemList(items, more, pruned) {
    const list = make("ul", { class: "syno-items" });
    for (const item of items) {
      const rewrite = item.before && item.after ? `${item.before} → ${item.after}` : "";
      const why = pruned ? make("span", { class: "syno-why" }, `${item.rule}: ${item.reason}`, rewrite ? make("code", {}, ` ${rewrite}`) : "") : "";
      const mark = (on) => this.mark([...item.operands, ...item.given], on);
      list.append(
        make(
          "li",
          {},
          make(
            "button",
            {
              type: "button",
              class: `syno-step${pruned ? " syno-off" : ""}`,
              "data-index": item.index,
              "data-text": item.text,
              "data-operands": item.operands.join(" "),
              "data-given": item.given.join(" "),
              onclick: () => this.ask("step", { index: item.index }),
              onmouseenter: () => mark(true),
              onmouseleave: () => mark(false),
              onfocus: () => mark(true),
              onblur: () => mark(false),
            },
            make("span", { class: "syno-text" }, item.text),
            make("span", { class: `syno-distance${item.reaches ? "" : " syno-far"}` }, distanceText(item)),
            why,
          ),
        ),
      );
    }
    if (more) list.append(make("li", { class: "syno-more" }, `and ${more} more, farther from the input`));
    return list;
  }

  /** Coordinates that a choice is about are marked in the picture. */
  mark(names, on) {
    for (const name of names) {
      this.picture.querySelector(`[id="${CSS.escape(name)}"]`)?.classList.toggle("syno-marked", on);
    }
  }

  // -- the contraction ------------------------------------------------------------------------------------------------

  contractionBlock() {
    const rows = this.model.get("ticks").map((tick) => {
      const box = (set, other, what) => {
        const input = make("input", {
          type: "checkbox",
          "data-tick": `${what}-${tick.id}`,
          "aria-label": `${what} ${tick.text} of size ${tick.size}`,
          onfocus: () => this.mark([tick.id], true),
          onblur: () => this.mark([tick.id], false),
          onchange: (event) => {
            set[event.target.checked ? "add" : "delete"](tick.id);
            if (event.target.checked && other.delete(tick.id)) {
              const twin = what === "share" ? "give" : "share";
              this.menu.querySelector(`[data-tick="${twin}-${CSS.escape(tick.id)}"]`).checked = false;
            }
            this.askPreview();
          },
        });
        input.checked = set.has(tick.id);
        return make("td", {}, input);
      };
      return make(
        "tr",
        {},
        make("th", { scope: "row" }, make("code", {}, tick.text), ` : ${tick.size}`),
        box(this.share, this.give, "share"),
        box(this.give, this.share, "give"),
      );
    });
    this.previewText = make("p", { class: "syno-preview", "aria-live": "polite" });
    this.contractButton = make(
      "button",
      {
        type: "button",
        class: "syno-button",
        "data-kind": "contract",
        onclick: () => this.ask("contract", { share: this.ordered(this.share), give: this.ordered(this.give) }),
      },
      "Contract with a new weight",
    );
    return make(
      "fieldset",
      { class: "syno-contraction" },
      make("legend", {}, "By hand: tick what the new weight shares with the data, and what is given to it"),
      make(
        "table",
        {},
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "coordinate"), make("th", { scope: "col" }, "share"), make("th", { scope: "col" }, "give"))),
        make("tbody", {}, ...rows),
      ),
      this.previewText,
      this.contractButton,
    );
  }

  ordered(set) {
    return this.model.get("ticks").map((tick) => tick.id).filter((id) => set.has(id));
  }

  askPreview() {
    this.ask("preview", { share: this.ordered(this.share), give: this.ordered(this.give) });
  }

  drawPreview() {
    if (!this.previewText) return;
    const preview = this.model.get("preview");
    const has = "legal" in preview;
    this.contractButton.disabled = !has || !preview.legal;
    this.previewText.classList.toggle("syno-off", has && !preview.canonical);
    if (!has) this.previewText.textContent = "Nothing is ticked.";
    else if (!preview.legal) this.previewText.textContent = `Not possible. ${preview.text}`;
    else {
      const far = preview.distance === null ? "out of reach" : preview.distance === 0 ? "complete" : `distance ${preview.distance}`;
      this.previewText.textContent = `${preview.canonical ? "Canonical" : "Not canonical"}: ${far}. ${preview.canonical ? "" : preview.text}`;
    }
  }
}

/** One view; whatever goes wrong while it is made is said in its place. */
function render({ model, el }) {
  try {
    const view = new View(model, el);
    return () => view.destroy();
  } catch (error) {
    el.append(make("p", { class: "syno-error", role: "alert" }, `The stepper cannot be shown: ${error.message}`));
    return () => {};
  }
}
