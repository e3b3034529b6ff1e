"""TVM from an operator: one PrimFunc with a ``te.compute`` for each stage of the lowering plan (Syno, section 8).

Importing this module imports TVM (and TVM imports torch where it can): import it on use. A process that compiles
should have imported TVM without torch before, see :func:`syno_lab.processes.light.import_tvm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import tvm
from tvm import te

from syno_lab.codegen.tvm_device import find_target, for_target
from syno_lab.codegen.tvm_padding import can_be_padded
from syno_lab.codegen.tvm_stage import Range, StageWriter
from syno_lab.errors import SynoError
from syno_lab.inputs import quoted
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.files import from_json
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import Order, Stage, plan
from syno_lab.ir.spec import Binding

if TYPE_CHECKING:
    from tvm.ir import IRModule

DTYPES = ("float16", "float32", "float64")

#: How much of the operator's FLOPs may be added by computing intermediates out of bounds.
MOST_EXTRA_FLOPS = 0.5


def to_tvm(
    operator: Operator,
    binding: Binding | None = None,
    dtype: str = "float32",
    *,
    order: Order = "fastest",
    target: str | tvm.target.Target | None = None,
) -> IRModule:
    """The method :meth:`.Operator.to_tvm`; ``dtype`` is one of :data:`DTYPES`."""
    found = None if target is None else find_target(target)
    function = prim_func(operator, operator.complete_binding(binding), dtype, order=order)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return module if found is None else for_target(module, found)


def prim_func(
    operator: Operator,
    bound: Binding,
    dtype: str = "float32",
    *,
    order: Order = "fastest",
    index_dtype: Literal["int32", "int64"] = "int32",
    is_followed: bool = False,
) -> tvm.tirx.PrimFunc:
    """The unscheduled function of :func:`to_tvm` for a complete binding.

    Relax counts in ``index_dtype`` int64. ``is_followed``: other operations may be fused behind it, so that its last
    stage may be misscheduled as the earlier ones are (see :mod:`syno_lab.codegen.tvm_stage`). Raises SynoError.
    """
    if dtype not in DTYPES:
        raise SynoError(f"to_tvm: expected dtype to be one of {', '.join(DTYPES)}, found {quoted(dtype)}")

    most = 1 << (31 if index_dtype == "int32" else 63)
    if (largest := max(map(bound.__getitem__, bound), default=1)) >= most:
        raise SynoError(f"to_tvm: expected sizes below {most}, as TVM counts in {index_dtype}, found {largest}")

    def placeholder(shape: tuple[int, ...], name: str) -> te.Tensor:
        return te.placeholder(tuple(tvm.tirx.IntImm(index_dtype, size) for size in shape), dtype, name=name)

    X = placeholder(operator.input_sizes(bound), "X")
    weights = [placeholder(shape, f"W{i}") for i, shape in enumerate(operator.weight_sizes(bound), start=1)]
    tensor = X
    writers = _writers(operator, bound, dtype, order, index_dtype, is_followed)
    for number, writer in enumerate(writers, start=1):
        tensor = writer.write(tensor, weights, f"Z{number}" if number < len(writers) else "Y")
    return te.create_prim_func([X, *weights, tensor])


def lower_json(operator_json: str, binding: Mapping[str, int], dtype: str) -> IRModule:
    """:func:`to_tvm` of an operator file's text: what the tuning process calls. Needs no torch.

    Raises FormatError when the text is no operator file; SynoError: see :func:`to_tvm`.
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


def _writers(
    operator: Operator,
    binding: Binding,
    dtype: str,
    order: Order,
    index_dtype: Literal["int32", "int64"],
    is_followed: bool,
) -> list[StageWriter]:
    """A writer for each stage; the later ones say how far out of bounds the earlier ones must go.

    Only the input is copied to pad it. An intermediate is computed out of bounds instead, where it is zero because
    the padded input is: MetaSchedule takes a padded copy of what a stage sums for a mere write-back of it, and moves
    it into the loops of that stage, where nothing writes the copy's border.
    """
    chosen = plan(operator, binding, order)
    stages = _laid_out(operator, chosen.stages)
    writers: list[StageWriter] = []
    beyond: dict[Coordinate, Range] = {}
    for place in range(len(stages) - 1, -1, -1):
        last = place == len(stages) - 1 and not is_followed
        writer = StageWriter(operator, stages[place], binding, dtype, beyond, place == 0, last, index_dtype)
        for c, (low, high) in writer.leaving.items():
            further = (max(high, writer.size(c) - 1) - min(low, 0) + 1) / writer.size(c) - 1
            extra = further * sum(stage.flops for stage in stages[:place])
            # A mere view that asks whether it is in bounds would be taken for a write-back as well.
            is_worth_it = extra <= MOST_EXTRA_FLOPS * chosen.flops or not stages[place].flops
            # Whether the tensor that comes into this stage can be had out of bounds along ``c``, as zero. What later
            # stages have asked for was found possible then.
            through = all(c in stage.inputs for stage in stages[1 : place + 1])
            can_come = through and all(can_be_padded(operator, stage, c) for stage in stages[: place + 1])
            if c in beyond or (is_worth_it and can_come):
                writer.padded[c] = (low, high)
        beyond = writer.padded
        writers.append(writer)
    return writers[::-1]
