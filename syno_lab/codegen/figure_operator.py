"""The figures of an operator for papers: its graph, its loop nest as a listing, its equation."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable
from html import unescape
from typing import TYPE_CHECKING, Literal

from syno_lab.codegen.drawing import Part, coordinate_ids, describe, drawn
from syno_lab.codegen.drawing import dot as pgraph_dot
from syno_lab.codegen.equation import equation
from syno_lab.codegen.loops import loops
from syno_lab.codegen.text import expressions, names
from syno_lab.drawing.figure import MARGIN, Figure, Page
from syno_lab.drawing.figure_graph import GraphFigure
from syno_lab.drawing.figure_tex import FIT
from syno_lab.drawing.formula import for_matplotlib, lines_of
from syno_lab.drawing.style import ACCENT, INK, QUIET
from syno_lab.drawing.text import BREAK, in_lines
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import State
from syno_lab.synthesis.expressions import expression, name, size_latex

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

    from syno_lab import protocol

#: The figures of an operator that can be drawn.
OF = ("graph", "loops", "equation")
_PRIME = "'"
_LATEX_BREAK = re.compile(r" (?=(?:[-+]|\\bmod) )")
_BRACKETS = (("(", ")"), (r"\lfloor", r"\rfloor"))
_LETTER = 0.602  # The width of a letter of DejaVu Sans Mono, in font sizes.
_TEX_LETTER = 0.532  # The width of a letter of cmtt and lmtt at 8 points, their widest size, in font sizes.
_LINE = 1.25  # The distance of two lines, in font sizes.
_INDENT = re.compile(r" *")
_MORE = 4  # The additional indentation of a wrapped line's continuation, in letters.
_LEAST_COLUMNS = 64  # The least number of letters in a line; a narrower page gets smaller letters.
_MARKED = re.compile(r"(?P<comment>#.*|//(?= ).*|/\*.*)|\b(?P<word>def|for|in|range|if|void|const|float|int|long)\b")
_COLOURS = {"comment": QUIET, "word": ACCENT}


def figure(
    graph: State | Operator | protocol.Operator,
    of: Literal["graph", "loops", "equation"] = "graph",
    binding: Binding | None = None,
    *,
    title: str | None = None,
    highlight: Iterable[Part] = (),
    staged: bool = False,
    wrt: str | None = None,
    language: Literal["python", "c"] = "python",
) -> Figure:
    """Implement :meth:`.Operator.figure`. Only complete pGraphs have other figures than ``graph``."""
    if of not in OF:
        raise SpecError(f"of: expected one of {', '.join(OF)}, found {quoted(of)}")
    if of == "graph":
        return _graph(graph, title, highlight)
    if not isinstance(graph, Operator):
        raise SpecError(f"of: expected graph, as only complete pGraphs have more, found {quoted(of)}")
    if of == "loops":
        return CodeFigure(
            loops(graph, binding, language=language, staged=staged, wrt=wrt), language, f"Loop nest. {describe(graph)}"
        )
    operator_equation = equation(graph, binding, staged=staged, wrt=wrt)
    return EquationFigure(operator_equation.latex, f"Equation: {operator_equation}")


def _graph(graph: State | Operator | protocol.Operator, title: str | None, highlight: Iterable[Part]) -> Figure:
    if isinstance(graph, State | Operator):
        marked = tuple(highlight)
        source = pgraph_dot(graph, highlight=marked, title=title)
        maths = _maths(graph)
        return GraphFigure(source, describe(graph), maths, drawn(graph).titles, _lines(graph, maths))
    # The first <title> of a picture describes the operator.
    words = unescape(graph.svg(title=title).partition("<title>")[2].partition("</title>")[0])
    return GraphFigure(graph.dot(title=title, highlight=tuple(highlight)), words)


def _maths(graph: State | Operator) -> dict[str, str]:
    """Return a dictionary from the plain texts of the expressions and sizes in a pGraph's picture to their LaTeX."""
    leaves = names(graph)
    plain = {leaf: name(text) for leaf, text in leaves.items()}
    # An iterator is named after its size. The iterator's subscript is LaTeX of the size: i_{C_{out}}, not i_{C\\_out}.
    nice: dict[str, str] = {}
    for leaf, text in leaves.items():
        stem, index = text[0], size_latex(leaf.size)
        primes = next(n for n in itertools.count() if f"{stem}{n * _PRIME}_{{{index}}}" not in nice.values())
        nice[plain[leaf].latex] = f"{stem}{primes * _PRIME}_{{{index}}}"
    wordy = re.compile("|".join(re.escape(text) for text in sorted(nice, key=len, reverse=True)))
    texts, latex_of = expressions(graph), {}
    for coordinate in coordinate_ids(graph).values():
        latex = expression(coordinate, plain).latex
        latex_of[texts[coordinate]] = wordy.sub(lambda match: nice[match[0]], latex)
        latex_of[coordinate.size.pretty] = size_latex(coordinate.size)
    for step in graph.steps:
        if step.parameter is not None:
            latex_of[step.parameter.pretty] = size_latex(step.parameter)
    return latex_of


def _lines(graph: State | Operator, maths: dict[str, str]) -> dict[str, dict[str, str | None]]:
    """Return for each node with a wrapped expression its lines of text, each with its LaTeX, or None for no LaTeX.

    The terms have one order in text and LaTeX, but the brackets can have different positions.
    """
    texts, broken = expressions(graph), dict[str, dict[str, str | None]]()
    for node, coordinate in coordinate_ids(graph).items():
        text = texts[coordinate]
        lines, latex, terms = in_lines(text), maths[text], _LATEX_BREAK.split(maths[text])
        if lines != [text]:
            ends = [0, *itertools.accumulate(len(BREAK.split(line)) for line in lines)]
            parts = [" ".join(terms[start:end]) for start, end in itertools.pairwise(ends)]
            is_whole = " ".join(lines) == text and " ".join(parts) == latex
            is_set = is_whole and all(part.count(a) == part.count(b) for part in parts for a, b in _BRACKETS)
            broken[node] = {line: part if is_set else None for line, part in zip(lines, parts, strict=True)}
    return broken


