"""Temporary folders that do not stay: what an owner that was killed left behind is removed by whoever comes next.

An owner holds a lock (``flock``) on its folder for as long as it lives, however it ends; a folder that nobody holds is
a dead owner's. Nothing else is removed: the name must be of this form, the folder the user's own and no link.
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

#: How the name of each such folder ends.
SUFFIX = ".scratch"
#: Begins the name of each that stands in the user's folder for temporary files.
COMMON = "syno-"
#: Characters of a prefix, which may be a file's name: the whole name has room in 255 bytes.
_LONGEST = 50


@contextlib.contextmanager
def scratch(prefix: str, within: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A new folder of mode 0700 in ``within`` (the folder for temporary files), removed with all that is in it.

    Those of dead owners are removed first: in ``within`` those of the same ``prefix``, in the folder for temporary
    files all of the lab. Raises OSError as `tempfile.mkdtemp`; ValueError for a ``prefix`` without ``syno-`` there.
    """
    if within is None and not prefix.startswith(COMMON):
        raise ValueError(f"expected a prefix that begins with {COMMON!r}, found {prefix!r}")
    prefix = prefix[:_LONGEST]
    place = Path(tempfile.gettempdir() if within is None else within).absolute()
    clear(place, COMMON if within is None else prefix)
    path, held = _make(place, prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(held)


def clear(place: Path, prefix: str) -> list[Path]:
    """Remove the folders in ``place`` whose names begin with ``prefix`` and whose owners are dead; which they were."""
    removed = []
    more = "[a-z-]*" if prefix == COMMON else ""
    form = re.compile(rf"{re.escape(prefix)}{more}[a-z0-9_]{{8}}{re.escape(SUFFIX)}")
    try:
        with os.scandir(place) as entries:
            found = [one.name for one in entries if form.fullmatch(one.name)]
    except OSError:
        return []
    for name in found:
        with contextlib.suppress(OSError):  # it is held, somebody else's, or gone
            held = _hold(place / name, wait=False)
            try:
                shutil.rmtree(place / name)  # follows no link, in the folder or in its place
                removed.append(place / name)
            finally:
                os.close(held)
    return removed


def _make(place: Path, prefix: str) -> tuple[Path, int]:
    """A new folder and the descriptor by which it is held."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, suffix=SUFFIX, dir=place))
        # One who clears up may take it for a dead owner's before it is held.
        with contextlib.suppress(FileNotFoundError):
            return path, _hold(path, wait=True)


def _hold(path: Path, *, wait: bool) -> int:
    """Lock the user's own folder ``path``; the descriptor. Raises OSError, where it is held already or gone as well."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(f"{path} is another user's")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:  # a file system without such locks: nobody else can hold it either, so it is never cleared
            if not wait:
                raise
        if not os.path.samestat(os.fstat(descriptor), path.lstat()):
            raise FileNotFoundError(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def put(path: Path, content: bytes) -> None:
    """Write a file for the user alone; what stands at ``path`` stays until all of ``content`` is on the disk.

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
    """Make the folders above ``path`` for the block; those that are new go again where the block fails."""
    new = [one for one in path.absolute().parents if not one.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for one in new:
            with contextlib.suppress(OSError):  # something is in it
                one.rmdir()
        raise


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place to write a file of that name; it takes the place of ``path`` at the end, whole or not at all.

    Raises ExportError when the place cannot be written to.
    """
    try:
        with folder_of(path), scratch(f".{path.name}-", path.parent) as folder:
            temporary = folder / path.name
            yield temporary
            temporary.replace(path)
    except OSError as error:
        raise ExportError(f"expected to write {path}, found: {error.strerror or error}; choose another place") from None
