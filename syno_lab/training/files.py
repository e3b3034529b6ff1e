"""Write files atomically, so that an interruption leaves no incomplete file."""

from __future__ import annotations

from pathlib import Path

from syno_lab.errors import NO_ROOM, DiskFullError, TrainingError
from syno_lab.scratch import put


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``; the old file stays until all of ``content`` is on the disk.

    Raises TrainingError if the file cannot be written, DiskFullError if the disk is full.
    """
    try:
        put(path, content)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFullError(
                f"no room to write {path} ({error.strerror}): free some space and continue; what was saved is safe"
            ) from None
        raise TrainingError(
            f"expected to write {path}, found: {error.strerror or error}; choose another place"
        ) from None
