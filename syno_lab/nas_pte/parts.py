"""The convolutions that NAS-PTE's operators consist of: their meaning in NumPy, and the fingerprint of their terms.

The meaning is run one product at a time over all images, rows and columns. Every term multiplies an input element with
one weight element. The weights of all convolutions count as one weight whose elements may be renamed: the function does
not depend on which of them are kept in one tensor, and two ways to write it have one fingerprint.

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
#: The channels of the second operator's dense convolution.
DENSE = 16


@dataclass(frozen=True)
class Part:
    """One convolution: input channels from ``first_in``, ``inputs`` of them, to ``outputs`` channels in ``groups``."""

    first_in: int
    inputs: int
    outputs: int
    groups: int

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """[outputs, inputs of a group, 3, 3], as PyTorch has it."""
        return self.outputs, self.inputs // self.groups, WINDOW, WINDOW


#: From C_in and C_out to the convolutions of an operator, by its name.
PARTS: dict[str, Callable[[int, int], tuple[Part, ...]]] = {
    "nas_pte_1": lambda c_in, c_out: (Part(0, c_in, c_out // 2, 2), Part(0, c_in, c_out - c_out // 2, 4)),
    "nas_pte_2": lambda c_in, c_out: (Part(0, DENSE, DENSE, 1), Part(DENSE, c_in - DENSE, c_out - DENSE, 2)),
    "nas_pte_3": lambda c_in, c_out: (Part(0, c_in, c_out, 1),),
}


def reference(parts: Sequence[Part], rows: int, x: Array, weights: Sequence[Array]) -> Array:
    """[N, outputs of all parts, rows, W], in the dtype that NumPy gives to products of the arguments.

    Of ``x`` [N, C_in, H, W] the first rows alone are read; each part has a weight [outputs, inputs of a group, 3, 3].
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


def parts_fingerprint(parts: Sequence[Part], input_shape: tuple[int, ...], rows: int) -> str:
    """32 hexadecimal digits of the 3x3 convolutions ``parts`` over the first ``rows`` rows of [N, C_in, H, W].

    Raises SynoError where there are too many terms to list them.
    """
    images, _, _, columns = input_shape
    total = images * rows * columns * sum(prod(part.weight_shape) for part in parts)
    if total > MAX_TERMS:
        raise SynoError(f"fingerprint: expected at most {MAX_TERMS} terms, found {total}; use a smaller binding")
    outputs = sum(part.outputs for part in parts)
    found: list[tuple[Array, Array, Array]] = []
    first_output = first_weight = 0
    for part in parts:
        y, x, weight = _terms(part, input_shape, rows)
        # Flat indices of the part's own output and weight become those of the whole ones.
        image, rest = np.divmod(y, part.outputs * rows * columns)
        found.append(((image * outputs + first_output) * rows * columns + rest, x, first_weight + weight))
        first_output += part.outputs
        first_weight += prod(part.weight_shape)
    y, x, weight = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return table_fingerprint(table_of(y, x, [weight], input_shape))


def _terms(part: Part, input_shape: tuple[int, ...], rows: int) -> tuple[Array, Array, Array]:
    """The flat indices of output, input and weight in every term of one convolution that padding does not cut off."""
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
