"""The page ``docs/primitives.md``: the cards of all systems' primitives, as the lab shows them: ``make picture``."""

from __future__ import annotations

import sys
from pathlib import Path

from syno_lab.protocol import OfPrimitives
from syno_lab.systems import all_systems

PAGE = Path(__file__).parent / "primitives.md"
HEAD = """# The primitives

This page has the primitives of each system: how a primitive is written, its inputs and results, its refusals, and its
source. In a notebook `%syno_card MERGE` or `%syno_card canvas fc` shows a card with its picture.
`docs/primitives.py` makes this page from the cards.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for system in all_systems():
        if isinstance(system, OfPrimitives):
            found = system.cards()
            parts.append(f"## {system.title}: {len(found)} primitives\n")
            parts += [f"```text\n{card.text}\n```\n" for card in found.values()]
    return "\n".join(parts)


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(write())
