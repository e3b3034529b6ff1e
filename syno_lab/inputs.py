"""What comes from outside, within bounds: numbers and files that are read, and text that is shown.

A number of 5,000 digits, a file that never ends and a name that moves the terminal's cursor are refused or made
harmless here, before anything else looks at them. See ``docs/security.md``.
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

#: Digits of the largest integer that is read; a machine's own integers have 19.
MOST_DIGITS = 18
#: The largest size, number of elements along an axis: more than any index of a machine can count.
LARGEST_SIZE = 2**63 - 1
#: Characters of what was given that a message quotes.
QUOTED = 80
_LONGEST_NAME = 200  # bytes, of the 255 of a file's name
_BEGIN_FORMULAS = frozenset("=+-@\t\n＝＋－＠")  # spreadsheets take full-width signs too
_LONG_WORD = re.compile(rf"[^'\s]{{{QUOTED + 1},}}|[^'\n]{{{QUOTED + 1},}}(?=')")


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """``names``, those first that are the most like ``name``, as :func:`likeness` has it."""
    return sorted(names, key=lambda one: -likeness(name, one))


def likeness(one: str, other: str) -> float:
    """How much of two names is the same, from 0 to 1, without case and punctuation."""
    from difflib import SequenceMatcher

    first, second = ("".join(filter(str.isalnum, text[:QUOTED].lower())) for text in (one, other))
    return SequenceMatcher(None, first, second).ratio()


def integer(text: str) -> int | None:
    """The integer of 0 or more that ``text`` is in decimal digits; None for anything else, and past `MOST_DIGITS`.

    >>> integer("28"), integer("-1"), integer("9" * 5000)
    (28, None, None)
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None


def positive(value: object) -> int | None:
    """The integer of 1 or more that ``value`` is, NumPy's among them; None for anything else, and past `MOST_DIGITS`.

    >>> positive(28), positive(True), positive(2.0), positive(10**18)
    (28, None, None, None)
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        return None
    number = int(value)
    return number if 1 <= number < 10**MOST_DIGITS else None


def printable(text: str, most: int | None = None) -> str:
    """``text`` with a replacement character for each that is not printable (ESC, BEL, U+202E, …), cut to ``most``.

    Raises nothing; a line break is not printable either.
    """
    cut = text if most is None or len(text) <= most else text[: max(0, most - 1)] + "…"
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in cut)


def shortened(text: str) -> str:
    """The message of somebody else's parser, with at most `QUOTED` characters of each word and quotation in it."""
    return _LONG_WORD.sub(lambda found: f"{found[0][:QUOTED]}…", text)


def no_formula(value: Any) -> Any:
    """``value`` as a cell of CSV: a text that a spreadsheet would run as a formula gets an apostrophe before it.

    A carriage return, which writers of CSV leave without quotes and readers take for the end of a row, is a line break.

    >>> no_formula("=1+1"), no_formula("conv2d"), no_formula(-3)
    ("'=1+1", 'conv2d', -3)
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text[:1] in _BEGIN_FORMULAS else text


def is_plain_name(name: str) -> bool:
    """Whether a name can be that of a file or folder in a given one: printable, of one part, and not hidden."""
    is_short = name.isprintable() and len(name.encode()) <= _LONGEST_NAME
    return is_short and name[:1] not in ("", ".") and not set(name) & set("/\\")


def printable_lines(text: str) -> str:
    """As `printable`, but for line breaks and tabs, which stay; a carriage return is a line break."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)


