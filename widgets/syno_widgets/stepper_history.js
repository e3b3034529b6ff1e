// The history of `Stepper`: the tree of all its places as a list. Only so many of them are in the page at once, around the
// place that is shown; the buttons at both ends, Home and End lead to all others.

const SHOWN_PLACES = 60;

class HistoryList {
  /** `told.go(place)` is called with the place that the reader chooses; `told.has(place)`: whether it can be shown. */
  constructor(model, told) {
    this.model = model;
    this.told = told;
    this.element = make("ol", {
      class: "syno-history",
      start: "0",
      tabindex: "-1",
      onkeydown: (event) => this.onKey(event),
    });
  }

  /** All places; during a quiz only those on the way to the shown one, for the others are its answers. */
  rows() {
    const rows = this.model.get("tree");
    if (!("score" in this.model.get("quiz"))) return rows;
    const line = this.model.get("line");
    const before = new Set(line.slice(0, line.indexOf(this.model.get("place")) + 1));
    return rows.filter((row) => before.has(row.place));
  }

  /** The rows around the place that is shown. */
  draw() {
    const had = this.element.contains(document.activeElement);
    const place = this.model.get("place");
    this.show(this.rows().findIndex((row) => row.place === place) - SHOWN_PLACES / 2);
    if (had) this.current?.focus();
    // In the next frame, which lays the rows out anyhow: to ask where they are before would do it twice.
    requestAnimationFrame(() => {
      if (this.current) this.element.scrollTop = this.current.offsetTop - 80;
    });
  }

  /** The rows from one on, as many as there may be. */
  show(from) {
    const rows = this.rows();
    const line = this.model.get("line");
    const place = this.model.get("place");
    const first = Math.max(0, Math.min(from, rows.length - SHOWN_PLACES));
    const end = Math.min(rows.length, first + SHOWN_PLACES);
    const on = new Set(line);
    const ahead = new Set(line.slice(line.indexOf(place) + 1));
    this.current = null;
    const items = [];
    for (let at = first; at < end; at += 1) {
      const item = this.row(rows[at], rows[at].place === place, ahead);
      item.classList.toggle("syno-off-line", !on.has(rows[at].place));
      item.setAttribute("aria-posinset", at + 1);
      item.setAttribute("aria-setsize", rows.length);
      items.push(item);
    }
    if (first) items.unshift(this.more(`${first} before these`, first - SHOWN_PLACES / 2, first - 1));
    if (end < rows.length) items.push(this.more(`${rows.length - end} behind these`, first + SHOWN_PLACES / 2, end));
    this.element.replaceChildren(...items);
    (this.current ?? this.element.querySelector(".syno-place"))?.setAttribute("tabindex", "0");
  }

  row(row, isCurrent, ahead) {
    const labels = this.model.get("labels");
    const far = row.complete ? "complete" : row.distance === 0 ? "not complete" : farText(row.distance, labels);
    const button = make(
      "button",
      {
        type: "button",
        class: "syno-place",
        "data-place": row.place,
        "aria-current": isCurrent ? "step" : undefined,
        tabindex: "-1",
        disabled: !this.told.has(row.place),
        onclick: () => this.told.go(row.place),
      },
      row.branch ? "branch: " : "",
      ...asMath(row.text),
      make("span", { class: "syno-quiet" }, ` (${far})`),
      ahead.has(row.place) ? make("span", {}, this.model.get("undone").includes(row.place) ? " (undone)" : " (ahead)") : "",
      this.told.has(row.place) ? "" : make("span", {}, " (not in this page)"),
    );
    const said = row.comment ? make("p", { class: "syno-comment" }, row.comment) : "";
    if (isCurrent) this.current = button;
    const item = make("li", { value: row.place, class: ahead.has(row.place) ? "syno-ahead" : undefined }, button, said);
    item.style.marginLeft = `${14 * Math.min(row.level, 12)}px`;
    return item;
  }

  /** A button that shows other rows, and goes to the nearest of those that were not there. */
  more(text, from, nearest) {
    const onclick = () => {
      this.show(from);
      this.focus(this.rows()[nearest].place);
    };
    return make("li", { class: "syno-more" }, make("button", { type: "button", class: "syno-places", tabindex: "-1", onclick }, text));
  }

  focus(place) {
    const button = this.element.querySelector(`.syno-place[data-place="${place}"]`);
    button.scrollIntoView({ block: "nearest" });
    if (button.disabled) {
      this.element.focus(); // a place that is not in the page; the list goes on taking keys
      return;
    }
    for (const other of this.element.querySelectorAll("button")) other.setAttribute("tabindex", other === button ? "0" : "-1");
    button.focus();
  }

  onKey(event) {
    const rows = this.rows();
    const end = { Home: 0, End: rows.length - 1 }[event.key];
    if (end === undefined) {
      moveAmong(event, [...this.element.querySelectorAll("button:enabled")]);
      return;
    }
    event.preventDefault();
    this.show(end);
    this.focus(rows[end].place);
  }
}
