"""The tree search with an estimate: it asks what it always asked, so that stored searches go on."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from search_spaces import Words

from syno_lab.errors import SearchError
from syno_lab.search import TreeWithEstimate, uct
from syno_lab.search.estimate import Portrait, bag
from syno_lab.search.tree_with_estimate import Settings


def run(search: TreeWithEstimate, score: Any, trials: int = 10**6) -> list[Any]:
    asked = []
    while len(asked) < trials and (candidate := search.ask()) is not None:
        asked.append(candidate.operator)
        search.tell(candidate, score(candidate.operator))
    return asked


def right(word: str, wanted: str) -> float:
    """The share of the letters that are right."""
    return sum(a == b for a, b in zip(word, wanted, strict=True)) / len(wanted)


def questions(prior: Callable[[str], float] | None) -> list[str]:
    """The questions of a search that is told two of three."""
    space = Words("abcdef", 6, refused=frozenset({"aaaaaa"}))
    search = TreeWithEstimate(space, random.Random(17), prior=prior)
    asked, waiting = [], []
    for number in range(50):
        candidate = search.ask()
        assert candidate is not None
        asked.append(candidate.operator)
        waiting.append(candidate)
        if number % 3:
            first = waiting.pop(0)
            search.tell(first, right(first.operator, "badcab"))
    return asked


def test_it_asks_what_it_asked_before_there_were_other_methods(golden: Any) -> None:
    # Written by the tree search of the version that had no other.
    asked = [*questions(None), "with a prior", *questions(lambda word: word.count("a"))]
    golden("search/tree_with_estimate.txt", "\n".join(asked) + "\n")


def test_a_stored_tree_replays(golden: Any) -> None:
    search = TreeWithEstimate(Words("abcd", 4), random.Random(11))
    run(search, lambda word: right(word, "dacb"), 20)
    candidate = search.ask()
    assert candidate is not None
    shown = search.tree.to_json()
    text = ",\n".join(json.dumps(place) for place in shown.pop("places"))
    golden("search/words.txt", f"{json.dumps(shown)}\n{text}\n")


def test_by_chance_alone_nothing_is_preferred() -> None:
    def share(chance: float) -> float:
        settings = Settings(chance=chance, unknown=0)
        search = TreeWithEstimate(Words("abcd", 5), random.Random(7), settings=settings)
        asked = run(search, lambda word: word.count("a") / 5, 60)
        return sum(word.count("a") for word in asked) / (5 * len(asked))

    assert share(1) == pytest.approx(0.25, abs=0.08)
    assert share(0) > 0.45


def test_by_chance_alone_every_operator_is_asked_for_once(rng: random.Random) -> None:
    search = TreeWithEstimate(Words("abc", 3), rng, settings=Settings(chance=1, unknown=0))
    asked = run(search, lambda word: word.count("a") / 3)
    assert len(asked) == len(set(asked)) == 27
    assert search.is_exhausted
    assert search.tree.root.visits == 27


def test_the_least_known_comes_first_where_it_is_wanted() -> None:
    search = TreeWithEstimate(Words("abcd", 6), random.Random(5))
    run(search, lambda word: word.count("a") / 6, 10)
    trails = list(search.pool.drawn())
    assert len(trails) > 10
    mean, deviation = search.pool.estimate.beliefs([Portrait(bag(steps), Counter()) for steps in trails])
    usual = search.pool.in_order(trails, [])
    assert usual[0] is trails[(mean + search.settings.bound * deviation).argmax()]
    wanted = search.pool.in_order(trails, [], "unknown")
    assert wanted[0] is trails[deviation.argmax()]
    assert wanted[1:] == [steps for steps in usual if steps is not wanted[0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Settings(completions=0), "completions: expected 1 or more, found 0"),
        (lambda: Settings(strays=-1), "strays: expected 0 or more, found -1"),
        (lambda: Settings(kept=-1), "kept: expected 0 or more, found -1"),
        (lambda: Settings(bound=-1), "bound: expected 0 or more, found -1"),
        (lambda: Settings(chance=1.5), "chance: expected a share from 0 to 1, found 1.5"),
        (
            lambda: Settings(chance=0.5, unknown=0.6),
            "unknown: expected a share from 0 to what chance leaves, found 0.6",
        ),
    ],
)
def test_settings_that_make_no_sense(make: Any, message: str) -> None:
    with pytest.raises(SearchError, match=message):
        make()


def test_what_was_drawn_and_not_taken_is_compared_again() -> None:
    def kept(number: int) -> list[int]:
        search = TreeWithEstimate(Words("abcd", 6), random.Random(2), settings=Settings(kept=number))
        found = []
        for _ in range(12):
            candidate = search.ask()
            assert candidate is not None
            assert candidate.operator not in [steps[-1].state.operator() for steps in search.pool.kept.values()]
            search.tell(candidate, candidate.operator.count("a") / 6)
            found.append(len(search.pool.kept))
        return found

    assert set(kept(0)) == {0}
    assert kept(40)[-1] == 40
    assert max(kept(500)) > 100


def test_the_most_promising_completion_is_evaluated() -> None:
    # The tree is kept from learning anything: what is gained is gained by the choice among completions.
    def mean(completions: int) -> float:
        search = TreeWithEstimate(
            Words("abc", 8),
            random.Random(3),
            policy=uct(1e6),
            settings=Settings(completions=completions, strays=0, kept=0, unknown=0, temperature=1e9, width=1e6),
        )
        for _ in range(100):
            candidate = search.ask()
            assert candidate is not None
            search.tell(candidate, candidate.operator.count("a") / 8)
        return sum(value for _, value in search.told[50:]) / 50

    assert mean(1) == pytest.approx(1 / 3, abs=0.1)
    assert mean(8) > 0.45
