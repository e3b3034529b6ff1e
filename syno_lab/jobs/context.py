"""The context: the second argument of a job's function. Its thread renews the job's lease while the function runs."""

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
from syno_lab.jobs.ledger import Ledger, now
from syno_lab.processes import alive

#: Seconds between two looks at the store; progress is written no more often.
PERIOD_S = 0.5
#: Seconds between two signs of life in the store.
BEAT_S = 5.0
#: Seconds after which a job whose supervisor died, and that nobody has adopted, stops at its next checkpoint.
ORPHAN_S = 60.0


class JobContext:
    """A job's connection to its lab.

    Attributes:
        id: the job's number.
        folder: its own, kept between its attempts: checkpoints go here.
        attempt: 1 for the first.
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
        self._said: tuple[float, str] | None = None
        self._guard = threading.Lock()

    def report(self, fraction: float, message: str = "") -> None:
        """Say how far the job is, from 0 to 1; as often as one likes, the store sees it twice a second."""
        with self._guard:
            self._said = min(max(float(fraction), 0.0), 1.0), " ".join(str(message).split())

    def should_stop(self) -> bool:
        """Whether to save a checkpoint and raise `JobStopped` (or return with ``state`` ``interrupted``)."""
        return self._stop.is_set()

    def log(self, line: str) -> None:
        """Write a line, with the time, to the attempt's log; whatever the job prints goes there as well."""
        with suppress(OSError):  # a full disk
            print(f"{now()} {line}", file=sys.stderr, flush=True)  # noqa: T201 - the log is our standard error

    def flush(self) -> None:
        """Write down what was reported last."""
        with self._guard:
            said, self._said = self._said, None
        if said is not None:
            attempts.progress(self._ledger, self.id, self._token, *said)

    def keep(self) -> None:
        """Keep the lease from now on, in a thread; the process ends where the lease has gone to another."""
        threading.Thread(target=self._keep, name="lease", daemon=True).start()

    def _keep(self) -> None:
        version: tuple[int, int] | None = None
        supervisor, beaten, orphaned = "", time.monotonic(), 0.0
        while True:
            # A store that is busy or a disk that is full for a moment is no reason to end.
            with suppress(StoreError):
                self.flush()
                if time.monotonic() - beaten >= BEAT_S:
                    beaten = time.monotonic()
                    attempts.beat(self._ledger, self.id, self._token)
                found = self._ledger.database.version()
                if found != version:
                    version = found
                    lease = self._ledger.lease(self.id)
                    if lease is None or lease.token != self._token:
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
        elif self.stop_reason == "paused":  # resumed before it came to a checkpoint
            self.stop_reason = ""
            self._stop.clear()

    def _ask(self, reason: str) -> None:
        self.stop_reason = reason
        self._stop.set()


def leave() -> None:
    """End this process and its group at once: its attempt was given to somebody else."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def job_folder(root: Path, number: int) -> Path:
    """Where a job keeps what it needs between its attempts."""
    return root / "jobs" / str(number)


def log_path(root: Path, number: int, attempt: int) -> Path:
    """The log of an attempt."""
    return root / "logs" / f"{number}-{attempt}.log"
