// The stepper's view. Everything it shows is a trait of `Stepper`; everything it asks for is one small message. It stands
// behind shared.js, operator_graph.js and stepper_steps.js (scripts.py) and loads nothing: no address stands in here.

const PLAY_EVERY_MS = 700;
const SEARCHES = new Set(["suggest", "finish", "random"]); // these may take their time

class View {
  constructor(model, el) {
    this.model = model;
    this.el = el;
    this.number = 0;
    this.waiting = null;
    this.playing = null;
    this.hovered = [];
    this.graph = new GraphView({
      hover: (ids) => this.hover(ids),
      choose: (id) => this.choose(id),
      search: (text) => this.put("search", text),
    });
    this.steps = new StepList(model, { ask: (kind, more) => (kind === "preview" ? this.ask(kind, more) : this.act(kind, more)), mark: (ids, on) => this.mark(ids, on) });
    this.build();
    this.listener = listener(model);
    const listen = (names, draw) => this.listener.on(names, draw.bind(this));
    listen(["svg"], this.drawPicture);
    listen(["revision"], this.drawLists);
    listen(["menu"], this.drawLists);
    listen(["preview"], () => this.steps.drawPreview());
    listen(["why"], () => this.steps.drawWhy());
    listen(["tree"], this.drawTree);
    listen(["place"], this.drawPlace);
    listen(["line"], this.drawPlace);
    listen(["distance"], this.drawDistance);
    listen(["status"], this.drawStatus);
    listen(["complete"], this.drawStatus);
    listen(["error"], this.drawError);
    listen(["known"], this.drawKnown);
    listen(["selected"], this.drawSelected);
    listen(["search"], this.drawSearch);
    listen(["answered"], this.drawAnswer);
    this.style = hideStatic(model.get("static_id"));
  }

  /** Everything that was attached to the model or the page is taken off again. */
  destroy() {
    this.listener.off();
    clearTimeout(this.waiting);
    clearTimeout(this.playing);
    this.style.remove();
    this.root.remove();
  }

  // -- asking ---------------------------------------------------------------------------------------------------------

  /** What the reader does by hand, which ends what is being played. */
  act(kind, more = {}) {
    this.pause();
    this.ask(kind, more);
  }

  ask(kind, more = {}) {
    if (!this.model.get("live")) return;
    this.number += 1;
    const revision = this.model.get("revision");
    this.root.setAttribute("aria-busy", "true");
    if (kind !== "preview") this.laidAhead = kind === "finish" || kind === "random";
    clearTimeout(this.waiting);
    const patience = SEARCHES.has(kind) ? 3 : 1;
    this.waiting = setTimeout(() => this.miss(), patience * ANSWER_WITHIN_MS);
    try {
      this.model.send({ kind, request: this.number, revision, ...more });
    } catch {
      this.miss(); // there is no kernel any more
    }
  }

  /** Nobody answers; what was built is in the page all the same. */
  miss() {
    clearTimeout(this.waiting);
    this.missed = true;
    this.root.removeAttribute("aria-busy");
    this.pause();
    this.say(
      "The kernel does not answer: this is the last picture. What was built is kept: copy the session below, run the " +
        "cell again and open it there.",
    );
    this.session.open = true;
  }

  drawAnswer() {
    if (this.number && this.model.get("answered") !== this.number) return;
    clearTimeout(this.waiting);
    this.root.removeAttribute("aria-busy");
    if (this.missed) this.drawStatus(); // it was only late
    this.missed = false;
    const failed = this.model.get("error") !== "";
    if (failed) this.pause();
    else if (this.laidAhead) this.play();
    else if (this.playing) this.play();
    this.laidAhead = false;
  }

  put(trait, value) {
    if (this.model.get(trait) === value) return;
    this.model.set(trait, value);
    this.model.save_changes();
  }

  // -- playing --------------------------------------------------------------------------------------------------------

