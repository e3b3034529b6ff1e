"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from syno_lab.errors import TrainingError


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, with what was there before until all of it is on the disk.

    Raises TrainingError where the place cannot be written to, or the disk is full.
    """
    try:
        with _temporary_beside(path) as temporary:
            with temporary.open("wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(path)
    except OSError as error:
        raise TrainingError(
            f"expected to write {path}, found: {error.strerror or error}; choose another place"
        ) from None


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
