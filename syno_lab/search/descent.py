"""Random descents from the root to operators that the search has not met; all searches use descents."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from syno_lab.search.protocol import Child, State, Step, Trail

#: The limit of dead ends in one descent; the next descent begins elsewhere.
TURNS = 30
#: The number of failed descents after which some descents may meet more dead ends, to notice an exhausted space. Most
#: descents keep the low limit, because more attempts after dead ends do not help where few states have operators.
ATTEMPTS = 200

Prefer = Callable[[Sequence[Step]], Step]
Stop = Callable[[], bool]


def never() -> bool:
    """Return False: never stop."""
    return False


@dataclass
class Facts:
    """Facts about a search space that hold for every search.

    Attributes:
        dead: keys of partial states from which no operator can be completed.
        ended: keys of complete states that the search must not ask for (again).
    """

    dead: set[Hashable] = field(default_factory=set)
    ended: set[Hashable] = field(default_factory=set)

    def is_open(self, state: State) -> bool:
        """Return whether the state may still lead to a new operator."""
        return state.key not in (self.ended if state.is_complete else self.dead)


class Fork:
    """The children of a state during a descent, tried in a random order by their weights."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.rest: list[Child] = list(state.children())
        self.spare: list[Step] = []
        self.is_dead = True  # False once a descent meets a complete state

    def draw(self, rng: random.Random, facts: Facts, width: int) -> list[Step]:
        """Draw children until they have ``width`` open steps or no child is left; return the open steps."""
        open_steps = [step for step in self.spare if self._is_open(step, facts)]
        while self.rest and len(open_steps) < width:
            child = pop_weighted(self.rest, rng)
            open_steps += [step for step in child.steps() if self._is_open(step, facts)]
        self.spare = open_steps
        return open_steps

    def _is_open(self, step: Step, facts: Facts) -> bool:
        if facts.is_open(step.state):
            return True
        if step.state.is_complete:
            self.is_dead = False
        return False


def descend(
    start: State,
    rng: random.Random,
    facts: Facts,
    *,
    prefer: Prefer | None = None,
    width: int = 1,
    turns: int | None = TURNS,
    should_stop: Stop = never,
) -> tuple[Step, ...] | None:
    """Draw random steps from ``start`` to a complete state that is not ended; add the met dead ends to ``facts``.

    Args:
        start: a partial state.
        rng: the only random generator that is used.
        facts: the known facts; the descent adds dead ends.
        prefer: a function that chooses among the drawn steps; None means the first drawn step.
        width: how many steps are drawn before one is chosen.
        turns: the limit of dead ends; None: no limit, and a result of None means that the space is exhausted.
        should_stop: called at each dead end; True ends the descent.
    """
    forks = [Fork(start)]
    path: list[Step] = []
    while forks:
        fork = forks[-1]
        steps = fork.draw(rng, facts, width)
        if not steps:
            if fork.is_dead:
                facts.dead.add(fork.state.key)
            forks.pop()
            if path:
                path.pop()
            if forks and not fork.is_dead:
                forks[-1].is_dead = False
            if turns is not None:
                turns -= 1
            if (turns is not None and turns < 0) or should_stop():
                return None
            continue
        step = steps[0] if prefer is None or len(steps) == 1 else prefer(steps)
        fork.spare.remove(step)
        if step.state.is_complete:
            return (*path, step)
        path.append(step)
        forks.append(Fork(step.state))
    return None


def draw(
    root: State, rng: random.Random, facts: Facts, known: set[int], should_stop: Stop = never
) -> tuple[Trail, Any] | None:
    """Draw a random operator with a hash that is not in ``known``; None if no operator is left or the search stops."""
    for attempt in count():
        if should_stop():
            return None
        turns, met = TURNS * _restart(attempt), 0

        def gives_up(turns: int = turns) -> bool:
            nonlocal met
            met += 1
            return met > turns or should_stop()

        steps = descend(root, rng, facts, turns=None, should_stop=gives_up)
        if steps is None:
            if met <= turns:  # an exhausted space, or a stopped search
                return None
            continue
        operator = claim(steps[-1].state, facts, known)
        if operator is not None:
            return Trail(steps), operator
    raise AssertionError("unreachable")


def _restart(attempt: int) -> int:
    """Return an attempt's factor for :data:`TURNS`: 1 in the first :data:`ATTEMPTS`, then 1, 1, 2, 1, 1, 2, 4, ….

    The sequence of factors costs at most a logarithmic factor more time than the best sequence for the space. The best
    sequence is unknown (Luby, Sinclair and Zuckerman 1993, "Optimal speedup of Las Vegas algorithms").
    """
    number = attempt - ATTEMPTS + 1
    while number > 0:
        power = (number + 1).bit_length() - 1
        if number + 1 == 1 << power:
            return 1 << (power - 1)
        number -= (1 << power) - 1
    return 1


def claim(end: State, facts: Facts, known: set[int]) -> Any | None:
    """Return the operator of a complete state if the operator is in the space and new; mark the state as ended."""
    facts.ended.add(end.key)
    operator = end.operator()
    return None if operator is None or hash(operator) in known else operator


def pop_weighted(children: list[Child], rng: random.Random) -> Child:
    """Draw one child by weight and remove it from the list."""
    (index,) = rng.choices(range(len(children)), [child.weight for child in children])
    return children.pop(index)
