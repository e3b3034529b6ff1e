"""The property distance against the truth: all operators of small spaces, their exact mixing, and shortest paths."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from true_distances import true_distances

from syno_lab.common.wants import RANK, parse_wants
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.graph import Graph, SearchNode
from syno_lab.synthesis.paths import Builder, exactly
from syno_lab.synthesis.property_distance import explain_property_distance, lost_wishes, property_distance
from syno_lab.synthesis.reach import NEVER

PAIR = [(0, 0)]
# Each spec with the wishes that are tried on it. Coefficients divide the primaries, so that every size has numbers.
SPACES: dict[str, tuple[Spec, tuple[str, ...]]] = {
    "a fixed axis, weights, STRIDE": (
        Spec.parse(
            "[N, C, H]",
            "[N, D, H]",
            ["N=1: 0", "C=12: 1", "D=24: 1", "H=36: 0"],
            ["k=3: 2", "s=2: 1"],
            fixed_io_pairs=PAIR,
            max_primitives=5,
            max_tensors=2,
        ),
        ("C>=m, H>=m", "C>=a", "C->D>=o", "H->H>=m", "C->H>=m", "N>=m", "N>=o"),
    ),
    "two spatial axes": (
        Spec.parse(
            "[H, W]",
            "[H, W]",
            ["H=24: 0", "W=36: 0"],
            ["k=3: 2", "s=2: 2"],
            max_primitives=4,
            max_tensors=2,
            max_shifts=1,
        ),
        ("H>=m", "H>=m, W>=m", "H->W>=o", "H->W>=m", "H>=a", "W->H>=o, H->W>=o"),
    ),
    "pooling": (
        Spec.parse("[s*H]", "[H]", ["H=12: 1"], ["s=2: 2"], max_primitives=4, max_tensors=2, min_weights=0),
        ("s*H>=m", "s*H>=a", "s*H>=o"),
    ),
    "grouped": (
        Spec.parse(
            "[C, H]",
            "[C, H]",
            ["C=12: 1", "H=30: 0"],
            ["g=2: 2", "k=3: 1"],
            max_primitives=4,
            max_tensors=2,
            max_shifts=1,
        ),
        ("C>=m, H>=m", "C>=a, H>=m", "C->H>=o", "H->C>=m"),
    ),
    "an axis of coefficients": (
        Spec.parse(
            "[H, s]", "[s*H]", ["H=36: 0"], ["s=2: 2", "k=3: 2"], max_primitives=4, max_tensors=2, min_weights=0
        ),
        ("H>=m", "s>=m", "s>=a", "H>=m, s>=m"),
    ),
}
CASES = [pytest.param(name, wish, id=f"{name}: {wish}") for name, (_, wishes) in SPACES.items() for wish in wishes]
each_wish = pytest.mark.parametrize(("name", "wish"), CASES)


def wishing(spec: Spec, wish: str) -> Spec:
    return replace(spec, wants=parse_wants(wish, spec.input_shape, spec.output_shape, spec.symbols))


def operators(spec: Spec) -> Iterator[Operator]:
    """Every operator of a space, before anything is asked of its mixing."""
    graph = Graph(spec)
    builder = Builder(Graph(replace(spec, wants=())))
    for length in range(spec.limits.max_primitives + 1):
        for path in exactly(graph, graph.root, length):
            operator = builder.operator(path)
            if operator is not None:
                yield operator


@cache
def everything(name: str) -> dict[Operator, Any]:
    """All operators of a space without wishes, with their mixing."""
    return {operator: operator.mixing().locality for operator in operators(SPACES[name][0])}


def meets(found: Any, spec: Spec) -> bool:
    """Definitions 3.4 and 3.5 of αNAS, looked up in an operator's matrix."""
    return all(
        max(RANK[row[wish.axis]] for row in (found if wish.output is None else [found[wish.output]]))
        >= RANK[wish.least]
        for wish in spec.wants
    )


