"""Shape distance: a lower bound of the steps still needed to turn the data coordinates into the input's axes.

After Syno, section 7.1 and appendix A, as a lower bound that also counts what the appendix leaves open: within a
reshape group with input axes I, eliminated pieces E and data coordinates O at least |I| + |E| + |O| - 2 MERGEs and
SPLITs
are needed (theorem A.1); eliminated pieces need 1-to-many primitives, of which one CONTRACTION can serve all, while an
UNFOLD or an EXPAND serves one. All groupings are tried by branch and bound and the least bound is kept, within the
budgets that are left. Equal axes are matched in any permutation. The inner order of an unordered axis changes no shape
and so no distance, but of the operators that differ only in it one is kept (:mod:`syno_lab.synthesis.orders`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import prod
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
_Have = tuple[tuple[bool, Exponents], ...]  # each coordinate: whether it is STRIDEd, and its size
# Axes that become one group; their packed product; the steps that the groups behind take at least, which have at least
# one coordinate each.
_Want = tuple[tuple[Size, ...], int, int]
_Chosen = tuple[int, tuple[Size, ...], bool]  # which coordinates, for which axes, whether a piece is left over
UNLIMITED = 99
_MOST_GROUPINGS = 1 << 21  # that are looked through for one distance; above it the bound is a rougher one


@dataclass(frozen=True)
class Group:
    """A reshape group: data coordinates ``have`` become input axes ``want`` and a piece to ``eliminate`` (or None)."""

    have: tuple[Size, ...]
    want: tuple[Size, ...]
    eliminate: Size | None

    @property
    def reshapes(self) -> int:
        """MERGEs and SPLITs it needs at least: |I| + |E| + |O| - 2."""
        return len(self.have) + len(self.want) + (self.eliminate is not None) - 2

    def __str__(self) -> str:
        have = ", ".join(map(str, self.have))
        want = ", ".join(map(str, self.want))
        gone = "" if self.eliminate is None else f" and {self.eliminate} eliminated"
        return f"{{{have}}} <- {{{want}}}{gone}: {self.reshapes} MERGE or SPLIT"


@dataclass(frozen=True)
class Explanation:
    """Why the distance is what it is.

    Attributes:
        steps: the distance, or None where the input cannot be reached within the budgets.
        groups: the reshape groups of a best grouping.
        eliminations: 1-to-many primitives counted for the eliminated pieces and for STRIDEs.
        reduces: REDUCEs that come first, while REDUCEs may still be taken.
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
    """Budgets left: how many of each helpful primitive may still come."""

    contractions: int
    unfolds: int
    expands: int
    merges: int
    splits: int


def distance(state: State, *, effort: Effort | None = None, should_stop: Stop | None = None) -> int | None:
    """The property :attr:`.State.distance`; errors are those of :func:`explain_distance`."""
    return explain_distance(state, effort=effort, should_stop=should_stop).steps


def explain_distance(state: State, *, effort: Effort | None = None, should_stop: Stop | None = None) -> Explanation:
    """The method :meth:`.State.explain_distance`.

    Raises EffortError when it was stopped, or would take more than it may.
    """
    have = tuple(sorted(look(c) for c in state.data if c not in state.fixed))
    budgets = budgets_left(state.spec, Counter(step.primitive for step in state.steps))
    with (effort or Effort()).within(should_stop=should_stop) as watched:
        return _explained(state.spec, have, budgets, reduces_left(state), watched)


def distances_after(state: State, *, effort: Effort | None = None) -> Callable[[Step], int | None]:
    """A function that gives the distance of ``state.apply(step)`` for any legal step, without applying it.

    It depends on which sizes come and go and on the budgets alone, so the many CONTRACTIONs that give the same away
    are asked once. ``effort`` bounds all calls together; they raise as :func:`explain_distance` does.
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
    shared: list[_Search] = []  # one for all CONTRACTIONs: they leave a part of the same

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
    """What the distance sees of a coordinate: whether it is STRIDEd, and its size."""
    return (coordinate.node.primitive == "STRIDE", coordinate.size.exponents)


def reduces_left(state: State) -> int | None:
    """How many REDUCEs may still come; None once another primitive has."""
    if any(step.primitive != "REDUCE" for step in state.steps):
        return None
    return state.spec.limits.max_reduces - len(state.steps)


def _explained(spec: Spec, have: _Have, left: Left, reduces: int | None, effort: Effort) -> Explanation:
    plain = _explain(spec, have, left, effort=effort)
    return plain if reduces is None else _with_reduces(spec, have, left, reduces, plain, effort)


def _with_reduces(spec: Spec, have: _Have, left: Left, budget: int, plain: Explanation, effort: Effort) -> Explanation:
    """The least bound over all sets of further REDUCEs, smallest first; at most two more than are lacking."""
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
    """How often each primary variable is missing from the data for the input."""
    want = [size.exponents for size in _wanted(spec)]
    return tuple(max(0, sum(e[i] for e in want) - sum(e[i] for e in have)) for i in range(len(spec.symbols.primary)))


def budgets_left(spec: Spec, used: Counter[str]) -> Left:
    """The budgets that are left after so many of each primitive."""

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
    """The sizes of the input's axes that take part."""
    return tuple([spec.input_shape[axis] for axis in spec.matched])


