"""The texts beside a session's picture: the place where it is, and the tree of all its places as plain data."""

from __future__ import annotations

from itertools import islice
from typing import Any

from syno_lab.codegen.drawing import describe_step
from syno_lab.codegen.drawing_menu import steps_left
from syno_lab.codegen.mixing import wish_verdict
from syno_lab.effort import Effort
from syno_lab.errors import EffortError
from syno_lab.synthesis.session import Entry, Session

_MAX_WAYS = 24


def session_status(session: Session, effort: Effort | None = None) -> str:
    """Where a session is, in one or two sentences; the shape distance is left out where the effort does not suffice."""
    state, entry = session.state, session.entry
    count = f"{len(state.steps)} {'step' if len(state.steps) == 1 else 'steps'}"
    if session.is_complete:
        name = session.name
        ways = sum(1 for _ in islice(state.matches(), _MAX_WAYS + 1))
        this = f"this is {name}" if name else "an operator that has no name here"
        number = f"{ways}" if ways <= _MAX_WAYS else f"more than {_MAX_WAYS}"
        many = f"; one of {number} ways to match the input is shown" if ways > 1 else ""
        verdict = wish_verdict(state.operator())
        return f"Complete after {count}: {this}{many}.{f' It {verdict}.' if verdict else ''}"
    try:
        distance = entry.measured(effort)
    except EffortError:
        return f"After {count}: the shape distance is not known yet, {steps_left(state)} left in the budget."
    if distance is None:
        return f"After {count}: the input is out of reach within the budgets."
    wished = ""
    if state.spec.wants:
        try:
            far = entry.wished(effort)
        except EffortError:
            far = distance
        if far is None:
            return f"After {count}: shape distance {distance}, what is wished is out of reach."
        wished = f" property distance {far},"
    return f"After {count}: shape distance {distance},{wished} {steps_left(state)} left in the budget."


class Tree:
    """The rows of a session's tree; what was worked out for a place is kept, for places never change."""

    def __init__(self) -> None:
        self._said: dict[int, dict[str, Any]] = {}

    def rows(self, session: Session, effort: Effort | None = None) -> list[dict[str, Any]]:
        """All places from the first on, each with what it is called.

        A place that goes on in several ways is followed by its branches, each indented, and then by the way that is
        oldest, which is not.

        Args:
            session: of which.
            effort: what it may take.

        Returns:
            Records of ``place``, ``text``, ``level`` (of indentation), ``branch`` (whether a branch begins here),
            ``start`` (whether it is a beginning rather than a step), ``distance`` and ``complete``.

        Raises:
            EffortError: when the effort does not suffice; asked again, it goes on from there.
        """
        places = session.places
        rows = []
        waiting = [(0, 0, False)]
        while waiting:
            number, level, is_branch = waiting.pop()
            rows.append({**self._row(places[number], effort), "level": level, "branch": is_branch})
            children = session.children(number)
            waiting += [(child, level, False) for child in children[:1]]
            waiting += [(child, level + 1, True) for child in reversed(children[1:])]
        return rows

    def _row(self, entry: Entry, effort: Effort | None) -> dict[str, Any]:
        if entry.number not in self._said:
            if effort is not None:
                effort.tick("listing the history")
            step = entry.step
            self._said[entry.number] = {
                "place": entry.number,
                "text": entry.note if step is None else describe_step(entry.state, step),
                "start": step is None,
                "distance": entry.measured(effort),
                "complete": entry.state.is_complete,
            }
        return self._said[entry.number]
