"""Draw the facts of a Pareto figure: for a notebook, as one page that needs no network, as SVG and PNG.

Labels may come from files. In the page they are text and never markup; pictures are images, in which nothing runs;
and the page's own policy allows its own scripts alone and no request.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import os
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from syno_lab.errors import FormatError, SynoError

from .pareto import ParetoFacts, Point, placed

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from matplotlib.axes import Axes

GREY = "#767676"
"""Text and lines that can be read on white and on black (contrast 4.5 and 4.6)."""


class Group(NamedTuple):
    """Points that are drawn alike; the marks differ in shape, not in colour alone."""

    name: str
    points: tuple[Point, ...]
    colour: str
    plotly_mark: str
    matplotlib_mark: str
    size: int


def groups(facts: ParetoFacts) -> list[Group]:
    """Split the points into the baseline, those on the front, and the others; empty groups are left out."""
    front = set(facts.front)
    kinds: dict[str, list[Point]] = {"operators": [], "on the front": [], "baseline": []}
    for index, point in enumerate(facts.points):
        kinds["baseline" if point.baseline else "on the front" if index in front else "operators"].append(point)
    looks = {
        "operators": ("#8a8a8a", "circle", "o", 9),
        "on the front": ("#2a7fd4", "diamond", "D", 11),
        "baseline": ("#d55e00", "star", "*", 15),
    }
    return [Group(name, tuple(points), *looks[name]) for name, points in kinds.items() if points]


def summary(facts: ParetoFacts) -> str:
    """Say in one sentence what the figure shows, for those who cannot see it."""
    facts = clean(facts)
    if not facts.points:
        return f"{facts.title}: no operator has both values yet."
    names = ", ".join(facts.points[index].label for index in facts.front)
    return (
        f"{facts.title}: {len(facts.points)} operators by {facts.x.text} and {facts.y.text}; "
        f"on the Pareto front: {names}; hypervolume {facts.hypervolume:.4g} "
        f"up to ({facts.reference[0]:.4g}, {facts.reference[1]:.4g})."
    )


def clean(facts: ParetoFacts) -> ParetoFacts:
    """Return the facts with texts that every format can hold; the points keep their order."""

    def cleaned(point: Point) -> Point:
        return point._replace(label=_clean_text(point.label), fingerprint=_clean_text(point.fingerprint))

    return facts._replace(
        title=_clean_text(facts.title),
        points=tuple(map(cleaned, facts.points)),
        unplaced=tuple(map(cleaned, facts.unplaced)),
        baseline=cleaned(facts.baseline) if facts.baseline else None,
    )


def pareto_figure(facts: ParetoFacts) -> go.Figure:
    """Return the figure for plotly, on a transparent ground. `customdata[0]` of every point is its fingerprint."""
    import plotly.graph_objects as go

    facts = clean(facts)
    figure = go.Figure()
    if facts.front:
        line = placed(facts.points[index] for index in facts.front)
        figure.add_scatter(
            x=[x for x, _ in line],
            y=[y for _, y in line],
            mode="lines",
            line={"shape": "vh" if facts.x.maximise else "hv", "color": "#2a7fd4", "width": 1.5},
            name="Pareto front",
            hoverinfo="skip",
        )
    for group in groups(facts):
        figure.add_scatter(
            x=[point.x for point in group.points],
            y=[point.y for point in group.points],
            mode="markers",
            marker={"color": group.colour, "symbol": group.plotly_mark, "size": group.size},
            name=group.name,
            customdata=[
                [
                    point.fingerprint,
                    _plotly_text(point.label),
                    _plotly_text(point.fingerprint),
                    point.flops,
                    point.params,
                ]
                for point in group.points
            ],
            hovertemplate=(
                f"<b>%{{customdata[1]}}</b><br>{facts.x.title} %{{x:.4g}} {facts.x.unit}"
                f"<br>{facts.y.title} %{{y:.4g}} {facts.y.unit}"
                "<br>FLOPs %{customdata[3]:,}<br>parameters %{customdata[4]:,}<br>%{customdata[2]}<extra></extra>"
            ),
        )
    if not facts.points:
        figure.add_annotation(text="no operator has both values yet", showarrow=False, xref="paper", yref="paper")
    lines = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "linecolor": GREY, "ticks": "outside"}
    figure.update_layout(
        title={"text": _plotly_text(facts.title), "subtitle": {"text": _subtitle(facts)}},
        xaxis={"title": {"text": facts.x.text}, **lines},
        yaxis={"title": {"text": facts.y.text}, **lines},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": GREY, "size": 13},
        hovermode="closest",
        clickmode="event",
        # plotly 7 offers by default to upload the chart; nothing of ours leaves the machine
        modebar={"remove": ["sendChartToCloud"], "bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": "#2a7fd4"},
        legend={"orientation": "h", "y": -0.22},
        margin={"l": 70, "r": 20, "t": 70, "b": 60},
    )
    return figure


def draw(facts: ParetoFacts, path: str | Path) -> Path:
    """Write the figure as SVG or PNG, as the suffix says, on a white ground; whole or not at all.

    Raises:
        FormatError: the suffix is another.
        SynoError: the file cannot be written.

    """
    place = Path(path)
    kind = place.suffix.lower().lstrip(".")
    if kind not in ("svg", "png"):
        raise FormatError(f"{place}: expected a name that ends in .svg or .png")
    _write(place, _image(facts, kind))
    return place


def svg_text(facts: ParetoFacts) -> str:
    """Return what `draw` writes as SVG; its texts are texts, its description is in `aria-label`."""
    return _image(facts, "svg").decode()


def write_html(facts: ParetoFacts, path: str | Path, pictures: Mapping[str, str] | None = None) -> Path:
    """Write one page with the figure, the table and the pictures; it makes no request and is whole or not there.

    `pictures` maps fingerprints to SVG text. A click on a point, or on an operator's name in the table, shows its
    picture; the page's address then ends in the fingerprint, and leads there again.

    Raises:
        SynoError: the file cannot be written.

    """
    from plotly.offline import get_plotlyjs

    facts = clean(facts)
    shown = {_clean_text(key): _data_uri(svg) for key, svg in (pictures or {}).items()}
    data = {
        "figure": json.loads(pareto_figure(facts).to_json()),
        "pictures": shown,
        "labels": {point.fingerprint: point.label for point in (*facts.points, *facts.unplaced)},
    }
    library = get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")  # as the browser reads it, and hashes it
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
        f"script-src {_hash(library)} {_hash(_SCRIPT)}"
    )
    page = _PAGE.substitute(
        policy=html.escape(policy, quote=True),
        title=html.escape(facts.title),
        summary=html.escape(summary(facts)),
        still=_data_uri(svg_text(facts)),
        table=_table(facts, shown),
        data=json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c"),
        library=library,
        script=_SCRIPT,
    )
    place = Path(path)
    _write(place, page.encode())
    return place


def _image(facts: ParetoFacts, kind: str) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    facts = clean(facts)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "syno-lab"}):  # the same facts, the same file
        figure = Figure(figsize=(7.5, 4.8), facecolor="white", layout="constrained")
        _plot(figure.subplots(), facts)
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(buffer, format=kind, dpi=150, facecolor="white", metadata=metadata)
    if kind != "svg":
        return buffer.getvalue()
    spoken = f'<svg role="img" aria-label="{html.escape(summary(facts), quote=True)}" '
    return buffer.getvalue().decode().replace("<svg ", spoken, 1).encode()


def _plot(axes: Axes, facts: ParetoFacts) -> None:
    axes.set_title(f"{facts.title}\n{_subtitle(facts)}", parse_math=False, fontsize=11)
    axes.set_xlabel(facts.x.text)
    axes.set_ylabel(facts.y.text)
    axes.grid(visible=True, color="#e0e0e0", linewidth=0.8)
    axes.set_axisbelow(True)
    if not facts.points:
        note = "no operator has both values yet"
        axes.text(0.5, 0.5, note, transform=axes.transAxes, ha="center", color=GREY)
        return
    line = placed(facts.points[index] for index in facts.front)
    where: Literal["pre", "post"] = "pre" if facts.x.maximise else "post"
    axes.step([x for x, _ in line], [y for _, y in line], where=where, color="#2a7fd4", linewidth=1.2)
    seen = [x for x, _ in placed(facts.points)]
    turn = min(seen) + 0.7 * (max(seen) - min(seen))  # beyond it, a name has more room on the left
    for group in groups(facts):
        pairs = placed(group.points)
        axes.scatter(
            [x for x, _ in pairs],
            [y for _, y in pairs],
            s=group.size**2 / 2,
            c=group.colour,
            marker=group.matplotlib_mark,
            label=group.name,
            zorder=3,
        )
        if group.name == "operators":
            continue
        for point, pair in zip(group.points, pairs, strict=True):
            text = point.label if len(point.label) <= 28 else point.label[:27] + "…"
            side, shift = ("right", -7) if pair[0] > turn else ("left", 7)
            axes.annotate(text, pair, (shift, -11), textcoords="offset points", ha=side, fontsize=8, parse_math=False)
    axes.margins(x=0.12, y=0.12)
    axes.legend(loc="best", fontsize=8, framealpha=0.8)


def _subtitle(facts: ParetoFacts) -> str:
    if not facts.points:
        return ""
    corner = f"({facts.reference[0]:.4g}, {facts.reference[1]:.4g})"
    missing = f"; {len(facts.unplaced)} not measured on both axes" if facts.unplaced else ""
    return f"hypervolume {facts.hypervolume:.4g} up to {corner}{missing}"


def _clean_text(text: str) -> str:
    """Replace what neither XML nor UTF-8 can hold: control characters and lone surrogates."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)


