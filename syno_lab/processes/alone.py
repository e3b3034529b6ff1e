"""A lock on a file for one process at a time. The lock ends with the process, and its file names the process."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from syno_lab.errors import SynoError
from syno_lab.inputs import integer

_LOOK_S = 0.1
# Opening a special file must not block, and a link must not be followed.
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@contextmanager
def alone(lock: Path, busy: str, patience_s: float = 0.5) -> Iterator[None]:
    """Lock the file ``lock`` during the block.

    Args:
        lock: a file, created where there is none, in an existing folder.
        busy: the message if another process has the lock, with ``{who}`` for the name of that process.
        patience_s: seconds to wait for the lock. A process that reads the holder's name has the lock for a moment.

    Raises SynoError where another process has the lock, or the file cannot be created or locked.
    """
    deadline = time.monotonic() + patience_s
    try:
        descriptor = os.open(lock, _FLAGS | os.O_CREAT, 0o600)
    except OSError as error:
        raise SynoError(f"{lock}: expected a file that can be locked: {error.strerror}; use another folder") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SynoError(f"{lock}: expected a file that can be locked, found a file of another kind")
        while not take(descriptor, lock):
            if time.monotonic() >= deadline:
                raise SynoError(busy.replace("{who}", _holder(descriptor)))
            time.sleep(_LOOK_S)
        with suppress(OSError):  # on a full disk the file names no holder
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder(lock: Path) -> str | None:
    """Return a text that names the process with the lock; None where no process has it. Raises as :func:`take`."""
    try:
        descriptor = os.open(lock, _FLAGS)
    except OSError:
        return None
    try:
        is_free = not stat.S_ISREG(os.fstat(descriptor).st_mode) or take(descriptor, lock)
        return None if is_free else _holder(descriptor)
    finally:
        os.close(descriptor)


def take(file: int | IO[bytes], path: Path, *, is_patient: bool = False) -> bool:
    """Lock a file until it is closed. Return False if another process has the lock; with ``is_patient``, wait.

    Raises SynoError where the file cannot be locked, for example because its file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if is_patient else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise SynoError(f"{path} cannot be locked ({error.strerror}); use a folder on a local disk") from None
    return True


def _holder(descriptor: int) -> str:
    number = integer(os.pread(descriptor, 20, 0).decode("ascii", "replace"))
    return "another process" if number is None else f"process {number}"
