"""Draw the lab's LaTeX, such as the equations of operators, as SVG outlines.

Matplotlib typesets the formulas, without LaTeX, fonts or a network. Outlines look the same in every browser.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from syno_lab.drawing.svg import titled
from syno_lab.errors import SynoError

if TYPE_CHECKING:
    from matplotlib.path import Path

_SIZE = 14.0  # points
_GAP = 10.0
_MOST = 150  # The longest line in characters of LaTeX, about half as many on the page.
# Where a line may break: before the brackets of conditions, and before the product after the brackets.
_BREAKS = re.compile(r"(?=\\left\[0 )|(?<=\\right\]) (?!\\left\[0 )")
# Brackets keep their size, because the lab's brackets contain nothing tall. An arrow (\leftarrow) is no bracket.
_SIZED = re.compile(r"\\(left|right)(?![a-zA-Z])")
_FOR_MATPLOTLIB = (
    (r"\bmod", r"\;\mathrm{mod}\;"),
    (r"\le ", r"\leq "),
    (r"} \sum", r"} \; \sum"),
)


def formula_svg(latex: str, description: str) -> str:
    """Draw LaTeX of :func:`lines_of` as an SVG element of outlines, in the text colour of the page.

    Long lines are broken before conditions and products. ``description`` is the text alternative. Raises SynoError for
    LaTeX that matplotlib does not know.
    """
    from matplotlib.textpath import TextPath

    paths = []
    top = width = 0.0
    for line in lines_of(latex, lambda line: len(line) <= _MOST):
        try:
            path = TextPath((0, 0), f"${for_matplotlib(line)}$", size=_SIZE)
        except ValueError as error:
            raise SynoError(f"equation: this LaTeX cannot be drawn: {str(error).splitlines()[-1]}") from None
        extents = path.get_extents()
        # The y axis of SVG points down, matplotlib's up.
        paths.append(_outline(path, top + extents.y1))
        top += extents.y1 - extents.y0 + _GAP
        width = max(width, extents.x1)
    height = top - _GAP
    outlines = (f'<path fill="currentColor" d="{path}"/>' for path in paths)
    box = f"-1 -1 {width + 2:.1f} {height + 2:.1f}"
    return titled(f"{width + 2:.0f}pt", f"{height + 2:.0f}pt", box, description, outlines)


def lines_of(latex: str, fits: Callable[[str], bool]) -> list[str]:
    """Split the lab's LaTeX into formulas (several in ``aligned``), and each into lines that ``fits`` accepts.

    A line that cannot be broken may be too long for ``fits``.
    """
    body = latex.replace("\\begin{aligned}\n", "").replace("\n\\end{aligned}", "").replace("&", "")
    lines = []
    for formula in body.split(" \\\\\n"):
        parts = [part for part in _BREAKS.split(formula) if part.strip()]
        line = ""
        for part in parts:
            if line and not fits(line + part):
                lines.append(line)
                line = r"\quad\quad "
            line += part
        lines.append(line)
    return lines


def for_matplotlib(latex: str) -> str:
    """Translate the lab's LaTeX to matplotlib's mathematics."""
    latex = _SIZED.sub("", latex)
    for old, new in _FOR_MATPLOTLIB:
        latex = latex.replace(old, new)
    return latex


def _outline(path: Path, down: float) -> str:
    letters = {path.MOVETO: "M", path.LINETO: "L", path.CURVE3: "Q", path.CURVE4: "C"}
    words = []
    for points, code in path.iter_segments():
        if code == path.CLOSEPOLY:
            words.append("Z")
        else:
            pairs = (f"{x:.2f} {down - y:.2f}" for x, y in zip(points[::2], points[1::2], strict=True))
            words.append(letters[code] + " ".join(pairs))
    return "".join(words)
