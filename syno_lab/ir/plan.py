"""The lowering plan: the order of the REDUCEs, and the stages that follow from the order.

The plan is the paper's *rfactor* (section 8, Figure 4). Read top-down, an operator undoes its primitives one by one
from the input to the output. A stage undoes the primitives that can reach its REDUCEs, multiplies by their weights, and
sums. The result of a stage is the next stage's input. FLOPs, loop nests, PyTorch and TVM use the same plan.

The planner tries all subsets of REDUCEs and contractions (dynamic programming over sets of performed steps). The plan
has the fewest FLOPs of all orders; among plans with equal FLOPs, the fewest stages decide, then the least memory. With
more than 512 sets (9 REDUCEs and contractions or more), the planner tries only one order, with every choice of stages.
In this order, REDUCEs and contractions that need the fewest undone nodes come first.

The fewest FLOPs do not always take the shortest time: an intermediate tensor larger than a cache goes to the memory and
back. The order ``"fastest"`` adds :data:`FLOPS_AN_ELEMENT` for each intermediate element beyond the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from math import prod
from operator import or_
from typing import Literal

from syno_lab.common.size import value
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import Step
from syno_lab.protocol import FLOAT32_BYTES

#: The order of the REDUCEs: with the fewest FLOPs, in the shortest predicted time, or all in one stage.
Order = Literal["best", "fastest", "naive"]

#: The number of float32 elements in a cache of 1 MiB. Each further element counts as 8 FLOPs in the predicted time: 1
#: for each byte written and read. Plans with fewer FLOPs and intermediates of millions of elements took up to 40 times
#: as long as plans of one or two stages. With small intermediates, plans with fewer FLOPs took half the time.
CACHED_ELEMENTS = 1 << 18
FLOPS_AN_ELEMENT = 8

#: The cost of a path (FLOPs with a cache penalty, number of stages, elements of intermediates), and the path.
_Best = tuple[tuple[int, int, int], list[tuple[int, int]]]
_MOST_UNIONS = 512  # the limit of sets of REDUCEs and contractions; time grows with its square


@dataclass(frozen=True)
class Stage:
    """One loop nest of the plan: ``Z_out[out] = sum over summed of Z_in[...] * weights``.

    Attributes:
        undo: the steps that the stage undoes, top-down: views, EXPANDs and contractions (SHARE).
        weights: the multiplied weights, as indices in ``operator.weights``.
        summed: the reductions that the stage sums.
        inputs: the coordinates of the incoming tensor; for the first stage the operator's inputs.
        out: the coordinates of the outgoing tensor; for the last stage the operator's output axes.
        domain: the coordinates of the loops: ``out`` and ``summed``.
        flops: the FLOPs: 2 for an iteration with a weight, 1 for an iteration that only adds, 0 for a mere view.
    """

    undo: tuple[Step, ...]
    weights: tuple[int, ...]
    summed: tuple[Coordinate, ...]
    inputs: tuple[Coordinate, ...]
    out: tuple[Coordinate, ...]
    domain: tuple[Coordinate, ...]
    flops: int


@dataclass(frozen=True)
class Plan:
    """The stages of an operator under a binding, from input to output.

    ``flops`` is the sum over the stages; ``live_elements`` is the largest number of live intermediate elements.
    """

    stages: tuple[Stage, ...]
    flops: int
    live_elements: int


def plan(operator: Operator, binding: Binding, order: Order = "best") -> Plan:
    """Return the plan of ``operator`` with the fewest FLOPs under ``binding``.

    The order ``"fastest"`` means the shortest predicted time, and ``"naive"`` one stage with all loops.
    """
    items = tuple(sorted(operator.complete_binding(binding).items()))
    return _plan(operator, operator.steps, items, order)


def fewest_flops(operator: Operator, binding: Binding) -> int:
    """Count the FLOPs of the best plan under a binding of all variables, without building stages or caching."""
    planner = _Planner(operator, dict(binding))
    everything = (1 << len(planner.nodes)) - 1
    return planner.best(everything)[0][0]


def flops(operator: Operator, binding: Binding | None = None) -> int:
    """Compute :meth:`.Operator.flops`."""
    return plan(operator, operator.complete_binding(binding)).flops


def memory(operator: Operator, binding: Binding | None = None) -> int:
    """Compute :meth:`.Operator.memory`."""
    bound = operator.complete_binding(binding)
    ends = value((c.size for c in operator.inputs), bound) + value((c.size for c in operator.output), bound)
    return FLOAT32_BYTES * (ends + operator.params(bound) + plan(operator, bound).live_elements)


@lru_cache(maxsize=4096)
def _plan(operator: Operator, steps: tuple[Step, ...], binding: tuple[tuple[str, int], ...], order: Order) -> Plan:
    # ``steps`` is part of the cache's key because equal operators may have their weights in different orders.
    return _Planner(operator, dict(binding), FLOPS_AN_ELEMENT if order == "fastest" else 0).run(order)


class _Planner:
    """Dynamic programming over bit masks; bit i < len(nodes) marks node i as undone, later bits mark summed REDUCEs."""

    def __init__(self, operator: Operator, binding: Binding, flops_an_element: int = 0) -> None:
        self.operator = operator
        self.flops_an_element = flops_an_element
        self.size = cache(lambda coordinate: coordinate.size.at(binding))
        self.binding = binding
        self.nodes = tuple(step for step in operator.steps if step.primitive != "REDUCE")
        self.above = self._closures()
        self.reductions = operator.reductions
        self.reach = [self._reaching(r) for r in self.reductions]
        self.bare: dict[int, frozenset[Coordinate]] = {}

    def _closures(self) -> list[int]:
        """Return for each node the mask of itself and all nodes above it, which must be undone first."""
        needs: list[int] = []  # the nodes directly below each node
        made_by: dict[Coordinate, int] = {}
        touched: dict[Coordinate, list[int]] = {}
        for number, step in enumerate(self.nodes):
            below = 0
            for coordinate in step.operands + step.given:
                if coordinate in made_by:
                    below |= 1 << made_by[coordinate]
                # Contractions that share a coordinate commute; a step that takes the coordinate away is above them.
                if step.primitive != "SHARE" or coordinate in step.given:
                    for contraction in touched.get(coordinate, ()):
                        below |= 1 << contraction
            if step.primitive == "SHARE":
                for coordinate in step.operands:
                    touched.setdefault(coordinate, []).append(number)
            else:
                for result in self.operator.state.results(step):
                    made_by[result] = number
            needs.append(below)
        above = [1 << i for i in range(len(self.nodes))]
        for upper in range(len(self.nodes) - 1, -1, -1):
            for lower in range(upper):
                if needs[upper] >> lower & 1:
                    above[lower] |= above[upper]
        return above

    def _reaching(self, reduction: Coordinate) -> int:
        """Return the nodes that can reach a REDUCE: the nodes that use its iterator, and all nodes above."""
        mask = 0
        for number, step in enumerate(self.nodes):
            if reduction in step.operands + step.given:
                mask |= self.above[number]
        return mask

    def tensor(self, undone: int) -> frozenset[Coordinate]:
        """Return the coordinates of the tensor after the nodes in ``undone`` are undone, before summing."""
        tensor = self.bare.get(undone)
        if tensor is None:
            coordinates = set(self.operator.inputs)
            for number in range(len(self.nodes) - 1, -1, -1):
                if undone >> number & 1:
                    step = self.nodes[number]
                    if step.primitive == "SHARE":
                        coordinates.update(step.given)
                    else:
                        coordinates.difference_update(self.operator.state.results(step))
                        coordinates.update(step.operands)
            self.bare[undone] = tensor = frozenset(coordinates)
        return tensor

    def summable(self, undone: int) -> int:
        """Return a mask of the REDUCEs that no remaining node needs."""
        mask = 0
        for number, reach in enumerate(self.reach):
            if reach & ~undone == 0:
                mask |= 1 << number
        return mask

    def stage(self, undone: int, summed: int, new_undone: int, new_summed: int) -> Stage:
        """Return the stage from one set of undone nodes and summed REDUCEs to the next set."""
        fresh = new_undone & ~undone
        steps = tuple(self.nodes[i] for i in range(len(self.nodes) - 1, -1, -1) if fresh >> i & 1)
        gone_before = {r for i, r in enumerate(self.reductions) if summed >> i & 1}
        now = tuple(r for i, r in enumerate(self.reductions) if (new_summed & ~summed) >> i & 1)
        domain = self._ordered(self.tensor(new_undone) - gone_before)
        weights = tuple(self._weight(step) for step in steps if step.primitive == "SHARE")
        iterations = prod(map(self.size, domain))
        return Stage(
            steps,
            weights,
            now,
            self._ordered(self.tensor(undone) - gone_before) if undone or summed else self.operator.inputs,
            tuple(c for c in domain if c not in now),
            domain,
            iterations * (2 if weights else 1 if now else 0),
        )

    def _weight(self, step: Step) -> int:
        contractions = [s for s in self.operator.steps if s.primitive == "SHARE"]
        return next(i for i, s in enumerate(contractions) if s is step)

    def _ordered(self, coordinates: frozenset[Coordinate] | set[Coordinate]) -> tuple[Coordinate, ...]:
        """Sort output axes first and in order, then the rest in order of creation, so that plans are deterministic."""
        rank = {c: i for i, c in enumerate(self.operator.output)}
        for step in self.operator.steps:
            for result in self.operator.state.results(step) if step.primitive != "REDUCE" else ():
                rank.setdefault(result, len(rank))
        for reduction in self.reductions:
            rank.setdefault(reduction, len(rank))
        return tuple(sorted(coordinates, key=rank.__getitem__))

    def run(self, order: str) -> Plan:
        """Return the plan of the best path from no undone node to all nodes undone, or a plan of a single stage."""
        everything = (1 << len(self.nodes)) - 1
        if order == "naive":
            return self._finish([self.stage(0, 0, everything, (1 << len(self.reductions)) - 1)])
        stages, state = [], (0, 0)
        for after in self.best(everything)[1]:
            stages.append(self.stage(*state, *after))
            state = after
        return self._finish(stages)

    def best(self, everything: int) -> _Best:
        """Return the cost of the best path until all nodes are undone, and the path's sets of nodes and REDUCEs."""
        events = [self.reach[i] for i in range(len(self.reductions))]
        events += [self.above[i] for i, step in enumerate(self.nodes) if step.primitive == "SHARE"]
        unions = set(_unions(events)) | {everything}
        best: dict[tuple[int, int], _Best] = {(0, 0): ((0, 0, 0), [])}
        goal = (everything, (1 << len(self.reductions)) - 1)
        # Sets of undone nodes only grow. In the order of their sizes, each set comes after all sets that lead to it.
        pending = {(0, 0)}
        while pending:
            state = min(pending, key=lambda s: s[0].bit_count() + s[1].bit_count())
            pending.discard(state)
            if state == goal:
                continue
            cost, path = best[state]
            for union in unions:
                undone = state[0] | union
                after = (undone, self.summable(undone))
                if after == state:
                    continue
                flops, elements = self._cost(state, after)
                # The output counts as an intermediate tensor in every plan. A mere view does not count as a stage.
                further = self.flops_an_element * max(elements - CACHED_ELEMENTS, 0)
                total = (cost[0] + flops + further, cost[1] + (flops > 0), cost[2] + elements)
                if after not in best or total < best[after][0]:
                    best[after] = (total, [*path, after])
                    pending.add(after)
        return best[goal]

    def _cost(self, state: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
        iterations = elements = 1
        for coordinate in self.tensor(after[0]):
            number = coordinate.node.tag if coordinate.is_reduction else -1
            if number >= 0 and state[1] >> number & 1:
                continue
            iterations *= self.size(coordinate)
            if not (number >= 0 and after[1] >> number & 1):
                elements *= self.size(coordinate)
        fresh = after[0] & ~state[0]
        multiplies = any(fresh >> i & 1 and step.primitive == "SHARE" for i, step in enumerate(self.nodes))
        return iterations * (2 if multiplies else 1 if after[1] & ~state[1] else 0), elements

    def _finish(self, stages: list[Stage]) -> Plan:
        if not stages:  # an operator that only reorders its axes
            stages = [self.stage(0, 0, 0, 0)]
        last = stages[-1]
        order = self.operator.output
        stages[-1] = Stage(last.undo, last.weights, last.summed, last.inputs, order, (*order, *last.summed), last.flops)
        sizes = [value((c.size for c in stage.out), self.binding) for stage in stages[:-1]]
        live = max((a + b for a, b in zip(sizes, [*sizes[1:], 0], strict=False)), default=0)
        return Plan(tuple(stages), sum(stage.flops for stage in stages), live)


def _unions(masks: list[int]) -> set[int]:
    """Return every union of a non-empty subset of ``masks``; above the limit only unions of the first few masks."""
    distinct = sorted(set(masks), key=lambda mask: (mask.bit_count(), mask))
    result: set[int] = set()
    for mask in distinct:
        result |= {mask} | {mask | other for other in result}
        if len(result) > _MOST_UNIONS:
            return set(accumulate(distinct, or_))
    return result
