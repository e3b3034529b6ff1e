// The view of `Map`: operators on a plane. Everything it shows is a trait; nothing is worked out here.

class MapView extends LiveView {
  constructor(model, el) {
    super();
    this.model = model;
    this.build();
    this.attach(el, "The map stays; run the cell again to open operators.");
    this.child = new ChildView(model, this.opened, (text) => this.complain(`The operator cannot be shown: ${text}`));
    this.listen(["svg", "links", "shown"], this.drawMap);
    this.listen(["search"], () => this.graph.search(model.get("search")));
    this.listen(["opened"], () => this.child.draw(model.get("opened")));
  }

  destroy() {
    this.child.close();
    this.graph.stop();
    super.destroy();
  }

  build() {
    this.graph = new GraphView({
      hover: (ids) => this.tell(ids[0]),
      choose: (id) => this.choose(id),
      search: (text) => this.put("search", text),
    });
    this.graph.call("map");
    this.status = make("p", { class: "syno-status", role: "status", "aria-live": "polite" });
    this.error = make("p", { class: "syno-error", role: "alert" });
    this.said = make("p", { class: "syno-said syno-quiet", role: "status", "aria-live": "polite" });
    this.body = make("tbody");
    this.result = make("th", { class: "syno-number", scope: "col" });
    const heads = make("tr", {}, make("th", { scope: "col" }, "operator"), make("th", { scope: "col" }, "system"), this.result);
    const table = make("table", { class: "syno-table" }, make("caption", {}, "Operators of the map"), make("thead", {}, heads), this.body);
    const frame = make("div", { class: "syno-list", tabindex: "0", role: "group", "aria-label": "Table of operators" }, table);
    this.opened = make("div", { class: "syno-opened" });
    this.root = make("div", { class: "syno-shared syno-map", role: "group", "aria-label": "Map of operators" });
    const left = make("div", { class: "syno-plane" }, this.graph.bar(), this.graph.element, this.said);
    this.root.append(this.status, this.error, make("div", { class: "syno-columns" }, left, frame), this.opened);
  }

  drawMap() {
    const shown = this.model.get("shown");
    const svg = this.model.get("svg");
    if (!svg || !shown.places) {
      write(this.status, "The map is being worked out.");
      return;
    }
    write(this.status, shown.words);
    write(this.result, shown.measure);
    this.graph.draw(svg, this.model.get("links"), shown.words);
    this.graph.search(this.model.get("search"));
    const ids = Object.keys(this.model.get("links"));
    this.body.replaceChildren(
      ...shown.places.map((place, number) => {
        const press = { type: "button", onclick: () => this.choose(ids[number]), onfocus: () => this.tell(ids[number]) };
        const name = this.model.get("live") ? make("button", press, place.name) : place.name;
        const value = place.known ? "known" : place.value === null ? "" : place.value.toPrecision(4);
        const line = { onpointerenter: () => this.tell(ids[number]), onpointerleave: () => this.tell("") };
        return make("tr", line, make("th", { scope: "row" }, name), make("td", {}, place.system), make("td", { class: "syno-number" }, value));
      }),
    );
  }

  tell(id) {
    const link = this.model.get("links")[id];
    this.graph.light(link ? [id] : [], "");
    write(this.said, link?.words ?? "");
  }

  choose(id) {
    const link = this.model.get("links")[id];
    if (link) this.asker.ask("open", { key: link.key });
  }
}

const render = renderer(MapView, "The map");