def aligned(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines of cells as columns with two blanks between them; the columns whose numbers are ``right`` end alike.

    >>> aligned([["a", "bb"], ["aaa", "b"]], right=[1])
    ['a    bb', 'aaa   b']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    puts = [str.rjust if at in right else str.ljust for at in range(len(widths))]
    rows = (zip(puts, line, widths, strict=True) for line in lines)
    return ["  ".join([put(cell, width) for put, cell, width in row]).rstrip() for row in rows]


def quoted(value: object, most: int = QUOTED) -> str:
    r"""``value`` as a message quotes it: its ``repr``, printable, at most ``most`` characters, whatever it is.

    >>> quoted("H"), quoted("\x1b[2J"), len(quoted("x" * 5000))
    ("'H'", "'\\x1b[2J'", 80)
    """
    if isinstance(value, str | bytes) and len(value) > most:
        value = value[:most]  # a repr of all of it would take as long as it is
        return printable(repr(value)[: most - 1]) + "…"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to write more than 4,300 digits
    try:
        return printable(repr(value), most)
    except Exception:  # noqa: BLE001 - a foreign object's repr may do anything
        return f"a {type(value).__name__}"


def kind_of(value: object) -> str:
    """What ``value`` is, as in "found a list"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def count_of(number: int, one: str, many: str = "") -> str:
    """A number of things in words; ``many`` is the plural where that is not ``one`` and an s.

    >>> count_of(1, "layer"), count_of(0, "layer"), count_of(2, "leaf", "leaves")
    ('1 layer', '0 layers', '2 leaves')
    """
    return f"{number} {plural(number, one, many)}"


def plural(number: int, one: str, many: str = "") -> str:
    """The noun alone, singular for 1, as :func:`count_of` has it."""
    return one if number == 1 else many or f"{one}s"


def text_of(error: BaseException) -> str:
    """The text of an exception, which is computed and may fail as well: none then."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - of any kind
        return ""


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """All bytes of a regular file of at most ``most`` bytes; its kind and size are looked at before it is read.

    Raises OSError with one line of what was expected and found as its ``strerror`` (a folder, a FIFO, a device, too
    large a file, one that grows while it is read), and as `open` does.
    """

    def opened(name: str | os.PathLike[str], flags: int) -> int:
        # A FIFO or a device would wait for ever as it is opened.
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
            if len(content) > size:  # it has grown, or is the kernel's own (/proc), which tells no size
                content += file.read(most + 1 - len(content))
    except ValueError as error:  # a zero in it
        name = printable(os.fspath(path), QUOTED)
        raise OSError(errno.EINVAL, f"expected the path of a file ({error})", name) from None
    if len(content) > most:
        raise OSError(errno.EFBIG, f"expected at most {most} bytes, found more", os.fspath(path))
    return content


def read_text(path: str | os.PathLike[str], most: int, errors: str = "strict") -> str:
    """As `read_bytes`, decoded as UTF-8.

    Raises OSError as `read_bytes`; UnicodeDecodeError with ``errors="strict"``, where it is no UTF-8.
    """
    return read_bytes(path, most).decode("utf-8", errors)


def read_json(path: str | os.PathLike[str], most: int, kind: Any = Any) -> Any:
    """What a file of JSON holds, of the type ``kind``.

    Raises:
        OSError: as `read_bytes`.
        msgspec.DecodeError: for other text; its ``ValidationError`` for JSON of another type.
    """
    import msgspec

    try:
        return msgspec.json.decode(read_bytes(path, most), type=kind)
    except (RecursionError, UnicodeError) as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from None


def check_regular(path: str | os.PathLike[str], most: int | None = None) -> int:
    """The size in bytes of a regular file, for readers that open it themselves. Raises OSError as `read_bytes`."""
    return _checked(Path(path).stat(), path, most)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` names a regular file; False too for what can be no name (too long, a zero in it)."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def _checked(found: os.stat_result, path: str | os.PathLike[str], most: int | None) -> int:
    if not stat.S_ISREG(found.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
        raise OSError(number, f"expected a regular file, found {_kind(found.st_mode)}", os.fspath(path))
    if most is not None and found.st_size > most:
        raise OSError(errno.EFBIG, f"expected at most {most} bytes, found {found.st_size}", os.fspath(path))
    return found.st_size


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), "something else")
