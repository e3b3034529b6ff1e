"""Whose error it is: what the user's own code raises, as one line with its place in their file.

Networks, data sets, rules, rewards and files of the user's run inside our calls. Whatever they raise is theirs, and a
traceback through our files would say the opposite. KeyboardInterrupt is nobody's error and always passes through.
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

_MOST, _MOST_NAME = 200, 60  # characters of an exception's text, and of its name
_STANDARD = Path(dis.__file__).parent
_OURS = ("syno_lab", "syno_widgets")
_ARGUMENTS = threading.RLock()  # sys.argv and standard error belong to the whole process
_RUN: set[Path] = set()  # folders of the files that this process has run


def is_users_file(file: str, module: str = "") -> bool:
    """Whether a file is the user's own: neither ours, nor Python's, nor of an installed package."""
    if module.partition(".")[0] in _OURS or (file.startswith("<") and not file.startswith(("<ipython", "<stdin"))):
        return False
    return not ("site-packages" in file or "dist-packages" in file or Path(file).is_relative_to(_STANDARD))


def place_of(error: BaseException) -> str:
    """``data.py, line 12``: the last line of the user's own files that an exception came through; empty without one."""
    file, number = next(reversed(_users_lines(error)), ("", 0))
    if file.startswith("<ipython") or "ipykernel" in file:
        return f"a cell, line {number}"
    return f"{Path(file).name}, line {number}" if file.endswith(".py") else ""  # else a text that we put together


def said_by(error: BaseException) -> str:
    """An exception in one line: its class, the first line of its text, and its place in the user's own files."""
    if isinstance(error, SynoError):
        return str(error)  # one line that says all
    lines = (line.strip() for line in text_of(error).splitlines())
    text = printable(next(filter(None, lines), ""), _MOST)
    name, place = printable(type(error).__name__, _MOST_NAME), place_of(error)
    if isinstance(error, SystemExit):
        text = ", ".join([text or "0", *getattr(error, "__notes__", ())])
    if isinstance(error, BaseExceptionGroup):
        text = f"{text}, the first {said_by(error.exceptions[0])}"
    said = f"{name}: {text}" if text else name
    return f"{said} ({place})" if place and not said.endswith(f"({place})") else said


def is_theirs(error: BaseException) -> bool:
    """Whether an exception that came out of the user's own code is to be said as theirs.

    Not where memory was short, nor Ctrl-C, nor what a handler of signals raised while their code ran.
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
    """Whether an exception is theirs and came through a file that :func:`guest` has run, or one in its folder."""
    files = {Path(file).absolute() for file, _ in _users_lines(error)}
    return is_theirs(error) and any(file.is_relative_to(folder) for file in files for folder in _RUN)


@contextmanager
def blamed(
    where: str, kind: type[SynoError] = CodeError, said: Callable[[BaseException], str] = said_by
) -> Iterator[None]:
    """Around a call of the user's own code.

    Args:
        where: what messages call it.
        kind: of the error.
        said: what messages say of an exception.

    Raises SynoError of that kind, one line, for whatever the code raises; errors of our own family pass as they are.
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
    """Around code of a file of the user's: its arguments are its own, and what it prints goes to standard error.

    Other code than that of a ``.py`` file is left alone. Where it ends the process, the last line that it has printed
    on standard error (``argparse`` prints there what it misses) is a note of the exception.
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
            # Warnings as errors, which a file may ask for, would be raised in our own code as well.
            warnings.filters[:] = [one for one in warnings.filters if one[0] != "error" or one in filters]  # type: ignore[index]
            sys.stderr.write(printed.getvalue())


def _users_lines(error: BaseException) -> list[tuple[str, int]]:
    """The files of the user's own that an exception came through, and the line in each, the last one at the end."""
    return [
        (frame.f_code.co_filename, number)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if is_users_file(frame.f_code.co_filename, str(frame.f_globals.get("__name__")))
    ]
