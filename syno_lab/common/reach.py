"""What an output element reads along the axes of the input, in one form for operators of all systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from syno_lab.errors import SpecError
from syno_lab.inputs import aligned, quoted

Cover = Literal["none", "part", "whole"]
CENTER = "center"


@dataclass(frozen=True)
class AxisField:
    """What an output element reads along one input axis, for all positions on the other axes.

    Attributes:
        axis: the number of the input axis.
        size: the symbolic size of the axis.
        number: the length of the axis.
        positions: every position that is read, ascending.
        output_axis: the output axis that the input axis follows: the longest output axis in its coordinate expression,
            or None if the expression has none.
        offsets: ``positions`` less the output element's own position, ``index * number // output length``. The value is
            None if the axis follows no output axis, or if the output index covers all of that output axis.
    """

    axis: int
    size: str
    number: int
    positions: tuple[int, ...]
    output_axis: int | None
    offsets: tuple[int, ...] | None

    @property
    def extent(self) -> int:
        """Return the number of positions from the first read position to the last, inclusive."""
        return self.positions[-1] - self.positions[0] + 1 if self.positions else 0

    @property
    def cover(self) -> Cover:
        """Return how much of the axis is read: the whole axis, a part or nothing."""
        return "whole" if len(self.positions) == self.number else "part" if self.positions else "none"


def index_of(index: Any, shape: tuple[int, ...]) -> tuple[int | None, ...]:
    """Convert an index of :meth:`.Operator.receptive_field` to a number or None (all) for each axis of the output.

    Raises SpecError for an index outside the output.
    """
    if index is None:
        return (None,) * len(shape)
    if isinstance(index, str) and index == CENTER:
        return tuple(n // 2 for n in shape)
    entries = tuple(index) if isinstance(index, tuple | list) else (index,)
    entries = tuple(None if isinstance(i, slice) and i == slice(None) else i for i in entries)
    wanted = f"expected an index for each of {len(shape)} output axes, below {list(shape)}, or None for all of an axis"
    if len(entries) != len(shape):
        raise SpecError(f"output index: {wanted}; found {len(entries)}: {quoted(index)}")
    for entry, number in zip(entries, shape, strict=True):
        is_number = isinstance(entry, int | np.integer) and not isinstance(entry, bool)
        if entry is not None and not (is_number and 0 <= entry < number):
            raise SpecError(f"output index: {wanted}; found {quoted(index)}")
    return tuple(None if i is None else int(i) for i in entries)


def axis_table(axes: Sequence[AxisField]) -> list[str]:
    """Format what is read along each input axis as a table with a header, and return its lines."""
    heads = ["axis", "size", "number", "reads", "extent", "cover", "offsets"]
    return aligned([heads, *map(_line, axes)])


def _line(axis: AxisField) -> list[str]:
    offsets = "" if axis.offsets is None else ranges(axis.offsets)
    if axis.offsets:
        offsets += f" from output axis {axis.output_axis}"
    reads = str(len(axis.positions))
    return [str(axis.axis), axis.size, str(axis.number), reads, str(axis.extent), axis.cover, offsets]


def ranges(numbers: tuple[int, ...]) -> str:
    """Format ascending numbers; consecutive numbers become a range with two dots: ``-1..1, 5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in runs)
