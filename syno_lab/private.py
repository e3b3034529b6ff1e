"""What only the user's own account may read: folders and files of mode 0700 and 0600, and the user's own settings.

A lab trusts its user's account and nothing else (``docs/security.md``).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from syno_lab.errors import SynoError

#: Takes all rights from everybody but the user.
UMASK = 0o077
#: Names the folder of the user's settings and keys, in the place of the usual one.
CONFIG_VARIABLE = "SYNO_LAB_CONFIG"

_before: list[int] = []  # the umask that this process began with, once it has another


def keep_private() -> None:
    """Make all that this process and its children write from now on readable by the user alone.

    For processes that are the lab's own; in a process of somebody else (a notebook's kernel) files are made by `folder`
    and `create` instead, because the umask is the whole process's.
    """
    before = os.umask(UMASK)
    if not _before:
        _before.append(before)


@contextmanager
def usual() -> Iterator[None]:
    """Within the block, new files get the rights that the user's umask gives: exports to a place that the user names.

    Also a decorator of a function.
    """
    now = os.umask(_before[0]) if _before else None
    try:
        yield
    finally:
        if now is not None:
            os.umask(now)


def folder(path: str | os.PathLike[str]) -> Path:
    """The folder ``path``, made with mode 0700 where it is missing, and so are missing ones above it.

    One that is there and is the user's own loses the rights of others. Raises OSError as `os.mkdir`.
    """
    found = Path(path)
    missing = [one for one in (found, *found.parents) if not one.is_dir()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    if not found.is_symlink():
        _narrow(found)
    return found


def narrow_lab(folder: Path, store: str) -> None:
    """Take the rights of others away from the folder of a lab that was made with wider ones, and from its ``store``.

    A folder with other things and no store is not a lab's yet, and stays; what the lab makes in it is private all the
    same. A folder for everybody's temporary files and the user's home stay as well.
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
    """Open ``path`` to write bytes (``wb``, ``xb`` or ``ab``), with mode 0600 where it is made.

    A link at its place is not followed, and nothing but a regular file is written to. Raises OSError as `open`.
    """
    flags = {"wb": os.O_TRUNC, "xb": os.O_EXCL, "ab": os.O_APPEND}[mode]
    # A FIFO would wait for a reader for ever.
    flags |= os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path}: expected a regular file or none")
    return os.fdopen(descriptor, mode)


def config_folder() -> Path:
    """The folder of the user's settings and keys, made with mode 0700 where it is missing.

    The one that ``SYNO_LAB_CONFIG`` names, else ``syno-lab`` in ``XDG_CONFIG_HOME``, else in ``~/.config``.
    Raises SynoError where it is another user's, or others may write to it.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    usual = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "syno-lab"
    found = folder(Path(named) if named else usual)
    check_own(found)
    return found


def check_own(path: Path) -> None:
    """Make sure that a file or folder is the user's own, and that nobody else may write to it.

    Raises SynoError where it is not; OSError as `os.stat`.
    """
    found = path.stat()
    if found.st_uid != os.getuid():
        raise SynoError(
            f"{path}: expected a file of user {os.getuid()}, found one of user {found.st_uid}; it is not read"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SynoError(
            f"{path}: others may write to it; it is not read: take that right away with `chmod go-w {path}`"
        )
