"""Unordered input axes: of the operators that differ only in their inner order one is found, and none is lost.

The oracle is the fingerprint, which lets the positions along such axes be renamed, on breadth-first search by exact
rules; and the same search without any rule but those of the space.
"""

from __future__ import annotations

from functools import cache

import pytest

import syno_lab as sl
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.graph import Graph
from syno_lab.synthesis.orders import is_in_order
from syno_lab.synthesis.paths import count
from syno_lab.synthesis.rules import RULES
from syno_lab.synthesis.sampler import Sampler
from tests.synthesis.test_complete import (
    EXACT,
    SPACE,
    adds_weight_elements,
    by_function,
    describe,
    reachable,
    with_any_occurrences,
)

SPECS = {
    "1-D, digits": Spec.parse(
        "[H]", "[H]", ["H=63: 0"], ["s=3: 2"], unordered=["H"], max_primitives=4, max_tensors=2, max_reduces=1,
        min_weights=0,
    ),
    "channels": Spec.parse(
        "[C, H]", "[D, H]", ["C=12: 1", "D=21: 0", "H=5: 0"], ["k=3: 2"], unordered=["C"], max_primitives=4,
        max_tensors=2, max_reduces=2, max_expands=0, max_shifts=1, max_strides=0,
    ),
    "one axis of two": Spec.parse(
        "[H, W]", "[H, W]", ["H=63: 0", "W=99: 0"], ["s=3: 2"], unordered=["W"], max_primitives=3, max_tensors=2,
        max_reduces=2, min_weights=0,
    ),
    "a product": Spec.parse(
        "[s*H]", "[H]", ["H=63: 0"], ["s=3: 2"], unordered=["s*H"], max_primitives=4, max_tensors=2, max_reduces=2,
        min_weights=0,
    ),
}  # fmt: skip
each_spec = pytest.mark.parametrize("name", SPECS)


@cache
def kept(name: str) -> tuple[tuple[Operator, ...], int]:
    """What breadth-first search by exact rules finds and the inner order keeps, and how much there was before."""
    every = tuple(reachable(SPECS[name], EXACT))
    return tuple(operator for operator in every if is_in_order(operator, EXACT)), len(every)


@each_spec
def test_no_function_is_lost(name: str) -> None:
    """But for those whose canonical form costs too many occurrences, and sums of weight elements, as in the proofs."""
    spec = SPECS[name]
    every = by_function(tuple(reachable(spec, SPACE)), spec)
    lost = every.keys() - by_function(kept(name)[0], spec).keys()
    lost = {function for function in lost if not adds_weight_elements(every[function][0])}
    if lost:
        free = with_any_occurrences(spec)
        lost -= by_function(tuple(Sampler.from_spec(free, rules=EXACT).enumerate()), free).keys()
    assert not lost, "\n".join(describe(every[function][0]) for function in sorted(lost)[:5])


@each_spec
def test_no_function_is_found_twice(name: str) -> None:
    operators, before = kept(name)
    repeats = [found for found in by_function(operators, SPECS[name]).values() if len(found) > 1]
    assert not repeats, "\n\n".join("\n".join(map(describe, found)) for found in repeats[:5])
    assert len(operators) < before, "nothing was told apart by inner order alone: this spec tests nothing"


@each_spec
def test_enumeration_gives_those_and_counts_them(name: str) -> None:
    found = list(Sampler.from_spec(SPECS[name], rules=EXACT).enumerate())
    assert len(found) == len(set(found))
    assert set(found) == set(kept(name)[0])


@each_spec
def test_the_distance_is_never_above_the_steps_that_are_taken(name: str) -> None:
    for operator in kept(name)[0]:
        state = State.root(SPECS[name])
        for taken, step in enumerate((None, *operator.steps)):
            state = state if step is None else state.apply(step)
            far = distance(state)
            assert far is not None
            assert far <= len(operator.steps) - taken


def test_a_shift_that_ends_on_an_unordered_axis_is_pruned_in_the_graph() -> None:
    arguments = (["H=63: 0"], ["s=3: 1"])
    limits = {"max_primitives": 1, "max_reduces": 0, "max_tensors": 1, "min_weights": 0}
    ordered, free = (Spec.parse("[H]", "[H]", *arguments, unordered=names, **limits) for names in ([], ["H"]))
    graphs = Graph(ordered), Graph(free)
    assert [count(graph, graph.root, 1) for graph in graphs] == [2, 1]  # nothing at all, and one SHIFT


def test_fixed_axes_have_no_order_to_choose() -> None:
    spec = Spec.parse("[N, C]", "[N, C]", ["N", "C"], unordered=["N", "C"], fixed_io_pairs=[(0, 0)])
    assert set(spec.free_axes) & set(spec.matched) == {1}


def test_samples_take_one_order_of_the_groups_of_a_channel() -> None:
    """REDUCEs of g and of C/g, of which a weight shares one: SPLITs put them together in one order alone."""

    def found(unordered: list[str]) -> set[str]:
        sampler = sl.Sampler(
            "[C, H]", "[D, H]", ["C=12: 1", "D=21: 0", "H=5: 0"], ["g=2: 2"], unordered=unordered, max_primitives=4,
            max_tensors=2, max_reduces=2, max_expands=0, max_shifts=0, max_strides=0, seed=1,
        )  # fmt: skip
        return {describe(o) for o in sampler.samples() if o.steps[-1].primitive == "SPLIT"}

    ordered, free = found([]), found(["C"])
    assert len(free) < len(ordered)
    assert free < ordered


def test_rules_of_your_own_choose_among_the_orders() -> None:
    """The order that a row forbids does not stand for the others."""
    spec = SPECS["channels"]
    operators = list(Sampler.from_spec(spec).enumerate())
    chosen = next(o for o in operators if o.steps[-1].primitive == "SPLIT")
    (high, low) = (c.size for c in chosen.steps[-1].operands)
    mine = sl.Rule(
        "mine", "X", "-", "I want the other order.", "mine", "exact",
        lambda _, step: step.primitive == "SPLIT" and [c.size for c in step.operands] == [high, low],
    )  # fmt: skip
    others = list(Sampler.from_spec(spec, rules=(*RULES, mine)).enumerate())
    functions = by_function(tuple(others), spec)
    assert set(by_function((chosen,), spec)) <= set(functions)
