// The view of `RunsView`: the jobs and results of a lab. Everything it shows is a trait; it asks by small messages and by
// setting traits. It stands behind its parts (scripts.py) and loads nothing: no address stands in this file.

const FIRST_REQUEST = 1000000; // the table of jobs counts from 1
const HOVER_MS = 120;

class RunsPage extends LiveView {
  constructor(model, el) {
    super();
    this.model = model;
    this.pictures = new Map();
    this.buildParts();
    this.attach(el, "Run the cell again to continue.", FIRST_REQUEST);
    this.child = new ChildView(model, this.opened, (text) => this.complain(`The operator cannot be shown: ${text}`));
    this.comparison = new ChildView(model, this.compared, (text) => this.complain(`The comparison cannot be shown: ${text}`));
    this.jobs = new JobsTable(model, this.jobsPlace);
    this.jobs.error.remove(); // the page says it for both
    this.custom = (content, buffers) => this.receive(content, buffers);
    model.on("msg:custom", this.custom);
    this.listen(["headline"], () => write(this.headline, model.get("headline")));
    this.listen(["pane"], this.drawPane);
    this.listen(["sources", "source"], this.drawSources);
    this.listen(["axes", "x", "y", "z", "relative", "published", "tool"], this.drawChoices);
    this.listen(["front"], this.drawFront);
    this.listen(["trials", "front", "sort", "descending", "filter", "selected", "chosen"], this.drawTable);
    this.listen(["selected"], this.drawSelected);
    this.listen(["courses"], this.drawCourses);
    this.listen(["progress"], () => this.search.draw(this.model.get("progress")));
    this.explained = this.model.get("why").answer; // what was asked before this page is not opened again
    this.listen(["why"], this.drawWhy);
    this.listen(["chosen", "whys"], this.drawAsk);
    this.listen(["opened"], () => this.child.draw(model.get("opened")));
    this.listen(["compared"], () => this.comparison.draw(model.get("compared")));
    if (!model.get("live")) this.goToAddress();
  }

