"""Operators of any system as commands read and write them: by name or file, with bindings, and as JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from syno_lab import private
from syno_lab.errors import FormatError, SpecError, SynoError, UnboundError
from syno_lab.inputs import MOST_DIGITS, QUOTED, integer, printable, quoted
from syno_lab.systems import known_operators, opened, read_operator

if TYPE_CHECKING:
    from syno_lab.protocol import Operator


def load_operator(text: str, *, besides: Iterable[str] = ()) -> tuple[str, Operator]:
    """A label and the operator that ``text`` means: a known name, else an operator file.

    ``besides`` are further names that the command knows, for the message. Raises FormatError for a file that is not an
    operator file; SynoError for neither a name nor a file.
    """
    found = opened(text, besides=besides)
    if not isinstance(found, str):
        return text, found
    try:
        return ("operator" if found is text else Path(text).stem), read_operator(found)
    except FormatError as error:
        raise error if found is text else FormatError(f"{Path(text)}: {error}") from None


def parse_binding(texts: Iterable[str]) -> dict[str, int]:
    """``["C_in=64", "H=28"]`` as a dictionary. Raises SpecError for anything else, or a name given twice."""
    binding: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        name, number = name.strip(), number.strip()
        value = integer(number)
        if not name or not equals or not value:
            raise SpecError(
                f"--bind: expected NAME=NUMBER such as C_in=64, found {quoted(text)}; "
                f"at most {MOST_DIGITS} digits are read"
            )
        if name in binding:
            raise SpecError(f"--bind: {printable(name, QUOTED)} is given twice")
        binding[name] = value
    return binding


def complete_binding(operator: Operator, texts: Iterable[str] | None) -> dict[str, int]:
    """The values of all variables of ``operator``: those given, then its defaults, checked against its sizes.

    Raises SpecError when one has no value, is unknown, or a size is not a positive integer.
    """
    given = parse_binding(texts or ())
    try:
        defaults = operator.complete_binding()
    except SpecError:  # some variables have none
        defaults = {}
    try:
        bound = operator.complete_binding({**defaults, **given})
    except UnboundError as error:
        names, first = (printable(text, QUOTED) for text in (", ".join(error.names), error.names[0]))
        raise UnboundError(f"no value for {names}: give each one, as in `--bind {first}=1`", error.names) from None
    unknown = [name for name in given if name not in operator.variables]
    if unknown:
        declared = ", ".join(operator.variables)
        raise SpecError(f"binding: unknown variable {quoted(unknown[0])}; declared are {declared}")
    operator.input_sizes(bound)
    operator.output_sizes(bound)
    operator.weight_sizes(bound)
    return bound


def complete_operator(incomplete: str) -> Iterable[str]:
    """The names of known operators that begin so; where there is none, the shell completes files."""
    return [name for name in known_operators() if name.startswith(incomplete)]


OutOption = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Write each operator as it is found, an operator file a line (JSON Lines)."),
]


@contextmanager
def operator_lines(path: Path | None) -> Iterator[Callable[[Operator], None]]:
    """A function that writes each operator on its own line at once; without a path it does nothing.

    The file is made with the first one, or empty where none was found; what fails before leaves an older file as it is.
    """
    if path is None:
        yield lambda operator: None
        return
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise SynoError(f"--out: expected a file in a folder that can be written to, found {quoted(str(path))}")
    files: list[FileIO] = []

    def write(operator: Operator | None) -> None:
        left = b"" if operator is None else msgspec.json.format(operator.to_json().encode(), indent=-1) + b"\n"
        try:
            if not files:
                with private.usual():
                    files.append(stack.enter_context(path.open("wb", buffering=0)))  # a kill loses no line
            length = len(left)
            try:
                while left:
                    left = left[files[0].write(left) :]
            except OSError:
                with suppress(OSError):  # a device or a pipe
                    files[0].truncate(files[0].tell() - length + len(left))  # no half line
                raise
        except OSError as error:
            raise SynoError(f"--out: {path} cannot be written to ({error.strerror}); make room") from None

    with ExitStack() as stack:
        yield write
        if not files:
            write(None)
