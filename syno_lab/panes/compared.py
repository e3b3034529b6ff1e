"""Compare several operators, as plain data: pictures, aligned steps, costs and receptive fields.

An unfinished operator (a place of a stepper's session) can be compared too; it has only a picture and steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypedDict

from syno_lab.drawing.style import LINE
from syno_lab.drawing.svg import titled
from syno_lab.effort import Stop
from syno_lab.errors import SpecError, StoppedError, SynoError
from syno_lab.panes import MOST_NAME, Asked, panes_of, read_pane
from syno_lab.panes.aligned import AlignedRow, align, trace_all
from syno_lab.panes.data import AxisRead, Link
from syno_lab.panes.layers import Places, layers_of
from syno_lab.protocol import Operator
from syno_lab.sessions.session import Session, session_of
from syno_lab.sessions.shown import plain
from syno_lab.systems import Named, find_system, named, operator_of, system_for, system_of

#: The least and the largest number of operators in a comparison.
FEWEST, MOST = 2, 4
LETTERS = "ABCD"
#: The text of an empty cell.
NOTHING = "–"
#: The longest time in seconds to compute the status of an unfinished operator.
_STATUS_S = 0.3
_STRONGEST = ("differs", "only", "some", "same")


@dataclass(frozen=True)
class Subject:
    """An operator in a comparison.

    Attributes:
        name: the displayed name.
        format: the format of its system.
        operator: the operator; None for an unfinished operator.
        session: the session that has reached an unfinished operator; None for a complete operator.
        places: of a trial, the layers that it replaces.
    """

    name: str
    format: str
    operator: Operator | None
    session: Session | None = None
    places: Places = ()


def subjects_of(
    values: Sequence[Any], names: Sequence[str] | None = None, folder: str | Path | None = None
) -> tuple[Subject, ...]:
    """Return the operators of a comparison and their names: the given names, else of trials or equal known operators.

    ``folder`` is the lab of the trials among ``values``; None: the default lab.

    Raises SynoError for fewer than two or more than four values, for another number of names, and for a value that is
    no operator, no name of one (:func:`.named`), and no file, text or state of an operator.
    """
    if not FEWEST <= len(values) <= MOST:
        raise SpecError(f"compare: expected {FEWEST} to {MOST} operators, found {len(values)}")
    if names is not None and len(names) != len(values):
        raise SpecError(f"compare: expected a name for each of {len(values)} operators, found {len(names)}")
    return tuple([_subject(value, names[number] if names else "", folder) for number, value in enumerate(values)])


def _subject(value: Any, name: str, folder: str | Path | None) -> Subject:
    found = named(value, folder) if isinstance(value, str | Path) else value
    label, value, places = found if isinstance(found, Named) else ("", found, ())
    name = name or (label if "#" in label else "")
    operator = operator_of(value)
    if operator is None:
        system, session = system_for(value), session_of(value)
        if not session.is_complete:
            return Subject(str(name or "unfinished")[:MOST_NAME], system.format, None, session)
        operator = session.operator
    system = system_of(operator)
    name = str(name or system.recognise(operator) or "operator")[:MOST_NAME]
    return Subject(name, system.format, operator, places=places)


def common_sizes(subjects: Sequence[Subject], binding: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return sizes of all variables for which every operator is legal.

    Args:
        subjects: the operators; unfinished operators are ignored.
        binding: requested sizes; other sizes are of the first layer of a trial among the operators, else the example
            sizes of one operator.

    Raises SpecError if a requested size does not fit an operator, or if no sizes fit all operators.
    """
    operators = [subject.operator for subject in subjects if subject.operator is not None]
    examples = [system_of(operator).example_binding(operator) for operator in operators]
    examples.sort(key=len, reverse=True)
    examples[:0] = [dict(subject.places[0][1]) for subject in subjects if subject.places]
    refused: SynoError | None = None
    for first in examples:
        sizes = {name: size for at in (*reversed(examples), first) for name, size in at.items()} | dict(binding or {})
        try:
            for operator in operators:
                bound = sizes_of(operator, sizes)
                operator.input_sizes(bound)
                operator.flops(bound)  # FLOPs need every loop's size, so this call refuses a fractional size
        except SynoError as error:
            refused = refused or error
        else:
            used = {name for operator in operators for name in operator.variables}
            return {name: size for name, size in sizes.items() if name in used}
    if refused is not None:
        raise SpecError(f"compare: no sizes that fit all operators; give a binding: {refused}")
    return {}