  buildParts() {
    const live = this.model.get("live");
    this.headline = make("p", { class: "syno-status", role: "status", "aria-live": "polite" });
    this.error = make("p", { class: "syno-error", role: "alert" });
    this.choices = {};
    const choose = (name, label) => {
      const select = make("select", { "aria-label": label, disabled: !live, onchange: () => this.put(name, select.value) });
      this.choices[name] = select;
      return make("label", {}, `${label} `, select);
    };
    const tick = (name, label) => {
      const box = make("input", { type: "checkbox", disabled: !live, onchange: () => this.put(name, box.checked) });
      this.choices[name] = box;
      return make("label", {}, box, ` ${label}`);
    };
    const titles = { results: "Results", jobs: "Jobs and curves", search: "Plan and funnel" };
    this.tabs = Object.entries(titles).map(([name, title]) =>
      make(
        "button",
        {
          type: "button", role: "tab", "data-pane": name, "aria-selected": "false",
          onclick: () => this.put("pane", name),
          onkeydown: (event) => moveAmong(event, this.tabs) && this.put("pane", document.activeElement.dataset.pane),
        },
        title,
      ),
    );
    const tabs = make("div", { class: "syno-tabs", role: "tablist", "aria-label": "Runs" }, ...this.tabs);
    const source = choose("source", "Source");
    source.classList.add("syno-source");
    this.front = new FrontChart({
      hover: (place, x, y) => this.hover(place === null ? null : this.front.keys[place], x, y),
      choose: (place) => this.choose(this.front.keys[place]),
      select: (keys) => this.put("selected", keys),
      say: (text) => write(this.said, text),
    });
    this.said = make("p", { class: "syno-said", role: "status", "aria-live": "polite" });
    this.card = make("div", { class: "syno-card", hidden: true, role: "tooltip" });
    this.volume = new LineChart("Hypervolume", "trials", "volume", { width: 320, height: 200, steps: true });
    this.table = new TrialsTable({
      sort: (name) => {
        const again = this.model.get("sort") === name;
        this.put("descending", again ? !this.model.get("descending") : false);
        this.put("sort", name);
      },
      filter: (text) => this.put("filter", text),
      choose: (key) => this.choose(key),
      hover: (key, line) => this.hoverLine(key, line),
    });
    this.clear = make("button", { type: "button", onclick: () => this.put("selected", []) }, "Clear selection");
    this.compare = make("button", { type: "button", onclick: () => this.asker.ask("compare", {}) }, "Compare");
    this.compare.title = "Put the operators of two to four selected trials side by side";
    this.table.bar.append(this.compare, this.clear);
    this.form = make("select", { "aria-label": "Format of the file" });
    const forms = live ? ["CSV", "Parquet", "SVG", "PNG", "PDF", "TeX"] : Object.keys(this.model.get("files"));
    this.form.append(...forms.map((form) => make("option", {}, form)));
    const save = make("button", { class: "syno-quiet", type: "button", onclick: () => this.save() }, icon("save"), "Save");
    const tools = choose("tool", "Drag:");
    for (const name of ["lasso", "box"]) this.choices.tool.append(make("option", { value: name }, name));
    this.choices.tool.disabled = false;
    const bar = make("div", { class: "syno-bar" });
    bar.append(choose("x", "x axis"), choose("y", "y axis"), choose("z", "Colour"), tick("relative", "against the baseline"));
    bar.append(tick("published", "the paper's"), tools, make("span", { class: "syno-gap" }), make("span", { class: "syno-together" }, this.form, save));
    this.legend = make("ul", { class: "syno-legend syno-systems", "aria-label": "Systems" });
    this.kinds = make("ul", { class: "syno-legend syno-systems", "aria-label": "Legend" });
    const plot = make("div", { class: "syno-plot-frame" }, this.front.root, this.kinds, this.legend, this.card, this.said);
    this.opened = make("div", { class: "syno-opened" });
    this.compared = make("div", { class: "syno-beside" });
    this.ask = make("button", { type: "button", onclick: () => this.openWhy(this.model.get("chosen")) }, "Why this one?");
    this.search = new SearchPanel((key) => this.openWhy(key));
    this.panels = {
      results: make("div", { role: "tabpanel", "aria-label": "Results" }),
      jobs: make("div", { role: "tabpanel", "aria-label": titles.jobs }),
      search: make("div", { role: "tabpanel", "aria-label": titles.search }, this.search.root),
    };
    this.note = make("p", { class: "syno-quiet" });
    const folded = make("details", { class: "syno-fold" }, make("summary", {}, "Hypervolume over the trials"), this.volume.root);
    const columns = make("div", { class: "syno-columns" }, plot, folded);
    this.panels.results.append(columns, this.note, bar, this.table.root, this.compared, this.ask, this.opened);
    this.jobsPlace = make("div");
    this.charts = new Map(); // by title: curves of two rungs are never in one
    this.curves = make("div", { class: "syno-columns" });
    this.panels.jobs.append(this.jobsPlace, this.curves);
    this.root = make("div", { class: "syno-shared syno-runs", role: "group", "aria-label": "Runs" });
    const head = make("div", { class: "syno-bar syno-head" }, tabs, this.headline, source);
    this.root.append(head, this.error, ...Object.values(this.panels));
  }

  destroy() {
    this.model.off("msg:custom", this.custom);
    clearTimeout(this.hovering);
    this.child.close();
    this.comparison.close();
    this.jobs.destroy();
    super.destroy();
  }

  receive(content, buffers) {
    if (content.kind === "picture") {
      this.pictures.set(content.key, content);
      if (this.pictures.size > 300) this.pictures.delete(this.pictures.keys().next().value);
      if (this.hovered === content.key) this.drawPicture();
    } else if (content.kind === "file") {
      saveFile(new Blob(buffers), content.name);
    }
  }

  save() {
    const form = this.form.value;
    if (this.model.get("live")) this.asker.ask("export", { form });
    else saveFile(new Blob([this.model.get("files")[form]]), `trials.${form.toLowerCase()}`);
  }

  // -- drawing

  drawPane() {
    const open = this.model.get("pane");
    for (const tab of this.tabs) {
      tab.setAttribute("aria-selected", String(tab.dataset.pane === open));
      tab.setAttribute("tabindex", tab.dataset.pane === open ? "0" : "-1");
    }
    for (const [name, panel] of Object.entries(this.panels)) panel.hidden = name !== open;
  }

  drawSources() {
    const sources = this.model.get("sources");
    const chosen = this.model.get("source");
    const options = [["", "all searches and runs"], ...sources.map((one) => [one.key, one.title])];
    if (!options.some(([key]) => key === chosen)) options.push([chosen, chosen]);
    fillSelect(this.choices.source, options, chosen);
  }

