"""The context of a job: the second argument of its function. A thread renews the lease while the function runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from syno_lab import private
from syno_lab.errors import StoreError
from syno_lab.jobs import attempts
from syno_lab.jobs.ledger import Ledger
from syno_lab.processes import alive
from syno_lab.store.records import now

#: Seconds between two reads of the store, and the least seconds between two writes of the progress.
PERIOD_S = 0.5
#: Seconds between two heartbeats in the store.
BEAT_S = 5.0
#: Seconds after which a job with a dead supervisor stops at its next checkpoint, unless a worker adopts it.
ORPHAN_S = 60.0


class JobContext:
    """A job's connection to its lab.

    Attributes:
        id: the job's number.
        folder: the job's own folder, kept between its attempts, for checkpoints.
        attempt: the number of the attempt, from 1 on.
        root: the lab's folder.
    """

    def __init__(self, ledger: Ledger, root: Path, number: int, token: str) -> None:
        self.id = number
        self.root = root
        self.folder = job_folder(root, number)
        private.folder(self.folder)
        self.attempt = ledger.job(number).attempt
        self._ledger = ledger
        self._token = token
        self._stop = threading.Event()
        self.stop_reason = ""
        self._report: tuple[float, str] | None = None
        self._guard = threading.Lock()

    def report(self, fraction: float, message: str = "") -> None:
        """Report the job's progress, from 0 to 1. Calls may be frequent: only two reports a second are stored."""
        with self._guard:
            self._report = min(max(float(fraction), 0.0), 1.0), " ".join(str(message).split())

    def should_stop(self) -> bool:
        """Whether to save a checkpoint and raise `JobStopped` (or return with ``state`` ``interrupted``)."""
        return self._stop.is_set()

    def log(self, line: str) -> None:
        """Write a line with the time to the attempt's log, which also has the job's output."""
        with suppress(OSError):  # a full disk
            print(f"{now()} {line}", file=sys.stderr, flush=True)  # noqa: T201 - the log is our standard error

    def flush(self) -> None:
        """Write the last reported progress into the store."""
        with self._guard:
            report, self._report = self._report, None
        if report is not None:
            attempts.progress(self._ledger, self.id, self._token, *report)

    def keep(self) -> None:
        """Start a thread that renews the lease. The thread ends this process when another process has the lease."""
        threading.Thread(target=self._keep, name="lease", daemon=True).start()

    def _keep(self) -> None:
        version: tuple[int, int] | None = None
        supervisor, beaten, orphaned = "", time.monotonic(), 0.0
        while True:
            # A busy store, or a disk that is full for a moment, does not end the thread.
            with suppress(StoreError):
                self.flush()
                if time.monotonic() - beaten >= BEAT_S:
                    beaten = time.monotonic()
                    attempts.beat(self._ledger, self.id, self._token)
                current = self._ledger.database.version()
                if current != version:
                    version = current
                    lease = self._ledger.lease(self.id, self._token)
                    if lease is None:
                        leave()
                        return
                    supervisor = lease.supervisor
                    self._heed(self._ledger.job(self.id).wish)
            orphaned = 0.0 if alive.is_alive(supervisor) else orphaned + PERIOD_S
            if orphaned >= ORPHAN_S:
                self._ask("its supervisor died and nobody adopted it")
            time.sleep(PERIOD_S)

    def _heed(self, wish: str) -> None:
        if wish == "pause":
            self._ask("paused")
        elif self.stop_reason == "paused":  # the user resumed the job before it wrote its checkpoint
            self.stop_reason = ""
            self._stop.clear()

    def _ask(self, reason: str) -> None:
        self.stop_reason = reason
        self._stop.set()


def leave() -> None:
    """Kill this process, and the group that it leads, at once, because another process has the attempt."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def job_folder(root: Path, number: int) -> Path:
    """Return the folder in which a job keeps its files between attempts."""
    return root / "jobs" / str(number)


def log_path(root: Path, number: int, attempt: int) -> Path:
    """Return the path of an attempt's log."""
    return root / "logs" / f"{number}-{attempt}.log"
