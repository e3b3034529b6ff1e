"""The peer of conv2d's pGraph: a convolution written in TE by hand, as TVM's own tutorials do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def conv2d(operator: str, binding: Mapping[str, int], dtype: str) -> Any:
    """A module with ``main(X, W, Y)``: 3x3, padding 1; a builder of the tuning, which passes no operator."""
    import tvm
    from tvm import te

    n, ci, co, h, w = (binding[name] for name in ("N", "C_in", "C_out", "H", "W"))
    X = te.placeholder((n, ci, h, w), dtype, name="X")
    W = te.placeholder((co, ci, 3, 3), dtype, name="W")
    padded = te.compute(
        (n, ci, h + 2, w + 2),
        lambda b, c, y, x: te.if_then_else(
            te.all(y >= 1, y < h + 1, x >= 1, x < w + 1), X[b, c, y - 1, x - 1], tvm.tirx.const(0, dtype)
        ),
        name="padded",
    )
    c, p, q = te.reduce_axis((0, ci), "c"), te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q")
    Y = te.compute(
        (n, co, h, w),
        lambda b, o, y, x: te.sum(padded[b, c, y + p, x + q] * W[o, c, p, q], axis=[c, p, q]),
        name="Y",
    )
    return tvm.IRModule({"main": te.create_prim_func([X, W, Y]).with_attr("global_symbol", "main")})