  drawChoices() {
    const axes = this.model.get("axes").map((axis) => [axis.name, axis.title]);
    const first = { x: [], y: [["", "accuracy that all have"]], z: [["", "none"]] };
    for (const name of ["x", "y", "z"]) {
      const chosen = this.model.get(name);
      const options = [...first[name], ...axes];
      if (!options.some(([axis]) => axis === chosen)) options.push([chosen, chosen]);
      fillSelect(this.choices[name], options, chosen);
    }
    const relative = this.model.get("relative");
    this.choices.relative.checked = relative;
    this.choices.published.checked = this.model.get("published");
    this.choices.published.disabled = !relative || !this.model.get("live");
    this.choices.published.parentElement.title = relative ? "" : "Only against the baseline: the paper gives no absolute values.";
    this.choices.tool.value = this.model.get("tool");
    this.front.tool = this.model.get("tool");
  }

  drawFront() {
    const front = this.model.get("front");
    this.front.draw(front);
    this.drawLegend(front.legend ?? []);
    this.drawKinds(front);
    const history = front.history ?? [];
    this.volume.draw(history.length ? [{ name: "", points: history }] : []);
    const paper = front.paper?.length ? ` Purple: the paper's numbers, on its own device (${front.paper.length}).` : "";
    const unplaced = front.unplaced ? ` ${front.unplaced} without a value on each axis.` : "";
    const none = front.keys ? (front.keys.length ? "" : "No trial has a value on each axis yet.") : front.text ?? "";
    const known = front.known?.length ? " Hollow: known operators." : "";
    const hasBars = front.finals?.length || (front.intervals ?? []).flat().some(Boolean);
    const wide = hasBars ? " Bars: intervals of the finals." : "";
    write(this.note, `${none}${unplaced}${known}${wide}${paper}`.trim());
  }

  /** What the colours of the points mean, of the kinds that there are, and the two ends of the colours of an axis. */
  drawKinds(front) {
    const keys = front.keys ?? [];
    const [best, base, known] = ["front", "baselines", "known"].map((name) => new Set(front[name] ?? []));
    const has = (test) => keys.some((_, place) => test(place));
    const z = front.values?.[2] ? front.axes?.[2] : null;
    const plain = (place) => !best.has(place) && !base.has(place);
    const found = [
      ["syno-best", "on the front", !z && has((place) => best.has(place) && !base.has(place))],
      ["syno-rest", "another trial", !z && has(plain)],
      ["syno-base", "the baseline: the network as it is", has((place) => base.has(place))],
      ["syno-best syno-known", "a known operator", has((place) => known.has(place))],
      ["syno-final", "large: a finalist, on the test images", Boolean(front.finals?.length)],
      ["syno-seeds", "line and band: the baseline in the finals, its mean and its seeds", Boolean(front.baseline?.length)],
    ];
    const lines = found.filter(([, , isThere]) => isThere).map(([look, words]) => [look, words]);
    if (z) {
      const values = front.values[2];
      const [low, high] = [Math.min(...values), Math.max(...values)].map(shortNumber);
      lines.push(["syno-depth-0", `${z.text}: ${low}`], ["syno-depth-7", `${z.text}: ${high}`]);
    }
    this.kinds.hidden = lines.length === 0;
    this.kinds.replaceChildren(
      ...lines.map(([look, words]) => {
        const d = look === "syno-seeds" ? "M-2.5 0H2.5" : "M-1.5 0a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0 -3 0";
        const dot = svgPart("path", { class: look, d, "vector-effect": "non-scaling-stroke" });
        return make("li", {}, svgPart("svg", { viewBox: "-2.5 -2.5 5 5", "aria-hidden": "true" }, dot), words);
      }),
    );
  }

  /** The marks of the systems, where there are several. */
  drawLegend(systems) {
    this.legend.hidden = systems.length < 2;
    const lines = systems.map(({ title, path }) => {
      const outline = svgPart("path", { d: path, fill: "currentColor" });
      const mark = svgPart("svg", { viewBox: "-2 -2 4 4", "aria-hidden": "true" }, outline);
      return make("li", {}, mark, title);
    });
    this.legend.replaceChildren(...lines);
  }

