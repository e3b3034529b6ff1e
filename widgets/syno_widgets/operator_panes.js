// The panes of `OperatorView`: each makes elements of the plain data that the kernel computed. Nothing is worked out here.

const grouped = (number) => Number(number).toLocaleString("en");

/** A part of a program, in the colour of its kind if it has one. */
function codePiece(piece) {
  return piece.kind ? make("span", { class: `syno-tint-${piece.kind}` }, piece.text) : piece.text;
}

/** A line of a program; it is never broken. */
function codeLine(attributes = {}) {
  return make("span", { class: "syno-line", ...attributes });
}

function codeBlock(pieces, label) {
  const block = make("pre", { class: "syno-code", tabindex: "0", role: "group", "aria-label": label });
  let line = codeLine();
  const end = () => {
    block.append(line, "\n");
    line = codeLine();
  };
  for (const piece of pieces) {
    for (const [number, text] of piece.text.split("\n").entries()) {
      if (number) end();
      if (text) line.append(codePiece({ ...piece, text }));
    }
  }
  if (line.textContent) end();
  return block;
}

function picture(text, label, words) {
  return frame(label, parsePicture(text) ?? make("p", {}, words));
}

/** Lines of pieces; a piece that belongs to a coordinate can be pointed at, focused and chosen. */
function loopNest(nest, told) {
  const block = make("pre", {
    class: "syno-code syno-loops",
    role: "group",
    "aria-label": `${nest.title}. Arrow keys go from part to part, Enter chooses one.`,
  });
  for (const [number, pieces] of nest.lines.entries()) {
    const line = codeLine({ "data-line": number });
    for (const piece of pieces) {
      if (!piece.ids) line.append(codePiece(piece));
      else
        line.append(
          make("span", { class: "syno-piece", role: "button", tabindex: "-1", "data-ids": piece.ids.join(" ") }, piece.text),
        );
    }
    block.append(line, "\n");
  }
  const pieces = [...block.querySelectorAll(".syno-piece")];
  pieces[0]?.setAttribute("tabindex", "0");
  const idsAt = (target) => {
    const piece = target.closest?.(".syno-piece");
    if (piece) return [piece.dataset.ids.split(" ")[0]];
    const line = target.closest?.(".syno-line");
    return line ? [...line.querySelectorAll(".syno-piece")].map((one) => one.dataset.ids.split(" ")[0]) : [];
  };
  block.addEventListener("pointerover", (event) => told.hover(idsAt(event.target)));
  block.addEventListener("pointerleave", () => told.hover([]));
  block.addEventListener("focusin", (event) => told.hover(idsAt(event.target)));
  block.addEventListener("focusout", () => told.hover([]));
  block.addEventListener("click", (event) => {
    if (event.target.closest(".syno-piece")) told.choose(idsAt(event.target)[0]);
  });
  block.addEventListener("keydown", (event) => {
    if (moveAmong(event, pieces)) return;
    if (event.key === "Enter" || event.key === " ") told.choose(idsAt(event.target)[0] ?? "");
    else if (event.key === "Escape") told.choose("");
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return block;
}

function lightLoops(block, marks, chosen) {
  for (const line of block.querySelectorAll(".syno-line")) {
    let any = false;
    for (const piece of line.querySelectorAll(".syno-piece")) {
      const ids = piece.dataset.ids.split(" ");
      const lit = ids.some((id) => marks.has(id));
      piece.classList.toggle("syno-lit", lit);
      piece.setAttribute("aria-pressed", String(chosen !== "" && ids.includes(chosen)));
      any ||= lit;
    }
    line.classList.toggle("syno-lit", any);
  }
}

/** The loop nest, and nothing around it, is scrolled so that a lit part can be seen. */
function revealPiece(block) {
  const piece = block.querySelector(".syno-piece.syno-lit");
  if (!piece || block.contains(document.activeElement)) return;
  const [frame, place] = [block.getBoundingClientRect(), piece.getBoundingClientRect()];
  if (place.left < frame.left || place.right > frame.right) block.scrollLeft += place.left - frame.left - 40;
  if (place.top < frame.top || place.bottom > frame.bottom) block.scrollTop += place.top - frame.top - 40;
}

function costTable(data, told) {
  const rows = data.rows.map((row) => {
    const share = make("span", { class: "syno-bar-part", "aria-hidden": "true" });
    share.style.width = `${Math.round(100 * row.share)}px`;
    return make(
      "tr",
      {
        tabindex: "0",
        onpointerenter: () => told.hover(row.ids),
        onpointerleave: () => told.hover([]),
        onfocus: () => told.hover(row.ids),
        onblur: () => told.hover([]),
      },
      make("th", { scope: "row" }, row.stage),
      make("td", { class: "syno-does" }, ...asMath(`${row.does}${row.sums ? `; sums over ${row.sums}` : ""}`)),
      make("td", { class: "syno-gives" }, ...asMath(row.out)),
      make("td", { class: "syno-number" }, grouped(row.iterations)),
      make("td", { class: "syno-number" }, grouped(row.flops)),
      make("td", { class: "syno-number" }, share, `${(100 * row.share).toFixed(1)} %`),
      make("td", { class: "syno-number" }, grouped(row.weight_bytes)),
      make("td", { class: "syno-number" }, grouped(row.out_bytes)),
    );
  });
  const { flops, naive_flops, params, memory_bytes } = data.totals;
  const naive = naive_flops === undefined ? "" : ` (${grouped(naive_flops)} as one loop nest)`;
  const words =
    `${grouped(flops)} FLOPs${naive}, ${grouped(params)} parameters, ${grouped(memory_bytes)} bytes of memory in float32.`;
  if (!rows.length) return [make("p", {}, words)];
  const heads = ["stage", "what it does", "gives", "iterations", "FLOPs", "share", "weights, bytes", "result, bytes"];
  const stages = table("Stages, from input to output", heads, rows);
  stages.classList.add("syno-costs");
  return [make("p", {}, words), stages];
}

/** A table of texts and numbers as its pane gives it, with some rows marked as those of the shown sizes. */
function plainTable(data) {
  const marked = new Set(data.marked);
  const cell = (value) => (typeof value === "number" ? grouped(value) : String(value ?? "–"));
  const rows = data.rows.map(([first, ...rest], number) => {
    const isShown = marked.has(number);
    const head = make("th", { scope: "row" }, first, isShown ? make("b", {}, " (shown)") : "");
    const cells = rest.map((value) => make("td", { class: typeof value === "number" ? "syno-number" : undefined }, cell(value)));
    return make("tr", { class: isShown ? "syno-shown" : undefined }, head, ...cells);
  });
  const note = make("p", { class: "syno-quiet" }, data.note);
  return rows.length ? [table(data.title, data.heads, rows), note] : [note];
}

/** A network's lineage: each edit as a line that opens its pictures, those of the last one open; then its blocks. */
function lineagePane(data) {
  const cost = (step) => `${grouped(step.flops)} FLOPs, ${grouped(step.params)} parameters`;
  const steps = data.steps.map((step, number) => {
    const said = [make("span", { class: "syno-edit" }, step.words), " ", make("span", { class: "syno-quiet" }, cost(step))];
    if (!step.pictures.length) return make("li", {}, ...said);
    const shown = step.pictures.map((one) => make("div", { class: "syno-edit-block" }, make("h4", {}, one.title), picture(one.svg, one.title, one.text)));
    const open = number === data.steps.length - 1;
    return make("li", {}, make("details", { open }, make("summary", {}, ...said), make("div", { class: "syno-edit-pair" }, ...shown)));
  });
  return [
    make("p", {}, "The edits from the seed on, each with the costs of the network after it:"),
    make("ol", { class: "syno-lineage", start: "0", "aria-label": "Lineage" }, ...steps),
    ...plainTable({ ...data, marked: [] }),
  ];
}

function kernelPane(data) {
  const ranks = ["space", "outputs", "inputs"];
  const line = (name, texts) =>
    make("tr", {}, make("th", { scope: "row" }, name), ...texts.map((text) => make("td", { class: "syno-number" }, text)));
  const rows = data.rows.map((row) => line(row.name, ranks.map((rank) => row[rank].toFixed(1))));
  rows.push(line("share", ranks.map((rank) => `${(100 * data.shares[rank]).toFixed(0)} %`)));
  const heads = ["effective rank over", "offsets", "output channels", "input channels"];
  return [
    table("Effective ranks of the kernel for random weights", heads, rows),
    make("p", {}, `Score, the least share: ${data.shares.score.toFixed(2)}`),
    picture(data.svg, "Kernels", data.text),
    make(
      "p",
      { class: "syno-quiet" },
      "By how much each input element counts for the output in the middle: over the offsets, the mean of all channels; " +
        "over the channels, the mean of all offsets. The stronger the blue, the more, each map by itself.",
    ),
  ];
}

/** The differences of one neighbour; those of the nearest are open. */
function differences(texts, open) {
  const count = `${texts.length} ${texts.length === 1 ? "difference" : "differences"}`;
  return make(
    "details",
    { open },
    make("summary", {}, count),
    make("ul", { class: "syno-differences" }, ...texts.map((text) => make("li", {}, ...asMath(text)))),
  );
}

function nearTable(data) {
  const rows = data.rows.map((row, number) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, row.name),
      make("td", { class: "syno-number" }, row.distance.toFixed(2)),
      make(
        "td",
        {},
        row.same ? "the same pGraph, up to the names of variables" : "",
        row.differences.length ? differences(row.differences, number < 2) : "",
      ),
    ),
  );
  return [
    table("Similar operators", ["operator", "distance", "what differs (cost)"], rows),
    make(
      "p",
      { class: "syno-quiet" },
      "The distance counts steps: 1 for a step that only one of the two has, up to 1 for two steps of one primitive whose " +
        "sizes, operands or uses differ. It does not depend on names or on the order of independent steps.",
    ),
  ];
}

