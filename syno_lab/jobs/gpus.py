"""The GPUs of a worker, and the choice of GPUs for an attempt by the job's resources.

A lab's worker has the names of its GPUs in :data:`VARIABLE`. The process of an attempt gets its GPUs in
``CUDA_VISIBLE_DEVICES``, which is empty where the job requires no GPU. Names are numbers or UUIDs, as in CUDA. Only
:func:`found` queries NVIDIA's driver. A worker without the variable does not change the environment of its jobs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from math import ceil

from syno_lab.errors import JobError
from syno_lab.inputs import quoted

#: An environment variable of a worker: the names of its GPUs, separated by commas.
VARIABLE = "SYNO_LAB_GPUS"
#: The environment variable that CUDA reads.
VISIBLE = "CUDA_VISIBLE_DEVICES"
#: The name of the resource.
GPU = "GPU"
_NAME = re.compile(r"[\w./-]{1,80}", re.ASCII)
_ASK_S = 20.0
_SMALL = 1e-9


def parse(text: str) -> tuple[str, ...]:
    """Return the names of GPUs for a text: ``all`` of this machine, a number of GPUs, or names separated by commas.

    Raises JobError for any other text, for a repeated name, and for more GPUs than the machine has.
    """
    if text == "all":
        return found()
    if text.isascii() and text.isdigit():
        return first(int(text))
    names = tuple(name.strip() for name in text.split(","))
    if not all(_NAME.fullmatch(name) for name in names) or len(set(names)) < len(names):
        raise JobError(f"GPUs: expected all, a number, or names divided by commas, found {quoted(text)}")
    return names


def first(count: int) -> tuple[str, ...]:
    """Return the names of the first ``count`` GPUs that this process may see; 0, 1, … if it may see all."""
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return tuple(map(str, range(count)))
    names = tuple(name for name in (part.strip() for part in visible.split(",")) if name)
    if len(names) < count:
        raise JobError(f"GPUs: expected at most the {len(names)} that {VISIBLE} lets this process see, found {count}")
    return names[:count]


def found() -> tuple[str, ...]:
    """Return the GPUs that NVIDIA's driver lists and this process may see; empty without the driver."""
    count = sum(line.startswith("GPU ") for line in told_by_driver("-L", timeout_s=_ASK_S).splitlines())
    visible = os.environ.get(VISIBLE)
    return first(count) if visible is None else first(min(count, len([name for name in visible.split(",") if name])))


def told_by_driver(*options: str, timeout_s: float) -> str:
    """Return the output of ``nvidia-smi``; empty without the driver, after an error or after ``timeout_s`` seconds."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if program := shutil.which("nvidia-smi"):
            command = [program, *options]
            return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=True).stdout
    return ""


class Pool:
    """The GPUs of a worker and the load of each GPU; safe to use from threads."""

    def __init__(self, names: Sequence[str]) -> None:
        self._load = dict.fromkeys(names, 0.0)
        self._guard = threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all GPUs."""
        return tuple(self._load)

    @contextlib.contextmanager
    def some(self, amount: float) -> Iterator[tuple[str, ...]]:
        """Reserve GPUs within the block: whole GPUs with the least load, or a part of the fullest GPU with room for it.

        Dask never runs more jobs than the worker's GPUs allow.
        """
        share = min(amount, 1.0)
        with self._guard:
            free = sorted(self._load, key=lambda name: (not self._load[name] + share <= 1 + _SMALL, -self._load[name]))
            if amount >= 1:
                free = sorted(self._load, key=lambda name: self._load[name])
            chosen = tuple(sorted(free[: ceil(amount - _SMALL)], key=list(self._load).index)) if amount > 0 else ()
            for name in chosen:
                self._load[name] += share
        try:
            yield chosen
        finally:
            self._give_back(chosen, share)

    @contextlib.contextmanager
    def held(self, names: Sequence[str], amount: float) -> Iterator[None]:
        """Within the block, count as used the GPUs of a process that another worker has started."""
        share, known = min(amount, 1.0), [name for name in names if name in self._load]
        with self._guard:
            for name in known:
                self._load[name] += share
        try:
            yield
        finally:
            self._give_back(known, share)

    def _give_back(self, names: Sequence[str], share: float) -> None:
        with self._guard:
            for name in names:
                self._load[name] = max(0.0, self._load[name] - share)


_pools: dict[str, Pool] = {}
_guard = threading.Lock()


def pool() -> Pool | None:
    """Return the GPUs of this worker process; None where the variable is not set at all."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    with _guard:
        return _pools.setdefault(text, Pool(tuple(name for name in text.split(",") if name)))


@contextlib.contextmanager
def assigned(amount: float) -> Iterator[dict[str, str]]:
    """Reserve GPUs within the block, and return the environment variables of an attempt for them."""
    own_pool = pool()
    if own_pool is None:
        yield {}
        return
    with own_pool.some(amount) as names:
        yield {VISIBLE: ",".join(names)}


def visible_to(pid: int) -> tuple[str, ...]:
    """Return the GPUs that a process of this user sees; empty where its environment cannot be read."""
    import psutil

    try:
        text = psutil.Process(pid).environ().get(VISIBLE, "")
    except (psutil.Error, OSError):
        return ()
    return tuple(name for name in text.split(",") if name)
