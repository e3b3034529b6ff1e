"""Attempts to run a job. A process takes a waiting job, and only the holder of the attempt's token can end the attempt.

The token is drawn when the attempt starts and deleted when it ends, each time in one transaction with the job's state.
So no job and no result is recorded twice, even if a process dies, hangs or returns late.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import astuple, replace

from syno_lab.jobs.ledger import CANCELLED, LEASE, PROGRESS, Lease, Ledger, in_line
from syno_lab.jobs.records import ATTEMPT_COLUMNS, Attempt, Ending, JobRecord
from syno_lab.processes import alive
from syno_lab.store.records import now, plain


def take(ledger: Ledger, number: int, *, holder: tuple[str, str, str] | None = None) -> Lease | None:
    """Start an attempt and return its lease; None when the job does not wait for an attempt.

    ``holder`` names the machine, the boot and the supervisor of the attempt, as :mod:`~syno_lab.processes.alive` names
    them. None: this process.
    """
    place, boot, me = holder or (alive.place(), alive.boot(), alive.me())
    with ledger.database.transaction():
        job = ledger.job(number)
        if not ledger.is_ready(job):
            return None
        lease = Lease(number, secrets.token_hex(16), place, boot, me, "", 0, time.monotonic())
        _put(ledger, lease, "INSERT")
        started = now()
        attempt = Attempt(number, job.attempt + 1, place.partition("/")[0], started, None, "", 0.0, 0.0)
        _put_attempt(ledger, attempt, "INSERT")
        ledger.write(replace(job, state="running", attempt=job.attempt + 1, reason="", started=started, ended=None))
    return lease


def register(ledger: Ledger, number: int, token: str) -> bool:
    """Record this process as the attempt's child process; return False when no running attempt has the token."""
    with ledger.database.transaction():
        if (lease := ledger.lease(number, token)) is None:
            return False
        _put(ledger, replace(lease, child=alive.me()))
    return True


def adopt(ledger: Ledger, number: int) -> Lease | None:
    """Take over an attempt whose supervisor died and whose child process lives; return its lease, or None."""
    with ledger.database.transaction():
        lease = ledger.lease(number)
        if lease is None or not lease.is_orphan:
            return None
        adopted = replace(lease, supervisor=alive.me(), beat=lease.beat + 1)
        _put(ledger, adopted)
    return adopted


def beat(ledger: Ledger, number: int, token: str) -> bool:
    """Renew the lease of an attempt; return False when this process no longer holds it."""
    with ledger.database.transaction():
        if (lease := ledger.lease(number, token)) is None:
            return False
        _put(ledger, replace(lease, beat=lease.beat + 1))
    return True


def progress(ledger: Ledger, number: int, token: str, fraction: float, message: str) -> None:
    """Store the progress of an attempt."""
    with ledger.database.transaction():
        if ledger.lease(number, token) is not None:
            ledger.database.write("INSERT OR REPLACE", "syno_progress", PROGRESS, (number, fraction, message))


def end(ledger: Ledger, number: int, token: str, ending: Ending) -> bool:
    """Record how an attempt ended, and the new state of its job; return False if no running attempt has the token.

    Raises StoreError where the result is not plain data.
    """
    with ledger.database.transaction():
        if ledger.lease(number, token) is None:
            return False
        job = ledger.job(number)
        job = replace(job, wall_s=job.wall_s + ending.wall_s, cpu_s=job.cpu_s + ending.cpu_s)
        after, cause = _after(job, ending), ending.reason
        if job.wish == "cancel" and after.state != "finished":
            after, cause = replace(job, state="cancelled", reason=CANCELLED), CANCELLED
        ledger.database.remove("syno_leases", "job", number)
        ledger.write(replace(after, wish="", ended=now() if after.is_ended else None))
        for attempt in ledger.attempts(number):  # a store from another person may have a lease but no attempt
            if attempt.attempt == job.attempt:
                ended = replace(attempt, ended=now(), cause=cause, wall_s=ending.wall_s, cpu_s=ending.cpu_s)
                _put_attempt(ledger, ended, "INSERT OR REPLACE")
    return True


def _after(job: JobRecord, ending: Ending) -> JobRecord:
    """Return the record of the job as it is after an attempt with this ending."""
    reason = ending.reason
    if ending.how == "finished":
        return replace(job, state="finished", result=plain(ending.result or {}, "result"))
    if ending.how == "failed":
        return replace(job, state="failed", reason=reason)
    if ending.how == "died":
        job = replace(job, deaths=job.deaths + 1, reason=reason)
        if job.deaths >= job.max_attempts:
            return replace(job, state="poisoned", reason=f"given up after {job.deaths} deaths: {reason}")
        return replace(job, state="paused") if job.wish == "pause" else in_line(job)
    if job.wish == "pause":
        return replace(job, state="paused", reason="")
    return replace(in_line(job), reason=reason)


def _put(ledger: Ledger, lease: Lease, verb: str = "INSERT OR REPLACE") -> None:
    ledger.database.write(verb, "syno_leases", LEASE, astuple(lease))


def _put_attempt(ledger: Ledger, attempt: Attempt, verb: str) -> None:
    ledger.database.write(verb, "syno_attempts", ATTEMPT_COLUMNS, astuple(attempt))
