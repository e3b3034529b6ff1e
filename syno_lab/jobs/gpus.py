"""The GPUs of a worker, and which of them an attempt sees: as many as the job's resources say.

A worker that a lab starts has the names of its GPUs in :data:`VARIABLE`; the process of an attempt gets its own in
``CUDA_VISIBLE_DEVICES``, and none where its job asks for none. Names are numbers or UUIDs, as CUDA takes them; nothing
here asks a driver but :func:`found`. A worker without the variable leaves its jobs' environment as it is.
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

#: In the environment of a worker: the names of its GPUs, divided by commas.
VARIABLE = "SYNO_LAB_GPUS"
#: What CUDA reads.
VISIBLE = "CUDA_VISIBLE_DEVICES"
#: The name of the resource.
GPU = "GPU"
_NAME = re.compile(r"[\w./-]{1,80}", re.ASCII)
_ASK_S = 20.0
_SMALL = 1e-9


def parse(text: str) -> tuple[str, ...]:
    """``all`` (those that the machine has), a number of them, or their names divided by commas.

    Raises JobError for anything else, for a name given twice, and for more than the machine has.
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
    """The names of so many GPUs: the first of those that this process may see, else numbers from 0 on."""
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return tuple(map(str, range(count)))
    names = tuple(name for name in (part.strip() for part in visible.split(",")) if name)
    if len(names) < count:
        raise JobError(f"GPUs: expected at most the {len(names)} that {VISIBLE} lets this process see, found {count}")
    return names[:count]


def found() -> tuple[str, ...]:
    """The GPUs that the machine's driver lists and this process may see; none without NVIDIA's driver."""
    try:
        program = shutil.which("nvidia-smi")
        if program is None:
            return ()
        done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=_ASK_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    count = sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    visible = os.environ.get(VISIBLE)
    return first(count) if visible is None else first(min(count, len([one for one in visible.split(",") if one])))


class Pool:
    """Who has which GPU of a worker; for threads to share."""

    def __init__(self, names: Sequence[str]) -> None:
        self._load = dict.fromkeys(names, 0.0)
        self._guard = threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._load)

    @contextlib.contextmanager
    def some(self, amount: float) -> Iterator[tuple[str, ...]]:
        """So many GPUs within the block, those with the least to do; jobs that ask for a part of one share it.

        Dask lets no more jobs run than the worker has GPUs for.
        """
        each = min(amount, 1.0)
        with self._guard:
            free = sorted(self._load, key=lambda name: (not self._load[name] + each <= 1 + _SMALL, -self._load[name]))
            if amount >= 1:
                free = sorted(self._load, key=lambda name: self._load[name])
            chosen = tuple(sorted(free[: ceil(amount - _SMALL)], key=list(self._load).index)) if amount > 0 else ()
            for name in chosen:
                self._load[name] += each
        try:
            yield chosen
        finally:
            self._give_back(chosen, each)

    @contextlib.contextmanager
    def held(self, names: Sequence[str], amount: float) -> Iterator[None]:
        """What a process has that another worker has started."""
        each, known = min(amount, 1.0), [name for name in names if name in self._load]
        with self._guard:
            for name in known:
                self._load[name] += each
        try:
            yield
        finally:
            self._give_back(known, each)

    def _give_back(self, names: Sequence[str], each: float) -> None:
        with self._guard:
            for name in names:
                self._load[name] = max(0.0, self._load[name] - each)


_pools: dict[str, Pool] = {}
_guard = threading.Lock()


def pool() -> Pool | None:
    """The GPUs of the worker that this process is; None where nobody has named any, not even none."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    with _guard:
        return _pools.setdefault(text, Pool(tuple(name for name in text.split(",") if name)))


@contextlib.contextmanager
def assigned(amount: float) -> Iterator[dict[str, str]]:
    """What the environment of an attempt says of GPUs, for as long as it has them."""
    ours = pool()
    if ours is None:
        yield {}
        return
    with ours.some(amount) as names:
        yield {VISIBLE: ",".join(names)}


def visible_to(pid: int) -> tuple[str, ...]:
    """The GPUs that a process of ours was given; none where that cannot be seen any more."""
    import psutil

    try:
        text = psutil.Process(pid).environ().get(VISIBLE, "")
    except (psutil.Error, OSError):
        return ()
    return tuple(name for name in text.split(",") if name)
