"""The demands of wishes on coordinates, and a lower bound of the steps to the input with all wishes met.

An input axis is made of some data coordinates, its *reshape group* (appendix A of the paper), and of windows that
UNFOLDs slide over them. What the axis reads and mixes (:mod:`syno_lab.common.wants`) depends only on the iterators in
its expression, and views pass iterators on:

* An output element reads more than one position of an axis only if the axis's expression has a REDUCE.
* All positions of an axis with a primary variable are read only if the expression has a REDUCE with a primary variable.
* An axis is paired with an output axis only if the expression has the output axis's iterator, or if REDUCEs alone cover
  the axis.

Each of these conditions is a *demand*, and each demand is a bit of a coordinate: whether the coordinate meets it. A
group without a bit that one of its axes demands needs an UNFOLD whose window has the bit. The window is a coordinate
that is eliminated anyway. REDUCEs come first, so a bit that is missing after all REDUCEs stays missing.

The conditions are necessary, not sufficient, so the numbers are lower bounds. Tests compare the bounds with all
operators of small spaces.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache, reduce
from operator import or_
from typing import NamedTuple

from syno_lab.common.wants import Wish
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.spec import Spec
from syno_lab.synthesis.reach import (
    FLAG_BITS,
    FLAGS,
    MOST_DEMANDS,
    NEVER,
    STRIDED,
    Reach,
    Shape,
    masks,
    pack,
    partitions,
)

_SUMMED, _LARGE = "a REDUCE", "a REDUCE with a primary variable"
_Demand = frozenset[str | int]  # The iterators that meet a demand; a number is an output axis.
_SMALL = 1 << 64  # The mark of a size without primary variables, above the bits of axes.
_MOST_GROUPINGS = 1 << 16  # The limit of groupings for one bound; above it, there is no bound.


class _Option(NamedTuple):
    """Coordinates that become a group's axes: steps, mask, whether a surplus or a window, missing REDUCEs."""

    steps: int
    mask: int
    has_piece: bool
    is_window: bool
    missing: int


class Plan(NamedTuple):
    """A plan of the fewest steps to the input with all wishes met.

    Attributes:
        groups: for each reshape group the indices of its coordinates and of its input axes.
        alone: the indices of coordinates that are eliminated whole.
        windows: the number of UNFOLDs that bring wished bits to a group.
        missing: the number of further REDUCEs among the steps, at most ``spare``.
    """

    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    alone: tuple[int, ...]
    windows: int
    missing: int


