"""Whether a process is alive, told by its number, its start, and the boot and the machine on which it started.

A number alone is given out again. On Linux the start is read in ticks since boot, which no clock change moves, as it
does move a start in seconds of the day; elsewhere the kernel's own note of it serves.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil

from syno_lab import inputs

#: Every process of an attempt has the attempt's token in this variable, however it was started.
TOKEN_VARIABLE = "SYNO_LAB_JOB_TOKEN"  # noqa: S105 - names a job's attempt, opens nothing

#: Seconds that processes are given between SIGTERM and SIGKILL.
TERM_S = 3.0

_PROC = Path("/proc")
_DRAWN = re.compile("[0-9a-f]{32}")


@cache
def place() -> str:
    """The machine, as far as process numbers go: containers that number their own processes are places apart."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except OSError:
        machine = f"{uuid.getnode():x}"
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return f"{platform.node()}/{machine}/{space}"


@cache
def boot() -> str:
    """The present boot of the machine; empty where the system does not tell."""
    with contextlib.suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, timeout=5, check=True
        )
        return done.stdout.strip()
    return ""


def identity(pid: int) -> str | None:
    """``pid:start`` of a process that lives; None for one that is gone or only waits to be reaped."""
    if _PROC.joinpath("self/stat").exists():
        try:
            # The second field is the program's name in brackets, which may hold anything; 3 is the state, 22 the start.
            rest = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if rest[0] in (b"Z", b"X") else f"{pid}:{int(rest[19])}"
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{pid}:{process.create_time()!r}"
    except psutil.Error:
        return None


def me() -> str:
    """The identity of this process."""
    found = identity(os.getpid())
    assert found is not None
    return found


def pid_of(name: str) -> int:
    """The process number in an identity; 0 where there is none."""
    return inputs.integer(name.partition(":")[0]) or 0


def is_alive(name: str) -> bool:
    """Whether the process of an identity of this boot lives; nobody lives under an empty one."""
    return bool(name) and identity(pid_of(name)) == name


def holders(token: str) -> Iterator[int]:
    """The processes of an attempt, whatever group or session they have moved to; of this user's processes only."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(TOKEN_VARIABLE) == token:
                yield process.pid


def end_attempt(token: str, patience_s: float = 0.0) -> None:
    """End every process of an attempt: asked first where ``patience_s`` is given, then killed.

    Nothing ends by a token that is not one that was drawn: what else a store says may be what marks another process.
    """
    if _DRAWN.fullmatch(token):
        end_marked(token, patience_s)


def end_marked(token: str, patience_s: float = 0.0) -> None:
    """The same for whatever has this text in `TOKEN_VARIABLE`."""
    deadline = time.monotonic() + patience_s
    if patience_s and _signal(token, signal.SIGTERM):
        while time.monotonic() < deadline and any(identity(pid) for pid in holders(token)):
            time.sleep(0.05)
    for _ in range(20):  # one that has just forked is caught by the next round
        if not _signal(token, signal.SIGKILL):
            return
        time.sleep(0.02)


def _signal(token: str, number: signal.Signals) -> int:
    reached = 0
    for pid in holders(token):
        if identity(pid) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                reached += 1
    return reached
