"""Kinds of jobs that tell what their process is like, for tests of how it was started."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from syno_lab.evaluate.jobs.alive import TOKEN_VARIABLE

if TYPE_CHECKING:
    from syno_lab.evaluate.jobs import JobContext

#: ``SYNO_LAB_KINDS``: the same function by itself and forked.
VARIABLE = "alone=warm_kinds:facts;forked=warm_kinds:facts"


def facts(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """What is to be the same however a process was started, what is not, and what a process of its own has."""
    mine = os.environ[TOKEN_VARIABLE]
    ask = f"import os; print(os.environ[{TOKEN_VARIABLE!r}])"
    shown = Path("/proc/self/environ").read_bytes().decode().split("\0")
    opened = {file.name: str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if os.path.lexists(file)}
    spec = sys.modules["__main__"].__spec__
    return {
        "same": {
            "environment": {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE},
            "folder": str(Path.cwd()),
            "path": sys.path,
            "words": [sys.argv[1], len(sys.argv)],
            "leads": os.getpid() == os.getsid(0) == os.getpgid(0),
            "sockets": sum(file.startswith("socket:") for file in opened.values()),
            "input": opened["0"],
            "output": [Path(opened[place]).name.partition("-")[2] for place in "12"],
            "shown": f"{TOKEN_VARIABLE}={mine}" in shown,
            "handed on": subprocess.check_output([sys.executable, "-c", ask], text=True).strip() == mine,
            "python threads": sorted(one.name for one in threading.enumerate()),
            "blas": _blas_threads(),
        },
        "main": "" if spec is None else spec.name,
        "draws": [random.random(), float(np.random.random())],  # noqa: NPY002 - the global one is what is asked about
        "pid": os.getpid(),
    }


def _blas_threads() -> list[int]:
    from threadpoolctl import threadpool_info

    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
