"""The space: the steps that a synthesis may propose in a state, by Table 1 and the budgets of the spec.

Every proposal is legal for the IR and within the budgets; rules decide whether it is canonical. The sizes of parameters
are small monomials over the variables that may occur.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, combinations, combinations_with_replacement, islice, permutations, product
from operator import add, le, sub
from typing import overload

from syno_lab.common.size import Size
from syno_lab.effort import Effort, kept
from syno_lab.errors import PrimitiveError, TooLargeError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import own_primitives
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step

_MAX_COEFFICIENTS = 2  # The limit of coefficients in one parameter (DESIGN, section 4).
_MOST_COEFFICIENTS = 150  # The limit of coefficients that may occur: 45,000 products for REDUCEs.


@kept(64)
def coefficient_products(spec: Spec, *, effort: Effort | None = None) -> tuple[Size, ...]:
    """Return 1 and every product of at most two coefficients or their inverses that the limits allow.

    Raises TooLargeError for more than 150 coefficients that may occur, and EffortError when ``effort`` is exceeded.
    """
    watched = effort or Effort()
    unit = spec.symbols.one
    names = [n for n in spec.symbols.coefficient if spec.occurrence_limits[n] != 0]
    if len(names) > _MOST_COEFFICIENTS:
        raise TooLargeError(
            f"too many sizes for REDUCE, MERGE and STRIDE: expected at most {_MOST_COEFFICIENTS} coefficients that "
            f"primitives may introduce, found {len(names)}; give the others a limit of 0, as in '{names[-1]}: 0'"
        )
    factors = [spec.symbols.size(f"{name}^{power}") for name in names for power in (1, -1)]
    sizes = {unit}
    for count in range(1, _MAX_COEFFICIENTS + 1):
        for chosen in combinations_with_replacement(factors, count):
            watched.tick(f"multiplying {len(names)} coefficients")
            size = unit
            for factor in chosen:
                size = size * factor
            sizes.add(size)
    return tuple(sorted(sizes, key=lambda s: s.exponents))


@kept(64)
def reduce_sizes(spec: Spec, *, effort: Effort | None = None) -> tuple[Size, ...]:
    """Return the sizes for REDUCE: a primary over at most two coefficients, or at most two coefficients.

    Raises EffortError as :func:`coefficient_products` does.
    """
    watched = effort or Effort()
    products = coefficient_products(spec, effort=watched)
    primaries = [spec.symbols.size(n) for n in spec.symbols.primary if spec.occurrence_limits[n] != 0]
    small = [s for s in products if min(s.exponents, default=0) >= 0]
    below = [s for s in products if max(s.exponents, default=0) <= 0]
    sizes = []
    for size in chain((s for s in small if not s.is_one), (p * divisor for p, divisor in product(primaries, below))):
        watched.tick(f"choosing the sizes for REDUCE of {len(products)} products")
        if spec.is_legal(size):
            sizes.append(size)
    return tuple(sizes)


@kept(1 << 14)
def merge_blocks(spec: Spec, size: Size, *, effort: Effort | None = None) -> tuple[Size, ...]:
    """Return the blocks that a coordinate of this size may be MERGEd into.

    A block, or the size over the block, is a product of at most two coefficients, possibly times a primary of the size.
    Raises EffortError as :func:`coefficient_products` does.
    """
    watched = effort or Effort()
    products = coefficient_products(spec, effort=watched)
    sides = [s for s in products if not s.is_one]
    for name, power in zip(spec.symbols.primary, size.primary_exponents, strict=True):
        if power:
            primary = spec.symbols.size(name)
            sides += [primary * s for s in products]
    blocks: dict[Size, None] = {}
    for side in sides:
        watched.tick(f"choosing the blocks for MERGE of {len(products)} products")
        for block in (side, size / side):
            if block in blocks or block.is_one or block == size:
                continue
            if spec.is_legal(block) and spec.is_legal(size / block):
                blocks[block] = None
    return tuple(blocks)


_Cost = tuple[int, ...]  # A weight dimension's occurrences of each limited variable; empty if no limit binds weights.
_STEP_BYTES = 300.0  # The least number of bytes of a CONTRACTION in a list.


def proposals(state: State) -> Iterator[Step]:
    """Yield every legal step within the budgets, by primitive in a fixed order."""
    for part in proposals_in_parts(state):
        if isinstance(part, Step):
            yield part
        else:
            yield from part


def proposals_in_parts(state: State) -> Iterator[Step | Contractions]:
    """Yield :func:`proposals` in parts; CONTRACTIONs with the same given coordinates are one part."""
    limits = state.spec.limits
    if len(state.steps) >= limits.max_primitives:
        return
    used = Counter(step.primitive for step in state.steps)
    room = _Room(state)
    for primitive, propose in _PROPOSERS.items():
        budget = limits.of(primitive)
        if budget is None or used[primitive] < budget:
            yield from propose(state, room)
    for own in own_primitives():
        yield from (Step(own.name, (coordinate,)) for coordinate in _unstrided(state))


def room_for_contractions(state: State) -> tuple[str, float]:
    """Describe a list of all CONTRACTIONs from a state, and return a lower bound of its bytes."""
    number = len(_unstrided(state))
    if not (state.spec.limits.of("SHARE") or 0) > len(state.weights):
        return "a list of all next steps", 0.0
    count = 3**number - 2**number  # each coordinate is shared, given or neither; at least one is shared
    return f"a list of the {count:,} CONTRACTIONs of {number} coordinates", count * _STEP_BYTES


def sums_no_weights(state: State) -> bool:
    """Return whether every reduction reaches the data or at least two weights that remain after absorption.

    The condition is a restriction of the space. A reduction in only one weight sums elements of the weight. The sum is
    a weight again, though the operator with this weight has another fingerprint (DESIGN, section 3).
    """
    if not state.reductions:
        return True
    data: frozenset[Coordinate] = frozenset().union(*map(reductions_of, state.data))
    gone = [r for r in state.reductions if r not in data]
    if not gone:
        return True
    weights = [set(weight.coordinates) for weight in state.weights]
    weights = [w for i, w in enumerate(weights) if not any(w < v or (w == v and j < i) for j, v in enumerate(weights))]
    reach = [{r for c in coordinates for r in reductions_of(c)} for coordinates in weights]
    return all(sum([r in reached for reached in reach]) != 1 for r in gone)


@lru_cache(maxsize=1 << 16)
def reductions_of(coordinate: Coordinate) -> frozenset[Coordinate]:
    """Return the reductions that a coordinate is built from."""
    return frozenset([leaf for leaf in coordinate.leaves() if leaf.is_reduction])


def occurrences(state: State) -> tuple[int, ...]:
    """Count the occurrences of each variable: absolute exponents in REDUCEs, STRIDEs and the cheaper side of MERGEs.

    If limits bind weights, the dimensions of weights count too (:meth:`.Spec.weight_cost`).
    """
    costs = [step_cost(step) for step in state.steps]
    costs += [state.spec.weight_cost(size) for weight in state.weights for size in weight.shape]
    return tuple(map(sum, zip((0,) * len(state.spec.symbols.names), *filter(None, costs), strict=True)))


def step_cost(step: Step) -> tuple[int, ...]:
    """Return the occurrences of each variable in a step's parameter; empty without a parameter."""
    if step.parameter is None:
        return ()
    sides = [step.parameter]
    if step.primitive == "MERGE":
        sides.append(step.operands[0].size / step.parameter)
    cheapest = min(sides, key=lambda side: (sum(map(abs, side.exponents)), side.exponents))
    return tuple(map(abs, cheapest.exponents))


