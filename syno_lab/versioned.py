"""Files of JSON with a header: ``format`` says what they are, ``version`` which reader they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

from syno_lab.errors import FormatError
from syno_lab.inputs import printable, quoted, read_text, shortened

_Record = TypeVar("_Record", bound=msgspec.Struct)
#: Plain data: what JSON, a browser and the cells of tables hold.
JSON: TypeAlias = "str | float | Sequence[JSON] | Mapping[str, JSON] | None"
_LONG = 240  # characters of a decoder's message


class _Header(msgspec.Struct):
    format: str = ""
    version: int | None = None


def read_small(path: Path, limit: int) -> str:
    """The text of a file of at most ``limit`` bytes.

    Raises FormatError when it is larger, cannot be read, or is not UTF-8.
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
    """The record in a file; its header is looked at first, so that a newer file is not called a broken one.

    Args:
        text: of the file.
        record: what it holds, with the fields ``format`` and ``version`` among others.
        what: begins each message: ``operator file``.
        name: the expected ``format``.
        version: the expected ``version``.
        most: bytes (characters of a string) that are read; a longer text is refused before it is parsed.

    Raises FormatError, one line: what was expected, what was found and where.
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
    """The message of a decoder on one line: it quotes names from the file, which may hold any character."""
    said = shortened(str(error))[:_LONG]
    return printable("".join(c if c.isprintable() else repr(c)[1:-1] for c in said), _LONG)
