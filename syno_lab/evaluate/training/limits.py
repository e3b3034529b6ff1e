"""What ends a training before its last epoch: the clock, a pace that is too slow, the caller, the loss, a judge."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Literal

from syno_lab.evaluate.training.records import Stopped

Phase = Literal["train", "test"]

WARM_UP_BATCHES = 1
"""Batches of a process that say nothing of its pace: libraries load their kernels, memory is touched first."""

LEAST_BATCHES = 3
"""Training batches after those, from which on a pace is believed."""

RECENT_BATCHES = 20
"""The last batches of a phase, whose median is its pace: one that was held up says nothing of the rest."""

SLACK = 1.25
"""By how much the projected rest may exceed the time that is left: whoever else uses the machine may end first."""


class Stop(Exception):  # noqa: N818 - no error: it carries the reason out of the loops
    """A training ends here: how, and for a divergence why."""

    def __init__(self, stopped: Stopped, reason: str = "") -> None:
        super().__init__(stopped)
        self.stopped: Stopped = stopped
        self.reason = reason


class Limits:
    """Looks at the clock and asks the caller; both end a training by :class:`Stop`.

    Wall and CPU seconds count from the beginning of the training, those before a resumption too. ``gives_up``: a
    training also ends once the pace of its batches shows that the limit will not do (:meth:`project`).
    """

    def __init__(
        self, time_limit_s: float | None, should_stop: Callable[[], bool] | None, *, gives_up: bool = False
    ) -> None:
        self._limit = time_limit_s
        self._should_stop = should_stop
        self._gives_up = gives_up and time_limit_s is not None
        self._warm_up = WARM_UP_BATCHES
        self._lap_start = 0.0
        self._laps: dict[Phase, deque[float]] = {
            "train": deque(maxlen=RECENT_BATCHES),
            "test": deque(maxlen=RECENT_BATCHES),
        }
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

    def begin(self) -> None:
        """Batches follow each other from now on."""
        self._lap_start = time.monotonic()

    def lap(self, phase: Phase) -> None:
        """A batch has ended."""
        now = time.monotonic()
        if self._warm_up:
            self._warm_up -= 1
        else:
            self._laps[phase].append(now - self._lap_start)
        self._lap_start = now

    def project(self, done: int, train: int, test: int) -> None:
        """End the training where so many batches more, at the pace measured, do not fit into the time that is left.

        Tests count from the first one on: until then nobody knows what they take, and the projection is a lower bound.
        """
        paces = self._laps["train"]
        if not self._gives_up or self._limit is None or len(paces) < LEAST_BATCHES:
            return
        rest = train * median(paces)
        if self._laps["test"]:
            rest += test * median(self._laps["test"])
        spent = self.wall_s
        if rest > SLACK * max(0.0, self._limit - spent):
            whole = f"projected {spent + rest:.3g} s of {self._limit:.3g} s allowed"
            raise Stop("slow", f"{whole}, after {done} of {done + train} batches")
