"""How long a computation may take and how much memory: looked at in its innermost loops.

A search space can be larger than any machine. Whatever goes through one calls :meth:`Effort.tick` at least once a
millisecond; that counts, and looks at the clock, at the caller's ``should_stop`` and at this process's memory now and
then. What is over ends in an :class:`syno_lab.errors.EffortError` that says in one line at what.
"""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from syno_lab.errors import OverTimeError, StoppedError, TooLargeError
from syno_lab.inputs import text_of

Stop = Callable[[], bool]
P = ParamSpec("P")
T = TypeVar("T")

_TICKS = 32  # between two looks at the clock
_MEMORY_PERIOD_S = 0.02  # between two looks at the memory, which grows by some ten megabytes meanwhile
_SHARE = 0.5  # of the machine's free memory, where no bound is given
_PAGE_BYTES = resource.getpagesize()
_SMALL_BYTES = 1 << 26  # so much is made without a look at what is left
_SMALLER = "bind smaller sizes"

#: What PyTorch, its libraries, C++ and CUDA say of failed allocations.
NO_MEMORY = re.compile(
    r"out.of.memory|can't allocate memory|not enough memory|cannot allocate memory|bad_alloc|STATUS_ALLOC_FAILED"
    r"|could not create a memory|failed to allocate|storage size calculation overflowed|numel: integer multiplication",
    re.IGNORECASE,
)


class Effort:
    """What a computation may take; it is handed to all that take part in it.

    Args:
        seconds: of ``clock`` from now on; None for as long as it takes.
        should_stop: asked with the clock; once it says so the computation ends.
        memory_bytes: by how much this process may grow from now on. None: by half of what the machine has left, each
            time that :meth:`within` is entered.
        clock: in seconds; the calling thread's computing unless told.
    """

    __slots__ = ("_base_bytes", "_checks", "_given_bytes", "_grown", "_is_within", "_looked", "_most_bytes", "_ticks")

    def __init__(
        self,
        seconds: float | None = None,
        should_stop: Stop | None = None,
        *,
        memory_bytes: int | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._checks: list[Callable[[str], None]] = []
        self._add(seconds, should_stop, clock)
        self._ticks = _TICKS
        self._is_within = False
        self._looked = -1.0
        self._given_bytes = memory_bytes
        self._base_bytes = self._most_bytes = 0.0  # measured at the first look
        self._grown = 0.0

    @contextmanager
    def within(
        self,
        seconds: float | None = None,
        should_stop: Stop | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> Iterator[Effort]:
        """The same effort, bound further while a ``with`` lasts."""
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
        """Count, and look now and then.

        Args:
            what: what is being done, for the message: ``"counting operators"``.

        Raises:
            StoppedError: when ``should_stop`` says so.
            OverTimeError: when the time is over.
            TooLargeError: when this process has grown by more than it may.
        """
        self._ticks -= 1
        if self._ticks < 0:
            self.look(what)

    def look(self, what: str) -> None:
        """As :meth:`tick`, but look now."""
        self._ticks = _TICKS
        for check in self._checks:
            check(what)
        if self._growth() > self._most_bytes:
            raise TooLargeError(self._too_large(what))

    def make_room(self, what: str, size: float) -> None:
        """Refuse what will need ``size`` bytes, where that is more than is left. Raises TooLargeError where it is."""
        if self._growth() + size > self._most_bytes:
            raise TooLargeError(self._too_large(what))

    @property
    def is_tight(self) -> bool:
        """Whether half of the memory is taken: time to forget what can be made anew."""
        return 2 * self._growth() > self._most_bytes

    def _growth(self) -> float:
        """By how many bytes this process has grown, as it was at most :data:`_MEMORY_PERIOD_S` ago."""
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

            def check_stop(what: str) -> None:
                if should_stop():
                    raise StoppedError(f"stopped while {what}")

            self._checks.append(check_stop)
        if seconds is not None:
            end = clock() + seconds

            def check_time(what: str) -> None:
                if clock() >= end:
                    raise OverTimeError(
                        f"no end within {seconds:g} seconds while {what}; give it more time, or narrow the spec"
                    )

            self._checks.append(check_time)


def kept(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep the answers of a function, at most ``most``; its keyword ``effort`` changes none of them."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        known: dict[tuple[object, ...], T] = {}

        @wraps(function)
        def asked(*args: P.args, **kwargs: P.kwargs) -> T:
            if args not in known:
                found = function(*args, **kwargs)
                if len(known) >= most:
                    known.clear()
                known[args] = found
            return known[args]

        return asked

    return decorated


def end_if(should_stop: Stop | None, what: str) -> None:
    """For loops whose steps are long: raises StoppedError when ``should_stop`` says so."""
    if should_stop is not None and should_stop():
        raise StoppedError(f"stopped while {what}")


def resident_bytes() -> int:
    """The memory that this process holds now; 0 where the system does not say so cheaply."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123 - ten times a second and more
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def peak_bytes() -> int:
    """The most memory that this process has held so far; Linux can be told to begin anew (proc(5), ``clear_refs``)."""
    with suppress(OSError):  # getrusage counts the process that started this one too, until it ran this program
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


def free_bytes() -> float:
    """The memory that this machine, and the control group that this process is in, have left."""
    import psutil

    free = float(psutil.virtual_memory().available)
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii")
        return min(free, float(most) - float(used))  # float("max") is no number: no bound
    except (OSError, ValueError):
        return free


def check_room(what: str, size: float) -> None:
    """Refuse to make what needs ``size`` bytes, where this machine has not so many left.

    Raises TooLargeError where it has not; the line begins with ``what``.
    """
    if size > _SMALL_BYTES and size > (left := free_bytes()):
        found = f"expected at most {_gib(left)}, which is free here, found {_gib(size)}"
        raise TooLargeError(f"{what}: {found}; {_SMALLER}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that there was no memory left."""
    if isinstance(error, RuntimeError):
        return NO_MEMORY.search(text_of(error)) is not None
    return isinstance(error, MemoryError)


def memory_error(error: BaseException) -> TooLargeError | None:
    """A failed allocation, of Python or of a library, as an error of one line; None for any other exception."""
    if not is_out_of_memory(error):
        return None
    said = " ".join(text_of(error).split())
    return TooLargeError(f"expected what this machine has memory for, found: {said or 'none left'}; {_SMALLER}")


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"
