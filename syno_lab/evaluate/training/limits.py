"""What ends a training before its last epoch: the clock, the caller, the loss, a judge."""

from __future__ import annotations

import time
from collections.abc import Callable

from syno_lab.evaluate.training.records import Stopped


class Stop(Exception):  # noqa: N818 - no error: it carries the reason out of the loops
    """A training ends here: how, and for a divergence why."""

    def __init__(self, stopped: Stopped, reason: str = "") -> None:
        super().__init__(stopped)
        self.stopped: Stopped = stopped
        self.reason = reason


class Limits:
    """Looks at the clock and asks the caller; both end a training by :class:`Stop`.

    Wall and CPU seconds count from the beginning of the training, those before a resumption too.
    """

    def __init__(self, time_limit_s: float | None, should_stop: Callable[[], bool] | None) -> None:
        self._limit = time_limit_s
        self._should_stop = should_stop
        self._start = time.monotonic()
        self._cpu_start = time.process_time()

    def count_from(self, wall_s: float, cpu_s: float) -> None:
        """Add what was spent before a resumption."""
        self._start -= wall_s
        self._cpu_start -= cpu_s

    @property
    def wall_s(self) -> float:
        """Seconds since the training began."""
        return time.monotonic() - self._start

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the process, all threads, since the training began."""
        return time.process_time() - self._cpu_start

    def ask(self) -> None:
        """End the training where the caller wants it."""
        if self._should_stop is not None and self._should_stop():
            raise Stop("interrupted")

    def look(self) -> None:
        """End the training where the caller wants it or the time is over."""
        self.ask()
        if self._limit is not None and self.wall_s >= self._limit:
            raise Stop("time")
