"""Operators of any system in a file of JSON Lines, written one by one as they are found."""

from __future__ import annotations

import contextlib
import json as json_text
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

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
    """A function that writes each operator on its own line; without a path it does nothing."""
    if path is None:
        yield lambda operator: None
        return
    file: TextIO
    with contextlib.ExitStack() as stack:
        try:
            with private.usual():
                file = stack.enter_context(path.open("w", encoding="utf-8"))
        except OSError as error:
            raise SynoError(
                f"--out: expected a file in a folder that can be written to, found {quoted(str(path))} "
                f"({error.strerror})"
            ) from None

        def write(operator: Operator) -> None:
            try:
                file.write(json_text.dumps(json_text.loads(operator.to_json()), separators=(",", ":")) + "\n")
            except OSError as error:
                raise SynoError(f"--out: {path} cannot be written to ({error.strerror}); make room") from None

        yield write
