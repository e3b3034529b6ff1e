"""The child's end of :mod:`trust.tvm_parent`: a JSON task a line on stdin, a JSON answer a line on stdout."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any


def answer_lines(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer each line; what a task raises is its answer, as ``{"failure": traceback}``."""
    for line in sys.stdin:
        task = json.loads(line)
        try:
            found = answer(task)
        except Exception:  # noqa: BLE001 - any failure is the answer
            found = {"failure": traceback.format_exc()}
        sys.stdout.write(json.dumps({**found, "torch": "torch" in sys.modules}) + "\n")
        sys.stdout.flush()