  drawTable() {
    const front = this.model.get("front");
    const best = new Set((front.front ?? []).map((place) => front.keys[place]));
    const given = Object.fromEntries(["trials", "sort", "descending", "filter", "chosen"].map((n) => [n, this.model.get(n)]));
    this.table.draw({ ...given, selected: new Set(this.model.get("selected")), front: best });
  }

  drawSelected() {
    const keys = this.model.get("selected");
    this.front.mark(new Set(keys));
    this.clear.hidden = keys.length === 0;
    this.compare.hidden = keys.length === 0 || !this.model.get("live");
    this.compare.disabled = keys.length < 2 || keys.length > 4;
  }

  drawCourses() {
    const courses = this.model.get("courses");
    for (const { chart, kind } of courses) {
      if (this.charts.has(chart)) continue;
      const [xTitle, yTitle] = kind === "train" ? ["epoch", "accuracy"] : ["trial", "ms"];
      const made = new LineChart(chart, xTitle, yTitle, { width: 560, steps: kind === "tune", mayBeLog: kind === "tune" });
      this.charts.set(chart, made);
      this.curves.append(made.root);
    }
    for (const [title, chart] of this.charts) {
      const lines = courses.filter((one) => one.chart === title);
      chart.root.hidden = lines.length === 0;
      if (lines.length === 0) continue;
      chart.draw(lines.map((one) => ({ name: `${one.name} (${one.state})`, points: one.points, isOver: one.state !== "running" })));
    }
  }

  // -- the operator's picture under the pointer

  hover(key, x, y) {
    if (key === this.hovered) return;
    clearTimeout(this.hovering);
    this.hovered = key;
    this.card.hidden = key === null;
    if (key === null) return;
    const place = this.front.keys.indexOf(key);
    const words = place >= 0 ? this.front.words(place) : key;
    this.card.replaceChildren(make("p", {}, words));
    const side = x > this.front.width / 2 ? "syno-left" : "syno-right";
    this.card.classList.remove("syno-left", "syno-right");
    this.card.classList.add(side);
    this.drawPicture();
    if (!this.picture(key)) this.hovering = setTimeout(() => this.asker.ask("picture", { key }, true), HOVER_MS);
  }

  hoverLine(key) {
    const place = key === null ? -1 : this.front.keys.indexOf(key);
    this.front.at = place;
    this.front.drawRing();
  }

  picture(key) {
    return this.pictures.get(key) ?? this.model.get("pictures")[key];
  }

  drawPicture() {
    const found = this.hovered === null ? null : this.picture(this.hovered);
    const drawn = found ? parsePicture(found.svg) : null;
    if (!drawn) return;
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", found.text);
    this.card.querySelector("svg")?.remove();
    this.card.append(drawn);
  }

  // -- the operator that was chosen

  choose(key) {
    this.hover(null);
    if (!this.model.get("live")) {
      this.model.set("chosen", key);
      const found = this.picture(key);
      const drawn = found ? parsePicture(found.svg) : null;
      this.opened.replaceChildren(drawn ?? make("p", {}, "This page does not hold the picture of this trial."));
      this.keepAddress(key);
      return;
    }
    if (this.model.get("chosen") === key) this.put("chosen", ""); // so that it opens again
    this.put("chosen", key);
  }

  // -- why it was chosen

  /** Only trials of searches have a reason, and on a page that stands alone only those that it holds. */
  drawAsk() {
    const key = this.model.get("chosen");
    const isTrial = key.startsWith("search:") && !key.endsWith("#baseline");
    this.ask.hidden = !isTrial || (!this.model.get("live") && !this.model.get("whys")[key]);
  }

  openWhy(key) {
    this.put("pane", "search");
    if (this.model.get("live")) this.asker.ask("why", { key });
    else this.search.explain(this.model.get("whys")[key]);
  }

  drawWhy() {
    const why = this.model.get("why");
    if (why.answer === this.explained) return;
    this.explained = why.answer;
    this.search.explain(why);
  }

  // -- the address of a page that stands alone ends in the trial that was chosen, and leads there again

  keepAddress(key) {
    try {
      history.replaceState(null, "", `#${encodeURIComponent(key)}`);
    } catch {
      // The page is shown within another, where it has no address.
    }
  }

  goToAddress() {
    try {
      const key = decodeURIComponent(location.hash.slice(1));
      if ((this.model.get("trials").keys ?? []).includes(key)) this.choose(key);
    } catch {
      // An address that is not ours.
    }
  }
}

const render = renderer(RunsPage, "The runs");
