"""Budgets of FLOPs, parameters and memory: check an operator, and compute bounds for a state.

A bound holds for every operator that a state can become by steps within the space. The bounds assume the plan with the
fewest FLOPs (:mod:`syno_lab.ir.plan`, the *rfactor* of Syno, section 8) and the first binding:

* *Parameters*: a weight never changes once it is made, so steps only add parameters; a further weight adds at least 1.
* *Memory*: the input, the output and the weights.
* *FLOPs*: read an operator from the input to the output. Undoing a view keeps the number of elements; UNFOLD, EXPAND
  and coordinates given to a weight multiply the number by a *gain*. A STRIDE removes at most the elements that its
  window has added. A stage with a weight takes 2 FLOPs an iteration, and has undone all nodes above the weight. The
  stage iterates over the input's elements, times these nodes' gains, divided by the sizes of earlier REDUCEs, which do
  not index the weight. The stage also iterates over the weight's coordinates. Any first stage iterates over the input.
* An operator takes at most the FLOPs of one stage with all loops: over the output and the REDUCEs, which come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import NamedTuple

from syno_lab.common.size import Size, value
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import fewest_flops
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.protocol import FLOAT32_BYTES
from syno_lab.synthesis.space import reductions_of

Key = tuple[object, ...]


class Excess(NamedTuple):
    """A budget that no operator from a state can meet.

    Attributes:
        name: the name of the budget among the Sampler's arguments.
        bound: the least amount of any operator from the state; for ``min_flops`` the largest amount.
        limit: the amount that the spec allows.
    """

    name: str
    bound: int
    limit: int

    def __str__(self) -> str:
        unit = {"max_params": "parameters", "max_memory": "bytes"}.get(self.name, "FLOPs")
        side = "at most" if self.name == "min_flops" else "at least"
        return f"{self.name} {self.limit:,}: every operator from here takes {side} {self.bound:,} {unit}"


class Bounds(NamedTuple):
    """Lower bounds for every operator from a state, and an upper bound of FLOPs (None: no bound yet)."""

    params: int
    memory: int
    flops: int
    most_flops: int | None


def fits(operator: Operator) -> bool:
    """Return whether FLOPs, parameters and memory are within the budgets of the spec, under the first binding.

    Without a binding nothing can be counted, and the result is True.
    """
    limits, maps = operator.spec.limits, operator.spec.binding_maps
    if not maps:
        return True
    binding = maps[0]
    if limits.max_params is not None and operator.params(binding) > limits.max_params:
        return False
    if limits.max_flops is not None or limits.min_flops is not None:
        # One stage with all loops bounds the FLOPs from above; skip the expensive plan if this bound decides.
        loops = (*operator.spec.output_shape, *(reduction.size for reduction in operator.reductions))
        most = (2 if operator.weights else 1) * value(loops, binding)
        if limits.min_flops is not None and most < limits.min_flops:
            return False
        if limits.min_flops is not None or (limits.max_flops is not None and most > limits.max_flops):
            flops = fewest_flops(operator, binding)
            if limits.max_flops is not None and flops > limits.max_flops:
                return False
            if limits.min_flops is not None and flops < limits.min_flops:
                return False
    return limits.max_memory is None or operator.memory(binding) <= limits.max_memory


def bounds(state: State) -> Bounds:
    """Bound the costs of every operator from ``state`` within the space, under the first binding.

    Raises IndexError when the spec has no binding.
    """
    return cost_of(state, Meter(state.spec)).bounds


def excess(state: State) -> Excess | None:
    """Return a budget that no operator from ``state`` can meet; None if all budgets may be met or no budget is set."""
    meter = meter_of(state.spec)
    return None if meter is None else cost_of(state, meter).excess


@lru_cache(maxsize=64)
def meter_of(spec: Spec) -> Meter | None:
    """Return the meter for states of a spec; None if no budget is set or the spec has no binding."""
    limits = spec.limits
    budgets = (limits.max_flops, limits.min_flops, limits.max_params, limits.max_memory)
    return Meter(spec) if spec.binding_maps and any(budget is not None for budget in budgets) else None


class Meter:
    """Measures the costs of one spec's states under the first binding."""

    def __init__(self, spec: Spec) -> None:
        self.limits = limits = spec.limits
        binding = spec.binding_maps[0]
        self._number = cache(lambda size: size.at(binding))
        self.input = self.value(spec.input_shape)
        self.output = self.value(spec.output_shape)
        self.fixed = self.value(spec.input_shape[axis] for axis, _ in spec.fixed_io_pairs)
        self.most_weights = limits.of("SHARE") or 0
        of_memory = None
        if limits.max_memory is not None:
            of_memory = limits.max_memory // FLOAT32_BYTES - self.input - self.output
        caps = [limit for limit in (limits.max_params, of_memory) if limit is not None]
        self.most_params = min(caps, default=None)

    def value(self, sizes: Iterable[Size]) -> int:
        """Return the product of some sizes."""
        return prod(map(self._number, sizes))

    def elements(self, coordinates: Iterable[Coordinate]) -> int:
        """Return the product of the coordinates' sizes; a STRIDEd coordinate counts with its operand's size."""
        return self.value(c.node.operands[0].size if c.node.primitive == "STRIDE" else c.size for c in coordinates)

    def start(self, reductions: Sequence[Size], is_closed: bool = True) -> Cost:
        """Return the cost of a state with REDUCEs alone; ``is_closed`` means that no more REDUCEs can come."""
        return Cost(self, self.value(reductions), bool(reductions), is_closed)


