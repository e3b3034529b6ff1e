"""The text beside a session's picture: the place where it is."""

from __future__ import annotations

from itertools import islice

from syno_lab.codegen.drawing_menu import steps_left
from syno_lab.codegen.mixing import wish_verdict
from syno_lab.effort import Effort
from syno_lab.errors import EffortError
from syno_lab.inputs import count_of
from syno_lab.synthesis.session import Session

_MAX_WAYS = 24


def session_status(session: Session, effort: Effort | None = None) -> str:
    """Where a session is, in one or two sentences; the shape distance is left out where the effort does not suffice."""
    state, entry = session.state, session.entry
    count = count_of(len(state.steps), "step")
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
        far: float | None
        try:
            far = entry.wished(effort)
        except EffortError:
            far = distance
        if far is None:
            return f"After {count}: shape distance {distance}, what is wished is out of reach."
        wished = f" property distance {far},"
    return f"After {count}: shape distance {distance},{wished} {steps_left(state)} left in the budget."
