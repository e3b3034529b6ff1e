"""Child processes that end with their parent: each is killed with its group, and ends when its parent ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from syno_lab.errors import SynoError
from syno_lab.inputs import printable
from syno_lab.private import UMASK
from syno_lab.processes.board_server import cores as cores
from syno_lab.processes.board_server import follow_parent as follow_parent


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command of a child process that runs a module in this Python.

    With -P Python does not search the current directory for modules.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def output_of(module: str, *arguments: str) -> str:
    """Return the output of a module that runs in a child process.

    Raises SynoError with the last line of the error output when the module fails.
    """
    done = subprocess.run(module_command(module, *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SynoError((done.stderr.strip().splitlines() or [f"{module} ended with {done.returncode}"])[-1])
    return done.stdout


def own_environment(**more: str) -> dict[str, str]:
    """Return this process's environment for a child, with its module search path and the variables ``more``."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry), **more}


def start_child(
    module: str,
    arguments: Sequence[str] = (),
    *,
    log: IO[bytes],
    pass_fds: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
    own_group: bool = True,
) -> subprocess.Popen[bytes]:
    """Run ``python -m module <own pid> *arguments`` with its output in ``log`` and the same module search path.

    With ``own_group`` the child leads a new session. Ctrl-C in a terminal then reaches only the parent, which calls
    :func:`end_group`. Else the child dies with this process's group. Only the user can read the child's files.
    """
    command = module_command(module, str(os.getpid()), *arguments)
    variables = {**own_environment(PYTHONUNBUFFERED="1"), **(environment or {})}
    return spawn(command, log, variables, pass_fds=pass_fds, own_group=own_group)


def spawn(
    command: Sequence[str],
    log: IO[bytes],
    environment: Mapping[str, str],
    *,
    folder: Path | None = None,
    pass_fds: Sequence[int] = (),
    own_group: bool = True,
) -> subprocess.Popen[bytes]:
    """Start a command in ``folder`` without input, with its output in ``log``; see :func:`start_child`."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=folder,
        pass_fds=tuple(pass_fds),
        env=environment,
        start_new_session=own_group,
        umask=UMASK,
    )


def end_group(child: subprocess.Popen[bytes], patience_s: float = 5.0) -> None:
    """Kill a child started with ``own_group`` and all its descendants, even where the child has ended already.

    The system does not reuse a group's identifier while a member lives. The child itself is reaped at the end.
    """
    deadline = time.monotonic() + patience_s
    # killpg finds no process when the group is empty. The next round kills a member that was forked during this round.
    while time.monotonic() < deadline:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # macOS raises PermissionError for a group of zombies
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.05)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(patience_s)


def describe_exit(code: int | None) -> str:
    """Describe how a process ended: ``killed by SIGSEGV``, ``exit status 3``."""
    if code is None:
        return "still running"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit status {code}"


def last_line(log: Path, limit: int = 300) -> str:
    """Return the last line of a log that is not blank, for messages of one line; empty where there is none."""
    try:
        text = log.read_bytes()[-20_000:].decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(lines[-1], limit) if lines else ""
