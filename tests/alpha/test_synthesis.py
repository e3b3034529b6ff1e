"""Synthesis: what is returned satisfies, what is given up cannot be, and the same seed gives the same."""

from __future__ import annotations

import random
from math import inf

import pytest
from alpha_networks import representatives

from syno_lab.alpha.graph import Graph, Node
from syno_lab.alpha.mutating import RIVALS, Mutations, chains, mutate_as_rival, synthesise_again, with_chains
from syno_lab.alpha.operations import Rel, choices, operation
from syno_lab.alpha.row import Shape
from syno_lab.alpha.synthesis import METHODS, SLACK, Draft, enumerative, greedy, offered, progressive, synthesise
from syno_lab.alpha.wanted import Properties
from syno_lab.errors import SearchError, SpecError

SHAPES: tuple[Shape, ...] = ((2, 8, 8, 8), (2, 12, 12, 16), (2, 16, 8))
CONV, RELU, NORM = operation("conv", features=Rel(1)), operation("relu"), operation("batch_norm")
BLOCK: Shape = (2, 8, 8, 8)
RESIDUAL = Graph(
    (BLOCK,),
    (
        *(Node(one, (i,)) for i, one in enumerate([CONV, NORM, RELU, CONV, NORM])),
        Node(operation("add"), (0, 5)),
        Node(RELU, (6,)),
        Node(operation("transpose", axes=(0, 2, 1, 3)), (7,)),
        Node(operation("dense", features=4), (8,)),
    ),
    (9,),
)


def drawn(rng: random.Random, shape: Shape, most: int = 6) -> Graph:
    """A chain of random operations."""
    draft = Draft(Properties(), shape)
    for _ in range(rng.randint(1, most)):
        draft = draft.apply(rng.choice(rng.choice(offered(draft.shape))))
    return draft.graph()


def targets(rng: random.Random, number: int) -> list[Properties]:
    found = [Properties.of(drawn(rng, rng.choice(SHAPES)), normalised=rng.random() < 0.3) for _ in range(number)]
    return [one if rng.random() < 0.5 else one.relax(rng, rng.choice(("paper", "code"))) for one in found]


def start_of(rng: random.Random) -> tuple[Draft, Graph]:
    shape = rng.choice(SHAPES)
    graph = drawn(rng, shape)
    own = Properties.of(graph, normalised=rng.random() < 0.3)
    return Draft(own if rng.random() < 0.5 else own.relax(rng, rng.choice(("paper", "code"))), shape), graph


# -- theorem 4.4 -------------------------------------------------------------------------------------------------------


def test_greedy_synthesis_is_sound_complete_and_short(rng: random.Random) -> None:
    """Theorem 4.4: every target that a chain has is reached, with an operation for each unit of distance at most."""
    for _ in range(60):
        start, original = start_of(rng)
        plain = Properties(start.properties.shape, start.properties.depth, start.properties.mixing)
        answer = greedy(start, rng)
        assert answer.draft is not None, f"{answer.reason}\n{original}"
        assert plain.distance(answer.draft.graph()) == 0, "by inference of the graph, not by the draft's own count"
        if not start.properties.normalised:
            assert len(answer.draft.chain) <= start.distance
        assert (len(answer.draft.chain) == 0) == (start.distance == 0)


def test_what_cannot_be_is_given_up_at_once(rng: random.Random) -> None:
    for wanted in (
        Properties((2, 5, 5, 8)),
        Properties((2, 4, 8, 8)),
        Properties((2, 8, 8)),
        Properties(mixing=["ox"]),
    ):
        for name in ("greedy", "progressive"):
            answer = METHODS[name](Draft(wanted, BLOCK), rng, 3)
            assert answer.draft is None
            assert answer.evaluations == 0
            assert "nothing leads to the" in answer.reason


def test_progressive_synthesis_keeps_its_limit(rng: random.Random) -> None:
    solved = 0
    for _ in range(40):
        start, original = start_of(rng)
        answer = progressive(start, rng, len(original.nodes))
        if answer.draft is not None:
            solved += 1
            assert answer.draft.is_complete
            assert start.properties.satisfied_by(answer.draft.graph())
            assert len(answer.draft.chain) <= len(original.nodes) + SLACK
    assert solved > 10  # about 9 of 10 are: as few as that once in 10^19 runs


