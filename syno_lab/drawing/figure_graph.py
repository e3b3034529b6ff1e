"""Graphs for papers: the layout program places nodes and edges, and matplotlib or TikZ draws them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from syno_lab.drawing.figure import MARGIN, Figure, Page, renderer_of
from syno_lab.drawing.figure_tex import FIT, tex_text
from syno_lab.drawing.formula import for_matplotlib
from syno_lab.drawing.hull import BAND, ROUND, bands
from syno_lab.drawing.render import render
from syno_lab.drawing.style import HULL, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Plot

Point = tuple[float, float]
_USUAL_POINTS = 12.0  # The size of the letters in the lab's DOT texts.
_ROOM = 2.0  # In points: a text alone in its line may exceed the layout program's space by this width.
_SPACE = 0.28  # The width of a space character, in font sizes.
#: Distances for the screen (as in :mod:`.drawing.style`) and for paper, where space is scarce.
_TIGHTER = (
    ('margin="0.14,0.06"', 'margin="0.08,0.03"'),
    ('margin="0.2,0.04"', 'margin="0.06,0.02"'),
    ("nodesep=0.2, ranksep=0.28", "nodesep=0.12, ranksep=0.22"),
)
_NARROWER = 0.6  # the scale of the CONTRACTIONs' hulls; nodes are closer on paper
_MOST_POINTS = 300.0
#: Letters are set in this size and then scaled, because TeX has no mathematics below 5 points. Below this size, indices
#: would be larger than the letters.
_TEX_POINTS = 10.0


class Outline(NamedTuple):
    """A line or an area: its corners, or its first point and then three points for each cubic curve."""

    points: tuple[Point, ...]
    is_curve: bool
    is_closed: bool
    fill: str | None
    line: str | None
    width: float
    dash: str


class Words(NamedTuple):
    """A text in a picture: the middle of its baseline, the width of its space, and the size of its letters."""

    x: float
    y: float
    width: float
    text: str
    points: float
    is_bold: bool
    is_alone: bool

    @property
    def room(self) -> float:
        """The largest width of the text, in points."""
        return self.width + (_ROOM if self.is_alone else 0.0)


class Part(NamedTuple):
    """A node or an edge: its name, its outlines and texts; ``box`` is the middle, width and height of a node."""

    name: str
    box: tuple[float, float, float, float] | None
    outlines: tuple[Outline, ...]
    words: tuple[Words, ...]


class GraphFigure(Figure):
    """The figure of a graph in DOT.

    Args:
        source: the DOT text.
        description: the graph in words.
        maths: a map from a text to the LaTeX that replaces the text.
        said: a map from a node's name to a description, for comments in the TikZ.
        lines: LaTeX of a node's text lines by the node's name, used before ``maths``; None: a line stays text.
    """

    def __init__(
        self,
        source: str,
        description: str,
        maths: Mapping[str, str] | None = None,
        said: Mapping[str, str] | None = None,
        lines: Mapping[str, Mapping[str, str | None]] | None = None,
    ) -> None:
        self.description = description
        for wide, tight in _TIGHTER:  # no title changes: its quotation marks are escaped
            source = source.replace(wide, tight)
        self._source = source
        self._maths = dict(maths or {})
        self._titles = dict(said or {})
        self._lines = dict(lines or {})

    def _plot(self, page: Page) -> Plot:
        width, height, parts = laid_out(self._source)
        scale = _scale(page, width)
        plot = page.sheet(height * scale + 2 * MARGIN)
        axes = plot.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        # The axes' unit is the layout's point; the graph is in their middle.
        beside, around = (page.width * 72 / scale - width) / 2, MARGIN / scale
        axes.set_xlim(-beside, width + beside)
        axes.set_ylim(-around, height + around)
        for part in parts:
            for outline in part.outlines:
                axes.add_patch(_patch(outline, scale))
        self._write(plot, axes, parts, scale)
        return plot

    def _write(self, plot: Plot, axes: Axes, parts: list[Part], scale: float) -> None:
        """Write all texts in the largest letters at which each text fits into its space."""
        drawn = []
        renderer = renderer_of(plot)
        too_wide = 1.0
        for name, words in ((part.name, item) for part in parts for item in part.words):
            text, is_math = self._label(name, words.text, for_paper=True)
            text_artist = axes.text(
                words.x,
                words.y,
                text,
                ha="center",
                va="baseline",
                fontsize=words.points * scale,
                fontweight="bold" if words.is_bold else "normal",
                color=INK,
                parse_math=is_math,
            )
            wide = text_artist.get_window_extent(renderer).width / plot.dpi * 72
            too_wide = max(too_wide, wide / (words.room * scale))
            drawn.append(text_artist)
        for text_artist in drawn:
            text_artist.set_fontsize(float(text_artist.get_fontsize()) / too_wide)

    def _label(self, name: str, text: str, *, for_paper: bool) -> tuple[str, bool]:
        """Return a text of the node or edge ``name`` with its mathematics, and whether the text has mathematics.

        For TeX, text outside of mathematics is escaped.
        """
        pieces = []
        is_math = False
        lines = self._lines.get(name, {})
        before, sign, after = text.partition(" = ")
        for piece in (before, sign, after):
            lead = ": " if piece.startswith(": ") else ""
            key = piece.removeprefix(": ")
            latex = lines.get(key, self._maths.get(key))
            if latex is None:
                pieces.append(piece if for_paper else tex_text(piece))
            else:
                is_math = True
                pieces.append(f"{lead}${for_matplotlib(latex) if for_paper else latex}$")
        if for_paper and not is_math:
            return text, False
        return "".join(pieces), is_math

    def _tex(self, page: Page) -> str:
        width, _, parts = laid_out(self._source)
        scale = _scale(page, width)
        family = r"\rmfamily" if page.font == "serif" else r"\sffamily"
        colours = sorted({c for part in parts for line in part.outlines for c in (line.fill, line.line) if c} | {INK})
        lines = [
            "% needs \\usepackage{tikz} and \\usepackage{amssymb}; each node can be pointed at by its name",
            r"\begingroup%",
            *(rf"\definecolor{{syno-{colour[1:7]}}}{{HTML}}{{{colour[1:7].upper()}}}%" for colour in colours),
            FIT,
            rf"\def\synosize{{\fontsize{{{_TEX_POINTS:g}bp}}{{{1.2 * _TEX_POINTS:g}bp}}\selectfont}}%",
            rf"\begin{{tikzpicture}}[x={scale:.5f}bp, y={scale:.5f}bp, line cap=round, line join=round]",
        ]
        for part in parts:
            title = self._titles.get(part.name)
            if title:
                lines.append(f"  % {part.name}: {' '.join(title.split())}")
            lines += [f"  {_tikz(outline, scale)}" for outline in part.outlines]
            for words in part.words:
                size = words.points * scale
                look = family + (r"\bfseries" if words.is_bold else "")
                label, _ = self._label(part.name, words.text, for_paper=False)
                lines.append(
                    rf"  \node[anchor=base, inner sep=0pt, text=syno-{INK[1:7]}] at ({words.x:.2f}, {words.y:.2f}) "
                    rf"{{\synofit{{{words.room * scale:.3f}bp}}{{"
                    rf"\scalebox{{{size / _TEX_POINTS:.4f}}}{{{look}\synosize {label}}}}}}};"
                )
            if part.box is not None:
                x, y, wide, high = part.box
                lines.append(
                    rf"  \node[inner sep=0pt, outer sep=0pt, minimum width={wide * scale:.3f}bp, "
                    rf"minimum height={high * scale:.3f}bp] ({part.name}) at ({x:.2f}, {y:.2f}) {{}};"
                )
        return "\n".join([*lines, r"\end{tikzpicture}%", r"\endgroup%"]) + "\n"


def _scale(page: Page, width: float) -> float:
    """Return the scale of the layout: letters have the requested size, or less if the graph is wider than the page."""
    return min(page.points / _USUAL_POINTS, page.room / width)


# -- reading the layout ------------------------------------------------------------------------------------------------


def laid_out(source: str) -> tuple[float, float, list[Part]]:
    """Return the width and height of a graph in points, its edges, and then its nodes.

    Raises SynoError as :func:`syno_lab.drawing.render.render`.
    """
    graph: dict[str, Any] = msgspec.json.decode(render(source, "json"))
    left, bottom, right, top = map(float, graph["bb"].split(","))
    parts = [Part("", None, (), tuple(_read(graph, "_ldraw_")[1]))]
    behind: list[Outline] = []
    lines = bands(str(edge.get("id")) for edge in graph.get("edges", ()))
    joined = {
        part for weight, own in lines.items() for part in (weight, *own, *(name.partition("--")[2] for name in own))
    }
    for item in (*graph.get("edges", ()), *(o for o in graph.get("objects", ()) if "pos" in o)):
        outlines: list[Outline] = []
        words: list[Words] = []
        for name in ("_draw_", "_tdraw_", "_hdraw_", "_ldraw_"):
            more, texts = _read(item, name)
            outlines += more
            words += texts
        if outlines and item.get("id") in joined:  # a band or a rounded area behind each part of a CONTRACTION
            fill, width = (HULL, ROUND) if outlines[0].is_closed else (None, BAND)
            behind.append(outlines[0]._replace(fill=fill, line=HULL, width=_NARROWER * width, dash=""))
        box = None
        if "width" in item:
            x, y = map(float, item["pos"].split(","))
            box = (x, y, 72 * float(item["width"]), 72 * float(item["height"]))
        parts.append(Part(item.get("id", item.get("name", "")), box, tuple(outlines), tuple(words)))
    assert (left, bottom) == (0.0, 0.0), graph["bb"]
    return right, top, [Part("", None, tuple(behind), ()), *parts]


def _read(item: Mapping[str, Any], name: str) -> tuple[list[Outline], list[Words]]:
    """Read the drawing operations that Graphviz's xdot output has under the attribute ``name``."""
    outlines: list[Outline] = []
    words: list[Words] = []
    line, fill, width, dash, size, is_bold = INK, INK, 1.0, "", _USUAL_POINTS, False
    for step in item.get(name, ()):
        match step["op"]:
            case "c":
                line = step["color"]
            case "C":
                fill = step["color"]
            case "S" if step["style"].startswith("setlinewidth("):
                width = float(step["style"][13:-1])
            case "S" if step["style"] in ("solid", "dashed", "dotted"):
                dash = step["style"].removeprefix("solid")
            case "F":
                size = min(float(step["size"]), _MOST_POINTS)
            case "t":
                is_bold = bool(step["fontchar"] & 1)
            case "T":
                words.append(_words(step, size, is_bold))
            case "P" | "p" | "L" | "B" | "b" | "E" | "e" as kind:
                is_filled = kind in "PBE" and not _is_clear(fill)
                points = _ellipse(step["rect"]) if kind in "Ee" else [tuple(point) for point in step["points"]]
                outlines.append(
                    Outline(
                        tuple(points),
                        kind in "BbEe",
                        kind not in "Lb",
                        fill if is_filled else None,
                        None if _is_clear(line) else line,
                        width,
                        dash,
                    )
                )
    return outlines, words


