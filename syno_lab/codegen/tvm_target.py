"""TVM from an operator: one PrimFunc with a ``te.compute`` for each stage of the lowering plan (Syno, section 8).

Importing this module imports TVM (and TVM imports torch where it can): import it on use. A process that compiles
should have imported TVM without torch before, see :func:`syno_lab.evaluate.tuning.light.import_tvm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import tvm
from tvm import te

from syno_lab.codegen.tvm_padding import can_be_padded, clipping, is_view, padding
from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.files import from_json
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import Stage, plan
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import Step

if TYPE_CHECKING:
    from tvm.ir import IRModule

DTYPES = ("float16", "float32", "float64")

#: How much of the operator's FLOPs may be added by computing intermediates out of bounds.
MOST_EXTRA_FLOPS = 0.5

_Environment = dict[Coordinate, Any]  # what each coordinate is, as a TVM expression
_Range = tuple[int, int]  # the least and the greatest value


def to_tvm(
    operator: Operator,
    binding: Binding | None = None,
    dtype: str = "float32",
    *,
    order: Literal["best", "naive"] = "best",
) -> IRModule:
    """A module with one unscheduled function ``main(X, W1, ..., Y)`` that computes ``operator`` for ``binding``.

    Args:
        operator: any operator; weights come in the order of ``operator.weights``.
        binding: a value for every variable, the batch included; the spec's defaults complete it.
        dtype: of all tensors, one of :data:`DTYPES`.
        order: ``"best"`` has a stage for each partial sum of the plan with the fewest FLOPs, ``"naive"`` is one stage.

    Raises:
        SynoError: for another dtype.
        SpecError: when the binding is incomplete.
    """
    if dtype not in DTYPES:
        raise SynoError(f"to_tvm: expected dtype to be one of {', '.join(DTYPES)}, found {dtype!r}")
    bound = operator.complete_binding(binding)
    X = te.placeholder(operator.input_sizes(bound), dtype, name="X")
    weights = [
        te.placeholder(shape, dtype, name=f"W{number}")
        for number, shape in enumerate(operator.weight_sizes(bound), start=1)
    ]
    tensor = X
    writers = _writers(operator, bound, dtype, order)
    for number, writer in enumerate(writers, start=1):
        tensor = writer.write(tensor, weights, f"Z{number}" if number < len(writers) else "Y")
    function = te.create_prim_func([X, *weights, tensor])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def lower_json(operator_json: str, binding: Mapping[str, int], dtype: str) -> IRModule:
    """:func:`to_tvm` of an operator file's text: what the tuning process calls. Needs no torch.

    Raises:
        FormatError: when the text is no operator file.
        SynoError: see :func:`to_tvm`.
    """
    return to_tvm(from_json(operator_json), dict(binding), dtype)


def _laid_out(operator: Operator, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The same stages with the axes of intermediate tensors in an order that vectorizes.

    Schedules vectorize the last axis. An intermediate that moves along the output's last axis has that movement last,
    and what will be summed (its channels) after the batch; otherwise what will be summed comes last.
    """
    last = operator.output[-1:]
    found = list(stages)
    for number in range(len(stages) - 1):
        moves = {c: {leaf for leaf in c.leaves() if leaf.is_output} for c in found[number].out}
        channels_last = not any(leaf in moved for moved in moves.values() for leaf in last)

        def rank(c: Coordinate, moves: dict[Coordinate, set[Coordinate]] = moves, late: bool = channels_last) -> Any:
            axes = [leaf.node.tag for leaf in moves[c]]
            place = 0 if c in operator.state.fixed else 1 if axes else 2 if late else 0.5
            return place, max(axes, default=-1)

        out = tuple(sorted(found[number].out, key=rank))  # stable: else in order of creation
        found[number] = replace(found[number], out=out)
        found[number + 1] = replace(found[number + 1], inputs=out)
    return tuple(found)


def _writers(operator: Operator, binding: Binding, dtype: str, order: Literal["best", "naive"]) -> list[_StageWriter]:
    """A writer for each stage; the later ones say how far out of bounds the earlier ones must go.

    Only the input is copied to pad it. An intermediate is computed out of bounds instead, where it is zero because
    the padded input is: MetaSchedule takes a padded copy of what a stage sums for a mere write-back of it, and moves
    it into the loops of that stage, where nothing writes the copy's border.
    """
    chosen = plan(operator, binding, order)
    stages = _laid_out(operator, chosen.stages)
    writers: list[_StageWriter] = []
    beyond: dict[Coordinate, _Range] = {}
    for place in range(len(stages) - 1, -1, -1):
        writer = _StageWriter(operator, stages[place], binding, dtype, beyond, place == 0, place == len(stages) - 1)
        for c in writer.leaving:
            # What later stages have asked for was found possible then.
            if c in beyond or _can_come_padded(operator, stages[: place + 1], c):
                low, high = writer.leaving[c]
                size = writer.size(c)
                further = (max(high, size - 1) - min(low, 0) + 1) / size - 1
                if c in beyond or further * sum(s.flops for s in stages[:place]) <= MOST_EXTRA_FLOPS * chosen.flops:
                    writer.padded[c] = writer.leaving[c]
        beyond = writer.padded
        writers.append(writer)
    return writers[::-1]


def _can_come_padded(operator: Operator, stages: tuple[Stage, ...], clipped: Coordinate) -> bool:
    """Whether the tensor that comes into the last of ``stages`` can be had out of bounds along ``clipped``, as zero."""
    through = all(clipped in stage.inputs for stage in stages[1:])
    return through and all(can_be_padded(operator, stage, clipped) for stage in stages)


