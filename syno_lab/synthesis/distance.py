"""Shape distance: a lower bound of the steps that turn the data coordinates into the input's axes.

The bound follows Syno, section 7.1 and appendix A, and also counts cases that the appendix leaves open. A reshape group
with input axes I, eliminated pieces E and data coordinates O needs at least |I| + |E| + |O| - 2 MERGEs and SPLITs
(theorem A.1). Eliminated pieces need 1-to-many primitives: a CONTRACTION can serve all pieces, an UNFOLD or EXPAND
serves one piece. The search tries all groupings by branch and bound within the remaining budgets, and returns the least
bound. Equal axes are matched in any permutation. The inner order of an unordered axis does not change the distance. Of
operators that differ only in this order, the search keeps one (:mod:`syno_lab.synthesis.orders`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations_with_replacement
from math import prod
from operator import itemgetter
from typing import Any

from syno_lab.common.size import Size, product
from syno_lab.effort import Effort, Stop, kept
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.reach import all_partitions, least_steps, pack, partitions, unpacked
from syno_lab.synthesis.space import reduce_sizes

Exponents = tuple[int, ...]
_Have = tuple[tuple[bool, Exponents], ...]  # For each coordinate, whether it is STRIDEd, and its size.
# The axes of a group, their packed product, and a lower bound of the steps of all later groups, which have at least one
# coordinate each.
_Want = tuple[tuple[Size, ...], int, int]
_Chosen = tuple[int, tuple[Size, ...], bool]  # the coordinates, their axes, whether a piece is to be eliminated
UNLIMITED = 99
_MOST_GROUPINGS = 1 << 21  # the limit of groupings for one distance; above it a rougher bound is used


@dataclass(frozen=True)
class Group:
    """A reshape group: data coordinates ``have`` become input axes ``want`` and a piece to ``eliminate`` (or None)."""

    have: tuple[Size, ...]
    want: tuple[Size, ...]
    eliminate: Size | None

    @property
    def reshapes(self) -> int:
        """Return a lower bound of the MERGEs and SPLITs for the group: |I| + |E| + |O| - 2."""
        return len(self.have) + len(self.want) + (self.eliminate is not None) - 2

    def __str__(self) -> str:
        have = ", ".join(map(str, self.have))
        want = ", ".join(map(str, self.want))
        gone = "" if self.eliminate is None else f" and {self.eliminate} eliminated"
        return f"{{{have}}} <- {{{want}}}{gone}: {self.reshapes} MERGE or SPLIT"


@dataclass(frozen=True)
class Explanation:
    """The shape distance with its derivation.

    Attributes:
        steps: the distance, or None if the input cannot be reached within the budgets.
        groups: the reshape groups of a best grouping.
        eliminations: the number of 1-to-many primitives for the eliminated pieces and for STRIDEs.
        reduces: the REDUCEs that come first, while REDUCEs are still allowed.
    """

    steps: int | None
    groups: tuple[Group, ...]
    eliminations: int
    reduces: tuple[Size, ...] = ()

    def __str__(self) -> str:
        if self.steps is None:
            return "the input cannot be reached within the budgets that are left"
        lines = [f"REDUCE({size}) first" for size in self.reduces]
        lines += [str(group) for group in self.groups if group.reshapes or group.eliminate is not None]
        if self.eliminations:
            lines.append(f"{self.eliminations} of CONTRACTION, UNFOLD, EXPAND to eliminate")
        lines.append(f"distance {self.steps}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Left:
    """The remaining budgets: how many steps of each useful primitive may still come."""

    contractions: int
    unfolds: int
    expands: int
    merges: int
    splits: int


def distance(state: State, *, effort: Effort | None = None, should_stop: Stop | None = None) -> int | None:
    """Compute :attr:`.State.distance`; errors are those of :func:`explain_distance`."""
    return explain_distance(state, effort=effort, should_stop=should_stop).steps


def explain_distance(state: State, *, effort: Effort | None = None, should_stop: Stop | None = None) -> Explanation:
    """Compute :meth:`.State.explain_distance`.

    Raises EffortError after a stop, and when a limit of ``effort`` is exceeded.
    """
    have = tuple(sorted(look(c) for c in state.data if c not in state.fixed))
    budgets = budgets_left(state.spec, Counter(step.primitive for step in state.steps))
    with (effort or Effort()).within(should_stop=should_stop) as watched:
        return _explained(state.spec, have, budgets, reduces_left(state), watched)


def distances_after(state: State, *, effort: Effort | None = None) -> Callable[[Step], int | None]:
    """Return a function that computes the distance of ``state.apply(step)`` for any legal step, without applying it.

    The distance depends only on the sizes that a step removes and adds, and on the budgets. CONTRACTIONs with the same
    given sizes need one computation. ``effort`` bounds all calls; errors are those of :func:`explain_distance`.
    """
    watched = effort or Effort()
    spec = state.spec
    have = sorted(look(c) for c in state.data if c not in state.fixed)
    used = Counter(step.primitive for step in state.steps)
    budgets = {name: budgets_left(spec, used + Counter((name,))) for name in PRIMITIVES}
    reduces = reduces_left(state)
    known: dict[Any, int | None] = {}
    sizes = tuple([Size(spec.symbols, exponents) for _, exponents in have])
    want = _wanted(spec)
    shared: list[_Search] = []  # one search for all CONTRACTIONs, which keep parts of the same data

    def after_giving(given: tuple[Coordinate, ...]) -> int | None:
        if not shared:
            shared.append(_Search(spec, budgets["SHARE"], sum(flag for flag, _ in have), watched))
            shared[0].prepare(sizes, want)
        shared[0].run_without([c.size for c in given])
        return shared[0].best

    has_few_groupings = _groupings(sizes, want) <= _MOST_GROUPINGS

    def after(step: Step) -> int | None:
        gone = step.given if step.primitive == "SHARE" else step.operands
        added: tuple[Size, ...] = ()
        if step.primitive == "REDUCE":
            assert step.parameter is not None
            added = (step.parameter,)
        elif step.primitive != "SHARE":
            added = PRIMITIVES[step.primitive].result_sizes(tuple([c.size for c in step.operands]), step.parameter)
        looks = sorted([look(c) for c in gone])
        key = (step.primitive, tuple(looks), added)
        if key not in known and step.primitive == "SHARE" and has_few_groupings:
            known[key] = after_giving(step.given)
        if key not in known:
            shape = list(have)
            for entry in looks:
                shape.remove(entry)
            shape += [(step.primitive == "STRIDE", size.exponents) for size in added]
            more = None if reduces is None or step.primitive != "REDUCE" else reduces - 1
            known[key] = _explained(spec, tuple(sorted(shape)), budgets[step.primitive], more, watched).steps
        return known[key]

    return after


def look(coordinate: Coordinate) -> tuple[bool, Exponents]:
    """Return the facts about a coordinate that the distance depends on: whether it is STRIDEd, and its size."""
    return (coordinate.node.primitive == "STRIDE", coordinate.size.exponents)


def reduces_left(state: State) -> int | None:
    """Return how many REDUCEs may still come; None after a step of another primitive."""
    if any(step.primitive != "REDUCE" for step in state.steps):
        return None
    return state.spec.limits.max_reduces - len(state.steps)


def _explained(spec: Spec, have: _Have, left: Left, reduces: int | None, effort: Effort) -> Explanation:
    plain = _explain(spec, have, left, effort=effort)
    return plain if reduces is None else _with_reduces(spec, have, left, reduces, plain, effort)


def _with_reduces(spec: Spec, have: _Have, left: Left, budget: int, plain: Explanation, effort: Effort) -> Explanation:
    """Return the least bound over sets of further REDUCEs, small sets first; at most two bring no missing primary."""
    lacking = lacking_primaries(spec, [exponents for _, exponents in have])
    best = plain
    sizes = reduce_sizes(spec, effort=effort)
    for count in range(max(1, sum(lacking)), min(budget, sum(lacking) + 2) + 1):
        if best.steps is not None and count >= best.steps:
            break
        for chosen in combinations_with_replacement(sizes, count):
            effort.tick("choosing the REDUCEs that bring the input nearest")
            if any(sum(size.exponents[i] for size in chosen) < n for i, n in enumerate(lacking)):
                continue
            more = tuple(sorted((*have, *((False, size.exponents) for size in chosen))))
            explained = _explain(spec, more, left, effort=effort)
            if explained.steps is not None and (best.steps is None or explained.steps + count < best.steps):
                best = Explanation(explained.steps + count, explained.groups, explained.eliminations, tuple(chosen))
    return best


def lacking_primaries(spec: Spec, have: Sequence[Exponents]) -> tuple[int, ...]:
    """Count the occurrences of each primary variable that the input has and the data lack."""
    want = [size.exponents for size in _wanted(spec)]
    return tuple(max(0, sum(e[i] for e in want) - sum(e[i] for e in have)) for i in range(len(spec.symbols.primary)))


def budgets_left(spec: Spec, used: Counter[str]) -> Left:
    """Return the remaining budgets after the ``used`` primitives."""

    def left(primitive: str) -> int:
        budget = spec.limits.of(primitive)
        return UNLIMITED if budget is None else max(0, budget - used[primitive])

    return Left(left("SHARE"), left("UNFOLD"), left("EXPAND"), left("MERGE"), left("SPLIT"))


@kept(1 << 17)
def _explain(spec: Spec, have: _Have, left: Left, *, effort: Effort) -> Explanation:
    want = _wanted(spec)
    sizes = tuple(Size(spec.symbols, exponents) for _, exponents in have)
    if _groupings(sizes, want) > _MOST_GROUPINGS:
        return _rough(spec, sizes, want)
    search = _Search(spec, left, sum(flag for flag, _ in have), effort)
    search.run(sizes, want)
    return Explanation(search.best, search.groups, search.eliminations)


def _wanted(spec: Spec) -> tuple[Size, ...]:
    """Return the sizes of the input's axes that are not fixed."""
    return tuple([spec.input_shape[axis] for axis in spec.matched])


