"""Limits of time and memory for a computation, checked in its innermost loops.

A search space can be larger than any machine. Every loop over a space calls :meth:`Effort.tick` at least once a
millisecond. Some calls of ``tick`` check the clock, ``should_stop`` and this process's memory. If a limit is exceeded,
``tick`` raises :class:`syno_lab.errors.EffortError`, whose message names the computation.
"""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from syno_lab.errors import OverTimeError, StoppedError, TooLargeError
from syno_lab.inputs import text_of

Stop = Callable[[], bool]
P = ParamSpec("P")
T = TypeVar("T")

_TICKS = 32  # Calls between two checks of the clock.
_MEMORY_PERIOD_S = 0.02  # Seconds between two checks of the memory; memory grows by about ten megabytes meanwhile.
_SHARE = 0.5  # The usable share of the machine's free memory, if no limit is set.
_PAGE_BYTES = resource.getpagesize()
_SMALL_BYTES = 1 << 26  # allocations below this size are not checked
_SMALLER = "bind smaller sizes"

#: Messages of PyTorch, its libraries, C++ and CUDA about failed allocations.
NO_MEMORY = re.compile(
    r"out.of.memory|can't allocate memory|not enough memory|cannot allocate memory|bad_alloc|STATUS_ALLOC_FAILED"
    r"|could not create a memory|failed to allocate|storage size calculation overflowed|numel: integer multiplication",
    re.IGNORECASE,
)


class Effort:
    """The limits of a computation, passed to all functions that take part in it.

    Args:
        seconds: the time limit, in CPU time of the calling thread from now on; None for no limit.
        should_stop: called at each check; the computation stops when it returns True.
        memory_bytes: the largest number of bytes by which this process may grow. None: half of the machine's free
            memory, measured each time that :meth:`within` is entered.
    """

    __slots__ = ("_base_bytes", "_checks", "_given_bytes", "_grown", "_is_within", "_looked", "_most_bytes", "_ticks")

    def __init__(
        self,
        seconds: float | None = None,
        should_stop: Stop | None = None,
        *,
        memory_bytes: int | None = None,
    ) -> None:
        self._checks: list[Callable[[str], None]] = []
        self._add(seconds, should_stop, time.thread_time)
        self._ticks = _TICKS
        self._is_within = False
        self._looked = -1.0
        self._given_bytes = memory_bytes
        self._base_bytes = self._most_bytes = 0.0  # the first check measures the memory
        self._grown = 0.0

    @contextmanager
    def within(
        self,
        seconds: float | None = None,
        should_stop: Stop | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> Iterator[Effort]:
        """Add limits to this effort for the block."""
        number, was_within = len(self._checks), self._is_within
        self._add(seconds, should_stop, clock)
        if not was_within and self._given_bytes is None:
            self._looked = -1.0
        self._is_within = True
        if len(self._checks) > number:
            self._ticks = 0
        try:
            yield self
        finally:
            self._is_within = was_within
            del self._checks[number:]

    def tick(self, what: str) -> None:
        """Count one step; about one call in 32 checks the limits.

        Args:
            what: the computation, for the message: ``"counting operators"``.

        Raises:
            StoppedError: ``should_stop`` returned True.
            OverTimeError: the time limit has passed.
            TooLargeError: this process has grown by more than its limit.
        """
        self._ticks -= 1
        if self._ticks < 0:
            self.look(what)

    def look(self, what: str) -> None:
        """Check the limits now; raises as :meth:`tick`."""
        self._ticks = _TICKS
        for check in self._checks:
            check(what)
        if self._growth() > self._most_bytes:
            raise TooLargeError(self._too_large(what))

    def make_room(self, what: str, size: float) -> None:
        """Raise TooLargeError if ``size`` more bytes would exceed the memory limit."""
        if self._growth() + size > self._most_bytes:
            raise TooLargeError(self._too_large(what))

    @property
    def is_tight(self) -> bool:
        """True if half of the memory limit is used: caches should be cleared."""
        return 2 * self._growth() > self._most_bytes

    def _growth(self) -> float:
        """Return by how many bytes this process has grown, measured at most :data:`_MEMORY_PERIOD_S` ago."""
        now = time.monotonic()
        if self._looked < 0:
            self._most_bytes = self._given_bytes if self._given_bytes is not None else _SHARE * free_bytes()
            if not self._base_bytes or self._given_bytes is None:
                self._base_bytes = resident_bytes()
            self._looked, self._grown = now, 0.0
        elif not 0 <= now - self._looked < _MEMORY_PERIOD_S:
            self._looked, self._grown = now, resident_bytes() - self._base_bytes
        return self._grown

    def _too_large(self, what: str) -> str:
        return (
            f"{what} would take more than {self._most_bytes / 2**20:,.0f} MiB of memory; narrow the spec: fewer axes, "
            "variables or primitives"
        )

    def _add(self, seconds: float | None, should_stop: Stop | None, clock: Callable[[], float]) -> None:
        if should_stop is not None:
            self._checks.append(partial(end_if, should_stop))
        if seconds is not None:
            end = clock() + seconds

            def check_time(what: str) -> None:
                if clock() >= end:
                    raise OverTimeError(
                        f"no end within {seconds:g} seconds while {what}; give it more time, or narrow the spec"
                    )

            self._checks.append(check_time)


def kept(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Cache at most ``most`` results of a function by its positional arguments, without its keyword ``effort``."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        known: dict[tuple[object, ...], T] = {}

        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            if args not in known:
                result = function(*args, **kwargs)
                if len(known) >= most:
                    known.clear()
                known[args] = result
            return known[args]

        return wrapper

    return decorated


def end_if(should_stop: Stop | None, what: str) -> None:
    """Raise StoppedError if ``should_stop`` returns True; for loops with long steps."""
    if should_stop is not None and should_stop():
        raise StoppedError(f"stopped while {what}")


def resident_bytes() -> int:
    """Return the memory that this process uses now; 0 if the system cannot report it cheaply."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123 - runs ten times a second and more
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def peak_bytes() -> int:
    """Return the peak memory of this process; on Linux, writing to ``clear_refs`` (proc(5)) resets the peak."""
    with suppress(OSError):  # getrusage also includes the peak of the parent process before the exec of this program
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux reports the peak in KiB


def free_bytes() -> float:
    """Return the free memory of this machine, or of this process's control group if that is less."""
    import psutil

    free = float(psutil.virtual_memory().available)
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii")
        return min(free, float(most) - float(used))  # float("max") raises ValueError: no limit
    except (OSError, ValueError):
        return free


def check_room(what: str, size: float) -> None:
    """Check, before an allocation, that this machine has ``size`` bytes of free memory.

    Raises TooLargeError if the machine has less memory; the message begins with ``what``.
    """
    if size > _SMALL_BYTES and size > (free := free_bytes()):
        comparison = f"expected at most {_gib(free)}, which is free here, found {_gib(size)}"
        raise TooLargeError(f"{what}: {comparison}; {_SMALLER}")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception reports a failed allocation."""
    if isinstance(error, RuntimeError):
        return NO_MEMORY.search(text_of(error)) is not None
    return isinstance(error, MemoryError)


def memory_error(error: BaseException) -> TooLargeError | None:
    """Return an error of one line for a failed allocation of Python or a library; None for any other exception."""
    if not is_out_of_memory(error):
        return None
    message = " ".join(text_of(error).split())
    return TooLargeError(f"expected what this machine has memory for, found: {message or 'none left'}; {_SMALLER}")


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"
