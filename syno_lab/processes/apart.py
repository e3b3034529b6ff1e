"""Run one call in a forked process: a call that crashes or never ends takes down only that process.

So a candidate is measured on this machine: as a board's server does it, without a server. What was imported is there
in the fork at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from syno_lab.errors import SynoError, TuningError
from syno_lab.inputs import printable
from syno_lab.processes.process import describe_exit, follow_parent

#: For a process that gave its answer to end by itself.
_PATIENCE_S = 5.0


def apart(deadline_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)`` in a fork of this process, which should have one thread at work.

    Raises:
        TuningError: with one line, where the function raised, crashed its process, or was not done in ``deadline_s``
            seconds and was killed.
    """
    forks = multiprocessing.get_context("fork")
    ours, theirs = forks.Pipe(duplex=False)
    process = forks.Process(target=_run, args=(theirs, os.getpid(), function, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(deadline_s):
            raise TuningError(f"{function.__name__}: not done after {deadline_s:g} s, killed")
        is_value, answer = ours.recv()
    except EOFError:
        process.join(_PATIENCE_S)
        ended = describe_exit(process.exitcode)
        if process.exitcode == -signal.SIGKILL:
            ended += ", as the system does where memory runs out"
        raise TuningError(f"{function.__name__}: the process was {ended}") from None
    finally:
        process.kill()
        process.join()
        ours.close()
    if not is_value:
        raise TuningError(answer)
    return answer


def _run(link: Connection, parent: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    follow_parent(parent)  # threads do not survive a fork
    try:
        answer = True, function(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever a candidate does is its result, reported to the caller
        traceback.print_exc()
        answer = False, str(error) if isinstance(error, SynoError) else one_line(error)
    link.send(answer)


def one_line(error: BaseException) -> str:
    """The gist of an exception in one line; TVM's texts carry C++ stacks and put the reason last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {printable(lines[-1], 300)}" if lines else type(error).__name__
