"""The corners of Table 1 that an operator has under a binding: what a run must have met before it may be believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import plan
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import Step


def corners(operator: Operator, binding: Binding) -> frozenset[str]:
    """The names of the corners that ``operator`` has under ``binding``."""
    facts = _Facts(operator, binding)
    return frozenset(name for name, holds in CORNERS.items() if holds(facts))


class _Facts:
    """An operator's steps, sizes, and what stands directly under what."""

    def __init__(self, operator: Operator, binding: Binding) -> None:
        self.operator = operator
        self.binding = operator.complete_binding(binding)
        self.shared = [set(weight.shared) for weight in operator.weights]
        self.given = [set(weight.given) for weight in operator.weights]

    def size(self, coordinate: Coordinate) -> int:
        return coordinate.size.at(self.binding)

    def steps(self, primitive: str) -> list[Step]:
        return [step for step in self.operator.steps if step.primitive == primitive]

    def results(self, step: Step) -> tuple[Coordinate, ...]:
        return self.operator.state.results(step)

    def over(self, upper: str, lower: str, place: int | None = None) -> bool:
        """Whether ``upper`` takes what ``lower`` made, as the operand at ``place`` where that is given."""
        return any(
            c.node.primitive == lower
            for step in self.steps(upper)
            for i, c in enumerate(step.operands)
            if place in (None, i)
        )

    def windows(self) -> Iterator[tuple[int, int]]:
        """Size of the main coordinate and of the window, for each UNFOLD."""
        for step in self.steps("UNFOLD"):
            yield self.size(step.operands[0]), self.size(step.operands[1])

    def every(self) -> Iterator[Coordinate]:
        """Every coordinate of the pGraph."""
        yield from self.operator.output
        yield from self.operator.reductions
        for step in self.operator.steps:
            if step.primitive not in ("REDUCE", "SHARE"):
                yield from self.results(step)

    def tied_splits(self) -> Iterator[tuple[Step, bool]]:
        """SPLITs of both digits of one MERGE, and whether in their old order."""
        for step in self.steps("SPLIT"):
            block, offset = step.operands
            if block.node is offset.node or block.node == offset.node:
                yield step, block.index < offset.index

    def tied_merges(self) -> Iterator[tuple[Step, bool]]:
        """MERGEs of what a SPLIT made, and whether at its own boundary."""
        for step in self.steps("MERGE"):
            below = step.operands[0]
            if below.node.primitive == "SPLIT":
                assert step.parameter is not None
                yield step, below.node.operands[1].size == step.parameter

    def bridges(self) -> Iterator[Coordinate]:
        """REDUCEs that are SHAREd with one weight and given to another, and reach no view."""
        for reduction in self.operator.reductions:
            in_views = any(reduction in s.operands for s in self.operator.steps if s.primitive != "SHARE")
            if not in_views and any(reduction in given for given in self.given):
                yield reduction

    def computing_stages(self) -> int:
        return sum(stage.flops > 0 for stage in plan(self.operator, self.binding).stages)


