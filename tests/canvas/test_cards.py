"""The cards of Canvas's primitives: what they refuse is refused, their pictures show them, and the page has them."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from syno_lab.canvas.kernel import Draft
from syno_lab.canvas.primitives import BROADCASTS, ELEMENTWISE, PRIMITIVES
from syno_lab.canvas.system import CANVAS, example
from syno_lab.errors import PrimitiveError, SpecError
from syno_lab.protocol import OfPrimitives
from syno_lab.systems import all_systems, find_card

DOCS = Path(__file__).parents[2] / "docs"


def built(*steps: str) -> Draft:
    """A draft of steps one after another."""
    draft = Draft()
    for step in steps:
        draft = draft.apply(step)
    return draft


def _blended(name: str, *steps: str) -> Draft:
    return built(*steps).apply(name, (len(steps), 0))


NO_AXIS = "expected a tensor with axis H, found"
# One refusal for each misuse that a card names, in the order of the card.
MISUSES: dict[str, list[tuple[Callable[[], Draft], str]]] = {
    "group": [
        (lambda: built("group G", "group each"), "expected a tensor that is not in groups yet, found"),
        (lambda: built("fold_avg C", "group G"), "expected a tensor with channels, found"),
        (lambda: built("unfold H", "fc C", "group G", "fold_avg G", "group G"), "C/G"),
    ],
    "shift": [(lambda: built("fold_avg H", "shift H+1"), NO_AXIS)],
    "unfold": [
        (lambda: built("fold_avg H", "unfold H"), NO_AXIS),
        (lambda: built("unfold H", "unfold H"), "expected a tensor without a window in slot KH, found"),
    ],
    "fc": [
        (lambda: built("fc x0", "group each", "fc C"), "expected groups without a dynamic variable, found"),
        (lambda: built("group each", "fc G"), "expected channels that C groups divide, found G"),
    ],
    "softmax": [
        (lambda: built("fold_avg H", "softmax H"), "expected adjacent axes of C,W, found 'H'"),
        (lambda: built("softmax C,W"), "expected adjacent axes of C,H,W, found 'C,W'"),
    ],
    "fold_avg": [(lambda: built("fold_avg H", "fold_avg H"), NO_AXIS)],
    "fold_max": [(lambda: built("fold_max H", "fold_max H"), NO_AXIS)],
    **{name: [] for name in ELEMENTWISE},
    **{
        name: [
            (lambda name=name: _blended(f"{name} C", "unfold H"), "expected a RHS whose C is a multiple of LHS"),
            (lambda name=name: _blended(f"{name} C", "fold_avg W"), "expected a LHS that begins and ends as"),
        ]
        for name in BROADCASTS
    },
}


@pytest.mark.parametrize(("misuse", "message"), [(misuse, text) for rows in MISUSES.values() for misuse, text in rows])
def test_every_misuse_is_refused_in_one_line(misuse: Callable[[], Draft], message: str) -> None:
    with pytest.raises(PrimitiveError) as refusal:
        misuse()
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_every_misuse_on_a_card_has_a_refusal() -> None:
    assert {name: len(rows) for name, rows in MISUSES.items()} == {
        name: len(kind.misuses) for name, kind in PRIMITIVES.items()
    }


@pytest.mark.parametrize("name", list(PRIMITIVES))
def test_the_picture_shows_the_primitive(name: str) -> None:
    assert example(name).nodes[-1].primitive.name == name
    card = CANVAS.cards()[name]
    svg = ElementTree.fromstring(card.draw())
    texts = ["".join(text.itertext()) for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert PRIMITIVES[name].signature in texts
    assert any(str(example(name).nodes[-1].primitive) in text for text in texts)
    assert PRIMITIVES[name].after in card.words


def test_a_card_is_found_by_its_name_and_by_that_of_its_system() -> None:
    assert find_card(["unfold"]).name == "UNFOLD"
    assert find_card(["canvas", "unfold"]).name == "unfold"
    assert find_card(["FC"]).text == PRIMITIVES["fc"].card
    with pytest.raises(SpecError, match=r"unknown primitive 'pool'; known are group, shift, unfold, fc, softmax"):
        find_card(["canvas", "pool"])
    with pytest.raises(SpecError, match="expected a system among pgraphs, canvas, αnas, nas-pte, found 'halide'"):
        find_card(["halide", "unfold"])
    with pytest.raises(SpecError, match="unknown primitive 'fc'; known are none"):
        find_card(["nas-pte", "fc"])


def test_golden_cards(golden: Callable[[str, str], None]) -> None:
    golden("drawing/canvas_cards.txt", "\n\n".join(card.text for card in CANVAS.cards().values()) + "\n")


def test_the_page_has_every_card() -> None:
    page = (DOCS / "primitives.md").read_text(encoding="utf-8")
    assert page == runpy.run_path(str(DOCS / "primitives.py"))["page"](), "python docs/primitives.py writes it anew"
    for system in [one for one in all_systems() if isinstance(one, OfPrimitives)]:
        for card in system.cards().values():
            assert f"```text\n{card.text}\n```" in page
