"""The facts that canonicalization rules read about a state's top coordinates: digits, sharing weights, features.

MERGEs make ``i // B`` and ``i % B``, mixed-radix *digits* of ``i``: the high digit from B upwards, and the low
digit below B. A SPLIT of neighbouring digits of one coordinate makes a larger digit, which another MERGE could also
make.

Two states whose coordinates have equal features allow the same further canonical steps, so search uses one node for
both states. Features are tuples of small numbers. A digit's feature does not contain the divided coordinate: rules only
check which digits have the same divided coordinate. A *look* is a cache entry of search about a coordinate or a view;
nodes with equal coordinates share the entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.state import State, Step


@dataclass(frozen=True)
class Digit:
    """``(root // low) % (high / low)``; for the whole coordinate ``low`` is 1 and ``high`` its size."""

    root: Coordinate
    low: Size
    high: Size


def digit(coordinate: Coordinate) -> Digit:
    """Return a coordinate as a digit, by following the MERGEs that made it."""
    node = coordinate.node
    if node.primitive != "MERGE":
        return Digit(coordinate, coordinate.size.symbols.one, coordinate.size)
    inner = digit(node.operands[0])
    assert node.parameter is not None
    boundary = inner.low * node.parameter
    return Digit(inner.root, boundary, inner.high) if coordinate.index == 0 else Digit(inner.root, inner.low, boundary)


def are_adjacent(high: Coordinate, low: Coordinate) -> bool:
    """Return whether ``high`` is the digit directly above ``low`` in the same coordinate."""
    above, below = digit(high), digit(low)
    return above.root == below.root and above.low == below.high


def below(coordinates: Iterable[Coordinate]) -> set[Coordinate]:
    """Return the coordinates and all coordinates that they are built from."""
    seen: set[Coordinate] = set()
    stack = list(coordinates)
    while stack:
        top = stack.pop()
        if top not in seen:
            seen.add(top)
            stack.extend(top.node.operands)
    return seen


def is_summed(coordinate: Coordinate) -> bool:
    """Return whether the coordinate is a reduction's iterator or a digit of a reduction.

    Each digit of a reduction is summed independently, as if it were a REDUCE.
    """
    while coordinate.node.primitive == "MERGE":
        coordinate = coordinate.node.operands[0]
    return coordinate.is_reduction


def are_one(high: Coordinate, low: Coordinate) -> bool:
    """Return whether a SPLIT of two digits is a digit: the digits are neighbours, in a reduction in any order."""
    above, below = digit(high), digit(low)
    if above.root != below.root:
        return False
    return above.low == below.high or (above.root.is_reduction and below.low == above.high)


Exponents = tuple[int, ...]
_NOBODY: frozenset[int] = frozenset()


def sharers(state: State, coordinate: Coordinate) -> frozenset[int]:
    """Return the weights that a coordinate is SHAREd with."""
    return state.sharing.get(coordinate, _NOBODY)


def is_raw_reduction(state: State, coordinate: Coordinate) -> bool:
    """Return whether the coordinate is a reduction's iterator, or a digit of a reduction, that no weight shares."""
    while coordinate not in state.sharing:
        if coordinate.node.primitive != "MERGE":
            return coordinate.is_reduction
        coordinate = coordinate.node.operands[0]
    return False


def holders(state: State, coordinate: Coordinate) -> frozenset[int]:
    """Return the weights that share a coordinate, or a coordinate of which it is a digit."""
    weights = sharers(state, coordinate)
    while coordinate.node.primitive == "MERGE":
        coordinate = coordinate.node.operands[0]
        weights = weights | sharers(state, coordinate)
    return weights


def first_digit(state: State, coordinate: Coordinate) -> Coordinate:
    """Return the leading block of the coordinate's SPLITs, up to a SPLIT that a weight shares."""
    while coordinate.node.primitive == "SPLIT" and coordinate not in state.sharing:
        coordinate = coordinate.node.operands[0]
    return coordinate


def last_digit(state: State, coordinate: Coordinate) -> Coordinate:
    """Return the last block of the coordinate's SPLITs, up to a SPLIT that a weight shares."""
    while coordinate.node.primitive == "SPLIT" and coordinate not in state.sharing:
        coordinate = coordinate.node.operands[1]
    return coordinate


def below_shifts(coordinate: Coordinate) -> tuple[Coordinate, int]:
    """Strip the SHIFTs from the top of a coordinate; return the operand of the last one, and the number of SHIFTs."""
    count = 0
    while coordinate.node.primitive == "SHIFT":
        coordinate, count = coordinate.node.operands[0], count + 1
    return coordinate, count


def standing(state: State, coordinate: Coordinate) -> tuple[object, ...]:
    """Return a sort key that ignores names of reductions: the number of sharing weights, and the construction."""
    return (len(sharers(state, coordinate)), built(coordinate))


@lru_cache(maxsize=1 << 16)
def built(coordinate: Coordinate) -> tuple[object, ...]:
    """Describe how a coordinate is built, ignoring names of reductions; comparable within one spec."""
    node = coordinate.node
    tag = -1 if coordinate.is_reduction else node.tag
    parameter = () if node.parameter is None else node.parameter.exponents
    return (
        coordinate.size.exponents,
        node.primitive,
        coordinate.index,
        tag,
        parameter,
        tuple(built(c) for c in node.operands),
    )


def offset_sizes(coordinate: Coordinate) -> list[Size]:
    """Return the block sizes of the coordinate's SPLITs, from the innermost: ``C``, then ``B*C``, ..."""
    sizes: list[Size] = []
    while coordinate.node.primitive == "SPLIT":
        coordinate, offset = coordinate.node.operands
        sizes.append(offset.size * sizes[-1] if sizes else offset.size)
    return sizes


def is_high_of_shift(coordinate: Coordinate) -> bool:
    """Return whether the coordinate is the high digit in a MERGE of a SHIFT."""
    node = coordinate.node
    return node.primitive == "MERGE" and coordinate.index == 0 and node.operands[0].node.primitive == "SHIFT"


def is_of_unfold(coordinate: Coordinate) -> bool:
    """Return whether the coordinate is an UNFOLD, or SHIFTs or STRIDEs of an UNFOLD."""
    while coordinate.node.primitive in ("SHIFT", "STRIDE"):
        coordinate = coordinate.node.operands[0]
    return coordinate.node.primitive == "UNFOLD"


def is_of_shared(state: State, coordinate: Coordinate) -> bool:
    """Return whether a weight shares a coordinate or its source below SHIFTs, STRIDEs and MERGEs, or below a SPLIT."""
    while coordinate not in state.sharing:
        primitive, operands = coordinate.node.primitive, coordinate.node.operands
        if primitive == "SPLIT":
            return any(c in state.sharing for c in operands)
        if primitive not in ("SHIFT", "MERGE", "STRIDE"):
            return False
        coordinate = operands[0]
    return True


class Feature(NamedTuple):
    """The facts about a coordinate that rules use; :mod:`syno_lab.synthesis.matches` uses the fields."""

    size: Exponents
    primitive: str
    result: int
    leaf: int  # 0: a view, 1: a reduction, 2: an output (outputs differ by axis)
    axis: int
    sharers: tuple[int, ...]
    only_reductions: bool
    is_sibling_gone: bool
    is_of_shared: bool
    below: tuple[object, ...]
    standing: tuple[object, ...] | None
    is_digit_summed: bool  # whether :func:`digit_below` is a reduction's digit


def feature(state: State, coordinate: Coordinate) -> Feature:
    """Return the feature of a coordinate on top of ``state``."""
    node = coordinate.node
    size = coordinate.size
    leaf = 1 if coordinate.is_reduction else 2 if coordinate.is_output else 0
    below: tuple[object, ...] = ()
    below_digit = digit_below(state, coordinate)
    if node.primitive == "SPLIT":
        high, low = node.operands
        last = last_digit(state, coordinate)
        under, count = below_shifts(high)
        below = (
            tuple([block.exponents for block in offset_sizes(coordinate)]),
            standing(state, low) if not low.size.has_primary else None,
            is_raw_reduction(state, first_digit(state, coordinate)),
            _summed(state, last),
            are_adjacent(under, low),
            tuple(sorted(sharers(state, under))),
            tuple(sorted(sharers(state, high))),
            tuple(sorted(sharers(state, low))),
            count,
        )
    elif node.primitive == "MERGE":
        below = (is_high_of_shift(coordinate), tuple(sorted(holders(state, coordinate))), _summed(state, coordinate))
    elif node.primitive == "STRIDE":
        below = (tuple(sorted(sharers(state, node.operands[0]))), is_of_unfold(coordinate))
    elif node.primitive == "SHIFT":
        under, count = below_shifts(coordinate)
        block = under.node.operands[1].size.exponents if under.node.primitive == "SPLIT" else None
        below = (under.node.primitive, count, block)
    elif node.primitive == "UNFOLD":
        main, window = node.operands
        below = (
            main.size.exponents,
            tuple(sorted(sharers(state, main))),
            window.node.primitive,
            standing(state, window),
        )
    return Feature(
        size.exponents,
        node.primitive,
        coordinate.index,
        leaf,
        node.tag if leaf == 2 else -1,
        tuple(sorted(sharers(state, coordinate))),
        leaf == 1 or (leaf == 0 and all(c.is_reduction for c in coordinate.leaves())),
        node.primitive == "MERGE" and any(c.node == node for c in state.expanded),
        is_of_shared(state, coordinate),
        below,
        standing(state, coordinate) if leaf == 0 and not size.has_primary else None,
        below_digit is not None and below_digit.root.is_reduction,
    )


def _summed(state: State, coordinate: Coordinate) -> tuple[object, ...] | None:
    """Describe a reduction or its digit: whether no weight shares it, its size, and the coordinate it is a digit of."""
    if not is_summed(coordinate):
        return None
    of = coordinate.node.operands[0] if coordinate.node.operands else coordinate
    return is_raw_reduction(state, coordinate), coordinate.size.exponents, of.is_reduction, of.size.exponents


def digit_below(state: State, coordinate: Coordinate) -> Digit | None:
    """Return the digit that a rule may join with a neighbour, or None.

    The digit is the coordinate, the last block of its SPLITs, its operand below SHIFTs, or an UNFOLD's main coordinate.
    """
    primitive = coordinate.node.primitive
    if primitive == "SPLIT":
        coordinate = last_digit(state, coordinate)
    elif primitive == "SHIFT":
        coordinate = below_shifts(coordinate)[0]
    elif primitive == "UNFOLD":
        coordinate = coordinate.node.operands[0]
    return digit(coordinate) if coordinate.node.primitive == "MERGE" else None


@dataclass(slots=True, eq=False, repr=False)
class Look:
    """A coordinate as search sees it: one object for all states with the same coordinate and sharing weights.

    Attributes:
        coordinate: the coordinate.
        feature: the number of the coordinate's feature for rules (:mod:`syno_lab.synthesis.features`).
        packed: the coordinate's packed size.
        root: the MERGE of which the coordinate is a digit, or None.
        changed: the entries after a change, by the new sharing weight's number; -1: the MERGE's other digit is dropped.
    """

    coordinate: Coordinate
    feature: int
    packed: int
    root: Digit | None
    changed: dict[int, Look] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class Viewed:
    """A view that no rule rejects: step, cost in occurrences, results, and (on demand) the results' cache entries."""

    step: Step
    spent: tuple[int, ...]
    results: tuple[Coordinate, ...]
    looks: tuple[Look, ...] | None = None
