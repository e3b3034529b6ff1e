"""A kind of job under a test's control, beside those of :mod:`job_kinds`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import job_kinds

if TYPE_CHECKING:
    from syno_lab.jobs import JobContext

#: For ``SYNO_LAB_KINDS``; this file's folder must be on the path of whoever opens a lab.
VARIABLE = f"{job_kinds.VARIABLE};gate=short_jobs:gate"


def gate(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Wait until the file ``params["gate"]`` is there, then say what is in it and in which attempt this was."""
    from syno_lab.jobs import JobStopped

    context.log(f"waiting for {Path(params['gate']).name}")
    context.report(0.5, "<b>waiting</b>")
    gate = Path(params["gate"])
    while not gate.exists() or not gate.read_text():  # a file that is being written is empty at first
        if context.should_stop():
            raise JobStopped("asked to")
        time.sleep(0.05)
    return {"read": gate.read_text(), "attempt": context.attempt, "pid": os.getpid()}
