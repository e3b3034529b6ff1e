"""One stage of the lowering plan as a ``te.compute``, with what keeps TVM's passes and schedules from going wrong.

A stage iterates over its axes and its sums, computes every other coordinate from these through the steps that it
undoes, and reads the tensor that comes in and its weights there (Syno, section 8). Importing this module imports TVM.
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

Environment = dict[Coordinate, ExprWithOp]  # what each coordinate is, as a TVM expression
Range = tuple[int, int]  # the least and the greatest value


class StageWriter:
    """Writes one stage: a sum of products, and a padded copy of the input where windows leave its bounds.

    Attributes:
        leaving: the coordinates that are out of bounds in some terms, with the values they take: results of this
            stage's UNFOLDs, and axes of its own tensor that a later stage wants ``beyond`` their bounds.
        padded: those along which the tensor that comes in is padded; each of the others is asked for in each term.
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
        """The length of a coordinate's domain."""
        return coordinate.size.at(self.binding)

    def _number(self, value: int) -> tvm.tirx.IntImm:
        # te takes the dtype of a loop's variable from its extent.
        return tvm.tirx.IntImm(self.index_dtype, value)

    def _numbers(self, values: Iterable[int]) -> tuple[tvm.tirx.IntImm, ...]:
        return tuple(self._number(value) for value in values)

    def _range(self, extent: int) -> tvm.ir.Range:
        return tvm.ir.Range(self._number(0), self._number(extent))

    def write(self, tensor: te.Tensor, weights: list[te.Tensor], name: str) -> te.Tensor:
        """The stage's tensor, called ``name``, of the ``tensor`` that comes in and all weights of the operator."""
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
        """Whether MetaSchedule's rules may give wrong code for the stage and are to leave it alone.

        A sum that it does not tile (one without reuse: each factor is read once for each element) or that it divides
        by rfactor (one of more terms than elements) it moves into a later stage's loops, also below those that sum
        there, while it sets it to zero above them (RewriteReductionBlock): terms are then counted several times. The
        loops of such a stage still become parallel and unrolled.
        """
        if self.last or not self.stage.summed:
            return False
        factors = [self.stage.inputs, *(self.operator.weights[number].coordinates for number in self.stage.weights)]
        long = {c for c, extent in zip(self.stage.out, shape, strict=True) if extent > 1}
        is_tiled = any(long - self._read_along(factor) for factor in factors)
        return not is_tiled or prod(shape) < prod(self.size(c) for c in self.stage.summed)

    def _read_along(self, coordinates: Iterable[Coordinate]) -> set[Coordinate]:
        """Which of the coordinates that the stage iterates over move these."""
        iterated = {*self.stage.out, *self.stage.summed}
        found, stack = set(), list(coordinates)
        while stack:
            top = stack.pop()
            if top in iterated:
                found.add(top)
            else:
                stack.extend(top.node.operands)
        return found

    def _environment(self, variables: list[ExprWithOp]) -> tuple[Environment, Analyzer]:
        """Every coordinate of the stage as an expression over the axes of its tensor and of its sums."""
        analyzer = Analyzer()
        environment: Environment = {}
        for c, variable in zip(self.stage.out + self.stage.summed, variables, strict=True):
            analyzer.bind(variable, self._range(self._extent(c, self.beyond)))
            environment[c] = variable + _first(c, self.beyond)
        self._evaluate(self.stage.undo, environment, analyzer)
        return environment, analyzer

    def _extent(self, coordinate: Coordinate, ranges: dict[Coordinate, Range]) -> int:
        """The length of an axis that is padded to ``ranges``, or is as long as its coordinate."""
        size = self.size(coordinate)
        return max(ranges.get(coordinate, (0, 0))[1] + 1, size) - _first(coordinate, ranges)

    def _evaluate(self, steps: Iterable[Step], environment: Environment, analyzer: Analyzer) -> None:
        """Add the results of ``steps`` (given top-down) to ``environment``, bottom-up."""
        for step in reversed(tuple(steps)):
            if is_view(step):
                found = self._index(step, tuple(environment[c] for c in step.operands))
                plain, domains = self._over_domains(step)
                for result, one, model in zip(self.operator.state.results(step), found, plain, strict=True):
                    environment[result] = _simple(_opaque(one, model, domains), analyzer)

    def _index(self, step: Step, arguments: tuple[ExprWithOp, ...]) -> tuple[ExprWithOp, ...]:
        # On TVM's integers // and % are floor division and its remainder, as they are on Python's.
        return results_of(step, arguments, lambda size: size.at(self.binding))

    def _over_domains(self, step: Step) -> tuple[tuple[ExprWithOp, ...], Analyzer]:
        """The results of ``step`` for free operands, and an analyzer that knows the operands' domains."""
        analyzer = Analyzer()
        variables = tuple(tvm.tirx.Var(f"v{i}", self.index_dtype) for i in range(len(step.operands)))
        for variable, operand in zip(variables, step.operands, strict=True):
            analyzer.bind(variable, self._range(self.size(operand)))
        return self._index(step, variables), analyzer

    def _ranges(self, environment: Environment, analyzer: Analyzer) -> dict[Coordinate, Range]:
        """The values that each clipped coordinate can take in terms that are not zero for another reason."""
        found = {}
        for clipped, step in self.clipping.items():
            # Where an operand is out of bounds itself the term is zero, so its domain bounds the result as well.
            whole_index, domains = self._over_domains(step)
            whole = domains.const_int_bound(whole_index[clipped.index])
            here = analyzer.const_int_bound(environment[clipped])
            low, high = max(whole.min_value, here.min_value), min(whole.max_value, here.max_value)
            found[clipped] = (int(low), int(high))
        return found

    def _pad(self, tensor: te.Tensor) -> tuple[te.Tensor, tuple[Coordinate, ...]]:
        """A copy of ``tensor`` that is zero beyond its bounds along ``padded``, and the copy's axes."""
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
        """``body`` where all coordinates in ``ranges`` are in bounds, zero elsewhere; it is only read in bounds."""
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
    """Where an axis begins. It is never later than 0: the offset would not be worth the elements that it saves."""
    return min(ranges.get(coordinate, (0, 0))[0], 0)


def _opaque(expression: ExprWithOp, plain: ExprWithOp, domains: Analyzer) -> ExprWithOp:
    """``expression``, in a form that TVM does not simplify to something else if it wraps around as SHIFT's does.

    TVM 0.27 (FlattenBuffer, by iter_map_simplify) makes ((i + 1) % n + 1) % n into (i + 1) % n, and goes wrong
    wherever one iterator is shifted twice. It leaves the truncating remainder alone, which is the same number here:
    ``plain``, the same over operands in their ``domains`` as they are in every term that is read, shows a dividend
    that is not negative.
    """
    if not isinstance(expression, tvm.tirx.FloorMod) or not isinstance(plain, tvm.tirx.FloorMod):
        return expression
    if isinstance(plain.a, tvm.tirx.Var) or domains.const_int_bound(plain.a).min_value < 0:
        return expression
    return tvm.tirx.truncmod(expression.a, expression.b)


def _simple(expression: ExprWithOp, analyzer: Analyzer) -> ExprWithOp:
    # An axis of size 1 is left to be an axis: schedules match axes, which the constant 0 is not.
    return expression if isinstance(expression, tvm.tirx.Var) else analyzer.simplify(expression)
