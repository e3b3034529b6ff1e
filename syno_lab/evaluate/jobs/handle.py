"""A job in the hand of whoever submitted or found it."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from syno_lab.evaluate.jobs.context import log_path
from syno_lab.evaluate.jobs.ledger import Ledger
from syno_lab.evaluate.jobs.records import Attempt, JobRecord

if TYPE_CHECKING:
    from syno_lab.evaluate.jobs.lab import Lab


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
        from syno_lab.errors import JobError

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
        """Return what is known of it now."""
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
        """Let it go on after a pause. False when it was not paused."""
        done = self._lab.ledger.resume(self.id)
        self._lab.keeper.wake()
        return done

    def retry(self) -> None:
        """Put it in line again after it failed, died or was cancelled; it goes on from its folder.

        Raises:
            JobError: it is in another state.
        """
        self._lab.ledger.retry(self.id)
        self._lab.keeper.wake()

    def log(self, attempt: int | None = None) -> str:
        """Return what an attempt (the last one) wrote; empty where it has not begun."""
        number = attempt or self._lab.ledger.job(self.id).attempt
        path = log_path(self._lab.folder, self.id, number)
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    def wait(self, timeout: float | None = None) -> JobRecord:
        """Wait until it has ended, or for so many seconds; return what is known then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            job = self.record()
            if job.is_ended or (deadline is not None and time.monotonic() >= deadline):
                return job
            time.sleep(0.1)
