"""The tree search of searches from before there were methods of their own for the tree and for the estimate.

A Monte Carlo tree search with RAVE (:mod:`.mcts`) whose descents go into a pool (:mod:`.pool`): the tree leads to a
place, several descents are made from it and some from the root by chance alone, and the operator that the estimate
promises most of is taken. On recorded trainings its gain over random search is the estimate's, and none of the tree's
(``benchmarks/README.md``); :class:`.EstimateSearch` is the simpler search. It stays, so that stored searches go on with
what they began with, and for comparison.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from syno_lab.search import mcts, pool
from syno_lab.search.asking import check_numbers
from syno_lab.search.descent import claim
from syno_lab.search.mcts import MonteCarloTreeSearch, simulate, steps_along
from syno_lab.search.policies import Select, rave
from syno_lab.search.pool import Pool, Wish
from syno_lab.search.protocol import State, Step, Trail
from syno_lab.search.tree import Place, Record, Tree


@dataclass(frozen=True)
class Settings(mcts.Settings, pool.Settings):
    """How the tree is searched and the pool is filled.

    Attributes:
        completions: how many descents are made from a new place, whose operators are compared with those of the pool.

    Raises:
        SearchError: for numbers that make no sense.
    """

    looks: int = 8
    virtual_loss: float = 1.0
    completions: int = 8

    def __post_init__(self) -> None:
        mcts.Settings.__post_init__(self)
        pool.Settings.__post_init__(self)
        check_numbers(("completions", self.completions, self.completions >= 1, "1 or more"))


class TreeWithEstimate(MonteCarloTreeSearch):
    """Monte Carlo tree search with RAVE and an estimate.

    Args:
        root, rng, observe: of :class:`.MonteCarloTreeSearch`.
        policy: the value of a step in ``select``; None: RAVE.
        settings: of the tree and the pool.
        prior: of :class:`.Pool`.
    """

    settings: Settings

    def __init__(
        self,
        root: State,
        rng: random.Random,
        *,
        policy: Select | None = None,
        settings: Settings | None = None,
        prior: Callable[[Any], float] | None = None,
        observe: Callable[[Tree], None] | None = None,
    ) -> None:
        chosen = Settings() if settings is None else settings
        super().__init__(root, rng, policy=policy or rave(), settings=chosen, observe=observe)
        self.pool = Pool(root, rng, self.facts, chosen, prior)
        self._wish: Wish = "promise"

    def _propose(self) -> tuple[Trail, Any] | None:
        self._wish = self.pool.toss()
        if self._wish == "chance" and not self.is_exhausted:
            for steps in self.pool.drawn(should_stop=self._should_stop):
                operator = claim(steps[-1].state, self.facts, self._known)
                if operator is not None:
                    trail = Trail(steps)
                    self._enter(trail, self._path(trail))
                    return trail, operator
        return super()._propose()

    def _ways(self, path: Sequence[Place], knower: Record) -> Iterator[tuple[tuple[Step, ...], bool]]:
        before = steps_along(path)
        trails = [(*before, *rest) for rest in self._completions(path[-1], knower)]
        below = {id(steps) for steps in trails}
        if not path[-1].state.is_complete:
            trails += self.pool.drawn([steps[-1].state.key for steps in trails], self._should_stop)
            trails = self.pool.with_kept(trails)
        for steps in self.pool.in_order(trails, self.waiting, self._wish):
            yield steps, id(steps) in below

    def _completions(self, place: Place, knower: Record) -> list[tuple[Step, ...]]:
        """Different ways on from a place to complete states; none where descents come to nothing."""
        found: dict[Hashable, tuple[Step, ...]] = {}
        for _ in range(self.settings.completions):
            rest = simulate(self.tree, place, self.settings, self.rng, knower)
            if rest is None:
                break
            found.setdefault(rest[-1].state.key if rest else None, rest)
            if not rest or not self.pool.compares:  # nothing to choose, or nothing to choose by
                break
        return list(found.values())

    def _learn(self, trail: Trail, reward: float) -> None:
        super()._learn(trail, reward)
        self.pool.learn(trail, reward)
