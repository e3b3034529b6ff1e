"""The meaning of NAS-PTE's operators, run in NumPy: one product at a time over all images, rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.nas_pte.parts import WINDOW, Part

Array = np.ndarray[Any, Any]


def reference(parts: Sequence[Part], rows: int, x: Array, weights: Sequence[Array]) -> Array:
    """[N, outputs of all parts, rows, W], in the dtype that NumPy gives to products of the arguments.

    Args:
        parts: the convolutions.
        rows: the first rows of ``x``, which alone are read.
        x: [N, C_in, H, W].
        weights: one for each part, [outputs, inputs of a group, 3, 3].
    """
    images, _, _, columns = x.shape
    border = WINDOW // 2
    padded = np.pad(x[:, :, :rows], ((0, 0), (0, 0), (border, border), (border, border)))
    y = np.zeros((images, sum(part.outputs for part in parts), rows, columns), np.result_type(x, *weights))
    first = 0
    for part, weight in zip(parts, weights, strict=True):
        inputs, outputs = part.inputs // part.groups, part.outputs // part.groups
        for o, c, p, q in np.ndindex(weight.shape):
            read = padded[:, part.first_in + o // outputs * inputs + c, p : p + rows, q : q + columns]
            y[:, first + o] += read * weight[o, c, p, q]
        first += part.outputs
    return y


def binding_of(x: Array, weights: Sequence[Array]) -> dict[str, int]:
    """The sizes, read from the shapes of input and weights. Raises SpecError unless each has four axes."""
    if x.ndim != 4 or any(weight.ndim != 4 for weight in weights):
        found = [list(array.shape) for array in (x, *weights)]
        raise SpecError(f"expected an input [N, C_in, H, W] and weights of four axes, found {quoted(found)}")
    images, channels, height, width = x.shape
    return {"N": images, "C_in": channels, "C_out": sum(len(w) for w in weights), "H": height, "W": width}


def check_shapes(arrays: Sequence[Array], wanted: Sequence[tuple[int, ...]]) -> None:
    """Raise SpecError where input and weights have not these shapes."""
    if len(arrays) != len(wanted):
        raise SpecError(f"weights: expected {len(wanted) - 1} arrays after the input, found {len(arrays) - 1}")
    for number, (shape, array) in enumerate(zip(wanted, arrays, strict=True)):
        if array.shape != shape:
            what = f"weight {number}" if number else "the input"
            raise SpecError(f"{what}: expected shape {list(shape)}, found {list(array.shape)}")
