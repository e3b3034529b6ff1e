"""The cards of Syno's primitives, for views of any system."""

from __future__ import annotations

from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.protocol import PrimitiveCard


def cards() -> dict[str, PrimitiveCard]:
    """The card of each primitive by its name."""
    return {name: _card(name) for name in PRIMITIVES}


def _card(name: str) -> PrimitiveCard:
    card = PRIMITIVES[name].card

    def draw() -> str:
        from syno_lab.codegen import drawing

        return drawing.card_svg(name)

    words = f"{name}: bottom {card.before}, top {card.after}; {card.top_down}"
    return PrimitiveCard(name, str(card), words, f"{name}: {card.before} <- {card.after}", draw)
