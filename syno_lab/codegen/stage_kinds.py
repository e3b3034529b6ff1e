"""Recognise a product of data and a weight as a convolution, a matrix product, or neither.

A stage of the lowering plan multiplies tensors and sums products. The library call of a stage depends on the
coordinates alone, never on the operator's name. The data's axes are *affine*: each index is a sum of coordinates with
coefficients. UNFOLD, STRIDE and SPLIT make these sums (Syno, Table 1; section 8 on lowering). :func:`recognise` sorts
the coordinates into batch, group, contracted and free coordinates and into windows that slide over the data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal, NamedTuple

from syno_lab.ir.coordinate import Coordinate

MAX_OPEN_WINDOW = 16  # the limit of positions of an opened window; each position needs a slice


class Term(NamedTuple):
    """A term ``coefficient * coordinate``, where the coordinate runs over ``0 <= value < size``."""

    coefficient: int
    coordinate: Coordinate
    size: int


@dataclass(frozen=True)
class Axis:
    """A tensor's axis with ``length`` elements, read at ``sum(terms) + offset``; the value out of bounds is zero."""

    terms: tuple[Term, ...]
    offset: int
    length: int

    @classmethod
    def plain(cls, coordinate: Coordinate, size: int) -> Axis:
        """Return an axis with one coordinate as its index."""
        return cls((Term(1, coordinate, size),), 0, size)

    @property
    def is_plain(self) -> bool:
        """Whether the index of the axis is one coordinate."""
        first = self.terms[0]
        return len(self.terms) == 1 and first.coefficient == 1 and self.offset == 0 and first.size == self.length

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """The coordinates in the axis's index."""
        return tuple(term.coordinate for term in self.terms)

    @property
    def left(self) -> int:
        """The number of padding zeros before the first element; -n if the first n elements are not read."""
        return -self.offset

    @property
    def right(self) -> int:
        """The number of padding zeros after the last element; -n if the last n elements are not read."""
        return self.offset + span(self.terms) - self.length

    @property
    def is_split(self) -> bool:
        """Whether the terms are the digits of the position, so that a reshape splits the axis into the terms' axes."""
        fused = fuse(self.terms)
        return self.offset == 0 and fused is not None and fused.step == 1 and fused.size == self.length

    def replace(self, coordinate: Coordinate, terms: Iterable[Term], offset: int = 0) -> Axis:
        """Return the axis with ``coordinate`` replaced by the sum of ``terms`` plus ``offset``."""
        replaced: list[Term] = []
        shift = self.offset
        for term in self.terms:
            if term.coordinate != coordinate:
                replaced.append(term)
                continue
            replaced += [Term(term.coefficient * c, inner, size) for c, inner, size in terms]
            shift += term.coefficient * offset
        return Axis(tuple(replaced), shift, self.length)


class Fused(NamedTuple):
    """Terms with the sum ``step * position``, where ``position < size``; the largest coefficient is first."""

    step: int
    size: int
    terms: tuple[Term, ...]

    @property
    def axes(self) -> list[Axis]:
        """A separate axis for each term."""
        return [Axis.plain(term.coordinate, term.size) for term in self.terms]


def span(terms: Iterable[Term]) -> int:
    """Return the number of positions from the first to the last that ``terms`` reach, both included."""
    return 1 + sum(term.coefficient * (term.size - 1) for term in terms)


def fuse(terms: Iterable[Term]) -> Fused | None:
    """Return the terms as the digits of one position; None if they are no digits."""
    all_terms = tuple(terms)
    digits = sorted((t for t in all_terms if t.size > 1), key=lambda t: -t.coefficient)
    for high, low in pairwise(digits):
        if high.coefficient != low.coefficient * low.size:
            return None
    step = digits[-1].coefficient if digits else 1
    of_size_one = tuple(t for t in all_terms if t.size == 1)
    return Fused(step, prod(t.size for t in digits), (*of_size_one, *digits))


@dataclass(frozen=True)
class Sliding:
    """An axis over which a window slides: index ``stride * main + dilation * window - left``, zero out of bounds.

    ``main`` is an index of the result. ``window`` is summed, or *opened*: it stays as an axis of the result.
    """

    axis: Axis
    main: Fused
    window: Fused

    @property
    def stride(self) -> int:
        """The step between neighbouring positions of the window on the axis."""
        return self.main.step

    @property
    def dilation(self) -> int:
        """The step on the axis between neighbouring elements of the window."""
        return self.window.step


