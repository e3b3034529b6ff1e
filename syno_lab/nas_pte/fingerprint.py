"""The fingerprint of convolutions side by side, from their terms: two ways to write one function have the same.

Every term multiplies an input element with one weight element. The weights of all convolutions count as one weight
whose elements may be renamed: the function does not depend on which of them are kept in one tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syno_lab.errors import SynoError
from syno_lab.ir.fingerprint_whole import MAX_TERMS, Array, table_fingerprint, table_of
from syno_lab.nas_pte.parts import WINDOW, Part


def parts_fingerprint(parts: Sequence[Part], input_shape: tuple[int, ...], rows: int) -> str:
    """32 hexadecimal digits of the 3x3 convolutions ``parts`` over the first ``rows`` rows of [N, C_in, H, W].

    Raises:
        SynoError: when there are too many terms to list them.
    """
    images, _, _, columns = input_shape
    total = sum(images * rows * columns * np.prod(part.weight_shape, dtype=object) for part in parts)
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
        first_weight += int(np.prod(part.weight_shape))
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
