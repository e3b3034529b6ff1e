"""A session in words, to be shown beside its picture: where it is, and the tree of all its places as plain data."""

from __future__ import annotations

from itertools import islice
from typing import Any

from syno_lab.codegen.drawing import describe_step
from syno_lab.codegen.drawing_menu import steps_left
from syno_lab.synthesis.session import Entry, Session

_MAX_WAYS = 24


def session_status(session: Session) -> str:
    """Where a session is, in one or two sentences."""
    state, entry = session.state, session.entry
    count = f"{len(state.steps)} {'step' if len(state.steps) == 1 else 'steps'}"
    if session.is_complete:
        name = session.name
        ways = sum(1 for _ in islice(state.matches(), _MAX_WAYS + 1))
        this = f"this is {name}" if name else "an operator that has no name here"
        number = f"{ways}" if ways <= _MAX_WAYS else f"more than {_MAX_WAYS}"
        many = f"; one of {number} ways to match the input is shown" if ways > 1 else ""
        return f"Complete after {count}: {this}{many}."
    if entry.distance is None:
        return f"After {count}: the input is out of reach within the budgets."
    return f"After {count}: shape distance {entry.distance}, {steps_left(state)} left in the budget."


class Tree:
    """The rows of a session's tree; what was worked out for a place is kept, for places never change."""

    def __init__(self) -> None:
        self._said: dict[int, dict[str, Any]] = {}

    def rows(self, session: Session) -> list[dict[str, Any]]:
        """All places from the first on, each with what it is called.

        A place that goes on in several ways is followed by its branches, each indented, and then by the way that is
        oldest, which is not.

        Returns:
            Records of ``place``, ``text``, ``level`` (of indentation), ``branch`` (whether a branch begins here),
            ``start`` (whether it is a beginning rather than a step), ``distance`` and ``complete``.
        """
        places = session.places
        rows = []
        waiting = [(0, 0, False)]
        while waiting:
            number, level, is_branch = waiting.pop()
            rows.append({**self._row(places[number]), "level": level, "branch": is_branch})
            children = session.children(number)
            waiting += [(child, level, False) for child in children[:1]]
            waiting += [(child, level + 1, True) for child in reversed(children[1:])]
        return rows

    def _row(self, entry: Entry) -> dict[str, Any]:
        if entry.number not in self._said:
            step = entry.step
            self._said[entry.number] = {
                "place": entry.number,
                "text": entry.note if step is None else describe_step(entry.state, step),
                "start": step is None,
                "distance": entry.distance,
                "complete": entry.state.is_complete,
            }
        return self._said[entry.number]
