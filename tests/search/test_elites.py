"""Elites: what they keep, what is made from them, and that they find a front where chance does not."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from math import log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_spaces import SPECS, Words

from syno_lab.errors import SearchError
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.protocol import SearchStep
from syno_lab.search import Candidate, Elite, Elites, EliteSearch, RandomSearch, Search, examine
from syno_lab.search.descent import Facts
from syno_lab.search.elites import WAYS
from syno_lab.search.evolution import LEAST_ALIKE, alike, followed, most_alike, neighbours, open_steps, regrown
from syno_lab.search.protocol import Step, Trail

SHARES = st.sampled_from([0.0, 1e-9, 0.01, 0.1, 0.25, 0.5, 0.7, 0.71, 0.9, 1.0, 3.0])
POINTS = st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), SHARES), max_size=30)


def filled(points: list[tuple[float, float]], **sizes: int) -> tuple[Elites, list[Elite]]:
    elites = Elites(**sizes)
    given = [Elite(Trail(()), number, *point) for number, point in enumerate(points)]
    for elite in given:
        kept = elites.add(elite)
        assert kept == any(one is elite for one in elites)
    return elites, given


# -- what is kept ----------------------------------------------------------------------------------------------------


@given(POINTS, st.integers(1, 5), st.integers(1, 3))
def test_each_range_keeps_its_best(points: list[tuple[float, float]], bins: int, per_bin: int) -> None:
    elites, given = filled(points, bins=bins, per_bin=per_bin)
    for number, kept in enumerate(elites.bins):
        low = 0.0 if number == bins - 1 else 2 ** (-(number + 1) / 2)
        high = float("inf") if number == 0 else 2 ** (-number / 2)
        inside = [one for one in given if low < one.cost <= high or (low == one.cost == 0)]
        best = sorted(inside, key=lambda one: (-one.score, one.cost, one.operator))
        assert kept == best[:per_bin]
    assert len(elites) == sum(map(len, elites.bins)) == len(list(elites))


@given(POINTS)
def test_the_front_is_what_none_beats(points: list[tuple[float, float]]) -> None:
    elites, _ = filled(points)
    front = elites.front()
    kept = {(one.cost, one.score) for one in elites}
    best = {one for one in kept if not any(o != one and o[0] <= one[0] and o[1] >= one[1] for o in kept)}
    assert {(one.cost, one.score) for one in front} == best
    assert [one.cost for one in front] == sorted(one.cost for one in front)


@given(POINTS)
def test_in_turn_the_best_of_each_range_are_first(points: list[tuple[float, float]]) -> None:
    elites, _ = filled(points, per_bin=3)
    turn = elites.in_turn()
    assert sorted(one.operator for one in turn) == sorted(one.operator for one in elites)
    first = turn[: sum(bool(kept) for kept in elites.bins)]
    assert {one.operator for one in first} == {kept[0].operator for kept in elites.bins if kept}
    assert [one.score for one in first] == sorted((one.score for one in first), reverse=True)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), SHARES, st.sampled_from("abc")), max_size=40))
def test_groups_oust_nothing_of_each_other_and_take_turns(points: list[tuple[float, float, str]]) -> None:
    together, apart = Elites(per_bin=2), {name: Elites(per_bin=2) for name in dict.fromkeys(one[2] for one in points)}
    for number, (score, costs, name) in enumerate(points):
        one = Elite(Trail(()), number, score, costs, name)
        assert together.add(one) == apart[name].add(one)
    turn = together.in_turn()
    assert {name: [one for one in turn if one.group == name] for name in apart} == {
        name: elites.in_turn() for name, elites in apart.items()
    }
    for place, one in enumerate(turn):
        before = Counter(other.group for other in turn[:place])
        later = {other.group for other in turn[place:]}
        assert all(before[one.group] <= before[name] for name in later)


@pytest.mark.parametrize("cost", [-0.1, float("nan"), float("inf")])
def test_a_cost_is_a_number_of_0_or_more(cost: float) -> None:
    with pytest.raises(SearchError, match=r"cost: expected a number of 0 or more, found"):
        Elites().add(Elite(Trail(()), "", 0.5, cost))


@pytest.mark.parametrize("sizes", [{"bins": 0}, {"per_bin": 0}])
def test_there_is_room_for_one(sizes: dict[str, int]) -> None:
    with pytest.raises(SearchError, match="expected 1 or more, found 0"):
        Elites(**sizes)


# -- what is made from one -------------------------------------------------------------------------------------------


def trail(word: str, space: Words) -> tuple[Step, ...]:
    steps: list[Step] = []
    for letter in word:
        state = steps[-1].state if steps else space
        steps += [child.steps()[0] for child in state.children() if child.steps()[0].name == letter]
    return tuple(steps)


def test_words_say_how_alike_steps_are() -> None:
    one = SearchStep("a", (), words=(("UNFOLD", 1), ("UNFOLD H", 1), ("UNFOLD k", 1)))
    near = SearchStep("b", (), words=(("UNFOLD", 1), ("UNFOLD H", 1), ("UNFOLD s", 1)))
    twice = SearchStep("c", (), words=(("REDUCE", 1), ("REDUCE k", 1), ("REDUCE", 1), ("REDUCE g", 1)))
    assert alike(one, one) == alike(SearchStep("", ()), SearchStep("", ())) == 1
    assert alike(one, near) == alike(near, one) == 2 / 4
    assert alike(one, twice) == 0
    assert alike(twice, SearchStep("d", (), words=(("REDUCE", 2), ("REDUCE k", 2)))) == 3 / 5


def test_neighbours_have_one_word_in_the_place_of_another() -> None:
    seen = 0
    for spec in SPECS.values():
        state = synthesis_space(spec)
        while not state.is_complete:
            steps = open_steps(state, Facts())
            for old in steps:
                found = neighbours(steps, old)
                assert found == [step for step in steps if is_one_word_apart(step, old)]
                seen += len(found)
            state = steps[len(steps) // 2].state
    assert seen > 5


def is_one_word_apart(first: Step, second: Step) -> bool:
    """By writing the words out: without what they have in common one is left of each."""
    x = [word for word, number in first.counted for _ in range(number)]
    y = [word for word, number in second.counted for _ in range(number)]
    for word in list(x):
        if word in y:
            x.remove(word)
            y.remove(word)
    return len(x) == len(y) == 1


def test_the_rest_follows_the_old_steps(rng: random.Random) -> None:
    space = Words("abcd", 6)
    old = trail("abcdab", space)
    for place in range(6):
        for step in neighbours(open_steps(old[place - 1].state if place else space, Facts()), old[place]):
            made = followed((*old[:place], step), old[place + 1 :], most_alike, rng, Facts())
            assert made is not None
            assert [one.name for one in made] == [*"abcdab"[:place], step.name, *"abcdab"[place + 1 :]]


def test_where_the_old_steps_cannot_be_taken_chance_goes_on(rng: random.Random) -> None:
    space = Words("ab", 4, dead=frozenset({"ba"}))
    old = trail("aaaa", space)
    (near,) = neighbours(open_steps(space, Facts()), old[0])
    facts = Facts(dead={"ba"})
    made = followed([near], old[1:], most_alike, rng, facts)
    assert made is not None
    assert [one.name for one in made][:2] == ["b", "b"]
    assert made[-1].state.is_complete


def test_a_step_too_different_is_not_taken_for_another() -> None:
    space = Words("ab", 2)
    (step,) = [one for one in open_steps(space, Facts()) if one.name == "a"]
    assert most_alike([step], SearchStep("z", ("z9", "z8"))) is None
    assert most_alike([], step) is None
    assert alike(step, SearchStep("z", ("a0", "z8", "z7"))) == LEAST_ALIKE
    assert most_alike([step], SearchStep("z", ("a0", "z8", "z7"))) is step


@pytest.mark.parametrize("place", range(6))
def test_steps_grown_anew_keep_those_before(place: int, rng: random.Random) -> None:
    space = Words("abcd", 6)
    old = trail("abcdab", space)
    ends = set()
    for _ in range(20):
        made = regrown(space, old, place, rng, Facts())
        assert made is not None
        assert made[:place] == old[:place]
        ends.add(made[-1].state.key)
    assert len(ends) > 1


# -- the search ------------------------------------------------------------------------------------------------------


def cost(word: str) -> float:
    """Dearer with each letter beyond a."""
    return 2.0 ** -(sum(letter == "a" for letter in word) / 2)


def score(word: str) -> float:
    """Better with each letter that is right, if it comes after one that is right too."""
    right = [letter == hidden for letter, hidden in zip(word, "hgfedcba", strict=True)]
    return sum(first and second for first, second in pairwise(right)) / 7


def gained(search: Search, trials: int) -> float:
    """The sum over the ranges of cost of the best score."""
    found = Elites(bins=8)
    for examined in examine(search, score):
        found.add(Elite(examined.trail, examined.operator, examined.score, cost(examined.operator)))
        if len(search.told) == trials:
            break
    return sum(kept[0].score for kept in found.bins if kept)


def test_elites_lead_to_better_ones_where_chance_does_not() -> None:
    space = Words("abcdefgh", 8)
    by_elites = [gained(EliteSearch(space, random.Random(seed), cost=cost, bins=8), 600) for seed in range(8)]
    by_chance = [gained(RandomSearch(space, random.Random(seed)), 600) for seed in range(8)]
    assert sum(by_elites) > 1.5 * sum(by_chance)
    assert min(by_elites) >= max(by_chance)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_alone_comes_to_the_end(way: str, rng: random.Random) -> None:
    space = Words("abc", 4, dead=frozenset({"ab"}), refused=frozenset({"cccc"}))
    search = EliteSearch(space, rng, cost=cost)
    search.ways = {way: 1.0}
    found = [examined.operator for examined in examine(search, lambda word: 0.5)]
    assert Counter(found) == Counter(space.all())


def test_a_way_that_comes_to_nothing_is_tried_less(rng: random.Random) -> None:
    search = EliteSearch(Words(), rng, cost=cost)
    search.ways = {"fresh": 0.5, "near": 0.25, "anew": 0.25}
    search.tries.update(fresh=98, near=8, anew=18)
    search.answers.update(fresh=0, near=8, anew=9)
    weights = {"fresh": 0.5 * 1 / 100, "near": 0.25 * 9 / 10, "anew": 0.25 * 10 / 20}
    found = Counter(search._way() for _ in range(10_000))
    for way, weight in weights.items():
        share = weight / sum(weights.values())
        assert abs(found[way] - 10_000 * share) < 6 * (10_000 * share * (1 - share)) ** 0.5


def test_attempts_are_counted_by_their_way(rng: random.Random) -> None:
    search = EliteSearch(Words(letters="ab", length=5, dead=frozenset({"aba", "bb"})), rng, cost=cost)
    found = list(examine(search, lambda word: 0.5))
    assert set(search.tries) == {"fresh", "near", "anew"}
    assert all(search.answers[way] <= search.tries[way] for way in search.tries)
    # The rest were drawn at random: the first, and those after so many attempts in vain.
    assert 0 < search.answers.total() < len(found)


def test_what_is_examined_is_told_and_may_be_stopped(rng: random.Random) -> None:
    search = EliteSearch(Words("abcd", 6), rng, cost=cost)
    seen = []
    for examined in examine(search, lambda word: word.count("a") / 6, lambda: len(search.told) == 40):
        assert examined.trail.end.operator() == examined.operator
        seen.append((examined.operator, examined.score))
    assert seen == search.told
    assert len(seen) == 40
    assert search.outstanding == ()
    best: Any = max(search.elites, key=lambda elite: elite.score)
    assert best.score == max(value for _, value in seen)
    assert -log2(best.cost) * 2 == best.operator.count("a")


def test_an_operator_of_a_known_trail_is_adopted_without_looking(rng: random.Random) -> None:
    space = Words("abcd", 6)
    first = EliteSearch(space, rng, cost=cost)
    (one, *_) = [examined for examined, _ in zip(examine(first, score_of_six), range(1), strict=False)]
    search = EliteSearch(space, rng, cost=cost)
    candidate = search.adopt(one.operator, one.trail)
    assert candidate is not None
    assert candidate.taken == one.trail.records
    search.tell(candidate, one.score)
    assert [(elite.operator, elite.score) for elite in search.elites] == [(one.operator, one.score)]
    with pytest.raises(SearchError, match="expected an outstanding candidate"):
        search.trail_of(Candidate(0, one.operator, ()))


def score_of_six(word: str) -> float:
    return word.count("a") / 6
