// The mixing matrix of an operator against a wish, what is wanted beside what is there, and tables, for the operator
// view and the stepper.

/** What can be wider than its place is scrolled, by keyboard too. */
function frame(label, ...children) {
  return make("div", { class: "syno-frame", tabindex: "0", role: "group", "aria-label": label }, ...children);
}

function table(caption, heads, rows) {
  const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, ...asMath(name))));
  const body = [make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...rows)];
  return frame(caption, make("table", { class: "syno-table" }, ...body));
}

/** A table with a cell for each row and column: `cell(row, column)` gives its element. */
function matrix(caption, corner, data, cell) {
  const rows = data.rows.map((name, row) =>
    make("tr", {}, make("th", { scope: "row" }, ...asMath(name)), ...data.columns.map((_, column) => cell(row, column))),
  );
  return table(caption, [corner, ...data.columns], rows);
}

function lacking(data, row, column) {
  return data.lacks.some(([out, axis]) => out === row && axis === column);
}

function mixingTable(data) {
  const cell = (row, column) => {
    const mark = data.marks[row][column];
    const lacks = lacking(data, row, column);
    const title = `${data.words[mark]}${lacks ? ": the wish is more" : ""}`;
    return make("td", { class: `syno-mark-${mark}${lacks ? " syno-lacks" : ""}` }, make("abbr", { title }, `${mark}${lacks ? "!" : ""}`));
  };
  const words = Object.entries(data.words).map(([mark, word]) => `${mark} ${word}`).join(", ");
  const unsure = data.settled ? "" : " Two generic sizes gave different matrices; this is the larger one's.";
  const verdict = data.verdict ? [make("p", {}, `It ${data.verdict}.${data.lacks.length ? " Marked by !: where it would have to be more." : ""}`)] : [];
  return [
    ...verdict,
    matrix("Which output axis (row) is mixed with which input axis (column)", "out \\ in", data, cell),
    make("p", { class: "syno-quiet" }, `${words}. After alphaNAS, section 3.1.${unsure}`),
  ];
}

/**
 * What is wanted beside what is there, in tables. An entry that may be changed is a button; its choices come below the
 * tables. `told.aim(name)` carries the chosen one, and `told.live()` says whether anybody listens.
 */
class AimTables {
  constructor(told) {
    this.told = told;
    this.element = make("div", { class: "syno-aims" });
    this.open = ""; // the entry whose choices are shown
  }

  draw(aims) {
    const had = document.activeElement?.dataset?.aim ?? "";
    const hadInside = this.element.contains(document.activeElement);
    this.aims = aims ?? [];
    this.element.replaceChildren(...this.aims.map((data, number) => this.pair(data, number)));
    this.element.hidden = !this.aims.length;
    this.drawChoices();
    if (hadInside) this.entry(had || this.left)?.focus();
  }

  entry(name) {
    return this.element.querySelector(`[data-aim="${name}"]`);
  }

  pair(data, number) {
    const looks = (mark) => (mark in data.words ? `syno-mark-${mark}` : "");
    const wanted = (row, column) => {
      const mark = data.wanted[row][column];
      const lacks = lacking(data, row, column);
      const name = `${number}-${row}-${column}`;
      const said = `${data.rows[row]}${data.columns.length > 1 ? `, ${data.columns[column]}` : ""}: ${data.words[mark] ?? mark} wanted${lacks ? ", missing" : ""}; change it`;
      const text = `${mark}${lacks ? "!" : ""}`;
      const look = `${looks(mark)}${lacks ? " syno-lacks" : ""}`;
      if (!this.told.live()) return make("td", { class: look }, make("abbr", { title: `${data.words[mark] ?? mark}${lacks ? ": missing" : ""}` }, text));
      const button = make(
        "button",
        {
          type: "button",
          class: "syno-aim",
          "data-aim": name,
          "aria-label": said,
          title: said,
          "aria-expanded": "false",
          disabled: !data.choices[row][column].length,
          onclick: () => this.toggle(name),
        },
        text,
      );
      return make("td", { class: look }, button);
    };
    const now = (row, column) => {
      const mark = data.now.marks[row][column];
      const lacks = lacking(data, row, column) && row < data.wanted.length;
      const title = data.words[mark] ?? mark;
      return make("td", { class: looks(mark) }, make("abbr", { title: `${title}${lacks ? ": more is wanted" : ""}` }, mark));
    };
    const missing = `${data.title}${data.lacks.length ? "; ! marks what is missing" : ""}`;
    const choices = make("div", { class: "syno-aim-choices", "data-of": number });
    return make(
      "div",
      { class: "syno-aim-pair" },
      matrix(missing, data.corner, data, wanted),
      matrix(data.now.title, data.corner, data.now, now),
      choices,
    );
  }

  toggle(name) {
    this.open = this.open === name ? "" : name;
    this.drawChoices();
    if (this.open) this.element.querySelector(".syno-aim-choices button")?.focus();
  }

  /** The choices of the open entry, below its tables. */
  drawChoices() {
    const [number, row, column] = this.open.split("-").map(Number);
    const data = this.open ? this.aims[number] : undefined;
    const choices = data?.choices[row]?.[column] ?? [];
    if (!choices.length) this.open = "";
    for (const button of this.element.querySelectorAll(".syno-aim")) button.setAttribute("aria-expanded", String(button.dataset.aim === this.open));
    for (const place of this.element.querySelectorAll(".syno-aim-choices")) {
      place.replaceChildren(...(this.open && place.dataset.of === String(number) ? this.choices(data, row, column, choices) : []));
    }
  }

  choices(data, row, column, choices) {
    const where = `${data.rows[row]}${data.columns.length > 1 ? `, ${data.columns[column]}` : ""}`;
    const list = choices.map((choice) =>
      make(
        "li",
        {},
        make(
          "button",
          {
            type: "button",
            class: `syno-step${choice.feasible ? "" : " syno-off"}`,
            "data-choice": choice.name,
            disabled: !this.told.live(),
            onclick: () => this.take(choice.name),
          },
          make("span", { class: "syno-text" }, choice.text),
          make("span", { class: "syno-why" }, choice.note),
        ),
      ),
    );
    const close = (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      const entry = this.entry(this.open);
      this.toggle(this.open);
      entry?.focus();
    };
    return [
      make("p", {}, `Want another value of ${where}:`),
      make("ul", { class: "syno-items", "aria-label": `Other values of ${where}`, onkeydown: close }, ...list),
    ];
  }

  /** The focus goes back to the entry once the new tables are there. */
  take(name) {
    this.left = this.open;
    this.open = "";
    this.told.aim(name);
  }
}
