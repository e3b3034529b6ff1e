"""Search by an estimate: Bayesian optimisation over random descents, without a tree.

For each question operators are drawn by chance from the root, as likely as the space's weights make them, and put into
a pool (:mod:`.pool`). The one with the highest upper confidence bound of its estimated reward (:mod:`.estimate`) is
asked for; the others stay in the pool. A share of the questions explores.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from syno_lab.search.asking import Search
from syno_lab.search.descent import claim, draw
from syno_lab.search.pool import Pool, Settings
from syno_lab.search.protocol import State, Trail


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
        self.pool = Pool(root, rng, self.facts, self.settings, prior, is_checked=True)

    def _propose(self) -> tuple[Trail, Any] | None:
        wish = self.pool.toss()
        if wish != "chance":
            trails = self.pool.with_kept(list(self.pool.drawn(should_stop=self._should_stop)))
            for steps in self.pool.in_order(trails, self.waiting, wish):
                operator = claim(steps[-1].state, self.facts, self._known)
                if operator is not None:
                    return Trail(steps), operator
        return draw(self.root, self.rng, self.facts, self._known, self._should_stop)

    def _expect(self, trail: Trail) -> None:
        pass

    def _learn(self, trail: Trail, reward: float) -> None:
        self.pool.learn(trail, reward)

    def _release(self, trail: Trail) -> None:
        pass
