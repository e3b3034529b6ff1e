"""The command ``syno-lab``: what it offers, and the one place where errors become one line and an exit status.

The commands are in :mod:`syno_lab.commands`, one in each file; they import torch, TVM and pandas when they run, so that
``--help`` answers at once.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from syno_lab import __version__
from syno_lab.commands import (
    ablate,
    backbone,
    board,
    demo,
    doctor,
    export,
    jobs,
    kernel,
    lab,
    network,
    operators,
    replay,
    sample,
    search,
    show,
    train,
    tune,
)
from syno_lab.commands import enumerate as enumerating
from syno_lab.errors import SynoError

#: Exit statuses; 1 is for what a command says itself (``doctor``: something is missing, ``replay``: something differs).
BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143

# What typer raises for a wrong command line. It has no public name of its own, and comes from click or from typer's
# copy of it, depending on the version.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    help="A laboratory for neural operator synthesis.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    lab,
    demo,
    sample,
    enumerating,
    replay,
    ablate,
    backbone,
    train,
    search,
    tune,
    network,
    board,
    operators,
    show,
    export,
    doctor,
):
    app.command(_command.__name__.rpartition(".")[2])(_command.command)
for _group in (jobs, kernel):
    app.add_typer(_group.app, name=_group.__name__.rpartition(".")[2])


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"syno-lab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``syno-lab`` with the given or the process's arguments and return its exit status.

    0 is success, 1 a finding (``doctor``, ``replay``), 2 bad input or an environment that cannot do it, 130 Ctrl-C,
    143 SIGTERM.
    """
    try:
        with _terminable():
            status = app(
                args=None if arguments is None else list(arguments), prog_name="syno-lab", standalone_mode=False
            )
    except SynoError as error:
        return _fail(str(error), BAD_INPUT)
    except _USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help text itself
            typer.echo(str(error))
            return BAD_INPUT
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        return _fail(f"{message} See `syno-lab --help`.", BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", BAD_INPUT)
    if status == INTERRUPTED:  # typer has caught Ctrl-C itself
        return _fail("interrupted", INTERRUPTED)
    return status if isinstance(status, int) else 0


def _fail(message: str, status: int) -> int:
    print(f"syno-lab: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201 - this is the command line
    return status


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM unwinds like Ctrl-C, so that temporary files, servers and children go too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
