"""Stores the jobs of a lab as rows, and makes the changes that the user requests.

Every change is one transaction that reads the row before it writes. The changes by attempts are in
:mod:`syno_lab.jobs.attempts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from syno_lab.errors import JobError
from syno_lab.inputs import quoted
from syno_lab.jobs import trust
from syno_lab.jobs.records import ATTEMPT_COLUMNS, COLUMNS, ENDED, Attempt, JobRecord, JobState, from_row, to_row
from syno_lab.processes import alive
from syno_lab.store.database import Database
from syno_lab.store.records import now, to_text

LEASE = "job, token, place, boot, supervisor, child, beat, at"
PROGRESS = "job, fraction, message"
CANCELLED = "cancelled by the user"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease: the machine and the processes of an attempt, by their names in :mod:`syno_lab.processes.alive`.

    ``beat`` counts the attempt's heartbeats. ``at`` is the monotonic clock of ``place`` at the start, in seconds.
    """

    job: int
    token: str
    place: str
    boot: str
    supervisor: str
    child: str
    beat: int
    at: float

    @property
    def is_here(self) -> bool:
        """Whether the attempt runs on this machine and this boot; a copied store has attempts of other machines."""
        return (self.place, self.boot) == (alive.place(), alive.boot())

    @property
    def is_orphan(self) -> bool:
        """Whether the attempt runs here, its supervisor is dead, and its child process is alive."""
        return self.is_here and not alive.is_alive(self.supervisor) and alive.is_alive(self.child)


