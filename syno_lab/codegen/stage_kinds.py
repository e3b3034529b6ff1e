"""Recognise a product of data and a weight as a convolution, a matrix product, or neither.

A stage of the lowering plan multiplies and sums; which library call that is depends on the coordinates alone, never on
the operator's name. The data's axes are *affine*: each is indexed by a sum of coordinates with coefficients, as UNFOLD,
STRIDE and SPLIT make them (Syno, Table 1; section 8 on lowering). :func:`recognise` sorts the coordinates into batch,
group, contracted and free ones and into windows that slide over the data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal, NamedTuple

from syno_lab.ir.coordinate import Coordinate

MAX_OPEN_WINDOW = 16  # positions of a window that are written out one by one


class Term(NamedTuple):
    """``coefficient * coordinate``, the coordinate running over ``0 <= value < size``."""

    coefficient: int
    coordinate: Coordinate
    size: int


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor, of ``length`` elements, read at ``sum(terms) + offset`` and zero outside."""

    terms: tuple[Term, ...]
    offset: int
    length: int

    @classmethod
    def plain(cls, coordinate: Coordinate, size: int) -> Axis:
        """An axis that one coordinate indexes by itself."""
        return cls((Term(1, coordinate, size),), 0, size)

    @property
    def is_plain(self) -> bool:
        """Whether one coordinate indexes it by itself."""
        first = self.terms[0]
        return len(self.terms) == 1 and first.coefficient == 1 and self.offset == 0 and first.size == self.length

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """The coordinates in its expression."""
        return tuple(term.coordinate for term in self.terms)

    @property
    def left(self) -> int:
        """How many zeros are read before the first element (negative: elements that are not read)."""
        return -self.offset

    @property
    def right(self) -> int:
        """How many zeros are read after the last element (negative: elements that are not read)."""
        return self.offset + span(self.terms) - self.length

    @property
    def is_split(self) -> bool:
        """Whether its terms are the digits of its position, so that it is a mere reshape of several axes."""
        fused = fuse(self.terms)
        return self.offset == 0 and fused is not None and fused.step == 1 and fused.size == self.length

    def replace(self, coordinate: Coordinate, terms: Iterable[Term], offset: int = 0) -> Axis:
        """The axis once ``coordinate`` is the sum of ``terms`` plus ``offset``."""
        made: list[Term] = []
        shift = self.offset
        for term in self.terms:
            if term.coordinate != coordinate:
                made.append(term)
                continue
            made += [Term(term.coefficient * c, inner, size) for c, inner, size in terms]
            shift += term.coefficient * offset
        return Axis(tuple(made), shift, self.length)


class Fused(NamedTuple):
    """Several terms that count like one, ``step * position`` with ``position < size``; the slowest comes first."""

    step: int
    size: int
    terms: tuple[Term, ...]

    @property
    def axes(self) -> list[Axis]:
        """An axis of its own for each of them."""
        return [Axis.plain(term.coordinate, term.size) for term in self.terms]


def span(terms: Iterable[Term]) -> int:
    """How many positions lie between the first and the last that ``terms`` reach, both counted."""
    return 1 + sum(term.coefficient * (term.size - 1) for term in terms)


def fuse(terms: Iterable[Term]) -> Fused | None:
    """The terms as the digits of one position; None where they are not."""
    given = tuple(terms)
    digits = sorted((t for t in given if t.size > 1), key=lambda t: -t.coefficient)
    for high, low in pairwise(digits):
        if high.coefficient != low.coefficient * low.size:
            return None
    step = digits[-1].coefficient if digits else 1
    ones = tuple(t for t in given if t.size == 1)
    return Fused(step, prod(t.size for t in digits), (*ones, *digits))


@dataclass(frozen=True)
class Sliding:
    """An axis over which a window slides: ``stride * main + dilation * window - left``, zero outside.

    ``main`` goes to the result; ``window`` is summed, or *opened*: it stays as an axis of the result.
    """

    axis: Axis
    main: Fused
    window: Fused

    @property
    def stride(self) -> int:
        """Distance between neighbouring places of the window."""
        return self.main.step

    @property
    def dilation(self) -> int:
        """Distance between neighbouring elements within the window."""
        return self.window.step


@dataclass(frozen=True)
class Contraction:
    """Data times a weight, summed: every coordinate in its role.

    Attributes:
        batch: axes of the data alone that stay, whatever indexes them.
        group: coordinates of data, weight and result.
        contracted: coordinates of data and weight, summed.
        free: coordinates of the weight alone, which the result gets.
        sliding: axes over which a window of the weight slides and is summed.
        opened: axes over which a window of the weight slides and stays; the window's coordinates are among ``free``.
        obstacles: axes that fit none of these; taken apart into one axis for each coordinate they do.
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
        """Which call computes it: ``product`` is element by element, ``general`` has obstacles."""
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
    """The roles of all coordinates in ``sum over summable of data * weight``, from the data's axes.

    Each coordinate of ``weight`` is one axis of it. A summable coordinate of the data alone counts as batch, to be
    summed apart.
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
            found = _slides(axis, weight)
            if found is None:
                obstacles.append(axis)
            elif all(t.coordinate in summable for t in found.window.terms):
                sliding.append(found)
            elif _can_stay_open(found, summable):
                opened.append(found)
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
    """Whether multiplying before the window is opened costs no more than after, and every position reads something."""
    last = found.dilation * (found.window.size - 1)
    reads = found.axis.left - last > -found.axis.length and span(found.main.terms) > found.axis.left
    return (
        reads
        and len(found.window.terms) == 1
        and found.window.terms[0].coordinate not in summable
        and found.window.size <= MAX_OPEN_WINDOW
        and found.axis.length <= found.main.size
    )
