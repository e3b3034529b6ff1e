"""A session as text: JSON for files, and the same JSON in one word to paste; all systems share the format.

A file contains data only. Reading a file repeats each step, with the same checks as for a step by hand. The system's
:class:`.Construction` defines how steps and beginnings are written.
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
#: The limit of a session's JSON in bytes, and the limit of a note in letters.
MAX_BYTES, MAX_NOTE = 1 << 22, 80
PREFIX = "syno-session:"


class PlaceRecord(Protocol):
    """The record of one place: a step after ``parent``, or a beginning. Each system has its own class of records.

    Attributes:
        parent: the number of the parent; None for the first place.
        note: the note of a beginning.
        comment: the user's comment about the place.

    A system's record may also have a ``step``, and for a beginning the index of its ``spec`` or ``aim`` in the
    session's list. The field ``operator`` is the JSON of an operator whose last step leads to this place.
    """

    parent: int | None
    note: str
    comment: str


P = TypeVar("P", bound=PlaceRecord)


class SessionRecord(msgspec.Struct, Generic[P], forbid_unknown_fields=True, omit_defaults=True):
    """The record of a session; a system's own class may have a list of specs or aims before ``places``.

    Attributes:
        format: the format of the system's sessions.
        version: the version of the format.
        places: all places; each place comes after its parent.
        place: the number of the shown place.
        turns: the places that redo goes to although the parent has a newer child.
        rules: the names of the user's own rules in this session; the code of the rules is not stored.
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
    """Return entry ``number`` of ``heads``, None for a step. Raises FormatError for a number and a step, or neither."""
    if has_step:
        if parent is None or number is not None:
            raise FormatError(f"session: {where}: expected a step after a place, or {what}, found both")
        return None
    if number is None or not 0 <= number < len(heads):
        raise FormatError(f"session: {where}: expected a step, or {what} from 0 to {len(heads) - 1}")
    return heads[number]


def check_operator(is_same: bool, where: str) -> None:
    """Raise FormatError unless a record's operator is the operator of the steps to the record's place."""
    if not is_same:
        raise FormatError(f"session: {where}: expected an operator of the steps before it, found another one")


def to_json(session: Session) -> str:
    """Write the session as JSON, with all branches and the number of the shown place."""
    construction = session.construction
    heads, records = construction.records(session.places)
    for record, entry in zip(records, session.places, strict=True):
        record.parent, record.comment = entry.parent, entry.comment
        record.note = entry.note if entry.step is None else ""
    session_record = construction.record(
        construction.format, VERSION, *heads, records, session.place, session.turns, session.rule_names
    )
    return msgspec.json.encode(session_record).decode()


def word_of(text: str) -> str:
    """Write the JSON of a session as one word of letters and digits, for a chat or an address: ``syno-session:…``."""
    packed = zlib.compress(text.encode(), 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def text_of(text: str) -> str:
    """Return the JSON that a word encodes, or a text that is JSON already. Raises FormatError for any other text."""
    text = text.strip()
    if text.startswith(PREFIX):
        return _unpacked(text.removeprefix(PREFIX))
    if not text.startswith("{"):
        start = repr(text[:20]) if text else "nothing"
        raise FormatError(f"session: expected {PREFIX}…, or JSON of a session or an operator, found {start}")
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
    """Return the ``format`` of a JSON text; empty if it has none."""
    try:
        return msgspec.json.decode(text, type=_Header).format if len(text) <= MAX_BYTES else ""
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""


def read(text: str, construction: Construction[Any, Any, Any]) -> SessionRecord[Any]:
    """Parse the JSON of a session to a record. Raises FormatError with one line."""
    name = construction.format
    return read_versioned(text, construction.record, what="session", name=name, version=VERSION, most=MAX_BYTES)


def replayed(records: Sequence[PlaceRecord], read: Reader[Any, Any], most: int, letters: int) -> list[Place[Any, Any]]:
    """Make the places of a session from their records, in order.

    Args:
        records: the records; each ``parent`` is the number of an earlier place, and the first record has none.
        read: a function that makes a place from a record.
        most: the limit of the number of places.
        letters: the limit of letters in a comment; a longer comment is cut.

    Raises FormatError with one line: the expected value, the found value and the position.
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
