"""Mixed-radix digits: what MERGEs make of a coordinate, with the boundaries each digit lies between.

``i // B`` and ``i % B`` are digits of ``i``: the high one from B upwards, the low one below B. Digits of one coordinate
that are neighbours are joined by SPLIT into a bigger digit, which a different MERGE would have given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate


@dataclass(frozen=True)
class Digit:
    """``(root // low) % (high / low)``; for the whole coordinate ``low`` is 1 and ``high`` its size."""

    root: Coordinate
    low: Size
    high: Size


def digit(coordinate: Coordinate) -> Digit:
    """The digit that a coordinate is, seen through the MERGEs that made it."""
    node = coordinate.node
    if node.primitive != "MERGE":
        return Digit(coordinate, coordinate.size.symbols.one, coordinate.size)
    inner = digit(node.operands[0])
    assert node.parameter is not None
    boundary = inner.low * node.parameter
    return Digit(inner.root, boundary, inner.high) if coordinate.index == 0 else Digit(inner.root, inner.low, boundary)


def are_adjacent(high: Coordinate, low: Coordinate) -> bool:
    """Whether ``high`` is the digit right above ``low`` in the same coordinate."""
    above, below = digit(high), digit(low)
    return above.root == below.root and above.low == below.high


def below(coordinates: Iterable[Coordinate]) -> set[Coordinate]:
    """Coordinates and all that they are made of."""
    found: set[Coordinate] = set()
    stack = list(coordinates)
    while stack:
        top = stack.pop()
        if top not in found:
            found.add(top)
            stack.extend(top.node.operands)
    return found


def is_summed(coordinate: Coordinate) -> bool:
    """Whether it is a reduction's iterator or a digit of one.

    The digits of a reduction are summed over each by itself, as if there were a REDUCE for each.
    """
    while coordinate.node.primitive == "MERGE":
        coordinate = coordinate.node.operands[0]
    return coordinate.is_reduction


def are_one(high: Coordinate, low: Coordinate) -> bool:
    """Whether SPLIT of two digits is a digit of the same coordinate: neighbours, in any order in a reduction."""
    above, below = digit(high), digit(low)
    if above.root != below.root:
        return False
    return above.low == below.high or (above.root.is_reduction and below.low == above.high)