def _plotly_text(text: str) -> str:
    """Escape what plotly would read as its own small markup."""
    return html.escape(text, quote=False)


def _data_uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode(errors="replace")).decode()


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _table(facts: ParetoFacts, pictures: Mapping[str, str]) -> str:
    """Return the rows of the table: all operators, also those that are not in the figure."""
    columns: list[tuple[str, Callable[[Point], Any]]] = [
        (facts.y.text, lambda point: point.y),
        (facts.x.text, lambda point: point.x),
        ("FLOPs", lambda point: point.flops),
        ("parameters", lambda point: point.params),
    ]
    columns = columns[:2] + [column for column in columns[2:] if column[0] not in (facts.x.text, facts.y.text)]
    titles = ["operator", *(title for title, _ in columns), "on the front", "fingerprint"]
    heads = "".join(f'<th scope="col"><button type="button">{html.escape(t)}</button></th>' for t in titles)
    front = {facts.points[index] for index in facts.front}
    rows = []
    for point in (*facts.points, *facts.unplaced):
        name, mark = html.escape(point.label), html.escape(point.fingerprint, quote=True)
        if point.fingerprint in pictures:
            name = f'<button type="button" class="show">{name}</button>'
        if point.baseline:
            name += " (baseline)"
        cells = [f'<th scope="row" data-value="{html.escape(point.label, quote=True)}">{name}</th>']
        for _, value in columns:
            number = value(point)
            if number is None:
                cells.append('<td data-value="">not measured</td>')
            else:
                text = f"{number:,}" if isinstance(number, int) else f"{number:.4g}"
                cells.append(f'<td data-value="{number!r}">{text}</td>')
        member = "yes" if point in front else "no"
        cells.append(f'<td data-value="{member}">{member}</td><td data-value="{mark}"><code>{mark}</code></td>')
        rows.append(f'<tr data-fingerprint="{mark}">{"".join(cells)}</tr>')
    return f"<thead><tr>{heads}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>"


