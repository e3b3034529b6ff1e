"""Loop nests and equations for papers."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Literal

from syno_lab.codegen.drawing_style import INK
from syno_lab.codegen.figure import Figure, Page
from syno_lab.codegen.figure_tex import FIT
from syno_lab.codegen.formula import for_matplotlib, lines_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

_MARGIN = 2.0  # points around a text
_LETTER = 0.602  # the width of DejaVu Sans Mono, in sizes of the font
_TEX_LETTER = 0.532  # of cmtt and lmtt at 8 points, where they are widest
_LINE = 1.25  # from line to line, in sizes of the font
_INDENT = re.compile(r" *")
_MORE = 4  # columns by which the rest of a broken line stands to the right
_LEAST_COLUMNS = 64  # a narrower page has smaller letters
_MARKED = re.compile(r"(?P<comment>#.*|//(?= ).*|/\*.*)|\b(?P<word>def|for|in|range|if|void|const|float|int|long)\b")
_COLOURS = {"comment": "#5f5f68", "word": "#1f5fbf"}


class CodeFigure(Figure):
    """A loop nest as a listing.

    Args:
        code: the program text, in ASCII.
        language: of it.
        description: the picture in words.
    """

    def __init__(self, code: str, language: Literal["python", "c"], description: str) -> None:
        self.description = description
        self._code = code
        self._language = language

    def _lines(self, page: Page, letter: float) -> tuple[list[str], float]:
        """The lines as they fit the page, and the size of their letters."""
        room = page.width * 72 - 2 * _MARGIN
        columns = max(_LEAST_COLUMNS, int(room / (letter * page.points)))
        lines = []
        for line in self._code.expandtabs(4).rstrip().split("\n"):
            deep = _INDENT.match(line)
            assert deep is not None
            sign = re.match(r"#|//", line.strip())  # the rest of a comment is a comment
            # Half of the usual indentation: seven loops and two conditions stand in a column.
            start = " " * (len(deep[0]) // 2)
            kept = textwrap.wrap(
                line.strip(),
                columns,
                initial_indent=start,
                subsequent_indent=start + (sign[0].ljust(_MORE) if sign else " " * _MORE),
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines += kept or [""]
        return lines, min(page.points, room / (letter * max(map(len, lines))))

    def _plot(self, page: Page) -> Plot:
        from matplotlib.figure import Figure as Plot

        lines, points = self._lines(page, _LETTER)
        high = len(lines) * points * _LINE + 2 * _MARGIN
        plot = Plot(figsize=(page.width, high / 72), facecolor="white")
        for number, line in enumerate(lines):
            y = 1 - (_MARGIN + (number + 0.8) * points * _LINE) / high
            at = 0
            for mark in (*_MARKED.finditer(line), None):
                end = mark.start() if mark else len(line)
                pieces = [(at, line[at:end], "")]
                if mark:
                    pieces.append((end, mark[0], mark.lastgroup or ""))
                    at = mark.end()
                for column, text, kind in pieces:
                    x = (_MARGIN + (column + len(text) - len(text.lstrip())) * _LETTER * points) / (page.width * 72)
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
    """An equation, or one for each stage, in display mathematics.

    Args:
        latex: as :attr:`syno_lab.codegen.equation.Equation.latex` has it.
        description: the picture in words.
    """

    def __init__(self, latex: str, description: str) -> None:
        self.description = description
        self._latex = latex

    def _broken(self, page: Page) -> list[str]:
        """The lines of LaTeX, broken before conditions and products where they are wider than the page."""
        return lines_of(self._latex, lambda line: _extent(line, page.points)[0] <= page.width * 72 - 2 * _MARGIN)

    def _plot(self, page: Page) -> Plot:
        from matplotlib.figure import Figure as Plot

        lines = self._broken(page)
        # A product cannot be broken: where one is wider than the page, all letters become smaller.
        widest = max(_extent(line, page.points)[0] for line in lines)
        points = page.points * min(1.0, (page.width * 72 - 2 * _MARGIN) / widest)
        boxes = [_extent(line, points) for line in lines]
        gap = 0.4 * points
        high = sum(up + down for _, up, down in boxes) + gap * (len(boxes) - 1) + 2 * _MARGIN
        plot = Plot(figsize=(page.width, high / 72), facecolor="white")
        y = high - _MARGIN
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
    """Width, height above and depth below the baseline of a line of mathematics, in points, as ``style`` sets it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import MathTextParser

    # Matplotlib rounds up to whole dots: ten of them make a point here.
    found = MathTextParser("path").parse(f"${for_matplotlib(line)}$", 720, FontProperties(size=points))
    width, height, depth = (float(length) / 10 for length in found[:3])
    return width, height - depth, depth
