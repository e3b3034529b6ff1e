"""Jobs of a lab, which continue after the process that submitted them has ended.

`lab` is the public interface. `ledger` stores the jobs, `attempts` changes their states, and `sweep` finds dead
processes. `cluster`, `keeper` and `supervise` run jobs on Dask workers. `child` and `context` run in a job's process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syno_lab.jobs.context import JobContext
    from syno_lab.jobs.handle import JobHandle
    from syno_lab.jobs.kinds import KINDS
    from syno_lab.jobs.lab import Lab
    from syno_lab.jobs.records import Attempt, JobFailed, JobRecord, JobStopped

__all__ = ["KINDS", "Attempt", "JobContext", "JobFailed", "JobHandle", "JobRecord", "JobStopped", "Lab"]

# Each module is imported on use: the process of a job needs only some of the modules.
_PLACES = {
    "Attempt": "records",
    "JobContext": "context",
    "JobFailed": "records",
    "JobHandle": "handle",
    "JobRecord": "records",
    "JobStopped": "records",
    "KINDS": "kinds",
    "Lab": "lab",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
