"""Search by an estimate: what it promises, and what a prior changes. All searches' promises: ``test_searches.py``."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from search_spaces import Words

from syno_lab.errors import SearchError
from syno_lab.search import EstimateSearch, RandomSearch, Search
from syno_lab.search.bayesian import Portrait, Settings
from syno_lab.search.protocol import bag


def letters(word: str) -> float:
    """The share of letters a."""
    return word.count("a") / len(word)


def rewards_of(search: Search, trials: int) -> list[float]:
    """The rewards of a search for words with many letters a."""
    for _ in range(trials):
        candidate = search.ask()
        assert candidate is not None
        search.tell(candidate, letters(candidate.operator))
    return [reward for _, reward in search.told]


def test_it_finds_what_chance_does_not() -> None:
    def mean(make: Callable[..., Search]) -> float:
        runs = [rewards_of(make(Words("abcdefgh", 5), random.Random(seed)), 100) for seed in range(6)]
        return float(np.mean([rewards[50:] for rewards in runs]))

    assert mean(RandomSearch) == pytest.approx(1 / 8, abs=0.05)
    assert mean(EstimateSearch) > 0.35


def test_the_highest_bound_is_asked_for_and_the_others_wait() -> None:
    search = EstimateSearch(Words("abcd", 6), random.Random(5), settings=Settings(chance=0, unknown=0, kept=30))
    rewards_of(search, 10)
    for _ in range(10):
        before = search.pool
        candidate = search.ask()
        assert candidate is not None
        end = search.trail_of(candidate).end
        assert end.key not in search.pool
        assert len(search.pool) == 30
        # What was compared and not taken promises less, by what was known then.
        shown = [steps for steps in (*before.values(), *search.pool.values()) if steps[-1].state.key != end.key]
        asked = [search._portrait(search.trail_of(candidate).steps), *map(search._portrait, shown)]
        mean, deviation = search.estimate.beliefs(asked)
        assert (mean + search.settings.bound * deviation).argmax() == 0
        search.tell(candidate, letters(candidate.operator))


def test_by_chance_alone_nothing_is_preferred() -> None:
    def share(chance: float) -> float:
        search = EstimateSearch(Words("abcd", 5), random.Random(7), settings=Settings(chance=chance, unknown=0))
        return float(np.mean(rewards_of(search, 60)))

    assert share(1) == pytest.approx(0.25, abs=0.08)
    assert share(0) > 0.45


def test_what_is_outstanding_is_not_asked_for_in_other_words() -> None:
    # With rewards that tell where to go, eight questions at once still go to different places.
    search = EstimateSearch(Words("abcdef", 6), random.Random(3))
    rewards_of(search, 30)
    asked = [search.ask() for _ in range(8)]
    assert len({candidate.operator for candidate in asked if candidate is not None}) == 8


def test_the_pool_holds_operators_of_the_space_alone() -> None:
    refused = frozenset(word for word in Words("ab", 5).all() if word.startswith("aa"))
    search = EstimateSearch(Words("ab", 5, refused=refused), random.Random(4))
    asked = []
    while (candidate := search.ask()) is not None:
        asked.append(candidate.operator)
        search.tell(candidate, letters(candidate.operator))
        assert all(steps[-1].state.operator() is not None for steps in search.pool.values())
    assert sorted(asked) == sorted(Words("ab", 5).all() - refused)


def test_it_grows_the_best_anew() -> None:
    # Of words by chance a letter in eight is right; those that begin like the best keep its right letters.
    def mean(**settings: int) -> float:
        chosen = Settings(chance=0, unknown=0, **settings)
        runs = [
            rewards_of(EstimateSearch(Words("abcdefgh", 8), random.Random(seed), settings=chosen), 50)
            for seed in range(4)
        ]
        return float(np.mean([rewards[25:] for rewards in runs]))

    assert mean(strays=6, near=6) > mean(strays=12, near=0) + 0.05


def test_the_least_known_comes_first_where_it_is_wanted() -> None:
    search = EstimateSearch(Words("abcd", 6), random.Random(5))
    rewards_of(search, 10)
    trails = list(search.drawn(24))
    assert len(trails) > 10
    mean, deviation = search.estimate.beliefs([Portrait(bag(steps), Counter()) for steps in trails])
    usual = search.in_order(trails)
    assert usual[0] is trails[(mean + search.settings.bound * deviation).argmax()]
    wanted = search.in_order(trails, "unknown")
    assert wanted[0] is trails[deviation.argmax()]
    assert wanted[1:] == [steps for steps in usual if steps is not wanted[0]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"near": -1}, "near: expected 0 or more, found -1"),
        ({"parents": 0}, "parents: expected 1 or more, found 0"),
        ({"strays": -1}, "strays: expected 0 or more, found -1"),
        ({"kept": -1}, "kept: expected 0 or more, found -1"),
        ({"bound": -1}, "bound: expected 0 or more, found -1"),
        ({"chance": 1.5}, "chance: expected a share from 0 to 1, found 1.5"),
        ({"chance": 0.5, "unknown": 0.6}, "unknown: expected a share from 0 to what chance leaves, found 0.6"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        Settings(**settings)


def test_once_it_is_to_stop_nothing_more_is_drawn() -> None:
    search = EstimateSearch(Words("abcd", 6, dead=frozenset("abcd")), random.Random(4))
    assert search.ask(lambda: True) is None
    search = EstimateSearch(Words("abc", 3, dead=frozenset("abc")), random.Random(0), prior=letters)
    assert search.ask(lambda: True) is None
    assert list(search.drawn()) == []


# -- a prior ---------------------------------------------------------------------------------------------------------


def small(space: Words, rng: random.Random, prior: Callable[[str], float] | None) -> EstimateSearch:
    return EstimateSearch(space, rng, prior=prior, settings=Settings(strays=8, near=4, kept=40))


def test_a_right_prior_is_asked_first_and_a_wrong_one_is_overcome() -> None:
    def runs(prior: Callable[[str], float] | None) -> list[list[float]]:
        return [rewards_of(small(Words("abcdef", 8), random.Random(seed), prior), 40) for seed in range(6)]

    plain, helped, misled = (runs(prior) for prior in (None, letters, lambda word: -letters(word)))
    first = [np.mean([rewards[:5] for rewards in found]) for found in (plain, helped, misled)]
    assert first[1] > first[0] + 0.1
    assert first[2] < first[0]
    last = [np.mean([rewards[20:] for rewards in found]) for found in (plain, helped, misled)]
    assert min(last) > max(last) - 1 / 8
    assert min(last) > first[0] + 0.1


def test_what_a_prior_is_asked_of_is_an_operator_of_the_space() -> None:
    space = Words("abc", 4, dead=frozenset({"ab"}), refused=frozenset({"aacc", "bbbb", "cabc"}))
    seen: list[str] = []
    search = small(space, random.Random(5), lambda word: seen.append(word) or 0.5)
    asked = []
    while (candidate := search.ask()) is not None:
        asked.append(candidate.operator)
        search.tell(candidate, letters(candidate.operator))
    assert Counter(asked) == Counter(space.all())
    assert set(seen) <= space.all()
