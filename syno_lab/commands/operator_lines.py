"""Operators of any system in a file of JSON Lines, written one by one as they are found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from syno_lab import private
from syno_lab.errors import SynoError
from syno_lab.inputs import quoted

if TYPE_CHECKING:
    from syno_lab.protocol import Operator

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
