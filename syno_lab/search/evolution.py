"""Mutations of an operator: all steps after a position are drawn again, or one step changes.

:class:`RegularizedEvolution` searches with these mutations (Real and others, Regularized evolution for image classifier
architecture search, AAAI 2019). A search sees only the words of a step (:attr:`syno_lab.protocol.SearchStep.words`).
Steps are *alike* by the share of words that they have in common. *Neighbours* differ in one word, such as another size
of one operand.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from syno_lab.protocol import SearchStep
from syno_lab.search.asking import Measures, Search, check_numbers
from syno_lab.search.descent import Facts, descend
from syno_lab.search.protocol import State, Step, Steps, Trail, bag

#: The least share of words that a step must have in common with the old step that it replaces.
LEAST_ALIKE = 1 / 3
#: The number of mutations in a row without a new operator after which an operator is drawn at random.
MUTATIONS = 50

#: A function that chooses a replacement for an old step among new steps; None if no new step is alike.
Match = Callable[[Sequence[Step], SearchStep], Step | None]


def open_steps(state: State, facts: Facts) -> list[Step]:
    """Return all steps from ``state`` that may still lead to a new operator."""
    return [step for child in state.children() for step in child.steps() if facts.is_open(step.state)]


def regrown(root: State, steps: Sequence[Step], place: int, rng: random.Random, facts: Facts) -> Steps | None:
    """Return the first ``place`` steps and random steps after them; None if this attempt fails."""
    before = tuple(steps[:place])
    rest = descend(before[-1].state if before else root, rng, facts)
    return None if rest is None else (*before, *rest)


def followed(
    taken: Sequence[Step], old: Iterable[SearchStep], match: Match, rng: random.Random, facts: Facts
) -> Steps | None:
    """Return ``taken``, then steps that ``match`` finds for ``old`` steps, then random steps; None if this fails."""
    steps = list(taken)
    for step in old:
        again = match([candidate for child in steps[-1].state.children() for candidate in child.steps()], step)
        if again is None or not facts.is_open(again.state):
            break
        steps.append(again)
    if steps[-1].state.is_complete:
        return tuple(steps)
    return regrown(steps[-1].state, steps, len(steps), rng, facts)


def mutated(root: State, steps: Sequence[Step], rng: random.Random, facts: Facts) -> Steps | None:
    """Choose a random position; draw all steps from there again or change the step there, each with probability 1/2.

    The result leads to a complete state that was not met before; None if this attempt fails.
    """
    place = rng.randrange(len(steps))
    if rng.random() < 0.5:
        return regrown(root, steps, place, rng, facts)
    before = tuple(steps[:place])
    at = before[-1].state if before else root
    different = [step for step in open_steps(at, facts) if step.name != steps[place].name]
    if not different:
        return None
    return followed((*before, rng.choice(different)), steps[place + 1 :], same, rng, facts)


def same(steps: Sequence[Step], old: SearchStep) -> Step | None:
    """Return a step with the actions of ``old``, if possible with its name too; None if no step has these actions."""
    matching = [step for step in steps if step.actions == old.actions]
    return next((step for step in matching if step.name == old.name), matching[0] if matching else None)


def most_alike(steps: Sequence[Step], old: SearchStep) -> Step | None:
    """Return the step most like ``old``, if possible the same step; None if all steps differ too much."""
    exact = same(steps, old)
    if exact is not None or not steps:
        return exact
    shares = [alike(step, old) for step in steps]
    highest = max(shares)
    return steps[shares.index(highest)] if highest >= LEAST_ALIKE else None


def alike(first: SearchStep, second: SearchStep) -> float:
    """Return the share of words that two steps have in common, from 0 to 1; 1 for two steps without words."""
    x, y = bag([first]), bag([second])
    most = (x | y).total()
    return (x & y).total() / most if most else 1.0


def neighbours(steps: Iterable[Step], old: SearchStep) -> list[Step]:
    """Return the ``steps`` that differ from ``old`` in exactly one word."""
    words = bag([old])
    bags = ((step, bag([step])) for step in steps)
    return [step for step, own in bags if own.total() == words.total() and (words - own).total() == 1]


class RegularizedEvolution(Search):
    """Regularised (ageing) evolution: the best of a few random members is mutated; the mutation replaces the oldest.

    Args:
        population: the size of the population, whose first members are random (P in the paper, where it is 100).
        tournament: the number of members among which the best is the parent (S in the paper, where it is 25).

    Raises SearchError for a population below 1, or a tournament below 1 or above the population.
    """

    def __init__(self, root: State, rng: random.Random, *, population: int = 50, tournament: int = 12) -> None:
        super().__init__(root, rng)
        check_numbers(
            ("population", population, population >= 1, "1 or more"),
            ("tournament", tournament, 1 <= tournament <= population, f"1 to the population of {population}"),
        )
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
