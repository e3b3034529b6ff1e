"""The lowering plan: in which order REDUCEs are performed, and the stages that this induces.

This is the paper's *rfactor* (section 8, Figure 4). Read top-down, an operator undoes its primitives one by one from
the input to the output. A stage undoes the primitives that can reach the REDUCEs it performs, multiplies by the weights
among them, and sums; what it gives is the next stage's input. FLOPs, the loop nest's stages, PyTorch and TVM all read
the same plan.

All subsets of REDUCEs and contractions are tried (dynamic programming over the sets already performed), so the plan
has the fewest FLOPs among all orders; ties go to fewer stages, then to less memory. Where there are more than 512 sets
(9 REDUCEs and contractions or more), one order is tried alone, with every choice of stages: what needs the fewest nodes
undone comes first.

The fewest FLOPs are not always the shortest time: an intermediate tensor that is larger than a cache goes to the memory
and back. The order ``"fastest"`` counts :data:`FLOPS_AN_ELEMENT` for each of its elements beyond the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import or_
from typing import Literal

from syno_lab.common.size import value
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import Step
from syno_lab.protocol import FLOAT32_BYTES

#: In which order REDUCEs are performed: with the fewest FLOPs, in the shortest predicted time, or all in one stage.
Order = Literal["best", "fastest", "naive"]

#: The elements of a tensor that stay in a cache of 1 MiB, as float32, and what each of the others counts in a predicted
#: time: a FLOP for each byte written and read. Measured: plans with fewer FLOPs and intermediates of millions of
#: elements took up to 40 times as long as those of one or two stages; with small intermediates they took half the time.
CACHED_ELEMENTS = 1 << 18
FLOPS_AN_ELEMENT = 8

#: FLOPs and what elements count, stages and elements of intermediates; and the way there.
_Best = tuple[tuple[int, int, int], list[tuple[int, int]]]
_MOST_UNIONS = 512  # sets of REDUCEs and contractions; the time grows with their square


@dataclass(frozen=True)
class Stage:
    """One loop nest of the plan: ``Z_out[out] = sum over summed of Z_in[...] * weights``.

    Attributes:
        undo: the steps undone in this stage, top-down: views, EXPANDs and contractions (SHARE).
        weights: which weights are multiplied, by position in ``operator.weights``.
        summed: the reductions summed away.
        inputs: the coordinates of the tensor that comes in; for the first stage the operator's inputs.
        out: the coordinates of the tensor that goes out; for the last stage the operator's output axes.
        domain: the coordinates iterated over, ``out`` and ``summed``.
        flops: 2 an iteration where a weight is multiplied, 1 where it only adds, 0 for a mere view.
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

    ``flops`` is their sum; ``live_elements`` the largest number of elements of intermediates alive at once.
    """

    stages: tuple[Stage, ...]
    flops: int
    live_elements: int


def plan(operator: Operator, binding: Binding, order: Order = "best") -> Plan:
    """The plan of ``operator`` with the fewest FLOPs under ``binding``.

    ``"fastest"`` is the one of the shortest predicted time, ``"naive"`` is one stage with every loop.
    """
    items = tuple(sorted(operator.complete_binding(binding).items()))
    return _plan(operator, operator.steps, items, order)


def fewest_flops(operator: Operator, binding: Binding) -> int:
    """The FLOPs of the best plan under a binding of all variables, where nobody asks for its stages; not remembered."""
    planner = _Planner(operator, dict(binding))
    everything = (1 << len(planner.nodes)) - 1
    return planner.best(everything)[0][0]


def flops(operator: Operator, binding: Binding | None = None) -> int:
    """The method :meth:`.Operator.flops`."""
    return plan(operator, operator.complete_binding(binding)).flops


def memory(operator: Operator, binding: Binding | None = None) -> int:
    """The method :meth:`.Operator.memory`."""
    bound = operator.complete_binding(binding)
    ends = value((c.size for c in operator.inputs), bound) + value((c.size for c in operator.output), bound)
    return FLOAT32_BYTES * (ends + operator.params(bound) + plan(operator, bound).live_elements)


@lru_cache(maxsize=4096)
def _plan(operator: Operator, steps: tuple[Step, ...], binding: tuple[tuple[str, int], ...], order: Order) -> Plan:
    # ``steps`` is part of the cache's key because equal operators may number their weights differently.
    return _Planner(operator, dict(binding), FLOPS_AN_ELEMENT if order == "fastest" else 0).run(order)


class _Planner:
    """Dynamic programming over bit masks; bit i < len(nodes) means node i is undone, the rest: a REDUCE is summed."""

    def __init__(self, operator: Operator, binding: Binding, flops_an_element: int = 0) -> None:
        self.operator = operator
        self.flops_an_element = flops_an_element
        self.sizes: dict[Coordinate, int] = {}
        self.binding = binding
        self.nodes = tuple(step for step in operator.steps if step.primitive != "REDUCE")
        self.above = self._closures()
        self.reductions = operator.reductions
        self.reach = [self._reaching(r) for r in self.reductions]
        self.bare: dict[int, frozenset[Coordinate]] = {}

    def size(self, coordinate: Coordinate) -> int:
        found = self.sizes.get(coordinate)
        if found is None:
            self.sizes[coordinate] = found = coordinate.size.at(self.binding)
        return found

    def _closures(self) -> list[int]:
        """For each node the mask of itself and every node above it, which must be undone before it."""
        needs: list[int] = []  # direct: the nodes below each node
        made_by: dict[Coordinate, int] = {}
        touched: dict[Coordinate, list[int]] = {}
        for number, step in enumerate(self.nodes):
            below = 0
            for coordinate in step.operands + step.given:
                if coordinate in made_by:
                    below |= 1 << made_by[coordinate]
                # Contractions that only share a coordinate commute; whatever takes it away stands above them.
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
        """The nodes that can reach a REDUCE, all above the ones that consume its iterator."""
        mask = 0
        for number, step in enumerate(self.nodes):
            if reduction in step.operands + step.given:
                mask |= self.above[number]
        return mask

    def tensor(self, undone: int) -> frozenset[Coordinate]:
        """The coordinates of the tensor once the nodes in ``undone`` are undone, before summing."""
        found = self.bare.get(undone)
        if found is None:
            coordinates = set(self.operator.inputs)
            for number in range(len(self.nodes) - 1, -1, -1):
                if undone >> number & 1:
                    step = self.nodes[number]
                    if step.primitive == "SHARE":
                        coordinates.update(step.given)
                    else:
                        coordinates.difference_update(self.operator.state.results(step))
                        coordinates.update(step.operands)
            self.bare[undone] = found = frozenset(coordinates)
        return found

    def summable(self, undone: int) -> int:
        """The REDUCEs that nothing above waits for any more, as a mask."""
        mask = 0
        for number, reach in enumerate(self.reach):
            if reach & ~undone == 0:
                mask |= 1 << number
        return mask

    def stage(self, undone: int, summed: int, new_undone: int, new_summed: int) -> Stage:
        """The stage that leads from one set of undone nodes and summed REDUCEs to the next."""
        fresh = new_undone & ~undone
        steps = tuple(self.nodes[i] for i in range(len(self.nodes) - 1, -1, -1) if fresh >> i & 1)
        gone_before = {r for i, r in enumerate(self.reductions) if summed >> i & 1}
        now = tuple(r for i, r in enumerate(self.reductions) if (new_summed & ~summed) >> i & 1)
        domain = self._ordered(self.tensor(new_undone) - gone_before)
        weights = tuple(self._weight(step) for step in steps if step.primitive == "SHARE")
        iterations = 1
        for coordinate in domain:
            iterations *= self.size(coordinate)
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
        """Output axes first and in order, then the rest in order of creation: deterministic."""
        rank = {c: i for i, c in enumerate(self.operator.output)}
        for step in self.operator.steps:
            for result in self.operator.state.results(step) if step.primitive != "REDUCE" else ():
                rank.setdefault(result, len(rank))
        for reduction in self.reductions:
            rank.setdefault(reduction, len(rank))
        return tuple(sorted(coordinates, key=rank.__getitem__))

    def run(self, order: str) -> Plan:
        """The best path from nothing undone to everything undone, or the one of a single stage, as a plan."""
        everything = (1 << len(self.nodes)) - 1
        if order == "naive":
            return self._finish([self.stage(0, 0, everything, (1 << len(self.reductions)) - 1)])
        stages, state = [], (0, 0)
        for after in self.best(everything)[1]:
            stages.append(self.stage(*state, *after))
            state = after
        return self._finish(stages)

    def best(self, everything: int) -> _Best:
        """What the best path to everything undone costs, and the sets of nodes and REDUCEs that it goes through."""
        events = [self.reach[i] for i in range(len(self.reductions))]
        events += [self.above[i] for i, step in enumerate(self.nodes) if step.primitive == "SHARE"]
        unions = set(_unions(events)) | {everything}
        best: dict[tuple[int, int], _Best] = {(0, 0): ((0, 0, 0), [])}
        goal = (everything, (1 << len(self.reductions)) - 1)
        # Undone sets only grow, so handling them by their number of elements visits each after all that lead to it.
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
                # The output counts like an intermediate tensor, in every plan alike. A mere view is not a stage of its
                # own in the count of stages.
                further = self.flops_an_element * max(elements - CACHED_ELEMENTS, 0)
                total = (cost[0] + flops + further, cost[1] + (flops > 0), cost[2] + elements)
                if after not in best or total < best[after][0]:
                    best[after] = (total, [*path, after])
                    pending.add(after)
        return best[goal]

    def _cost(self, state: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
        iterations = kept = 1
        for coordinate in self.tensor(after[0]):
            number = coordinate.node.tag if coordinate.is_reduction else -1
            if number >= 0 and state[1] >> number & 1:
                continue
            iterations *= self.size(coordinate)
            if not (number >= 0 and after[1] >> number & 1):
                kept *= self.size(coordinate)
        fresh = after[0] & ~state[0]
        multiplies = any(fresh >> i & 1 and step.primitive == "SHARE" for i, step in enumerate(self.nodes))
        return iterations * (2 if multiplies else 1 if after[1] & ~state[1] else 0), kept

    def _finish(self, stages: list[Stage]) -> Plan:
        if not stages:  # the identity: nothing to undo, only axes to put in order
            stages = [self.stage(0, 0, 0, 0)]
        last = stages[-1]
        order = self.operator.output
        stages[-1] = Stage(last.undo, last.weights, last.summed, last.inputs, order, (*order, *last.summed), last.flops)
        sizes = [value((c.size for c in stage.out), self.binding) for stage in stages[:-1]]
        live = max((a + b for a, b in zip(sizes, [*sizes[1:], 0], strict=False)), default=0)
        return Plan(tuple(stages), sum(stage.flops for stage in stages), live)


def _unions(masks: list[int]) -> set[int]:
    """Every union of a non-empty subset of ``masks``; of too many to go through only those of the first few masks."""
    distinct = sorted(set(masks), key=lambda mask: (mask.bit_count(), mask))
    result: set[int] = set()
    for mask in distinct:
        result |= {mask} | {mask | other for other in result}
        if len(result) > _MOST_UNIONS:
            return set(accumulate(distinct, or_))
    return result