def _groupings(have: tuple[Size, ...], want: tuple[Size, ...]) -> int:
    """How many ways there are to group these, about."""
    return partitions(len(want)) * prod(number + 1 for number in Counter(have).values())


def _rough(spec: Spec, have: tuple[Size, ...], want: tuple[Size, ...]) -> Explanation:
    """A lower bound where there are too many groupings to try: what has the size of an axis is that axis."""
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

    Sizes are packed into one integer, eight bits an exponent, so that a product is one addition. Coordinates of one
    size are alike: a choice among them is a count for each size, a few bits each, the highest of them left free to show
    that more was taken than is there.
    """

    def __init__(self, spec: Spec, left: Left, strided: int, effort: Effort) -> None:
        self.effort = effort
        self.spec = spec
        self.left = left
        self.strided = strided
        self.least = -(-strided // 2)  # eliminations in any case
        self.legal = _legal(spec)
        self.best: int | None = None
        self.groups: tuple[Group, ...] = ()
        self.eliminations = 0

    def run(self, have: tuple[Size, ...], want: tuple[Size, ...]) -> None:
        """Look through the groupings of ``have``."""
        self.prepare(have, want)
        self.run_without(())

    def run_without(self, gone: Iterable[Size]) -> None:
        """Look through the groupings of what was prepared, but for some of it."""
        rest, number = self.everything, self.number
        for size in gone:
            rest -= 1 << self.bits * self.sizes.index(size)
            number -= 1
        self.best, self.groups, self.eliminations = None, (), 0
        for partition in self.partitions:
            if len(partition) <= number:
                self._assign(rest, number, partition, 0, (), 0, False)

    def prepare(self, have: tuple[Size, ...], want: tuple[Size, ...]) -> None:
        """Which products some of ``have`` make; the same for all that are a part of it."""
        counts = Counter(have)
        self.sizes = list(counts)
        self.bits = max(counts.values(), default=0).bit_length() + 1
        self.guard = sum(1 << self.bits * (place + 1) - 1 for place in range(len(counts)))
        choices = [(0, 0, 0)]  # how many, which, their product
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
        """Which ``number`` of coordinates may become axes of a packed size, and whether a piece is then eliminated."""
        options = self.options.get((wanted, number))
        if options is None:
            options = self.options[wanted, number] = []
            for code, total in self.choices[number]:
                piece = total - wanted
                is_legal = self.legal.get(piece)
                if is_legal is None:
                    is_legal = self.legal[piece] = self.spec.is_legal(self._size(piece))
                if is_legal:
                    options.append((code, piece != 0))
            options.sort(key=lambda option: option[1])  # what has nothing over first: then less is looked at
        return options

    def _size(self, packed: int) -> Size:
        return Size(self.spec.symbols, unpacked(packed, len(self.spec.symbols.names)))

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
        """Give axes some of the ``rest``, which are ``number_left``; ``cost`` is that of the groups before.

        A piece, and a coordinate that stays behind, takes an elimination; if none is to stay, every coordinate beyond
        one for each group takes a SPLIT.
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
                    break  # and so have all that come
                if ((rest | guard) - code) & guard == guard:
                    chosen = (*groups, (code, axes, has_piece))
                    is_over = has_pieces or has_piece
                    self._assign(rest - code, number_left - number, want, at + 1, chosen, more + has_piece, is_over)
                    if self.best is not None and least >= self.best:
                        break

    def _sizes_of(self, code: int) -> tuple[Size, ...]:
        """The sizes of a choice."""
        return tuple(
            size
            for place, size in enumerate(self.sizes)
            for _ in range(code >> self.bits * place & (1 << self.bits - 1) - 1)
        )

    def _close(self, rest: int, chosen: tuple[_Chosen, ...], cost: int) -> None:
        """Everything left is eliminated whole, each coordinate a group of its own."""
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
        """The fewest 1-to-many primitives; None where the budgets do not allow any.

        A STRIDE's result must go into an UNFOLD, as main or as window, or into an EXPAND; one UNFOLD can take two.
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
def _legal(spec: Spec) -> dict[int, bool]:
    """Which packed sizes may be an eliminated piece; those asked for so far. There is no piece where it is 1."""
    return {0: True}


@kept(256)
def _partitions(items: tuple[Size, ...], *, effort: Effort) -> tuple[tuple[_Want, ...], ...]:
    """All partitions of the input axes into groups, the finest first."""
    packed = {size: pack(size) for size in items}  # once: a spec may have some hundred variables
    result = []
    for partition in sorted(all_partitions(items), key=len, reverse=True):
        effort.tick("looking for the shape distance")
        later, wants = 0, []  # from the last group on: how many axes beyond one each the groups after it have
        for axes in reversed(partition):
            wants.append((axes, sum([packed[size] for size in axes]), later))
            later += len(axes) - 1
        result.append(tuple(reversed(wants)))
    return tuple(result)
