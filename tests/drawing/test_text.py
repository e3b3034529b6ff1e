"""Text in pictures: indices, widths, and the room that the layout program keeps."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import syno_widgets

from syno_lab.codegen.drawing import svg
from syno_lab.drawing.render import render
from syno_lab.drawing.style import DARK_INK, DARK_LOOKS, PRIMITIVE_LOOKS, dark_css
from syno_lab.drawing.text import parts_of, width_of
from syno_lab.operators import operator_1

TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("i_H", [("i", 0), ("H", 1)]),
        ("r_k_1 + 2", [("r", 0), ("k", 1), ("1", 2), (" + 2", 0)]),
        ("r_k_1__2%3", [("r", 0), ("k", 1), ("1", 2), ("′%3", 0)]),
        (": C_out/(g·s)", [(": C", 0), ("out", 1), ("/(g·s)", 0)]),
        ("r_C_in_by_g", [("r", 0), ("C", 1), ("in", 2), ("/g", 1)]),
        ("i_H_s", [("i", 0), ("H·s", 1)]),
        ("k_1*i", [("k", 0), ("1", 1), ("*i", 0)]),
        ("W1 weight", [("W1 weight", 0)]),
        ("fold_avg H", [("fold_avg H", 0)]),
        ("_ a_ _b", [("_ a_ _b", 0)]),
    ],
)
def test_names_have_their_indices_lowered(text: str, parts: list[tuple[str, int]]) -> None:
    names = {"r_k_1__2": ("r", "k_1", 1), "r_C_in_by_g": ("r", "C_in/g", 0), "i_H_s": ("i", "H·s", 0)}
    assert parts_of(text, names) == parts


def test_the_layout_keeps_the_room_that_is_measured() -> None:
    for text in ("iiiiiiiiii", "mmmmmmmmmm", "(r_k_1__2 + 1) % k_1", "SHARE"):
        drawn = render(f'digraph{{a [shape=box,margin=0,width=0,fontname="Helvetica",fontsize=12,label="{text}"]}}')
        points = re.search(r'<polygon fill="none" stroke="black" points="([^"]*)"', drawn.decode())
        assert points
        across = [float(point.split(",")[0]) for point in points[1].split()]
        assert max(across) - min(across) == pytest.approx(width_of(text, 12), abs=0.6)


def test_every_text_of_a_picture_is_fitted_to_its_room() -> None:
    texts = [one for one in ElementTree.fromstring(svg(operator_1())).iter(TEXT) if "".join(one.itertext()).strip()]
    assert len(texts) > 40
    for one in texts:
        words = "".join(one.itertext())
        assert one.get("lengthAdjust") == "spacingAndGlyphs"
        bold = one.get("font-weight") == "bold"
        assert (
            0 < float(one.get("textLength", 0)) <= width_of(words, float(one.get("font-size", 0)), is_bold=bold) + 0.1
        )
    assert any("".join(one.itertext()) == "iCout" for one in texts)


def _light(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_light(one), _light(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_dark_looks_can_be_read() -> None:
    assert set(DARK_LOOKS) >= set(PRIMITIVE_LOOKS)
    for fill, border in DARK_LOOKS.values():
        assert _contrast(DARK_INK, fill) >= 4.5
        assert _contrast(border, "#17171a") >= 3
    shipped = (Path(syno_widgets.__file__).parent / "operator_graph_dark.css").read_text(encoding="utf-8")
    assert shipped.partition("\n")[2] == dark_css(".syno-dark")
