"""The coordinate expressions of an operator as a table: which element of each tensor a term of the loop nest reads.

The table has one row for each axis of each tensor and one row for each sum. In the table of a gradient, the expressions
are over the iterators of the gradient's tensor (see :mod:`syno_lab.codegen.gradients`).
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
    """A row of the table: an axis of a tensor, a sum, or a condition that no axis shows.

    Attributes:
        tensor: ``X``, ``W1``, ``Y``, ``dX``, …, ``sum`` for a loop that is summed over, or ``term``.
        axis: the number of the axis, from 0; None for ``term``.
        size: the length of the axis, in symbols.
        number: the length of the axis for the binding; None without a binding.
        expression: the index along the axis, as Python over the iterators of the loop nest.
        condition: the condition under which a term counts, if a window bounds the index; else empty.
        latex: the expression over the short iterators of the equation, then the condition in brackets.
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
    """The table of coordinates. :attr:`rows` has the table's rows, :meth:`to_frame` returns a pandas frame."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with one column for each field of :class:`Row`."""
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
    """Implement :meth:`.Operator.coordinates`."""
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
        # A condition is written in the row of the first index that depends on the bounded coordinate.
        here = [pair for pair in waiting if _contains(value, pair[0].value)]
        waiting[:] = [pair for pair in waiting if pair not in here]
        latex = brief.latex + "".join(rf" \; \left[{condition_latex(c)}\right]" for _, c in here)
        condition_words = " and ".join(condition_text(condition) for condition, _ in here)
        return Row(tensor, axis, str(size), number_of(size), str(value), condition_words, latex)

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
    """Check whether the expression ``value`` contains ``part``; conditions never bound a bare iterator."""
    if value == part:
        return True
    return any(side is not None and _contains(side, part) for side in (value.left, value.right))


def _cells(row: Row) -> list[str]:
    axis = "" if row.axis is None else str(row.axis)
    return [row.tensor, axis, row.size, "" if row.number is None else str(row.number), row.expression, row.condition]
