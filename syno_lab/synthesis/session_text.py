"""A session as text: JSON to keep, and the same in one word to paste and reopen.

A file holds data alone: reading one replays each step through the checks that steps by hand go through. Coordinates are
numbered along the way to a place as in operator files: the output axes first, then the results of each step.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from syno_lab.errors import FormatError, SynoError
from syno_lab.history import MAX_BYTES, MAX_NOTE, replayed, text_of, word_of
from syno_lab.inputs import quoted
from syno_lab.ir import files
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.files import StepRecord, check_meaning, from_json, meaning_of
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.fields import SpecFields
from syno_lab.synthesis.session import Entry, Known, Session
from syno_lab.versioned import read_versioned

FORMAT = "syno-lab-session"
VERSION = 1
_Session = TypeVar("_Session", bound=Session)


class PlaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One place: behind ``parent`` by ``step``, or the beginning of the spec with this number.

    Attributes:
        parent: the number of the place before; None for the first.
        step: what led to it; None for a beginning.
        spec: of a beginning.
        note: of a beginning.
        match: the coordinates of the input axes, where an operator was given that ends here.
        comment: what the user wrote about it.
    """

    parent: int | None = None
    step: StepRecord | None = None
    spec: int | None = None
    note: str = ""
    match: list[int] | None = None
    comment: str = ""


class SessionRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A session of version 1.

    Attributes:
        format: ``syno-lab-session``.
        version: of the format.
        specs: of the beginnings.
        places: all of them, each behind one before it.
        place: the number of the one that is shown.
        turns: the places that redo goes to although their parents have newer ones.
        rules: the names of rules of the user's own that refused steps; their code is not kept.
    """

    format: str
    version: int
    specs: list[SpecFields]
    places: list[PlaceRecord]
    place: int = 0
    turns: list[int] = []
    rules: list[str] = []


def to_json(session: Session) -> str:
    """The whole session, with all branches and the place that is shown."""
    return msgspec.json.encode(_record(session)).decode()


def to_word(session: Session) -> str:
    """:func:`to_json` in one word of letters and digits, for a chat or an address: ``syno-session:…``."""
    return word_of(to_json(session))


def read_session(text: str, known: Known | None = None, kind: type[_Session] = Session) -> _Session:  # type: ignore[assignment]
    """The session of a text: of :func:`to_json`, of :func:`to_word`, or an operator file, which is one line of steps.

    Args:
        text: what was kept or pasted.
        known: as for :class:`~syno_lab.synthesis.session.Session`.
        kind: the class of the session.

    Raises:
        FormatError: one line: what was expected, what was found and where.
    """
    text = text_of(text)
    if f'"{files.FORMAT}"' in text[:200]:
        return kind(from_json(text), known)
    record = read_versioned(text, SessionRecord, what="session", name=FORMAT, version=VERSION, most=MAX_BYTES)
    coordinates: list[tuple[Coordinate, ...]] = []

    def place(one: PlaceRecord, before: list[Entry], where: str) -> Entry:
        entry, numbered = _place(one, before, coordinates, specs, where)
        coordinates.append(numbered)
        return entry

    try:
        specs = [fields.spec() for fields in record.specs]
        return kind.restored(replayed(record.places, place), record.turns, record.place, known, record.rules)
    except FormatError:
        raise
    except SynoError as error:
        raise FormatError(f"session: {error}") from None


# -- writing -----------------------------------------------------------------------------------------------------------


def _record(session: Session) -> SessionRecord:
    specs: list[Spec] = []
    records = []
    coordinates: list[tuple[Coordinate, ...]] = []
    places = session.places
    for entry in places:
        if entry.step is None:
            if entry.state.spec not in specs:
                specs.append(entry.state.spec)
            numbered = entry.state.output
            record = PlaceRecord(entry.parent, None, specs.index(entry.state.spec), entry.note)
        else:
            assert entry.parent is not None
            numbered = coordinates[entry.parent]
            record = PlaceRecord(entry.parent, _step_record(entry.step, numbered))
            numbered += places[entry.parent].state.results(entry.step)
        record.comment = entry.comment
        if entry.operator is not None:
            record.match = [numbered.index(c) for c in entry.operator.inputs]
        coordinates.append(numbered)
        records.append(record)
    fields = [SpecFields.from_spec(spec) for spec in specs]
    return SessionRecord(FORMAT, VERSION, fields, records, session.place, session.turns, session.rule_names)


def _step_record(step: Step, numbered: tuple[Coordinate, ...]) -> StepRecord:
    return StepRecord(
        step.primitive,
        [numbered.index(c) for c in step.operands],
        [numbered.index(c) for c in step.given],
        None if step.parameter is None else str(step.parameter),
        meaning_of(step.primitive),
    )


# -- reading -----------------------------------------------------------------------------------------------------------


def _place(
    place: PlaceRecord,
    entries: list[Entry],
    coordinates: list[tuple[Coordinate, ...]],
    specs: list[Spec],
    where: str,
) -> tuple[Entry, tuple[Coordinate, ...]]:
    if place.step is None:
        if place.spec is None or not 0 <= place.spec < len(specs):
            raise FormatError(f"session: {where}: expected a step, or a spec from 0 to {len(specs) - 1}")
        state, step, note = State.root(specs[place.spec]), None, place.note[:MAX_NOTE]
        numbered = state.output
    else:
        if place.parent is None or place.spec is not None:
            raise FormatError(f"session: {where}: expected a step behind a place, or a spec, found both")
        before, numbered, note = entries[place.parent].state, coordinates[place.parent], ""
        item = place.step
        check_meaning(item, f"session: {where}")
        step = Step(
            item.primitive,
            _looked_up(item.operands, numbered, where),
            None if item.parameter is None else before.spec.symbols.size(item.parameter),
            _looked_up(item.given, numbered, where),
        )
        state = before.apply(step)
        numbered += before.results(step)
    operator = None
    if place.match is not None:
        inputs = _looked_up(place.match, numbered, where)
        if not state.is_match(inputs):
            raise FormatError(f"session: {where}: match: expected one data coordinate for each input axis")
        operator = Operator(state, inputs)
    return Entry(state, step, note, operator), numbered


def _looked_up(numbers: list[int], numbered: tuple[Coordinate, ...], where: str) -> tuple[Coordinate, ...]:
    for number in numbers:
        if not 0 <= number < len(numbered):
            most = len(numbered) - 1
            raise FormatError(f"session: {where}: expected a coordinate from 0 to {most}, found {quoted(number)}")
    return tuple(numbered[number] for number in numbers)
