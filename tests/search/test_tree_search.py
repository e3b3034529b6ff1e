"""Monte Carlo tree search: what its tree knows, a bandit whose best is known, and a stored tree that replays."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from math import ceil, sqrt
from typing import Any

import pytest
from search_spaces import SPECS, Sets, Words

from syno_lab.errors import SearchError
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.search import MonteCarloTreeSearch, rave, uct
from syno_lab.search.mcts import RAVE, Settings, backup, expand, select, simulate
from syno_lab.search.tree import NO_PARENT, Choice

WORD = "dacb"


def matches(word: str) -> float:
    """1 for the hidden word, a quarter for each letter that is right."""
    return sum(a == b for a, b in zip(word, WORD, strict=True)) / len(WORD)


def run(search: MonteCarloTreeSearch, score: Any, trials: int = 10**6) -> list[Any]:
    asked = []
    while len(asked) < trials and (candidate := search.ask()) is not None:
        asked.append(candidate.operator)
        search.tell(candidate, score(candidate.operator))
    return asked


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": uct()},
        {"policy": uct(0.3, 0.5)},
        {"policy": rave()},
        {"policy": rave(), "settings": RAVE},
        {"policy": uct(), "settings": Settings(virtual_loss=1.0)},
    ],
    ids=["uct", "uct of the best", "rave", "rave at descents too", "virtual loss"],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_bandit_with_a_known_best(settings: Any, seed: int) -> None:
    # 4,096 words, one by one at random found after 2,048 on average.
    search = MonteCarloTreeSearch(Words("abcdefgh", 4), random.Random(seed), **settings)
    asked = run(search, matches, 300)
    assert WORD in asked
    # The first letter that pays is where most searches go.
    firsts = Counter(word[0] for word in asked)
    assert firsts.most_common(1)[0][0] == WORD[0]


def test_a_bandit_of_one_step_is_pulled_where_it_pays() -> None:
    # Two arms of many levers each; without widening this is UCB1.
    search = MonteCarloTreeSearch(
        Words("ab", 12),
        random.Random(1),
        policy=uct(0.3),
        settings=Settings(width=99),
    )
    asked = run(search, lambda word: 0.75 if word[0] == "b" else 0.25, 200)
    assert sum(word[0] == "b" for word in asked) > 170


def test_the_books_balance(rng: random.Random) -> None:
    search = MonteCarloTreeSearch(synthesis_space(SPECS["two weights"]), rng)
    for _ in range(60):
        candidate = search.ask()
        assert candidate is not None
        search.tell(candidate, rng.random())
    waiting = [search.ask() for _ in range(5)]
    assert None not in waiting
    tree = search.tree
    assert (tree.root.visits, tree.root.outstanding) == (60, 5)
    for place in tree.places:
        children = [tree.places[i] for i in place.children]
        assert place.visits >= sum(child.visits for child in children)
        assert place.outstanding >= sum(child.outstanding for child in children)
        assert place.record.rewards.count >= place.visits
        assert place.record.best <= tree.root.record.best == max(value for _, value in search.told)
    assert tree.root.record.rewards.mean == pytest.approx(sum(value for _, value in search.told) / 60)
    for candidate in waiting:
        assert candidate is not None
        search.drop(candidate)
    assert {place.outstanding for place in tree.places} == {0}
    assert {record.outstanding for record in tree.records.values()} == {0}


def test_ways_to_one_state_share_what_is_known(rng: random.Random) -> None:
    search = MonteCarloTreeSearch(Sets("abcdef", 4), rng)
    run(search, lambda chosen: len(chosen & set("abcd")) / 4)
    tree = search.tree
    ways: dict[Any, list[Any]] = {}
    for place in tree.places:
        ways.setdefault(place.state.key, []).append(place)
    several = [places for places in ways.values() if len(places) > 1]
    assert len(several) > 5
    for places in several:
        assert all(place.record is places[0].record for place in places)
        assert places[0].record.rewards.count >= sum(place.visits for place in places)
    # Each set once, though most have 24 ways to them.
    assert len(search.told) == 15
    assert sum(place.visits for place in tree.places if place.parent == NO_PARENT) == 15


def test_dead_ends_close_what_is_above_them(rng: random.Random) -> None:
    space = Words("ab", 3, dead=frozenset({"aa", "ab"}), refused=frozenset({"bbb"}))
    search = MonteCarloTreeSearch(space, rng)
    assert set(run(search, lambda _: 0.5)) == {"baa", "bab", "bba"}
    assert search.tree.root.is_closed
    assert {"aa", "ab", "a"} >= search.facts.dead & {"a", "aa", "ab"} == {"a", "aa", "ab"}
    # What was refused or asked for is used up, not dead.
    assert not search.facts.dead & {"", "b", "bb"}
    assert all(place.is_closed for place in search.tree.places)


def test_outstanding_candidates_spread() -> None:
    def firsts(virtual_loss: float) -> int:
        search = MonteCarloTreeSearch(
            Words("abcdefgh", 6),
            random.Random(4),
            policy=uct(0.1, 0.0),
            settings=Settings(width=99, virtual_loss=virtual_loss),
        )
        run(search, lambda word: 1.0 if word[0] == "c" else 0.25, 40)
        asked = [search.ask() for _ in range(24)]
        assert len({candidate.operator for candidate in asked if candidate is not None}) == 24
        return len({candidate.operator[0] for candidate in asked if candidate is not None})

    assert firsts(0.0) == 1
    assert firsts(20.0) >= 4


def test_what_is_outstanding_counts_as_lost_until_it_is_told() -> None:
    search = MonteCarloTreeSearch(Words("ab", 4), random.Random(0))
    for value in (1.0, 0.5, 0.75):
        candidate = search.ask()
        assert candidate is not None
        search.tell(candidate, value)
    tree = search.tree
    child = tree.places[tree.root.children[0]]
    before = tree.choice(child, tree.root, tree.root.record, 1.0)
    child.outstanding += 1
    child.record.outstanding += 1
    after = tree.choice(child, tree.root, tree.root.record, 1.0)
    assert after.visits == before.visits + 1
    assert after.mean == pytest.approx(before.mean * child.record.rewards.count / (child.record.rewards.count + 1))


def test_the_verbs_one_by_one() -> None:
    search = MonteCarloTreeSearch(Words("ab", 2), random.Random(2))
    tree, settings, rng = search.tree, search.settings, random.Random(3)
    path = select(tree, uct(), settings, rng)
    assert path == [tree.root]
    added = expand(tree, tree.root, settings, rng, tree.root.record)
    assert added is tree.places[1]
    assert added.parent == tree.root.number
    steps = simulate(tree, added, settings, rng, tree.root.record)
    assert steps is not None
    assert [step.name for step in steps] == [steps[-1].state.operator()[1]]
    assert added.step is not None
    backup(tree, [tree.root, added], [added.step, *steps], 0.25)
    assert [(place.visits, place.record.rewards.mean) for place in tree.places] == [(1, 0.25), (1, 0.25)]
    # All moves as first: the root has seen both, the place below only what was done after it.
    assert set(tree.root.record.actions) == {*added.step.actions, *steps[0].actions}
    assert set(added.record.actions) == set(steps[0].actions)


def choice(**changes: Any) -> Choice:
    return Choice(
        **{"visits": 4, "parent_visits": 20, "mean": 0.5, "best": 1.0, "action_visits": 9, "action_mean": 0.75}
        | changes
    )


def test_uct_is_the_formula() -> None:
    # sqrt(ln 20 / 4) = 0.86540898
    assert uct(0.5, 0.0)(choice()) == pytest.approx(0.5 + 0.5 * 0.86540898)
    assert uct(0.5, best_share=0.25)(choice()) == pytest.approx(0.625 + 0.5 * 0.86540898)
    assert uct()(choice(visits=0)) == rave()(choice(visits=0)) == float("inf")


def test_rave_is_the_formula() -> None:
    # b = sqrt(20 / (3*4 + 20)) = 0.79056942
    assert rave(0.0, 0.0, equivalence=20)(choice()) == pytest.approx(0.20943058 * 0.5 + 0.79056942 * 0.75)
    assert rave(0.5)(choice(action_visits=0)) == uct(0.5)(choice())
    assert rave(0.0, 0.0)(choice(visits=10**9, parent_visits=10**9)) == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uct(-1), "exploration: expected 0 or more, found -1"),
        (lambda: rave(best_share=2), "best_share: expected a share from 0 to 1, found 2"),
        (lambda: rave(equivalence=0), "equivalence: expected a positive number of visits, found 0"),
        (lambda: Settings(width=0), "width: expected a positive number, found 0"),
        (lambda: Settings(growth=2), "growth: expected a number from 0 to 1, found 2"),
        (lambda: Settings(looks=0), "looks: expected 1 or more, found 0"),
        (lambda: Settings(temperature=0), "temperature: expected a positive number, found 0"),
        (lambda: Settings(trust=-1), "trust: expected 0 or more, found -1"),
        (lambda: Settings(virtual_loss=-1), "virtual_loss: expected 0 or more, found -1"),
    ],
)
def test_settings_that_make_no_sense(make: Any, message: str) -> None:
    with pytest.raises(SearchError, match=message):
        make()


def test_places_widen_with_what_was_searched() -> None:
    search = MonteCarloTreeSearch(
        Words("abcdefghijklmnop", 3), random.Random(6), settings=Settings(width=1, growth=0.5)
    )
    root = search.tree.root
    numbers = []
    for _ in range(120):
        before = root.searches
        run(search, lambda _: 0.5, 1)
        if root.searches == before + 1:  # it found an operator at once
            numbers.append((len(root.children), ceil(sqrt(before + 1))))
    assert all(found == expected for found, expected in numbers)
    assert numbers[-1][0] >= 11


def test_the_tree_is_shown_while_it_grows() -> None:
    seen: list[tuple[int, int]] = []
    search = MonteCarloTreeSearch(Words(), random.Random(1))
    root = search.tree.root
    for _ in range(2):
        candidate = search.ask()
        assert candidate is not None
        seen.append((root.visits, root.outstanding))
        search.tell(candidate, 0.5)
        seen.append((root.visits, root.outstanding))
    assert seen == [(0, 1), (1, 0), (1, 1), (2, 0)]


def test_a_stored_tree_replays(golden: Any) -> None:
    search = MonteCarloTreeSearch(Words("abcd", 4), random.Random(11))
    run(search, matches, 20)
    candidate = search.ask()
    assert candidate is not None
    shown = search.tree.to_json()
    text = ",\n".join(json.dumps(place) for place in shown.pop("places"))
    golden("search/words_uct.txt", f"{json.dumps(shown)}\n{text}\n")


SEQUENCE = """
import random
from search_spaces import SPECS
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.search import MonteCarloTreeSearch
search = MonteCarloTreeSearch(synthesis_space(SPECS["two weights"]), random.Random(3))
for number in range(25):
    candidate = search.ask()
    print(candidate.steps)
    search.tell(candidate, number % 7 / 7)
"""


def test_another_process_asks_the_same() -> None:
    # Python hashes strings differently in each process; no choice may hang on that.
    def lines(seed: str) -> str:
        path = os.pathsep.join(part for part in sys.path if part)
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", SEQUENCE], capture_output=True, text=True, timeout=120, check=True, env=environment
        )
        return done.stdout

    first = lines("1")
    assert first.count("\n") == 25
    assert first == lines("2")
