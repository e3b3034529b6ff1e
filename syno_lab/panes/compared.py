"""Several operators side by side, as plain data: pictures, aligned steps, costs and receptive fields.

An unfinished operator, such as a place of a stepper's session, can be compared too; it has a picture and steps alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypedDict

from syno_lab.drawing.svg import titled
from syno_lab.effort import Stop
from syno_lab.errors import SpecError, StoppedError, SynoError
from syno_lab.panes import MOST_NAME, Asked, panes_of, read_pane
from syno_lab.panes.aligned import AlignedRow, align, trace_all
from syno_lab.panes.data import AxisRead, Link
from syno_lab.protocol import Operator
from syno_lab.sessions.session import Session, session_of
from syno_lab.sessions.shown import plain
from syno_lab.systems import find_system, operator_named, operator_of, system_for, system_of

#: How many operators are put side by side.
FEWEST, MOST = 2, 4
LETTERS = "ABCD"
#: What stands in a cell for which there is nothing.
NOTHING = "–"
#: Seconds of computing for what is said of an unfinished operator.
_STATUS_S = 0.3
_STRONGEST = ("differs", "only", "some", "same")


@dataclass(frozen=True)
class Subject:
    """One of the things compared.

    Attributes:
        name: for people.
        format: of its system.
        operator: the operator; None for an unfinished one.
        session: at the state of an unfinished one, else None.
    """

    name: str
    format: str
    operator: Operator | None
    session: Session | None = None


def subjects_of(values: Sequence[Any], names: Sequence[str] | None = None) -> tuple[Subject, ...]:
    """What is compared, with names: the given ones, else those of the known operators that equal them.

    Raises SynoError for fewer than two or more than four, for another number of names, and for a value that is neither
    an operator, nor a known one's name, a file or a text of one, nor a state of one.
    """
    if not FEWEST <= len(values) <= MOST:
        raise SpecError(f"compare: expected {FEWEST} to {MOST} operators, found {len(values)}")
    if names is not None and len(names) != len(values):
        raise SpecError(f"compare: expected a name for each of {len(values)} operators, found {len(names)}")
    return tuple([_subject(value, names[number] if names else "") for number, value in enumerate(values)])


def _subject(value: Any, name: str) -> Subject:
    value = operator_named(value)
    operator = operator_of(value)
    if operator is None:
        system, session = system_for(value), session_of(value)
        if not session.is_complete:
            return Subject(str(name or "unfinished")[:MOST_NAME], system.format, None, session)
        operator = session.operator
    system = system_of(operator)
    return Subject(str(name or system.recognise(operator) or "operator")[:MOST_NAME], system.format, operator)


def common_sizes(subjects: Iterable[Subject], binding: Mapping[str, int] | None = None) -> dict[str, int]:
    """Sizes of all variables at which every operator is legal.

    Args:
        subjects: the operators; unfinished ones have no say.
        binding: sizes that are asked for; the others are those with which the view of one of the operators shows it.

    Raises SpecError where a size that is asked for does not fit, or no such sizes are found.
    """
    operators = [one.operator for one in subjects if one.operator is not None]
    examples = [system_of(operator).example_binding(operator) for operator in operators]
    examples.sort(key=len, reverse=True)
    refused: SynoError | None = None
    for first in examples:
        sizes = {name: size for one in (*reversed(examples), first) for name, size in one.items()} | dict(binding or {})
        try:
            for operator in operators:
                bound = sizes_of(operator, sizes)
                operator.input_sizes(bound)
                operator.flops(bound)  # counts every loop, and so refuses a size that is no whole number
        except SynoError as error:
            refused = refused or error
        else:
            used = {name for operator in operators for name in operator.variables}
            return {name: size for name, size in sizes.items() if name in used}
    if refused is not None:
        raise SpecError(f"compare: no sizes that fit all operators; give a binding: {refused}")
    return {}


def sizes_of(operator: Operator, sizes: Mapping[str, int]) -> dict[str, int]:
    """The complete binding of one operator among those that are compared at these sizes."""
    return operator.complete_binding({name: sizes[name] for name in operator.variables if name in sizes})


class Drawn(TypedDict):
    """A picture; ``links`` as the pane ``graph`` has them."""

    svg: str
    description: str
    links: dict[str, Link]


class Column(Drawn):
    """An operator that is compared; ``about`` has its shapes in symbols.

    ``marks`` has for the nodes of its picture that are not alike everywhere ``some``, ``differs`` or ``only``.
    """

    letter: str
    name: str
    system: str
    about: str
    marks: dict[str, str]


class StepCell(TypedDict):
    """A step of an operator, and the nodes of its picture that are this step."""

    text: str
    ids: list[str]


class StepRow(TypedDict):
    """Steps that belong together, one of each operator or none; ``words`` say the ``mark``."""

    mark: str
    words: str
    cells: list[StepCell | None]


class NumberCell(TypedDict):
    """A value; ``ratio`` says how many times the first operator's it is, where both are known numbers."""

    text: str
    ratio: str


class NumberRow(TypedDict):
    """A value of each operator, and whether what is known of them differs."""

    group: str
    title: str
    cells: list[NumberCell]
    differs: bool


def columns_and_rows(subjects: Sequence[Subject]) -> tuple[list[Column], list[StepRow]]:
    """The pictures, and the steps in rows. Raises SynoError when the layout program is missing."""
    traced = [one.session.state if one.session is not None else one.operator for one in subjects]
    aligned = align(trace_all([one.format for one in subjects], traced))
    columns: list[Column] = []
    for number, one in enumerate(subjects):
        columns.append(
            {
                "letter": LETTERS[number],
                "name": one.name,
                "system": find_system(one.format).title,
                "about": str(one.operator) if one.session is None else one.session.status(_STATUS_S),
                **_picture(one),
                "marks": _marks(aligned, number),
            }
        )
    return columns, [_shown(row) for row in aligned]