class Ledger:
    """The rows of jobs in an open store; safe for threads."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def jobs(self, where: str = "1", parameters: Iterable[object] = ()) -> list[JobRecord]:
        """Return the jobs that meet a condition on the columns of ``syno_jobs``, in order of submission."""
        values = tuple(parameters)
        rows = self.database.read(COLUMNS, f"FROM syno_jobs WHERE {where} ORDER BY job", values)
        rest = f"FROM syno_progress WHERE job IN (SELECT job FROM syno_jobs WHERE {where})"  # noqa: S608 - conditions of ours
        reports = {job: (fraction, message) for job, fraction, message in self.database.read(PROGRESS, rest, values)}
        return [from_row(row, reports.get(row[0], (0.0, ""))) for row in rows]

    def job(self, number: int) -> JobRecord:
        """Return one job. Raises JobError where no job has this number."""
        jobs = self.jobs("job=?", (number,))
        if not jobs:
            raise JobError(f"no job {number} in {self.database.path.parent}")
        return jobs[0]

    def state(self, number: int) -> JobState | None:
        """Return the state of a job by a cheap query, to watch many jobs; None where there is no such job."""
        return next(iter(self.database.column("SELECT state FROM syno_jobs WHERE job=?", (number,))), None)

    def attempts(self, number: int) -> list[Attempt]:
        """Return every attempt at a job, in order."""
        rest = "FROM syno_attempts WHERE job=? ORDER BY attempt"
        return [Attempt(*row) for row in self.database.read(ATTEMPT_COLUMNS, rest, (number,))]

    def leases(self) -> list[Lease]:
        """Return the leases of all running attempts."""
        return [Lease(*row) for row in self.database.read(LEASE, "FROM syno_leases")]

    def lease(self, number: int, token: str | None = None) -> Lease | None:
        """Return the lease of a running job; with ``token``, only if the running attempt has this token."""
        rows = self.database.read(LEASE, "FROM syno_leases WHERE job=?", (number,))
        return Lease(*rows[0]) if rows and token in (None, rows[0][1]) else None

    def waiting(self) -> list[tuple[int, int]]:
        """Return the number and the round of each waiting job, in order; a cheap call."""
        rows = self.database.column("SELECT job || ' ' || round FROM syno_jobs WHERE state='waiting' ORDER BY job")
        return [(int(job), int(turn)) for job, turn in map(str.split, rows)]

    def ready(self, numbers: Iterable[int]) -> list[JobRecord]:
        """Return the jobs with these numbers for which `is_ready` is true."""
        candidates = (self.jobs("job=?", (number,)) for number in numbers)
        return [job for jobs in candidates for job in jobs if self.is_ready(job)]

    def is_ready(self, job: JobRecord) -> bool:
        """Whether a job is waiting and signed, and all its predecessors have finished."""
        is_due = job.state == "waiting" and all(self.state(number) == "finished" for number in job.after)
        return is_due and trust.is_signed(self, job)

    def submit(
        self,
        kind: str,
        params: Mapping[str, Any],
        *,
        resources: Mapping[str, float],
        name: str = "",
        after: Iterable[int] = (),
        max_attempts: int = 3,
        parent: int | None = None,
    ) -> int:
        """Store a job as waiting, signed with the user's key, and return its number.

        Raises:
            JobError: ``after`` names a job that does not exist, or a number is out of range.
            StoreError: the parameters are not plain data.
            SynoError: there is no key for signatures, and no key can be created.
        """
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
            raise JobError(f"max_attempts: expected a whole number from 1 on, found {quoted(max_attempts)}")
        if bad := [f"{key}={value!r}" for key, value in resources.items() if not _is_amount(value)]:
            raise JobError(f"resources: expected positive amounts, found {', '.join(bad)}")
        predecessors = list(dict.fromkeys(after))
        texts = to_text(params, "params"), json.dumps(predecessors), to_text(resources, "resources")
        with self.database.transaction():
            for earlier in predecessors:
                self.job(earlier)
            (number,) = self.database.column("SELECT COALESCE(MAX(job), 0) + 1 FROM syno_jobs")
            row = (number, kind, name, texts[0], parent, *texts[1:], max_attempts, now())
            fresh = ("waiting", "", 1, 0, 0, "", None, None, None, 0.0, 0.0)
            self.database.write("INSERT", "syno_jobs", COLUMNS, (*row, *fresh))
            trust.sign(self, self.job(number))
        return int(number)

    def cancel(self, number: int) -> bool:
        """Cancel a job and its child jobs. A running job gets a request to stop. Return False if the job has ended."""
        with self.database.transaction():
            return self._cancel(self.job(number))

    def _cancel(self, job: JobRecord) -> bool:
        if job.is_ended:
            return False
        if job.state == "running":
            self.write(replace(job, wish="cancel"))
        else:
            self.write(replace(job, state="cancelled", wish="", reason=CANCELLED, ended=now()))
        for child in self.jobs("parent=?", (job.id,)):
            self._cancel(child)
        return True

    def pause(self, number: int) -> bool:
        """Pause a job: a waiting job at once, a running job at a checkpoint. Return False if the job has ended."""
        with self.database.transaction():
            job = self.job(number)
            if job.is_ended or job.wish == "cancel":
                return False
            if job.state == "running":
                self.write(replace(job, wish="pause"))
            elif job.state == "waiting":
                self.write(replace(job, state="paused"))
        return True

    def resume(self, number: int) -> bool:
        """Resume a paused job. Return False when the job is not paused.

        Raises JobError where the user has not signed the job, see `allow`.
        """
        with self.database.transaction():
            job = self.job(number)
            if job.state == "paused":
                trust.check_signed(self, job)
                self.write(in_line(replace(job, reason="")))
            elif job.wish == "pause":
                self.write(replace(job, wish=""))
            else:
                return False
        return True

    def retry(self, number: int) -> None:
        """Queue a failed, cancelled or poisoned job again, and reset its number of deaths.

        Raises JobError where the job has another state, or the user has not signed it, see `allow`.
        """
        with self.database.transaction():
            job = self.job(number)
            if job.state not in ENDED or job.state == "finished":
                raise JobError(f"job {number} is {job.state}: only a job that failed, was cancelled or died is retried")
            trust.check_signed(self, job)
            self.write(in_line(replace(job, deaths=0, reason="", ended=None)))

    def allow(self, job: JobRecord) -> None:
        """Sign a job, as it is in this record, in the user's name. Queue the job if it was paused as unsigned.

        Raises JobError where the stored job differs from the record; SynoError where no key exists or can be created.
        """
        with self.database.transaction():
            now = self.job(job.id)
            if trust.request(now) != trust.request(job):
                raise JobError(f"job {job.id} has changed meanwhile: look at it again")
            was_unsigned = now.reason == trust.unsigned(job.id)
            trust.sign(self, now)
            if now.state == "paused" and was_unsigned:
                self.write(in_line(replace(now, reason="")))

    def write(self, job: JobRecord) -> None:
        """Replace the row with the record's number by this record."""
        texts = {"params": to_text(job.params, "params"), "resources": to_text(job.resources, "resources")}
        texts["after"] = json.dumps(list(job.after))
        if job.result is not None:
            texts["result"] = to_text(job.result, "result")
        self.database.write("INSERT OR REPLACE", "syno_jobs", COLUMNS, to_row(job, texts))


def in_line(job: JobRecord) -> JobRecord:
    """Return the job's record as waiting, in a new round. Schedulers distinguish a job's rounds by their numbers."""
    return replace(job, state="waiting", wish="", round=job.round + 1)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
