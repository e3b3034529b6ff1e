"""Curve files: a running job writes its curves to its folder; the result of the finished job has all of them.

Only views use them: a job that cannot write its file continues without it, and a reader finds the file whole or
not at all. Nothing heavy is loaded here, since readers are notebooks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from syno_lab.inputs import read_json

#: Of a training: for each epoch what its outcome will have in ``curve``.
CURVE_FILE = "curve.json"
#: Of a tuning: for each operator by its label, pairs of trial and best milliseconds so far.
COURSE_FILE = "course.json"
#: Of such a file.
MOST_BYTES = 1 << 26


def write_course(path: Path, course: Mapping[str, Any] | Sequence[Any]) -> None:
    """Put the course so far in the place of the earlier one; a disk that is full or away is passed over."""
    half = path.with_name(f".{path.name}.{os.getpid()}.part")
    with suppress(OSError):
        try:
            half.write_bytes(msgspec.json.encode(course))
            half.replace(path)
        finally:
            half.unlink(missing_ok=True)


def read_course(path: Path) -> Any:
    """The curves in the file; None where there is no file, or it holds something else."""
    try:
        return read_json(path, MOST_BYTES)
    except (OSError, msgspec.DecodeError):
        return None
