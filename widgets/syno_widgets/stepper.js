// The stepper's view. Everything it shows is a trait of `Stepper`; everything it asks for is one small message. It stands
// behind shared.js and its parts (scripts.py) and loads nothing: no address
// stands in here.

const PLAY_EVERY_MS = 700;
const NO_FRAME_MS = 250; // a page that is not looked at has no frames

/**
 * Runs in the frame after the next one. Right behind a frame's own work it would still hold that frame up: the page's
 * process has one thread for both, and a machine with few cores draws with the same.
 */
function afterFrame(run) {
  let late = null;
  const once = () => {
    if (late === null) return;
    clearTimeout(late);
    late = null;
    run();
  };
  late = setTimeout(once, NO_FRAME_MS);
  requestAnimationFrame(() => requestAnimationFrame(once));
}

class View {
  constructor(model, el) {
    this.model = model;
    this.el = el;
    this.number = 0;
    this.isAnswered = true;
    this.waiting = null;
    this.playing = null;
    this.hovered = [];
    this.waits = new Set();
    const toGraph = { hover: (ids) => this.hover(ids), choose: (id) => this.choose(id), search: (text) => this.put("search", text) };
    this.graph = new GraphView(toGraph, "y");
    this.steps = new StepList(model, { ask: (kind, more) => (kind === "preview" ? this.ask(kind, more) : this.act(kind, more)), mark: (ids, on) => this.mark(ids, on), ghost: (item) => this.graph.ghost(item) });
    this.aims = new AimTables({ aim: (name) => this.act("aim", { name }), live: () => model.get("live") });
    this.history = new HistoryList(model, { go: (place) => this.act("go", { index: place }), has: (place) => this.reaches(place) });
    this.kept = new SessionBox(model, {
      act: (kind, name) => this.act(kind, { name }),
      say: (text) => this.say(text),
      complain: (text) => this.complain(text),
    });
    this.replay = model.get("live") ? null : new Player(model);
    this.comparison = new PlaceComparison(model, {
      compare: (place) => this.act("compare", { index: place }),
      complain: (text) => this.complain(text),
    });
    this.build();
    this.listener = listener(model);
    const listen = (names, draw) => this.listener.on(names, draw.bind(this));
    const listenLate = (names, draw) => this.listener.on(names, () => this.later(draw));
    listen(["svg"], this.drawPicture);
    listen(["place", "line"], this.drawMoves);
    listen(["running"], this.drawRunning);
    listenLate(["revision", "menu", "unlisted"], this.drawLists);
    listenLate(["preview"], this.drawPreview);
    listenLate(["why"], this.drawWhy);
    listenLate(["tree", "revision", ...(this.replay ? ["place"] : [])], this.drawHistory);
    listenLate(["distance"], this.drawDistance);
    listen(["status"], this.drawStatus);
    listenLate(["quiz"], this.drawQuiz);
    listenLate(["quiz"], this.drawLists);
    listenLate(["tree", "place"], () => this.kept.drawComment());
    listen(["ways_on"], () => this.kept.drawWaysOn());
    listen(["complete"], this.drawStatus);
    listen(["strip"], this.drawStrip);
    listen(["error"], this.drawError);
    listen(["known", "status"], this.drawKnown);
    listen(["selected"], this.drawSelected);
    listen(["search"], this.drawSearch);
    listenLate(["answered"], this.drawAnswer);
    this.style = hideStatic(model.get("static_id"));
    this.drawWaiting();
    if (this.replay) this.replay.followAddress();
    else this.kept.openAddress();
  }

  /**
   * What is not in the frame that shows a new picture is drawn right behind it, and once for all traits that have changed
   * together.
   */
  later(draw) {
    this.waits.add(draw);
    queueMicrotask(() => {
      if (!this.fresh) this.drawWaiting();
    });
  }

  drawWaiting() {
    const draws = [...this.waits];
    this.waits.clear();
    for (const draw of draws) draw.call(this);
  }

  /** Everything that was attached to the model or the page is taken off again. */
  destroy() {
    this.listener.off();
    this.waits.clear();
    clearTimeout(this.waiting);
    clearTimeout(this.playing);
    this.running.stop();
    this.comparison.destroy();
    this.style.remove();
    this.replay?.stop();
    this.graph.stop();
    this.steps.stop();
    this.root.remove();
  }

  // -- asking ---------------------------------------------------------------------------------------------------------

  /** Whether a place can be shown: by a kernel each, by a page those that it holds. */
  reaches(place) {
    return !this.replay || this.replay.has(place);
  }

  /** What the reader does by hand, which ends what is being played. */
  act(kind, more = {}) {
    this.pause();
    this.ask(kind, more);
  }

