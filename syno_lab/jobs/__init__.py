"""Jobs continue after the process that submitted them ends, and lose no results: a lab's folder, its store, and Dask.

`lab` is the door, `ledger` the jobs in the store, `attempts` what may happen to them, `alive` and `sweep` who is dead,
`cluster`, `keeper` and `supervise` how Dask comes to run them, `child` and `context` the job's own process.
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

# Loaded on use: the processes of jobs need only some of them.
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
