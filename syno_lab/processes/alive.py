"""Find out whether a process is alive, by its identifier, its start, its boot and its machine.

The system reuses process identifiers, so the identity of a process includes the time of its start. On Linux this time
is in ticks since boot, which do not change with the clock. On other systems the kernel's record is the start.
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

#: The environment variable with the attempt's token, which every process of an attempt inherits.
TOKEN_VARIABLE = "SYNO_LAB_JOB_TOKEN"  # noqa: S105 - the token marks an attempt and is no secret

#: Seconds between SIGTERM and SIGKILL.
TERM_S = 3.0

_PROC = Path("/proc")
_DRAWN = re.compile("[0-9a-f]{32}")


@cache
def place() -> str:
    """Return an identifier of the machine and the process namespace, which a container may have for itself."""
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
    """Return the identifier of the machine's current boot; empty where the system has none."""
    with contextlib.suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, timeout=5, check=True
        )
        return done.stdout.strip()
    return ""


def identity(pid: int) -> str | None:
    """Return ``pid:start`` of a live process; None for a process that has ended or is a zombie."""
    if _PROC.joinpath("self/stat").exists():
        try:
            # Field 2, the program's name in brackets, can be any text. Field 3 is the state, field 22 the start.
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
    """Return the identity of this process."""
    own = identity(os.getpid())
    assert own is not None
    return own


def pid_of(name: str) -> int:
    """Return the process identifier in an identity; 0 for an empty identity."""
    return inputs.integer(name.partition(":")[0]) or 0


def is_alive(name: str) -> bool:
    """Whether the process with an identity of this boot is alive; False for an empty identity."""
    return bool(name) and identity(pid_of(name)) == name


def kill(name: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to the process with an identity of this boot, if the process is alive."""
    if is_alive(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid_of(name), number)


def holders(token: str) -> Iterator[int]:
    """Yield the processes of an attempt, in any group or session, as far as this user can read their environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(TOKEN_VARIABLE) == token:
                yield process.pid


def end_attempt(token: str, patience_s: float = 0.0) -> None:
    """End every process of an attempt with SIGKILL; if ``patience_s`` is not 0, first with SIGTERM.

    The token must have the form of a random token, because any other text in a store may mark unrelated processes.
    """
    if _DRAWN.fullmatch(token):
        end_marked(token, patience_s)


def end_marked(token: str, patience_s: float = 0.0) -> None:
    """End every process with this text in `TOKEN_VARIABLE`, as `end_attempt` does."""
    deadline = time.monotonic() + patience_s
    if patience_s and _signal(token, signal.SIGTERM):
        while time.monotonic() < deadline and any(identity(pid) for pid in holders(token)):
            time.sleep(0.05)
    for _ in range(20):  # a round may miss a child that is forked during it
        if not _signal(token, signal.SIGKILL):
            return
        time.sleep(0.02)


def _signal(token: str, number: signal.Signals) -> int:
    signalled = 0
    for pid in holders(token):
        if identity(pid) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                signalled += 1
    return signalled
