// The view of `OperatorView`. Everything it shows is a trait; what it asks for is a trait or one small message.

let views = 0;

class View extends LiveView {
  constructor(model, el) {
    super();
    this.model = model;
    this.key = `syno-view-${(views += 1)}-${Math.random().toString(36).slice(2, 8)}`;
    this.hovered = [];
    this.told = { hover: (ids) => this.hover(ids), choose: (id) => this.choose(id) };
    this.shown = {}; // what the boxes were given
    this.graph = new GraphView({ ...this.told, search: (text) => this.put("search", text), next: () => this.nextFound() });
    this.titles = this.readTitles(); // where there are none, nothing of the view is put into the page
    this.build();
    this.ground = new Ground(this.root); // of the pictures in its panes
    this.attach(el, "The open panes stay; run the cell again for the others.");
    this.custom = (content, buffers) => {
      if (content.kind !== "file") return;
      saveFile(new Blob(buffers), content.name);
      this.say(`Saved: ${content.name}`);
    };
    model.on("msg:custom", this.custom);
    this.listen(["choices"], () => this.drawOffer());
    this.listen(["choices", "sizes"], () => this.drawPlaces());
    this.listen(["pane_graph"], () => this.drawGraph());
    this.listen(["name"], () => write(this.title, model.get("name")));
    this.listen(["status"], () => writeMath(this.status, model.get("status")));
    this.listen(["sizes", "example"], () => this.drawSizes());
    this.listen(["search"], () => this.drawSearch());
    this.listen(["pane"], () => this.drawTabs());
    for (const name of Object.keys(DRAW)) this.listen([`pane_${name}`], () => this.drawPane(name));
    this.listen(["staged"], () => this.drawPane("loops"));
    this.listen(["element", "photo", "weights"], () => this.drawChoices());
    this.listen(["selected"], () => this.drawSelected());
  }

  destroy() {
    this.model.off("msg:custom", this.custom);
    this.graph.stop();
    this.ground.stop();
    super.destroy();
  }

  // -- building -------------------------------------------------------------------------------------------------------

  build() {
    this.title = make("h3", { class: "syno-title" });
    this.status = make("p", { class: "syno-status" });
    this.live = make("p", { class: "syno-live", role: "status", "aria-live": "polite" });
    this.error = make("p", { class: "syno-error", role: "alert" });
    this.places = new LayerMenu((binding) => this.asker.ask("bind", { binding }));
    this.sizes = make("details", { class: "syno-sizes" });
    this.tabs = make("div", { class: "syno-tabs", role: "tablist", "aria-label": "Panes of the operator" });
    this.panels = {};
    const panels = make("div", { class: "syno-panels" });
    for (const name of Object.keys(DRAW)) {
      const tab = make("button", {
        type: "button",
        role: "tab",
        id: `${this.key}-tab-${name}`,
        "aria-controls": `${this.key}-${name}`,
        "data-pane": name,
        onclick: () => this.put("pane", name),
        onkeydown: (event) => {
          const there = [...this.tabs.children].filter((one) => !one.hidden);
          if (moveAmong(event, there)) this.put("pane", document.activeElement.dataset.pane);
        },
      });
      this.tabs.append(tab);
      const bar = make("div", { class: "syno-bar" });
      const body = make("div", { class: "syno-body" });
      const panel = make(
        "div",
        { role: "tabpanel", id: `${this.key}-${name}`, "aria-labelledby": tab.id, "data-panel": name },
        bar,
        body,
      );
      this.panels[name] = { tab, panel, bar, body };
      panels.append(panel);
    }
    this.graphBar = make("div", { class: "syno-bar" });
    this.left = make("section", { class: "syno-left" }, this.graph.bar(), this.graph.element, this.graphBar, this.live);
    this.choices = this.buildChoices();
    this.root = make(
      "div",
      { class: "syno-shared syno-operator", role: "group", "aria-label": "Operator", "data-lm-suppress-shortcuts": "true" },
      this.title,
      this.status,
      this.error,
      this.places.element,
      this.sizes,
      make(
        "div",
        { class: "syno-columns" },
        this.left,
        make("section", { class: "syno-right", "aria-label": "Panes" }, this.tabs, panels),
      ),
    );
  }