  /** Takes the steps that lie ahead, one at a time, until there are no more or somebody does something. */
  play() {
    clearTimeout(this.playing);
    this.playing = null;
    if (this.redo.disabled) return this.drawPlayer();
    this.playing = setTimeout(() => this.ask("redo"), PLAY_EVERY_MS);
    this.drawPlayer();
  }

  pause() {
    clearTimeout(this.playing);
    this.playing = null;
    this.drawPlayer();
  }

  drawPlayer() {
    write(this.player, this.playing ? "Pause" : "Play");
    this.player.disabled = !this.playing && this.redo.disabled;
  }

  // -- building -------------------------------------------------------------------------------------------------------

  build() {
    const live = this.model.get("live");
    const press = (text, title, onclick, more = {}) =>
      make("button", { type: "button", class: "syno-button", title, onclick, disabled: !live, ...more }, text);
    const button = (text, kind, title) => press(text, title, () => this.act(kind), { "data-kind": kind });
    this.undo = button("Undo", "undo", "Back by one place (Ctrl+Z)");
    this.redo = button("Redo", "redo", "Forth by one place (Ctrl+Shift+Z or Ctrl+Y)");
    this.reset = button("Start over", "reset", "Begin again with the output; Undo brings back what was");
    this.player = press("Play", "Take the steps that lie ahead one after the other, or stop", () =>
      this.playing ? this.pause() : this.play(),
    );
    this.suggest = button("Suggest", "suggest", "The next step of a shortest way to the input");
    this.select = make("select", { class: "syno-select", "aria-label": "Known operator", disabled: !live });
    const load = (text, kind, title) =>
      press(text, title, () => this.act(kind, { name: this.select.value }), { "data-kind": kind });
    this.status = make("p", { class: "syno-status", role: "status", "aria-live": "polite" });
    this.error = make("p", { class: "syno-error", role: "alert" });
    this.live = make("p", { class: "syno-live", role: "status", "aria-live": "polite" });
    this.farNumber = make("b", { class: "syno-far-number" });
    this.course = make("div", { class: "syno-frame", tabindex: "0", role: "group", "aria-label": "Shape distance over the steps" });
    this.groups = make("div", { class: "syno-groups" });
    this.stepsHeading = make("h4", { tabindex: "-1" }, "Next steps");
    this.all = make("button", { type: "button", onclick: () => this.choose("") }, "Show all steps");
    this.tree = make("ol", { class: "syno-history", start: "0", tabindex: live ? undefined : "0", onkeydown: (event) => this.onTreeKey(event) });
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
        { class: "syno-bar", role: "group", "aria-label": "History and help" },
        this.undo,
        this.redo,
        this.player,
        this.reset,
        make("span", { class: "syno-gap" }),
        this.suggest,
        button("Suggest to the end", "finish", "Play a shortest way to the input"),
        button("Complete at random", "random", "Play random canonical steps to an operator"),
      ),
      make(
        "div",
        { class: "syno-bar", role: "group", "aria-label": "Known operators" },
        this.select,
        load("Load", "load", "Show this operator, all steps taken"),
        load("Replay", "replay", "Show this operator from its start; Redo or Play takes its steps"),
      ),
      this.status,
      this.error,
      make(
        "div",
        { class: "syno-columns" },
        make(
          "div",
          { class: "syno-left" },
          make(
            "section",
            { "aria-label": "Picture", class: "syno-picture" },
            this.graph.bar(),
            this.graph.element,
            this.live,
          ),
          make("section", { "aria-label": "Shape distance" }, make("h4", {}, "Shape distance ", this.farNumber), this.course, this.groups),
          make("section", { "aria-label": "History" }, make("h4", {}, "History"), this.tree),
          this.buildSession(live),
        ),
        make(
          "section",
          { class: "syno-right", "aria-label": "Next steps", onkeydown: (event) => this.onStepsKey(event) },
          make("div", { class: "syno-bar" }, this.stepsHeading, make("span", { class: "syno-gap" }), this.all),
          this.steps.element,
        ),
      ),
    );
    // Whether the keyboard or the pointer was used last decides where the focus goes.
    this.root.addEventListener("keydown", () => (this.byKey = true), true);
    this.root.addEventListener("pointerdown", () => (this.byKey = false), true);
    this.el.append(this.root);
  }

  buildSession(live) {
    const text = make("textarea", { rows: "2", "aria-label": "A session or an operator, as text", spellcheck: "false" });
    const copy = async () => {
      try {
        await copyText(this.model.get("word"));
        this.say("The session is on the clipboard.");
      } catch (error) {
        this.complain(`The session could not be copied: ${error.message}`);
      }
    };
    this.session = make(
      "details",
      { class: "syno-session" },
      make("summary", {}, "Keep this session, or open another"),
      make("p", { class: "syno-quiet" }, "All places and branches as one word, to be pasted here again or sent to somebody."),
      make("button", { type: "button", onclick: copy }, "Copy session"),
      text,
      make(
        "button",
        { type: "button", "data-kind": "open", disabled: !live, onclick: () => this.act("open", { name: text.value }) },
        "Open",
      ),
    );
    return this.session;
  }

  // -- keys -----------------------------------------------------------------------------------------------------------

  onKey(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.target.matches("input, textarea")) return;
    const key = event.key.toLowerCase();
    const kind = key === "z" ? (event.shiftKey ? "redo" : "undo") : key === "y" ? "redo" : null;
    if (!kind) return;
    event.preventDefault();
    event.stopPropagation();
    if (!this[kind].disabled) this.act(kind);
  }

  /** From the steps of a coordinate back to it. */
  onStepsKey(event) {
    const chosen = this.model.get("selected");
    if (event.key !== "Escape" || !chosen) return;
    event.preventDefault();
    event.stopPropagation();
    this.graph.parts.get(chosen)?.focus();
    this.choose("");
  }

  onTreeKey(event) {
    const buttons = [...this.tree.querySelectorAll("button")];
    const end = { Home: 0, End: buttons.length - 1 }[event.key];
    if (end === undefined) moveAmong(event, buttons);
    else {
      event.preventDefault();
      buttons[end].focus();
    }
  }

  say(text) {
    write(this.status, text);
  }

  complain(text) {
    write(this.error, text);
    this.error.hidden = !text;
  }

  // -- the picture ----------------------------------------------------------------------------------------------------

  drawPicture() {
    const had = this.graph.element.contains(document.activeElement);
    const links = this.model.get("links");
    // The arrow keys reach what can be used first.
    const names = Object.keys(links).sort((one, other) => links[other].top - links[one].top);
    this.graph.draw(
      this.model.get("svg"),
      Object.fromEntries(names.map((name) => [name, links[name]])),
      this.model.get("description"),
    );
    this.hovered = [];
    this.drawSearch();
    if (had) this.graph.element.focus();
  }

  hover(ids) {
    this.hovered = ids;
    const chosen = this.model.get("selected");
    this.graph.light(ids.length || !chosen ? ids : [chosen], chosen);
  }

  choose(id) {
    const next = id === this.model.get("selected") ? "" : id;
    this.toSteps = Boolean(next && this.byKey && this.model.get("links")[next]?.top);
    this.put("selected", next);
  }

  drawSelected() {
    const chosen = this.model.get("selected");
    const link = this.model.get("links")[chosen];
    this.hover(this.hovered);
    this.all.hidden = !chosen;
    write(this.live, link ? `${link.words}${link.top ? "" : "; nothing can be done with it"}` : "");
    this.drawHeading();
    if (chosen && !this.model.get("live")) this.toSteps = false;
  }

  drawHeading() {
    const link = this.model.get("links")[this.model.get("selected")];
    write(this.stepsHeading, link ? `Next steps with ${link.words}` : "Next steps");
  }

  drawSearch() {
    const found = this.graph.search(this.model.get("search"));
    if (found.length) this.graph.reveal(found[0]);
  }

  /** Coordinates that a choice is about are marked in the picture. */
  mark(names, on) {
    for (const name of names) this.graph.parts.get(name)?.classList.toggle("syno-marked", on);
  }

  // -- where we are ---------------------------------------------------------------------------------------------------

  drawStatus() {
    this.say(this.model.get("status"));
    this.root.classList.toggle("syno-complete", this.model.get("complete"));
  }

  drawError() {
    this.complain(this.model.get("error"));
  }

  drawKnown() {
    const chosen = this.select.value;
    this.select.replaceChildren(...this.model.get("known").map((name) => make("option", { value: name }, name)));
    if (chosen) this.select.value = chosen;
  }

  drawDistance() {
    const found = this.model.get("distance");
    write(this.farNumber, found.number === null ? "none: out of reach" : String(found.number));
    const picture = found.groups ? parsePicture(found.groups) : null;
    const was = this.groups.querySelector("details")?.open ?? false;
    this.course.replaceChildren(parsePicture(found.course ?? "") ?? "");
    this.groups.replaceChildren(
      make(
        "details",
        { open: was },
        make("summary", {}, "Why: the reshape groups"),
        make("ul", {}, ...(found.words ?? []).map((words) => make("li", {}, words))),
        picture ? make("div", { class: "syno-frame", tabindex: "0", role: "group", "aria-label": "Reshape groups" }, picture) : "",
      ),
    );
  }

  drawTree() {
    const focused = this.tree.contains(document.activeElement);
    const live = this.model.get("live");
    const rows = this.model.get("tree").map((row) => {
      const far = row.complete ? "complete" : row.distance === null ? "out of reach" : `distance ${row.distance}`;
      const button = make(
        "button",
        {
          type: "button",
          class: "syno-place",
          "data-place": row.place,
          tabindex: "-1",
          disabled: !live,
          onclick: () => this.act("go", { index: row.place }),
        },
        row.branch ? "branch: " : "",
        row.text,
        make("span", { class: "syno-quiet" }, ` (${far})`),
        make("span", { class: "syno-undone" }),
      );
      const item = make("li", { value: row.place }, button);
      item.style.marginLeft = `${14 * Math.min(row.level, 12)}px`;
      return item;
    });
    this.tree.replaceChildren(...rows);
    this.drawPlace();
    if (focused) this.current?.focus();
  }

  drawPlace() {
    const place = this.model.get("place");
    const line = this.model.get("line");
    const live = this.model.get("live");
    const at = line.indexOf(place);
    this.undo.disabled = !live || at <= 0;
    this.redo.disabled = !live || at >= line.length - 1;
    this.suggest.disabled = !live || this.model.get("complete");
    this.drawPlayer();
    const ahead = new Set(line.slice(at + 1));
    for (const button of this.tree.querySelectorAll("button")) {
      const mine = Number(button.dataset.place);
      const is = mine === place;
      if (is) {
        button.setAttribute("aria-current", "step");
        this.current = button;
      } else button.removeAttribute("aria-current");
      button.setAttribute("tabindex", is ? "0" : "-1");
      button.parentElement.classList.toggle("syno-ahead", ahead.has(mine));
      button.parentElement.classList.toggle("syno-off-line", !line.includes(mine));
      write(button.lastChild, ahead.has(mine) ? " (undone)" : "");
    }
    if (this.current) this.tree.scrollTop = this.current.offsetTop - this.tree.offsetTop - 80;
  }

  /** Several traits change at once: the lists are made anew once for all of them. */
  drawLists() {
    if (this.isListing) return;
    this.isListing = true;
    queueMicrotask(() => {
      this.isListing = false;
      const had = this.steps.draw(this.model.get("live") ? this.model.get("selected") : "");
      this.drawHeading();
      if (this.toSteps) (this.steps.summary("") || this.stepsHeading).focus();
      else if (had) (this.steps.summary(had) || this.stepsHeading).focus();
      this.toSteps = false;
    });
  }
}

const render = renderer(View, "The stepper");
