"""Write a stage of the lowering plan as a ``te.compute``, with workarounds for errors in TVM's passes and schedules.

A stage iterates over its axes and its sums. The steps of the stage compute all other coordinates, at which the stage
reads its input and weights (Syno, section 8). Importing this module imports TVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import tvm
from tvm import te
from tvm.ir.expr import ExprWithOp
from tvm.sym import Analyzer

from syno_lab.codegen.tvm_padding import clipping, padding
from syno_lab.codegen.walk import is_view, results_of
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import Stage
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import Step

Environment = dict[Coordinate, ExprWithOp]  # Each coordinate as a TVM expression.
Range = tuple[int, int]  # The least and the greatest value of a coordinate.


class StageWriter:
    """The writer of one stage: a sum of products, and a padded copy of the input if windows exceed its bounds.

    Attributes:
        leaving: the coordinates that are out of bounds in some terms, with their least and greatest values. Each is a
            result of the stage's UNFOLDs, or an axis of its result that a later stage reads ``beyond`` bounds.
        padded: the coordinates of ``leaving`` along which the input is padded; each term checks the other coordinates.
    """

    def __init__(
        self,
        operator: Operator,
        stage: Stage,
        binding: Binding,
        dtype: str,
        beyond: dict[Coordinate, Range],
        first: bool,
        last: bool,
        index_dtype: str = "int32",
    ) -> None:
        self.operator = operator
        self.stage = stage
        self.binding = binding
        self.index_dtype = index_dtype
        self.zero = tvm.tirx.const(0, dtype)
        self.first, self.last = first, last
        self.beyond = beyond
        self.clipping = clipping(operator, stage)
        self.padded: dict[Coordinate, Range] = {}
        free = [tvm.tirx.Var(f"v{i}", index_dtype) for i in range(len(stage.out) + len(stage.summed))]
        ranges = self._ranges(*self._environment(free)) | beyond
        self.leaving = {c: (low, high) for c, (low, high) in ranges.items() if low < 0 or high >= self.size(c)}

    def size(self, coordinate: Coordinate) -> int:
        """Return the length of a coordinate's domain."""
        return coordinate.size.at(self.binding)

    def _number(self, value: int) -> tvm.tirx.IntImm:
        # The dtype of a loop's extent becomes the dtype of its variable in te.
        return tvm.tirx.IntImm(self.index_dtype, value)

    def _numbers(self, values: Iterable[int]) -> tuple[tvm.tirx.IntImm, ...]:
        return tuple(self._number(value) for value in values)

    def _range(self, extent: int) -> tvm.ir.Range:
        return tvm.ir.Range(self._number(0), self._number(extent))

    def write(self, tensor: te.Tensor, weights: list[te.Tensor], name: str) -> te.Tensor:
        """Write the stage's result as a tensor ``name``, from the input ``tensor`` and all weights of the operator."""
        summed = [te.reduce_axis(self._range(self.size(c)), name=f"r{c.node.tag}") for c in self.stage.summed]
        inputs = self.stage.inputs
        if self.padded and self.first:
            tensor, inputs = self._pad(tensor)

        def element(*axes: ExprWithOp) -> ExprWithOp:
            environment, analyzer = self._environment([*axes, *(axis.var for axis in summed)])
            term = tensor(*(_simple(environment[c] - _first(c, self.padded), analyzer) for c in inputs))
            for number in self.stage.weights:
                coordinates = self.operator.weights[number].coordinates
                term = term * weights[number](*(environment[c] for c in coordinates))
            term = self._guard(term, {c: r for c, r in self.leaving.items() if c not in self.padded}, environment)
            return te.sum(term, axis=summed) if summed else term

        shape = tuple(self._extent(c, self.beyond) for c in self.stage.out)
        attrs = {"schedule_rule": "None"} if self._is_misscheduled(shape) else None
        return te.compute(self._numbers(shape), element, name=name, attrs=attrs)

    def _is_misscheduled(self, shape: tuple[int, ...]) -> bool:
        """Check whether MetaSchedule's rules may generate wrong code for the stage, so that they must skip it.

        MetaSchedule moves two kinds of sums into the loops of a later stage: sums that it does not tile (no factor is
        read twice), and sums that it divides by rfactor (more terms than elements). A moved sum lies below the later
        stage's summing loops, but is set to zero above them (RewriteReductionBlock), so terms count several times. The
        loops of a skipped stage still become parallel and unrolled.
        """
        if self.last or not self.stage.summed:
            return False
        factors = [self.stage.inputs, *(self.operator.weights[number].coordinates for number in self.stage.weights)]
        long = {c for c, extent in zip(self.stage.out, shape, strict=True) if extent > 1}
        is_tiled = any(long - self._read_along(factor) for factor in factors)
        return not is_tiled or prod(shape) < prod(self.size(c) for c in self.stage.summed)

    def _read_along(self, coordinates: Iterable[Coordinate]) -> set[Coordinate]:
        """Return the coordinates over which the stage iterates and on which ``coordinates`` depend."""
        iterated = {*self.stage.out, *self.stage.summed}
        moving, stack = set(), list(coordinates)
        while stack:
            top = stack.pop()
            if top in iterated:
                moving.add(top)
            else:
                stack.extend(top.node.operands)
        return moving

    def _environment(self, variables: list[ExprWithOp]) -> tuple[Environment, Analyzer]:
        """Return every coordinate of the stage as an expression over the axes of its tensor and of its sums."""
        analyzer = Analyzer()
        environment: Environment = {}
        for c, variable in zip(self.stage.out + self.stage.summed, variables, strict=True):
            analyzer.bind(variable, self._range(self._extent(c, self.beyond)))
            environment[c] = variable + _first(c, self.beyond)
        self._evaluate(self.stage.undo, environment, analyzer)
        return environment, analyzer

    def _extent(self, coordinate: Coordinate, ranges: dict[Coordinate, Range]) -> int:
        """Return the length of an axis: the size of its coordinate, or more to cover ``ranges``."""
        size = self.size(coordinate)
        return max(ranges.get(coordinate, (0, 0))[1] + 1, size) - _first(coordinate, ranges)

    def _evaluate(self, steps: Iterable[Step], environment: Environment, analyzer: Analyzer) -> None:
        """Add the results of ``steps`` to ``environment``, from the last step to the first."""
        for step in reversed(tuple(steps)):
            if is_view(step):
                indices = self._index(step, tuple(environment[c] for c in step.operands))
                plain, domains = self._over_domains(step)
                for result, index, model in zip(self.operator.state.results(step), indices, plain, strict=True):
                    environment[result] = _simple(_opaque(index, model, domains), analyzer)

    def _index(self, step: Step, arguments: tuple[ExprWithOp, ...]) -> tuple[ExprWithOp, ...]:
        # The operators // and % of TVM's integers are floor division and its remainder, as in Python.
        return results_of(step, arguments, lambda size: size.at(self.binding))

    def _over_domains(self, step: Step) -> tuple[tuple[ExprWithOp, ...], Analyzer]:
        """Return the results of ``step`` for free operands, and an analyzer with the operands' domains."""
        analyzer = Analyzer()
        variables = tuple(tvm.tirx.Var(f"v{i}", self.index_dtype) for i in range(len(step.operands)))
        for variable, operand in zip(variables, step.operands, strict=True):
            analyzer.bind(variable, self._range(self.size(operand)))
        return self._index(step, variables), analyzer

    def _ranges(self, environment: Environment, analyzer: Analyzer) -> dict[Coordinate, Range]:
        """Return the range of each result of an UNFOLD, over the terms that no other bound makes zero."""
        ranges = {}
        for clipped, step in self.clipping.items():
            # A term with an operand out of bounds is zero, so the result's range over the operand's domain is enough.
            whole_index, domains = self._over_domains(step)
            full = domains.const_int_bound(whole_index[clipped.index])
            here = analyzer.const_int_bound(environment[clipped])
            low, high = max(full.min_value, here.min_value), min(full.max_value, here.max_value)
            ranges[clipped] = (int(low), int(high))
        return ranges

    def _pad(self, tensor: te.Tensor) -> tuple[te.Tensor, tuple[Coordinate, ...]]:
        """Return a copy of ``tensor`` that has zeros outside its bounds along ``padded``, and the copy's axes."""
        copy = padding(self.operator, self.stage, self.padded)
        extents = {c: self._extent(c, self.padded) for c in copy.axes}

        def element(*axes: ExprWithOp) -> ExprWithOp:
            analyzer = Analyzer()
            environment: Environment = {}
            for c, axis in zip(copy.axes, axes, strict=True):
                analyzer.bind(axis, self._range(extents[c]))
                environment[c] = axis + _first(c, self.padded)
            self._evaluate(copy.lifted, environment, analyzer)
            inside = tensor(*(_simple(environment[c], analyzer) for c in self.stage.inputs))
            return self._guard(inside, self.padded, environment)

        return te.compute(self._numbers(extents.values()), element, name=f"{tensor.op.name}_padded"), copy.axes

    def _guard(self, body: ExprWithOp, ranges: dict[Coordinate, Range], environment: Environment) -> ExprWithOp:
        """Return ``body`` where all coordinates in ``ranges`` are in bounds, else zero without a read of ``body``."""
        conditions = []
        for coordinate, (low, high) in ranges.items():
            if low < 0:
                conditions.append(environment[coordinate] >= 0)
            if high >= self.size(coordinate):
                conditions.append(environment[coordinate] < self.size(coordinate))
        if not conditions:
            return body
        return te.if_then_else(te.all(*conditions), body, self.zero)


