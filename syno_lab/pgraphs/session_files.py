"""The places of pGraphs' sessions as records for a file (:mod:`syno_lab.sessions.text`).

Coordinates are numbered along the way to a place as in operator files: the output axes first, then the results of each
step.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from syno_lab.errors import FormatError
from syno_lab.inputs import quoted
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.files import StepRecord, check_meaning, meaning_of
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.sessions.construction import Construction, Place, Reader, Records
from syno_lab.sessions.text import head_of
from syno_lab.synthesis.candidates import Candidate
from syno_lab.synthesis.fields import SpecFields


class PlaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.text.PlaceRecord`; of an operator that was given ``match`` has the coordinates of the input axes."""

    parent: int | None = None
    step: StepRecord | None = None
    spec: int | None = None
    note: str = ""
    match: list[int] | None = None
    comment: str = ""


class SessionRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.text.SessionRecord`."""

    format: str
    version: int
    specs: list[SpecFields]
    places: list[PlaceRecord]
    place: int = 0
    turns: list[int] = []
    rules: list[str] = []


def records(places: Sequence[Place[State, Step]]) -> Records:
    """See :meth:`.Construction.records`."""
    specs: list[Spec] = []
    found = []
    coordinates: list[tuple[Coordinate, ...]] = []
    for entry in places:
        if entry.step is None:
            if entry.state.spec not in specs:
                specs.append(entry.state.spec)
            numbered = entry.state.output
            record = PlaceRecord(spec=specs.index(entry.state.spec))
        else:
            assert entry.parent is not None
            numbered = coordinates[entry.parent]
            record = PlaceRecord(step=_step_record(entry.step, numbered))
            numbered += places[entry.parent].state.results(entry.step)
        if entry.operator is not None:
            record.match = [numbered.index(c) for c in entry.operator.inputs]
        coordinates.append(numbered)
        found.append(record)
    return Records([[SpecFields.from_spec(spec) for spec in specs]], found)


def _step_record(step: Step, numbered: tuple[Coordinate, ...]) -> StepRecord:
    return StepRecord(
        step.primitive,
        [numbered.index(c) for c in step.operands],
        [numbered.index(c) for c in step.given],
        None if step.parameter is None else str(step.parameter),
        meaning_of(step.primitive),
    )


def reader(record: SessionRecord, construction: Construction[State, Step, Candidate]) -> Reader[State, Step]:
    """See :meth:`.Construction.reader`."""
    specs = [fields.spec() for fields in record.specs]
    coordinates: list[tuple[Coordinate, ...]] = []

    def read(one: PlaceRecord, before: Sequence[Place[State, Step]], where: str) -> Place[State, Step]:
        step: Step | None = None
        spec = head_of(one.parent, one.step is not None, one.spec, specs, "a spec", where)
        if spec is not None:
            state = State.root(spec)
            numbered = state.output
        elif one.step is not None:
            last, numbered = before[one.parent or 0].state, coordinates[one.parent or 0]
            check_meaning(one.step, f"session: {where}")
            parameter = one.step.parameter
            step = Step(
                one.step.primitive,
                _looked_up(one.step.operands, numbered, where),
                None if parameter is None else last.spec.symbols.size(parameter),
                _looked_up(one.step.given, numbered, where),
            )
            state = last.apply(step)
            numbered += last.results(step)
        coordinates.append(numbered)
        operator = None
        if one.match is not None:
            inputs = _looked_up(one.match, numbered, where)
            if not state.is_match(inputs):
                raise FormatError(f"session: {where}: match: expected one data coordinate for each input axis")
            operator = Operator(state, inputs)
        return Place(construction, state, step, operator=operator)

    return read


def _looked_up(numbers: list[int], numbered: tuple[Coordinate, ...], where: str) -> tuple[Coordinate, ...]:
    for number in numbers:
        if not 0 <= number < len(numbered):
            most = len(numbered) - 1
            raise FormatError(f"session: {where}: expected a coordinate from 0 to {most}, found {quoted(number)}")
    return tuple(numbered[number] for number in numbers)
