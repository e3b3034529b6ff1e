"""Read operators of any system by name or file, with bindings, and write them as JSON Lines."""

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
from syno_lab.commands.detach import lab_folder
from syno_lab.errors import SpecError, SynoError, UnboundError
from syno_lab.inputs import MOST_DIGITS, QUOTED, integer, printable, quoted
from syno_lab.systems import Named, known_operators, named

if TYPE_CHECKING:
    from syno_lab.protocol import Operator


#: What an argument that is an operator may be, for its help.
OPERATOR = "A known operator's name, an operator file, or a trial of a search (SEARCH#12, SEARCH#best)"


def load_operator(text: str | Path, folder: str | Path | None = None, *, besides: Iterable[str] = ()) -> Named:
    """Return the operator of a name or file as :func:`.named` does, in the lab of :func:`.detach.lab_folder`."""
    return named(text, lab_folder(folder), besides=besides)


def sized(found: Named, texts: Iterable[str] | None) -> list[str]:
    """Return the texts of ``--bind`` after the sizes of a trial's first layer that they do not set."""
    texts = list(texts or ())
    chosen = parse_binding(texts)
    own = found.places[0][1] if found.places else {}
    return [*(f"{name}={size}" for name, size in own.items() if name not in chosen), *texts]


def parse_binding(texts: Iterable[str]) -> dict[str, int]:
    """Parse ``["C_in=64", "H=28"]`` as a dictionary. Raises SpecError for a text in another form or a repeated name."""
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
    """Return the sizes of all variables of ``operator``, from ``texts`` or its defaults, and check them.

    Raises SpecError if a variable has no size or is unknown, or a size is not a positive integer.
    """
    chosen = parse_binding(texts or ())
    try:
        defaults = operator.complete_binding()
    except SpecError:  # some variables have no default
        defaults = {}
    try:
        bound = operator.complete_binding({**defaults, **chosen})
    except UnboundError as error:
        names, first = (printable(text, QUOTED) for text in (", ".join(error.names), error.names[0]))
        raise UnboundError(f"no value for {names}: give each one, as in `--bind {first}=1`", error.names) from None
    unknown = [name for name in chosen if name not in operator.variables]
    if unknown:
        declared = ", ".join(operator.variables)
        raise SpecError(f"binding: unknown variable {quoted(unknown[0])}; declared are {declared}")
    operator.input_sizes(bound)
    operator.output_sizes(bound)
    operator.weight_sizes(bound)
    return bound


def complete_operator(incomplete: str) -> Iterable[str]:
    """List the known operators whose names begin with ``incomplete``; without such names, the shell completes files."""
    return [name for name in known_operators() if name.startswith(incomplete)]


OutOption = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Write each operator as it is found, an operator file a line (JSON Lines)."),
]


@contextmanager
def operator_lines(path: Path | None) -> Iterator[Callable[[Operator], None]]:
    """Yield a function that writes an operator as a line at once; without a path the function does nothing.

    The first operator, or the end of the block, creates the file; an earlier error leaves an existing file unchanged.
    """
    if path is None:
        yield lambda operator: None
        return
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise SynoError(f"--out: expected a file in a folder that can be written to, found {quoted(str(path))}")
    files: list[FileIO] = []

    def write(operator: Operator | None) -> None:
        remaining = b"" if operator is None else msgspec.json.format(operator.to_json().encode(), indent=-1) + b"\n"
        try:
            if not files:
                with private.usual():
                    files.append(stack.enter_context(path.open("wb", buffering=0)))  # a killed process loses no line
            length = len(remaining)
            try:
                while remaining:
                    remaining = remaining[files[0].write(remaining) :]
            except OSError:
                with suppress(OSError):  # A device or a pipe cannot be truncated.
                    files[0].truncate(files[0].tell() - length + len(remaining))  # Remove an incomplete line.
                raise
        except OSError as error:
            raise SynoError(f"--out: {path} cannot be written to ({error.strerror}); make room") from None

    with ExitStack() as stack:
        yield write
        if not files:
            write(None)
