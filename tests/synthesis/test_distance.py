"""Shape distance against the truth: the shortest path by legal steps, found by breadth-first search.

The sharper bounds of the search graph are held against the shortest canonical path, found without any bound.
"""

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from true_distances import true_distances

from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.synthesis.distance import distance, explain_distance
from syno_lab.synthesis.graph import Graph, SearchNode
from syno_lab.synthesis.paths import count
from syno_lab.synthesis.reach import NEVER, Reach

SPECS = [
    Spec.parse("[H]", "[H]", ["H=12: 0"], ["s=2: 2", "k=3: 1"], max_primitives=3, max_tensors=2, max_reduces=1),
    Spec.parse("[C, H]", "[D, H]", ["C=4: 1", "D=6: 1", "H=10: 0"], ["k=3: 1"], max_primitives=3, max_tensors=2),
    Spec.parse("[s*H]", "[H]", ["H=12: 1"], ["s=2: 2"], max_primitives=3, max_tensors=1, min_weights=0),
    Spec.parse("[s, H]", "[H]", ["H=12: 1"], ["s=2: 2"], max_primitives=3, max_tensors=2, max_reduces=2),
    Spec.parse("[H, W]", "[s^-1*H, s*W]", ["H=12: 0", "W=10: 0"], ["s=2: 2"], max_primitives=3, max_tensors=2),
    Spec.parse(
        "[N, C, H]",
        "[N, D, H]",
        ["N=2: 0", "C=4: 1", "D=6: 0", "H=10: 0"],
        ["k=3: 2", "s=2: 1"],
        fixed_io_pairs=[(0, 0)],
        max_primitives=3,
        max_strides=1,
    ),
    Spec.parse(
        "[s*H]", "[H]", ["H=12: 0"], ["s=2: 2"], unordered=["s*H"], max_primitives=3, max_tensors=2, max_reduces=2
    ),
]
each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.input_shape} from {spec.output_shape}")


def test_the_papers_example_is_three() -> None:
    spec = Spec.parse("[C_in, H, W]", "[C_in, s^-1*H, s*W, k]", ["C_in", "H", "W"], ["s=2", "k=3"])
    explanation = explain_distance(State.root(spec))
    assert explanation.steps == 3
    assert explanation.eliminations == 1
    assert "{s*W, s^-1*H} <- {H, W}: 2 MERGE or SPLIT" in str(explanation)


def test_conv2d_needs_a_reduce_and_a_contraction() -> None:
    spec = Spec.parse(
        "[N, C_in, H, W]", "[N, C_out, H, W]", ["N: 0", "C_in: 1", "C_out", "H", "W"], ["k=3"], fixed_io_pairs=[(0, 0)]
    )
    assert distance(State.root(spec)) == 2
    assert "REDUCE(C_in) first" in str(explain_distance(State.root(spec)))


def test_out_of_reach_is_none_and_says_so() -> None:
    spec = Spec.parse("[C, H]", "[H]", ["C: 0", "H"])
    assert distance(State.root(spec)) is None
    assert "cannot be reached" in str(explain_distance(State.root(spec)))


@each_spec
def test_never_above_the_truth_and_mostly_equal(spec: Spec) -> None:
    """All states within the budgets, with true distances by going backwards from the complete ones."""
    _, truth = true_distances(spec, lambda state: state.is_complete)
    assert len(truth) > 10
    below: Counter[int] = Counter()
    for state, steps in truth.items():
        bound = distance(state)
        assert bound is not None, f"{state.data} after {state.steps} is {steps} steps away, not out of reach"
        assert bound <= steps, f"{[str(c.size) for c in state.data]}: bound {bound}, truth {steps}"
        below[steps - bound] += 1
    print(f"{len(truth)} states, by how far the distance is below the truth: {dict(sorted(below.items()))}")
    assert below[0] >= 0.9 * len(truth)


# -- the bounds of the search graph ----------------------------------------------------------------------------------


class Blind(Reach):
    """Knows no bound: whatever is within the budgets may lead to the input."""

    def steps(self, *_: Any, **__: Any) -> int:
        return 0


class Unbounded(Graph):
    """The search graph without bounds, and a list of its nodes."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.reach = Blind(spec)
        self.nodes: list[SearchNode] = []

    def _interned(self, node: SearchNode) -> SearchNode:
        found = super()._interned(node)
        if found is node:
            self.nodes.append(node)
        return found


def deeper(spec: Spec) -> Spec:
    """With more steps: the graph is far smaller than the set of all states."""
    return replace(spec, limits=replace(spec.limits, max_primitives=5))


def walked(spec: Spec) -> tuple[Unbounded, Any]:
    """The whole graph within the spec's steps, and the fewest steps from a node to the end of an operator."""
    graph = Unbounded(spec)

    @cache
    def fewest(node: SearchNode, left: int) -> int:
        found = NEVER
        for edge in graph.edges(node, left):
            found = min(found, edge.cost + (0 if edge.target is None else fewest(edge.target, left - edge.cost)))
        return found

    fewest(graph.root, spec.limits.max_primitives)
    return graph, fewest


@each_spec
def test_the_bound_of_search_is_never_above_the_truth(spec: Spec) -> None:
    """For every node that canonical steps reach, the fewest canonical steps from it to an operator."""
    spec = deeper(spec)
    graph, fewest = walked(spec)
    bounds = Graph(spec)
    most = spec.limits.max_primitives
    below: Counter[int] = Counter()
    dead = seen = 0
    for node in graph.nodes:
        left = most - len(node.state.steps)
        truth = fewest(node, left)
        bound = bounds._steps(sorted(node.items), left, len(node.state.weights), node.used, node.spent)
        if truth < NEVER:
            assert bound <= truth, f"{[str(c.size) for c in node.places]} after {node.state.steps}: {bound} > {truth}"
            below[truth - bound] += 1
        else:
            dead += 1
            seen += bound > left
    print(
        f"{len(graph.nodes)} nodes, by how far the bound is below the truth: {dict(sorted(below.items()))}; "
        f"{seen} of {dead} dead ends are seen"
    )
    assert below[0] > 0


@each_spec
def test_bounds_cut_off_no_operator(spec: Spec) -> None:
    """With all bounds, those in the middle of a stage as well, there are as many paths as without any."""
    spec = deeper(spec)
    most = spec.limits.max_primitives
    bounded, unbounded = Graph(spec), Unbounded(spec)
    assert count(bounded, bounded.root, most) == count(unbounded, unbounded.root, most) > 0
    assert len(bounded) < len(unbounded)


@each_spec
def test_the_distance_after_a_step_is_that_of_the_state_it_leads_to(spec: Spec) -> None:
    states = [State.root(spec)]
    for _ in range(2):
        for state in states:
            for candidate in state.candidates():
                assert candidate.distance == distance(state.apply(candidate)), f"{candidate.step} on {state}"
        states = [state.apply(candidate) for state in states for candidate in state.candidates()][::17]
