"""Random descents from the root to operators that the search has not met; all searches use them."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from syno_lab.search.protocol import Child, State, Step, Trail

#: Dead ends that one descent turns back from before it gives up; the next begins elsewhere.
TURNS = 30
#: Descents in vain after which some turn back more often, so that a space without more ends, but never all of them: a
#: space where few places have operators is not left by turning back.
ATTEMPTS = 200

Prefer = Callable[[Sequence[Step]], Step]
Stop = Callable[[], bool]


def never() -> bool:
    """The way of asking on."""
    return False


@dataclass
class Facts:
    """Facts about a space that hold for every search of it.

    Attributes:
        dead: keys of partial states from which no operator can be completed.
        ended: keys of complete states that are not to be asked for (again).
    """

    dead: set[Hashable] = field(default_factory=set)
    ended: set[Hashable] = field(default_factory=set)

    def is_open(self, state: State) -> bool:
        """Whether it may still lead to something."""
        return state.key not in (self.ended if state.is_complete else self.dead)


class Fork:
    """The children of a state while a descent stands there, tried in a random order by their weights."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.rest: list[Child] = list(state.children())
        self.spare: list[Step] = []
        self.is_dead = True  # until something below is found, or was found before

    def draw(self, rng: random.Random, facts: Facts, width: int) -> list[Step]:
        """At least one step that is open, up to ``width`` looked at; none where none is left."""
        found = [step for step in self.spare if self._is_open(step, facts)]
        while self.rest and len(found) < width:
            child = pop_weighted(self.rest, rng)
            found += [step for step in child.steps() if self._is_open(step, facts)]
        self.spare = found
        return found

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
    """Random steps from ``start`` to a complete state that is not ended; dead ends met are noted in ``facts``.

    Args:
        start: a partial state.
        rng: the only source of chance.
        facts: what is known; added to.
        prefer: chooses among the steps that were looked at; None: the one drawn by weight.
        width: how many steps are looked at before one is chosen.
        turns: dead ends after which it gives up; None: it does not, and None as a result means that nothing is left.
        should_stop: asked at each dead end; it gives up once this says so.
    """
    forks = [Fork(start)]
    taken: list[Step] = []
    while forks:
        fork = forks[-1]
        steps = fork.draw(rng, facts, width)
        if not steps:
            if fork.is_dead:
                facts.dead.add(fork.state.key)
            forks.pop()
            if taken:
                taken.pop()
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
            return (*taken, step)
        taken.append(step)
        forks.append(Fork(step.state))
    return None


def draw(
    root: State, rng: random.Random, facts: Facts, known: set[int], should_stop: Stop = never
) -> tuple[Trail, Any] | None:
    """A random operator whose hash is not ``known``; None where there is none left, or it was stopped."""
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
            if met <= turns:  # it came to the end of the space, or was stopped
                return None
            continue
        operator = claim(steps[-1].state, facts, known)
        if operator is not None:
            return Trail(steps), operator
    raise AssertionError("unreachable")


def _restart(attempt: int) -> int:
    """How many times :data:`TURNS` a descent turns back: 1, and after :data:`ATTEMPTS` 1, 1, 2, 1, 1, 2, 4, ….

    That sequence costs at most a logarithm more than the best one for the space, which nobody knows (Luby, Sinclair and
    Zuckerman 1993, "Optimal speedup of Las Vegas algorithms").
    """
    number = attempt - ATTEMPTS + 1
    while number > 0:
        power = (number + 1).bit_length() - 1
        if number + 1 == 1 << power:
            return 1 << (power - 1)
        number -= (1 << power) - 1
    return 1


def claim(end: State, facts: Facts, known: set[int]) -> Any | None:
    """The operator of a complete state, if the space has it and its hash is not known; in any case not met again."""
    facts.ended.add(end.key)
    operator = end.operator()
    return None if operator is None or hash(operator) in known else operator


def pop_weighted(children: list[Child], rng: random.Random) -> Child:
    """One child by weight, taken off the list."""
    (index,) = rng.choices(range(len(children)), [child.weight for child in children])
    return children.pop(index)
