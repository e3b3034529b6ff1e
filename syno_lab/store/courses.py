"""Curve files. A running job writes its curves to its folder; the result of the finished job has all curves.

Only views read these files, so a job whose write fails continues. A reader gets a complete file or none. This module
imports nothing heavy, because readers are notebooks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from syno_lab.inputs import read_json

#: The curve file of a training: for each epoch the entry of the outcome's ``curve``.
CURVE_FILE = "curve.json"
#: The curve file of a tuning: for each operator's label, pairs of a trial and the best milliseconds up to it.
COURSE_FILE = "course.json"
#: The largest curve file, in bytes.
MOST_BYTES = 1 << 26


def write_course(path: Path, course: Mapping[str, Any] | Sequence[Any]) -> None:
    """Replace the curve file by the curves up to now; ignore a disk that is full or missing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with suppress(OSError):
        try:
            temporary.write_bytes(msgspec.json.encode(course))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def read_course(path: Path) -> Any:
    """Return the curves in the file; None where there is no file, or it is not JSON."""
    try:
        return read_json(path, MOST_BYTES)
    except (OSError, msgspec.DecodeError):
        return None