const PNG = /^[A-Za-z0-9+/=]+$/;

function pngAddress(one) {
  return PNG.test(one.png) ? `data:image/png;base64,${one.png}` : "";
}

function photoRow(title, pictures) {
  return make(
    "figure",
    { class: "syno-photos" },
    make("figcaption", {}, title),
    ...pictures.map((one) =>
      make("img", { src: pngAddress(one), alt: one.words, title: one.words, width: one.width, height: one.height }),
    ),
  );
}

function photoPane(data) {
  return [
    make(
      "div",
      { class: "syno-photo-rows" },
      photoRow("the photograph", [data.input]),
      ...data.outputs.map((out) => photoRow(out.title, out.pictures)),
    ),
    make("p", {}, data.how),
    make("p", { class: "syno-quiet" }, `Photograph: ${data.credit}.`),
  ];
}

function equationPane(data) {
  return data.forms.flatMap((form) => [make("h4", {}, form.title), picture(form.svg, form.title, form.text)]);
}

/** What each pane shows of its data; `told` is as in `GraphView`. */
const DRAW = {
  lineage: lineagePane,
  loops: (data, told, view) => [loopNest(data.nests[view.model.get("staged") ? 1 : 0], told)],
  source: (data) => [codeBlock(data.pieces, "PyTorch source")],
  tir: (data) => [codeBlock(data.pieces, "TVM TIR")],
  equation: equationPane,
  cost: costTable,
  solutions: plainTable,
  reach: (data) => [picture(data.svg, "Map of the receptive field", data.text), codeBlock([data], "Receptive field, axis by axis")],
  mixing: mixingTable,
  kernel: kernelPane,
  image: photoPane,
  near: nearTable,
};
