"""An attempt at a job: a process that finds the job waiting takes it, and only the holder of its token can end it.

The token is drawn when the attempt is taken and forgotten when it ends, both in one transaction with the job's state.
So if a process dies, hangs or returns late, no job is recorded twice, and no result is counted twice.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import astuple, replace

from syno_lab.jobs.ledger import CANCELLED, LEASE, PROGRESS, Lease, Ledger, in_line, now
from syno_lab.jobs.records import ATTEMPT_COLUMNS, Attempt, Ending, JobRecord
from syno_lab.processes import alive
from syno_lab.store.records import plain


def take(ledger: Ledger, number: int, *, holder: tuple[str, str, str] | None = None) -> Lease | None:
    """Begin an attempt; None when the job does not wait for one.

    ``holder`` is the place, the boot and the supervisor in whose name, as :mod:`~syno_lab.processes.alive` names them;
    None: this process.
    """
    place, boot, me = holder or (alive.place(), alive.boot(), alive.me())
    with ledger.database.transaction():
        job = ledger.job(number)
        if not ledger.is_ready(job):
            return None
        lease = Lease(number, secrets.token_hex(16), place, boot, me, "", 0, time.monotonic())
        _put(ledger, lease, "INSERT")
        begun = now()
        attempt = Attempt(number, job.attempt + 1, place.partition("/")[0], begun, None, "", 0.0, 0.0)
        _put_attempt(ledger, attempt, "INSERT")
        ledger.write(replace(job, state="running", attempt=job.attempt + 1, reason="", started=begun, ended=None))
    return lease


def register(ledger: Ledger, number: int, token: str) -> bool:
    """In the child: say that it is this process; False when nobody waits for it any more."""
    with ledger.database.transaction():
        lease = ledger.lease(number)
        if lease is None or lease.token != token:
            return False
        _put(ledger, replace(lease, child=alive.me()))
    return True


def adopt(ledger: Ledger, number: int) -> Lease | None:
    """Become the supervisor of an attempt whose own has died while the child lives; None when there is none such."""
    with ledger.database.transaction():
        lease = ledger.lease(number)
        if lease is None or not lease.is_here or alive.is_alive(lease.supervisor) or not alive.is_alive(lease.child):
            return None
        ours = replace(lease, supervisor=alive.me(), beat=lease.beat + 1)
        _put(ledger, ours)
    return ours


def beat(ledger: Ledger, number: int, token: str) -> bool:
    """Say that the attempt is looked after; False when it is ours no more."""
    with ledger.database.transaction():
        lease = ledger.lease(number)
        if lease is None or lease.token != token:
            return False
        _put(ledger, replace(lease, beat=lease.beat + 1))
    return True


def progress(ledger: Ledger, number: int, token: str, fraction: float, message: str) -> None:
    """Keep how far the attempt is."""
    with ledger.database.transaction():
        lease = ledger.lease(number)
        if lease is not None and lease.token == token:
            ledger.database.write("INSERT OR REPLACE", "syno_progress", PROGRESS, (number, fraction, message))


def end(ledger: Ledger, number: int, token: str, ending: Ending) -> bool:
    """Write down how the attempt ended, and what becomes of its job; False when it was not the token's to end.

    Raises StoreError where the result is no plain data.
    """
    with ledger.database.transaction():
        lease = ledger.lease(number)
        if lease is None or lease.token != token:
            return False
        job = ledger.job(number)
        job = replace(job, wall_s=job.wall_s + ending.wall_s, cpu_s=job.cpu_s + ending.cpu_s)
        after, cause = _after(job, ending), ending.reason
        if job.wish == "cancel" and after.state != "finished":
            after, cause = replace(job, state="cancelled", reason=CANCELLED), CANCELLED
        ledger.database.remove("syno_leases", "job", number)
        ledger.write(replace(after, wish="", ended=now() if after.is_ended else None))
        for attempt in ledger.attempts(number):  # a store from elsewhere may have a lease and no attempt
            if attempt.attempt == job.attempt:
                ended = replace(attempt, ended=now(), cause=cause, wall_s=ending.wall_s, cpu_s=ending.cpu_s)
                _put_attempt(ledger, ended, "INSERT OR REPLACE")
    return True


def _after(job: JobRecord, ending: Ending) -> JobRecord:
    """The job after an attempt that ended so."""
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
