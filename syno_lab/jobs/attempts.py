"""An attempt at a job: a process that finds the job waiting takes it, and only the holder of its token can end it.

The token is drawn when the attempt is taken and forgotten when it ends, both in one transaction with the job's state.
So if a process dies, hangs or returns late, no job is recorded twice, and no result is counted twice.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from syno_lab.jobs.ledger import CANCELLED, LEASE, PROGRESS, Lease, Ledger, in_line, now
from syno_lab.jobs.records import ATTEMPT_COLUMNS, Attempt, JobRecord
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
        is_here = lease is not None and (lease.place, lease.boot) == (alive.place(), alive.boot())
        if lease is None or not is_here or alive.is_alive(lease.supervisor) or not alive.is_alive(lease.child):
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


# -- endings; each is False when the attempt was not the token's to end ------------------------------------------------


def finish(
    ledger: Ledger, number: int, token: str, result: Mapping[str, Any], wall_s: float = 0.0, cpu_s: float = 0.0
) -> bool:
    """The job is done."""
    return _end(
        ledger,
        number,
        token,
        "",
        wall_s,
        cpu_s,
        lambda job: replace(job, state="finished", result=plain(result, "result")),
    )


def fail(ledger: Ledger, number: int, token: str, reason: str, wall_s: float = 0.0, cpu_s: float = 0.0) -> bool:
    """The job cannot be done."""
    return _end(ledger, number, token, reason, wall_s, cpu_s, lambda job: replace(job, state="failed", reason=reason))


def stop(ledger: Ledger, number: int, token: str, reason: str, wall_s: float = 0.0, cpu_s: float = 0.0) -> bool:
    """The attempt ended without the job's fault: it waits again, or is paused where it was asked to."""

    def change(job: JobRecord) -> JobRecord:
        if job.wish == "pause":
            return replace(job, state="paused", reason="")
        return replace(in_line(job), reason=reason)

    return _end(ledger, number, token, reason, wall_s, cpu_s, change)


def die(ledger: Ledger, number: int, token: str, cause: str, wall_s: float = 0.0, cpu_s: float = 0.0) -> bool:
    """The attempt died of itself: it is tried again, from what it left in its folder, or poisoned."""

    def change(job: JobRecord) -> JobRecord:
        job = replace(job, deaths=job.deaths + 1, reason=cause)
        if job.deaths >= job.max_attempts:
            return replace(job, state="poisoned", reason=f"given up after {job.deaths} deaths: {cause}")
        return replace(job, state="paused") if job.wish == "pause" else in_line(job)

    return _end(ledger, number, token, cause, wall_s, cpu_s, change)


def _end(ledger: Ledger, number: int, token: str, cause: str, wall_s: float, cpu_s: float, change: Any) -> bool:
    with ledger.database.transaction():
        lease = ledger.lease(number)
        if lease is None or lease.token != token:
            return False
        job = ledger.job(number)
        job = replace(job, wall_s=job.wall_s + wall_s, cpu_s=job.cpu_s + cpu_s)
        after: JobRecord = change(job)
        if job.wish == "cancel" and after.state != "finished":
            after, cause = replace(job, state="cancelled", reason=CANCELLED), CANCELLED
        ledger.database.remove("syno_leases", "job", number)
        ledger.write(replace(after, wish="", ended=now() if after.is_ended else None))
        for attempt in ledger.attempts(number):  # a store from elsewhere may have a lease and no attempt
            if attempt.attempt == job.attempt:
                ended = replace(attempt, ended=now(), cause=cause, wall_s=wall_s, cpu_s=cpu_s)
                _put_attempt(ledger, ended, "INSERT OR REPLACE")
    return True


def _put(ledger: Ledger, lease: Lease, verb: str = "INSERT OR REPLACE") -> None:
    row = [getattr(lease, name) for name in LEASE.split(", ")]
    ledger.database.write(verb, "syno_leases", LEASE, row)


def _put_attempt(ledger: Ledger, attempt: Attempt, verb: str) -> None:
    row = [getattr(attempt, name) for name in ATTEMPT_COLUMNS.split(", ")]
    ledger.database.write(verb, "syno_attempts", ATTEMPT_COLUMNS, row)