def test_enumeration_finds_a_shortest_chain(rng: random.Random) -> None:
    """The oracle: all pairs of representatives, one after the other."""
    for _ in range(4):
        graph = drawn(rng, (2, 16, 8), most=2)
        start = Draft(Properties.of(graph), (2, 16, 8))
        answer = enumerative(start, rng, most=10**6)
        assert answer.draft is not None
        assert answer.draft.is_complete
        one = [start.apply(choice[0]) for choice in offered(start.shape, start.features)]
        shortest = 0 if start.is_complete else 1 if any(each.is_complete for each in one) else 2
        assert len(answer.draft.chain) == shortest
    assert enumerative(Draft(Properties(depth=9), BLOCK), rng, most=300).evaluations == 300


# -- drafts ------------------------------------------------------------------------------------------------------------


def test_candidates_say_what_they_do(rng: random.Random) -> None:
    wanted = Properties.of(Graph.chain(BLOCK, [operation("conv", features=16, stride=2), RELU]))
    draft = Draft(wanted, BLOCK)
    found = draft.candidates()
    assert [one.distance for one in found] == sorted(one.distance for one in found)
    for one in found:
        after = Graph.chain(BLOCK, [one.operation])
        assert one.distances == wanted.distances(after)
        assert one.draft == draft.apply(one.operation)
        verdict = (
            "infeasible" if one.distance == inf else "progress" if one.distance < draft.distance else "no progress"
        )
        assert one.verdict == verdict
    assert {one.verdict for one in found} == {"infeasible", "progress"}
    assert "no progress" in {one.verdict for one in draft.apply(CONV).candidates()}
    assert found[0].reason == "shape 3 -> 0, depth 2 -> 1, mixing 6 -> 0"
    assert found[-1].reason.startswith("cannot lead to the shape")
    everything = draft.candidates(represented=True)
    assert len(everything) == sum(map(len, offered(BLOCK, (16,))))
    for one in everything:
        if one.verdict == "represented":
            assert "same properties as" in one.reason
            assert one.distances == wanted.distances(Graph.chain(BLOCK, [one.operation]))


def test_a_draft_is_its_chain(rng: random.Random) -> None:
    for _ in range(20):
        graph = drawn(rng, BLOCK)
        chain = tuple(node.operation for node in graph.nodes)
        step = Draft(Properties.of(graph), BLOCK)
        for one in chain:
            assert step.distance == step.properties.distance(step.graph())
            step = step.apply(one)
        assert step == Draft(step.properties, BLOCK, chain)
        assert step.values == Draft(step.properties, BLOCK, chain).values
        assert step.is_complete
        assert step.graph() == graph


def test_the_second_pass_keeps_properties_and_types(rng: random.Random) -> None:
    changed = 0
    for _ in range(30):
        graph = drawn(rng, BLOCK)
        draft = Draft(Properties.of(graph), BLOCK, tuple(node.operation for node in graph.nodes))
        other = draft.exchanged(rng)
        assert other.values == draft.values
        assert [one.name for one in other.chain] == [one.name for one in draft.chain]
        changed += other.chain != draft.chain
    assert changed > 5  # a convolution or a pool among up to six operations is nearly always exchanged


@pytest.mark.parametrize("shape", [(2, 7, 8, 8), (2, 12, 12, 48), (1, 9, 6), (2, 16), (2, 1, 1, 1), (3, 4, 4, 6)])
def test_what_is_offered_is_all_that_divides_axes_whole(shape: Shape) -> None:
    """Against the table's own representatives, with the features that are asked for."""
    kept = [one for one in choices() if one.name in ("dense", "conv") and one["features"] == Rel()]
    more = [one.replace(features=Rel(10, shape[-1])) for one in kept]
    wanted = {
        frozenset(alike)
        for one, alike in representatives([*choices(), *more], shape).items()
        if not any(a % b for a, b in zip(shape[1:-1], one.shape(shape)[1:-1], strict=True))
    }
    assert set(map(frozenset, offered(shape, (10,)))) == wanted
    assert len(choices()) == 1402


