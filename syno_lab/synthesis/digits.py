"""Mixed-radix digits: what MERGEs make of a coordinate, with the boundaries each digit lies between.

``i // B`` and ``i % B`` are digits of ``i``: the high one from B upwards, the low one below B. Digits of one coordinate
that are neighbours are joined by SPLIT into a bigger digit, which a different MERGE would have given.
"""

from __future__ import annotations

from dataclasses import dataclass

from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.size import Size


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