class _Room:
    """The remaining occurrences in a state, computed once for all proposed steps."""

    def __init__(self, state: State) -> None:
        limits = state.spec.occurrence_limits.values()
        spent = occurrences(state)
        self._is_free = state.spec.weight_limits == "free"
        self._of_weight = state.spec.weight_cost
        self._left = [(i, limit - spent[i]) for i, limit in enumerate(limits) if limit is not None]

    def has(self, cost: Sequence[int]) -> bool:
        """Return whether these further occurrences are within the limits."""
        return not cost or all(cost[i] <= number for i, number in self._left)

    def weight_cost(self, size: Size) -> _Cost:
        """Return a weight dimension's occurrences of each limited variable; empty if no limit binds weights."""
        if self._is_free:
            return ()
        cost = self._of_weight(size)
        return tuple([cost[i] if i < len(cost) else 0 for i, _ in self._left])

    def without(self, costs: Iterable[_Cost]) -> _Cost | None:
        """Return the remaining occurrences by variable after a weight of these dimensions; None if over a limit."""
        rest = () if self._is_free else tuple([number for _, number in self._left])
        for cost in costs:
            rest = tuple(map(sub, rest, cost))
        return None if any(number < 0 for number in rest) else rest


def _free(state: State) -> list[Coordinate]:
    return [c for c in state.data if c not in state.fixed]


def _unstrided(state: State) -> list[Coordinate]:
    return [c for c in _free(state) if c.node.primitive != "STRIDE"]


