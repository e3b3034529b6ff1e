"""A handle of a job: returned where a job is submitted or found, and used to watch, stop and resume it."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from syno_lab.errors import JobError
from syno_lab.inputs import read_text
from syno_lab.jobs.context import log_path
from syno_lab.jobs.ledger import Ledger
from syno_lab.jobs.records import Attempt, JobRecord

if TYPE_CHECKING:
    from syno_lab.jobs.lab import Lab


#: Bytes of the largest log that is shown.
MOST_LOG = 1 << 28


class JobFuture(Future[dict[str, Any]]):
    """A job's result to come; cancelling it cancels the job."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        super().__init__()
        self._ledger = ledger
        self.job = number

    def cancel(self) -> bool:
        """Cancel the job; the future is cancelled once the job is."""
        return self.cancelled() or self._ledger.cancel(self.job)

    def settle(self) -> bool:
        """Take over the job's ending, if it has come; whether it has."""
        if self.done():
            return True
        job = self._ledger.job(self.job)
        if not job.is_ended:
            return False
        if job.state == "cancelled":
            super().cancel()
            self.set_running_or_notify_cancel()
        elif job.state == "finished":
            self.set_result(job.result or {})
        else:
            self.set_exception(JobError(f"job {job.id} ({job.name or job.kind}) is {job.state}: {job.reason}"))
        return True


class JobHandle:
    """One job of a lab, by its number; all it knows is in the store, so any number of handles may be about."""

    def __init__(self, lab: Lab, number: int) -> None:
        self._lab = lab
        self.id = number

    def __repr__(self) -> str:
        job = self.record()
        return f"JobHandle({job.id}, {job.kind!r}, {job.state})"

    def record(self) -> JobRecord:
        """Return the job's record as it is now."""
        self._lab.sweep()
        return self._lab.ledger.job(self.id)

    def attempts(self) -> list[Attempt]:
        """Return each start of it with how it ended."""
        return self._lab.ledger.attempts(self.id)

    def future(self) -> JobFuture:
        """Return a future that gets its result, `JobError` where it has none, or is cancelled with it."""
        return self._lab.keeper.watch(JobFuture(self._lab.ledger, self.id))

    def cancel(self) -> bool:
        """End it and all that it submitted: at once where it waits, within seconds where it runs. False: had ended."""
        return self._lab.ledger.cancel(self.id)

    def pause(self) -> bool:
        """Hold it: at its next checkpoint where it runs. False when it has ended."""
        return self._lab.ledger.pause(self.id)

    def resume(self) -> bool:
        """Let it go on after a pause. False when it was not paused.

        Raises JobError where the user has not asked for it: see `allow`.
        """
        done = self._lab.ledger.resume(self.id)
        self._lab.keeper.wake()
        return done

    def allow(self, record: JobRecord | None = None) -> None:
        """Sign a job that somebody else submitted, as this record of it says, or as it is now: it runs in your name.

        Look at its parameters and at the code in them first: ``record().params``. Raises JobError where it is not the
        job of the record any more.
        """
        self._lab.ledger.allow(record or self._lab.ledger.job(self.id))
        self._lab.keeper.wake()

    def retry(self) -> None:
        """Put it in line again after it failed, died or was cancelled; it goes on from its folder.

        Raises JobError where it is in another state.
        """
        self._lab.ledger.retry(self.id)
        self._lab.keeper.wake()

    def log(self, attempt: int | None = None) -> str:
        """Return what an attempt (the last one) wrote; empty where it has not begun.

        Raises JobError where it is no regular file, a link, or larger than `MOST_LOG` bytes.
        """
        number = attempt or self._lab.ledger.job(self.id).attempt
        path = log_path(self._lab.folder, self.id, number)
        if path.is_symlink():
            raise JobError(f"{path}: expected the log of a job, found a link; it is not followed")
        try:
            return read_text(path, MOST_LOG, errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise JobError(error.strerror or str(error)) from None

    def wait(self, timeout: float | None = None) -> JobRecord:
        """Wait until the job has ended, or for so many seconds; return its record."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            job = self.record()
            if job.is_ended or (deadline is not None and time.monotonic() >= deadline):
                return job
            time.sleep(0.1)
