"""A search by a reward of the user's own, as the manual says it is done: ask, reward, tell."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

from search_spaces import SPECS

from syno_lab.pgraphs.space import synthesis_space
from syno_lab.search import EstimateSearch, RandomSearch, Search
from syno_lab.synthesis.sampler import Sampler

SPEC = SPECS["two weights"]


def test_a_search_goes_where_a_reward_of_one_s_own_is_high() -> None:
    most = max(operator.params() for operator in Sampler.from_spec(SPEC).enumerate())

    def asked(make: Callable[..., Search], seed: int) -> int:
        """How many operators it asks for until the one with most parameters, which is what is rewarded."""
        search = make(synthesis_space(SPEC), random.Random(seed))
        for number in count(1):
            candidate = search.ask()
            assert candidate is not None
            reward = candidate.operator.params() / most
            search.tell(candidate, reward)
            if reward == 1:
                return number
        raise AssertionError

    by_estimate, by_chance = ([asked(make, seed) for seed in range(6)] for make in (EstimateSearch, RandomSearch))
    assert sum(by_estimate) < sum(by_chance) / 2
