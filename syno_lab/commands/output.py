"""The output of commands: results on standard output or in files, progress on standard error."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from syno_lab import private
from syno_lab.errors import SynoError
from syno_lab.inputs import printable, printable_lines, quoted
from syno_lab.scratch import replacing
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Table

STANDARD_OUTPUT = "-"
_LINE_PERIOD_S = 5.0  # Seconds between lines of progress without a terminal.
_WIDE = 200  # The width of tables without a terminal, in letters.
_LONG = 500  # The limit of characters of a line or a cell.

#: The path to which the running command writes its JSON.
_target: ContextVar[str | None] = ContextVar("target", default=None)


def check_json(target: str | None) -> str | None:
    """Make the path for the JSON absolute, because the user's code may change the folder; do not change ``-`` and None.

    Raises SynoError before the work begins if the file cannot be written.
    """
    if target is None or target == STANDARD_OUTPUT:
        return target
    path = Path(target)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise SynoError(f"--json: expected a file in a folder that can be written to, or -, found {quoted(target)}")
    return str(path.absolute())


JsonTarget = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="PATH|-",
        callback=check_json,
        help="Write the result as JSON to a file, or - for standard output.",
    ),
]
"""The option that every command has."""


@contextmanager
def json_to(target: str | None) -> Iterator[None]:
    """Let :func:`write_json` write to this file in the block: ``-`` is standard output, None is no output."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


def is_for_json() -> bool:
    """Return whether standard output is reserved for JSON."""
    return _target.get() == STANDARD_OUTPUT


def write_json(data: object) -> None:
    """Write ``data`` as JSON text to the target of :func:`json_to`; a file is complete or unchanged."""
    target = _target.get()
    if target is None:
        return
    text = msgspec.json.format(msgspec.json.encode(data), indent=1).decode() + "\n"
    if target == STANDARD_OUTPUT:
        typer.echo(text, nl=False)
    else:
        write_text(Path(target), text)


@private.usual()
def write_text(path: Path, text: str) -> None:
    """Write a file completely or leave it unchanged. Raises SynoError if the file cannot be written."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def say(text: str) -> None:
    """Print lines of the result for people, unless standard output is for JSON.

    Control characters are replaced, except line breaks and tabs.
    """
    if not is_for_json():
        typer.echo(printable_lines(text))


def tell(text: str) -> None:
    """Print a line about the work, without control characters and of at most 500 characters, on standard error."""
    typer.echo(printable(text, _LONG), err=True)


def say_table(rows: Sequence[Mapping[str, JSON]]) -> None:
    """Print rows with equal keys as a table for people, unless standard output is for JSON."""
    if is_for_json() or not rows:
        return
    from rich.console import Console

    if sys.stdout.isatty():
        console = Console()
    else:  # in a kernel, rich would print HTML and colours
        console = Console(width=_WIDE, force_terminal=False, force_jupyter=False, no_color=True)
    console.print(table(rows))


def table(rows: Sequence[Mapping[str, JSON]]) -> Table:
    """Return a rich table of rows with equal keys; numbers are right-aligned."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name, value in rows[0].items() if rows else ():
        drawn.add_column(name, justify="right" if isinstance(value, int | float) else "left")
    for row in rows:
        drawn.add_row(*(Text(_cell(value)) for value in row.values()))  # as Text: the brackets of shapes are no markup
    return drawn


def _cell(value: JSON) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(str(value), _LONG)


class Reporter:
    """Print progress on standard error: as bars on a terminal, else as a line every few seconds.

    A reporter is a context manager and a function ``report(stage, fraction, message)``; ``fraction`` is the share done.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last = ("", 0.0, "")
        self._last_time = 0.0
        if self._console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bars = Progress(
                TextColumn("{task.fields[stage]:>7}", style="bold"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False),
                console=self._console,
            )

    def __enter__(self) -> Reporter:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def show(self, title: str, drawn: Table) -> None:
        """Print a table under its title, above the bars if there are bars."""
        from rich.text import Text

        if self._bars is None:  # without a terminal, use the width of :func:`say_table`
            self._console.width = _WIDE
        self._console.print(Text(printable(title)))
        self._console.print(drawn)

    def __call__(self, stage: str, fraction: float, message: str) -> None:
        """Report the progress of ``stage``; print lines at its beginning, at its end, and every few seconds."""
        now, shown = time.monotonic(), (stage, fraction, message)
        is_new = stage != self._last[0] or fraction >= 1.0 > self._last[1]
        is_due = self._bars is not None or is_new or now - self._last_time >= _LINE_PERIOD_S
        if shown == self._last or not is_due:
            return
        self._last, self._last_time = shown, now
        text = printable(message, _LONG)
        if self._bars is None:
            tell(f"{stage} {100 * fraction:3.0f} %  {text}")
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(text, total=1.0, stage=stage)
        self._bars.update(self._tasks[stage], completed=fraction, description=text)