def _picture(subject: Subject) -> Drawn:
    if subject.operator is None:
        assert subject.session is not None
        picture = subject.session.picture()
        nodes: Any = {name: {"lines": [], "marks": [], **node} for name, node in plain(picture.nodes).items()}
        return {"svg": picture.svg, "description": picture.description, "links": nodes}
    data = read_pane(Asked(subject.operator, subject.name), "graph")
    return {"svg": data["svg"], "description": data["description"], "links": data["links"]}


def _marks(rows: Sequence[AlignedRow], number: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: _STRONGEST.index(row.mark), reverse=True):
        cell = row.cells[number]
        if cell is not None:
            found.update(dict.fromkeys(cell.ids, row.mark))
    return {name: mark for name, mark in found.items() if mark != "same"}


def _shown(row: AlignedRow) -> StepRow:
    letters = ", ".join(LETTERS[number] for number in row.there)
    words = {"same": "same", "some": f"same in {letters}", "differs": "differs", "only": f"only {letters}"}[row.mark]
    cells = [None if cell is None else StepCell(text=cell.words, ids=list(cell.ids)) for cell in row.cells]
    return {"mark": row.mark, "words": words, "cells": cells}


# -- the table ---------------------------------------------------------------------------------------------------------


def table_row(group: str, title: str, values: Sequence[float | str | None]) -> NumberRow:
    """One line of the table."""
    first = values[0]
    cells: list[NumberCell] = []
    for number, value in enumerate(values):
        ratio = ""
        if number and _is_number(value) and _is_number(first) and first:
            ratio = f"{float(value) / float(first):.3g} x"  # type: ignore[arg-type]
        cells.append({"text": _text(value), "ratio": ratio})
    known = {cell["text"] for cell in cells} - {NOTHING}
    return {"group": group, "title": title, "cells": cells, "differs": len(known) > 1}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _text(value: float | str | None) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else value


def cost_rows(subjects: Sequence[Subject], sizes: Mapping[str, int]) -> list[NumberRow]:
    """Shapes, FLOPs, parameters, memory and weights at these sizes."""
    found: list[list[Any]] = []
    for one in subjects:
        if one.operator is None:
            found.append([None] * 6)
            continue
        bound, operator = sizes_of(one.operator, sizes), one.operator
        shapes = [_shape(operator.input_sizes(bound)), _shape(operator.output_sizes(bound))]
        costs = [operator.flops(bound), operator.params(bound), operator.memory(bound)]
        found.append([*shapes, *costs, len(operator.weight_sizes(bound))])
    titles = ("input", "output", "FLOPs", "parameters", "memory [bytes]", "weights")
    return [table_row("Costs", title, values) for title, values in zip(titles, zip(*found, strict=True), strict=True)]


def _shape(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes))


def reach_rows(
    subjects: Sequence[Subject], sizes: Mapping[str, int], should_stop: Stop | None = None
) -> list[NumberRow]:
    """How many elements of each input axis the output element in the middle reads.

    Axes are put in a row by their place; an operator whose system cannot tell has :data:`NOTHING`. Raises StoppedError
    when it was told to stop.
    """
    found: list[list[AxisRead]] = []
    for one in subjects:
        axes: list[AxisRead] = []
        if one.operator is not None and "reach" in panes_of(one.operator):
            bound = tuple(sizes_of(one.operator, sizes).items())
            try:
                axes = read_pane(Asked(one.operator, one.name, bound, should_stop=should_stop), "reach")["axes"]
            except StoppedError:
                raise
            except SynoError:  # too large to look at every element, or no gradients
                axes = []
        found.append(axes)
    rows = []
    for axis in range(max(map(len, found), default=0)):
        there = [axes[axis] if axis < len(axes) else None for axes in found]
        title = " / ".join(dict.fromkeys(str(one["size"]) for one in there if one is not None))
        cells = [None if one is None else _read(one) for one in there]
        rows.append(table_row("Receptive field", f"reads of {title}", cells))
    return rows


def _read(axis: AxisRead) -> str:
    wide = f", over {axis['extent']}" if axis["extent"] != axis["reads"] else ""
    return f"{axis['reads']} of {axis['number']}{wide}"


# -- one picture -------------------------------------------------------------------------------------------------------

_GAP, _HEAD = 24, 22
_BOX = re.compile(r'viewBox="([-0-9. ]+)"')
_IDS = re.compile(r'\s(?:id|role|aria-label)="[^"]*"')


def side_by_side(pictures: Sequence[tuple[str, str]]) -> str:
    """SVG elements beside each other as one, each below its name; ``pictures`` has the name and the SVG of each."""
    parts, across, down = [], 0.0, 0.0
    for name, svg in pictures:
        width, height = map(float, _BOX.search(svg)[1].split()[2:])  # type: ignore[index]
        head, rest = svg[svg.index("<svg") :].split(">", 1)
        box = _BOX.search(head)[0]  # type: ignore[index]
        opened = f'<svg xmlns="http://www.w3.org/2000/svg" x="{across:g}" y="{_HEAD}" width="{width:g}"'
        parts.append(
            f'<text x="{across + width / 2:g}" y="15" text-anchor="middle" font-family="sans-serif" font-size="14" '
            f'fill="#767680">{escape(name)}</text>{opened} height="{height:g}" {box}>{_IDS.sub("", rest)}'
        )
        across, down = across + width + _GAP, max(down, height)
    full = f"{across - _GAP:g}", f"{down + _HEAD:g}"
    return titled(*full, f"0 0 {full[0]} {full[1]}", " and ".join(name for name, _ in pictures), parts)
