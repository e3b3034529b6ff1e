"""Search by an estimate: Bayesian optimisation over random descents, without a tree.

For each question a few operators are drawn and put into a pool (:mod:`.pool`): some by chance from the root, as likely
as the space's weights make them, and some by growing one of the best operators anew after a random place, since of a
large space chance alone shows little that is like the best (Hutter, Hoos and Leyton-Brown, Sequential model-based
optimization for general algorithm configuration, 2011, search around the best likewise). The one with the highest upper
confidence bound of its estimated reward (:mod:`.estimate`) is asked for; the others stay. A share of the questions
explores.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from syno_lab.search import pool
from syno_lab.search.asking import Measures, Search, check_numbers
from syno_lab.search.descent import claim, draw
from syno_lab.search.mutation import regrown
from syno_lab.search.pool import Pool
from syno_lab.search.protocol import State, Step, Trail


@dataclass(frozen=True)
class Settings(pool.Settings):
    """How the pool is filled, and the shares that explore.

    Attributes:
        near: how many descents are made for a question from a random place of one of the best operators; from the root
            instead until so many rewards are told that the best are a half of them.
        parents: how many operators count as the best.

    Raises:
        SearchError: for numbers that make no sense.
    """

    strays: int = 8
    near: int = 8
    parents: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(
            ("near", self.near, self.near >= 0, "0 or more"),
            ("parents", self.parents, self.parents >= 1, "1 or more"),
        )


class EstimateSearch(Search):
    """Search by an estimate.

    Args:
        root: the space.
        rng: the only source of chance.
        settings: how the pool is filled, and the shares that explore.
        prior: a number for an operator, greater where more is expected of it, before any reward: the mean of the
            estimate. Rewards decide how much it counts.
    """

    def __init__(
        self,
        root: State,
        rng: random.Random,
        *,
        settings: Settings | None = None,
        prior: Callable[[Any], float] | None = None,
    ) -> None:
        super().__init__(root, rng)
        self.settings = Settings() if settings is None else settings
        self.pool = Pool(root, rng, self.facts, self.settings, prior)
        self._best: list[tuple[float, Trail]] = []  # the parents, the best first; of equals the earlier

    def _propose(self) -> tuple[Trail, Any] | None:
        wish = self.pool.toss()
        if wish != "chance":
            near = list(self._near())
            more = 0 if self._are_parents_best else self.settings.near
            drawn = self.pool.drawn(should_stop=self._should_stop, more=more)
            fresh = {steps[-1].state.key: steps for steps in (*drawn, *near)}
            for steps in self.pool.in_order(self.pool.with_kept(list(fresh.values())), self.waiting, wish):
                operator = claim(steps[-1].state, self.facts, self._known)
                if operator is not None:
                    return Trail(steps), operator
        return draw(self.root, self.rng, self.facts, self._known, self._should_stop)

    @property
    def _are_parents_best(self) -> bool:
        """Whether enough rewards are told for the parents to be better than others."""
        return len(self.pool.estimate) >= 2 * self.settings.parents

    def _near(self) -> Iterator[tuple[Step, ...]]:
        """Operators that begin like one of the best."""
        for _ in range(self.settings.near if self._are_parents_best else 0):
            if self._should_stop():
                return
            _, parent = self.rng.choice(self._best)
            steps = regrown(self.root, parent.steps, self.rng.randrange(len(parent.steps)), self.rng, self.facts)
            if steps is not None:
                yield steps

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:
        self.pool.learn(trail, reward)
        self._best = nlargest(self.settings.parents, [*self._best, (reward, trail)], key=lambda pair: pair[0])
