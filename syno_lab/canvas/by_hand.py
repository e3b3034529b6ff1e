"""Methods of a draft for people who grow a kernel by hand; :mod:`syno_lab.canvas` binds them."""

from __future__ import annotations

from typing import Any

from syno_lab.canvas import growth
from syno_lab.canvas.growth import Candidate, Growing, Room
from syno_lab.canvas.kernel import MOST_NODES, Draft
from syno_lab.canvas.primitives import BROADCASTS

#: A kernel without limits but the number of nodes: by hand, rules alone say what makes no sense.
FREE_HAND = Room(MOST_NODES, width=MOST_NODES, fcs=(0, MOST_NODES), must_mix=False)


def candidates(draft: Draft, room: Room = FREE_HAND) -> list[Candidate]:
    """Every primitive on every tensor and every broadcast of two, with the rule or limit that refuses it."""
    return list(growth.candidates(draft, room))


def why_dead(draft: Draft, room: Room = FREE_HAND) -> str | None:
    """Why no kernel can come of a draft within the room, in one line; None where none is known.

    A draft that cannot be finished may still give None: the primitives that it needs are counted, not tried.
    """
    growing = Growing(room, draft.nodes, draft.shapes)
    needed = growing.needs().number
    if draft.is_complete and not needed:
        return None
    if needed > growing.left:
        merges = growing.needs().merges
        of_them = f", {merges} of them among {', '.join(BROADCASTS)}" if merges else ""
        return f"expected at most {max(growing.left, 0)} more primitives, found at least {needed} needed{of_them}"
    return None


def draft_dot(draft: Draft, **options: Any) -> str:
    """See :func:`syno_lab.canvas.drawing.draft_dot`."""
    from syno_lab.canvas import drawing

    return drawing.draft_dot(draft, **options)


def draft_svg(draft: Draft, **options: Any) -> str:
    """See :func:`syno_lab.canvas.drawing.draft_svg`."""
    from syno_lab.canvas import drawing

    return drawing.draft_svg(draft, **options)
