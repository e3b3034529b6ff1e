"""The coordinate expressions of an operator as a table: which element of each tensor a term reads.

One row for each axis of each tensor, and one for each sum. Of a gradient the expressions are over the tensor's own
iterators (see :mod:`syno_lab.codegen.gradients`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING

from syno_lab.codegen.equation import condition_latex
from syno_lab.codegen.loops import condition_text, make_program
from syno_lab.codegen.nest import Program
from syno_lab.common.size import Size
from syno_lab.inputs import aligned
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.synthesis.expressions import Expression, name

if TYPE_CHECKING:
    import pandas as pd

_HEADS = ("tensor", "axis", "size", "number", "expression", "condition", "latex")
TERM = "term"
SUM = "sum"


@dataclass(frozen=True)
class Row:
    """One axis of a tensor, one sum, or a condition on the term that no axis shows.

    Attributes:
        tensor: ``X``, ``W1``, ``Y``, ``dX``, …, ``sum`` for a loop that is summed over, or ``term``.
        axis: its number, from 0; None for ``term``.
        size: of the axis, in symbols.
        number: the size for the binding; None where there is no binding.
        expression: the index along the axis, as Python over the iterators of the loop nest.
        condition: where the term counts at all, for the window that this index comes out of; else empty.
        latex: the expression, and the condition in brackets, over the short iterators of the equation.
    """

    tensor: str
    axis: int | None
    size: str
    number: int | None
    expression: str
    condition: str
    latex: str


@dataclass(frozen=True)
class Coordinates:
    """The table; :attr:`rows` are its lines, :meth:`to_frame` makes a pandas frame."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """As a pandas frame with a column for each field of :class:`Row`."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows], columns=list(_HEADS))

    def __str__(self) -> str:
        return "\n".join(aligned([[head for head in _HEADS if head != "latex"], *map(_cells, self.rows)]))

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{head}</th>" for head in _HEADS)
        body = ""
        for row in self.rows:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row))
            body += f"<tr>{cells}<td>${escape(row.latex)}$</td></tr>"
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def coordinates(operator: Operator, binding: Binding | None = None, *, wrt: str | None = None) -> Coordinates:
    """The method :meth:`.Operator.coordinates`."""
    bound = None
    if binding is not None or operator.spec.bindings:
        bound = operator.complete_binding(binding)
    words = make_program(operator, None, wrt=wrt)
    letters = make_program(operator, None, wrt=wrt, style="letters")
    return Coordinates(tuple(_rows(words, letters, bound)))


def _rows(words: Program, letters: Program, bound: dict[str, int] | None) -> Iterator[Row]:
    (nest,), (short,) = words.nests, letters.nests
    arrays = {array.name: array for array in (*words.arguments, words.result)}
    waiting = list(zip(nest.conditions, short.conditions, strict=True))

    def number_of(size: Size) -> int | None:
        return None if bound is None else size.at(bound)

    def row(tensor: str, axis: int | None, size: Size, value: Expression, brief: Expression) -> Row:
        # A condition belongs to the first index that is built on the coordinate which it bounds.
        here = [pair for pair in waiting if _contains(value, pair[0].value)]
        waiting[:] = [pair for pair in waiting if pair not in here]
        latex = brief.latex + "".join(rf" \; \left[{condition_latex(c)}\right]" for _, c in here)
        asked = " and ".join(condition_text(condition) for condition, _ in here)
        return Row(tensor, axis, str(size), number_of(size), str(value), asked, latex)

    accesses = [(nest.result, short.result), *zip(nest.factors, short.factors, strict=True)]
    for access, brief in accesses:
        for axis, size in enumerate(arrays[access.array].shape):
            yield row(access.array, axis, size, access.index[axis], brief.index[axis])
    for number, (loop, other) in enumerate(zip(nest.sums, short.sums, strict=True)):
        yield row(SUM, number, loop.size, name(loop.name), name(other.name))
    for condition, brief_condition in list(waiting):
        latex = rf"{brief_condition.value.latex} \; \left[{condition_latex(brief_condition)}\right]"
        bounded = number_of(condition.size)
        yield Row(TERM, None, str(condition.size), bounded, str(condition.value), condition_text(condition), latex)


def _contains(value: Expression, part: Expression) -> bool:
    """Whether ``part`` occurs in ``value``; conditions never bound a bare iterator."""
    if value == part:
        return True
    return any(side is not None and _contains(side, part) for side in (value.left, value.right))


def _cells(row: Row) -> list[str]:
    axis = "" if row.axis is None else str(row.axis)
    return [row.tensor, axis, row.size, "" if row.number is None else str(row.number), row.expression, row.condition]
