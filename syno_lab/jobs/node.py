"""The module that a lab's Dask scheduler and worker import first (``--preload``).

The module imports no other module of the lab, because the scheduler needs no other module.
"""

from __future__ import annotations

import os
import time
from typing import Any

#: An environment variable with the names of variables that jobs must not inherit, separated by commas.
NOT_FOR_JOBS = "SYNO_LAB_NOT_FOR_JOBS"

_ours: list[Any] = []


def use_steady_clock() -> None:
    """Make Dask's streams and connections wait by the monotonic clock.

    Dask (``distributed`` 2026.8.0) waits until a time of the wall clock. If that clock is set back by an hour, a stream
    would send no message for an hour.
    """
    from distributed import batched
    from distributed.comm import core

    for module in (batched, core):
        vars(module)["time"] = time.monotonic


def dask_setup(server: Any) -> None:
    """Close Dask's HTTP server, which no option disables, and delete the environment variables not meant for jobs."""
    use_steady_clock()
    server.http_server.stop()
    for name in os.environ.pop(NOT_FOR_JOBS, "").split(","):
        os.environ.pop(name, None)
    _ours.append(server)


def is_ours() -> bool:
    """Whether this process is a scheduler or worker that a lab has started."""
    return bool(_ours)
