"""The exact mixing property of each single operation, in closed form: the axes that it pairs (section 3.1).

A column is an axis of the input. The entries of a column are x or one mark. The mark is *a* if an element of the result
reads every position of the input axis. All rows then have the mark, because each slice along a result axis has such an
element. Otherwise the mark is *m* if an element reads several positions, else *o*; rows have the mark if their slices
read every position. An input axis of length 1 has the mark a, and a stride that skips positions gives x.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import gcd
from operator import mul
from typing import NamedTuple

from syno_lab.common.pairing import Pairing as Pairing
from syno_lab.common.wants import Letter

Shape = tuple[int, ...]
#: The limit of positions to check for the pairing of an axis; an axis that needs more checks counts as not paired.
_MOST_LOOKS = 1 << 20


class Windows(NamedTuple):
    """Windows along an axis: window i reads the positions ``i * step - before + j * apart``, j < width.

    Attributes:
        size: number of positions of the axis; a window reads nothing outside of the axis.
        number: number of windows.
        width: number of positions of a window.
        step: distance between two windows.
        apart: distance between two positions of a window.
        before: the number of positions by which the first window starts before the axis.
    """

    size: int
    number: int
    width: int
    step: int
    apart: int
    before: int


@lru_cache(maxsize=1 << 12)
def of_windows(windows: Windows) -> Letter | None:
    """Return the mark of an axis and its result axis; x if windows skip positions, None if they read no position."""
    size, number, width, step, apart, before = windows
    if width == 1 or apart == 1:
        return _of_intervals(windows)
    # Far from the borders, read positions repeat with each step: a shorter axis with equal borders has the same mark.
    borders = 4 * ((width - 1) * apart + abs(before) + step)
    fewer = max(0, min((size - borders) // step, number - borders // step - 1))
    size, number = size - fewer * step, number - fewer
    if number * width > _MOST_LOOKS:
        return "x"
    seen: set[int] = set()
    most = 0
    for first in range(-before, number * step - before, step):
        inside = [position for position in range(first, first + width * apart, apart) if 0 <= position < size]
        seen.update(inside)
        most = max(most, len(inside))
    if len(seen) < size:
        return "x" if seen else None
    return "a" if most == size else "m" if most > 1 else "o"


def _of_intervals(windows: Windows) -> Letter | None:
    """Compute :func:`of_windows` for a window that reads all positions from its first to its last."""
    size, number, width, step, _, before = windows
    first, last = max(0, -((width - 1 - before) // step)), min(number - 1, (size - 1 + before) // step)
    if first > last:
        return None
    # From window to window, the number of positions inside the axis grows, stays constant, then shrinks. The largest
    # number is at an end of the constant range.
    ends = [-(-place // step) - late for place in (before, size - width + before) for late in (0, 1)]
    begins = [min(max(end, first), last) * step - before for end in ends]
    most = max(min(size, begin + width) - max(0, begin) for begin in begins)
    if most == size:
        return "a"
    # All positions are read if windows leave no gap, and the first and the last window reach the ends of the axis.
    skips = width < step or before < 0 or (number - 1) * step - before + width < size
    return "x" if skips else "m" if most > 1 else "o"


def of_block(size: int, block: int) -> Letter:
    """Return the mark of an axis and its result axis if each element of the result reads one block of the axis."""
    return "a" if block == size else "m" if block > 1 else "o"


def diagonal(before: Shape, marks: Sequence[Letter]) -> Pairing:
    """Return the pairing of an operation that keeps the axes; ``marks`` has a mark for each axis."""
    marks = ["a" if size == 1 else mark for size, mark in zip(before, marks, strict=True)]
    names, axes = axis_names(len(before)), range(len(before))
    rows = tuple(tuple(mark if mark == "a" or i == k else "x" for i, mark in enumerate(marks)) for k in axes)
    return Pairing(names, names, rows)


def by_windows(before: Shape, after: Shape, spatial: Sequence[Windows], channels: Letter) -> Pairing:
    """Return the pairing of windows along each spatial axis; ``channels`` is the mark of the channel axis."""
    marks = [of_windows(windows) for windows in spatial]
    read = [mark for mark in marks if mark is not None]
    if len(read) < len(marks):
        return nothing(after, before)  # each element reads padding only
    return diagonal(before, ["o", *read, channels])


def by_channels(before: Shape, mark: Letter) -> Pairing:
    """Return the pairing of an operation on the channels of each position; ``mark`` is the mark of the channel axis."""
    return diagonal(before, [*repeated("o", len(before) - 1), mark])


def repeated(mark: Letter, times: int) -> list[Letter]:
    """Return a list of ``times`` equal marks."""
    return [mark] * times


def selected(after: Shape, before: Shape, places: Sequence[int]) -> Pairing:
    """Return the pairing where input axis i becomes result axis ``places[i]``; -1 means a sum over the input axis.

    An input axis of size 1 may have any size in the result (broadcasting).
    """
    marks: list[list[Letter]] = [["x"] * len(before) for _ in after]
    for i, place in enumerate(places):
        if place < 0 or before[i] == 1:
            for row in marks:
                row[i] = "a"
        else:
            marks[place][i] = "o"
    return Pairing(axis_names(len(after)), axis_names(len(before)), tuple(map(tuple, marks)))


def nothing(after: Shape, before: Shape) -> Pairing:
    """Return the pairing of a result that does not depend on the input."""
    row = tuple(repeated("x", len(before)))
    return Pairing(axis_names(len(after)), axis_names(len(before)), (row,) * len(after))


def of_reshape(after: Shape, before: Shape) -> Pairing:
    """Return the pairing of a reshape, which keeps the row-major order of the elements."""
    rows: list[tuple[Letter, ...]] = []
    outer = 1
    for size, stride in zip(after, _strides(after), strict=True):
        row: list[Letter] = []
        for length, apart in zip(before, _strides(before), strict=True):
            row.append("a" if length == 1 else "o" if _covers(outer, size, stride, length, apart) else "x")
        rows.append(tuple(row))
        outer *= size
    return Pairing(axis_names(len(after)), axis_names(len(before)), tuple(rows))


def _strides(shape: Shape) -> list[int]:
    return list(accumulate(shape[:0:-1], mul, initial=1))[::-1] if shape else []


def _covers(outer: int, size: int, stride: int, length: int, apart: int) -> bool:
    """Return whether a slice along an axis of the result contains every position of an axis of the input.

    The result's axis has ``size`` positions that are ``stride`` elements apart; the input's axis has ``length``
    positions, ``apart`` elements apart. ``outer`` is the product of the result's axes before this axis. A slice starts
    at element b = hi * size * stride + lo, with hi < outer and lo < stride; its elements b + t * stride, t < size, have
    the positions ((b + t * stride) // apart) % length. Only b % apart matters: the rest rotates the positions.
    """
    if size < length:
        return False
    common = gcd(stride, apart)
    step, apart = stride // common, apart // common
    if step < apart:  # a slice skips no position, but must start late enough in its first position
        late = (length - 1) * apart - (size - 1) * step
        apart_starts = gcd(size * step, apart)
        if outer >= apart // apart_starts:  # slices start at all multiples of apart_starts
            return late < apart and min(apart - apart_starts + step, apart) > late
        starts = range(min(outer, _MOST_LOOKS))
        return late < apart and any(min(hi * size * step % apart + step, apart) > late for hi in starts)
    if size * apart > _MOST_LOOKS:
        return False
    return any(len({(first + t * step) // apart % length for t in range(size)}) == length for first in range(apart))


def axis_names(rank: int) -> tuple[str, ...]:
    """Return the names of axes: B, H, W, C for rank 4; for other ranks the spatial axes are S1, S2, …"""
    if rank < 2:
        return ("B",)[:rank]
    spatial = ("H", "W") if rank == 4 else tuple([f"S{i + 1}" for i in range(rank - 2)])
    return ("B", *spatial, "C")
