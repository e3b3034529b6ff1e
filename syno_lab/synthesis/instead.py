"""The canonical steps in place of one that a rule prunes, taken from where they begin (Syno, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.candidates import Verdict
from syno_lab.synthesis.rebuilding import over
from syno_lab.synthesis.rewrites_parts import Side
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule


@dataclass(frozen=True)
class Instead:
    """A way to the function of a pruned step by canonical steps.

    Attributes:
        back: how many steps are undone first, those that the rule rewrites.
        steps: what is taken then: the undone steps that the rule does not touch, and behind them ``canonical``.
        canonical: the steps on the right side of the rule; empty where undoing alone is the way.
        state: where it leads to.
    """

    back: int
    steps: tuple[Step, ...]
    canonical: tuple[Step, ...]
    state: State


def instead(path: Sequence[State], verdict: Verdict, rules: tuple[Rule, ...] = RULES) -> Instead | None:
    """The canonical way in place of a pruned step.

    Args:
        path: the states from the output to the one in which the step was proposed, one step from each to the next.
        verdict: of that step.
        rules: what is canonical.

    Returns:
        None where the rule has no formula, its canonical side begins with a REDUCE, or a step of the way is pruned
        itself.
    """
    rewrite = verdict.rewrite
    if rewrite is None:
        return None
    start = next((n for n in range(len(path) - 1, -1, -1) if set(rewrite.bottoms) <= set(path[n].data)), None)
    before, after = (_real(side, rewrite.bottoms) for side in (rewrite.before, rewrite.after))
    if start is None or before is None or after is None:
        return None
    kept = [step for step in path[-1].steps[len(path[start].steps) :] if step not in before]
    state = path[start]
    try:
        for step in kept:
            state = state.apply(step)
        for step in after:
            if rejecting_rule(state, step, rules) is not None:
                return None
            state = state.apply(step)
    except SynoError:  # what was kept needs what was rewritten
        return None
    return Instead(len(path) - 1 - start, (*kept, *after), after, state)


def _real(side: Side, bottoms: Sequence[Coordinate]) -> tuple[Step, ...] | None:
    """The steps of one side of a rule on the coordinates that its wildcards stand for."""
    real: dict[Coordinate, Coordinate] = dict(zip(side.state.output, bottoms, strict=True))
    steps = []
    for step in side.state.steps:
        if step.primitive == "REDUCE" or not {*step.operands, *step.given} <= set(real):
            return None
        made = over(step, real)
        real |= zip(side.state.results(step), side.state.results(made), strict=True)
        steps.append(made)
    return tuple(steps)