  ask(kind, more = {}) {
    if (this.replay) {
      this.replay.take(kind, more);
      if (this.playing) this.play();
      return;
    }
    this.number += 1;
    const { revision } = this.steps; // of the lists that the reader sees
    this.isAnswered = false;
    this.drawBusy();
    if (kind !== "preview") this.laidAhead = kind === "finish" || kind === "random";
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.miss(), ANSWER_WITHIN_MS);
    try {
      this.model.send({ kind, request: this.number, revision, ...more });
    } catch {
      this.miss(); // there is no kernel any more
    }
  }

  /** Nobody answers; what was built is in the page all the same. */
  miss() {
    clearTimeout(this.waiting);
    this.missed = this.isAnswered = true;
    this.root.removeAttribute("aria-busy");
    this.running.hide();
    this.pause();
    this.say(
      "The kernel does not answer: this is the last picture. What was built is kept: copy the session below, run the " +
        "cell again and open it there.",
    );
    this.kept.element.open = true;
  }

  drawAnswer() {
    if (this.number && this.model.get("answered") !== this.number) return;
    clearTimeout(this.waiting);
    this.isAnswered = true;
    this.drawBusy();
    if (this.missed) this.drawStatus(); // it was only late
    this.missed = false;
    const failed = this.model.get("error") !== "";
    if (failed) this.pause();
    else if (this.laidAhead) this.play();
    else if (this.playing) this.play();
    this.laidAhead = false;
  }

  /** Work that goes on beside the page: the kernel is there, however long it takes. */
  drawRunning() {
    if (this.model.get("running").what) clearTimeout(this.waiting);
    this.drawBusy();
    this.running.draw();
    this.steps.drawUnlisted();
  }

  drawBusy() {
    const isBusy = !this.isAnswered || Boolean(this.model.get("running").what);
    if (isBusy) this.root.setAttribute("aria-busy", "true");
    else this.root.removeAttribute("aria-busy");
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
    const labels = this.model.get("labels");
    this.graph.call(labels.graph);
    const press = (text, title, onclick, more = {}) =>
      make("button", { type: "button", class: "syno-button", title, onclick, ...more }, text);
    const button = (text, kind, title) => press(text, title, () => this.act(kind), { "data-kind": kind });
    this.undo = button("Undo", "undo", "Back by one place (Ctrl+Z)");
    this.redo = button("Redo", "redo", "Forth by one place (Ctrl+Shift+Z or Ctrl+Y)");
    this.toProgress = button("Undo to last progress", "undo_to_progress", labels.progress);
    this.toProgress.hidden = !live || !labels.progress;
    this.reset = button("Start over", "reset", labels.reset);
    for (const [one, drawing] of [[this.undo, "undo"], [this.redo, "redo"]]) {
      one.setAttribute("aria-label", one.textContent);
      one.classList.add("syno-icon-only");
      one.replaceChildren(icon(drawing));
    }
    this.player = press("Play", "Take the steps that lie ahead one after the other, or stop", () =>
      this.playing ? this.pause() : this.play(),
    );
    this.suggest = button("Suggest", "suggest", labels.suggest);
    this.select = make("select", { class: "syno-select", "aria-label": "Known operator" });
    this.quiz = button("Quiz", "quiz", "Hide the steps that lie ahead, guess each from the lists, and have it graded");
    this.reveal = button("Show the step", "reveal", "Take the step that was to be guessed");
    this.grade = make("p", { class: "syno-grade", role: "status", "aria-live": "polite" });
    this.branches = make("div", { class: "syno-bar syno-branches", role: "group", "aria-label": "Branches" });
    const load = (text, kind, title) =>
      press(text, title, () => this.select.value && this.act(kind, { name: this.select.value }), { "data-kind": kind });
    const more = menu(
      "More",
      "more",
      this.suggest,
      button("Suggest to the end", "finish", labels.finish),
      button("Complete at random", "random", labels.random),
      this.toProgress,
      this.reset,
      this.quiz,
      make(
        "div",
        { class: "syno-bar", role: "group", "aria-label": "Known operators" },
        this.select,
        load("Load", "load", "Show this operator, all steps taken"),
        load("Replay", "replay", "Show this operator from its start; Redo or Play takes its steps"),
      ),
    );
    this.where = make("span", { class: "syno-quiet", hidden: live });
    this.status = make("p", { class: "syno-status", role: "status", "aria-live": "polite" });
    this.strip = make("ul", { class: "syno-strip", "aria-label": labels.strip });
    this.error = make("p", { class: "syno-error", role: "alert" });
    this.running = new Running(this.model, () => this.act("cancel_work"));
    this.live = make("p", { class: "syno-live", role: "status", "aria-live": "polite" });
    this.farNumber = make("b", { class: "syno-far-number" });
    this.wish = make("div", { class: "syno-wish" });
    this.course = make("div", { class: "syno-frame", tabindex: "0", role: "group", "aria-label": `${labels.distance} over the steps` });
    this.groups = make("div", { class: "syno-groups" });
    this.stepsHeading = make("h4", { tabindex: "-1" }, "Next steps");
    this.all = make("button", { type: "button", onclick: () => this.choose("") }, "Show all steps");
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
        { class: "syno-head", role: "group", "aria-label": "History and help" },
        this.status,
        this.strip,
        this.kept.waysOn,
        this.where,
        this.reveal,
        make("span", { class: "syno-together" }, this.undo, this.redo, this.player, live ? more : ""), // what needs a kernel is not on a page without one
      ),
      this.branches,
      this.running.element,
      this.grade,
      this.error,
      make(
        "div",
        { class: "syno-columns" },
        make("section", { "aria-label": "Picture", class: "syno-left" }, this.graph.element, this.graph.map, this.graph.bar(this.live)),
        make(
          "section",
          { class: "syno-right", "aria-label": "Next steps", onkeydown: (event) => this.onStepsKey(event) },
          make("div", { class: "syno-bar" }, this.stepsHeading, make("span", { class: "syno-gap" }), this.all),
          this.steps.element,
        ),
      ),
      // Below both, so that the picture stays beside the lists, or right above them.
      make(
        "div",
        { class: "syno-columns" },
        make(
          "div",
          { class: "syno-half" },
          make("section", { "aria-label": labels.distance }, make("h4", {}, `${labels.distance} `, this.farNumber), this.course, this.groups, this.aims.element, this.wish),
        ),
        make(
          "div",
          { class: "syno-half" },
          make("section", { "aria-label": "History" }, make("h4", {}, "History"), this.history.element, this.comparison.element),
          live ? this.kept.writing : "",
          this.kept.element,
        ),
      ),
      this.comparison.place,
    );
    this.running.listen(this.root);
    // Whether the keyboard or the pointer was used last decides where the focus goes.
    this.root.addEventListener("keydown", () => (this.byKey = true), true);
    this.root.addEventListener("pointerdown", () => (this.byKey = false), true);
    this.el.append(this.root);
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

  say(text) {
    write(this.status, text);
  }

  complain(text) {
    write(this.error, text);
    this.error.hidden = !text;
  }

  // -- the picture ----------------------------------------------------------------------------------------------------

  drawPicture() {
    const fresh = (this.fresh = {});
    afterFrame(() => {
      if (this.fresh !== fresh) return; // a later picture has come
      this.fresh = null;
      this.drawWaiting();
    });
    const had = this.graph.element.contains(document.activeElement);
    const links = this.model.get("links");
    this.root.classList.toggle("syno-complete", this.model.get("complete")); // its columns are others
    // The arrow keys reach what can be used first.
    const names = Object.keys(links).sort((one, other) => links[other].top - links[one].top);
    this.graph.draw(
      this.model.get("svg"),
      Object.fromEntries(names.map((name) => [name, links[name]])),
      this.model.get("description"),
      this.model.get("complete"),
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
    if (this.replay) this.drawLists(); // a kernel sends them
  }

  drawHeading() {
    const link = this.model.get("links")[this.model.get("selected")];
    writeMath(this.stepsHeading, link ? `Next steps with ${link.words}` : "Next steps");
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
    this.suggest.disabled = !this.model.get("live") || this.model.get("complete");
  }

  /** Bars of what is used of what there is; the words say the same. */
  drawStrip() {
    const parts = this.model.get("strip");
    this.strip.hidden = !parts.length;
    this.strip.replaceChildren(
      ...parts.map((part) => {
        const bar = make("span", { class: `syno-used${part.over ? " syno-over" : ""}`, "aria-hidden": "true" }, make("span", {}));
        bar.firstChild.style.width = `${100 * Math.min(1, part.share ?? 0)}%`;
        return make("li", { "data-strip": part.name }, make("b", {}, part.name), bar, make("span", {}, `${part.text}${part.over ? ": too much" : ""}`));
      }),
    );
  }

  /** During a quiz nothing shows what lies ahead. */
  drawQuiz() {
    const { score, said } = this.model.get("quiz");
    const isOn = score !== undefined;
    write(this.quiz, isOn ? "End the quiz" : "Quiz");
    this.quiz.setAttribute("aria-pressed", String(isOn));
    this.root.classList.toggle("syno-quiz-on", isOn);
    this.reveal.hidden = !isOn;
    this.redo.hidden = this.player.hidden = this.suggest.hidden = isOn;
    this.grade.hidden = !isOn;
    write(this.grade, isOn ? `${said || "Guess the next step: choose it from the lists."} ${score}.` : "");
    this.reveal.disabled = this.redo.disabled;
    this.course.hidden = isOn; // its line goes on to what lies ahead
    this.drawHistory();
  }

  drawError() {
    this.complain(this.model.get("error"));
  }

  /** The menu of known operators shows the one that is on show, or what the reader has chosen to load. */
  drawKnown() {
    const known = this.model.get("known");
    const shown = /this is (.+)\.$/.exec(this.model.get("status"))?.[1];
    const chosen = known.includes(shown) ? shown : this.select.value;
    fillSelect(this.select, [["", "known operators"], ...known.map((name) => [name, name])], chosen);
  }

  drawDistance() {
    const found = this.model.get("distance");
    write(this.farNumber, found.number === null ? "none: out of reach" : String(found.number));
    this.course.replaceChildren(parsePicture(found.course ?? "") ?? "");
    // What is wished of operators, where something is: its own number and its reasons, open to be read.
    const wish = found.wish;
    this.wish.replaceChildren(
      ...(wish
        ? [
            make("h4", {}, "Property distance ", make("b", { class: "syno-far-number" }, wish.number === null ? "none: out of reach" : String(wish.number))),
            make("ul", {}, ...wish.words.map((words) => make("li", {}, words))),
          ]
        : []),
    );
    const groups = make("div");
    const open = this.groups.querySelector("details")?.open ?? false;
    // The picture is made for a reader who opens it.
    const ontoggle = () => {
      const picture = groups.firstChild || !found.groups ? null : parsePicture(found.groups);
      if (picture) groups.append(make("div", { class: "syno-frame", tabindex: "0", role: "group", "aria-label": "Reshape groups" }, picture));
    };
    this.groups.replaceChildren(
      make(
        "details",
        { open, ontoggle },
        make("summary", {}, this.model.get("labels").groups),
        make("ul", {}, ...(found.words ?? []).map((words) => make("li", {}, words))),
        groups,
      ),
      ...(found.mixing ? mixingTable(found.mixing) : []),
    );
    this.aims.draw(found.aims);
  }

  drawHistory() {
    this.history.draw();
    this.drawBranches();
  }

  /** What can be done from here. */
  drawMoves() {
    const line = this.model.get("line");
    const at = line.indexOf(this.model.get("place"));
    const had = [this.undo, this.redo, this.toProgress, this.reveal].find((one) => one === document.activeElement);
    this.undo.disabled = this.toProgress.disabled = at <= 0 || !this.reaches(line[at - 1]);
    this.redo.disabled = at >= line.length - 1 || !this.reaches(line[at + 1]);
    this.reveal.disabled = this.redo.disabled;
    // Enter on the last Undo or Redo keeps the focus here.
    if (had?.disabled) (this.undo.disabled ? this.redo : this.undo).focus();
    write(this.where, `Place ${at + 1} of ${line.length}`);
    this.drawPlayer();
  }

  /** Where the session goes on in several ways from here, a button for each. */
  drawBranches() {
    const [place, line] = [this.model.get("place"), this.model.get("line")];
    const ways = this.model.get("tree").filter((row) => row.parent === place);
    const next = line[line.indexOf(place) + 1];
    const had = this.branches.contains(document.activeElement);
    this.branches.hidden = ways.length < 2 || "score" in this.model.get("quiz");
    const button = (row) =>
      make("button", {
        type: "button",
        "data-branch": row.place,
        class: row.place === next ? "syno-next" : undefined,
        disabled: !this.reaches(row.place),
        onclick: () => this.act("go", { index: row.place }),
      }, ...asMath(row.text));
    this.branches.replaceChildren(...(ways.length < 2 ? [] : [make("span", {}, "Goes on with: "), ...ways.map(button)]));
    if (had) (this.branches.querySelector("button:enabled") ?? this.graph.element).focus();
  }

  drawLists() {
    const had = this.steps.draw(this.model.get("selected"));
    this.drawHeading();
    if (this.toSteps) (this.steps.summary("") || this.stepsHeading).focus();
    else if (had) (this.steps.summary(had) || this.stepsHeading).focus();
    this.toSteps = false;
  }

  drawPreview() {
    this.steps.drawPreview();
  }

  drawWhy() {
    this.steps.drawWhy();
  }
}

const render = renderer(View, "The stepper");
