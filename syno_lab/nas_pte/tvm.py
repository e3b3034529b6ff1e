"""NAS-PTE's operators in TVM: a ``te.compute`` for each convolution and one for their concatenation.

Importing this module imports TVM, see :mod:`syno_lab.codegen.tvm_target`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import tvm
from tvm import te

from syno_lab.nas_pte.operator import NasPteOperator, from_json
from syno_lab.nas_pte.parts import WINDOW, Part

if TYPE_CHECKING:
    from tvm.ir import IRModule


def to_tvm(operator: NasPteOperator, binding: Mapping[str, int], dtype: str = "float32") -> IRModule:
    """Return a module with one unscheduled function ``main(X, W1, ..., Y)``."""
    parts, rows = operator.parts(binding), operator.rows(binding)
    X = te.placeholder(operator.input_sizes(binding), dtype, name="X")
    weights = [te.placeholder(part.weight_shape, dtype, name=f"W{i}") for i, part in enumerate(parts, start=1)]
    padded = _padded(X, rows)
    names = [f"Z{i}" for i in range(1, len(parts) + 1)] if len(parts) > 1 else ["Y"]
    tensors = [_convolution(padded, *arguments) for arguments in zip(weights, parts, names, strict=True)]
    result = tensors[0] if len(tensors) == 1 else _concatenation(tensors, parts)
    function = te.create_prim_func([X, *weights, result])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def _padded(X: te.Tensor, rows: int) -> te.Tensor:
    """Return the first ``rows`` rows of ``X`` with a border of zeros."""
    images, channels, _, columns = (int(size) for size in X.shape)
    border = WINDOW // 2
    zero = tvm.tirx.const(0, X.dtype)

    def element(n: Any, c: Any, h: Any, w: Any) -> Any:
        inside = te.all(h >= border, h < rows + border, w >= border, w < columns + border)
        return te.if_then_else(inside, X[n, c, h - border, w - border], zero)

    return te.compute((images, channels, rows + 2 * border, columns + 2 * border), element, name="X_padded")


def _convolution(padded: te.Tensor, weight: te.Tensor, part: Part, name: str) -> te.Tensor:
    images, _, height, width = (int(size) for size in padded.shape)
    shape = (images, part.outputs, height - WINDOW + 1, width - WINDOW + 1)
    inputs, outputs = part.inputs // part.groups, part.outputs // part.groups
    c = te.reduce_axis((0, inputs), "c")
    p, q = te.reduce_axis((0, WINDOW), "p"), te.reduce_axis((0, WINDOW), "q")

    def element(n: Any, o: Any, h: Any, w: Any) -> Any:
        group = o // outputs * inputs if part.groups > 1 else 0
        return te.sum(padded[n, part.first_in + group + c, h + p, w + q] * weight[o, c, p, q], axis=[c, p, q])

    return te.compute(shape, element, name=name)


def _concatenation(found: list[te.Tensor], parts: tuple[Part, ...]) -> te.Tensor:
    images, _, rows, columns = (int(size) for size in found[0].shape)
    firsts = [sum(part.outputs for part in parts[:place]) for place in range(len(parts))]

    def element(n: Any, o: Any, h: Any, w: Any) -> Any:
        # No index is ever out of bounds, but the bounds are needed. Without bounds MetaSchedule takes the concatenation
        # for a write-back of one convolution, and cannot move the other convolutions into its loops (a ScheduleError).
        bounded = (te.max(te.min(o - first, part.outputs - 1), 0) for first, part in zip(firsts, parts, strict=True))
        read = [tensor[n, index, h, w] for tensor, index in zip(found, bounded, strict=True)]
        later = list(zip(read[1:], firsts[1:], strict=True))
        return reduce(lambda before, pair: te.if_then_else(o < pair[1], before, pair[0]), later, read[0])

    return te.compute((images, sum(part.outputs for part in parts), rows, columns), element, name="Y")


def lower_json(operator_json: str, binding: Mapping[str, int], dtype: str) -> IRModule:
    """Call :func:`to_tvm` for an operator file's text, in the tuning process."""
    return to_tvm(from_json(operator_json), dict(binding), dtype)
