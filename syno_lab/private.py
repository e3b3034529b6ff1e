"""Folders and files that only the user may read (modes 0700 and 0600), and the folder of the user's settings.

A lab trusts only the account of its user (``docs/security.md``).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from syno_lab.errors import SynoError

#: The umask that removes all rights of other users.
UMASK = 0o077
#: The environment variable that names the folder of the user's settings and keys, instead of the default.
CONFIG_VARIABLE = "SYNO_LAB_CONFIG"

_before: list[int] = []  # the umask at this process's start; empty before its first change


def keep_private() -> None:
    """Set the umask so that only the user can read the files of this process and its children.

    Only the lab's own processes call this, because the umask belongs to the complete process. In other processes, such
    as a notebook's kernel, files are created by `folder` and `create` instead.
    """
    before = os.umask(UMASK)
    if not _before:
        _before.append(before)


@contextmanager
def usual() -> Iterator[None]:
    """Restore the user's own umask for the block, for exports to a path that the user names.

    The context manager also works as a decorator.
    """
    now = os.umask(_before[0]) if _before else None
    try:
        yield
    finally:
        if now is not None:
            os.umask(now)


def folder(path: str | os.PathLike[str]) -> Path:
    """Create a missing folder and its missing parents with mode 0700.

    If the folder exists and belongs to the user, remove the rights of other users. Raises OSError as `os.mkdir`.
    """
    target = Path(path)
    missing = [parent for parent in (target, *target.parents) if not parent.is_dir()]
    for parent in reversed(missing):
        parent.mkdir(mode=0o700, exist_ok=True)
    if not target.is_symlink():
        _narrow(target)
    return target


def narrow_lab(folder: Path, store: str) -> None:
    """Remove the rights of other users on the folder of a lab and on its ``store``.

    A folder with other files and without a store is not yet a lab: the folder stays unchanged, but the lab's files in
    it are private. The user's home and a folder for everybody's temporary files stay unchanged too.
    """
    with suppress(OSError):
        if (folder / store).is_file() or not any(folder.iterdir()):
            sticky = folder.stat().st_mode & stat.S_ISVTX
            if not sticky and folder.resolve() != Path.home().resolve():
                _narrow(folder)
            for end in ("", "-wal", "-shm", "-lock"):
                with suppress(OSError):
                    _narrow(folder / f"{store}{end}")


def _narrow(path: Path) -> None:
    now = path.stat()
    if now.st_uid == os.getuid() and stat.S_IMODE(now.st_mode) & UMASK:
        path.chmod(stat.S_IMODE(now.st_mode) & ~UMASK)


def create(path: str | os.PathLike[str], mode: str = "wb") -> IO[bytes]:
    """Open ``path`` to write bytes (``wb``, ``xb`` or ``ab``); a new file gets mode 0600.

    Refuse symbolic links and all files that are not regular. Raises OSError as `open`.
    """
    flags = {"wb": os.O_TRUNC, "xb": os.O_EXCL, "ab": os.O_APPEND}[mode]
    # Without O_NONBLOCK, opening a FIFO would block until there is a reader.
    flags |= os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path}: expected a regular file or none")
    return os.fdopen(descriptor, mode)


def config_folder() -> Path:
    """Return the folder of the user's settings and keys; create it with mode 0700 if it is missing.

    The folder is ``SYNO_LAB_CONFIG``, else ``syno-lab`` in ``XDG_CONFIG_HOME``, else ``syno-lab`` in ``~/.config``.
    Raises SynoError if another user owns the folder or others may write to it.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    usual = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "syno-lab"
    path = folder(Path(named) if named else usual)
    check_own(path)
    return path


def check_own(path: Path) -> None:
    """Check that the user owns a file or folder, and that nobody else may write to it.

    Raises SynoError if the check fails; OSError as `os.stat`.
    """
    status = path.stat()
    if status.st_uid != os.getuid():
        raise SynoError(
            f"{path}: expected a file of user {os.getuid()}, found one of user {status.st_uid}; it is not read"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SynoError(f"{path}: others may write to it; it is not read: remove that right with `chmod go-w {path}`")
