"""Temporary folders that are always removed: each process also removes the folders of killed processes.

The process that owns a folder holds a lock (``flock``) on the folder. A folder without a lock belongs to a dead
process. Only folders with names of :func:`scratch` are removed, and only if they belong to the user and are no links.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from syno_lab import private
from syno_lab.errors import ExportError

#: The suffix of the name of each temporary folder.
SUFFIX = ".scratch"
#: The prefix of the names of folders in the system's folder for temporary files.
COMMON = "syno-"
#: The largest number of characters of a prefix, because the name of the folder must fit in 255 bytes.
_LONGEST = 50


@contextlib.contextmanager
def scratch(prefix: str, within: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Create a folder of mode 0700 in ``within`` (default: the system's temporary folder); remove it at the end.

    First remove the folders of dead processes: in ``within`` those with the same ``prefix``, in the system's folder all
    folders of the lab. Raises OSError as `tempfile.mkdtemp`; ValueError without ``within`` if ``prefix`` does not begin
    with ``syno-``.
    """
    if within is None and not prefix.startswith(COMMON):
        raise ValueError(f"expected a prefix that begins with {COMMON!r}, found {prefix!r}")
    prefix = prefix[:_LONGEST]
    parent = Path(tempfile.gettempdir() if within is None else within).absolute()
    clear(parent, COMMON if within is None else prefix)
    path, descriptor = _make(parent, prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def clear(place: Path, prefix: str) -> list[Path]:
    """Remove the folders in ``place`` that begin with ``prefix`` and belong to dead processes; return their paths."""
    removed = []
    more = "[a-z-]*" if prefix == COMMON else ""
    form = re.compile(rf"{re.escape(prefix)}{more}[a-z0-9_]{{8}}{re.escape(SUFFIX)}")
    try:
        with os.scandir(place) as entries:
            names = [entry.name for entry in entries if form.fullmatch(entry.name)]
    except OSError:
        return []
    for name in names:
        with contextlib.suppress(OSError):  # OSError: the folder is locked, foreign or already removed
            descriptor = _hold(place / name, wait=False)
            try:
                shutil.rmtree(place / name)  # rmtree follows no symbolic link
                removed.append(place / name)
            finally:
                os.close(descriptor)
    return removed


def _make(parent: Path, prefix: str) -> tuple[Path, int]:
    """Create a folder and lock it; return its path and the descriptor of the lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, suffix=SUFFIX, dir=parent))
        # Another process may remove the folder before it is locked.
        with contextlib.suppress(FileNotFoundError):
            return path, _hold(path, wait=True)


def _hold(path: Path, *, wait: bool) -> int:
    """Lock the user's own folder; return the descriptor. Raises OSError, also if the folder is locked or missing."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(f"{path} is another user's")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:  # without locks in the file system, a folder is never removed, as no process can lock it
            if not wait:
                raise
        if not os.path.samestat(os.fstat(descriptor), path.lstat()):
            raise FileNotFoundError(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def put(path: Path, content: bytes) -> None:
    """Write a file that only the user can read; an existing file stays until all of ``content`` is on the disk.

    Raises OSError.
    """
    if not path.parent.is_dir():
        private.folder(path.parent)
    with scratch(f".{path.name}-", path.parent) as within:
        with private.create(within / path.name) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        (within / path.name).replace(path)


@contextlib.contextmanager
def folder_of(path: Path) -> Iterator[None]:
    """Create the parent folders of ``path`` for the block; remove the new folders if the block fails."""
    new = [parent for parent in path.absolute().parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for parent in new:
            with contextlib.suppress(OSError):  # rmdir refuses a folder that is not empty
                parent.rmdir()
        raise


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; at the end of the block, move the complete file from there to ``path``.

    Raises ExportError if the file cannot be written.
    """
    try:
        with folder_of(path), scratch(f".{path.name}-", path.parent) as folder:
            temporary = folder / path.name
            yield temporary
            temporary.replace(path)
    except OSError as error:
        raise ExportError(f"expected to write {path}, found: {error.strerror or error}; choose another place") from None
