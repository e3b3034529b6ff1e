"""Shape, depth and mixing: their values against brute force and whole Jacobians, and the laws of their distances."""

from __future__ import annotations

import random
from itertools import product
from math import inf
from typing import Any

import pytest
from alpha_jacobians import exact, random_graph
from alpha_networks import representatives

from syno_lab.alpha.graph import Graph, Node
from syno_lab.alpha.operations import Operation, Rel, Shape, choices, operation
from syno_lab.alpha.properties import DEPTH, MIXING, RELAXATIONS, SHAPE, Relax, compose, depth_property, pairing_of
from syno_lab.common.pairing import Pairing
from syno_lab.errors import SpecError

BLOCK: Shape = (2, 12, 12, 16)
CONV, NORM, RELU = operation("conv", features=Rel(1)), operation("batch_norm"), operation("relu")
RESIDUAL = Graph((BLOCK,), (Node(CONV, (0,)), Node(RELU, (1,)), Node(CONV, (2,)), Node(operation("add"), (0, 3))), (4,))


def simple(shape: Shape) -> list[Operation]:
    """One operation of each kind that keeps a shape."""
    return [one for one in representatives(choices(), shape) if one.shape(shape) == shape]


def paths(graph: Graph, start: int, end: int) -> list[list[tuple[Operation, Pairing]]]:
    """All ways from a tensor to another: their operations, each with its pairing of the input that is taken."""
    if start == end:
        return [[]]
    found, node = [], graph.maker(end)
    if node is None:
        return []
    taken = graph.nodes[node]
    for position, before in enumerate(taken.inputs):
        pairing = taken.operation.pairings(*graph.input_shapes(node))[position]
        found += [[*path, (taken.operation, pairing)] for path in paths(graph, start, before)]
    return found


# -- values ------------------------------------------------------------------------------------------------------------


def test_composed_mixing_is_at_most_the_exact_one(rng: random.Random) -> None:
    """``benchmarks/alpha.py --part sound`` does the same with thousands."""
    for _ in range(150):
        graph = random_graph(rng)
        for found, wanted in zip(MIXING.infer(graph), exact(graph, rng.randrange(1 << 30)), strict=True):
            for mine, whole in zip(found, wanted, strict=True):
                assert mine is not None
                assert mine <= whole, f"{graph}\ncomposed {mine.marks}\nexact {whole.marks}"


@pytest.mark.parametrize(
    ("shape", "chain"),
    [
        # Four channels made of each one, and a norm that mixes just those four: many results, one input.
        ((2, 4, 4, 4), [operation("conv", features=16, groups=4), operation("group_norm", groups=4)]),
        # The norm mixes four elements of the flat axis: all of the channels, one position.
        ((2, 3, 3, 4), [operation("flatten"), operation("group_norm", groups=9)]),
        # The first window alone covers the axis, and the convolution skips it.
        (
            (2, 6, 4),
            [
                operation("average_pool", window=8, stride=3),
                operation("conv", features=4, kernel=5, stride=3, dilation=2),
            ],
        ),
    ],
)
def test_where_the_lemma_fails(shape: Shape, chain: list[Operation]) -> None:
    """Lemma 3.6 as printed is no lower bound here: the composed value exceeds the exact one."""
    graph = Graph.chain(shape, chain)
    (found,), (wanted,) = MIXING.infer(graph), exact(graph, 0)
    assert found[0] is not None
    assert not found[0] <= wanted[0]


def test_values_over_branches_are_the_largest_over_all_paths(rng: random.Random) -> None:
    for _ in range(100):
        graph = random_graph(rng, most=7)
        for start in range(len(graph.inputs)):
            for column, end in enumerate(graph.outputs):
                found = paths(graph, start, end)
                kinds = [[one.linear for one, _ in path if one.linear is not None] for path in found]
                runs = [sum(i == 0 or kind[i] != kind[i - 1] for i in range(len(kind))) for kind in kinds]
                assert DEPTH.infer(graph)[start][column] == max(runs, default=0)
                wanted = pairing_of(["x" * len(graph.inputs[start])] * len(graph.shapes[end]), len(graph.inputs[start]))
                for path in found:
                    matrix = MIXING.start(graph.inputs[start])
                    for _, own in path:
                        matrix = own @ matrix
                    wanted = wanted | matrix
                assert MIXING.infer(graph)[start][column] == wanted


def test_known_depths() -> None:
    """Runs, and what the published code counts after a raw input, a linear and a non-linear producer (3.2)."""
    block, lone = Graph.chain(BLOCK, [CONV, NORM, RELU]), Graph.chain(BLOCK, [RELU])
    for graph, runs, linear, nonlinear in ((block, 2, 1, 2), (lone, 1, 1, 0)):
        assert DEPTH.infer(graph) == ((runs,),)
        assert depth_property("linear").infer(graph) == ((linear,),)
        assert depth_property("nonlinear").infer(graph) == ((nonlinear,),)
    assert DEPTH.infer(RESIDUAL) == ((3,),)
    assert DEPTH.infer(Graph.chain(BLOCK, [])) == ((0,),)
    ignored = [CONV, operation("identity"), CONV, operation("identity"), RELU, operation("identity")]
    assert DEPTH.infer(Graph.chain(BLOCK, ignored)) == ((2,),)


