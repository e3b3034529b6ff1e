"""The cards of Canvas's primitives: their texts, and pictures of small drafts that use them."""

from __future__ import annotations

from syno_lab.canvas.kernel import Draft
from syno_lab.canvas.primitives import BROADCASTS, PRIMITIVES
from syno_lab.protocol import PrimitiveCard

#: A primitive with a parameter on the input, by its name; the others have none, or blend (:func:`example`).
_EXAMPLES = {
    "group": "group G",
    "shift": "shift H+1",
    "unfold": "unfold H,W",
    "fc": "fc x0",
    "softmax": "softmax H,W",
    "fold_avg": "fold_avg H",
    "fold_max": "fold_max H",
}


def cards() -> dict[str, PrimitiveCard]:
    """The card of each primitive by its name."""
    return {name: _card(name) for name in PRIMITIVES}


def example(name: str) -> Draft:
    """The draft of a card's picture: the primitive makes its last tensor."""
    if name in BROADCASTS:
        # A mean over H repeats along H, so the picture shows more than two tensors of one shape.
        from syno_lab.canvas.matching import broadcast

        return broadcast(Draft().apply("fold_avg H"), name, 1, 0)
    return Draft().apply(_EXAMPLES.get(name, name))


def _card(name: str) -> PrimitiveCard:
    kind = PRIMITIVES[name]

    def draw() -> str:
        from syno_lab.canvas.drawing import draft_svg

        draft = example(name)
        return draft_svg(draft, leaves_marked=False, title=kind.signature, highlight=(len(draft.nodes),))

    words = f"{kind.signature}: before {kind.before}, after {kind.after}; {kind.meaning}"
    return PrimitiveCard(name, kind.card, words, f"{name}: {kind.before} -> {kind.after}", draw)
