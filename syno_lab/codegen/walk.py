"""Compute the values of coordinates from the iterators up, as numbers, arrays, expressions or another program's terms.

Every view computes its results by :attr:`.Primitive.index` (Syno, Table 1). Callers differ only in the type of values
and in the value of a size, which the callers' ``number`` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate, Node
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.state import State, Step

Value = TypeVar("Value")
#: A function from a size to its value.
Number = Callable[[Size], Value | int]


def is_view(step: Step) -> bool:
    """Check whether ``step`` computes coordinates from coordinates: all primitives but REDUCE, EXPAND and SHARE do."""
    return step.primitive not in ("REDUCE", "EXPAND", "SHARE")


def results_of(view: Step | Node, arguments: Sequence[Value], number: Number[Value]) -> tuple[Value, ...]:
    """Return the values of a view's results for the values ``arguments`` of its operands."""
    parameter = None if view.parameter is None else number(view.parameter)
    return PRIMITIVES[view.primitive].index(tuple(arguments), tuple(number(c.size) for c in view.operands), parameter)


def climb(
    graph: State | Operator,
    steps: Iterable[Step],
    values: dict[Coordinate, Value],
    number: Number[Value],
) -> Iterator[Coordinate]:
    """Add the results of ``steps``, bottom-up, to ``values``; yield the coordinates that must be inside their domains.

    Steps whose results are known or whose operands are unknown are skipped.
    """
    state = graph.state if isinstance(graph, Operator) else graph
    for step in steps:
        if not is_view(step) or any(c not in values for c in step.operands):
            continue
        results = state.results(step)
        if all(c in values for c in results):
            continue
        arguments = [values[c] for c in step.operands]
        for result, value in zip(results, results_of(step, arguments, number), strict=True):
            values[result] = value
            if PRIMITIVES[step.primitive].clips:
                yield result


def value_of(coordinate: Coordinate, values: dict[Coordinate, Value], number: Number[Value]) -> Value:
    """Return the value of a coordinate, and store it and all values that it depends on in ``values``.

    Raises KeyError for an iterator without a value.
    """
    if coordinate not in values and not coordinate.is_leaf:
        node = coordinate.node
        arguments = [value_of(c, values, number) for c in node.operands]
        values[coordinate] = results_of(node, arguments, number)[coordinate.index]
    return values[coordinate]
