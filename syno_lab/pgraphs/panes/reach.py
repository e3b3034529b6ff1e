"""The receptive field as a picture, the mixing matrix as a table, and the similar known operators."""

from __future__ import annotations

from typing import TypedDict

from syno_lab.codegen.mixing import mixing
from syno_lab.codegen.receptive_field import receptive_field
from syno_lab.common.pairing import WORDS
from syno_lab.common.wants import Letter
from syno_lab.inputs import plural
from syno_lab.ir.operator import Operator
from syno_lab.operators.neighbours import nearest
from syno_lab.panes import Asked, read_element
from syno_lab.panes.data import Reach, Record
from syno_lab.panes.reach import axis_records, field_svg

_NEAREST = 6


class Mixed(TypedDict):
    """The mixing matrix of output axes (rows) by input axes (columns), one letter for each pair.

    ``lacks`` has the row and the column of each entry that does not meet a wish. ``verdict`` is empty without wishes.
    """

    rows: list[str]
    columns: list[str]
    marks: list[list[str]]
    words: dict[Letter, str]
    lacks: list[list[int]]
    verdict: str
    settled: bool
    text: str


class Neighbours(TypedDict):
    """Known operators with their distances in steps, the nearest first."""

    rows: list[Record]


def reach_pane(asked: Asked[Operator]) -> Reach:
    """Return which input elements the requested output element reads; elements that more terms read are darker.

    An axis longer than 64 is cut to the part around the read elements. Raises SpecError for an element out of bounds.
    """
    bound = asked.bound()
    field = receptive_field(asked.operator, read_element(asked.element), bound, should_stop=asked.should_stop)
    svg = field_svg(field.counts, [axis.size for axis in field.axes], _terms)
    return {"text": str(field), "axes": axis_records(field.axes), "binding": bound, "svg": svg}


def _terms(number: int) -> str:
    return f"read by {number:,} {plural(number, 'term')}"


def mixing_data(operator: Operator) -> Mixed:
    """Return an operator's mixing matrix at generic sizes, and how it meets the wishes of its spec, as plain data.

    Raises SpecError for an operator that is too large to check every element.
    """
    matrix, wants = mixing(operator), operator.spec.wants
    return {
        "rows": list(matrix.rows),
        "columns": list(matrix.columns),
        "marks": [list(row) for row in matrix.marks],
        "words": dict(WORDS),
        "lacks": [list(entry) for entry in sorted(matrix.lacks(wants))],
        "verdict": matrix.verdict(wants),
        "settled": matrix.settled,
        "text": matrix.text(wants),
    }


def near_pane(asked: Asked[Operator]) -> Neighbours:
    """Return the known operators that are nearest to an operator."""
    rows: list[Record] = [
        {
            "name": neighbour.name,
            "distance": round(neighbour.distance, 3),
            "same": neighbour.same,
            "differences": [f"{words} ({cost:.2f})" for words, cost in neighbour.differences],
        }
        for neighbour in nearest(asked.operator, most=_NEAREST)
    ]
    return {"rows": rows}
