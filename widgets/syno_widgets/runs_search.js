// The search of `RunsView`: its plan, its funnel, its finals, and why an operator was chosen. It stands behind runs_chart.js
// and loads nothing.

/** A table as `shown_table` gives it. */
function factTable(given) {
  const kind = (at) => (given.numbers[at] ? "syno-number" : undefined);
  const heads = given.heads.map((text, at) => make("th", { scope: "col", class: kind(at) }, text));
  const rows = given.rows.map((cells) =>
    make(
      "tr",
      {},
      ...cells.map((text, at) => make(at === 0 ? "th" : "td", { class: kind(at), scope: at === 0 ? "row" : null }, text)),
    ),
  );
  const parts = [make("caption", {}, given.title), make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)];
  return make("table", { class: "syno-table" }, ...parts);
}

/** A table within a frame that scrolls by keyboard too. */
function framed(table, title) {
  return make("div", { class: "syno-frame", tabindex: "0", role: "group", "aria-label": title }, table);
}

/** A picture with its description; nothing where it is none. */
function figureOf(svg, text) {
  const drawn = parsePicture(svg);
  if (!drawn) return null;
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", text);
  return drawn;
}

class SearchPanel {
  /** `why(key)` asks why a trial was chosen. */
  constructor(why) {
    this.why = why;
    this.headline = make("p", { class: "syno-quiet" });
    this.funnel = make("figure", { class: "syno-funnel" });
    this.tables = make("div");
    this.finalists = make("div", { class: "syno-bar", role: "group", "aria-label": "Why each finalist was chosen" });
    this.answer = make("section", { class: "syno-why", hidden: true, "aria-label": "Why this one" });
    this.root = make("div", {}, this.headline, this.funnel, this.tables, this.finalists, this.answer);
    this.last = {};
  }

  /** `progress` as the trait has it; parts that have not changed stay, so that the focus does. */
  draw(progress) {
    const none = "No search in rungs and no untrained search has begun here.";
    write(this.headline, progress.headline ?? none);
    this.renew("funnel", [progress.svg, progress.text], () => {
      const drawn = progress.svg ? figureOf(progress.svg, progress.text) : null;
      this.funnel.replaceChildren(...(drawn ? [drawn] : []));
    });
    this.renew("tables", progress.tables ?? [], () =>
      this.tables.replaceChildren(...(progress.tables ?? []).map((one) => framed(factTable(one), one.title))),
    );
    this.renew("finalists", progress.finalists ?? [], () => {
      const buttons = (progress.finalists ?? []).map(({ key, label }) =>
        make("button", { type: "button", "data-key": key, onclick: () => this.why(key) }, `Why ${label}?`),
      );
      this.finalists.replaceChildren(...buttons);
      this.finalists.hidden = buttons.length === 0;
    });
  }

  renew(name, given, draw) {
    const now = JSON.stringify(given);
    if (this.last[name] === now) return;
    this.last[name] = now;
    draw();
  }

  /** Why a trial was chosen; the focus goes to its title, and returns to the button at the end. */
  explain(why) {
    this.answer.hidden = !why?.title;
    if (this.answer.hidden) return;
    const title = make("h4", { tabindex: "-1" }, why.title);
    const close = make("button", { type: "button", onclick: () => this.close(why.key) }, "Close");
    const [kernel, operator] = [false, true].map((paper) =>
      why.pictures
        .filter((one) => one.paper === paper)
        .map((one) => {
          const frame = make("figure", { class: paper ? "syno-on-paper" : undefined, tabindex: "0" });
          frame.append(figureOf(one.svg, one.text) ?? "", make("figcaption", {}, one.text));
          return frame;
        }),
    );
    const tables = why.tables.map((one) => framed(factTable(one), one.title));
    this.answer.replaceChildren(title, close, ...kernel, ...tables, ...operator);
    title.focus();
  }

  close(key) {
    this.answer.hidden = true;
    [...this.finalists.children].find((button) => button.dataset.key === key)?.focus();
  }
}