def _is_clear(colour: str) -> bool:
    return colour == "transparent" or (len(colour) == 9 and colour.endswith("00"))


def _words(step: Mapping[str, Any], size: float, is_bold: bool) -> Words:
    text: str = step["text"].replace(r"\\", "\\")  # Graphviz escapes each backslash twice in its JSON
    x, y = step["pt"]
    width = float(step["width"])
    x += {"l": width / 2, "r": -width / 2}.get(step["align"], 0.0)
    # Leading and trailing spaces take width but are not drawn; the text is centred in the remaining width.
    before, after = (len(text) - len(text.lstrip())) * _SPACE * size, (len(text) - len(text.rstrip())) * _SPACE * size
    is_alone = text == text.strip() and not is_bold
    return Words(x + (before - after) / 2, y, max(width - before - after, 1.0), text.strip(), size, is_bold, is_alone)


def _ellipse(rect: list[float]) -> list[Point]:
    """Return four cubic curves; the error is below 0.03 % of the radius (the usual constant, 4/3 (sqrt 2 - 1))."""
    x, y, a, b = rect
    k = 0.5522847498
    ring = [(1, 0), (1, k), (k, 1), (0, 1), (-k, 1), (-1, k), (-1, 0), (-1, -k), (-k, -1), (0, -1), (k, -1), (1, -k)]
    return [(x + a * u, y + b * v) for u, v in [*ring, (1, 0)]]