def common_layers(subjects: Iterable[Subject]) -> list[tuple[str, dict[str, int]]]:
    """Return the layers that all operators fit with equal sizes of variables; unfinished operators are ignored."""
    layers = [dict(layers_of(subject.operator)) for subject in subjects if subject.operator is not None]
    names = [name for name in layers[0] if all(name in others for others in layers)] if layers else []
    common = {name: dict(item for others in layers for item in others[name].items()) for name in names}
    return [(name, at) for name, at in common.items() if all(others[name].items() <= at.items() for others in layers)]


def sizes_of(operator: Operator, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the complete binding of one operator at the sizes of the comparison."""
    return operator.complete_binding({name: sizes[name] for name in operator.variables if name in sizes})


class Drawn(TypedDict):
    """The picture of an operator in a comparison; ``links`` are as in the pane ``graph``."""

    svg: str
    description: str
    links: dict[str, Link]


class Column(Drawn):
    """An operator in a comparison; ``about`` has the operator's shapes in symbols.

    ``marks`` has ``some``, ``differs`` or ``only`` for the nodes of the picture that are not the same in all operators.
    """

    letter: str
    name: str
    system: str
    about: str
    marks: dict[str, str]


class StepCell(TypedDict):
    """A step of an operator, and the ids of its nodes in the picture."""

    text: str
    ids: list[str]


class StepRow(TypedDict):
    """Corresponding steps, at most one of each operator; ``words`` is the text for the ``mark``."""

    mark: str
    words: str
    cells: list[StepCell | None]


class NumberCell(TypedDict):
    """A value of an operator; ``ratio`` is the value divided by the first operator's value, if these are numbers."""

    text: str
    ratio: str


class NumberRow(TypedDict):
    """A row of the table: a value of each operator, and whether the values differ; missing values do not count."""

    group: str
    title: str
    cells: list[NumberCell]
    differs: bool


def columns_and_rows(subjects: Sequence[Subject]) -> tuple[list[Column], list[StepRow]]:
    """Return the pictures and the aligned steps of operators. Raises SynoError when the layout program is missing."""
    traced = [subject.session.state if subject.session is not None else subject.operator for subject in subjects]
    aligned = align(trace_all([subject.format for subject in subjects], traced))
    columns: list[Column] = []
    for number, subject in enumerate(subjects):
        columns.append(
            {
                "letter": LETTERS[number],
                "name": subject.name,
                "system": find_system(subject.format).title,
                "about": str(subject.operator) if subject.session is None else subject.session.status(_STATUS_S),
                **_picture(subject),
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
    mark_of: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: _STRONGEST.index(row.mark), reverse=True):
        cell = row.cells[number]
        if cell is not None:
            mark_of.update(dict.fromkeys(cell.ids, row.mark))
    return {name: mark for name, mark in mark_of.items() if mark != "same"}


def _shown(row: AlignedRow) -> StepRow:
    letters = ", ".join(LETTERS[number] for number in row.there)
    words = {"same": "same", "some": f"same in {letters}", "differs": "differs", "only": f"only {letters}"}[row.mark]
    cells = [None if cell is None else StepCell(text=cell.words, ids=list(cell.ids)) for cell in row.cells]
    return {"mark": row.mark, "words": words, "cells": cells}


# -- the table ---------------------------------------------------------------------------------------------------------


def table_row(group: str, title: str, values: Sequence[float | str | None]) -> NumberRow:
    """Return a row of the table of costs, with the values as text."""
    first = values[0]
    cells: list[NumberCell] = []
    for number, value in enumerate(values):
        ratio = ""
        if number and _is_number(value) and _is_number(first) and first:
            ratio = f"{float(value) / float(first):.3g} x"  # type: ignore[arg-type]
        cells.append({"text": _text(value), "ratio": ratio})
    texts = {cell["text"] for cell in cells} - {NOTHING}
    return {"group": group, "title": title, "cells": cells, "differs": len(texts) > 1}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _text(value: float | str | None) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else value


def cost_rows(subjects: Sequence[Subject], sizes: Mapping[str, int]) -> list[NumberRow]:
    """Return rows of shapes, FLOPs, parameters, memory and weights of operators at the sizes ``sizes``."""
    values_of: list[list[Any]] = []
    for subject in subjects:
        if subject.operator is None:
            values_of.append([None] * 6)
            continue
        bound, operator = sizes_of(subject.operator, sizes), subject.operator
        shapes = [_shape(operator.input_sizes(bound)), _shape(operator.output_sizes(bound))]
        costs = [operator.flops(bound), operator.params(bound), operator.memory(bound)]
        values_of.append([*shapes, *costs, len(operator.weight_sizes(bound))])
    titles = ("input", "output", "FLOPs", "parameters", "memory [bytes]", "weights")
    return [table_row("Costs", title, row) for title, row in zip(titles, zip(*values_of, strict=True), strict=True)]


def _shape(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes))


def reach_rows(
    subjects: Sequence[Subject], sizes: Mapping[str, int], should_stop: Stop | None = None
) -> list[NumberRow]:
    """Return rows with the number of elements of each input axis that the middle output element reads.

    Row n has input axis n of every operator. :data:`NOTHING` is the cell of an operator whose system cannot count these
    elements. Raises StoppedError when ``should_stop`` returns True.
    """
    axes_of: list[list[AxisRead]] = []
    for subject in subjects:
        axes: list[AxisRead] = []
        if subject.operator is not None and "reach" in panes_of(subject.operator):
            bound = tuple(sizes_of(subject.operator, sizes).items())
            try:
                axes = read_pane(Asked(subject.operator, subject.name, bound, should_stop=should_stop), "reach")["axes"]
            except StoppedError:
                raise
            except SynoError:  # too many elements to check, or no gradients
                axes = []
        axes_of.append(axes)
    rows = []
    for axis in range(max(map(len, axes_of), default=0)):
        in_row = [axes[axis] if axis < len(axes) else None for axes in axes_of]
        title = " / ".join(dict.fromkeys(str(axis_read["size"]) for axis_read in in_row if axis_read is not None))
        cells = [None if axis_read is None else _read(axis_read) for axis_read in in_row]
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
    """Join SVG elements side by side, each below its name; ``pictures`` has each name and SVG."""
    parts, across, down = [], 0.0, 0.0
    for name, svg in pictures:
        width, height = map(float, _BOX.search(svg)[1].split()[2:])  # type: ignore[index]
        head, rest = svg[svg.index("<svg") :].split(">", 1)
        box = _BOX.search(head)[0]  # type: ignore[index]
        opened = f'<svg xmlns="http://www.w3.org/2000/svg" x="{across:g}" y="{_HEAD}" width="{width:g}"'
        parts.append(
            f'<text x="{across + width / 2:g}" y="15" text-anchor="middle" font-family="sans-serif" font-size="14" '
            f'fill="{LINE}">{escape(name)}</text>{opened} height="{height:g}" {box}>{_IDS.sub("", rest)}'
        )
        across, down = across + width + _GAP, max(down, height)
    full = f"{across - _GAP:g}", f"{down + _HEAD:g}"
    return titled(*full, f"0 0 {full[0]} {full[1]}", " and ".join(name for name, _ in pictures), parts)