class _StageWriter:
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
        beyond: dict[Coordinate, _Range],
        first: bool,
        last: bool,
    ) -> None:
        self.operator = operator
        self.stage = stage
        self.binding = binding
        self.zero = tvm.tirx.const(0, dtype)
        self.first, self.last = first, last
        self.beyond = beyond
        self.clipping = clipping(operator, stage)
        self.padded: dict[Coordinate, _Range] = {}
        free = [tvm.tirx.Var(f"v{i}", "int32") for i in range(len(stage.out) + len(stage.summed))]
        ranges = self._ranges(*self._environment(free)) | beyond
        self.leaving = {c: (low, high) for c, (low, high) in ranges.items() if low < 0 or high >= self.size(c)}

    def size(self, coordinate: Coordinate) -> int:
        return coordinate.size.at(self.binding)

    def write(self, tensor: te.Tensor, weights: list[te.Tensor], name: str) -> te.Tensor:
        """The stage's tensor, called ``name``, of the ``tensor`` that comes in and all weights of the operator."""
        summed = [te.reduce_axis((0, self.size(c)), name=f"r{c.node.tag}") for c in self.stage.summed]
        inputs = self.stage.inputs
        if self.padded and self.first:
            tensor, inputs = self._pad(tensor)

        def element(*axes: Any) -> Any:
            environment, analyzer = self._environment([*axes, *(axis.var for axis in summed)])
            term = tensor(*(_simple(environment[c] - _first(c, self.padded), analyzer) for c in inputs))
            for number in self.stage.weights:
                coordinates = self.operator.weights[number].coordinates
                term = term * weights[number](*(environment[c] for c in coordinates))
            term = self._guard(term, {c: r for c, r in self.leaving.items() if c not in self.padded}, environment)
            return te.sum(term, axis=summed) if summed else term

        shape = tuple(self._extent(c, self.beyond) for c in self.stage.out)
        attrs = {"schedule_rule": "None"} if self._is_misscheduled(shape) else None
        return te.compute(shape, element, name=name, attrs=attrs)

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

    def _environment(self, variables: list[Any]) -> tuple[_Environment, Any]:
        """Every coordinate of the stage as an expression over the axes of its tensor and of its sums."""
        analyzer = tvm.sym.Analyzer()
        environment: _Environment = {}
        for c, variable in zip(self.stage.out + self.stage.summed, variables, strict=True):
            analyzer.bind(variable, tvm.ir.Range(0, self._extent(c, self.beyond)))
            environment[c] = variable + _first(c, self.beyond)
        self._evaluate(self.stage.undo, environment, analyzer)
        return environment, analyzer

    def _extent(self, coordinate: Coordinate, ranges: dict[Coordinate, _Range]) -> int:
        """The length of an axis that is padded to ``ranges``, or is as long as its coordinate."""
        size = self.size(coordinate)
        return max(ranges.get(coordinate, (0, 0))[1] + 1, size) - _first(coordinate, ranges)

    def _evaluate(self, steps: Iterable[Step], environment: _Environment, analyzer: Any) -> None:
        """Add the results of ``steps`` (given top-down) to ``environment``, bottom-up."""
        for step in reversed(tuple(steps)):
            if is_view(step):
                found = self._index(step, tuple(environment[c] for c in step.operands))
                plain, domains = self._over_domains(step)
                for result, one, model in zip(self.operator.state.results(step), found, plain, strict=True):
                    environment[result] = _simple(_opaque(one, model, domains), analyzer)

    def _index(self, step: Step, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        # On TVM's integers // and % are floor division and its remainder, as they are on Python's.
        parameter = None if step.parameter is None else step.parameter.at(self.binding)
        return PRIMITIVES[step.primitive].index(arguments, tuple(self.size(c) for c in step.operands), parameter)

    def _over_domains(self, step: Step) -> tuple[tuple[Any, ...], Any]:
        """The results of ``step`` for free operands, and an analyzer that knows the operands' domains."""
        analyzer = tvm.sym.Analyzer()
        variables = tuple(tvm.tirx.Var(f"v{i}", "int32") for i in range(len(step.operands)))
        for variable, operand in zip(variables, step.operands, strict=True):
            analyzer.bind(variable, tvm.ir.Range(0, self.size(operand)))
        return self._index(step, variables), analyzer

    def _ranges(self, environment: _Environment, analyzer: Any) -> dict[Coordinate, _Range]:
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

        def element(*axes: Any) -> Any:
            analyzer = tvm.sym.Analyzer()
            environment: _Environment = {}
            for c, axis in zip(copy.axes, axes, strict=True):
                analyzer.bind(axis, tvm.ir.Range(0, extents[c]))
                environment[c] = axis + _first(c, self.padded)
            self._evaluate(copy.lifted, environment, analyzer)
            inside = tensor(*(_simple(environment[c], analyzer) for c in self.stage.inputs))
            return self._guard(inside, self.padded, environment)

        return te.compute(tuple(extents.values()), element, name=f"{tensor.op.name}_padded"), copy.axes

    def _guard(self, body: Any, ranges: dict[Coordinate, _Range], environment: _Environment) -> Any:
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


def _first(coordinate: Coordinate, ranges: dict[Coordinate, _Range]) -> int:
    """Where an axis begins. It is never later than 0: the offset would not be worth the elements that it saves."""
    return min(ranges.get(coordinate, (0, 0))[0], 0)


def _opaque(expression: Any, plain: Any, domains: Any) -> Any:
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


def _simple(expression: Any, analyzer: Any) -> Any:
    # An axis of size 1 is left to be an axis: schedules match axes, which the constant 0 is not.
    return expression if isinstance(expression, tvm.tirx.Var) else analyzer.simplify(expression)
