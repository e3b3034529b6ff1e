"""Coordinate expressions as text: what loop nests, drawings and people read.

:class:`Text` is a number-like string, so that :meth:`Primitive.index` run on it writes the expression it computes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, count

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.state import State

_ATOM, _TIMES, _PLUS = 3, 2, 1
_BRACKETS = str.maketrans("", "", "()")


@dataclass(frozen=True)
class Text:
    """A Python expression with the rank of its outermost operation, so that only needed parentheses are written."""

    text: str
    rank: int = _ATOM

    def __str__(self) -> str:
        return self.text

    def _in(self, rank: int) -> str:
        return self.text if self.rank >= rank else f"({self.text})"

    def __add__(self, other: object) -> Text:
        return Text(f"{self._in(_PLUS)} + {text(other)._in(_PLUS)}", _PLUS)

    def __radd__(self, other: object) -> Text:
        return text(other) + self

    def __sub__(self, other: object) -> Text:
        return Text(f"{self._in(_PLUS)} - {text(other)._in(_TIMES)}", _PLUS)

    def __rsub__(self, other: object) -> Text:
        return text(other) - self

    def __mul__(self, other: object) -> Text:
        # A quotient on the left would read the same but compute something else, so it keeps its parentheses.
        left = self._in(_TIMES) if "/" not in self.text and "%" not in self.text else self._in(_ATOM)
        return Text(f"{left}*{text(other)._in(_ATOM)}", _TIMES)

    def __rmul__(self, other: object) -> Text:
        return text(other) * self

    def __floordiv__(self, other: object) -> Text:
        return Text(f"{self._in(_ATOM)}//{text(other)._in(_ATOM)}", _TIMES)

    def __rfloordiv__(self, other: object) -> Text:
        return text(other) // self

    def __mod__(self, other: object) -> Text:
        return Text(f"{self._in(_ATOM)} % {text(other)._in(_ATOM)}", _TIMES)

    def __rmod__(self, other: object) -> Text:
        return text(other) % self


def text(value: object) -> Text:
    """Anything as a :class:`Text`; a size by its Python expression."""
    if isinstance(value, Text):
        return value
    if isinstance(value, Size):
        code = value.code
        return Text(code, _ATOM if code.isidentifier() or code.isdecimal() else _TIMES)
    return Text(str(value))


def names(graph: State | Operator) -> dict[Coordinate, str]:
    """The iterators' names: ``i_H`` for the output axis of size H, ``r_k_1`` for a reduction, ``__2`` for repeats.

    All are different, and none is a variable's name, which would hide that variable in the loop nest.
    """
    found: dict[Coordinate, str] = {}
    taken = set(graph.spec.symbols.names)
    for prefix, leaves in (("i", graph.output), ("r", graph.reductions)):
        for leaf in leaves:
            code = leaf.size.code.translate(_BRACKETS).replace("//", "_by_")
            stem = f"{prefix}_" + (re.sub(r"\W+", "_", code).strip("_") or "1")
            tries = chain((stem,), (f"{stem}__{number}" for number in count(2)))
            found[leaf] = next(name for name in tries if name not in taken)
            taken.add(found[leaf])
    return found


def expressions(graph: State | Operator) -> dict[Coordinate, str]:
    """Every coordinate of a pGraph with its expression over the iterators, in order of creation."""
    state = graph.state if isinstance(graph, Operator) else graph
    found = {leaf: Text(name) for leaf, name in names(graph).items()}
    for step in state.steps:
        if step.primitive in ("REDUCE", "SHARE"):
            continue
        args = tuple(found[c] for c in step.operands)
        sizes = tuple(text(c.size) for c in step.operands)
        parameter = None if step.parameter is None else text(step.parameter)
        indices = PRIMITIVES[step.primitive].index(args, sizes, parameter)
        found.update(zip(state.results(step), indices, strict=True))
    return {coordinate: str(expression) for coordinate, expression in found.items()}