class _Stage(NamedTuple):
    """The facts about the stage that multiplies by one weight.

    Attributes:
        gain: the factor by which the nodes above the weight and its given coordinates multiply the elements.
        kept: the product of the sizes of the REDUCEs that cannot be summed earlier because they index the weight.
        made: the results of the nodes above the weight; a step that uses one is above the weight too.
        touched: coordinates that this weight or a weight above shares; views and weights that use them are above too.
    """

    gain: int
    kept: int
    made: frozenset[Coordinate]
    touched: frozenset[Coordinate]


@dataclass(slots=True, eq=False, repr=False)
class Cost:
    """Lower bounds of the costs of all operators from one state, updated from step to step."""

    _meter: Meter
    _reduces: int
    has_reductions: bool
    is_closed: bool
    params: int = 0
    largest: int = 0
    weights: int = 0
    _stages: tuple[_Stage, ...] = ()

    def after(self, step: Step, results: Sequence[Coordinate]) -> Cost:
        """Return the cost after a step other than REDUCE that adds ``results``; the same object if nothing changes."""
        if step.primitive == "SHARE":
            return self._after_share(step)
        operands = step.operands
        reached = [not (s.made.isdisjoint(operands) and s.touched.isdisjoint(operands)) for s in self._stages]
        if not any(reached):
            return self if self.is_closed else self._with(self._stages)
        gain = 1
        if step.primitive == "UNFOLD":
            gain = self._meter.elements(operands[1:])
        elif step.primitive == "EXPAND":
            gain = self._meter.elements(operands)
        stages = [
            _Stage(s.gain * gain, s.kept, s.made.difference(operands).union(results), s.touched.difference(operands))
            if is_reached
            else s
            for s, is_reached in zip(self._stages, reached, strict=True)
        ]
        return self._with(tuple(stages))

    def _after_share(self, step: Step) -> Cost:
        meter, shared, given = self._meter, step.operands, step.given
        used = shared + given
        gain = meter.elements(given)
        stages = []
        for stage in self._stages:
            if stage.made.isdisjoint(used) and stage.touched.isdisjoint(given):
                stages.append(stage)
            else:
                touched = stage.touched.difference(given).union(shared)
                stages.append(_Stage(stage.gain * gain, stage.kept, stage.made.difference(given), touched))
        kept = meter.elements(frozenset().union(*map(reductions_of, used)))
        stages.append(_Stage(gain, kept, frozenset(), frozenset(shared)))
        cost = self._with(tuple(stages))
        elements = meter.elements(used)
        cost.params += elements
        cost.largest = max(self.largest, elements)
        cost.weights += 1
        return cost

    def _with(self, stages: tuple[_Stage, ...]) -> Cost:
        counts = self.params, self.largest, self.weights
        return Cost(self._meter, self._reduces, self.has_reductions, True, *counts, stages)

    @property
    def bounds(self) -> Bounds:
        """Return the bounds for every operator from this state."""
        meter = self._meter
        flops = 0
        if self.has_reductions or self.weights or meter.limits.min_weights:
            flops = meter.input
        most = None
        if self.is_closed:
            most = (2 if meter.most_weights else 1) * meter.output * self._reduces
        params = self.params + max(0, meter.limits.min_weights - self.weights)  # a weight has at least one element
        return Bounds(
            params,
            FLOAT32_BYTES * (meter.input + meter.output + params),
            max([flops, 2 * self.largest, *map(self._flops, self._stages)]),
            most,
        )

    def _flops(self, stage: _Stage) -> int:
        """Return a lower bound of the FLOPs of a stage that multiplies by a weight, rounded up."""
        return -(-2 * self._meter.input * stage.gain * stage.kept // self._reduces)

    @property
    def excess(self) -> Excess | None:
        """Return a budget that no operator from this state can meet; None if all budgets may be met."""
        limits, lower = self._meter.limits, self.bounds
        for name, bound, limit in (
            ("max_params", lower.params, limits.max_params),
            ("max_memory", lower.memory, limits.max_memory),
            ("max_flops", lower.flops, limits.max_flops),
        ):
            if limit is not None and bound > limit:
                return Excess(name, bound, limit)
        if limits.min_flops is not None and lower.most_flops is not None and lower.most_flops < limits.min_flops:
            return Excess("min_flops", lower.most_flops, limits.min_flops)
        return None

    def can_exceed(self) -> bool:
        """Return whether an operator from this state may exceed a budget of FLOPs, parameters or memory."""
        meter, loops = self._meter, self._meter.output * self._reduces
        most_flops, most_params = meter.limits.max_flops, meter.most_params
        if most_flops is not None and 2 * loops > most_flops:
            return True
        # A weight has at most as many elements as the loop nest has iterations.
        return most_params is not None and meter.most_weights * loops > most_params

    def key(self, places: Sequence[Coordinate]) -> Key:
        """Return a key that distinguishes states with equal features if a budget depends on the difference."""
        meter = self._meter
        is_open = self.weights < meter.most_weights
        params = self.params if is_open and meter.most_params is not None else 0
        most = meter.limits.max_flops
        if most is None:
            return (params,)
        # The product of all later factors is at most the data's number of elements over the input's.
        rest = 2 * meter.fixed * meter.elements(places)
        entries: list[object] = []
        for stage in self._stages:
            made = sum([1 << i for i, place in enumerate(places) if place in stage.made])
            touched = sum([1 << i for i, place in enumerate(places) if place in stage.touched])
            if (made or touched) and stage.gain * stage.kept * rest > most * self._reduces:
                entries.append((stage.gain * stage.kept, made, touched))
            else:
                entries.append(0)
        if not is_open and not any(entries):
            return (0,)
        entries += [meter.elements((place,)) for place in places if place.node.primitive == "STRIDE"]
        if is_open:
            # A further weight's `kept` depends on the reductions of each coordinate, numbered by first use.
            numbers: dict[Coordinate, int] = {}
            for place in places:
                of_place = sorted(reductions_of(place), key=lambda r: (numbers.get(r, len(numbers)), r.node.tag))
                entries.append(sum([1 << numbers.setdefault(r, len(numbers)) for r in of_place]))
            entries += [meter.elements((r,)) for r in numbers]
        return (params, self._reduces, *entries)


def cost_of(state: State, meter: Meter) -> Cost:
    """Compute the cost of a state from its steps."""
    reductions = tuple(c.size for c in state.reductions)
    is_closed = len(reductions) < len(state.steps) or len(reductions) >= state.spec.limits.max_reduces
    cost = meter.start(reductions, is_closed)
    for step in state.steps:
        if step.primitive != "REDUCE":
            cost = cost.after(step, state.results(step))
    return cost