@each_wish
def test_pruning_loses_no_operator_that_meets_the_wish(name: str, wish: str) -> None:
    """What the guided search finds holds everything that meets the wish, and nothing that the space does not have."""
    spec = wishing(SPACES[name][0], wish)
    every = everything(name)
    found = set(operators(spec))
    meeting = {operator for operator, matrix in every.items() if meets(matrix, spec)}
    assert meeting <= found <= every.keys()
    print(f"{len(every)} operators, {len(found)} found, {len(meeting)} meet {wish}")


@pytest.mark.parametrize("name", SPACES)
def test_wishes_of_m_are_hardly_ever_missed_by_what_is_found(name: str) -> None:
    """The conditions are nearly sufficient where any output axis will do."""
    spec = SPACES[name][0]
    for wish in (wish for wish in SPACES[name][1] if "->" not in wish and "a" not in wish and "o" not in wish):
        asked = wishing(spec, wish)
        found = list(operators(asked))
        every = everything(name)
        assert sum(meets(every[operator], asked) for operator in found) >= 0.9 * len(found)


FEW: dict[str, Any] = {"max_shifts": 0, "max_strides": 0, "max_expands": 0}
SMALL = [
    Spec.parse("[C, H]", "[D, H]", ["C=4: 1", "D=6: 1", "H=10: 0"], ["k=2: 2"], max_primitives=4, max_tensors=2, **FEW),
    Spec.parse("[s*H]", "[H]", ["H=12: 1"], ["s=2: 2"], max_primitives=3, max_tensors=1, min_weights=0),
    Spec.parse("[H, W]", "[H, W]", ["H=12: 0", "W=10: 0"], ["s=2: 2"], max_primitives=3, max_tensors=2, **FEW),
    Spec.parse(
        "[N, C, H]",
        "[N, C, H]",
        ["N=2: 0", "C=4: 1", "H=10: 0"],
        ["k=2: 2"],
        fixed_io_pairs=PAIR,
        max_primitives=3,
        max_strides=1,
    ),
]
SMALL_WISHES = [(0, "C>=m, H>=m"), (1, "s*H>=m"), (2, "H>=m"), (2, "H->W>=o"), (3, "H>=m")]


@pytest.mark.parametrize(("number", "wish"), SMALL_WISHES)
def test_never_above_the_truth(number: int, wish: str) -> None:
    """All states within the budgets, with true distances by going backwards from the complete ones that meet it."""
    spec = wishing(SMALL[number], wish)
    states, truth = true_distances(spec, _is_met)
    below: Counter[int] = Counter()
    dead = seen = 0
    for number_of_state, state in enumerate(states):
        if state not in truth and number_of_state % 20:
            continue  # of the dead ends some are enough
        bound = property_distance(state)
        shape = distance(state)
        assert bound is None or (shape is not None and bound >= shape)
        if state in truth:
            assert bound is not None, f"{state.data} after {state.steps} is {truth[state]} steps away"
            assert bound <= truth[state], f"{state.data} after {state.steps}: {bound}, truth {truth[state]}"
            below[truth[state] - bound] += 1
        elif shape is not None:
            dead += 1
            seen += bound is None or bound > spec.limits.max_primitives - len(state.steps)
    print(f"{len(truth)} states, by how far below the truth: {dict(sorted(below.items()))}; {seen} of {dead} dead seen")
    assert not truth or below[0] >= 0.5 * len(truth)


def _is_met(state: State) -> bool:
    if not state.is_complete:
        return False
    return any(meets(Operator(state, match).mixing().locality, state.spec) for match in state.matches())


@each_wish
def test_nodes_that_are_one_have_one_property_distance(name: str, wish: str) -> None:
    """Two states that search keeps as one node are as far from what is wished."""
    spec = wishing(SPACES[name][0], wish)

    class Watched(Graph):
        merged = 0

        def _interned(self, node: SearchNode) -> SearchNode:
            found = super()._interned(node)
            if found is not node and self.merged % 50 == 0:
                assert property_distance(found.state) == property_distance(node.state)
            self.merged += found is not node
            return found

    graph = Watched(spec)
    for length in range(spec.limits.max_primitives):
        for _ in exactly(graph, graph.root, length):
            pass