# -- the front ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same(method: str) -> None:
    wanted = Properties.of(Graph.chain(BLOCK, [CONV, RELU]))
    found = [synthesise(wanted, BLOCK, method, seed) for seed in range(6)]
    assert found == [synthesise(wanted, BLOCK, method, seed) for seed in range(6)]
    assert len(set(found)) > 1
    for graph in found:
        assert graph is not None
        assert graph.output_shapes == (BLOCK,)
        assert method == "random" or wanted.satisfied_by(graph)


def test_refusals() -> None:
    with pytest.raises(SearchError, match=r"synthesise: method: expected one of progressive, greedy, .*, found 'best'"):
        synthesise(Properties(), BLOCK, "best")
    with pytest.raises(SpecError, match="depth: expected a table for 1 inputs and 1 outputs, found 2 x 1"):
        synthesise(Properties(depth=((1,), (1,))), BLOCK)
    with pytest.raises(SearchError, match="mutate: expected one of primer, automl_zero, random, found 'worst'"):
        mutate_as_rival(RESIDUAL, "worst", random.Random(0))


# -- beyond chains -----------------------------------------------------------------------------------------------------


def test_chains_of_a_graph() -> None:
    found = chains(RESIDUAL)
    assert [one.nodes for one in found] == [(0, 1, 2, 3, 4), (6,), (8,)]
    assert [one.is_last for one in found] == [False, False, True]
    assert with_chains(RESIDUAL, {one: one.operations for one in found}) == RESIDUAL
    fork = Graph((BLOCK,), (Node(RELU, (0,)), Node(CONV, (1,)), Node(RELU, (1,)), Node(RELU, (2,))), (3, 4))
    assert [one.nodes for one in chains(fork)] == [(0,), (1, 3), (2,)]
    both = Graph((BLOCK,), (Node(RELU, (0,)), Node(CONV, (1,))), (1, 2))
    assert [one.nodes for one in chains(both)] == [(0,), (1,)]


def test_the_skeleton_stays_and_its_chains_satisfy(rng: random.Random) -> None:
    rules = Mutations(relax="code", method="greedy", drop=0)
    found = [synthesise_again(RESIDUAL, random.Random(seed), rules) for seed in range(12)]
    assert found == [synthesise_again(RESIDUAL, random.Random(seed), rules) for seed in range(12)]
    assert len(set(found)) > 6
    for graph in found:
        assert graph is not None, "greedy synthesis is complete"
        assert graph.output_shapes == RESIDUAL.output_shapes
        kept = [node.operation.name for node in graph.nodes if node.operation.row.role != "chosen"]
        assert kept == ["add", "transpose"]
    fixed = synthesise_again(RESIDUAL, random.Random(3), Mutations(method="greedy", drop=1))
    assert fixed is not None


def test_an_unneeded_branch_is_dropped() -> None:
    """Both inputs of the sum are the same: either will do, and what is asked for holds without the other."""
    twice = Graph((BLOCK,), (Node(RELU, (0,)), Node(operation("add"), (1, 1)), Node(RELU, (2,))), (3,))
    rules = Mutations(relax="code", method="greedy", drop=1)
    found = [synthesise_again(twice, random.Random(seed), rules) for seed in range(30)]
    assert min(len(graph.nodes) for graph in found if graph) < 3


@pytest.mark.parametrize("rival", RIVALS)
def test_rivals_keep_the_shapes(rival: str, rng: random.Random) -> None:
    found = [mutate_as_rival(RESIDUAL, rival, random.Random(seed)) for seed in range(25)]
    assert found == [mutate_as_rival(RESIDUAL, rival, random.Random(seed)) for seed in range(25)]
    assert len(set(found)) > 10
    for graph in found:
        assert graph is not None
        assert graph != RESIDUAL
        assert graph.output_shapes == RESIDUAL.output_shapes
        mine = [one.operations for one in chains(graph)]
        changed = len(graph.nodes) - len(RESIDUAL.nodes)
        assert rival != "primer" or abs(changed) <= 1
        assert sum(map(len, mine)) == len(graph.nodes) - 2
