"""A session as text: JSON to keep, and the same in one word to paste and reopen; one format for all systems.

A file holds data alone: reading one replays each step through the checks that steps by hand go through. How a system
writes its steps and what its sessions begin with is in its :class:`.Construction`.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from syno_lab.errors import FormatError, SynoError
from syno_lab.inputs import quoted
from syno_lab.sessions.construction import Construction, Place, Reader
from syno_lab.versioned import read_versioned

if TYPE_CHECKING:
    from syno_lab.sessions.session import Session

VERSION = 1
#: Bytes of the JSON of a session; letters of a note.
MAX_BYTES, MAX_NOTE = 1 << 22, 80
PREFIX = "syno-session:"


class PlaceRecord(Protocol):
    """One place: behind ``parent`` by a step, or a beginning; a system's own record says which.

    Attributes:
        parent: the number of the place before; None for the first.
        note: of a beginning.
        comment: what the user wrote about it.

    Beside these it may have the ``step``, the ``spec`` or ``aim`` of a beginning, by its number in the session's list,
    and the ``operator`` that was given and ends there, as the text of its file.
    """

    parent: int | None
    note: str
    comment: str


P = TypeVar("P", bound=PlaceRecord)


class SessionRecord(msgspec.Struct, Generic[P], forbid_unknown_fields=True, omit_defaults=True):
    """A session; a system's own record may have a list of heads, which beginnings refer to, before the places.

    Attributes:
        format: of the system's sessions.
        version: of the format.
        places: all of them, each behind one before it.
        place: the number of the one that is shown.
        turns: the places that redo goes to although their parents have newer ones.
        rules: the names of rules of the user's own that refused steps; their code is not kept.
    """

    format: str
    version: int
    places: list[P]
    place: int = 0
    turns: list[int] = []
    rules: list[str] = []


class _Header(msgspec.Struct):
    format: str = ""


H = TypeVar("H")


def head_of(
    parent: int | None, has_step: bool, number: int | None, heads: Sequence[H], what: str, where: str
) -> H | None:
    """A beginning's head, by its number; None for a step behind a place. Raises FormatError for both and neither."""
    if has_step:
        if parent is None or number is not None:
            raise FormatError(f"session: {where}: expected a step behind a place, or {what}, found both")
        return None
    if number is None or not 0 <= number < len(heads):
        raise FormatError(f"session: {where}: expected a step, or {what} from 0 to {len(heads) - 1}")
    return heads[number]


def check_operator(is_same: bool, where: str) -> None:
    """Raise FormatError where an operator that was given is not the one of the steps that lead to its place."""
    if not is_same:
        raise FormatError(f"session: {where}: expected an operator of the steps before it, found another one")


def to_json(session: Session) -> str:
    """The whole session, with all branches and the place that is shown."""
    construction = session.construction
    heads, records = construction.records(session.places)
    for record, entry in zip(records, session.places, strict=True):
        record.parent, record.comment = entry.parent, entry.comment
        record.note = entry.note if entry.step is None else ""
    found = construction.record(
        construction.format, VERSION, *heads, records, session.place, session.turns, session.rule_names
    )
    return msgspec.json.encode(found).decode()


def word_of(text: str) -> str:
    """The JSON of a session in one word of letters and digits, for a chat or an address: ``syno-session:…``."""
    packed = zlib.compress(text.encode(), 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def text_of(text: str) -> str:
    """The JSON of a word, or of a text that is JSON. Raises FormatError: one line: what was expected and found."""
    text = text.strip()
    if text.startswith(PREFIX):
        return _unpacked(text.removeprefix(PREFIX))
    if not text.startswith("{"):
        found = repr(text[:20]) if text else "nothing"
        raise FormatError(f"session: expected {PREFIX}…, or JSON of a session or an operator, found {found}")
    return text


def _unpacked(word: str) -> str:
    try:
        packed = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(packed, MAX_BYTES)
        if unpacking.unconsumed_tail:
            raise FormatError(f"session: expected at most {MAX_BYTES} bytes, found more")
        if not unpacking.eof:
            raise FormatError("session: the text breaks off; copy all of it")
        return text.decode()
    except (binascii.Error, zlib.error, ValueError) as error:
        raise FormatError(f"session: the text behind {PREFIX} is damaged: {error}") from None


def named(text: str) -> str:
    """The ``format`` of a JSON text; empty where it has none."""
    try:
        return msgspec.json.decode(text, type=_Header).format if len(text) <= MAX_BYTES else ""
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""


def read(text: str, construction: Construction[Any, Any, Any]) -> SessionRecord[Any]:
    """The record of a session's JSON. Raises FormatError: one line."""
    found: SessionRecord[Any] = read_versioned(
        text, construction.record, what="session", name=construction.format, version=VERSION, most=MAX_BYTES
    )
    return found


def replayed(records: Sequence[PlaceRecord], read: Reader[Any, Any], most: int, letters: int) -> list[Place[Any, Any]]:
    """The places of their records, in order.

    Args:
        records: each with the number of a place before it as its ``parent``; the first without one.
        read: makes a place of a record.
        most: of them.
        letters: of a comment that are kept.

    Raises FormatError, one line: what was expected, what was found and where.
    """
    if not 0 < len(records) <= most:
        raise FormatError(f"session: places: expected from 1 to {most}, found {len(records)}")
    entries: list[Place[Any, Any]] = []
    for number, record in enumerate(records):
        where = f"place {number}"
        parent = record.parent
        if (parent is None) != (number == 0) or not 0 <= (parent or 0) < max(1, number):
            raise FormatError(f"session: {where}: expected a place before it as its parent, found {quoted(parent)}")
        try:
            entry = read(record, entries, where)
        except FormatError:
            raise
        except SynoError as error:
            raise FormatError(f"session: {where}: {error}") from None
        note = record.note[:MAX_NOTE] if entry.step is None else ""
        entries.append(replace(entry, note=note, number=number, parent=parent, comment=record.comment[:letters]))
    return entries