CONV = Spec.parse(
    "[N, C_in, H, W]",
    "[N, C_out, H, W]",
    ["N=1: 0", "C_in=64: 3", "C_out=64: 4", "H=32: 0", "W=32: 0"],
    ["k=3: 4", "g=16: 3"],
    fixed_io_pairs=PAIR,
    max_primitives=8,
    wants="C_in>=m, H>=m, W>=m",
)


def after(*sizes: str) -> State:
    state = State.root(CONV)
    for size in sizes:
        state = state.apply(next(c for c in state.candidates() if str(c.parameter) == size and c.primitive == "REDUCE"))
    return state


def test_conv2d_is_six_steps_away_from_the_output() -> None:
    """Three REDUCEs, two UNFOLDs and a CONTRACTION; the shape distance is two."""
    root = State.root(CONV)
    assert (root.distance, root.property_distance) == (2, 6)
    words = str(root.explain_property_distance())
    assert "C_in>=m: a REDUCE that is still to come must bring it, of C_in." in words
    assert "Property distance 6: at least so many steps, 4 more than the shapes need." in words


def test_one_reduce_serves_two_wishes_by_a_merge() -> None:
    assert after("C_in", "k").property_distance == 4  # MERGE, two UNFOLDs, a CONTRACTION
    assert after("C_in", "k", "k").property_distance == 3


def test_the_explanation_names_what_must_be_brought() -> None:
    explanation = explain_property_distance(after("C_in", "k", "k"))
    assert [(one.wish, one.by) for one in explanation.served] == [
        ("C_in>=m", "held"),
        ("H>=m", "window"),
        ("W>=m", "window"),
    ]


def test_a_step_that_gives_a_wish_up_is_pruned_and_says_so() -> None:
    """With one window alone and three steps there is nothing that can be read along both H and W."""
    spec = replace(CONV, limits=replace(CONV.limits, max_primitives=6))
    state = State.root(spec)
    for size in ("C_in", "k", "k"):
        state = state.apply(next(c for c in state.candidates() if str(c.parameter) == size))
    unfolded = next(
        c for c in state.candidates() if c.primitive == "UNFOLD" and [str(o.size) for o in c.operands] == ["C_out", "k"]
    )
    assert unfolded.verdict.rule == "wish"
    assert unfolded.verdict.reason == "It cannot read H and W any more with 2 steps left."
    assert unfolded.verdict.rejected_by is not None
    assert unfolded.verdict.rejected_by.kind == "wish"


def test_what_no_operator_can_meet_is_out_of_reach_from_the_first_state() -> None:
    spec = wishing(SPACES["a fixed axis, weights, STRIDE"][0], "C>=m, N>=m")
    root = State.root(spec)
    assert root.property_distance is None
    assert [wish.axis for wish in lost_wishes(root)] == [0]
    assert "N>=m: nothing that is left can bring it any more." in str(root.explain_property_distance())
    assert list(operators(spec)) == []


def test_without_wishes_it_is_the_shape_distance() -> None:
    state = State.root(replace(CONV, wants=()))
    assert state.property_distance == state.distance
    assert state.explain_property_distance().words() == []
    assert Graph(state.spec).wishes is None
    assert NEVER > 64


@each_wish
def test_the_bound_without_a_search_is_never_above_the_one_with_it(name: str, wish: str) -> None:
    """For the items of every node that the guided search meets."""
    spec = wishing(SPACES[name][0], wish)

    class Watched(Graph):
        def _interned(self, node: SearchNode) -> SearchNode:
            assert self.wishes is not None
            items = tuple(sorted(node.items))
            found = self.wishes.steps(items, 12, 2, 99, 99)
            assert min(13, self.wishes.few(items)) <= found
            return super()._interned(node)

    graph = Watched(spec)
    for _ in exactly(graph, graph.root, spec.limits.max_primitives - 1):
        pass
