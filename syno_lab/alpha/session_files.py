"""Sessions of αNAS as JSON (:mod:`syno_lab.history`): steps, and what is wanted of the chains.

A file holds data alone. What is wanted stands as the text of a properties file, an operator that was given as that of
its own file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab.alpha import files
from syno_lab.alpha.changes import Change
from syno_lab.alpha.files import NodeRecord, operation_of, record_of_operation
from syno_lab.alpha.operator import FORMAT as OPERATOR_FILE
from syno_lab.alpha.operator import NetworkOperator
from syno_lab.alpha.operator import from_json as read_operator
from syno_lab.alpha.synthesis import Draft
from syno_lab.alpha.wanted import Properties
from syno_lab.errors import FormatError, SynoError
from syno_lab.history import MAX_BYTES, MAX_NOTE, replayed, text_of
from syno_lab.inputs import positive, quoted
from syno_lab.versioned import read_versioned

if TYPE_CHECKING:
    from syno_lab.alpha.session import AlphaSession, Entry

FORMAT = "syno-lab-alpha-session"
VERSION = 1


class _Aim(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.Draft`."""

    properties: str
    input_shape: list[int]
    others: list[tuple[list[int], list[int] | None]] = []


class _Change(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.Change`."""

    name: str
    value: list[int] | int | str | None
    entry: tuple[int, int] | None = None


class _PlaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One place of the history: behind ``parent`` by an operation or a change, or a beginning with an aim.

    Attributes:
        parent: the number of the place before; None for the first.
        operation: that was appended.
        change: of what is wanted.
        aim: of a beginning.
        note: of a beginning.
        operator: the operator file of an operator that was given and ends here.
        comment: what the user wrote about it.
    """

    parent: int | None = None
    operation: NodeRecord | None = None
    change: _Change | None = None
    aim: _Aim | None = None
    note: str = ""
    operator: str | None = None
    comment: str = ""


class _Session(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A session of version 1: see :class:`syno_lab.synthesis.session_text.SessionRecord`."""

    format: str
    version: int
    places: list[_PlaceRecord]
    place: int = 0
    turns: list[int] = []
    rules: list[str] = []


def to_json(session: AlphaSession) -> str:
    """The whole session, with all branches and the place that is shown."""
    records = list(map(_record, session.places))
    found = _Session(FORMAT, VERSION, records, session.place, session.turns, session.rule_names)
    return msgspec.json.encode(found).decode()


def _record(entry: Entry) -> _PlaceRecord:
    operator = None if entry.operator is None else entry.operator.to_json()
    found = _PlaceRecord(entry.parent, operator=operator, comment=entry.comment)
    step, state = entry.step, entry.state
    if step is None:
        others = [(list(shape), None if goal is None else list(goal)) for shape, goal in state.others]
        found.aim, found.note = _Aim(state.properties.to_json(), list(state.input_shape), others), entry.note
    elif isinstance(step, Change):
        value: Any = list(step.value) if isinstance(step.value, tuple) else step.value
        found.change = _Change(step.name, value, step.entry)
    else:
        found.operation = record_of_operation(step)
    return found


def read_session(text: str, known: Mapping[str, Callable[[], Any]] | None = None) -> AlphaSession:
    """The session of a text: of :func:`to_json`, the same in one word, or an operator or graph file that is a chain.

    Args:
        text: what was kept or pasted.
        known: operators that the session loads by name.

    Raises:
        FormatError: one line: what was expected, what was found and where.
    """
    from syno_lab.alpha.session import AlphaSession

    text = text_of(text)
    try:
        for name, read in ((OPERATOR_FILE, read_operator), (files.FORMAT, files.from_json)):
            if f'"{name}"' in text[:200]:
                return AlphaSession(read(text), known)
        record = read_versioned(text, _Session, what="session", name=FORMAT, version=VERSION, most=MAX_BYTES)
        entries = replayed(record.places, _entry)
        return AlphaSession.restored(entries, record.turns, record.place, known, record.rules)
    except FormatError:
        raise
    except SynoError as error:
        raise FormatError(f"session: {error}") from None


def _entry(record: _PlaceRecord, before: list[Entry], where: str) -> Entry:
    from syno_lab.alpha.session import Entry

    given = [one for one in (record.operation, record.change, record.aim) if one is not None]
    if len(given) != 1 or (record.parent is None and record.aim is None):
        raise FormatError(f"session: {where}: expected one of an operation, a change and an aim, the first an aim")
    if record.aim is not None:
        start = _draft(record.aim, where)
        return Entry(start, None, record.note[:MAX_NOTE], _operator(record, start, where))
    state: Draft = before[record.parent or 0].state
    if record.change is not None:
        value = record.change.value
        change = Change(record.change.name, tuple(value) if isinstance(value, list) else value, record.change.entry)  # type: ignore[arg-type]  # checked by apply
        after = change.apply(state)
        return Entry(after, change, operator=_operator(record, after, where))
    assert record.operation is not None
    operation = operation_of(record.operation)
    after = state.apply(operation)
    return Entry(after, operation, operator=_operator(record, after, where))


def _draft(aim: _Aim, where: str) -> Draft:
    for shape in (aim.input_shape, *(one for pair in aim.others for one in pair if one is not None)):
        if len(shape) < 2 or not all(map(positive, shape)):
            raise FormatError(f"session: {where}: expected a shape such as [1, 8, 8, 16], found {quoted(shape)}")
    others = tuple([(tuple(shape), None if goal is None else tuple(goal)) for shape, goal in aim.others])
    return Draft(Properties.from_json(aim.properties), tuple(aim.input_shape), others=others)


def _operator(record: _PlaceRecord, state: Draft, where: str) -> NetworkOperator | None:
    """The operator that was given, if it is the chain that leads here."""
    if record.operator is None:
        return None
    operator = read_operator(record.operator)
    graph = operator.graph
    chain = tuple([node.operation for node in graph.nodes])
    if not graph.is_chain or (graph.inputs[0], chain) != (state.input_shape, state.chain):
        raise FormatError(f"session: {where}: expected an operator of the operations before it, found another one")
    return operator