def _reduces(state: State, room: _Room) -> Iterator[Step]:
    for size in reduce_sizes(state.spec):
        step = Step("REDUCE", (), size)
        if room.has(step_cost(step)):
            yield step


def _merges(state: State, room: _Room) -> Iterator[Step]:
    for coordinate in _unstrided(state):
        for block in merge_blocks(state.spec, coordinate.size):
            step = Step("MERGE", (coordinate,), block)
            if room.has(step_cost(step)):
                yield step


def _strides(state: State, room: _Room) -> Iterator[Step]:
    for coordinate in _unstrided(state):
        for size in coefficient_products(state.spec):
            step = Step("STRIDE", (coordinate,), size)
            if not size.is_one and min(size.exponents) >= 0 and room.has(step_cost(step)):
                try:
                    state.check(step)
                except PrimitiveError:
                    continue
                yield step


def _contractions(state: State, room: _Room) -> Iterator[Contractions]:
    """Yield all contractions, one part for each set of given coordinates, the smallest sets first."""
    coordinates = _unstrided(state)
    costs = [room.weight_cost(c.size) for c in coordinates]
    every = range(len(coordinates))
    for number in every:
        for given in combinations(every, number):
            budget = room.without([costs[i] for i in given])
            if budget is not None:
                rest = [i for i in every if i not in given]
                yield Contractions(
                    tuple([coordinates[i] for i in given]),
                    tuple([coordinates[i] for i in rest]),
                    tuple([costs[i] for i in rest]),
                    budget,
                )


class Contractions(Sequence[Step]):
    """The CONTRACTIONs of a state with the same given coordinates, one for each shared set, without a stored list.

    Attributes:
        given: the given coordinates.
    """

    def __init__(
        self, given: tuple[Coordinate, ...], rest: tuple[Coordinate, ...], costs: tuple[_Cost, ...], left: _Cost
    ) -> None:
        self.given = given
        self._rest = rest
        self._costs = costs
        self._left = left
        self._number = _subsets(costs, left) - 1  # the empty set does not count

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> list[Step]: ...
    def __getitem__(self, at: int | slice) -> Step | list[Step]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(self._number))]
        if not -self._number <= at < self._number:
            raise IndexError(f"expected a place below {self._number}, found {at}")
        rank = (at + self._number if at < 0 else at) + 1
        shared = []
        costs, budget = self._costs, self._left
        for coordinate in self._rest:
            first, costs = costs[0], costs[1:]
            without = _subsets(costs, budget)
            if rank >= without:
                rank -= without
                budget = tuple(map(sub, budget, first))
                shared.append(coordinate)
        return Step("SHARE", tuple(shared), None, self.given)

    def __iter__(self) -> Iterator[Step]:
        """Iterate by index: in the order of the masks whose highest bit is the first coordinate."""
        sets: list[tuple[tuple[Coordinate, ...], _Cost]] = [((), (0,) * len(self._left))]
        for coordinate, cost in zip(reversed(self._rest), reversed(self._costs), strict=True):
            if self._left:
                more = [((coordinate, *some), tuple(map(add, spent, cost))) for some, spent in sets]
                sets += [entry for entry in more if all(map(le, entry[1], self._left))]
            else:
                sets += [((coordinate, *some), spent) for some, spent in sets]
        given = self.given
        for shared, _ in islice(sets, 1, None):
            yield Step("SHARE", shared, None, given)


@lru_cache(maxsize=1 << 16)
def _subsets(costs: tuple[_Cost, ...], budget: _Cost) -> int:
    """Count the sets of coordinates (with the empty set) whose costs are within the budget."""
    if not budget:
        return 1 << len(costs)
    if not costs:
        return 1
    after = tuple(map(sub, budget, costs[0]))
    return _subsets(costs[1:], budget) + (_subsets(costs[1:], after) if min(after) >= 0 else 0)


_PROPOSERS: dict[str, Callable[[State, _Room], Iterator[Step | Contractions]]] = {
    "REDUCE": _reduces,
    "SHARE": _contractions,
    "UNFOLD": lambda state, room: (Step("UNFOLD", pair) for pair in permutations(_free(state), 2)),
    "SPLIT": lambda state, room: (Step("SPLIT", pair) for pair in permutations(_unstrided(state), 2)),
    "MERGE": _merges,
    "SHIFT": lambda state, room: (Step("SHIFT", (coordinate,)) for coordinate in _unstrided(state)),
    "STRIDE": _strides,
    "EXPAND": lambda state, room: (Step("EXPAND", (coordinate,)) for coordinate in _free(state)),
}
