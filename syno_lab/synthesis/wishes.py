"""What wishes ask of coordinates, and how many steps it takes at least until the input is there with all of them met.

An input axis is what becomes of some data coordinates, its *reshape group* (appendix A of the paper), and of the
windows that UNFOLDs slide over these. What it reads and mixes (:mod:`syno_lab.common.wants`) depends on iterators of
its expression alone, and views only hand these on:

* an output element reads more than one position of an axis only if a REDUCE is in its expression;
* it reads all positions of an axis with a primary variable only if a REDUCE with a primary variable is;
* an axis is paired with an output axis only if that axis's iterator is in its expression, or else REDUCEs alone cover
  it, as in the line before.

Each of these conditions is a *demand*, and each demand is one bit of a coordinate: whether it has what is asked. So a
group without a bit that one of its axes demands needs an UNFOLD whose window has it, and that window is one of the
coordinates that are eliminated in any case. REDUCEs come first: what is not there after them never comes.

The conditions are necessary, not sufficient, so the numbers are lower bounds; tests hold them against all operators of
small spaces.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
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
_Demand = frozenset[str | int]  # what a leaf may be that meets it; a number is an output axis
_SMALL = 1 << 64  # above the bits of axes
_MOST_GROUPINGS = 1 << 16  # that are tried for one bound; above it there is none


class _Option(NamedTuple):
    """Items that become a group's axes: steps, which, whether a piece is left, whether it may be a window, REDUCEs."""

    steps: int
    mask: int
    has_piece: bool
    is_window: bool
    missing: int


class Plan(NamedTuple):
    """One way to the input with all wishes met, of those with the fewest steps.

    Attributes:
        groups: of each reshape group its items and its input axes, both by their places.
        alone: the items that are eliminated whole.
        windows: UNFOLDs that bring to a group what is wished of it.
        missing: REDUCEs among the steps that are not there yet; only where ``spare`` ones may come.
    """

    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    alone: tuple[int, ...]
    windows: int
    missing: int


