"""Evolution along the front: its weights are distances, it finds a front that is known, and it goes on after a kill."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from math import dist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_spaces import Words

from syno_lab.errors import SearchError
from syno_lab.search import SELECTIONS, ParetoEvolution, RandomSearch, Search, Selection
from syno_lab.search.pareto import chosen, pareto_weights

SPACE = Words("ab", 11)
Point = tuple[float, float]


def reward_of(word: str) -> float:
    """The share of its letters from the first on that are ``b``, a little for the others; 0 would be a failure."""
    first = len(word) - len(word.lstrip("b"))
    return (1 + 10 * first + word.count("b")) / (1 + 11 * len(word))


def cost_of(word: str) -> float:
    """Letters further on cost more."""
    return sum(place + 1 for place, letter in enumerate(word) if letter == "b")


def front(points: list[Point]) -> list[Point]:
    """By comparing all with all."""
    best = {p for p in points if not any(o != p and o[0] >= p[0] and o[1] <= p[1] for o in points)}
    return sorted(best, key=lambda point: point[1])


def run(search: Search, trials: int) -> list[str]:
    asked = []
    for _ in range(trials):
        candidate = search.ask()
        assert candidate is not None
        asked.append(candidate.operator)
        search.tell(candidate, reward_of(candidate.operator), {"cost": cost_of(candidate.operator)})
    return asked


def evolution(seed: int, selection: Selection | str = "paper") -> ParetoEvolution:
    return ParetoEvolution(SPACE, random.Random(seed), objectives=["cost"], start=10, selection=selection)


# -- the front ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("selection", "least"), [("paper", 12), ("code", 10)])
def test_a_front_is_found_long_before_the_space_is_exhausted(selection: str, least: int) -> None:
    """All 2,048 words are known, and so is the front: no b, then one b first, then two, …

    The rules of the published code take parents around one random point of the front, so they seldom come to its ends.
    """
    known = front([(reward_of(word), cost_of(word)) for word in SPACE.all()])
    assert len(known) == 12
    for seed in range(3):
        search = evolution(seed, selection)
        asked = run(search, 450)
        assert len(set(asked)) == len(asked)
        found = front([(reward_of(word), cost_of(word)) for word in asked])
        assert len(set(found) & set(known)) >= least
        assert [(one.reward, one.measures["cost"]) for one in search.front()] == [
            (reward_of(word), cost_of(word)) for word in asked if (reward_of(word), cost_of(word)) in found
        ]
        chance = run(RandomSearch(SPACE, random.Random(seed)), 450)
        assert len(set(front([(reward_of(word), cost_of(word)) for word in chance])) & set(known)) < 6


VALUES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
COSTS = st.sampled_from([0.0, 1.0, 2.0, 3.0, 10.0])


@given(st.lists(st.tuples(VALUES, COSTS), min_size=1, max_size=12))
def test_weights_are_distances_from_the_curve(points: list[Point]) -> None:
    line = front(points)
    ranges = [abs(line[-1][axis] - line[0][axis]) for axis in (0, 1)]
    for axis in (0, 1):
        if not ranges[axis]:
            ranges[axis] = max(p[axis] for p in points) - min(p[axis] for p in points) or 1.0
    scaled = [(reward / ranges[0], cost / ranges[1]) for reward, cost in points]
    ends = [(reward / ranges[0], cost / ranges[1]) for reward, cost in line]
    many = [*ends]
    for one, other in pairwise(ends):
        many += [tuple(a + (b - a) * i / 2000 for a, b in zip(one, other, strict=True)) for i in range(2001)]
    for point, place, weight in zip(points, scaled, pareto_weights(points), strict=True):
        assert (weight == 0) == (point in line) or weight < 1e-9
        # A place between two of the 2,001 on a segment is at most half a step away: 2 ** 0.5 / 4000 of its length.
        assert min(dist(place, one) for one in many) == pytest.approx(weight, abs=2e-3)


def test_parents_are_among_the_nearest() -> None:
    rng = random.Random(1)
    weights = [rng.random() for _ in range(200)]
    nearest = set(sorted(range(200), key=weights.__getitem__)[:20])
    for rules in (Selection(least=1), Selection(least=1, falling=True)):
        drawn = Counter(chosen(weights, rules, rng) for _ in range(4000))
        assert set(drawn) == nearest
        first, last = min(nearest, key=weights.__getitem__), max(nearest, key=weights.__getitem__)
        # 200 each, or about 10 to 1: both far from these bounds.
        assert (drawn[first] > 3 * drawn[last]) == rules.falling
    assert {chosen([3.0, 1.0, 2.0], Selection(least=2), rng) for _ in range(200)} == {1, 2}


def test_what_failed_or_is_below_the_floor_is_no_parent() -> None:
    search = evolution(0, Selection(floor=0.5, least=1))
    told: dict[str, float] = {}
    for number in range(10):
        candidate = search.ask()
        assert candidate is not None
        told[candidate.operator] = (0.0, 0.2, 0.6)[number % 3]
        search.tell(candidate, told[candidate.operator], {"cost": 1.0 if number % 3 else 0.0})
    parents = [search._parent() for _ in range(60)]
    assert {told[one.operator] for one in parents if one is not None} == {0.6}
    assert 0.0 not in {one.reward for one in search.front()}


def test_an_operator_without_a_measure_takes_no_part_in_its_front() -> None:
    search = ParetoEvolution(SPACE, random.Random(0), objectives=["latency"], start=2, selection=Selection(least=1))
    for measures in ({"latency": 2.0}, {}):
        candidate = search.ask()
        assert candidate is not None
        search.tell(candidate, 0.5 if measures else 0.9, measures)
    assert [one.measures for one in search.front()] == [{"latency": 2.0}]
    assert all(search._parent() is search.members[0] for _ in range(30))


# -- after a kill ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selection", SELECTIONS)
def test_replay_after_a_kill_is_the_uninterrupted_search(selection: str, fresh_seed: int) -> None:
    whole = evolution(fresh_seed, selection)
    asked = run(whole, 60)
    killed = evolution(fresh_seed, selection)
    done = run(killed, 35)
    records = [(one.operator, one.reward, one.measures) for one in killed.members]
    assert done == asked[:35]
    resumed = evolution(fresh_seed, selection)
    assert resumed.resume(records) == 35
    assert run(resumed, 25) == asked[35:]
    assert [one[1:] for one in resumed.members] == [one[1:] for one in whole.members]


def test_scalar_searches_ignore_measures(rng: random.Random) -> None:
    search = RandomSearch(SPACE, rng)
    candidate = search.ask()
    assert candidate is not None
    search.tell(candidate, 0.5, {"cost": 3.0})
    assert search.told == [(candidate.operator, 0.5)]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"objectives": []}, r"objectives: expected at least one, each once, found \[\]"),
        ({"objectives": ["a", "a"]}, "each once, found"),
        ({"objectives": ["a"], "selection": "best"}, "selection: expected one of paper, code, found 'best'"),
        ({"objectives": ["a"], "start": 0}, "start: expected an integer of 1 or more, found 0"),
    ],
)
def test_settings_that_are_none(given: dict[str, Any], said: str, rng: random.Random) -> None:
    with pytest.raises(SearchError, match=said):
        ParetoEvolution(SPACE, rng, **given)


def test_rules_and_measures_that_are_none() -> None:
    with pytest.raises(SearchError, match="share: expected a share from 0 to 1, found 2"):
        Selection(share=2)
    search = evolution(0)
    candidate = search.ask()
    assert candidate is not None
    for wrong in (-1.0, float("nan"), True, "fast"):
        with pytest.raises(SearchError, match="measure 'cost': expected a number of 0 or more, found"):
            search.tell(candidate, 0.5, {"cost": wrong})  # type: ignore[dict-item]
    with pytest.raises(SearchError, match="measure 'cost': expected a number of 0 or more, found"):
        evolution(0).resume([("a" * 11, 0.5, {"cost": -1.0})])
    assert search.outstanding == (candidate,)
