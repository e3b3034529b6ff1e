"""Limits for data from outside: numbers and files that are read, and text that is shown.

The functions here refuse a number of 5,000 digits or an endless file, and replace control characters that move a
terminal's cursor. See ``docs/security.md``.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection, Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

#: The most digits of an integer that is read; a machine's own integers have 19.
MOST_DIGITS = 18
#: The largest number of elements along an axis; no machine can index more.
LARGEST_SIZE = 2**63 - 1
#: The most characters of an input that a message quotes.
QUOTED = 80
_LONGEST_NAME = 200  # The most bytes of a name; file systems allow 255.
_BEGIN_FORMULAS = frozenset("=+-@\t\n＝＋－＠")  # Spreadsheets run formulas with full-width signs too.
_LONG_WORD = re.compile(rf"[^'\s]{{{QUOTED + 1},}}|[^'\n]{{{QUOTED + 1},}}(?=')")


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Sort ``names`` by their :func:`likeness` to ``name``, the most similar first."""
    return sorted(names, key=lambda candidate: -likeness(name, candidate))


def likeness(one: str, other: str) -> float:
    """Return the similarity of two names, from 0 to 1, ignoring case and punctuation."""
    from difflib import SequenceMatcher

    first, second = ("".join(filter(str.isalnum, text[:QUOTED].lower())) for text in (one, other))
    return SequenceMatcher(None, first, second).ratio()


def integer(text: str) -> int | None:
    """Convert decimal digits to an integer; None for any other text, and for more than `MOST_DIGITS` digits.

    >>> integer("28"), integer("-1"), integer("9" * 5000)
    (28, None, None)
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None


def positive(value: object) -> int | None:
    """Convert ``value`` to an integer of 1 or more, also NumPy's; None for any other value, and from 10**18 on.

    >>> positive(28), positive(True), positive(2.0), positive(10**18)
    (28, None, None, None)
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        return None
    number = int(value)
    return number if 1 <= number < 10**MOST_DIGITS else None


def printable(text: str, most: int | None = None) -> str:
    """Replace each character that is not printable (ESC, BEL, U+202E, a line break, …), and cut the text to ``most``.

    The function raises no exception.
    """
    cut = text if most is None or len(text) <= most else text[: max(0, most - 1)] + "…"
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in cut)


def shortened(text: str) -> str:
    """Cut each word and each quotation in the message of an external parser to `QUOTED` characters."""
    return _LONG_WORD.sub(lambda match: f"{match[0][:QUOTED]}…", text)


def no_formula(value: Any) -> Any:
    """Make ``value`` safe as a cell of CSV: put an apostrophe before a text that a spreadsheet would run as a formula.

    A carriage return becomes a line break: CSV writers do not quote it, and CSV readers take it for the end of a row.

    >>> no_formula("=1+1"), no_formula("conv2d"), no_formula(-3)
    ("'=1+1", 'conv2d', -3)
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text[:1] in _BEGIN_FORMULAS else text


def is_plain_name(name: str) -> bool:
    """Return whether a text can name a file or folder: printable, without slashes, not hidden and not too long."""
    is_short = name.isprintable() and len(name.encode()) <= _LONGEST_NAME
    return is_short and name[:1] not in ("", ".") and not set(name) & set("/\\")


def printable_lines(text: str) -> str:
    """Apply :func:`printable` to each line, but keep line breaks and tabs; a carriage return becomes a line break."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)


