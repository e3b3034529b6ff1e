"""Limits that end a training before its last epoch: the time limit, a pace that is too slow, or the caller."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Literal

from syno_lab.training.records import Stopped

Phase = Literal["train", "test"]

WARM_UP_BATCHES = 1
"""The number of a process's first batches that the pace excludes, because they load kernels and first touch memory."""

LEAST_BATCHES = 3
"""The number of training batches after the warm-up from which on the pace is used."""

RECENT_BATCHES = 20
"""The pace of a phase is the median over this number of last batches, so that a delayed batch does not change it."""

SLACK = 1.25
"""The factor by which the projected time may exceed the time left, because other load on the machine may end."""


STANDSTILL, STANDSTILL_S = 20, 5.0
"""A batch that takes more than this multiple of the pace and this number of seconds was stopped from outside."""


class Stop(Exception):  # noqa: N818 - not an error: it carries the reason out of the loops
    """The exception that ends a training, with the way in which the training ended, and the reason."""

    def __init__(self, stopped: Stopped, reason: str = "") -> None:
        super().__init__(stopped)
        self.stopped: Stopped = stopped
        self.reason = reason


def projected_s(reason: str) -> float | None:
    """Return the projected seconds in the reason of a training that gave up (:meth:`Limits.project`), else None."""
    found = re.match(r"projected (\S+) s of ", reason)
    return float(found[1]) if found else None


class Limits:
    """Checks the time limit and the caller's ``should_stop``; raises :class:`Stop` to end the training.

    Wall and CPU seconds count from the beginning of the training, including the seconds before a resumption. Time in
    which the process is stopped or the machine sleeps does not count. Changes of the clock have no effect. With
    ``gives_up`` a training also ends when the pace of its batches shows that the time limit is too short
    (:meth:`project`). With ``probe_steps`` the limit counts :attr:`work_s` instead of wall seconds, and the pace is
    measured over at least ``probe_steps`` batches.
    """

    def __init__(
        self,
        time_limit_s: float | None,
        should_stop: Callable[[], bool] | None,
        *,
        gives_up: bool = False,
        probe_steps: int | None = None,
        is_cpu: bool = True,
    ) -> None:
        self._limit = time_limit_s
        self._should_stop = should_stop
        self._gives_up = gives_up and time_limit_s is not None
        self._warm_up = WARM_UP_BATCHES
        self._least = LEAST_BATCHES if probe_steps is None else max(1, probe_steps - WARM_UP_BATCHES)
        # ``work_s`` has the time of this thread on a processor, so that other load on the machine does not count. With
        # several threads, this thread does a share of the work. The clock does not measure the work of a GPU.
        self._work_clock = time.thread_time if is_cpu else time.monotonic
        self._lap_clock = time.monotonic if probe_steps is None else self._work_clock
        self._work_start = self._work_clock()
        self._lap_start = 0.0
        self._laps: dict[Phase, deque[float]] = {
            "train": deque(maxlen=RECENT_BATCHES),
            "test": deque(maxlen=RECENT_BATCHES),
        }
        self._start = time.monotonic()
        self._cpu_start = time.process_time()

    def count_from(self, wall_s: float, cpu_s: float, work_s: float = 0.0) -> None:
        """Add the seconds spent before a resumption."""
        self._start -= wall_s
        self._cpu_start -= cpu_s
        self._work_start -= work_s

    @property
    def wall_s(self) -> float:
        """Seconds since the training began."""
        return time.monotonic() - self._start

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the process, all threads, since the training began."""
        return time.process_time() - self._cpu_start

    @property
    def work_s(self) -> float:
        """Seconds since the start for which the training's thread was on a processor; on a GPU, wall seconds."""
        return self._work_clock() - self._work_start

    @property
    def _spent_s(self) -> float:
        return self.wall_s if self._lap_clock is time.monotonic else self.work_s

    def ask(self) -> None:
        """End the training if the caller requests it."""
        if self._should_stop is not None and self._should_stop():
            raise Stop("interrupted")

    def look(self) -> None:
        """End the training if the caller requests it, or if the time limit is reached."""
        self.ask()
        if self._limit is not None and self._spent_s >= self._limit:
            raise Stop("time")

    def begin(self) -> None:
        """Start the clock of the first batch."""
        self._lap_start = self._lap_clock()

    def lap(self, phase: Phase) -> None:
        """Store the time of the batch that has just ended."""
        now = self._lap_clock()
        spent, laps = now - self._lap_start, self._laps[phase]
        if len(laps) >= LEAST_BATCHES and spent > max(STANDSTILL_S, STANDSTILL * (pace := median(laps))):
            self._start += spent - pace
            spent = pace
        elif spent < 0:
            self._start += spent
            spent = 0.0
        if self._warm_up:
            self._warm_up -= 1
        else:
            laps.append(spent)
        self._lap_start = now

    def project(self, batches: int, train: int, test: int) -> None:
        """End the training if, at the measured pace, the remaining batches take longer than the remaining time.

        Before the first test, the duration of tests is unknown, so the projection without tests is a lower bound.
        """
        paces = self._laps["train"]
        if not self._gives_up or self._limit is None or len(paces) < self._least:
            return
        remaining = train * median(paces)
        if self._laps["test"]:
            remaining += test * median(self._laps["test"])
        spent = self._spent_s
        if remaining > SLACK * max(0.0, self._limit - spent):
            seconds = f"projected {spent + remaining:.3g} s of {self._limit:.3g} s allowed"
            raise Stop("slow", f"{seconds}, after {batches} of {batches + train} batches")