class Wishes:
    """The demands of one spec's wishes, and lower bounds with a cache.

    Attributes:
        needs: the demands on each input axis, as bits; fixed axes have none.
        impossible: the wishes that no operator meets, because a fixed axis cannot meet them.
    """

    def __init__(self, reach: Reach) -> None:
        self.spec = spec = reach.spec
        self.effort = reach.effort
        self._reach = reach  # to check sizes
        demands: dict[_Demand, int] = {}
        needs = [0] * len(spec.input_shape)
        pinned = dict(spec.fixed_io_pairs)
        impossible = []
        for wish in spec.wants:
            conditions = _demands(spec, wish)
            if wish.axis in pinned:
                if not all(pinned[wish.axis] in demand for demand in conditions):
                    impossible.append(wish)
                continue
            for demand in conditions:
                if demand in demands or len(demands) < MOST_DEMANDS:  # without the demand, the bound is weaker
                    needs[wish.axis] |= demands.setdefault(demand, 1 << 5 + len(demands))
        self.needs = tuple(needs)
        self.impossible = tuple(impossible)
        self._demands = tuple(demands.items())
        self._axes = spec.matched
        self._want = [(pack(spec.input_shape[axis]), needs[axis]) for axis in self._axes]
        self._every = reduce(or_, needs, 0)
        self._known: dict[tuple[Shape, bool, int, int, int], tuple[int, int]] = {}
        self._total = sum(size for size, _ in self._want)
        #: Whether a size has no primary variable, as a window needs; whether data of this product have more primary
        #: variables than the input.
        self._is_small = cache(lambda packed: not any(self._primaries(packed)))
        self._has_surplus = cache(lambda total: any(power > 0 for power in self._primaries(total - self._total)))
        self._mark, self._demanded = cache(self._mark_of), cache(self._demanded_of)
        # Axes with a primary variable that no other axis has: the index of the variable, and the demands.
        self._telling = []
        for size, need in self._want:
            powers = self._primaries(size)
            rest = [self._primaries(other) for other, _ in self._want if other != size]
            alike = sum([1 for other, _ in self._want if other == size])
            own = [at for at, power in enumerate(powers) if power and alike == 1 and not any(o[at] for o in rest)]
            if need and own:
                self._telling.append((own[0], need))

    def has(self, coordinate: Coordinate) -> int:
        """Return the demands that a coordinate meets, as bits."""
        facts: set[str | int] = set()
        for leaf in coordinate.leaves():
            if leaf.is_output:
                facts.add(leaf.node.tag)
            else:
                facts.add(_SUMMED)
                if leaf.size.has_primary:
                    facts.add(_LARGE)
        bits = 0
        for demand, bit in self._demands:
            if demand & facts:
                bits |= bit
        return bits

    def unmet(self, axis: int, has: int) -> int:
        """Return the demands on an input axis that a coordinate with these bits does not meet."""
        return self.needs[axis] & ~has

    def is_served(self, main: int, window: int) -> bool:
        """Return whether a window has a bit that the main coordinate lacks and one of its possible axes demands."""
        return self._demanded(main >> FLAG_BITS) & window & ~main != 0

    def _demanded_of(self, size: int) -> int:
        """Return the demands of all axes that a main coordinate of this size may be a part of."""
        demanded, powers = 0, self._primaries(size)
        for wanted, need in self._want:
            theirs = self._primaries(wanted)
            if not any(theirs) or any(map(min, powers, theirs)):
                demanded |= need
        return demanded

    def few(self, items: Iterable[int]) -> int:
        """Return a lower bound without a search: at most :meth:`steps`, mostly equal if each axis has its own primary.

        Take each axis whose coordinates (with the axis's own primary variable) lack a demanded bit; axes that share a
        coordinate form a cluster. A reshape group with k axes has at least k coordinates. The group needs 2k - 2 MERGEs
        and SPLITs and one UNFOLD, or one more coordinate with the bit. In both cases a group costs at least k steps,
        and one more for each cluster without its own small coordinate with the bit. A surplus of primary variables in
        the data costs one more elimination, because no window has primary variables.
        """
        if self.impossible:
            return NEVER
        if not self._every:
            return 0
        hits = total = 0
        for item in items:
            hits |= item
            total += item >> FLAG_BITS
        if self._every & ~hits:
            return NEVER
        clusters, short = self._lacking(items)
        return clusters + short + self._has_surplus(total)

    def short(self, items: Iterable[int]) -> int:
        """Count the demanded windows for which no coordinate exists yet."""
        return self._lacking(items)[1]

    def joins(self, one: int, other: int) -> bool:
        """Return whether both coordinates have primary variables, so that a SPLIT of them mixes parts of two axes."""
        return not (self._is_small(one >> FLAG_BITS) or self._is_small(other >> FLAG_BITS))

    def _lacking(self, items: Iterable[int]) -> tuple[int, int]:
        """Count the clusters of axes that lack a demanded bit (they share coordinates), and the missing windows."""
        of_axis = [0] * len(self._telling)
        seen = []
        for item in items:
            mark = self._mark(item >> FLAG_BITS)
            if mark:
                seen.append((mark, item))
                for at in range(len(of_axis)):
                    if mark >> at & 1:
                        of_axis[at] |= item
        lacking = bits = 0
        for at, (_, need) in enumerate(self._telling):
            unmet = need & ~of_axis[at]
            if unmet:
                lacking |= 1 << at
                bits |= unmet
        if not lacking:
            return 0, 0
        small = sum([1 for mark, item in seen if mark == _SMALL and item & bits])
        clusters: list[int] = []
        for mark, _ in seen:
            cluster = mark & lacking if mark != _SMALL else 0
            if cluster:
                for other in [other for other in clusters if other & cluster]:
                    clusters.remove(other)
                    cluster |= other
                clusters.append(cluster)
        return len(clusters), max(0, len(clusters) - small)

    def _mark_of(self, size: int) -> int:
        """Return the axes that a coordinate's size belongs to, as bits; :data:`_SMALL` without a primary, or 0."""
        primaries = self._primaries(size)
        if not any(primaries):
            return _SMALL
        return sum([1 << at for at, (position, _) in enumerate(self._telling) if primaries[position]])

    def _primaries(self, packed: int) -> tuple[int, ...]:
        return self._reach.unpacked(packed)[: len(self.spec.symbols.primary)]

    def steps(
        self,
        items: Shape,
        limit: int,
        contractions: int,
        unfolds: int,
        expands: int,
        *,
        least: int = 0,
        spare: int = 0,
    ) -> int:
        """Return a lower bound of the steps to the input with all wishes met; above ``limit`` it is inexact.

        Args:
            items: the sorted data coordinates that are not fixed: packed size, met demands, ``STRIDED``; other flags
                are ignored.
            limit: larger bounds are not computed exactly.
            contractions: the remaining CONTRACTIONs.
            unfolds: the remaining UNFOLDs.
            expands: the remaining EXPANDs.
            least: a known lower bound; the result is at least this number.
            spare: the number of REDUCEs that may still come.
        """
        if self.impossible:
            return NEVER
        if not self._every:
            return least
        plain = tuple([item & ~FLAGS | item & STRIDED for item in items])
        key = (plain, contractions > 0, unfolds, expands, spare)
        low, high = self._known.get(key, (0, NEVER))
        if high <= least:
            return least
        if low == high or low > limit:
            return max(low, least)
        bound = self._search(plain, limit, max(least, low), contractions, unfolds, expands, spare)
        if limit < bound < NEVER:
            low = bound
        elif bound > least:
            low = high = bound
        else:
            high = bound
        self._known[key] = (low, high)
        return max(bound, least)

    def plan(self, items: Shape, contractions: int, unfolds: int, expands: int, spare: int = 0) -> tuple[int, Plan]:
        """Return the exact bound, and a plan with that number of steps; see :meth:`steps`.

        Without a way, or with too many groupings to try, the plan is empty.
        """
        if self.impossible:
            return NEVER, _NO_PLAN
        bound = self._search(items, NEVER - 1, 0, contractions, unfolds, expands, spare)
        return bound, self._plan or _NO_PLAN

    def forget(self) -> None:
        """Drop all cached bounds to limit memory."""
        self._known.clear()

    def _search(
        self, items: Shape, limit: int, enough: int, contractions: int, unfolds: int, expands: int, spare: int
    ) -> int:
        self._plan: Plan | None = None
        if self._every & ~reduce(or_, items, 0) and not spare:
            return NEVER
        number = len(items)
        if partitions(len(self._want)) << number > _MOST_GROUPINGS:
            return 0
        sums, gives = [0], [0]
        for item in items:
            size = item >> FLAG_BITS
            sums += [size + other for other in sums]
            gives += [item | other for other in gives]
        self._items, self._sums, self._gives, self._spare = items, sums, gives, spare
        self._strided = sum([1 for item in items if item & STRIDED])
        self._left = (contractions, unfolds, min(NEVER, unfolds + expands))
        # The first of equal coordinates is assigned first.
        self._twins = [3 << i for i in range(number - 1) if items[i] == items[i + 1]]
        self._best, self._enough = limit + 1, enough
        options: dict[int, list[_Option]] = {}
        for partition in _partitions(len(self._want)):
            cost = len(self._want) - len(partition)
            if cost + len(partition) - 1 > limit + number:
                continue
            groups = []
            for group in partition:
                size = need = 0
                for at in group:
                    size += self._want[at][0]
                    need |= self._want[at][1]
                if size not in options:
                    options[size] = self._options(size, number)
                groups.append((options[size], need))
            self._partition, self._groups = partition, groups
            self._assign((1 << number) - 1, (), cost, 0, 0, 0)
            if self._best <= enough:
                break
        return self._best if self._best <= limit else NEVER if limit >= NEVER - 1 else limit + 1

    def _options(self, wanted: int, number: int) -> list[_Option]:
        """Return the coordinates that may become axes of this size, the fewest steps first."""
        sums, is_ratio = self._sums, self._reach.ratios
        fewest = masks(number, min(number, self._best))
        try:
            fitting = [mask for mask in fewest if is_ratio[sums[mask] - wanted]]
        except KeyError:
            fitting = [mask for mask in fewest if self._reach.is_ratio(sums[mask] - wanted)]
        options = []
        for mask in fitting:
            has_piece = sums[mask] != wanted
            is_window = has_piece and self._is_small(sums[mask] - wanted)
            options.append(_Option(mask.bit_count() - 1 + has_piece, mask, has_piece, is_window, 0))
        # With a further REDUCE of any fitting size: count the REDUCE and the SPLIT that joins it.
        for mask in fewest if self._spare else ():
            is_over = self._is_over(sums[mask] - wanted)
            if is_over is not None:
                options.append(_Option(mask.bit_count() + 1 + is_over, mask, is_over, False, 1))
        return sorted(options)

    def _assign(
        self, free: int, chosen: tuple[_Option, ...], cost: int, windows: int, lacking: int, missing: int
    ) -> None:
        """Assign some ``free`` coordinates to the next group; ``cost`` counts MERGEs, SPLITs and REDUCEs so far."""
        self.effort.tick("looking for the distance to what is wished")
        gives, twins, groups = self._gives, self._twins, self._groups
        options, need = groups[len(chosen)]
        go_on = self._close if len(chosen) + 1 == len(groups) else self._assign
        for option in options:
            steps, mask, _, _, more = option
            if cost + steps + windows >= self._best or self._best <= self._enough:
                return
            if mask & ~free or missing + more > self._spare:
                continue
            if twins and any(mask & pair == pair & ~(pair >> 1) and free & pair == pair for pair in twins):
                continue
            unmet = 0 if more else need & ~gives[mask]
            count = windows + (unmet != 0)
            if cost + steps + count >= self._best:
                continue
            go_on(free & ~mask, (*chosen, option), cost + steps, count, lacking | unmet, missing + more)

    def _close(
        self, rest: int, chosen: tuple[_Option, ...], cost: int, windows: int, lacking: int, missing: int
    ) -> None:
        """Eliminate the rest: demanded windows by UNFOLDs, all other coordinates as cheaply as possible."""
        contractions, unfolds, one_each = self._left
        if windows > unfolds:
            return
        pieces = rest.bit_count() + sum([option.has_piece for option in chosen])
        short = 0
        if windows:
            fitting = 0  # The number of pieces that may be a demanded window.
            bits = self._gives[rest]  # The bits of all pieces.
            for at, item in enumerate(self._items):
                fitting += rest >> at & 1 and item & lacking != 0 and self._is_small(item >> FLAG_BITS)
            for option, (_, need) in zip(chosen, self._groups, strict=True):
                if option.has_piece:
                    has = self._gives[option.mask]
                    bits |= has
                    # A group that a window serves passes the window's bits on.
                    fitting += option.is_window and (has & lacking != 0 or need & ~has != 0)
            short = max(0, windows - fitting)
            if lacking & ~bits:
                # A missing bit needs further REDUCEs. If all bits exist, each MERGE makes one more window.
                missing += max(short, 1)
                if missing > self._spare:
                    return
        needed = max(windows, -(-self._strided // 2))
        pieces += short
        if needed > min(one_each, pieces):
            return
        remaining = pieces - needed
        if remaining and not contractions and not one_each:
            return  # with an UNFOLD or EXPAND left, SPLITs join the remaining pieces with a window
        total = cost + short + needed + (min(remaining, 1) if contractions else remaining)
        if total < self._best:
            self._best = total
            self._plan = Plan(
                tuple(
                    (_places(option.mask), tuple([self._axes[at] for at in axes]))
                    for option, axes in zip(chosen, self._partition, strict=True)
                ),
                _places(rest),
                windows,
                missing,
            )

    def _is_over(self, ratio: int) -> bool | None:
        """Return whether a surplus must be eliminated, up to a factor of coefficients; None if it is impossible."""
        exponents = self._primaries(ratio)
        return any(exponents) if min(exponents, default=0) >= 0 else None


_NO_PLAN = Plan((), (), 0, 0)


def _demands(spec: Spec, wish: Wish) -> list[_Demand]:
    """Return the conditions of a wish on the iterators in an input axis's expression."""
    size = spec.input_shape[wish.axis]
    if not size.has_primary and size.at({name: spec.defaults.get(name, 1) for name in spec.symbols.names}) == 1:
        return []  # the axis has only one position
    covering = _LARGE if size.has_primary else _SUMMED
    if wish.least == "a":
        return [frozenset({covering})]
    demands: list[_Demand] = [frozenset({_SUMMED})] if wish.least == "m" else []
    return demands if wish.output is None else [*demands, frozenset({covering, wish.output})]


def _places(mask: int) -> tuple[int, ...]:
    return tuple(place for place in range(mask.bit_length()) if mask >> place & 1)


@lru_cache(maxsize=16)
def _partitions(number: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return all partitions of ``number`` axes into groups, the finest first."""
    result: list[tuple[tuple[int, ...], ...]] = [()]
    for at in range(number):
        result = [
            grown
            for parts in result
            for grown in [
                (*parts, (at,)),
                *((*parts[:i], (*part, at), *parts[i + 1 :]) for i, part in enumerate(parts)),
            ]
        ]
    return tuple(sorted(result, key=len, reverse=True))


@lru_cache(maxsize=64)
def wishes_of(spec: Spec) -> Wishes | None:
    """Return the wishes of a spec; None without wishes."""
    return Wishes(Reach(spec)) if spec.wants else None
