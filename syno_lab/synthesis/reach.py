"""A lower bound of further steps: the shape distance, faster for search and sharper by the limits of the space.

The bound follows :mod:`syno_lab.synthesis.distance` and uses more facts: the pieces that a weight may take (if limits
of occurrences bind weights), windows without primary variables, and the number of remaining EXPANDs. Flags show which
views the rules and the sweep exclude for a coordinate. A coordinate of the size of an input axis is matched with this
axis first. If the remaining coordinates cannot be eliminated alone, other groupings are tried too. Sizes are packed
into one integer, eight bits an exponent, so that a product is one addition.

Tests check that the bounds are never too high: search finds the same operators with the bounds and without them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import accumulate
from typing import TypeVar

from syno_lab.common.size import Size
from syno_lab.effort import Effort
from syno_lab.ir.spec import Spec

NEVER = 1 << 20
WAITING, MERGEABLE, EXPANDABLE, GIVABLE, STRIDED = 1, 2, 4, 8, 16  # flags of a coordinate
FLAGS = 31
#: The limit of distinct demands of wishes (:mod:`syno_lab.synthesis.wishes`): bits between flags and packed size.
MOST_DEMANDS = 8
DEMANDS = ((1 << MOST_DEMANDS) - 1) << 5
FLAG_BITS = 5 + MOST_DEMANDS
_MOST_GROUPINGS = 1 << 16  # the limit of groupings for one bound; above it a rougher bound is used
_MERGES = MERGEABLE | WAITING
_PIECE = GIVABLE | EXPANDABLE | WAITING  # flags of a piece (a group's surplus), which any primitive may eliminate

# The ways to eliminate an unmatched coordinate; the first possible way is used.
_TAKEN = 0  # One CONTRACTION takes the coordinate, with any number of others.
_TWICE = 1  # One weight shares and the next takes the coordinate, or it is the given main coordinate of a window.
_TWICE_OR_UNFOLDED = 2  # Either _TWICE, or the coordinate is the window of an UNFOLD.
_UNFOLDED = 3  # The coordinate is the window of an UNFOLD.
_HELPED = 4  # The coordinate is given as the main coordinate of another coordinate's window.
_DROPPED = 5  # An EXPAND drops the coordinate.
_MERGED = 6  # A MERGE splits the coordinate, and each digit is eliminated.
_JOINED = 7  # Like _MERGED, but the coordinate does not wait, so another coordinate begins the MERGE's view.
_WAYS = 8
Shape = tuple[int, ...]
_Item = TypeVar("_Item")


def pack(size: Size) -> int:
    """Pack the exponents into one integer; the packed product is the sum of packed sizes."""
    packed = 0
    for exponent in reversed(size.exponents):
        packed = (packed << 8) + exponent
    return packed


def unpacked(packed: int, number: int) -> tuple[int, ...]:
    """Unpack the exponents of ``number`` variables from the result of :func:`pack`."""
    exponents = []
    for _ in range(number):
        low = (packed + 128) % 256 - 128
        exponents.append(low)
        packed = (packed - low) >> 8
    return tuple(exponents)


class Reach:
    """Lower bounds of the further steps for one spec, with a cache."""

    def __init__(self, spec: Spec, effort: Effort | None = None) -> None:
        self.spec = spec
        self.effort = effort or Effort()
        self.want = tuple(sorted(pack(spec.input_shape[axis]) for axis in spec.matched))
        self._known: dict[tuple[Shape, int, int, Shape, int], int] = {}
        self.ratios: dict[int, bool] = {0: True}  # by packed size, whether a group may have this surplus
        #: Whether a coordinate may have this packed size.
        self.is_legal = cache(lambda packed: spec.is_legal(Size(spec.symbols, self.unpacked(packed))))
        self._value, self._kind = cache(self._value_of), cache(self._kind_of)
        self._ways_at: dict[tuple[int, Shape], dict[int, tuple[int, bool, int]]] = {}
        limits = spec.limits
        self._no_unfolds = limits.max_unfolds == 0

    def steps(self, items: Shape, limit: int, contractions: int, expands: int, spent: Shape = (), must: int = 0) -> int:
        """Return a lower bound of the steps from these data to the input; above ``limit`` it is inexact.

        Args:
            items: the sorted data coordinates that are not fixed, without demands. A coordinate has a packed size, and
                flags in the lowest bits. ``WAITING``: a view may still begin with the coordinate. ``MERGEABLE``,
                ``EXPANDABLE``: rules allow this step. ``GIVABLE``: one CONTRACTION may take the coordinate (an unshared
                reduction would be in only one weight). ``STRIDED``: the coordinate is STRIDEd.
            limit: larger bounds are not computed exactly, which saves most of the work.
            contractions: the remaining CONTRACTIONs.
            expands: the remaining EXPANDs.
            spent: the occurrences of each primary variable so far, if they bind weights; else empty.
            must: the number of CONTRACTIONs that must come, unless the input is already reached.
        """
        key = (items, contractions, expands, spent, must)
        known = self._known.get(key)
        # A value of 0 or more is the bound itself; for a negative value, the bound is at least the absolute value.
        if known is not None:
            if known >= 0:
                return known
            if -known > limit:
                return -known
        bound = self._search(items, limit, contractions, expands, spent, must)
        self._known[key] = bound if bound <= limit else -(limit + 1)
        return bound

    def _search(self, items: Shape, limit: int, contractions: int, expands: int, spent: Shape, must: int) -> int:
        have = list(items)
        want = []
        for size in self.want:
            low = bisect_left(have, size << FLAG_BITS)
            if low < len(have) and have[low] >> FLAG_BITS == size and not have[low] & STRIDED:
                if low + 1 < len(have) and have[low + 1] >> FLAG_BITS == size:
                    # Any of several equal coordinates may be matched; the unmatched get all flags.
                    have[low + 1] |= have[low] & ~STRIDED
                del have[low]
            else:
                want.append(size)
        if not have and not want:
            return 0
        if limit <= 0 or (limit == 1 and want and (len(have) + len(want) != 3 or must)):
            return limit + 1  # one step joins two coordinates, splits one, or eliminates some
        if not contractions and not any(item & WAITING for item in items):
            return NEVER  # no coordinate can begin a view
        if partitions(len(want)) << len(have) > _MOST_GROUPINGS:
            return self._roughly(have, want, items, must)
        self._best = limit + 1
        self._flags = (contractions, expands, spent, must)
        self._ways = self._ways_at.setdefault((min(contractions, 2), spent), {})
        sizes = [item >> FLAG_BITS for item in items if not item & STRIDED]
        self._largest = max([self._value(size) for size in (*sizes, *want)], default=0)
        self._is_stuck = False
        self._group(have, tuple(want))
        if self._is_stuck and self._best > 2 <= limit and len(want) < len(self.want):
            # The remaining coordinates cannot be eliminated alone. If other coordinates are eliminated instead, this
            # takes at least a reshape and an elimination.
            if partitions(len(self.want)) << len(items) > _MOST_GROUPINGS:
                return 2
            self._group(list(items), self.want)
        return self._best

    def _roughly(self, have: list[int], want: list[int], items: Shape, must: int) -> int:
        """Return a lower bound if there are too many groupings to try."""
        lacking = self.unpacked(sum(self.want) - sum([item >> FLAG_BITS for item in items]))
        if any(power > 0 for power in lacking[: len(self.spec.symbols.primary)]):
            return NEVER  # only REDUCEs add primary variables
        return max(least_steps(len(have), len(want)), must)

    def _group(self, items: list[int], want: Shape) -> None:
        """Try all ways to make the input axes ``want`` from some coordinates and to eliminate the others."""
        if not want:
            self._close(items, (), 0)
            return
        sums = [0]
        for item in items:
            size = item >> FLAG_BITS
            sums += [size + other for other in sums]
        self._items, self._sums = items, sums
        contractions, _, spent, _ = self._flags
        # A view begins with a coordinate that waits, or that waits again after a weight shares it.
        self._openers = sum(
            [
                1 << i
                for i, item in enumerate(items)
                if item & WAITING or (contractions and self._kind(item >> FLAG_BITS, spent, 1)[0])
            ]
        )
        self._strided = sum([1 << i for i, item in enumerate(items) if item & STRIDED])
        # The first of equal coordinates is assigned first.
        self._twins = [3 << i for i in range(len(items) - 1) if items[i] == items[i + 1]]
        free = (1 << len(items)) - 1 ^ self._strided
        for partition in finest_first(want):
            groups = [(sum(group), len(group)) for group in partition]
            self._assign(free, groups, 0, (), sum([number - 1 for _, number in groups]))

    def _assign(
        self, free: int, groups: list[tuple[int, int]], at: int, pieces: Shape, cost: int, late: int = 0
    ) -> None:
        """Assign some of the ``free`` coordinates to a group of axes; ``cost`` counts the MERGEs and SPLITs so far.

        ``late`` is the number of extra views needed if no coordinate is eliminated as a window.
        """
        self.effort.tick("looking for the distance to the input")
        wanted, number = groups[at]
        items, sums, is_legal = self._items, self._sums, self.ratios
        is_last = at + 1 == len(groups)
        most = self._best - cost  # the limit of coordinates in the group
        try:
            chosen = [mask for mask in masks(len(items), most) if not mask & ~free and is_legal[sums[mask] - wanted]]
        except KeyError:
            for mask in masks(len(items), most):
                self.is_ratio(sums[mask] - wanted)
            self._assign(free, groups, at, pieces, cost, late)
            return
        for mask in chosen:
            ratio = sums[mask] - wanted
            count = mask.bit_count()
            more = cost + count - 1 + (ratio != 0)
            delay = late
            if count == 1 and (ratio or number > 1):
                item = items[mask.bit_length() - 1]
                if item & _MERGES != _MERGES:
                    delay = 1 if item & WAITING else 2  # 1: another view first; 2: another coordinate begins the view
            elif count > 1 and not mask & self._openers:
                delay += 1
            rest = free & ~mask
            # Each unmatched coordinate takes a step to be eliminated.
            is_over = pieces or ratio or self._strided or (is_last and rest)
            if more + (1 if is_over else 0) >= self._best:
                continue
            if self._twins and any(mask & pair == pair & ~(pair >> 1) and free & pair == pair for pair in self._twins):
                continue
            all_pieces = (*pieces, ratio << FLAG_BITS | _PIECE) if ratio else pieces
            if is_last:
                rest |= self._strided
                self._close([item for i, item in enumerate(items) if rest >> i & 1], all_pieces, more, delay)
            else:
                self._assign(rest, groups, at + 1, all_pieces, more, delay)

    def _close(self, rest: Iterable[int], pieces: Shape, cost: int, late: int = 0) -> None:
        """Eliminate the coordinates ``rest`` and the ``pieces`` of others by the fewest 1-to-many primitives.

        ``cost`` counts the MERGEs and SPLITs so far; ``late`` counts extra views if no window is eliminated.
        """
        contractions, expands, _, must = self._flags
        number, has_window, widest = self._count(rest)
        taken, twice, twice_or_unfolded, unfolded, helped, dropped, merged, joined = number
        pieces_unfolded = 0
        contracted = 1 if taken else 0
        is_piece_taken = False
        if pieces:
            counts, is_window, _ = self._count(pieces)
            has_window = has_window or is_window
            is_piece_taken = counts[_TAKEN] > 0
            pieces_unfolded = counts[_UNFOLDED]
            dropped += counts[_DROPPED]
        if not has_window:
            cost += late
        if merged or joined:
            self._is_stuck = True
            cost += merged + joined
            dropped += merged + joined  # one digit of each coordinate; the other digit is eliminated too
        is_bare = twice or twice_or_unfolded
        if 0 < self._largest <= widest:
            cost += 2  # a SPLIT to a size above the window's, and a MERGE
        if joined and not is_bare and not has_window:
            cost += 1
        if helped:
            self._is_stuck = True
            if not (unfolded or pieces_unfolded):  # a window is needed: a possible window, or one more coordinate
                if twice_or_unfolded:
                    unfolded = 1
                else:
                    cost += 1
        if twice_or_unfolded == 1 and not (twice or unfolded or contracted):
            unfolded = 1
        elif is_bare and not (unfolded or joined):
            contracted = 2
        elif is_bare or helped:
            contracted = 1
        if merged and not (contracted or joined):
            if contractions:
                contracted = 1
            else:
                unfolded += 1
        if is_piece_taken and not contracted:
            contracted = 1
        if dropped <= expands:
            # A coordinate that a weight may take can also be eliminated alone.
            self._best = min(self._best, cost + dropped + unfolded + pieces_unfolded + max(contracted, must))

    def _count(self, items: Iterable[int]) -> tuple[list[int], bool, int]:
        """Count the coordinates by way of elimination; return also whether any may be a window, and the widest size."""
        ways = self._ways
        number = [0] * _WAYS
        has_window, widest = False, 0
        for item in items:
            way, is_window, width = ways.get(item) or self._way(item)
            number[way] += 1
            if is_window:
                has_window = True
                if width > widest:
                    widest = width
        return number, has_window, widest

    def _way(self, item: int) -> tuple[int, bool, int]:
        """Return how a coordinate is eliminated, whether it may be a window, and its size if it needs an UNFOLD."""
        contractions, _, spent, _ = self._flags
        size = item >> FLAG_BITS
        is_given, is_window = self._kind(size, spent, 1)
        is_given = is_given and contractions > 0
        width = 0
        if item & STRIDED:
            way, is_window, width = _UNFOLDED, True, self._value(size)
        elif is_given and item & GIVABLE:
            way = _TAKEN
        elif is_given and contractions > 1 and self._kind(size, spent, 2)[0]:
            way = _TWICE_OR_UNFOLDED if is_window else _TWICE
        elif is_window and not self._no_unfolds:
            way = _UNFOLDED
            width = 0 if is_given or item & EXPANDABLE else self._value(size)
        elif is_given:
            way = _HELPED
        elif item & EXPANDABLE and item & WAITING:
            way = _DROPPED
        else:
            way = _MERGED if item & WAITING else _JOINED
        self._ways[item] = way, is_window, width
        return self._ways[item]

    def _kind_of(self, piece: int, spent: Shape, times: int) -> tuple[bool, bool]:
        """Return whether ``times`` weights may have a piece of this size, and whether the piece may be a window."""
        exponents = self.unpacked(piece)
        is_given = not spent or all(
            limit is None or already + times * abs(power) <= limit
            for power, limit, already in zip(exponents, self.spec.occurrence_limits.values(), spent, strict=False)
        )
        return is_given, not any(exponents[: len(self.spec.symbols.primary)])

    def forget(self) -> None:
        """Drop all cached bounds to limit memory."""
        self._known.clear()

    def __len__(self) -> int:
        return len(self._known)

    def _value_of(self, packed: int) -> int:
        """Return the value of a size under the first binding; without a binding 0, which is below every window."""
        size, maps = Size(self.spec.symbols, self.unpacked(packed)), self.spec.binding_maps
        return size.at(maps[0]) if maps and size.is_integral(maps[0]) else 0

    def is_ratio(self, packed: int) -> bool:
        """Return whether a group may have this surplus: nothing, or a legal size of a coordinate."""
        return self.ratios.setdefault(packed, self.is_legal(packed))

    def unpacked(self, packed: int) -> tuple[int, ...]:
        """Return the exponents of a packed size."""
        return unpacked(packed, len(self.spec.symbols.names))


def least_steps(have: int, want: int) -> int:
    """Return a lower bound of the steps from ``have`` coordinates to ``want`` axes if no coordinate has an axis's size.

    A step makes at most two coordinates of new sizes, and increases the number of coordinates by at most one.
    """
    return max((want + 1) // 2, want - have, int(have > 0))


@lru_cache(maxsize=256)
def partitions(number: int) -> int:
    """Return the number of ways to partition ``number`` axes into groups (Bell's number)."""
    row = [1]
    for _ in range(number):
        row = list(accumulate(row, initial=row[-1]))
    return row[0]


@lru_cache(maxsize=256)
def masks(number: int, most: int) -> tuple[int, ...]:
    """Return the non-empty subsets of ``number`` items with at most ``most`` items, the smallest first."""
    subsets = [mask for mask in range(1, 1 << number) if mask.bit_count() <= most]
    return tuple(sorted(subsets, key=int.bit_count))


def all_partitions(items: tuple[_Item, ...]) -> Iterator[tuple[tuple[_Item, ...], ...]]:
    """Yield all partitions of the items into groups."""
    if not items:
        yield ()
        return
    first, rest = items[0], items[1:]
    for partition in all_partitions(rest):
        yield ((first,), *partition)
        for i, group in enumerate(partition):
            yield (*partition[:i], (first, *group), *partition[i + 1 :])


@lru_cache(maxsize=256)
def finest_first(items: tuple[_Item, ...]) -> tuple[tuple[tuple[_Item, ...], ...], ...]:
    """Return all partitions of the items into groups, the partitions with the most groups first."""
    return tuple(sorted(all_partitions(items), key=len, reverse=True))
