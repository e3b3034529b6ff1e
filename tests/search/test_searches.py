"""Ask and tell: what all searches promise, each on spaces that are known whole."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
from search_spaces import SPECS, Sets, Words

from syno_lab.errors import SearchError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.pgraphs.space import _Space, synthesis_space
from syno_lab.search import (
    Candidate,
    EliteSearch,
    EstimateSearch,
    MonteCarloTreeSearch,
    ParetoEvolution,
    RandomSearch,
    RegularizedEvolution,
    Search,
    rave,
)
from syno_lab.search.mcts import RAVE
from syno_lab.synthesis.graph import Graph
from syno_lab.synthesis.sampler import Sampler

SEARCHES: dict[str, Callable[..., Search]] = {
    "estimate": EstimateSearch,
    "tree": MonteCarloTreeSearch,
    "tree with rave": partial(MonteCarloTreeSearch, policy=rave(), settings=replace(RAVE, virtual_loss=1.0)),
    "random": RandomSearch,
    "evolution": partial(RegularizedEvolution, population=5, tournament=2),
    "pareto": partial(
        ParetoEvolution,
        objectives=["cost"],
        costs={"cost": lambda operator: random.Random(str(operator)).random()},
        start=5,
        selection="code",
    ),
    "elites": partial(EliteSearch, cost=lambda operator: random.Random(str(operator)).random(), per_bin=2),
}
every_search = pytest.mark.parametrize("make", SEARCHES.values(), ids=SEARCHES)


@cache
def all_of(spec: str) -> list[Operator]:
    return list(Sampler.from_spec(SPECS[spec]).enumerate())


def reward(operator: Any) -> float:
    """Something that depends on the operator, the same in every process."""
    text = operator.to_json() if isinstance(operator, Operator) else str(sorted(operator))
    return random.Random(text).random()


def run(search: Search, trials: int = 10**6) -> list[Any]:
    """Ask and tell one by one; the operators asked for."""
    asked: list[Any] = []
    while len(asked) < trials and (candidate := search.ask()) is not None:
        asked.append(candidate.operator)
        search.tell(candidate, reward(candidate.operator))
    return asked


@every_search
@pytest.mark.parametrize("spec", SPECS)
def test_every_operator_of_a_space_is_asked_for_once(
    spec: str, make: Callable[..., Search], rng: random.Random
) -> None:
    asked = run(make(synthesis_space(SPECS[spec]), rng))
    assert len(asked) == len(all_of(spec)) > 10
    assert set(asked) == set(all_of(spec))


@pytest.mark.parametrize("spec", SPECS)
def test_the_first_choice_is_how_many_steps_there_may_be(spec: str, rng: random.Random) -> None:
    for child in synthesis_space(SPECS[spec], countable_nodes=0).children():
        (step,) = child.steps()
        most = int(step.name.removeprefix("at most ").removesuffix(" steps"))
        asked = run(RandomSearch(step.state, rng))
        assert len(asked) == len(set(asked))
        assert set(asked) == {operator for operator in all_of(spec) if len(operator.steps) <= most}


#: A space of more nodes than are counted, with dead ends: not all of its operators mix what the axis has.
WISH = Spec.parse(
    "[C, H]",
    "[D, H]",
    ["C=12: 2", "D=21: 1", "H=5: 0"],
    ["k=3: 2"],
    max_primitives=7,
    max_tensors=3,
    max_reduces=3,
    wants="H>=m",
)


@every_search
def test_to_forget_the_nodes_changes_nothing(make: Callable[..., Search], monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[bool] = []
    make_room = Graph.make_room

    def counted(graph: Graph, share: float) -> bool:
        forgotten.append(make_room(graph, share))
        return forgotten[-1]

    monkeypatch.setattr(Graph, "make_room", counted)

    def asked() -> tuple[list[Any], Any]:
        search = make(synthesis_space(WISH, countable_nodes=0), random.Random(5))
        # Those with an estimate look at many operators for each that they ask for.
        return run(search, 6 if isinstance(search, EstimateSearch) else 30), search.facts

    whole = asked()
    assert not any(forgotten)
    monkeypatch.setattr(Graph, "MOST_NODES", 80)
    monkeypatch.setattr(Graph, "MOST_BOUNDS", 160)
    assert asked() == whole
    assert sum(forgotten) > 5


def test_the_weights_of_the_first_moves_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every random descent begins there, and some specs have thousands of them.
    weighed: list[Any] = []
    weight = _Space.weight
    monkeypatch.setattr(_Space, "weight", lambda space, move, left: weighed.append(move) or weight(space, move, left))
    root = synthesis_space(SPECS["two weights"], countable_nodes=0)
    first = [child.weight for child in root.children()]
    assert len(weighed) >= len(first) > 1
    number = len(weighed)
    assert [child.weight for child in root.children()] == first
    assert len(weighed) == number


def test_the_budgets_refuse_some() -> None:
    free = list(Sampler.from_spec(SPECS["few FLOPs"]).enumerate())
    assert all(operator.flops() <= 3000 for operator in free)
    assert len(free) < len(list(Sampler.from_spec(_without_flops()).enumerate()))


def _without_flops() -> Any:
    spec = SPECS["few FLOPs"]
    return replace(spec, limits=replace(spec.limits, max_flops=None))


@every_search
@pytest.mark.parametrize(
    "space",
    [
        Words(dead=frozenset({"a", "bc"}), refused=frozenset({"bab", "ccc"})),
        Words(letters="ab", length=5, dead=frozenset({"aba", "bb"})),
        Sets(),
    ],
    ids=["words", "deep words", "sets"],
)
def test_dead_ends_refusals_and_transpositions_lose_nothing(
    space: Any, make: Callable[..., Search], rng: random.Random
) -> None:
    search = make(space, rng)
    asked = run(search)
    assert Counter(asked) == Counter(space.all())
    assert search.ask() is None
    assert search.best == max(search.told, key=lambda pair: pair[1])


@every_search
def test_a_space_without_operators_is_exhausted_at_once(make: Callable[..., Search], rng: random.Random) -> None:
    search = make(Words(dead=frozenset("abc")), rng)
    assert search.ask() is None
    assert search.best is None


@every_search
def test_the_same_seed_asks_the_same(make: Callable[..., Search]) -> None:
    first, again, other = (run(make(synthesis_space(SPECS["views"]), random.Random(seed)), 30) for seed in (5, 5, 6))
    assert first == again
    assert first != other


@every_search
@pytest.mark.parametrize("stop", [1, 20, 60])
def test_continuing_from_records_is_never_having_stopped(make: Callable[..., Search], stop: int) -> None:
    space = SPECS["two weights"]
    whole = make(synthesis_space(space), random.Random(7))
    asked = run(whole, 90)
    # As the store gives them back: read from text, in a new process.
    records = [(Operator.from_json(operator.to_json()), value) for operator, value in whole.told[:stop]]
    resumed = make(synthesis_space(space), random.Random(7))
    assert resumed.resume(records) == stop
    assert run(resumed, 90 - stop) == asked[stop:]
    assert resumed.told == whole.told


@every_search
def test_what_was_outstanding_when_it_stopped_is_asked_for_again(make: Callable[..., Search]) -> None:
    search = make(synthesis_space(SPECS["two weights"]), random.Random(8))
    candidates = [search.ask() for _ in range(4)]
    for candidate in (candidates[2], candidates[0]):  # finished in another order
        assert candidate is not None
        search.tell(candidate, 0.5)
    resumed = make(synthesis_space(SPECS["two weights"]), random.Random(8))
    assert resumed.resume(search.told) == 2
    assert resumed.outstanding == ()
    assert resumed.ask() == candidates[1]
    assert resumed.outstanding == (candidates[1],)


@every_search
def test_records_of_another_search_are_taken_in(make: Callable[..., Search], rng: random.Random) -> None:
    other = RandomSearch(synthesis_space(SPECS["two weights"]), rng)
    done = run(other, 40)
    search = make(synthesis_space(SPECS["two weights"]), random.Random(9))
    assert search.resume(other.told) == 40
    assert search.best is not None
    assert search.best[1] == max(value for _, value in other.told)
    assert set(run(search)) == set(all_of("two weights")) - set(done)
    assert len(search.told) == len(all_of("two weights"))


@every_search
def test_records_from_elsewhere_have_no_place(make: Callable[..., Search], rng: random.Random) -> None:
    search = make(Words(), rng)
    assert search.resume([("zzz", 0.9), ("abc", 0.1)]) == 1
    assert sorted(run(search)) == sorted(Words().all() - {"abc"})


@every_search
def test_a_dropped_candidate_is_not_asked_for_again(make: Callable[..., Search], rng: random.Random) -> None:
    search = make(Words(), rng)
    dropped = search.ask()
    assert dropped is not None
    search.drop(dropped)
    assert search.outstanding == ()
    assert set(run(search)) == Words().all() - {dropped.operator}


@every_search
@pytest.mark.parametrize("value", [-0.1, 1.01, float("nan"), float("inf"), "0.5", True, None])
def test_a_reward_is_a_number_from_0_to_1(make: Callable[..., Search], value: Any, rng: random.Random) -> None:
    search = make(Words(), rng)
    candidate = search.ask()
    assert candidate is not None
    with pytest.raises(SearchError, match="reward: expected a number from 0 to 1"):
        search.tell(candidate, value)
    with pytest.raises(SearchError, match="reward: expected a number from 0 to 1"):
        make(Words(), rng).resume([("abc", value)])
    search.tell(candidate, 0.5)  # the refusal has changed nothing


@every_search
def test_each_candidate_is_told_once(make: Callable[..., Search], rng: random.Random) -> None:
    search = make(Words(), rng)
    candidate = search.ask()
    assert candidate is not None
    for strange in (Candidate(99, "abc", ()), Candidate(candidate.number, "not it", candidate.taken)):
        with pytest.raises(SearchError, match=f"candidate {strange.number}: expected an outstanding candidate"):
            search.tell(strange, 0.5)
    with pytest.raises(SearchError, match=r"expected no outstanding candidate, found 1"):
        search.resume([])
    search.tell(candidate, 0.5)
    with pytest.raises(SearchError, match="told, dropped or never asked for"):
        search.tell(candidate, 0.5)
    with pytest.raises(SearchError, match="told, dropped or never asked for"):
        search.drop(candidate)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"population": 0}, "population: expected 1 or more, found 0"),
        ({"population": 5, "tournament": 6}, "tournament: expected 1 to the population of 5, found 6"),
    ],
)
def test_settings_of_evolution(settings: dict[str, int], message: str, rng: random.Random) -> None:
    with pytest.raises(SearchError, match=message):
        RegularizedEvolution(Words(), rng, **settings)


def test_evolution_lets_the_oldest_die_and_mutates_the_rest() -> None:
    # A seed of its own: by chance it is stuck with a word that is not so good in one run of a few hundred.
    space = Words(letters="abcdefgh", length=6)
    search = RegularizedEvolution(space, random.Random(1), population=10, tournament=10)

    def score(word: str) -> float:
        return sum(letter == "a" for letter in word) / 6

    distances = []
    for _ in range(200):
        candidate = search.ask()
        assert candidate is not None
        if len(search.population) == 10:
            best = max(search.population, key=lambda member: member[1])[0].end.operator()
            distances.append(sum(a != b for a, b in zip(best, candidate.operator, strict=True)))
        search.tell(candidate, score(candidate.operator))
        assert [member[0].end.operator() for member in search.population] == [w for w, _ in search.told[-10:]]
    # Chance alone differs in 5.25 of 6 letters; half of the mutations change one letter alone.
    assert sum(distances) / len(distances) < 3.5
    assert search.best is not None
    assert search.best[1] >= 4 / 6
