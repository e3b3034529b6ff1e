"""JSON files with a header: ``format`` is the name of the file format, and ``version`` is the format's version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

from syno_lab.errors import FormatError
from syno_lab.inputs import printable, quoted, read_text, shortened

_Record = TypeVar("_Record", bound=msgspec.Struct)
#: Plain data: the values of JSON, of messages to a browser and of table cells.
JSON: TypeAlias = "str | float | Sequence[JSON] | Mapping[str, JSON] | None"
_LONG = 240  # the largest number of characters of a decoder's message


class _Header(msgspec.Struct):
    format: str = ""
    version: int | None = None


def read_small(path: Path, limit: int) -> str:
    """Read a text file of at most ``limit`` bytes.

    Raises FormatError if the file is larger, cannot be read, or is not UTF-8.
    """
    try:
        return read_text(path, limit)
    except OSError as error:
        raise FormatError(f"{path}: expected a readable file, found: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FormatError(f"{path}: expected text in UTF-8, found other bytes") from None


def read_versioned(
    text: str | bytes, record: type[_Record], *, what: str, name: str, version: int, most: int
) -> _Record:
    """Read the record in a file; check the header first, so that the message can name a newer version.

    Args:
        text: the text of the file.
        record: the type of the record, with the fields ``format`` and ``version`` among others.
        what: the beginning of each message, such as ``operator file``.
        name: the expected ``format``.
        version: the expected ``version``.
        most: the largest number of bytes (for a string: characters); a longer text is refused before it is parsed.

    Raises FormatError; its line names the expected value, the found value, and where it was found.
    """
    if len(text) > most:
        raise FormatError(f"{what}: expected at most {most} bytes, found {len(text)}")
    try:
        header = msgspec.json.decode(text, type=_Header)
        if header.format != name:
            raise FormatError(f"{what}: expected format {quoted(name)}, found {quoted(header.format)}")
        if header.version != version:
            raise FormatError(
                f"{what}: expected version {version}, found {quoted(header.version)}; use the Syno Lab that wrote it"
            )
        return msgspec.json.decode(text, type=record)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise FormatError(f"{what}: expected JSON of {name} version {version}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Return the message of a decoder on one line, without control characters from the file."""
    message = shortened(str(error))[:_LONG]
    return printable("".join(c if c.isprintable() else repr(c)[1:-1] for c in message), _LONG)