class Wishes:
    """The demands of one spec's wishes, and lower bounds, each kept once it is known.

    Attributes:
        needs: the demands on each input axis, as bits; axes that are fixed have none.
        impossible: wishes that no operator meets, because they ask of a fixed axis what it cannot have.
    """

    def __init__(self, reach: Reach) -> None:
        self.spec = spec = reach.spec
        self.effort = reach.effort
        self._reach = reach  # it knows sizes
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
                if demand in demands or len(demands) < MOST_DEMANDS:  # to leave one out keeps the bound a bound
                    needs[wish.axis] |= demands.setdefault(demand, 1 << 5 + len(demands))
        self.needs = tuple(needs)
        self.impossible = tuple(impossible)
        self._demands = tuple(demands.items())
        self._axes = spec.matched
        self._want = [(pack(spec.input_shape[axis]), needs[axis]) for axis in self._axes]
        self._every = 0
        for need in needs:
            self._every |= need
        self._known: dict[tuple[Shape, bool, int, int, int], tuple[int, int]] = {}
        self._small: dict[int, bool] = {}
        self._total = sum(size for size, _ in self._want)
        self._surplus: dict[int, bool] = {}
        self._marks: dict[int, int] = {}
        # Axes that are told by a primary variable which no other axis has: its position, and the demands.
        self._telling = []
        for size, need in self._want:
            powers = self._primaries(size)
            rest = [self._primaries(other) for other, _ in self._want if other != size]
            alike = sum([1 for other, _ in self._want if other == size])
            own = [at for at, power in enumerate(powers) if power and alike == 1 and not any(o[at] for o in rest)]
            if need and own:
                self._telling.append((own[0], need))
        self._asked: dict[int, int] = {}

    def has(self, coordinate: Coordinate) -> int:
        """Which demands a coordinate meets, as bits."""
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
        """The demands on an input axis that a coordinate with these bits does not meet."""
        return self.needs[axis] & ~has

    def is_served(self, main: int, window: int) -> bool:
        """Whether a window (an item) brings a main coordinate what an axis demands that it may become part of."""
        size = main >> FLAG_BITS
        demanded = self._asked.get(size)
        if demanded is None:
            demanded = 0
            powers = self._primaries(size)
            for wanted, need in self._want:
                theirs = self._primaries(wanted)
                if not any(theirs) or any(map(min, powers, theirs)):
                    demanded |= need
            self._asked[size] = demanded
        return demanded & window & ~main != 0

    def few(self, items: Iterable[int]) -> int:
        """A bound that takes no search: never above :meth:`steps`, and mostly the same where axes have their primaries.

        Take the axes whose items, those with the axis's own primary variable, lack what is demanded, those that share
        an item as one. A reshape group with k of them has at least k items and k axes, so 2k - 2 MERGEs and SPLITs, and
        one UNFOLD; or one item more, which has it. Either way it takes k steps, and one more for each that has no small
        item of its own with what is demanded. What the data have of primary variables and the input has not is
        eliminated besides, for no window has primary variables.
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
        over = self._surplus.get(total)
        if over is None:
            over = self._surplus[total] = any(power > 0 for power in self._primaries(total - self._total))
        return clusters + short + over

    def short(self, items: Iterable[int]) -> int:
        """How many windows are asked for of which no item is one yet."""
        return self._lacking(items)[1]

    def joins(self, one: int, other: int) -> bool:
        """Whether two items both have primary variables, so that a SPLIT of them mixes what are two axes."""
        return not (self._is_small(one >> FLAG_BITS) or self._is_small(other >> FLAG_BITS))

    def _lacking(self, items: Iterable[int]) -> tuple[int, int]:
        """How many axes lack what is demanded, those that share an item as one, and how many windows are missing."""
        marks = self._marks
        of_axis = [0] * len(self._telling)
        seen = []
        for item in items:
            size = item >> FLAG_BITS
            mark = marks.get(size)
            if mark is None:
                mark = marks[size] = self._mark(size)
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

    def _mark(self, size: int) -> int:
        """Which axes an item's size tells of, as bits; :data:`_SMALL` for one without a primary variable, else 0."""
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
        """At least so many steps to the input with all wishes met; any number above ``limit`` where that is too few.

        Args:
            items: the data coordinates that take part, sorted: packed size, demands that are met, ``STRIDED``; other
                flags do not count.
            limit: larger bounds are not told apart.
            contractions: CONTRACTIONs left.
            unfolds: UNFOLDs left.
            expands: EXPANDs left.
            least: a bound that is known; the larger of the two is the answer.
            spare: REDUCEs that may still come.
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
        """The bound without a limit, and one way that takes so many steps as far as it counts them; see :meth:`steps`.

        Where there is no way, or there are too many groupings to try, the plan is empty.
        """
        if self.impossible:
            return NEVER, _NO_PLAN
        bound = self._search(items, NEVER - 1, 0, contractions, unfolds, expands, spare)
        return bound, self._plan or _NO_PLAN

    def forget(self) -> None:
        """Drop all bounds that were computed, to limit memory."""
        self._known.clear()

    def _search(
        self, items: Shape, limit: int, enough: int, contractions: int, unfolds: int, expands: int, spare: int
    ) -> int:
        self._plan: Plan | None = None
        hits = 0
        for item in items:
            hits |= item
        if self._every & ~hits and not spare:
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
        # Of equal items the first is chosen first.
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
        """The items that may become axes of this size, the fewest steps first."""
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
        # With a REDUCE still to come, of whatever size fits: it, and the SPLIT that joins it.
        for mask in fewest if self._spare else ():
            is_over = self._is_over(sums[mask] - wanted)
            if is_over is not None:
                options.append(_Option(mask.bit_count() + 1 + is_over, mask, is_over, False, 1))
        return sorted(options)

    def _assign(
        self, free: int, chosen: tuple[_Option, ...], cost: int, windows: int, lacking: int, missing: int
    ) -> None:
        """Give the next group some of the ``free`` items; ``cost`` counts MERGEs, SPLITs and REDUCEs so far."""
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
        """Eliminate what is left: windows that bring what is wished by UNFOLDs, the others as cheaply as can be."""
        contractions, unfolds, one_each = self._left
        if windows > unfolds:
            return
        pieces = rest.bit_count() + sum([option.has_piece for option in chosen])
        short = 0
        if windows:
            fitting = 0  # pieces that may be a window that is asked for
            bits = self._gives[rest]  # what all pieces have
            for at, item in enumerate(self._items):
                fitting += rest >> at & 1 and item & lacking != 0 and self._is_small(item >> FLAG_BITS)
            for option, (_, need) in zip(chosen, self._groups, strict=True):
                if option.has_piece:
                    has = self._gives[option.mask]
                    bits |= has
                    # A group that a window serves hands on what that brings.
                    fitting += option.is_window and (has & lacking != 0 or need & ~has != 0)
            short = max(0, windows - fitting)
            if lacking & ~bits:
                # Only by REDUCEs still to come; else one more MERGE gives one more window.
                missing += max(short, 1)
                if missing > self._spare:
                    return
        needed = max(windows, -(-self._strided // 2))
        pieces += short
        if needed > min(one_each, pieces):
            return
        remaining = pieces - needed
        if remaining and not contractions and not one_each:
            return  # else the others are joined with a window by SPLITs
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

    def _is_small(self, packed: int) -> bool:
        """Whether a size has no primary variable, as a window's."""
        is_small = self._small.get(packed)
        if is_small is None:
            is_small = self._small[packed] = not any(self._primaries(packed))
        return is_small

    def _is_over(self, ratio: int) -> bool | None:
        """With a factor of coefficients free to choose: whether a ratio leaves a piece, or None where it cannot be."""
        exponents = self._primaries(ratio)
        return any(exponents) if min(exponents, default=0) >= 0 else None


_NO_PLAN = Plan((), (), 0, 0)


def _demands(spec: Spec, wish: Wish) -> list[_Demand]:
    """The conditions that a wish sets on the iterators in an input axis's expression."""
    size = spec.input_shape[wish.axis]
    if not size.has_primary and size.at({name: spec.defaults.get(name, 1) for name in spec.symbols.names}) == 1:
        return []  # one position is all of them
    covering = _LARGE if size.has_primary else _SUMMED
    if wish.least == "a":
        return [frozenset({covering})]
    demands: list[_Demand] = [frozenset({_SUMMED})] if wish.least == "m" else []
    return demands if wish.output is None else [*demands, frozenset({covering, wish.output})]


def _places(mask: int) -> tuple[int, ...]:
    return tuple(place for place in range(mask.bit_length()) if mask >> place & 1)


@lru_cache(maxsize=16)
def _partitions(number: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """All partitions of so many axes into groups, the finest first."""
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
    """The wishes of a spec; None where it has none."""
    return Wishes(Reach(spec)) if spec.wants else None