def test_no_path() -> None:
    graph = Graph((BLOCK, BLOCK), (Node(RELU, (0,)),), (2,))
    assert DEPTH.infer(graph) == ((1,), (0,))
    assert MIXING.infer(graph)[1] == (pairing_of(["xxxx"] * 4, 4),)
    assert SHAPE.infer(graph) == ((BLOCK,),)


def test_identity_of_axes_of_length_1() -> None:
    graph = Graph.chain((1, 3, 1, 2), [])
    assert MIXING.infer(graph) == tuple(map(tuple, exact(graph, 0)))


# -- laws --------------------------------------------------------------------------------------------------------------


def drawn_matrix(rng: random.Random, axes: int) -> Pairing:
    return pairing_of(["".join(rng.choice("xoma") for _ in range(axes)) for _ in range(axes)], axes)


def test_later_operations_never_lower_an_entry(rng: random.Random) -> None:
    """Lemma 4.10, for all that is at least the identity: random triples."""
    matrices = [one.pairings(BLOCK)[0] for one in simple(BLOCK)]
    assert len(set(matrices)) > 5
    for _ in range(1000):
        first, second, before = rng.choice(matrices), rng.choice(matrices), drawn_matrix(rng, 4)
        both = second @ (first @ before)
        assert second @ before <= both
        assert first @ before <= both


def test_a_stride_above_the_kernel_lowers_entries() -> None:
    """The exception to Lemma 4.10, and why."""
    skips = operation("conv", features=Rel(1), kernel=1, stride=2).pairings(BLOCK)[0]
    before = MIXING.start(BLOCK)
    assert not before <= skips @ before


def reached(shape: Shape) -> dict[Pairing, set[Pairing]]:
    """For each matrix that chains of operations on a shape can have, those that can follow."""
    own = {one.pairings(shape)[0] for one in representatives(choices(), shape) if len(one.shape(shape)) == len(shape)}
    found, waiting = dict[Pairing, set[Pairing]](), [MIXING.start(shape)]
    while waiting:
        value = waiting.pop()
        if value not in found:
            found[value] = {compose(one, value) for one in own}
            waiting += found[value]
    return found


@pytest.mark.parametrize("shape", [(2, 12, 12, 16), (2, 12, 16), (2, 16)])
def test_mixing_distance_is_covered_and_infinite_where_nothing_leads(shape: Shape) -> None:
    """Theorem 4.11 and Definition 4.1 (3), by exhaustion over the matrices that there are."""
    follows = reached(shape)
    kept = {one.pairings(shape)[0] for one in simple(shape)}
    assert len(follows) >= 2
    for value in follows:
        later, waiting = set[Pairing](), [value]
        while waiting:
            one = waiting.pop()
            if one not in later:
                later.add(one)
                waiting += follows[one]
        for target in follows:
            distance = MIXING.distance(value, target, False)
            assert (distance == 0) == (target <= value)
            assert (distance < inf) == any(target <= one for one in later)
            assert (MIXING.distance(value, target, True) == inf) == (distance == inf)
            if 0 < distance < inf:
                nearest = min(MIXING.distance(compose(one, value), target, False) for one in kept)
                assert nearest <= distance - 1, "a uniform covering, by operations that keep the shape"


def test_shape_distance_is_covered_and_infinite_where_nothing_leads() -> None:
    """Theorem 4.14: by exhaustion over small shapes; a dense layer gives any channels, so these may differ or not."""
    pools = [one for one in choices() if one.name == "max_pool"]  # convolutions have the same strides
    axes: list[Shape] = [(h, w) for h in range(1, 13) for w in (1, 2, 3, 4, 6, 8, 9, 12)]
    follows = {
        pair: {
            one.shape((2, *pair, 4))[1:-1]
            for one in pools
            if not any(a % b for a, b in zip(pair, one.shape((2, *pair, 4))[1:-1], strict=True))
        }
        for pair in axes
    }
    for start, end in product(axes, axes):
        steps, target = {start}, (2, *end, 4)
        for _ in range(4):
            # Feasible steps are those from which the target's axes still divide.
            steps |= {
                two for one in steps for two in follows.get(one, ()) if not two[0] % end[0] and not two[1] % end[1]
            }
        distance = SHAPE.distance((2, *start, 4), target, False)
        assert (distance < inf) == (end in steps), (start, end)
        if distance < inf:
            assert distance == start[0] // end[0] + start[1] // end[1] - 2
            assert SHAPE.distance((2, *start, 8), target, False) == distance + 1
            nearest = min((SHAPE.distance((2, *one, 4), target, False) for one in follows[start]), default=0)
            assert distance == 0 or nearest <= distance - 1


