// The view of `Compare`: operators side by side. Everything it shows is a trait; nothing is worked out here.

const MARKS = { some: "syno-part-some", differs: "syno-part-differs", only: "syno-part-only" };
const WORDS = { "syno-part-some": "some have it", "syno-part-differs": "differs", "syno-part-only": "no other has it" };
const SIGNS = { same: "=", some: "\u2286", differs: "\u2260", only: "+" };

class CompareView extends LiveView {
  constructor(model, el) {
    super();
    this.model = model;
    this.graphs = [];
    this.build();
    this.attach(el, "What is shown stays; run the cell again for other sizes.");
    this.listen(["columns"], this.drawColumns);
    this.listen(["status"], () => write(this.status, model.get("status")));
    this.listen(["sizes", "example", "places"], this.drawSizes);
    this.listen(["table", "columns"], this.drawTable);
    this.listen(["rows", "columns"], this.drawRows);
    this.listen(["selected"], this.drawSelected);
  }

  destroy() {
    this.stopGraphs();
    super.destroy();
  }

  /** Pictures that are drawn no more watch the ground no more. */
  stopGraphs() {
    for (const graph of this.graphs) graph.stop();
  }

  build() {
    this.title = make("h3", { class: "syno-title" });
    this.status = make("p", { class: "syno-status", role: "status", "aria-live": "polite" });
    this.error = make("p", { class: "syno-error", role: "alert" });
    this.places = new LayerMenu((binding) => this.asker.ask("bind", { binding }));
    this.sizes = make("details", { class: "syno-sizes" });
    this.pictures = make("div", { class: "syno-pictures" });
    this.legend = make("p", { class: "syno-legend" });
    for (const [name, text] of [["only", "no other has it"], ["differs", "differs"], ["some", "some have it"]]) {
      const swatch = make("span", { class: `syno-swatch ${MARKS[name]}`, "aria-hidden": "true" });
      this.legend.append(make("span", {}, swatch, `${SIGNS[name]} ${text}`));
    }
    this.table = make("div", { class: "syno-facts" });
    this.steps = make("div", { class: "syno-steps" });
    this.root = make("div", { class: "syno-shared syno-compare", role: "group", "aria-label": "Comparison" });
    this.root.append(this.title, this.status, this.error, this.places.element, this.sizes, this.legend, this.pictures, this.steps, this.table);
  }

  heads() {
    return this.model.get("columns").map((one) => make("th", { scope: "col" }, `${one.letter}: ${one.name}`));
  }

  drawColumns() {
    const columns = this.model.get("columns");
    write(this.title, columns.map((one) => one.name).join(" and "));
    this.stopGraphs();
    this.graphs = columns.map((column, number) => {
      const graph = new GraphView({
        hover: (ids) => this.light(ids.length ? this.rowOf(number, ids[0]) : this.model.get("selected")),
        choose: (id) => this.choose(id ? this.rowOf(number, id) : -1),
        search: (text) => graph.search(text),
      });
      graph.call(`picture of ${column.letter}`);
      return graph;
    });
    const figures = columns.map((column, number) => {
      const graph = this.graphs[number];
      const bar = graph.bar();
      const caption = make(
        "figcaption",
        {},
        make("b", {}, `${column.letter}: ${column.name}`),
        make("span", { class: "syno-quiet" }, ...asMath(` (${column.system}) ${column.about}`)),
      );
      return make("figure", {}, caption, bar, graph.element);
    });
    this.pictures.replaceChildren(...figures);
    // A picture sees from the ground that it stands on whether that is dark: it is drawn where it is in the page.
    columns.forEach((column, number) => {
      this.graphs[number].draw(column.svg, column.links, column.description);
      this.graphs[number].mark(Object.fromEntries(Object.entries(column.marks).map(([id, mark]) => [id, MARKS[mark]])), WORDS);
    });
  }

  drawSizes() {
    const sizes = this.model.get("sizes");
    this.places.draw(this.model.get("places"), sizes, this.model.get("live"));
    this.sizes.hidden = Object.keys(sizes).length === 0;
    const title = this.model.get("example") ? "Example sizes" : "Sizes";
    drawSizes(this.sizes, title, sizes, this.model.get("live"), (binding) => this.asker.ask("bind", { binding }));
  }

  /** Costs, receptive fields and results, in a group each. */
  drawTable() {
    const table = this.model.get("table");
    const groups = [...new Set(table.map((row) => row.group))].map((name) => {
      const lines = table.filter((row) => row.group === name).map((row) => this.factLine(row));
      const head = make("tr", {}, make("th", { scope: "rowgroup", colspan: this.graphs.length + 1 }, name));
      return make("tbody", {}, head, ...lines);
    });
    const head = make("thead", {}, make("tr", {}, make("td"), ...this.heads()));
    this.table.replaceChildren(
      make("table", { class: "syno-table" }, make("caption", {}, "Costs, receptive fields and results"), head, ...groups),
    );
  }

  factLine(row) {
    const title = make("th", { scope: "row" }, ...asMath(row.title), row.differs ? make("span", {}, " \u2260") : "");
    const cells = row.cells.map((cell) =>
      make("td", {}, cell.text, cell.ratio ? make("span", { class: "syno-quiet" }, ` (${cell.ratio})`) : ""),
    );
    return make("tr", { class: row.differs ? "syno-row-differs" : undefined }, title, ...cells);
  }

  drawRows() {
    const rows = this.model.get("rows");
    this.steps.hidden = rows.length === 0;
    this.lines = rows.map((row, number) => {
      const button = make(
        "button",
        {
          type: "button",
          "aria-pressed": "false",
          tabindex: number === 0 ? "0" : "-1",
          onclick: () => this.choose(number),
          onkeydown: (event) => {
            moveAmong(event, this.lines.map((line) => line.querySelector("button")));
            if (event.key === "Escape") this.choose(-1);
          },
          onfocus: () => this.light(number),
          onblur: () => this.light(this.model.get("selected")),
        },
        `${SIGNS[row.mark]} `,
        ...asMath(row.words),
      );
      const cells = row.cells.map((cell) => make("td", {}, ...asMath(cell ? cell.text : "")));
      return make(
        "tr",
        {
          class: `syno-row-${row.mark}`,
          "data-mark": row.mark,
          onpointerenter: () => this.light(number),
          onpointerleave: () => this.light(this.model.get("selected")),
        },
        make("th", { scope: "row" }, button),
        ...cells,
      );
    });
    const head = make("thead", {}, make("tr", {}, make("td"), ...this.heads()));
    const caption = make("caption", {}, "Steps side by side; a chosen row is lit in the pictures");
    this.steps.replaceChildren(make("table", { class: "syno-table" }, caption, head, make("tbody", {}, ...this.lines)));
    this.drawSelected();
  }

  /** The row of steps that a node of a picture belongs to, or -1. */
  rowOf(column, id) {
    return this.model.get("rows").findIndex((row) => row.cells[column]?.ids.includes(id));
  }

  choose(number) {
    this.put("selected", number === this.model.get("selected") ? -1 : number);
  }

  light(number) {
    const cells = this.model.get("rows")[number]?.cells ?? [];
    this.graphs.forEach((graph, column) => graph.lightParts(new Set(cells[column]?.ids ?? []), ""));
  }

  drawSelected() {
    const chosen = this.model.get("selected");
    (this.lines ?? []).forEach((line, number) => {
      line.classList.toggle("syno-chosen", number === chosen);
      line.querySelector("button").setAttribute("aria-pressed", String(number === chosen));
    });
    this.light(chosen);
  }
}

const render = renderer(CompareView, "The comparison");
