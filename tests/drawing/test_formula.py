"""LaTeX as outlines: equations are held against their panes, here the rest."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from syno_lab.drawing.formula import formula_svg
from syno_lab.errors import SynoError

# As rules write them (Verdict.latex).
REWRITES = (
    r"\mathrm{UNFOLD}(\#_{0}, \#_{1}),\; \mathrm{REDUCE}(k_{1}) \;\rightarrow\; \mathrm{REDUCE}(k_{1})",
    r"\sum_{r_{0} < C_{in}} X\left[\,\right] \mathbf{1}\left[r_{0}\right] \;\rightarrow\; C_{in} X\left[\,\right]",
    r"\left\lfloor \#_{0} / (H/s) \right\rfloor \;\rightarrow\; \#_{0} \bmod s",
)
PATH = "{http://www.w3.org/2000/svg}path"


def glyphs(svg: str) -> int:
    """Closed outlines: a sign has one or a few."""
    return sum(path.get("d", "").count("Z") for path in ElementTree.fromstring(svg).iter(PATH))


@pytest.mark.parametrize("latex", REWRITES)
def test_the_expressions_of_rules_are_drawn(latex: str) -> None:
    before, arrow, after = latex.partition(r"\;\rightarrow\;")
    assert arrow
    assert glyphs(formula_svg(latex, "")) == sum(
        glyphs(formula_svg(part, "")) for part in (before, r"\rightarrow", after)
    )


def test_lines_are_broken_and_stand_below_each_other() -> None:
    sides = r"\left[0 \le h + p < H\right] "
    svg = formula_svg("Y[h] = " + sides * 12 + "X[h + p]", "long")
    paths = list(ElementTree.fromstring(svg).iter(PATH))
    assert len(paths) > 1
    tops = [min(float(y) for y in re.findall(r"-?[\d.]+ (-?[\d.]+)", path.get("d", ""))) for path in paths]
    assert tops == sorted(tops)
    assert glyphs(svg) == sum(glyphs(formula_svg(text, "")) for text in ("Y[h] =", *[sides] * 12, "X[h + p]"))


def test_brackets_and_arrows() -> None:
    assert glyphs(formula_svg(r"\left[x\right]", "")) == glyphs(formula_svg("[x]", ""))
    assert glyphs(formula_svg(r"x \rightarrow y", "")) == glyphs(formula_svg("x = y", "")) - 1  # = has two strokes
    assert glyphs(formula_svg(r"x \bmod y", "")) > glyphs(formula_svg("x y", ""))


def test_what_cannot_be_drawn_is_refused_and_words_are_escaped() -> None:
    with pytest.raises(SynoError, match=r"equation: this LaTeX cannot be drawn: .*nosuchthing"):
        formula_svg(r"\nosuchthing{x}", "x")
    svg = formula_svg("x", '<b> "')
    assert "<b>" not in svg
    assert ElementTree.fromstring(svg).get("aria-label") == '<b> "'
