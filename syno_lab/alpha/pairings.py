"""Which axes an operation pairs, in closed form: the exact mixing property of single operations (section 3.1).

A column (an axis of the input) has one mark besides x: *a* where one element of the result reads every position of the
axis, and then every row has it, as the element lies in a slice along each axis of the result; else *m* or *o* by the
most positions that one element reads, in those rows along which a slice reads every position. So an axis of length 1
is a, and a stride that skips positions gives x.
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
#: Looked-at positions of one axis of a reshape; where it would take more, the axis counts as not paired.
_MOST_LOOKS = 1 << 20


class Windows(NamedTuple):
    """Windows along an axis: window i reads the positions ``i * step - before + j * apart``, j < width.

    Attributes:
        size: positions of the axis; what a window reads outside of them is nothing.
        number: of windows.
        width: positions of a window.
        step: between two windows.
        apart: between two positions of a window.
        before: positions before the axis at which the first window begins.
    """

    size: int
    number: int
    width: int
    step: int
    apart: int
    before: int


@lru_cache(maxsize=1 << 12)
def of_windows(windows: Windows) -> Letter | None:
    """The mark of an axis with its own axis of the result; x where windows skip positions, None where all miss it."""
    size, number, width, step, apart, before = windows
    if width == 1 or apart == 1:
        return _of_intervals(windows)
    # What is read repeats after a step, far from the borders: a shorter axis with the same borders has the same mark.
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
    """As :func:`of_windows` where a window reads all from its first position to its last."""
    size, number, width, step, _, before = windows
    first, last = max(0, -((width - 1 - before) // step)), min(number - 1, (size - 1 + before) // step)
    if first > last:
        return None
    # The share of a window in the axis rises, stays and falls: the most is at an end of where it stays.
    ends = [-(-place // step) - late for place in (before, size - width + before) for late in (0, 1)]
    begins = [min(max(end, first), last) * step - before for end in ends]
    most = max(min(size, begin + width) - max(0, begin) for begin in begins)
    if most == size:
        return "a"
    # Several windows read all where they touch, and the first and the last reach the ends.
    skips = width < step or before < 0 or (number - 1) * step - before + width < size
    return "x" if skips else "m" if most > 1 else "o"


def of_block(size: int, block: int) -> Letter:
    """The mark of an axis with its own, each element of the result reading one of the blocks of the axis."""
    return "a" if block == size else "m" if block > 1 else "o"


def diagonal(before: Shape, marks: Sequence[Letter]) -> Pairing:
    """The pairing of an operation that keeps the axes, from the marks of each axis with its own."""
    marks = ["a" if size == 1 else mark for size, mark in zip(before, marks, strict=True)]
    names, axes = axis_names(len(before)), range(len(before))
    rows = tuple(tuple(mark if mark == "a" or i == k else "x" for i, mark in enumerate(marks)) for k in axes)
    return Pairing(names, names, rows)


def by_windows(before: Shape, after: Shape, spatial: Sequence[Windows], channels: Letter) -> Pairing:
    """The pairing of windows along each spatial axis, from the mark of the channels."""
    marks = [of_windows(windows) for windows in spatial]
    read = [mark for mark in marks if mark is not None]
    if len(read) < len(marks):
        return nothing(after, before)  # each element reads what is beside the tensor
    return diagonal(before, ["o", *read, channels])


def by_channels(before: Shape, mark: Letter) -> Pairing:
    """The pairing of an operation that does the same at each position, from the mark of the channels."""
    return diagonal(before, [*repeated("o", len(before) - 1), mark])


def repeated(mark: Letter, times: int) -> list[Letter]:
    """So many of a mark."""
    return [mark] * times


def selected(after: Shape, before: Shape, places: Sequence[int]) -> Pairing:
    """The pairing where axis i of the input is axis ``places[i]`` of the result, or is summed over: -1.

    An axis of size 1 may be one of any size in the result.
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
    """The pairing of a result that does not depend on the input."""
    row = tuple(repeated("x", len(before)))
    return Pairing(axis_names(len(after)), axis_names(len(before)), (row,) * len(after))


def of_reshape(after: Shape, before: Shape) -> Pairing:
    """The pairing of a reshape: both shapes number the same elements in the order of rows."""
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
    """Whether some slice along an axis of the result meets every position of an axis of the input.

    The axes have ``size`` and ``length`` positions, ``stride`` and ``apart`` elements apart; ``outer`` is the number of
    elements of the axes before the one of the result. A slice begins at element b = hi * size * stride + lo, with
    hi < outer and lo < stride; its elements b + t * stride, t < size, are at the positions
    ((b + t * stride) // apart) % length. Only b % apart matters: the rest turns the positions round.
    """
    if size < length:
        return False
    common = gcd(stride, apart)
    step, apart = stride // common, apart // common
    if step < apart:  # no position is skipped, so a slice must begin late enough in its first position
        late = (length - 1) * apart - (size - 1) * step
        apart_starts = gcd(size * step, apart)
        if outer >= apart // apart_starts:  # a slice begins at each multiple
            return late < apart and min(apart - apart_starts + step, apart) > late
        starts = range(min(outer, _MOST_LOOKS))
        return late < apart and any(min(hi * size * step % apart + step, apart) > late for hi in starts)
    if size * apart > _MOST_LOOKS:
        return False
    return any(len({(first + t * step) // apart % length for t in range(size)}) == length for first in range(apart))


def axis_names(rank: int) -> tuple[str, ...]:
    """B, H, W, C for four axes; with another number of spatial axes S1, S2, … for them."""
    if rank < 2:
        return ("B",)[:rank]
    spatial = ("H", "W") if rank == 4 else tuple([f"S{i + 1}" for i in range(rank - 2)])
    return ("B", *spatial, "C")
