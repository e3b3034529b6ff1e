// The mixing matrix of an operator against a wish, and tables, for the operator view and the stepper.

/** What can be wider than its place is scrolled, by keyboard too. */
function frame(label, ...children) {
  return make("div", { class: "syno-frame", tabindex: "0", role: "group", "aria-label": label }, ...children);
}

function table(caption, heads, rows) {
  const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)));
  const body = [make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...rows)];
  return frame(caption, make("table", { class: "syno-table" }, ...body));
}

function mixingTable(data) {
  const rows = data.marks.map((marks, number) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, data.rows[number]),
      ...marks.map((mark, axis) => {
        const lacks = data.lacks.some(([row, column]) => row === number && column === axis);
        const title = `${data.words[mark]}${lacks ? ": the wish is more" : ""}`;
        return make("td", { class: `syno-mark-${mark}${lacks ? " syno-lacks" : ""}` }, make("abbr", { title }, `${mark}${lacks ? "!" : ""}`));
      }),
    ),
  );
  const words = Object.entries(data.words).map(([mark, word]) => `${mark} ${word}`).join(", ");
  const unsure = data.settled ? "" : " Two generic sizes gave different matrices; this is the larger one's.";
  const verdict = data.verdict ? [make("p", {}, `It ${data.verdict}.${data.lacks.length ? " Marked by !: where it would have to be more." : ""}`)] : [];
  return [
    ...verdict,
    table("Which output axis (row) is mixed with which input axis (column)", ["out \\ in", ...data.columns], rows),
    make("p", { class: "syno-quiet" }, `${words}. After alphaNAS, section 3.1.${unsure}`),
  ];
}