def aligned(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Align the cells of lines as columns with two spaces between them; columns in ``right`` are right-aligned.

    >>> aligned([["a", "bb"], ["aaa", "b"]], right=[1])
    ['a    bb', 'aaa   b']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    puts = [str.rjust if at in right else str.ljust for at in range(len(widths))]
    rows = (zip(puts, line, widths, strict=True) for line in lines)
    return ["  ".join([put(cell, width) for put, cell, width in row]).rstrip() for row in rows]


def quoted(value: object, most: int = QUOTED) -> str:
    r"""Return the ``repr`` of any ``value`` for a message: printable, with at most ``most`` characters.

    >>> quoted("H"), quoted("\x1b[2J"), len(quoted("x" * 5000))
    ("'H'", "'\\x1b[2J'", 80)
    """
    if isinstance(value, str | bytes) and len(value) > most:
        value = value[:most]  # the repr of a very long text is slow
        return printable(repr(value)[: most - 1]) + "…"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to write more than 4,300 digits
    try:
        return printable(repr(value), most)
    except Exception:  # noqa: BLE001 - the repr of a foreign object may raise any exception
        return f"a {type(value).__name__}"


def kind_of(value: object) -> str:
    """Return the type of ``value`` with its article, as in "found a list"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def count_of(number: int, one: str, many: str = "") -> str:
    """Format a number with a noun; ``many`` is the plural; by default ``one`` with an s.

    >>> count_of(1, "layer"), count_of(0, "layer"), count_of(2, "leaf", "leaves")
    ('1 layer', '0 layers', '2 leaves')
    """
    return f"{number} {plural(number, one, many)}"


def plural(number: int, one: str, many: str = "") -> str:
    """Return the noun in the singular for 1, else in the plural; see :func:`count_of`."""
    return one if number == 1 else many or f"{one}s"


def text_of(error: BaseException) -> str:
    """Return the text of an exception; empty if computing the text raises an exception."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - any exception
        return ""


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """Read a regular file of at most ``most`` bytes; its type and size are checked before it is read.

    Raises OSError as `open` does; for a folder, a FIFO, a device, or a file that is or grows too large, its
    ``strerror`` is one line that names the expected and the actual file.
    """

    def opened(name: str | os.PathLike[str], flags: int) -> int:
        # Without O_NONBLOCK, opening a FIFO or a device can block forever.
        descriptor = os.open(name, flags | os.O_NONBLOCK)
        try:
            _checked(os.fstat(descriptor), path, most)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    try:
        with open(path, "rb", opener=opened) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1)
            if len(content) > size:  # the file has grown, or is in /proc, where files have no size
                content += file.read(most + 1 - len(content))
    except ValueError as error:  # the path contains a null byte
        name = printable(os.fspath(path), QUOTED)
        raise OSError(errno.EINVAL, f"expected the path of a file ({error})", name) from None
    if len(content) > most:
        raise OSError(errno.EFBIG, f"expected at most {most} bytes, found more", os.fspath(path))
    return content


def read_text(path: str | os.PathLike[str], most: int, errors: str = "strict") -> str:
    """Read a file as :func:`read_bytes` does, and decode it as UTF-8.

    Raises OSError as `read_bytes`; UnicodeDecodeError if the file is no UTF-8 and ``errors`` is "strict".
    """
    return read_bytes(path, most).decode("utf-8", errors)


def read_json(path: str | os.PathLike[str], most: int, kind: Any = Any) -> Any:
    """Read a JSON file as a value of the type ``kind``.

    Raises:
        OSError: as `read_bytes`.
        msgspec.DecodeError: the text is no JSON; its subclass ``ValidationError``: the JSON has another type.
    """
    import msgspec

    try:
        return msgspec.json.decode(read_bytes(path, most), type=kind)
    except (RecursionError, UnicodeError) as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from None


def check_regular(path: str | os.PathLike[str], most: int | None = None) -> int:
    """Return the size in bytes of a regular file, for readers that open it. Raises OSError as `read_bytes`."""
    return _checked(Path(path).stat(), path, most)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether ``path`` names a regular file; False for an invalid name (too long, or with a null byte)."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def _checked(status: os.stat_result, path: str | os.PathLike[str], most: int | None) -> int:
    if not stat.S_ISREG(status.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(number, f"expected a regular file, found {_kind(status.st_mode)}", os.fspath(path))
    if most is not None and status.st_size > most:
        raise OSError(errno.EFBIG, f"expected at most {most} bytes, found {status.st_size}", os.fspath(path))
    return status.st_size


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), "something else")