def _groupings(have: tuple[Size, ...], want: tuple[Size, ...]) -> int:
    """Estimate the number of groupings."""
    return partitions(len(want)) * prod(number + 1 for number in Counter(have).values())


def _rough(spec: Spec, have: tuple[Size, ...], want: tuple[Size, ...]) -> Explanation:
    """Return a rough lower bound if there are too many groupings: match coordinates with axes of equal size."""
    primaries = len(spec.symbols.primary)
    spare = product(have, spec.symbols) / product(want, spec.symbols)
    if any(power < 0 for power in spare.exponents[:primaries]):
        return Explanation(None, (), 0)
    rest, lacking = Counter(have) - Counter(want), Counter(want) - Counter(have)
    steps = least_steps(rest.total(), lacking.total())
    alike = (Counter(have) & Counter(want)).elements()
    return Explanation(steps, tuple(Group((size,), (size,), None) for size in alike), 0)


class _Search:
    """Branch and bound over groupings.

    Sizes are packed into one integer, eight bits an exponent, so that a product is one addition. Coordinates of equal
    sizes are interchangeable. A choice of coordinates is a count for each size, in a few bits each; the highest bit of
    each count stays free, and is set if too many are taken.
    """

    def __init__(self, spec: Spec, left: Left, strided: int, effort: Effort) -> None:
        self.effort = effort
        self.spec = spec
        self.left = left
        self.strided = strided
        self.least = -(-strided // 2)  # the least number of eliminations
        self.is_legal = _legal(spec)
        self.best: int | None = None
        self.groups: tuple[Group, ...] = ()
        self.eliminations = 0

    def run(self, have: tuple[Size, ...], want: tuple[Size, ...]) -> None:
        """Search the groupings of ``have``."""
        self.prepare(have, want)
        self.run_without(())

    def run_without(self, gone: Iterable[Size]) -> None:
        """Search the groupings of the prepared coordinates, except coordinates of the sizes ``gone``."""
        rest, number = self.everything, self.number
        for size in gone:
            rest -= 1 << self.bits * self.sizes.index(size)
            number -= 1
        self.best, self.groups, self.eliminations = None, (), 0
        for partition in self.partitions:
            if len(partition) <= number:
                self._assign(rest, number, partition, 0, (), 0, False)

    def prepare(self, have: tuple[Size, ...], want: tuple[Size, ...]) -> None:
        """Compute the products of all subsets of ``have``; every search on a subset uses these products."""
        counts = Counter(have)
        self.sizes = list(counts)
        self.bits = max(counts.values(), default=0).bit_length() + 1
        self.guard = sum(1 << self.bits * (place + 1) - 1 for place in range(len(counts)))
        choices = [(0, 0, 0)]  # the number, the code and the product of each choice
        for place, (size, most) in enumerate(counts.items()):
            packed = pack(size)
            choices = [
                (number + more, code + (more << self.bits * place), total + more * packed)
                for number, code, total in choices
                for more in range(most + 1)
            ]
        self.choices: list[list[tuple[int, int]]] = [[] for _ in range(len(have) + 1)]
        for number, code, packed in choices:
            self.choices[number].append((code, packed))
        self.options: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        self.everything = sum(most << self.bits * place for place, most in enumerate(counts.values()))
        self.number = len(have)
        self.partitions = _partitions(want, effort=self.effort)

    def _options(self, wanted: int, number: int) -> list[tuple[int, bool]]:
        """Return the choices of ``number`` coordinates for a packed size, and whether each has a piece to eliminate."""
        options = self.options.get((wanted, number))
        if options is None:
            fitting = [(code, total != wanted) for code, total in self.choices[number] if self.is_legal(total - wanted)]
            # Choices without a piece come first, to prune the search.
            options = self.options[wanted, number] = sorted(fitting, key=itemgetter(1))
        return options

    def _assign(
        self,
        rest: int,
        number_left: int,
        want: tuple[_Want, ...],
        at: int,
        groups: tuple[_Chosen, ...],
        cost: int,
        has_pieces: bool,
    ) -> None:
        """Assign some of the ``number_left`` remaining coordinates to the next axes; ``cost`` counts earlier groups.

        A piece, and a coordinate that is not assigned, needs an elimination. If every coordinate is assigned, each
        coordinate after the first of a group needs a SPLIT.
        """
        if at == len(want):
            self._close(rest, groups, cost)
            return
        axes, wanted, later = want[at]
        groups_left = len(want) - at - 1
        guard = self.guard
        self.effort.tick("looking for the shape distance")
        for number in range(1, number_left - groups_left + 1):
            more = cost + len(axes) + number - 2
            least = more + later + max(self.least, has_pieces or number_left - number > groups_left)
            if self.best is not None and least >= self.best:
                if more + later + self.least >= self.best:
                    return
                continue
            for code, has_piece in self._options(wanted, number):
                if has_piece and self.best is not None and more + 1 + later + max(self.least, 1) >= self.best:
                    break  # all later choices have a piece too
                if ((rest | guard) - code) & guard == guard:
                    chosen = (*groups, (code, axes, has_piece))
                    is_over = has_pieces or has_piece
                    self._assign(rest - code, number_left - number, want, at + 1, chosen, more + has_piece, is_over)
                    if self.best is not None and least >= self.best:
                        break

    def _sizes_of(self, code: int) -> tuple[Size, ...]:
        """Return the sizes of the coordinates in a choice."""
        return tuple(
            size
            for place, size in enumerate(self.sizes)
            for _ in range(code >> self.bits * place & (1 << self.bits - 1) - 1)
        )

    def _close(self, rest: int, chosen: tuple[_Chosen, ...], cost: int) -> None:
        """Eliminate every remaining coordinate in a group of its own, and keep the result if it is the best."""
        pieces = sum([has_piece for _, _, has_piece in chosen])
        alone = self._sizes_of(rest)
        eliminations = self._eliminations(len(alone) + pieces)
        if eliminations is None:
            return
        steps = eliminations + cost
        if self.best is not None and steps >= self.best:
            return
        filled = [(self._sizes_of(code), want, has_piece) for code, want, has_piece in chosen]
        merges = sum(len(want) + has_piece - 1 for _, want, has_piece in filled)
        splits = sum(len(have) - 1 for have, _, _ in filled)
        if merges > self.left.merges or splits > self.left.splits:
            return
        symbols = self.spec.symbols
        groups = [
            Group(have, want, product(have, symbols) / product(want, symbols) if has_piece else None)
            for have, want, has_piece in filled
        ]
        groups += [Group((size,), (), size) for size in alone]
        self.best, self.groups, self.eliminations = steps, tuple(groups), eliminations

    def _eliminations(self, pieces: int) -> int | None:
        """Return the fewest 1-to-many primitives; None if the budgets do not suffice.

        A STRIDE's result must go into an UNFOLD (as main or as window) or an EXPAND; one UNFOLD can take two.
        """
        one_each = self.left.unfolds + self.left.expands
        needed = -(-self.strided // 2)
        if needed > min(one_each, pieces):
            return None
        rest = pieces - needed
        if not rest or self.left.contractions:
            return needed + (rest > 0)
        return needed + rest if needed + rest <= one_each else None


@lru_cache(maxsize=64)
def _legal(spec: Spec) -> Callable[[int], bool]:
    """Return a cached function: whether a packed size may be an eliminated piece; size 1 means no piece."""
    symbols = spec.symbols
    return cache(lambda packed: not packed or spec.is_legal(Size(symbols, unpacked(packed, len(symbols.names)))))


@kept(256)
def _partitions(items: tuple[Size, ...], *, effort: Effort) -> tuple[tuple[_Want, ...], ...]:
    """Return all partitions of the input axes into groups, the finest first."""
    packed = {size: pack(size) for size in items}  # pack once, as packing hundreds of variables is slow
    result = []
    for partition in sorted(all_partitions(items), key=len, reverse=True):
        effort.tick("looking for the shape distance")
        later, wants = 0, []  # from the last group on: the axes of later groups minus the number of these groups
        for axes in reversed(partition):
            wants.append((axes, sum([packed[size] for size in axes]), later))
            later += len(axes) - 1
        result.append(tuple(reversed(wants)))
    return tuple(result)
