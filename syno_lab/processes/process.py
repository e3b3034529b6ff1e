"""Child processes that cannot outlive us: each in a group of its own, killed as a group, and watching its parent."""

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
    """The command of a child process that runs a module in this Python.

    Nothing in the directory where it happens to start is a module for it (-P).
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def output_of(module: str, *arguments: str) -> str:
    """What a module prints that a child process of ours runs.

    Raises SynoError when it ends with an error: the last line that it has written.
    """
    done = subprocess.run(module_command(module, *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SynoError((done.stderr.strip().splitlines() or [f"{module} ended with {done.returncode}"])[-1])
    return done.stdout


def own_environment(**more: str) -> dict[str, str]:
    """Our environment for a child process that finds the same modules as we do, and ``more``."""
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
    """Run ``python -m module <our pid> *arguments`` with its output in ``log`` and the caller's module search path.

    With ``own_group`` the child leads a new session, so that Ctrl-C in a terminal reaches only its parent, which then
    ends it with :func:`end_group`; without, it joins our group and dies with it. What it writes is the user's alone.
    """
    return subprocess.Popen(
        module_command(module, str(os.getpid()), *arguments),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=tuple(pass_fds),
        env={**own_environment(PYTHONUNBUFFERED="1"), **(environment or {})},
        start_new_session=own_group,
        umask=UMASK,
    )


def end_group(child: subprocess.Popen[bytes], patience_s: float = 5.0) -> None:
    """Kill a child started with ``own_group`` and all of its descendants, even where the child is dead already.

    A group's number is not given out again while a member lives, and the child itself is reaped only at the end.
    """
    deadline = time.monotonic() + patience_s
    # The group is empty when killpg finds nobody; a member that just forked is caught by the next round.
    while time.monotonic() < deadline:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # macOS answers the second for a group of zombies
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.05)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(patience_s)


def describe_exit(code: int | None) -> str:
    """A text that says how a process ended: ``killed by SIGSEGV``, ``exit status 3``."""
    if code is None:
        return "still running"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit status {code}"


def last_line(log: Path, limit: int = 300) -> str:
    """The last line in a log that says something, for one-line messages; empty where there is none."""
    try:
        text = log.read_bytes()[-20_000:].decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(lines[-1], limit) if lines else ""