@dataclass(frozen=True)
class Contraction:
    """A product of data and a weight with sums, and the role of every coordinate.

    Attributes:
        batch: axes that only the data has and that stay in the result, with any index.
        group: coordinates of data, weight and result.
        contracted: coordinates of data and weight that are summed.
        free: coordinates of weight and result that the data does not have.
        sliding: axes over which a window of the weight slides and is summed.
        opened: axes over which a window of the weight slides and stays; the window's coordinates are among ``free``.
        obstacles: axes without a role, to be split into axes of one coordinate, which have roles.
    """

    batch: tuple[Axis, ...]
    group: tuple[Coordinate, ...]
    contracted: tuple[Coordinate, ...]
    free: tuple[Coordinate, ...]
    sliding: tuple[Sliding, ...]
    opened: tuple[Sliding, ...]
    obstacles: tuple[Axis, ...]

    @property
    def kind(self) -> Literal["general", "convolution", "matmul", "product"]:
        """The kind of call that computes the contraction: ``product`` is elementwise, ``general`` has obstacles."""
        if self.obstacles:
            return "general"
        if self.sliding:
            return "convolution"
        return "matmul" if self.contracted or self.free else "product"

    def __str__(self) -> str:
        words: list[str] = [self.kind]
        if self.group and self.kind in ("convolution", "matmul"):
            words.insert(0, "grouped" if self.contracted or self.free else "depthwise")
        for name, steps in (
            ("strided", [s.stride for s in self.sliding]),
            ("dilated", [s.dilation for s in self.sliding]),
        ):
            if any(step > 1 for step in steps):
                words.insert(0, name)
        if self.opened:
            words.append("with an open window")
        return " ".join(words)


def recognise(data: Iterable[Axis], weight: Collection[Coordinate], summable: Collection[Coordinate]) -> Contraction:
    """Return the roles of all coordinates in ``sum over summable of data * weight``, from the data's axes.

    Each coordinate of ``weight`` is one axis of the weight. A summable coordinate that only the data has counts as
    batch, and is summed later.
    """
    batch: list[Axis] = []
    group: list[Coordinate] = []
    contracted: list[Coordinate] = []
    sliding: list[Sliding] = []
    opened: list[Sliding] = []
    obstacles: list[Axis] = []
    seen: set[Coordinate] = set()
    for axis in data:
        seen.update(axis.coordinates)
        if not any(c in weight for c in axis.coordinates):
            batch.append(axis)
        elif axis.is_plain:
            (contracted if axis.coordinates[0] in summable else group).append(axis.coordinates[0])
        else:
            slide = _slides(axis, weight)
            if slide is None:
                obstacles.append(axis)
            elif all(t.coordinate in summable for t in slide.window.terms):
                sliding.append(slide)
            elif _can_stay_open(slide, summable):
                opened.append(slide)
            else:
                obstacles.append(axis)
    windows = [t.coordinate for s in opened for t in s.window.terms]
    free = (*windows, *(c for c in weight if c not in seen))
    return Contraction(
        tuple(batch), tuple(group), tuple(contracted), free, tuple(sliding), tuple(opened), tuple(obstacles)
    )


def _slides(axis: Axis, weight: Collection[Coordinate]) -> Sliding | None:
    main = fuse(t for t in axis.terms if t.coordinate not in weight)
    window = fuse(t for t in axis.terms if t.coordinate in weight)
    if main is None or window is None or not main.terms or axis.is_split:
        return None
    return Sliding(axis, main, window)


def _can_stay_open(found: Sliding, summable: Collection[Coordinate]) -> bool:
    """Check that each window position reads an element, and that multiplying first costs at most as much as opening."""
    last = found.dilation * (found.window.size - 1)
    reads = found.axis.left - last > -found.axis.length and span(found.main.terms) > found.axis.left
    return (
        reads
        and len(found.window.terms) == 1
        and found.window.terms[0].coordinate not in summable
        and found.window.size <= MAX_OPEN_WINDOW
        and found.axis.length <= found.main.size
    )
