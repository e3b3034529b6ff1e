"""Regularised evolution (Real and others, Regularized evolution for image classifier architecture search, AAAI 2019).

A population of the last operators told; the parent is the best of a random few, the child a mutation of it, and the
oldest dies. An operator is the list of its steps. A mutation either grows the steps after a random place anew, or
changes one step and follows the rest of the old ones as far as they can still be taken.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from syno_lab.errors import SearchError
from syno_lab.search.asking import Measures, Search
from syno_lab.search.descent import claim, draw
from syno_lab.search.mutation import mutated
from syno_lab.search.protocol import State, Trail

#: Mutations in a row that give nothing new before an operator is drawn at random instead.
MUTATIONS = 50


class RegularizedEvolution(Search):
    """Regularised (ageing) evolution.

    Args:
        root: the space.
        rng: the only source of chance.
        population: how many live; the first so many are drawn at random (the paper's P, 100 there).
        tournament: how many are drawn to find a parent (S, 25 there).

    Raises:
        SearchError: for a population below 1, or a tournament below 1 or above the population.
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
        if len(self.population) == self.population.maxlen:
            for _ in range(MUTATIONS):
                few = self.rng.sample(list(self.population), self.tournament)
                parent, _ = max(few, key=lambda member: member[1])
                steps = mutated(self.root, parent.steps, self.rng, self.facts)
                operator = None if steps is None else claim(steps[-1].state, self.facts, self._known)
                if steps is not None and operator is not None:
                    return Trail(steps), operator
        return draw(self.root, self.rng, self.facts, self._known, self._should_stop)

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:
        self.population.append((trail, reward))