# -- writing -----------------------------------------------------------------------------------------------------------


def _patch(outline: Outline, scale: float) -> Any:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points = list(outline.points)
    codes = [Path.MOVETO, *[Path.CURVE4 if outline.is_curve else Path.LINETO] * (len(points) - 1)]
    if outline.is_closed:
        points.append(points[0])
        codes.append(Path.CLOSEPOLY)
    return PathPatch(
        Path(points, codes),
        facecolor=outline.fill or "none",
        edgecolor=outline.line or "none",
        linewidth=outline.width * scale,
        linestyle={"dashed": "--", "dotted": ":"}.get(outline.dash, "-"),
        joinstyle="round",
        capstyle="round",
    )


def _tikz(outline: Outline, scale: float) -> str:
    options = [f"line width={outline.width * scale:.3f}bp"]
    options += [f"draw=syno-{outline.line[1:7]}"] if outline.line else []
    options += [f"fill=syno-{outline.fill[1:7]}"] if outline.fill else []
    options += [outline.dash] if outline.dash else []
    return rf"\path[{', '.join(options)}] {''.join(_way(outline))};"


def _way(outline: Outline) -> Iterator[str]:
    texts = [f"({x:.2f}, {y:.2f})" for x, y in outline.points]
    yield texts[0]
    if outline.is_curve:
        for first, second, end in zip(texts[1::3], texts[2::3], texts[3::3], strict=True):
            yield f" .. controls {first} and {second} .. {end}"
    else:
        yield from (f" -- {point}" for point in texts[1:])
    if outline.is_closed:
        yield " -- cycle"
