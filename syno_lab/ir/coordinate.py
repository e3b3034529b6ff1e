"""Coordinates: the edges of a pGraph, each with a size and an expression over iterators (Syno, section 5.1).

A coordinate is a value: the application of a primitive (:class:`Node`) and the index of one of its results. Two
coordinates are equal when they are built in the same way, so a pGraph needs no table of identifiers.
"""

from __future__ import annotations

from collections.abc import Iterator

from syno_lab.common.size import Size

OUTPUT = "OUTPUT"
REDUCE = "REDUCE"


class Node:
    """One primitive applied to coordinates, or a leaf: an output iterator (``OUTPUT``) or a reduction (``REDUCE``).

    ``tag`` is the number of the output axis or of the reduction.
    """

    __slots__ = ("_hash", "operands", "parameter", "primitive", "tag")

    def __init__(self, primitive: str, operands: tuple[Coordinate, ...], parameter: Size | None, tag: int = -1) -> None:
        self.primitive = primitive
        self.operands = operands
        self.parameter = parameter
        self.tag = tag
        self._hash = hash((primitive, operands, parameter, tag))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Node)
            and self._hash == other._hash
            and self.primitive == other.primitive
            and self.tag == other.tag
            and self.parameter == other.parameter
            and self.operands == other.operands
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.operands)) or str(self.tag)
        return f"{self.primitive}({inside})"


class Coordinate:
    """An edge of a pGraph: result ``index`` of ``node``, with values ``0 <= value < size``."""

    __slots__ = ("_hash", "index", "node", "size")

    def __init__(self, node: Node, index: int, size: Size) -> None:
        self.node = node
        self.index = index
        self.size = size
        self._hash = hash((node, index))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Coordinate)
            and self._hash == other._hash
            and self.index == other.index
            and self.node == other.node
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.node!r}.{self.index}:{self.size}"

    @property
    def is_leaf(self) -> bool:
        """Return whether the coordinate is an iterator, of the output or of a reduction."""
        return not self.node.operands

    @property
    def is_reduction(self) -> bool:
        """Return whether the coordinate is a reduction iterator."""
        return self.node.primitive == REDUCE

    @property
    def is_output(self) -> bool:
        """Return whether the coordinate is an output iterator."""
        return self.node.primitive == OUTPUT

    def leaves(self) -> Iterator[Coordinate]:
        """Yield the iterators in the coordinate's expression, each as often as it occurs."""
        stack = [self]
        while stack:
            top = stack.pop()
            if top.is_leaf:
                yield top
            else:
                stack.extend(reversed(top.node.operands))


def output_coordinate(axis: int, size: Size) -> Coordinate:
    """Return the iterator of an output axis."""
    return Coordinate(Node(OUTPUT, (), size, axis), 0, size)


def reduce_coordinate(number: int, size: Size) -> Coordinate:
    """Return the iterator of the ``number``-th reduction."""
    return Coordinate(Node(REDUCE, (), size, number), 0, size)
