"""Curve files. A running job writes its curves to its folder. When the job has finished, its result has all curves.

Only front ends read curve files, so a job continues if a write fails. A reader never sees an incomplete file. The
module imports no large library, because notebooks import it.
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
#: The curve file of a tuning: for each operator's label, pairs of a trial's number and the best latency in ms so far.
COURSE_FILE = "course.json"
#: The largest size of a curve file, in bytes.
MOST_BYTES = 1 << 26


def write_course(path: Path, course: Mapping[str, Any] | Sequence[Any]) -> None:
    """Replace the curve file by the current curves; ignore a full or missing disk."""
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