def _write(place: Path, content: bytes) -> None:
    """Write beside the place and move there, so that a reader sees the old file or the new one."""
    half = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            half.write_bytes(content)
            half.replace(place)
        finally:
            half.unlink(missing_ok=True)
    except OSError as error:
        raise SynoError(f"{place} cannot be written: {error.strerror or error}") from error


_SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const plot = document.getElementById("plot");
const picture = document.getElementById("picture");
const rows = [...document.querySelectorAll("tbody tr")];

function show(fingerprint) {
  const label = data.labels[fingerprint];
  if (label === undefined) return;
  for (const row of rows) row.classList.toggle("chosen", row.dataset.fingerprint === fingerprint);
  const caption = document.createElement("figcaption");
  caption.textContent = label + " \\u00b7 " + fingerprint;
  const source = Object.hasOwn(data.pictures, fingerprint) ? data.pictures[fingerprint] : null;
  if (source === null) {
    caption.textContent += " \\u00b7 no picture";
    picture.replaceChildren(caption);
  } else {
    const image = document.createElement("img");
    image.alt = "pGraph of " + label;
    image.src = source;
    picture.replaceChildren(caption, image);
  }
  history.replaceState(null, "", "#" + encodeURIComponent(fingerprint));
}

function sort(button, index) {
  const head = button.parentElement;
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (row) => row.children[index].dataset.value;
  const order = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    const numbers = Number(x) - Number(y);
    return (Number.isNaN(numbers) ? x.localeCompare(y) : numbers) * (down ? -1 : 1);
  };
  const body = document.querySelector("tbody");
  for (const row of rows.slice().sort(order)) body.append(row);
}

document.querySelectorAll("thead button").forEach((button, index) => {
  button.addEventListener("click", () => sort(button, index));
});
for (const row of rows) {
  row.querySelector("button.show")?.addEventListener("click", () => show(row.dataset.fingerprint));
}
const config = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "" };
Plotly.newPlot(plot, data.figure.data, data.figure.layout, config).then(() => {
  plot.on("plotly_click", (event) => show(event.points[0].customdata[0]));
  document.documentElement.dataset.ready = "true";
});
if (location.hash) {
  try { show(decodeURIComponent(location.hash.slice(1))); } catch { /* an address that is not ours */ }
}
"""

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; }
#plot { height: 30rem; }
#picture { margin: 1rem 0; }
img { background: #fff; max-width: 100%; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #8886; padding: .3rem .7rem; text-align: left; }
td { font-variant-numeric: tabular-nums; }
tr.chosen { background: #2a7fd433; }
button { background: none; border: 0; color: inherit; cursor: pointer; font: inherit; padding: 0; text-align: left; }
button.show { text-decoration: underline; }
th[aria-sort=ascending] button::after { content: " \\25b2"; }
th[aria-sort=descending] button::after { content: " \\25bc"; }
</style>
</head>
<body>
<h1>$title</h1>
<p>$summary</p>
<div id="plot" role="img" aria-label="$title"></div>
<noscript><img src="$still" alt=""></noscript>
<figure id="picture" aria-live="polite">
<figcaption>Choose a point, or an operator's name below, to see its pGraph.</figcaption></figure>
<table>
$table
</table>
<script type="application/json" id="data">$data</script>
<script>$library</script>
<script>$script</script>
</body>
</html>
""")
