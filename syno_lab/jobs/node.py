"""What Dask's scheduler and worker load as they start (``--preload``) where a lab starts them.

Nothing of the lab is imported here: the scheduler needs none of it.
"""

from __future__ import annotations

import os
import time
from typing import Any

#: Names in one variable, divided by commas, the variables of the environment that are not for jobs.
NOT_FOR_JOBS = "SYNO_LAB_NOT_FOR_JOBS"

_ours: list[Any] = []


def use_steady_clock() -> None:
    """Have Dask's streams and connections wait by the monotonic clock.

    They wait until a moment of the clock of the day (``distributed`` 2026.8.0): where that is set back by an hour, no
    message leaves a stream for an hour.
    """
    from distributed import batched
    from distributed.comm import core

    for module in (batched, core):
        vars(module)["time"] = time.monotonic


def dask_setup(server: Any) -> None:
    """Close the HTTP server, which Dask starts whatever one asks for, and forget what is only for this process."""
    use_steady_clock()
    server.http_server.stop()
    for name in os.environ.pop(NOT_FOR_JOBS, "").split(","):
        os.environ.pop(name, None)
    _ours.append(server)


def is_ours() -> bool:
    """Whether this process is a scheduler or worker that a lab has started."""
    return bool(_ours)
