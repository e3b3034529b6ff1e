"""The process in which TVM runs Canvas's kernels: the other end of :mod:`trust.tvm_parent`, as ``tvm_child.py``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from syno_lab.processes.light import import_tvm

import_tvm()  # before all else, without torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from syno_lab.canvas.files import from_json  # noqa: E402
from trust import kernels  # noqa: E402
from trust.tvm_answers import answer_lines  # noqa: E402


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Compile with the default schedule and compare with the meaning, on random numbers."""
    error = kernels.compiled(from_json(task["operator"]), task["binding"], task["seed"])
    # A file of JSON has no not-a-number.
    return {"error": error if np.isfinite(error) else str(error)}


if __name__ == "__main__":
    answer_lines(run)
