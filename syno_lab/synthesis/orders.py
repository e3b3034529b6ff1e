"""Whether a pGraph is canonical in some order of its steps, and which rule is in the way (Syno, section 9.4)."""

from __future__ import annotations

from syno_lab.effort import Effort
from syno_lab.errors import PrimitiveError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule


def has_canonical_order(state: State, rules: tuple[Rule, ...] = RULES, *, effort: Effort | None = None) -> bool:
    """Whether the steps of ``state`` can be taken in an order in which no rule rejects any of them.

    Raises:
        EffortError: for what exceeds ``effort``.
    """
    watched = effort or Effort()
    items = _numbered(state)
    whole = (1 << len(items)) - 1
    hopeless: set[tuple[int, int]] = set()  # steps taken, and the last of them: rules look at the top of a state

    def walk(current: State, known: dict[int, Coordinate], taken: int) -> bool:
        watched.tick("looking for a canonical order of steps")
        if taken == whole:
            return True
        for place, (step, operands, given, results) in enumerate(items):
            after_this = taken | 1 << place
            if taken >> place & 1 or (after_this, place) in hopeless:
                continue
            if not all(number in known for number in operands + given):
                continue
            moved = step._replace(operands=tuple(known[n] for n in operands), given=tuple(known[n] for n in given))
            try:
                after = current.apply(moved)
            except PrimitiveError:
                continue  # a coordinate that another step shares is gone
            if rejecting_rule(current, moved, rules) is None:
                added = dict(zip(results, current.results(moved), strict=True))
                if walk(after, known | added, after_this):
                    return True
            hopeless.add((after_this, place))
        return False

    root = State.root(state.spec)
    return walk(root, dict(enumerate(root.data)), 0)


def _numbered(state: State) -> list[tuple[Step, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Each step with the numbers of its operands, given coordinates and results, so that it can be taken elsewhere."""
    current = State.root(state.spec)
    number = {c: i for i, c in enumerate(current.data)}
    found = []
    for step in state.steps:
        results = current.results(step)
        for result in results:
            number[result] = len(number)
        found.append(
            (
                step,
                tuple(number[c] for c in step.operands),
                tuple(number[c] for c in step.given),
                tuple(number[c] for c in results),
            )
        )
        current = current.apply(step)
    return found


def judge(state: State, rules: tuple[Rule, ...], *, effort: Effort | None = None) -> tuple[bool, str | None]:
    """Whether canonical in some order, and the first rule that rejects a step in the order of ``state``."""
    current = State.root(state.spec)
    for step in state.steps:
        rule = rejecting_rule(current, step, rules)
        if rule is not None:
            return has_canonical_order(state, rules, effort=effort), rule.name
        current = current.apply(step)
    return True, None