  /** What can be asked of single panes; on a page without a kernel nothing can. */
  buildChoices() {
    if (!this.model.get("live")) return { loops: [this.stagedBox()] };
    const options = this.model.get("choices");
    const select = (trait, label) => {
      const box = make("select", { "aria-label": label, "data-trait": trait, onchange: () => this.put(trait, box.value) });
      box.append(...options[trait].map((value) => make("option", { value }, value)));
      return make("label", {}, `${label} `, box);
    };
    const element = make("input", { type: "text", "data-trait": "element", maxlength: "200", size: "14" });
    const form = make(
      "form",
      {
        class: "syno-bar",
        onsubmit: (event) => {
          event.preventDefault();
          this.asker.ask("element", { element: element.value });
        },
      },
      make("label", {}, "Output element ", element),
      make("button", { type: "submit" }, "Show"),
    );
    return {
      loops: [this.stagedBox()],
      reach: [form],
      image: [select("photo", "photograph"), select("weights", "weights")],
    };
  }

  stagedBox() {
    const box = make("input", { type: "checkbox", "data-trait": "staged", onchange: () => this.put("staged", box.checked) });
    return make("label", {}, box, " by stages");
  }

  say(text) {
    write(this.live, text);
  }

  // -- lighting -------------------------------------------------------------------------------------------------------

  hover(ids) {
    if (ids.join() === this.hovered.join()) return;
    this.hovered = ids;
    this.drawLight();
  }

  choose(id) {
    this.put("selected", id === this.model.get("selected") ? "" : id);
  }

  drawSelected() {
    const id = this.model.get("selected");
    const link = this.graph.links[id];
    const lines = link?.lines.map((line) => line + 1).join(", ");
    this.say(link ? `${link.words}${lines ? `. In the loop nest: line ${lines}` : ""}` : "");
    if (link) this.graph.reveal(id);
    this.drawLight();
    if (link) for (const block of this.root.querySelectorAll(".syno-loops")) revealPiece(block);
  }

  drawLight() {
    const chosen = this.model.get("selected");
    const ids = this.hovered.length ? this.hovered : chosen ? [chosen] : [];
    this.graph.light(ids, chosen);
    const marks = new Set(ids.flatMap((id) => this.graph.links[id]?.marks ?? []));
    for (const block of this.root.querySelectorAll(".syno-loops")) lightLoops(block, marks, chosen);
  }

  drawSearch() {
    this.matches = this.graph.search(this.model.get("search"));
    this.match = -1;
  }

  nextFound() {
    if (!this.matches.length) return;
    this.match = (this.match + 1) % this.matches.length;
    this.put("selected", this.matches[this.match]);
  }

  // -- drawing --------------------------------------------------------------------------------------------------------

  readTitles() {
    return Object.fromEntries(this.model.get("choices").panes);
  }

  /** The tabs that the operator's system has, in its order, and what it calls the picture. */
  drawOffer() {
    this.titles = this.readTitles();
    for (const [name, { tab }] of Object.entries(this.panels)) {
      tab.hidden = !(name in this.titles);
      write(tab, this.titles[name] ?? "");
    }
    this.tabs.append(...Object.keys(this.titles).flatMap((name) => this.panels[name]?.tab ?? []));
    this.left.setAttribute("aria-label", this.titles.graph);
    this.graph.call(this.titles.graph);
  }

  drawGraph() {
    const { state, error, data, exports } = this.model.get("pane_graph");
    if (state !== "ready") {
      this.graph.element.replaceChildren(make("p", { class: "syno-quiet" }, error || `The ${this.titles.graph} is being drawn.`));
      return;
    }
    this.graph.draw(data.svg, data.links, data.description);
    this.graphBar.replaceChildren(...this.exportBar(`the ${this.titles.graph}`, data, exports, "graph"));
    this.drawSearch();
    this.drawSelected();
  }

  drawPlaces() {
    this.places.draw(this.model.get("choices").places, this.model.get("sizes"), this.model.get("live"));
  }

  drawSizes() {
    const sizes = this.model.get("sizes");
    const title = this.model.get("example") ? "Example sizes" : "Sizes";
    drawSizes(this.sizes, title, sizes, this.model.get("live"), (binding) => this.asker.ask("bind", { binding }));
  }

  drawTabs() {
    const open = this.model.get("pane");
    for (const [name, { tab, panel }] of Object.entries(this.panels)) {
      tab.setAttribute("aria-selected", String(name === open));
      tab.setAttribute("tabindex", name === open ? "0" : "-1");
      panel.hidden = name !== open;
    }
    const state = this.model.get(`pane_${open}`).state;
    if (state === "closed" && this.model.get("live")) this.asker.wait();
    this.drawLight();
  }

