// The table of trials of `RunsView`: sorted, filtered, in pages. It stands behind runs_chart.js and loads nothing.

const PAGE = 50;
const COMPARISON = /^([a-z_@.\w-]+)(<=|>=|<|>|=)(.+)$/i;

/** What a filter asks: words that the row must hold, and comparisons of columns, by name or the start of one. */
function parseFilter(text, columns) {
  return text
    .trim()
    .split(/\s+/)
    .filter((word) => word !== "")
    .map((word) => {
      const found = COMPARISON.exec(word);
      const wanted = found?.[1].toLowerCase();
      const column = found && columns.find((c) => c.name.toLowerCase().startsWith(wanted) || c.title.toLowerCase() === wanted);
      const number = found ? Number(found[3]) : NaN;
      if (!column || (column.kind === "number" && Number.isNaN(number))) {
        const low = word.toLowerCase();
        return (row) => columns.some((c) => c.kind === "text" && String(c.values[row] ?? "").toLowerCase().includes(low));
      }
      if (column.kind === "text") {
        const low = found[3].toLowerCase();
        return (row) => found[2] === "=" && String(column.values[row] ?? "").toLowerCase() === low;
      }
      const compare = { "<": (a) => a < number, ">": (a) => a > number, "<=": (a) => a <= number, ">=": (a) => a >= number };
      const holds = compare[found[2]] ?? ((a) => a === number);
      return (row) => column.values[row] !== null && holds(column.values[row]);
    });
}

class TrialsTable {
  /** `told` has: sort(name), filter(text), choose(key), hover(key or null, element). */
  constructor(told) {
    this.told = told;
    this.page = 0;
    this.names = "";
    this.input = make("input", { type: "search", "aria-label": "Filter", placeholder: "words, accuracy>0.9, flops<1e6", size: 34 });
    this.input.addEventListener("input", () => this.told.filter(this.input.value));
    this.count = make("span", { role: "status", "aria-live": "polite", class: "syno-count" });
    this.back = make("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.forth = make("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.head = make("tr");
    this.body = make("tbody");
    this.table = make("table", { class: "syno-table" }, make("caption", {}, "Trials"), make("thead", {}, this.head), this.body);
    const frame = make("div", { class: "syno-frame", tabindex: "0", role: "group", "aria-label": "Table of trials" }, this.table);
    this.bar = make("div", { class: "syno-bar" }, make("label", {}, "Filter ", this.input), this.count, this.back, this.forth);
    this.root = make("div", {}, this.bar, frame);
    this.body.addEventListener("pointerover", (event) => {
      const line = event.target.closest("tr");
      this.told.hover(line?.dataset.key ?? null, line);
    });
    this.body.addEventListener("pointerleave", () => this.told.hover(null));
  }

  turn(by) {
    this.page += by;
    this.draw(this.given);
  }

  /** `given`: trials, sort, descending, filter, selected (Set), front (Set), chosen. */
  draw(given) {
    this.given = given;
    const columns = given.trials.columns ?? [];
    const keys = given.trials.keys ?? [];
    if (this.input.value !== given.filter) this.input.value = given.filter;
    this.drawHead(columns, given);
    const tests = parseFilter(given.filter, columns);
    let shown = keys.map((_, row) => row).filter((row) => tests.every((holds) => holds(row)));
    if (given.selected.size) shown = shown.filter((row) => given.selected.has(keys[row]));
    const by = columns.find((column) => column.name === given.sort);
    if (by) {
      const sign = given.descending ? -1 : 1;
      const value = by.kind === "number" ? (row) => by.values[row] : (row) => by.values[row] || null;
      shown.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === null || y === null) return (x === null) - (y === null) || a - b; // what is not known comes last
        return sign * (by.kind === "number" ? x - y : x.localeCompare(y, "en", { numeric: true })) || a - b;
      });
    }
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    this.page = Math.min(Math.max(this.page, 0), pages - 1);
    this.back.disabled = this.page === 0;
    this.forth.disabled = this.page === pages - 1;
    const which = given.selected.size ? `${given.selected.size} selected, ` : "";
    const paged = pages > 1 ? `, page ${this.page + 1} of ${pages}` : "";
    write(this.count, `${which}${shown.length} of ${keys.length} shown${paged}`);
    this.drawRows(shown.slice(this.page * PAGE, (this.page + 1) * PAGE), columns, keys, given);
  }

  drawHead(columns, given) {
    const names = JSON.stringify(columns.map((column) => [column.name, column.title]));
    if (names !== this.names) {
      this.names = names;
      this.head.replaceChildren(
        ...columns.map((column) => {
          const button = make("button", { type: "button", onclick: () => this.told.sort(column.name) }, column.title);
          const kind = column.kind === "number" ? "syno-number" : undefined;
          return make("th", { scope: "col", "data-name": column.name, class: kind }, button);
        }),
      );
    }
    for (const head of this.head.children) {
      const isBy = head.dataset.name === given.sort;
      if (isBy) head.setAttribute("aria-sort", given.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  /** Lines and cells are kept and written anew, so that the focus stays where it is. */
  drawRows(rows, columns, keys, given) {
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
    rows.forEach((row, number) => {
      let line = this.body.children[number];
      if (!line || line.children.length !== columns.length) {
        const fresh = this.makeLine(columns);
        if (line) line.replaceWith(fresh);
        else this.body.append(fresh);
        line = fresh;
      }
      const key = keys[row];
      line.dataset.key = key;
      line.classList.toggle("syno-best", given.front.has(key));
      line.classList.toggle("syno-chosen", given.chosen === key);
      columns.forEach((column, at) => {
        const value = column.values[row];
        const text = column.kind === "number" ? shortNumber(value) : String(value ?? "");
        const cell = line.children[at];
        if (at === 0) {
          write(cell.firstChild, text);
          cell.firstChild.setAttribute("aria-label", `Open ${text}${given.front.has(key) ? ", on the front" : ""}`);
        } else write(cell, text);
      });
    });
  }

  makeLine(columns) {
    const cells = columns.map((column, at) => {
      const cell = make(at === 0 ? "th" : "td", { class: column.kind === "number" ? "syno-number" : "syno-words" });
      if (at === 0) {
        cell.setAttribute("scope", "row");
        const open = (event) => this.told.choose(event.target.closest("tr").dataset.key);
        cell.append(make("button", { type: "button", class: "syno-open", onclick: open }));
      }
      return cell;
    });
    return make("tr", {}, ...cells);
  }
}
