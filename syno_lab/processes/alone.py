"""A lock on a file, held by one process at a time: it ends when the process ends, and says which process holds it."""

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
# What is no regular file, or leads out of the folder, is not waited for and not followed.
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@contextmanager
def alone(lock: Path, busy: str, patience_s: float = 0.5) -> Iterator[None]:
    """Hold ``lock`` within the block.

    Args:
        lock: a file, made where there is none, in a folder that is there.
        busy: said where another process holds it; ``{who}`` in it becomes that process.
        patience_s: seconds to wait for it first; whoever asks for the holder has it for a moment.

    Raises SynoError where another holds it, or the file cannot be made or locked.
    """
    deadline = time.monotonic() + patience_s
    try:
        descriptor = os.open(lock, _FLAGS | os.O_CREAT, 0o600)
    except OSError as error:
        raise SynoError(f"{lock}: expected a file that can be locked: {error.strerror}; use another folder") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SynoError(f"{lock}: expected a file that can be locked, found another kind of one")
        while not take(descriptor, lock):
            if time.monotonic() >= deadline:
                raise SynoError(busy.replace("{who}", _who(descriptor)))
            time.sleep(_LOOK_S)
        with suppress(OSError):  # a full disk: the lock holds all the same
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder(lock: Path) -> str | None:
    """A text that names the process that holds ``lock``; None where no process holds it. Raises as :func:`take`."""
    try:
        descriptor = os.open(lock, _FLAGS)
    except OSError:
        return None
    try:
        is_free = not stat.S_ISREG(os.fstat(descriptor).st_mode) or take(descriptor, lock)
        return None if is_free else _who(descriptor)
    finally:
        os.close(descriptor)


def take(file: int | IO[bytes], path: Path, *, is_patient: bool = False) -> bool:
    """Lock an open file for as long as it is open; False where another process holds it, unless ``is_patient``.

    Raises SynoError where it cannot be locked, for example because its file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if is_patient else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise SynoError(f"{path} cannot be locked ({error.strerror}); use a folder on a local disk") from None
    return True


def _who(descriptor: int) -> str:
    number = integer(os.pread(descriptor, 20, 0).decode("ascii", "replace"))
    return "another process" if number is None else f"process {number}"
