"""Operators made from an earlier one: its steps after a place grown anew, or one step changed and the rest followed.

:class:`RegularizedEvolution` searches by them (Real and others, Regularized evolution for image classifier architecture
search, AAAI 2019). A search knows a step only by its words (:attr:`syno_lab.protocol.SearchStep.words`): steps are
*alike* in the share of their words that they have in common, and *neighbours* where one word of one stands for one word
of the other, such as another size of one operand.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from syno_lab.errors import SearchError
from syno_lab.protocol import SearchStep
from syno_lab.search.asking import Measures, Search
from syno_lab.search.descent import Facts, descend
from syno_lab.search.protocol import State, Step, Steps, Trail, bag

#: The least share of words that a step has in common with the old one that it is taken for.
LEAST_ALIKE = 1 / 3
#: Mutations in a row that give nothing new before an operator is drawn at random instead.
MUTATIONS = 50

#: Chooses the step that is taken for an old one among those that are open; None for none.
Match = Callable[[Sequence[Step], SearchStep], Step | None]


def open_steps(state: State, facts: Facts) -> list[Step]:
    """All steps from ``state`` that may still lead to something."""
    return [step for child in state.children() for step in child.steps() if facts.is_open(step.state)]


def regrown(root: State, steps: Sequence[Step], place: int, rng: random.Random, facts: Facts) -> Steps | None:
    """The first ``place`` steps, and random ones from there; None where this attempt comes to nothing."""
    before = tuple(steps[:place])
    rest = descend(before[-1].state if before else root, rng, facts)
    return None if rest is None else (*before, *rest)


def followed(
    taken: Sequence[Step], old: Iterable[SearchStep], match: Match, rng: random.Random, facts: Facts
) -> Steps | None:
    """``taken``, then the ``old`` steps as far as ``match`` finds them, then random ones; None where that fails."""
    found = list(taken)
    for step in old:
        again = match([one for child in found[-1].state.children() for one in child.steps()], step)
        if again is None or not facts.is_open(again.state):
            break
        found.append(again)
    if found[-1].state.is_complete:
        return tuple(found)
    return regrown(found[-1].state, found, len(found), rng, facts)


def mutated(root: State, steps: Sequence[Step], rng: random.Random, facts: Facts) -> Steps | None:
    """The steps grown anew from a random place, or with another step there, each as often.

    They lead to a complete state that was not met before; None where this attempt gives none.
    """
    place = rng.randrange(len(steps))
    if rng.random() < 0.5:
        return regrown(root, steps, place, rng, facts)
    before = tuple(steps[:place])
    at = before[-1].state if before else root
    others = [step for step in open_steps(at, facts) if step.name != steps[place].name]
    if not others:
        return None
    return followed((*before, rng.choice(others)), steps[place + 1 :], same, rng, facts)


def same(steps: Sequence[Step], old: SearchStep) -> Step | None:
    """The step that does what ``old`` did, the same one if it can be; None where there is none."""
    found = [step for step in steps if step.actions == old.actions]
    return next((step for step in found if step.name == old.name), found[0] if found else None)


def most_alike(steps: Sequence[Step], old: SearchStep) -> Step | None:
    """The step that is most like ``old``, the same one if it can be; None where all are too different."""
    exact = same(steps, old)
    if exact is not None or not steps:
        return exact
    shares = [alike(step, old) for step in steps]
    highest = max(shares)
    return steps[shares.index(highest)] if highest >= LEAST_ALIKE else None


def alike(first: SearchStep, second: SearchStep) -> float:
    """The share of their words that two steps have in common, from 0 to 1; 1 for two without words."""
    x, y = bag([first]), bag([second])
    most = (x | y).total()
    return (x & y).total() / most if most else 1.0


def neighbours(steps: Iterable[Step], old: SearchStep) -> list[Step]:
    """The ``steps`` in which one word stands for one of ``old``'s."""
    words = bag([old])
    total = words.total()
    found = []
    for step in steps:
        others = bag([step])
        if others.total() == total and (words - others).total() == 1:
            found.append(step)
    return found


class RegularizedEvolution(Search):
    """Regularised (ageing) evolution: the parent is the best of a random few, the child a mutation, the oldest dies.

    Args:
        root: the space.
        rng: the only source of chance.
        population: how many live; the first so many are drawn at random (the paper's P, 100 there).
        tournament: how many are drawn to find a parent (S, 25 there).

    Raises SearchError for a population below 1, or a tournament below 1 or above the population.
    """

    def __init__(self, root: State, rng: random.Random, *, population: int = 50, tournament: int = 12) -> None:
        super().__init__(root, rng)
        if population < 1:
            raise SearchError(f"population: expected 1 or more, found {population}")
        if not 1 <= tournament <= population:
            raise SearchError(f"tournament: expected 1 to the population of {population}, found {tournament}")
        self.population: deque[tuple[Trail, float]] = deque(maxlen=population)
        self.tournament = tournament

    def _propose(self) -> tuple[Trail, Any] | None:
        return self._first_new(self._children() if len(self.population) == self.population.maxlen else ())

    def _children(self) -> Iterator[Steps | None]:
        for _ in range(MUTATIONS):
            few = self.rng.sample(list(self.population), self.tournament)
            parent, _ = max(few, key=lambda member: member[1])
            yield mutated(self.root, parent.steps, self.rng, self.facts)

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:
        self.population.append((trail, reward))
