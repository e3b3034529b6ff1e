"""How the process of an attempt is started.

It is in a session of its own, has its attempt's token in its environment and its output in the attempt's log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from syno_lab import private
from syno_lab.jobs import endpoint
from syno_lab.processes import alive
from syno_lab.processes.process import module_command, own_environment


@dataclass(frozen=True)
class Started:
    """A process of an attempt: ``end()`` once it has ended gives its exit code and the CPU-seconds that it had.

    What it left in its group is killed then.
    """

    pid: int
    end: Callable[[], tuple[int, float]]


def start(root: Path, number: int, token: str, log: Path, more: Mapping[str, str] | None = None) -> Started:
    """Start the process of an attempt, with ``more`` in its environment. Raises OSError where it cannot be started."""
    private.folder(log.parent)
    with private.create(log, "ab") as output:
        child = subprocess.Popen(
            module_command("syno_lab.jobs.child", str(root), str(number), token),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=root,
            env={**_environment(token), **(more or {})},
            start_new_session=True,
            umask=private.UMASK,
        )

    def end() -> tuple[int, float]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # its number is not given out before we reap it
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        return child.returncode, usage.ru_utime + usage.ru_stime

    return Started(child.pid, end)


def _environment(token: str) -> dict[str, str]:
    return own_environment(**{**endpoint.passed_on(), "PYTHONUNBUFFERED": "1", alive.TOKEN_VARIABLE: token})
