"""TVM from an operator: one PrimFunc with a ``te.compute`` for each stage of the lowering plan (Syno, section 8).

Importing this module imports TVM, and TVM imports torch if installed, so import this module on use. A process that
compiles must first import TVM without torch, see :func:`syno_lab.processes.light.import_tvm`.
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

#: The largest share of the operator's FLOPs that intermediates out of bounds may add.
MOST_EXTRA_FLOPS = 0.5


def to_tvm(
    operator: Operator,
    binding: Binding | None = None,
    dtype: str = "float32",
    *,
    order: Order = "fastest",
    target: str | tvm.target.Target | None = None,
) -> IRModule:
    """Implement :meth:`.Operator.to_tvm`; ``dtype`` is one of :data:`DTYPES`."""
    tvm_target = None if target is None else find_target(target)
    function = prim_func(operator, operator.complete_binding(binding), dtype, order=order)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return module if tvm_target is None else for_target(module, tvm_target)


def prim_func(
    operator: Operator,
    bound: Binding,
    dtype: str = "float32",
    *,
    order: Order = "fastest",
    index_dtype: Literal["int32", "int64"] = "int32",
    is_followed: bool = False,
) -> tvm.tirx.PrimFunc:
    """Return the unscheduled function of :func:`to_tvm` for a complete binding. Raises SynoError.

    Relax needs the ``index_dtype`` int64. ``is_followed``: other operations may be fused behind the function, so TVM
    may schedule the last stage wrongly, like the earlier stages (see :mod:`syno_lab.codegen.tvm_stage`).
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
    """Call :func:`to_tvm` for the text of an operator file, in the tuning process. Needs no torch.

    Raises FormatError when the text is no operator file; SynoError as :func:`to_tvm`.
    """
    return to_tvm(from_json(operator_json), dict(binding), dtype)


def _laid_out(operator: Operator, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the stages with the axes of intermediate tensors in an order that vectorizes.

    Schedules vectorize the last axis. If an axis of an intermediate depends on the output's last axis, this axis comes
    last; channels, which are summed later, come after the batch. Other intermediates have the channels last.
    """
    last = operator.output[-1:]
    laid_out = list(stages)
    for number in range(len(stages) - 1):
        moves = {c: {leaf for leaf in c.leaves() if leaf.is_output} for c in laid_out[number].out}
        channels_last = not any(leaf in moved for moved in moves.values() for leaf in last)

        def rank(c: Coordinate, moves: dict[Coordinate, set[Coordinate]] = moves, late: bool = channels_last) -> Any:
            axes = [leaf.node.tag for leaf in moves[c]]
            place = 0 if c in operator.state.fixed else 1 if axes else 2 if late else 0.5
            return place, max(axes, default=-1)

        out = tuple(sorted(laid_out[number].out, key=rank))  # a stable sort: equal ranks keep the order of creation
        laid_out[number] = replace(laid_out[number], out=out)
        laid_out[number + 1] = replace(laid_out[number + 1], inputs=out)
    return tuple(laid_out)


def _writers(
    operator: Operator,
    binding: Binding,
    dtype: str,
    order: Order,
    index_dtype: Literal["int32", "int64"],
    is_followed: bool,
) -> list[StageWriter]:
    """Return a writer for each stage; a later stage determines how far out of bounds the earlier stages compute.

    Only the input has a padded copy. An intermediate is computed out of bounds too, and is zero there because the
    padded input is zero. MetaSchedule would treat a padded copy of a summed intermediate as a mere write-back.
    MetaSchedule would move the copy into the loops of the summing stage, where nothing writes the copy's border.
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
            # MetaSchedule would also treat a mere view with a bounds check as a write-back.
            is_worth_it = extra <= MOST_EXTRA_FLOPS * chosen.flops or not stages[place].flops
            # Whether this stage's incoming tensor can be computed out of bounds along ``c``, where it is zero. The
            # ranges of later stages were checked before.
            through = all(c in stage.inputs for stage in stages[1 : place + 1])
            can_come = through and all(can_be_padded(operator, stage, c) for stage in stages[: place + 1])
            if c in beyond or (is_worth_it and can_come):
                writer.padded[c] = (low, high)
        beyond = writer.padded
        writers.append(writer)
    return writers[::-1]
