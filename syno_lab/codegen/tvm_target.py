"""TVM from an operator: one PrimFunc with a ``te.compute`` for each stage of the lowering plan (Syno, section 8).

Importing this module imports TVM (and TVM imports torch where it can): import it on use. A process that compiles
should have imported TVM without torch before, see :func:`syno_lab.evaluate.tuning.light.import_tvm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
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
    stages = _laid_out(operator, plan(operator, bound, order).stages)
    tensor = X
    for number, stage in enumerate(stages, start=1):
        name = "Y" if number == len(stages) else f"Z{number}"
        tensor = _StageWriter(operator, stage, bound, dtype).write(tensor, weights, name)
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


class _StageWriter:
    """Writes one stage: a sum of products, and a padded copy of what comes in where windows leave its bounds."""

    def __init__(self, operator: Operator, stage: Stage, binding: Binding, dtype: str) -> None:
        self.operator = operator
        self.stage = stage
        self.binding = binding
        self.zero = tvm.tirx.const(0, dtype)
        self.clipping = clipping(operator, stage)

    def size(self, coordinate: Coordinate) -> int:
        return coordinate.size.at(self.binding)

    def write(self, tensor: te.Tensor, weights: list[te.Tensor], name: str) -> te.Tensor:
        """The stage's tensor, called ``name``, of the ``tensor`` that comes in and all weights of the operator."""
        stage = self.stage
        summed = [te.reduce_axis((0, self.size(c)), name=f"r{c.node.tag}") for c in stage.summed]

        def element(*axes: Any) -> Any:
            analyzer = tvm.sym.Analyzer()
            environment: _Environment = dict(zip(stage.out, axes, strict=True))
            environment.update((c, axis.var) for c, axis in zip(stage.summed, summed, strict=True))
            for coordinate, variable in environment.items():
                analyzer.bind(variable, tvm.ir.Range(0, self.size(coordinate)))
            self._evaluate(stage.undo, environment, analyzer)
            body = self._product(tensor, weights, environment, analyzer)
            return te.sum(body, axis=summed) if summed else body

        return te.compute(tuple(self.size(c) for c in stage.out), element, name=name)

    def _product(self, tensor: te.Tensor, weights: list[te.Tensor], environment: _Environment, analyzer: Any) -> Any:
        """The term that is summed, at the coordinates of ``environment``."""
        stage = self.stage
        leaving = {
            c: (low, high)
            for c, (low, high) in self._ranges(environment, analyzer).items()
            if low < 0 or high >= self.size(c)
        }
        padded = {c: r for c, r in leaving.items() if can_be_padded(self.operator, stage, c)}
        inputs = stage.inputs
        if padded:
            tensor, inputs = self._pad(tensor, padded)
        offset = {c: -min(low, 0) for c, (low, _) in padded.items()}
        term = tensor(*(_simple(environment[c] + offset.get(c, 0), analyzer) for c in inputs))
        for number in stage.weights:
            coordinates = self.operator.weights[number].coordinates
            term = term * weights[number](*(environment[c] for c in coordinates))
        return self._guard(term, {c: r for c, r in leaving.items() if c not in padded}, environment)

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

    def _pad(self, tensor: te.Tensor, padded: dict[Coordinate, _Range]) -> tuple[te.Tensor, tuple[Coordinate, ...]]:
        """A copy of ``tensor`` in which the coordinates ``padded`` run over these ranges, and the copy's axes."""
        copy = padding(self.operator, self.stage, padded)
        # An axis begins at 0 even where less of it is read: a copy is not worth an offset that grows with the stage.
        first = {c: min(padded[c][0], 0) if c in padded else 0 for c in copy.axes}
        last = {c: max(padded[c][1], self.size(c) - 1) if c in padded else self.size(c) - 1 for c in copy.axes}

        def element(*axes: Any) -> Any:
            analyzer = tvm.sym.Analyzer()
            environment: _Environment = {}
            for c, axis in zip(copy.axes, axes, strict=True):
                analyzer.bind(axis, tvm.ir.Range(0, last[c] - first[c] + 1))
                environment[c] = axis + first[c]
            self._evaluate(copy.lifted, environment, analyzer)
            inside = tensor(*(_simple(environment[c], analyzer) for c in self.stage.inputs))
            return self._guard(inside, padded, environment)

        shape = tuple(last[c] - first[c] + 1 for c in copy.axes)
        return te.compute(shape, element, name=f"{tensor.op.name}_padded"), copy.axes

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
