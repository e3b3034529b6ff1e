"""Files in a job's folder in which it shows its course while it goes on; its result has the whole of it at the end.

They are for looking at alone: whoever writes one does not fail where it cannot, and whoever reads one finds it whole or
not at all. Nothing heavy is loaded here, since readers are notebooks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

#: Of a training: for each epoch what its outcome will have in ``curve``.
CURVE_FILE = "curve.json"
#: Of a tuning: for each operator by its label, pairs of trial and best milliseconds so far.
COURSE_FILE = "course.json"


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
    """What is in the file; None where there is none, or something else is in it."""
    try:
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
