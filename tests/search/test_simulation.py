"""Searches with many evaluators, simulated: against schedules worked out by hand; and spaces of recorded trials."""

from __future__ import annotations

import random
from typing import Any

import pytest
from recorded import recorded_space
from search_spaces import SPECS, Words
from simulate import simulate

from syno_lab.errors import SearchError
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.search import EstimateSearch, MonteCarloTreeSearch, RandomSearch


def lasting(seconds: list[float]) -> Any:
    """Evaluations that take these times, in the order of asking."""
    left = iter(seconds)
    return lambda operator: (0.5, next(left))


def test_one_evaluator_works_one_after_another() -> None:
    events = simulate(RandomSearch(Words(), random.Random(0)), lasting([3, 1, 2]), 1, trials=3)
    assert [(event.at_s, event.number) for event in events] == [(3, 0), (4, 1), (6, 2)]


def test_who_is_free_first_takes_the_next() -> None:
    # Two evaluators: 0 on one until 5; 1 until 1, then 2 until 3, then 3 until 6.
    events = simulate(RandomSearch(Words(), random.Random(0)), lasting([5, 1, 2, 3]), 2, trials=4)
    assert [(event.at_s, event.number) for event in events] == [(1, 1), (3, 2), (5, 0), (6, 3)]


def test_questions_take_their_time() -> None:
    # Asked at 0 to 1, 1 to 2, 2 to 3; the first ends at 1.5 and is told once the second question is answered.
    events = simulate(RandomSearch(Words(), random.Random(0)), lasting([0.5, 4, 1]), 2, trials=3, asking_s=1.0)
    assert [(event.at_s, event.number) for event in events] == [(1.5, 0), (4, 2), (6, 1)]


def test_what_would_end_too_late_does_not_count() -> None:
    search = RandomSearch(Words(), random.Random(0))
    events = simulate(search, lasting([2, 2, 2, 2]), 1, seconds=5)
    assert [event.at_s for event in events] == [2, 4]
    assert search.outstanding == ()


def test_a_space_is_searched_whole_by_more_evaluators_than_it_has_operators() -> None:
    events = simulate(MonteCarloTreeSearch(Words(), random.Random(0)), lambda word: (0.1, 1.0), 100, trials=1000)
    assert {event.operator for event in events} == Words().all()
    assert {event.at_s for event in events} == {1.0}


@pytest.mark.parametrize("make", [EstimateSearch, MonteCarloTreeSearch])
def test_evaluators_share_what_is_learned(make: Any) -> None:
    def run(evaluators: int) -> float:
        search = make(Words("abcdefgh", 5), random.Random(1))
        events = simulate(search, lambda word: (word.count("a") / 5, 1.0), evaluators, trials=100)
        return sum(event.reward for event in events[50:]) / 50

    assert run(1) > 0.3  # 0.125 by chance
    assert run(8) > 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evaluators": 0, "trials": 1}, "evaluators: expected 1 or more, found 0"),
        ({"evaluators": 1, "trials": 1, "asking_s": -1.0}, "asking_s: expected 0 or more"),
        ({"evaluators": 1}, "expected trials or seconds"),
        ({"evaluators": 1, "trials": 1, "lasts": -2.0}, "evaluate: expected 0 or more seconds, found -2"),
    ],
)
def test_what_cannot_be_simulated(options: dict[str, Any], message: str, rng: random.Random) -> None:
    lasts, evaluators = options.get("lasts", 1.0), options["evaluators"]
    more = {name: value for name, value in options.items() if name not in ("lasts", "evaluators")}
    with pytest.raises(SearchError, match=message):
        simulate(RandomSearch(Words(), rng), lambda word: (0.5, lasts), evaluators, **more)


def test_recorded_trials_are_a_space(rng: random.Random) -> None:
    recorded = RandomSearch(synthesis_space(SPECS["two weights"]), rng)
    trials, taken = {}, []
    for _ in range(25):
        candidate = recorded.ask()
        assert candidate is not None
        trials[candidate.steps] = rng.random()
        taken.append(candidate.taken)
    for search in (RandomSearch(recorded_space(taken), rng), MonteCarloTreeSearch(recorded_space(taken), rng)):
        while (candidate := search.ask()) is not None:
            assert candidate.steps == candidate.operator
            assert candidate.taken in taken
            search.tell(candidate, trials[candidate.operator])
        assert dict(search.told) == trials
    again = MonteCarloTreeSearch(recorded_space(taken), rng)
    assert again.resume(trials.items()) == 25
    assert again.ask() is None
