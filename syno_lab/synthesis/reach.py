"""How many steps are needed at least: the shape distance, made fast for search and sharper by what the space forbids.

It counts as :mod:`syno_lab.synthesis.distance` does, and knows besides which pieces a weight may take (``strict``
limits of occurrences), that windows have no primary variables, and how many EXPANDs are left. Coordinates that equal
an input axis are matched with it first: an exchange argument shows that no other grouping needs fewer steps. Sizes are
packed into one integer, eight bits an exponent, so that a product is one addition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from syno_lab.ir.size import Size
from syno_lab.ir.spec import Spec

NEVER = 1 << 20
Shape = tuple[int, ...]


def pack(size: Size) -> int:
    """The exponents in one integer: ``pack(a * b) == pack(a) + pack(b)``."""
    packed = 0
    for exponent in reversed(size.exponents):
        packed = (packed << 8) + exponent
    return packed


class Reach:
    """Lower bounds for one spec, each kept once it is known."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        fixed = {inp for inp, _ in spec.fixed_io_pairs}
        self.want = tuple(sorted(pack(size) for axis, size in enumerate(spec.input_shape) if axis not in fixed))
        self._partitions: dict[Shape, tuple[tuple[Shape, ...], ...]] = {}
        self._known: dict[tuple[Shape, int, int, int], int] = {}
        self._legal: dict[int, bool] = {}
        self._kinds: dict[int, int] = {}
        limits = spec.limits
        self._has_expand_limit = limits.max_expands is not None
        self._no_unfolds = limits.max_unfolds == 0

    def steps(self, shape: Shape, strided: int, contractions: int, expands: int) -> int:
        """At least so many steps from data of this (sorted) shape to the input; ``NEVER`` where there is no way.

        Args:
            shape: packed sizes of the data coordinates, those that take part in nothing left out, sorted.
            strided: how many of them are STRIDEs' results.
            contractions: CONTRACTIONs left.
            expands: EXPANDs left.
        """
        if shape == self.want:
            return 0 if not strided else 2
        key = (shape, strided, contractions > 0, expands)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._search(shape, strided, contractions > 0, expands)
        return known

    def _search(self, shape: Shape, strided: int, contractions: bool, expands: int) -> int:
        have = list(shape)
        want = []
        for size in self.want:
            if size in have:
                have.remove(size)
            else:
                want.append(size)
        self._best = NEVER
        self._flags = (strided, contractions, expands)
        for partition in self._all_partitions(tuple(want)):
            others = sum(len(group) - 1 for group in partition)
            self._assign(have, partition, [], others)
        return self._best

    def _assign(self, rest: list[int], want: Sequence[Shape], pieces: list[int], cost: int) -> None:
        """Give the first group of input axes some coordinates; ``cost`` counts the MERGEs and SPLITs so far."""
        if not want:
            self._close(rest, pieces, cost)
            return
        wanted = sum(want[0])
        tried: set[tuple[int, ...]] = set()
        for count in range(1, len(rest) + 1):
            if cost + count - 1 >= self._best:
                return
            for chosen in _subsets(len(rest), count):
                sizes = tuple(rest[i] for i in chosen)
                ratio = sum(sizes) - wanted
                if sizes in tried or (ratio and not self._is_legal(ratio)):
                    continue
                tried.add(sizes)
                left = [size for i, size in enumerate(rest) if i not in chosen]
                more = cost + count - 1 + (ratio != 0)
                if more < self._best:
                    self._assign(left, want[1:], [*pieces, ratio] if ratio else pieces, more)

    def _close(self, rest: list[int], pieces: list[int], cost: int) -> None:
        """Everything left is eliminated whole."""
        strided, contractions, expands = self._flags
        kinds = [self._kind(piece) for piece in (*rest, *pieces)]
        dropped = kinds.count(2)  # by EXPAND alone
        windows = kinds.count(1)  # by UNFOLD or EXPAND alone
        given = kinds.count(0)  # by any, a CONTRACTION may take all at once
        giving = kinds.count(3)  # by CONTRACTION or EXPAND, not as a window
        if dropped > expands:
            return
        if not contractions:
            if dropped + giving > expands:
                return
            steps = dropped + giving + windows + given
        else:
            steps = dropped + windows + (given + giving > 0)
        if self._no_unfolds and not contractions and steps > expands:
            return
        needed = -(-strided // 2)
        if needed > len(kinds):
            return
        self._best = min(self._best, cost + max(steps, needed))

    def _kind(self, piece: int) -> int:
        """Which primitives can eliminate a piece: 0 all, 1 not a weight, 2 EXPAND alone, 3 not a window."""
        kind = self._kinds.get(piece)
        if kind is None:
            exponents = self._unpack(piece)
            primaries = len(self.spec.symbols.primary)
            is_window = not any(exponents[:primaries])
            is_given = self.spec.weight_limits == "free" or all(
                limit is None or abs(power) <= limit
                for power, limit in zip(exponents, self.spec.occurrence_limits.values(), strict=True)
            )
            kind = (0 if is_given else 1) if is_window else (3 if is_given else 2)
            self._kinds[piece] = kind
        return kind

    def _is_legal(self, packed: int) -> bool:
        legal = self._legal.get(packed)
        if legal is None:
            size = Size(self.spec.symbols, self._unpack(packed))
            legal = self._legal[packed] = self.spec.is_legal(size)
        return legal

    def _unpack(self, packed: int) -> tuple[int, ...]:
        exponents = []
        for _ in self.spec.symbols.names:
            low = (packed + 128) % 256 - 128
            exponents.append(low)
            packed = (packed - low) >> 8
        return tuple(exponents)

    def _all_partitions(self, want: Shape) -> tuple[tuple[Shape, ...], ...]:
        found = self._partitions.get(want)
        if found is None:
            found = self._partitions[want] = tuple(sorted(_partitions(want), key=len, reverse=True))
        return found


_SUBSETS: dict[tuple[int, int], tuple[tuple[int, ...], ...]] = {}


def _subsets(number: int, count: int) -> tuple[tuple[int, ...], ...]:
    found = _SUBSETS.get((number, count))
    if found is None:
        from itertools import combinations

        found = _SUBSETS[number, count] = tuple(combinations(range(number), count))
    return found


def _partitions(items: Shape) -> Iterator[tuple[Shape, ...]]:
    if not items:
        yield ()
        return
    first, rest = items[0], items[1:]
    for partition in _partitions(rest):
        yield ((first,), *partition)
        for i, group in enumerate(partition):
            yield (*partition[:i], (first, *group), *partition[i + 1 :])