#: Every corner by name, in the order of the report.
CORNERS: dict[str, Callable[[_Facts], Any]] = {
    # windows
    "K odd": lambda f: any(k % 2 and k > 1 for _, k in f.windows()),
    "K even": lambda f: any(k % 2 == 0 for _, k in f.windows()),
    "K = 1": lambda f: any(k == 1 for _, k in f.windows()),
    "K > N": lambda f: any(k > n for n, k in f.windows()),
    "K > 2 N": lambda f: any(k > 2 * n for n, k in f.windows()),
    "UNFOLD of an output's window": lambda f: any(s.operands[1].is_output for s in f.steps("UNFOLD")),
    "UNFOLD of a REDUCE along a REDUCE": lambda f: any(
        all(c.is_reduction for c in s.operands) for s in f.steps("UNFOLD")
    ),
    "UNFOLD along an UNFOLD": lambda f: f.over("UNFOLD", "UNFOLD", 0),
    "UNFOLD whose window is an UNFOLD": lambda f: f.over("UNFOLD", "UNFOLD", 1),
    "SHIFT over UNFOLD": lambda f: f.over("SHIFT", "UNFOLD"),
    "UNFOLD over SHIFT": lambda f: f.over("UNFOLD", "SHIFT"),
    "MERGE over UNFOLD": lambda f: f.over("MERGE", "UNFOLD"),
    "SPLIT over UNFOLD": lambda f: f.over("SPLIT", "UNFOLD"),
    "UNFOLD over MERGE": lambda f: f.over("UNFOLD", "MERGE"),
    "UNFOLD over SPLIT": lambda f: f.over("UNFOLD", "SPLIT"),
    "EXPAND over UNFOLD": lambda f: f.over("EXPAND", "UNFOLD"),
    "SHARE of an UNFOLD's result": lambda f: any(c.node.primitive == "UNFOLD" for s in f.shared for c in s),
    "UNFOLD's result given to a weight": lambda f: any(c.node.primitive == "UNFOLD" for s in f.given for c in s),
    # strides
    "STRIDE under UNFOLD's window": lambda f: f.over("UNFOLD", "STRIDE", 1),
    "STRIDE under UNFOLD's main": lambda f: f.over("UNFOLD", "STRIDE", 0),
    "STRIDE under EXPAND": lambda f: f.over("EXPAND", "STRIDE"),
    "STRIDE by 1": lambda f: any(s.parameter is not None and s.parameter.at(f.binding) == 1 for s in f.steps("STRIDE")),
    "STRIDE of a view": lambda f: any(not s.operands[0].is_leaf for s in f.steps("STRIDE")),
    # digits
    "SPLIT undoes MERGE": lambda f: any(kept for _, kept in f.tied_splits()),
    "SPLIT swaps MERGE's digits": lambda f: any(not kept for _, kept in f.tied_splits()),
    "MERGE undoes SPLIT": lambda f: any(same for _, same in f.tied_merges()),
    "MERGE across SPLIT's boundary": lambda f: any(not same for _, same in f.tied_merges()),
    "MERGE of a MERGE's digit": lambda f: f.over("MERGE", "MERGE"),
    "MERGE into equal digits": lambda f: any(len({f.size(c) for c in f.results(s)}) == 1 for s in f.steps("MERGE")),
    "SPLIT of equal sizes": lambda f: any(len({f.size(c) for c in s.operands}) == 1 for s in f.steps("SPLIT")),
    "SPLIT of a SPLIT": lambda f: f.over("SPLIT", "SPLIT"),
    # shifts
    "SHIFT twice": lambda f: f.over("SHIFT", "SHIFT"),
    "SHIFT of one element": lambda f: any(f.size(s.operands[0]) == 1 for s in f.steps("SHIFT")),
    "SHIFT over MERGE": lambda f: f.over("SHIFT", "MERGE"),
    "SHIFT over SPLIT": lambda f: f.over("SHIFT", "SPLIT"),
    "MERGE or SPLIT over SHIFT": lambda f: f.over("MERGE", "SHIFT") or f.over("SPLIT", "SHIFT"),
    # what is dropped
    "EXPAND of an output": lambda f: any(c.is_output for c in f.operator.expanded),
    "EXPAND of a REDUCE": lambda f: any(c.is_reduction for c in f.operator.expanded),
    "EXPAND of a digit": lambda f: any(c.node.primitive == "MERGE" for c in f.operator.expanded),
    # tensors
    "no weight": lambda f: not f.shared,
    "two tensors": lambda f: len(f.shared) == 1,
    "three tensors": lambda f: len(f.shared) == 2,
    "four tensors": lambda f: len(f.shared) == 3,
    "a coordinate in two weights": lambda f: any(a & b for i, a in enumerate(f.shared) for b in f.shared[:i]),
    "an output in a weight alone": lambda f: any(c.is_output for given in f.given for c in given),
    "a REDUCE in two weights alone": lambda f: any(f.bridges()),
    "a view's result in a weight": lambda f: any(not c.is_leaf for s in f.shared for c in s),
    "two stages or more": lambda f: f.computing_stages() > 1,
    # sizes and axes
    "an axis of 1": lambda f: any(f.size(c) == 1 for c in (*f.operator.inputs, *f.operator.output)),
    "a REDUCE of 1": lambda f: any(f.size(c) == 1 for c in f.operator.reductions),
    "a size with a denominator": lambda f: any(min(c.size.exponents, default=0) < 0 for c in f.every()),
    "a fixed batch": lambda f: f.operator.state.fixed,
    "no batch": lambda f: not f.operator.state.fixed,
    "a scalar input": lambda f: not f.operator.inputs,
    "no REDUCE": lambda f: not f.operator.reductions,
    "three REDUCEs or more": lambda f: len(f.operator.reductions) > 2,
    "input axes out of order": lambda f: (
        [c for c in f.operator.output if c in f.operator.inputs]
        != [c for c in f.operator.inputs if c in f.operator.output]
    ),
}
