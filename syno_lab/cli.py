"""The command ``syno-lab`` with its subcommands. The module turns every error into one line and an exit status.

The commands are in :mod:`syno_lab.commands`, one in each file. The commands import torch, TVM and pandas only when they
run, so that ``--help`` answers at once.
"""

from __future__ import annotations

import errno
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import FrameType
from typing import Annotated, Any

import typer

from syno_lab import private
from syno_lab.blame import is_of_a_guest, said_by
from syno_lab.commands import jobs, kernel
from syno_lab.commands.options import with_options
from syno_lab.commands.output import tell
from syno_lab.effort import memory_error
from syno_lab.errors import NO_ROOM, ReadingWarning, SynoError
from syno_lab.inputs import QUOTED, printable, shortened
from syno_lab.version import __version__

#: Exit statuses; 1 is for a finding: ``doctor`` finds something missing, or ``replay`` finds a difference.
BAD_INPUT = 2
FAULT = 70
INTERRUPTED = 130
TERMINATED = 143

_LONGEST = 2000  # The most characters of a message.
_LONGEST_WORD = 4 * QUOTED  # The most characters of one word, such as a path.

#: The modules of the commands, in the order of the help text.
_COMMANDS = """
lab demo pgraphs.sample pgraphs.enumerate alpha.synthesise pgraphs.replay pgraphs.ablate backbone train search tune
network board operators show pgraphs.export worker doctor
"""

# The exception of typer for a wrong command line. The exception has no public name; depending on the version, its class
# is in click or in typer.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]

#: True if the running command has the option ``--traceback``.
_shows_traceback: ContextVar[bool] = ContextVar("shows_traceback", default=False)
_LONGEST_FAULT = 300
_REMEDIES: dict[int | None, str] = dict.fromkeys(NO_ROOM, "; make room there")
_REMEDIES |= dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "; choose another place")

app = typer.Typer(
    help="A laboratory for neural operator synthesis.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name in _COMMANDS.split():
    app.command(_name.rpartition(".")[2])(import_module(f"syno_lab.commands.{_name}").command)
for _group in (jobs, kernel):
    app.add_typer(_group.app, name=_group.__name__.rpartition(".")[2])
for _known in (app, jobs.app, kernel.app):
    for _info in _known.registered_commands:
        assert _info.callback is not None
        _info.callback = with_options(_info.callback)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"syno-lab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    with_traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an error was raised, before its message.")
    ] = False,
) -> None:
    _shows_traceback.set(with_traceback)


def main(arguments: Sequence[str] | None = None, commands: typer.Typer = app) -> int:
    """Run ``syno-lab`` (or other ``commands``) with ``arguments`` (default: of the process); return the exit status.

    The status is 0 for success, 1 for a finding (``doctor``, ``replay``), 2 for bad input or an unsuitable environment,
    70 for a fault of the lab, 130 for Ctrl-C, 143 for SIGTERM. Every error is one line; ``--traceback`` prints the
    traceback before it. Without ``arguments``, all files that the process creates are private.
    """
    if arguments is None:
        private.keep_private()
    _shows_traceback.set(False)
    try:
        with _terminable(), _telling():
            status = commands(
                args=None if arguments is None else list(arguments), prog_name="syno-lab", standalone_mode=False
            )
    except SynoError as error:
        return _fail(str(error), BAD_INPUT)
    except _USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the exception's message is the help text
            typer.echo(str(error))
            return BAD_INPUT
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        return _fail(f"{printable(shortened(message), 5 * QUOTED)} See `syno-lab --help`.", BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except OSError as error:
        where = f"{printable(str(error.filename), 4 * QUOTED)}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}{_REMEDIES.get(error.errno, '')}", BAD_INPUT)
    except BaseException as error:  # an error of the user's code, of the lab or of a library
        if is_of_a_guest(error):
            return _fail(said_by(error), BAD_INPUT)
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        if (too_large := memory_error(error)) is not None:
            return _fail(str(too_large), BAD_INPUT)
        return _fail(fault_line(error, "`syno-lab --traceback …`"), FAULT)
    if status == INTERRUPTED:  # this is typer's exit status after Ctrl-C
        return _fail("interrupted", INTERRUPTED)
    return status if isinstance(status, int) else 0


def fault_line(error: BaseException, how: str) -> str:
    """Format an unexpected exception as one line; ``how`` is the advice on how to see the traceback."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - an exception computes its text, which may fail
        text = ""
    summary = printable(f"{type(error).__name__}: {text}".rstrip(": "), _LONGEST_FAULT)
    return f"{summary} (a fault of Syno Lab, not of yours; {how} shows where it happened)"


def _fail(message: str, status: int) -> int:
    """Print the error in one line; with ``--traceback``, print the traceback of the handled exception first."""
    if _shows_traceback.get() and sys.exc_info()[0] is not None:
        for line in traceback.format_exc().splitlines():
            print(printable(line), file=sys.stderr)  # noqa: T201 - this is the command line
    words = (printable(word, _LONGEST_WORD) for word in message.split())
    line = printable(" ".join(words), _LONGEST)
    print(f"syno-lab: {line}", file=sys.stderr)  # noqa: T201 - this is the command line
    return status


@contextmanager
def _telling() -> Iterator[None]:
    """Print each ReadingWarning as one line on standard error, once for each command."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", ReadingWarning)
        show = warnings.showwarning

        def showwarning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, ReadingWarning):
                tell(f"warning: {message}")
            else:
                show(message, category, *where, **more)

        warnings.showwarning = showwarning
        yield


@contextmanager
def _terminable() -> Iterator[None]:
    """Raise SystemExit at SIGTERM, so that temporary files, servers and child processes are removed as after Ctrl-C."""
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