  drawPane(name) {
    const { body } = this.panels[name];
    const { state, error, data, exports } = this.model.get(`pane_${name}`);
    const open = this.model.get("pane") === name;
    if (open && state !== "closed") this.asker.stop();
    body.setAttribute("aria-busy", String(state === "working"));
    if (state === "ready") {
      body.replaceChildren(...DRAW[name](data, this.told, this));
      this.ground.look();
      this.fillBar(name, this.exportBar(this.titles[name], data, exports, name));
      if (name === "loops") this.drawLight();
    } else {
      const words = { working: "Computing …", failed: `Not available: ${error}`, closed: "Not computed yet." }[state];
      const again = make("button", { type: "button", onclick: () => this.asker.ask("work", { pane: name }) }, "Compute it");
      const isClosed = state === "closed" && this.model.get("live");
      body.replaceChildren(make("p", { class: state === "failed" ? "syno-error" : "syno-quiet" }, words), isClosed ? again : "");
      this.fillBar(name, []);
    }
    this.drawChoices();
  }

  /** What can be asked of a pane stays where it is: who types there keeps the place. */
  fillBar(name, rest) {
    const { bar } = this.panels[name];
    const kept = this.choices[name] ?? [];
    if (!kept.every((node, number) => bar.children[number] === node)) bar.replaceChildren(...kept);
    while (bar.children.length > kept.length) bar.lastElementChild.remove();
    bar.append(...rest);
  }

  drawChoices() {
    for (const trait of ["element", "photo", "weights"]) {
      const box = this.root.querySelector(`[data-trait="${trait}"]`);
      const value = this.model.get(trait);
      // A typed text that is not yet sent stays when other data arrive.
      if (box && this.shown[trait] !== value) box.value = this.shown[trait] = value;
    }
    const staged = this.root.querySelector('[data-trait="staged"]');
    if (staged) staged.checked = this.model.get("staged");
  }

  // -- taking away ----------------------------------------------------------------------------------------------------

  exportBar(what, data, all, pane) {
    // A figure for a paper is drawn by the kernel, which a page may not have.
    const exports = all.filter((form) => !("figure" in form) || this.model.get("live"));
    const box = make("select", { "aria-label": `Format of ${what}` });
    box.append(...exports.map((form, number) => make("option", { value: number }, form.format)));
    const chosen = () => exports[Number(box.value)];
    const run = (verb, act) => async () => {
      try {
        const isUnderWay = await act(chosen());
        if (!isUnderWay) this.say(`${verb}: ${what}, ${chosen().format}`);
      } catch (error) {
        this.complain(`${what} could not be copied or saved: ${error.message}`);
      }
    };
    const copy = run("Copied", async (form) => {
      if ("figure" in form) throw new Error("figures for papers are saved");
      const content = await this.content(form, data);
      if (typeof content === "string") await copyText(content);
      else await navigator.clipboard.write([new ClipboardItem({ [form.mime]: content })]);
    });
    const save = run("Saved", async (form) => {
      if ("figure" in form) {
        this.asker.ask("export", { pane, form: form.format });
        return true;
      }
      const content = await this.content(form, data);
      saveFile(typeof content === "string" ? new Blob([content], { type: form.mime }) : content, form.file);
    });
    return [
      make("span", { class: "syno-gap" }),
      make(
        "span",
        { class: "syno-together" },
        box,
        make("button", { class: "syno-quiet", type: "button", "aria-label": `Copy ${what}`, onclick: copy }, icon("copy"), "Copy"),
        make("button", { class: "syno-quiet", type: "button", "aria-label": `Save ${what}`, onclick: save }, icon("save"), "Save"),
      ),
    ];
  }

  /** Text, or a PNG as a blob. */
  async content(form, data) {
    const at = (path) => path.reduce((found, key) => found[key], data);
    if ("text" in form) return form.text;
    if ("svg_path" in form) return pngOfSvg(at(form.svg_path));
    if ("pictures" in form) {
      return pngOfPictures([data.input, ...data.outputs.flatMap((out) => out.pictures)].map(pngAddress));
    }
    const found = at(form.path);
    return typeof found === "string" ? found : JSON.stringify(found, null, 1);
  }
}

const render = renderer(View, "The operator");
