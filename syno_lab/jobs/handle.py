"""Handles of jobs. A handle is returned when a job is submitted or looked up; it watches, stops and resumes the job."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from syno_lab.errors import JobError
from syno_lab.inputs import read_text
from syno_lab.jobs.context import log_path
from syno_lab.jobs.ledger import Ledger
from syno_lab.jobs.records import Attempt, JobRecord

if TYPE_CHECKING:
    from syno_lab.jobs.lab import Lab


#: The largest log, in bytes, that is returned.
MOST_LOG = 1 << 28


class JobFuture(Future[dict[str, Any]]):
    """The future of a job's result; cancelling the future cancels the job."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        super().__init__()
        self._ledger = ledger
        self.job = number

    def cancel(self) -> bool:
        """Cancel the job; the future is cancelled as soon as the job is cancelled."""
        return self.cancelled() or self._ledger.cancel(self.job)

    def settle(self) -> bool:
        """Set the result or the exception once the job has ended; return whether the job has ended."""
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
    """One job of a lab, by its number. The store has all data of the job, so the job may have any number of handles."""

    def __init__(self, lab: Lab, number: int) -> None:
        self._lab = lab
        self.id = number

    def __repr__(self) -> str:
        job = self.record()
        return f"JobHandle({job.id}, {job.kind!r}, {job.state})"

    def record(self) -> JobRecord:
        """Return the current record of the job."""
        self._lab.sweep()
        return self._lab.ledger.job(self.id)

    def attempts(self) -> list[Attempt]:
        """Return every attempt at the job."""
        return self._lab.ledger.attempts(self.id)

    def future(self) -> JobFuture:
        """Return a future of the job's result; it raises `JobError` without a result, and is cancelled with the job."""
        return self._lab.keeper.watch(JobFuture(self._lab.ledger, self.id))

    def cancel(self) -> bool:
        """Cancel the job and its child jobs; a running job ends within seconds. Return False when the job has ended."""
        return self._lab.ledger.cancel(self.id)

    def pause(self) -> bool:
        """Pause the job; a running job stops at its next checkpoint. Return False when the job has ended."""
        return self._lab.ledger.pause(self.id)

    def resume(self) -> bool:
        """Resume the job after a pause. Return False when the job was not paused.

        Raises JobError where the user has not signed the job: see `allow`.
        """
        done = self._lab.ledger.resume(self.id)
        self._lab.keeper.wake()
        return done

    def allow(self, record: JobRecord | None = None) -> None:
        """Sign another user's job as in this record (by default its current record), so that it runs in your name.

        First read the job's parameters and code: ``record().params``. Raises JobError if the job has changed.
        """
        self._lab.ledger.allow(record or self._lab.ledger.job(self.id))
        self._lab.keeper.wake()

    def retry(self) -> None:
        """Put the job in the queue again after it failed, died or was cancelled. The job continues from its folder.

        Raises JobError where the job is in another state.
        """
        self._lab.ledger.retry(self.id)
        self._lab.keeper.wake()

    def log(self, attempt: int | None = None) -> str:
        """Return the log of an attempt (by default the last); empty before the attempt has started.

        Raises JobError where the log is a link, not a regular file, or larger than `MOST_LOG` bytes.
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
        """Wait until the job has ended, or for ``timeout`` seconds; return its record."""
        self._lab.wait([self.id], timeout)
        return self.record()