def _first(coordinate: Coordinate, ranges: dict[Coordinate, Range]) -> int:
    """Return the first index of an axis, at most 0; a later first index would save few elements but cost an offset."""
    return min(ranges.get(coordinate, (0, 0))[0], 0)


def _opaque(expression: ExprWithOp, plain: ExprWithOp, domains: Analyzer) -> ExprWithOp:
    """Return ``expression`` with each remainder, such as SHIFT's, in a form that TVM does not simplify wrongly.

    TVM 0.27 (FlattenBuffer, by iter_map_simplify) simplifies ((i + 1) % n + 1) % n to (i + 1) % n. The result is wrong
    for an iterator that is shifted twice. TVM does not simplify the truncating remainder, whose value is equal unless
    the dividend is negative. ``plain``, over operands in their ``domains``, proves the dividend's sign.
    """
    if not isinstance(expression, tvm.tirx.FloorMod) or not isinstance(plain, tvm.tirx.FloorMod):
        return expression
    if isinstance(plain.a, tvm.tirx.Var) or domains.const_int_bound(plain.a).min_value < 0:
        return expression
    return tvm.tirx.truncmod(expression.a, expression.b)


def _simple(expression: ExprWithOp, analyzer: Analyzer) -> ExprWithOp:
    # The index of an axis of size 1 stays a variable: schedules look for axes, and the constant 0 is no axis.
    return expression if isinstance(expression, tvm.tirx.Var) else analyzer.simplify(expression)