class CodeFigure(Figure):
    """A figure of a loop nest as a listing; ``code`` is the program text, in ASCII."""

    def __init__(self, code: str, language: Literal["python", "c"], description: str) -> None:
        self.description = description
        self._code = code
        self._language = language

    def _lines(self, page: Page, letter: float) -> tuple[list[str], float]:
        """Return the lines, wrapped to the page's width, and the size of their letters."""
        columns = max(_LEAST_COLUMNS, int(page.room / (letter * page.points)))
        lines = []
        for line in self._code.expandtabs(4).rstrip().split("\n"):
            deep = _INDENT.match(line)
            assert deep is not None
            sign = re.match(r"#|//", line.strip())  # The continuation of a wrapped comment starts as a comment too.
            # Half of the usual indentation, so that seven loops and two conditions fit into a column.
            start = " " * (len(deep[0]) // 2)
            wrapped = textwrap.wrap(
                line.strip(),
                columns,
                initial_indent=start,
                subsequent_indent=start + (sign[0].ljust(_MORE) if sign else " " * _MORE),
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines += wrapped or [""]
        return lines, min(page.points, page.room / (letter * max(map(len, lines))))

    def _plot(self, page: Page) -> Plot:
        lines, points = self._lines(page, _LETTER)
        high = len(lines) * points * _LINE + 2 * MARGIN
        plot = page.sheet(high)
        for number, line in enumerate(lines):
            y = 1 - (MARGIN + (number + 0.8) * points * _LINE) / high
            at = 0
            for mark in (*_MARKED.finditer(line), None):
                end = mark.start() if mark else len(line)
                pieces = [(at, line[at:end], "")]
                if mark:
                    pieces.append((end, mark[0], mark.lastgroup or ""))
                    at = mark.end()
                for column, text, kind in pieces:
                    x = (MARGIN + (column + len(text) - len(text.lstrip())) * _LETTER * points) / (page.width * 72)
                    if text.strip():
                        colour = _COLOURS.get(kind, INK)
                        plot.text(x, y, text.strip(), family="monospace", fontsize=points, va="baseline", color=colour)
        return plot

    def _tex(self, page: Page) -> str:
        lines, points = self._lines(page, _TEX_LETTER)
        named = {"python": "Python", "c": "C"}[self._language]
        look = rf"\ttfamily\fontsize{{{points:.3f}bp}}{{{_LINE * points:.3f}bp}}\selectfont"
        options = (
            f"language={named}, basicstyle={look}, columns=fixed, basewidth={_TEX_LETTER * points:.3f}bp, "
            "keepspaces=true, showstringspaces=false"
        )
        return "\n".join(
            [
                "% needs \\usepackage{listings}",
                rf"\begin{{minipage}}{{{page.width:.4f}in}}",
                rf"\begin{{lstlisting}}[{options}]",
                *lines,
                r"\end{lstlisting}",
                r"\end{minipage}",
                "",
            ]
        )


class EquationFigure(Figure):
    """A figure of an equation, or of an equation for each stage; ``latex`` is the text of :class:`.Equation`."""

    def __init__(self, latex: str, description: str) -> None:
        self.description = description
        self._latex = latex

    def _broken(self, page: Page) -> list[str]:
        """Return the lines of LaTeX; lines wider than the page are broken before conditions and products."""
        return lines_of(self._latex, lambda line: _extent(line, page.points)[0] <= page.room)

    def _plot(self, page: Page) -> Plot:
        lines = self._broken(page)
        # A product cannot be broken. If a product is wider than the page, all letters become smaller.
        widest = max(_extent(line, page.points)[0] for line in lines)
        points = page.points * min(1.0, page.room / widest)
        boxes = [_extent(line, points) for line in lines]
        gap = 0.4 * points
        high = sum(up + down for _, up, down in boxes) + gap * (len(boxes) - 1) + 2 * MARGIN
        plot = page.sheet(high)
        y = high - MARGIN
        left = (page.width * 72 - max(wide for wide, _, _ in boxes)) / 2
        for line, (_, up, down) in zip(lines, boxes, strict=True):
            y -= up
            plot.text(
                left / (page.width * 72),
                y / high,
                f"${for_matplotlib(line)}$",
                fontsize=points,
                va="baseline",
                parse_math=True,
            )
            y -= down + gap
        return plot

    def _tex(self, page: Page) -> str:
        body = " \\\\\n".join(f"&{line}" for line in self._broken(page))
        return "\n".join(
            [
                "% needs \\usepackage{amsmath} and \\usepackage{graphicx}",
                r"\begingroup%",
                FIT,
                rf"\fontsize{{{page.points:.2f}bp}}{{{1.2 * page.points:.2f}bp}}\selectfont%",
                rf"\synofit{{{page.width:.4f}in}}{{$\displaystyle\begin{{aligned}}",
                body,
                r"\end{aligned}$}%",
                r"\endgroup%",
                "",
            ]
        )


def _extent(line: str, points: float) -> tuple[float, float, float]:
    """Return the width of a line of mathematics and its height above and depth below the baseline, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import MathTextParser

    # Matplotlib rounds up to whole dots. At 720 dpi a point has ten dots.
    parsed = MathTextParser("path").parse(f"${for_matplotlib(line)}$", 720, FontProperties(size=points))
    width, height, depth = (float(length) / 10 for length in parsed[:3])
    return width, height - depth, depth
