"""Random walks from the output, step by step, for what the ablations measure.

By default the primitive is drawn first, evenly among those that have a step that is accepted, then one of its steps,
evenly; or a step is drawn evenly among all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Literal

from syno_lab.effort import Effort
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.budgets import fits
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.orders import is_in_order
from syno_lab.synthesis.rules import Rule, rejecting_rule
from syno_lab.synthesis.space import proposals, room_for_contractions, sums_no_weights

#: What is drawn evenly: the primitive and then one of its steps, or one of all steps.
Evenly = Literal["primitives", "steps"]


def random_walk(
    spec: Spec,
    rules: tuple[Rule, ...],
    guided: bool,
    rng: random.Random,
    effort: Effort | None = None,
    *,
    evenly: Evenly = "primitives",
) -> Iterator[State]:
    """The states after 1, 2, … ``max_primitives`` random steps; fewer where no step is left.

    Args:
        spec: where the walk begins, and its budgets.
        rules: only steps that none of them rejects are taken.
        guided: take only steps whose shape distance fits the steps that are left.
        rng: chance.
        effort: what it may take; by default half of the machine's free memory, and any time.
        evenly: what is drawn evenly.

    Raises:
        EffortError: for what exceeds ``effort``.
    """
    watched = effort or Effort()
    state = State.root(spec)
    for left in reversed(range(spec.limits.max_primitives)):

        def accepts(here: State, step: Step, left: int = left) -> State | None:
            if rejecting_rule(here, step, rules) is not None:
                return None
            after = here.apply(step)
            return after if not guided or _is_within_reach(after, left, watched) else None

        following = _random_step(state, accepts, rng, watched, evenly)
        if following is None:
            return
        state = following
        yield state


def is_operator(state: State) -> bool:
    """Whether search would give this state, rules apart: complete, in the space, within all budgets."""
    return (
        len(state.weights) >= state.spec.limits.min_weights
        and state.is_complete
        and sums_no_weights(state)
        and fits(state.operator())
        and (not state.spec.unordered or any(is_in_order(Operator(state, match)) for match in state.matches()))
    )


def _random_step(
    state: State, accepts: Callable[[State, Step], State | None], rng: random.Random, effort: Effort, evenly: Evenly
) -> State | None:
    """The state after a random step that is accepted; None if none is."""
    by_primitive: dict[str, list[Step]] = {}
    effort.make_room(*room_for_contractions(state))
    for step in proposals(state):
        effort.tick("listing the next steps")
        by_primitive.setdefault(step.primitive if evenly == "primitives" else "", []).append(step)
    while by_primitive:
        primitive = rng.choice(list(by_primitive))
        steps = by_primitive[primitive]
        while steps:
            effort.tick("looking for a next step")
            place = rng.randrange(len(steps))
            steps[place], steps[-1] = steps[-1], steps[place]
            following = accepts(state, steps.pop())
            if following is not None:
                return following
        del by_primitive[primitive]
    return None


def _is_within_reach(state: State, left: int, effort: Effort) -> bool:
    needed = distance(state, effort=effort)
    return needed is not None and max(needed, state.spec.limits.min_weights - len(state.weights)) <= left
