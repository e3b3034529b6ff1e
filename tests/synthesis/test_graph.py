"""The search graph: as many paths as operators, and nodes that hide no difference."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from true_distances import canonical_successors

from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.synthesis.graph import Graph, SearchNode
from syno_lab.synthesis.paths import Builder, count, exactly, take
from syno_lab.synthesis.rules import RULES
from syno_lab.synthesis.sampler import Sampler
from tests.synthesis.test_complete import describe, reachable

SHALLOW = tuple(rule for rule in RULES if not rule.is_deep)


def random_spec(rng: random.Random) -> Spec:
    """A small spec: one or two axes on each side, one coefficient, and budgets by chance."""
    primaries = [f"H={rng.choice([18, 36, 45])}: {rng.randint(0, 1)}", f"W={rng.choice([7, 21])}: {rng.randint(0, 1)}"]
    shapes = ["[H]", "[W, H]", "[s*H]", "[s, H]", "[H, W]"]
    return Spec.parse(
        rng.choice(shapes),
        rng.choice(shapes),
        primaries,
        [f"s=3: {rng.randint(1, 3)}"],
        max_primitives=3,
        max_tensors=rng.randint(1, 3),
        max_reduces=rng.randint(0, 2),
        max_expands=rng.randint(0, 1),
        max_shifts=rng.randint(0, 2),
        max_strides=rng.randint(0, 1),
        min_weights=0,
        weight_limits=rng.choice(["free", "primary"]),
    )


@pytest.mark.parametrize("number", range(12))
def test_the_graph_has_each_operator_once(number: int, rng: random.Random) -> None:
    rng.seed(rng.random() + number)
    spec = random_spec(rng)
    where = f"{spec.input_shape} from {spec.output_shape}, {spec.variables}, {spec.limits}, {spec.weight_limits}"
    expected = set(reachable(spec, RULES))
    graph = Graph(spec)
    most = spec.limits.max_primitives
    total = count(graph, graph.root, most)
    paths = list(take(graph, graph.root, most, list(range(total))))
    assert len(paths) == len(set(paths)) == total, where
    chosen = sorted(rng.sample(range(total), min(total, 9)))
    assert list(take(graph, graph.root, most, chosen)) == [paths[rank] for rank in chosen]
    builder = Builder(graph)
    found = [operator for operator in map(builder.operator, paths) if operator is not None]
    # Where no step is left the last one ends an operator at once, so the same operators come by other edges here.
    by_length = [path for length in range(most + 1) for path in exactly(graph, graph.root, length)]
    assert Counter(o for o in map(builder.operator, by_length) if o is not None) == Counter(found), where
    assert [describe(o) for o, times in Counter(found).items() if times > 1] == [], where
    assert {describe(o) for o in expected - set(found)} == set(), where
    assert {describe(o) for o in set(found) - expected} == set(), where


class Recorded(Graph):
    """The graph, with the states that were taken for one."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)  # which asks the rows of SHALLOW
        self.pairs: list[tuple[State, State]] = []

    def _interned(self, node: SearchNode) -> SearchNode:
        found = super()._interned(node)
        if found is not node:
            self.pairs.append((found.state, node.state))
        return found


def futures(state: State, depth: int) -> Any:
    """What canonical steps make of a state, by shape: steps and sizes, nested to ``depth``."""
    sizes = tuple(sorted(c.size.exponents for c in state.data))
    if not depth:
        return sizes
    steps = Counter(
        (step.primitive, str(step.parameter), futures(after, depth - 1))
        for step, after in canonical_successors(state, SHALLOW)
    )
    return sizes, tuple(sorted(steps.items(), key=repr))


SPECS = [
    Spec.parse("[H, W]", "[H, W]", ["H=63: 1", "W=99: 0"], ["s=3: 3"], max_primitives=9, max_tensors=2, max_strides=1),
    Spec.parse("[C, H]", "[D, H]", ["C=12: 1", "D=21: 1", "H=5: 0"], ["k=3: 2"], max_primitives=9, max_reduces=3),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.output_shape}")
def test_states_of_one_node_have_the_same_futures(spec: Spec, rng: random.Random) -> None:
    """Node keys say enough. Budgets of steps are wide, as nodes are asked for any number of steps that is left."""
    graph = Recorded(spec)
    count(graph, graph.root, 5)
    pairs = [(one, other) for one, other in graph.pairs if one != other]
    assert len(pairs) > 50
    for one, other in rng.sample(pairs, 30):
        assert futures(one, 1) == futures(other, 1), f"{one.steps}\n{other.steps}"
    small = [(one, other) for one, other in pairs if len(one.data) <= 3 and len(other.data) <= 3]
    for one, other in rng.sample(small, min(len(small), 6)):
        assert futures(one, 2) == futures(other, 2), f"{one.steps}\n{other.steps}"


def test_forgetting_changes_nothing() -> None:
    spec = replace(SPECS[1], limits=replace(SPECS[1].limits, max_primitives=4))
    graph = Graph(spec)
    before = count(graph, graph.root, 4)
    graph.forget()
    assert len(graph) == 0
    assert count(graph, graph.root, 4) == before == sum(map(len, Sampler.from_spec(spec)._paths(None)))