def test_depth_distance_is_covered_and_monotone(rng: random.Random) -> None:
    """Theorem 4.12: after any chain one of two operations leads nearer, and none leads away."""
    kept = simple(BLOCK)
    for _ in range(50):
        state = DEPTH.start(BLOCK)
        for _ in range(rng.randint(0, 6)):
            state = DEPTH.after(state, rng.choice((CONV, NORM, RELU)), (BLOCK,), 0)
        for target in range(10):
            distance = DEPTH.distance(DEPTH.value(state), target, False)
            assert distance == max(0, target - state.runs)
            after = [DEPTH.distance(DEPTH.value(DEPTH.after(state, one, (BLOCK,), 0)), target, False) for one in kept]
            assert max(after) <= distance
            assert distance == 0 or min(after) == distance - 1


def test_distances_by_hand() -> None:
    conv = CONV.pairings(BLOCK)[0]
    start = MIXING.start(BLOCK)
    assert MIXING.distance(start, conv, False) == 6  # H and W to m, the channels read whole by all four
    assert MIXING.distance(start, conv, True) == 6 / 7
    assert MIXING.distance(conv, start, False) == 0
    assert MIXING.distance(start, pairing_of(["oa"] * 2, 2), False) == inf
    batch = pairing_of(["oxxx", "oxxx", "xxxx", "xxxx"], 4)
    assert MIXING.distance(start, batch, False) == inf, "examples never mix"
    assert SHAPE.distance((2, 12, 12, 16), (2, 6, 6, 8), False) == 3
    assert SHAPE.distance((2, 12, 12, 16), (2, 6, 6, 8), True) == 3 / 4
    assert SHAPE.distance((2, 12, 12, 16), (2, 1, 1, 16), False) == 22
    for target in ((2, 5, 5, 16), (2, 24, 24, 16), (1, 12, 12, 16), (2, 12, 16), (2, 6, 12, 16)):
        assert SHAPE.distance((2, 12, 12, 16), target, False) == inf == SHAPE.distance(BLOCK, target, True)
    assert DEPTH.distance(1, 4, False) == 3
    assert DEPTH.distance(1, 4, True) == 3 / 4
    assert DEPTH.distance(0, 0, True) == 0 == DEPTH.distance(5, 4, True)


# -- mutations ---------------------------------------------------------------------------------------------------------


def test_only_depth_may_ask_for_more(rng: random.Random) -> None:
    seen = set[int]()
    for name, rules in RELAXATIONS.items():
        for _ in range(200):
            for row, weaker in zip(
                MIXING.infer(RESIDUAL), MIXING.relax(MIXING.infer(RESIDUAL), rules, rng), strict=True
            ):
                for before, after in zip(row, weaker, strict=True):
                    assert before is not None
                    assert after is None or (after <= before and name == "paper") or after == before
            assert SHAPE.relax(((BLOCK,),), rules, rng) in (((BLOCK,),), ((None,),))
            ((depth,),) = DEPTH.relax(((3,),), rules, rng)
            assert depth is not None
            seen.add(depth)
        assert seen == {1, 2, 3, 4, 5}  # the rarest has 1 in 8: 200 draws miss it once in 10^11


def test_rules_at_their_ends(rng: random.Random) -> None:
    table = MIXING.infer(RESIDUAL)
    nothing, all_of_it = Relax(0, 0, 0), Relax(1, 1, 1, most=1)
    rows: tuple[tuple[Any, Any], ...] = ((SHAPE, ((BLOCK,),)), (DEPTH, ((3, None),)), (MIXING, table))
    for row, values in rows:
        assert row.relax(values, nothing, rng) == values
    assert SHAPE.relax(((BLOCK,),), all_of_it, rng) == ((None,),)
    assert DEPTH.relax(((3,),), all_of_it, rng) in (((2,),), ((4,),))
    assert MIXING.relax(table, all_of_it, rng) == ((pairing_of(["xxxx"] * 4, 4),),)
    assert MIXING.relax(table, Relax(1, 1, 1, whole=True), rng) == ((None,),)
    assert all(DEPTH.relax(((0,),), Relax(depth=1), rng)[0][0] in (0, 1, 2) for _ in range(20))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shape": 1.5}, "Relax: shape: expected a probability from 0 to 1, found 1.5"),
        ({"mixing": True}, "Relax: mixing: expected a probability from 0 to 1, found True"),
        ({"depth": float("nan")}, "Relax: depth: expected a probability"),
        ({"most": 0}, "Relax: most: expected an integer of 1 or more, found 0"),
    ],
)
def test_refused_rules(given: dict[str, float], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Relax(**given)  # type: ignore[arg-type]
