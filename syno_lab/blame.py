"""Report an exception of the user's own code as one line, with its file and line number.

The lab calls the user's networks, data sets, rules, rewards and files. Exceptions of this code are the user's errors. A
traceback through the lab's files would hide the user's line. KeyboardInterrupt is never changed.
"""

from __future__ import annotations

import contextlib
import dis
import io
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from syno_lab.effort import is_out_of_memory
from syno_lab.errors import CodeError, SynoError
from syno_lab.inputs import printable, text_of

_MOST, _MOST_NAME = 200, 60  # lengths of an exception's text and of its class name
_STANDARD = Path(dis.__file__).parent
_OURS = ("syno_lab", "syno_widgets")
_ARGUMENTS = threading.RLock()  # The lock of sys.argv and standard error, which all threads of the process share.
_RUN: set[Path] = set()  # The folders of the user's files that have run.


def is_users_file(file: str, module: str = "") -> bool:
    """Return whether a file is the user's own, and not a file of the lab, of Python or of an installed package."""
    if module.partition(".")[0] in _OURS or (file.startswith("<") and not file.startswith(("<ipython", "<stdin"))):
        return False
    return not ("site-packages" in file or "dist-packages" in file or Path(file).is_relative_to(_STANDARD))


def place_of(error: BaseException) -> str:
    """Return the last line of the user's own files in a traceback, such as ``data.py, line 12``, else an empty text."""
    file, number = next(reversed(_users_lines(error)), ("", 0))
    if file.startswith("<ipython") or "ipykernel" in file:
        return f"a cell, line {number}"
    return f"{Path(file).name}, line {number}" if file.endswith(".py") else ""  # others: generated source


def said_by(error: BaseException) -> str:
    """Format an exception as one line: its class, the first line of its text, and its line in the user's own files."""
    if isinstance(error, SynoError):
        return str(error)  # the message of a SynoError is already one complete line
    lines = (line.strip() for line in text_of(error).splitlines())
    text = printable(next(filter(None, lines), ""), _MOST)
    name, place = printable(type(error).__name__, _MOST_NAME), place_of(error)
    if isinstance(error, SystemExit):
        text = ", ".join([text or "0", *getattr(error, "__notes__", ())])
    if isinstance(error, BaseExceptionGroup):
        text = f"{text}, the first {said_by(error.exceptions[0])}"
    message = f"{name}: {text}" if text else name
    return f"{message} ({place})" if place and not message.endswith(f"({place})") else message


def is_theirs(error: BaseException) -> bool:
    """Return whether an exception that the user's own code raised is reported as an error of that code.

    A lack of memory, Ctrl-C, and an exception of a signal handler are not errors of that code.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit) or is_out_of_memory(error):
        return False
    if isinstance(error, Exception):
        return True
    *_, (last, _) = [(None, 0), *traceback.walk_tb(error.__traceback__)]
    if last is None or (module := str(last.f_globals.get("__name__"))).partition(".")[0] in _OURS:
        return False
    return isinstance(error, SystemExit) or is_users_file(last.f_code.co_filename, module)


def is_of_a_guest(error: BaseException) -> bool:
    """Return whether an exception is the user's and came through a file in the folder of a :func:`guest` file."""
    files = {Path(file).absolute() for file, _ in _users_lines(error)}
    return is_theirs(error) and any(file.is_relative_to(folder) for file in files for folder in _RUN)


@contextmanager
def blamed(
    where: str, kind: type[SynoError] = CodeError, said: Callable[[BaseException], str] = said_by
) -> Iterator[None]:
    """Run the block, which calls the user's own code, and report exceptions of this code in one line.

    Args:
        where: the name of the code in messages.
        kind: the class of the error.
        said: a function that formats an exception for the message.

    Raises SynoError of class ``kind`` for every exception of the code; another SynoError passes unchanged.
    """
    try:
        yield
    except SynoError:
        raise
    except BaseException as error:
        if not is_theirs(error):
            raise
        raise kind(f"{where}: {said(error)}") from error


@contextmanager
def guest(file: str) -> Iterator[None]:
    """Run a user's file in the block, with its own ``sys.argv``, and send its standard output to standard error.

    For sources without a ``.py`` file this has no effect. If the file exits, the last line that it printed on standard
    error becomes a note of the exception. ``argparse`` prints errors on standard error.
    """
    if not file.endswith(".py"):
        yield
        return
    with _ARGUMENTS:
        arguments, filters, printed = sys.argv, list(warnings.filters), io.StringIO()
        sys.argv = [file]
        _RUN.add(Path(file).absolute().parent)
        try:
            with contextlib.redirect_stdout(sys.stderr), contextlib.redirect_stderr(printed):
                yield
        except SystemExit as error:
            if lines := printed.getvalue().strip().splitlines():
                error.add_note(printable(lines[-1].strip(), _MOST))
            printed.truncate(0)
            raise
        finally:
            sys.argv = arguments
            # A file may turn warnings into errors, which the lab's code would raise too.
            warnings.filters[:] = [entry for entry in warnings.filters if entry[0] != "error" or entry in filters]  # type: ignore[index]
            sys.stderr.write(printed.getvalue())


def _users_lines(error: BaseException) -> list[tuple[str, int]]:
    """List the files of the user's own in a traceback, with the line number in each; the last call is at the end."""
    return [
        (frame.f_code.co_filename, number)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if is_users_file(frame.f_code.co_filename, str(frame.f_globals.get("__name__")))
    ]
