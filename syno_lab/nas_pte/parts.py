"""The convolutions of NAS-PTE's operators: their reference in NumPy, and the fingerprint of their terms.

The reference runs one product at a time over all images, rows and columns. Every term multiplies an input element by
one weight element. The fingerprint joins the weights of all convolutions into one list, whose order does not matter.
So it does not depend on how tensors divide the weights, because the computed function does not.

Shapes: N images, C_in and C_out channels, H rows, W columns; windows of 3 x 3, padded with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from syno_lab.common.terms import MAX_TERMS, Array, table_fingerprint, table_of
from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import quoted

WINDOW = 3
#: The number of channels of the second operator's dense convolution.
DENSE = 16


@dataclass(frozen=True)
class Part:
    """A convolution of ``inputs`` channels, the first is ``first_in``, to ``outputs`` channels in ``groups`` groups."""

    first_in: int
    inputs: int
    outputs: int
    groups: int

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """[outputs, inputs of a group, 3, 3], as in PyTorch."""
        return self.outputs, self.inputs // self.groups, WINDOW, WINDOW


#: For each operator's name, a function that returns its convolutions for C_in and C_out.
PARTS: dict[str, Callable[[int, int], tuple[Part, ...]]] = {
    "nas_pte_1": lambda c_in, c_out: (Part(0, c_in, c_out // 2, 2), Part(0, c_in, c_out - c_out // 2, 4)),
    "nas_pte_2": lambda c_in, c_out: (Part(0, DENSE, DENSE, 1), Part(DENSE, c_in - DENSE, c_out - DENSE, 2)),
    "nas_pte_3": lambda c_in, c_out: (Part(0, c_in, c_out, 1),),
}


def reference(parts: Sequence[Part], rows: int, x: Array, weights: Sequence[Array]) -> Array:
    """Return the output [N, outputs of all parts, rows, W], in NumPy's dtype for products of the arguments.

    Only the first ``rows`` rows of ``x`` [N, C_in, H, W] are read. A weight is [outputs, inputs of a group, 3, 3].
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
    """Return the sizes from the shapes of input and weights. Raises SpecError unless each array has four axes."""
    if x.ndim != 4 or any(weight.ndim != 4 for weight in weights):
        shapes = [list(array.shape) for array in (x, *weights)]
        raise SpecError(f"expected an input [N, C_in, H, W] and weights of four axes, found {quoted(shapes)}")
    images, channels, height, width = x.shape
    return {"N": images, "C_in": channels, "C_out": sum(len(w) for w in weights), "H": height, "W": width}


def check_shapes(arrays: Sequence[Array], wanted: Sequence[tuple[int, ...]]) -> None:
    """Raise SpecError if input and weights do not have these shapes."""
    if len(arrays) != len(wanted):
        raise SpecError(f"weights: expected {len(wanted) - 1} arrays after the input, found {len(arrays) - 1}")
    for number, (shape, array) in enumerate(zip(wanted, arrays, strict=True)):
        if array.shape != shape:
            name = f"weight {number}" if number else "the input"
            raise SpecError(f"{name}: expected shape {list(shape)}, found {list(array.shape)}")


def parts_fingerprint(parts: Sequence[Part], input_shape: tuple[int, ...], rows: int) -> str:
    """Return the fingerprint of the 3x3 convolutions ``parts`` over the first ``rows`` rows of [N, C_in, H, W].

    The fingerprint has 32 hexadecimal digits. Raises SynoError if there are too many terms to list.
    """
    images, _, _, columns = input_shape
    total = images * rows * columns * sum(prod(part.weight_shape) for part in parts)
    if total > MAX_TERMS:
        raise SynoError(f"fingerprint: expected at most {MAX_TERMS} terms, found {total}; use a smaller binding")
    outputs = sum(part.outputs for part in parts)
    terms: list[tuple[Array, Array, Array]] = []
    first_output = first_weight = 0
    for part in parts:
        y, x, weight = _terms(part, input_shape, rows)
        # Flat indices of the part's own output and weight become flat indices of the operator's output and weight.
        image, rest = np.divmod(y, part.outputs * rows * columns)
        terms.append(((image * outputs + first_output) * rows * columns + rest, x, first_weight + weight))
        first_output += part.outputs
        first_weight += prod(part.weight_shape)
    y, x, weight = (np.concatenate(columns) for columns in zip(*terms, strict=True))
    return table_fingerprint(table_of(y, x, [weight], input_shape))


def _terms(part: Part, input_shape: tuple[int, ...], rows: int) -> tuple[Array, Array, Array]:
    """Return the flat indices of output, input and weight in every term of one convolution outside the padding."""
    images, channels, height, width = input_shape
    inputs, outputs = part.inputs // part.groups, part.outputs // part.groups
    shape = (images, part.outputs, rows, width, inputs, WINDOW, WINDOW)
    n, o, h, w, c, p, q = np.ogrid[tuple(slice(size) for size in shape)]
    row, column = h + p - WINDOW // 2, w + q - WINDOW // 2
    inside = np.broadcast_to((row >= 0) & (row < rows) & (column >= 0) & (column < width), shape)

    def listed(index: Array) -> Array:
        return np.broadcast_to(index, shape)[inside]

    channel = part.first_in + o // outputs * inputs + c
    return (
        listed(((n * part.outputs + o) * rows + h) * width + w),
        listed(((n * channels + channel) * height + row) * width + column),
        listed(((o * inputs + c) * WINDOW + p) * WINDOW + q),
    )
