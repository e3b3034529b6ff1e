"""The sweep ends the attempts of dead processes. Every reader of a lab's jobs runs it first, so no job is shown wrong.

Whether an attempt lives is seen, not guessed from clocks: on this boot of this machine by its processes, elsewhere by
its beat, which whoever looks must have seen stand still for a while of the looker's own watching.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from syno_lab.jobs import attempts, trust
from syno_lab.jobs.ledger import CANCELLED, Lease, Ledger, now
from syno_lab.jobs.records import Ending
from syno_lab.processes import alive

#: Seconds of watching after which an attempt that cannot be seen, and whose beat stands still, is taken for dead.
GRACE_S = 60.0
#: One look counts for at most so many seconds of watching: a looker that slept has not watched meanwhile.
LONGEST_LOOK_S = 5.0


@dataclass
class Watch:
    """The memory of one process between sweeps: since when each job's beat has not moved, and which jobs are signed."""

    grace_s: float = GRACE_S
    signed: set[tuple[int, int]] = field(default_factory=set)
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)
    _looked: float | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def look(self, leases: list[Lease], at: float) -> set[str]:
        """Return the tokens of leases whose beat has stood still for the grace; ``at`` is our monotonic clock."""
        with self._guard:
            passed = 0.0 if self._looked is None else min(at - self._looked, LONGEST_LOOK_S)
            self._looked = at
            seen = {}
            for lease in leases:
                beat, still = self._seen.get(lease.token, (lease.beat, 0.0))
                seen[lease.token] = (lease.beat, still + passed if beat == lease.beat else 0.0)
            self._seen = seen
            return {token for token, (_, still) in seen.items() if still >= self.grace_s}


def sweep(ledger: Ledger, watch: Watch) -> list[int]:
    """Put the jobs of dead attempts in line again, settle those whose predecessors failed, and hold what nobody signed.

    Return the first of these.
    """
    lost = []
    leases = ledger.leases()
    silent = watch.look(leases, time.monotonic())
    for lease in leases:
        cause = _loss(lease, lease.token in silent)
        if cause is None and is_orphan(lease) and ledger.job(lease.job).wish == "cancel":
            alive.end_attempt(lease.token, alive.TERM_S)
            cause = CANCELLED
        if cause is not None:
            if lease.place == alive.place():
                alive.end_attempt(lease.token)
            if attempts.end(ledger, lease.job, lease.token, Ending("stopped", cause)):
                lost.append(lease.job)
    _settle(ledger)
    _hold(ledger, watch)
    return lost


def is_orphan(lease: Lease) -> bool:
    """Whether an attempt of this machine goes on without its supervisor: somebody should adopt it."""
    return lease.is_here and not alive.is_alive(lease.supervisor) and alive.is_alive(lease.child)


def _loss(lease: Lease, is_silent: bool) -> str | None:
    """Say why nobody looks after an attempt any more; None while somebody does."""
    if lease.place != alive.place():
        return "nothing was heard of its machine any more" if is_silent else None
    if lease.boot != alive.boot():
        return "the machine was started anew"
    if alive.is_alive(lease.child):  # with or without a supervisor: it is adopted or ends by itself
        return None
    if not alive.is_alive(lease.supervisor):
        return "it and the worker that supervised it died"
    return "the worker that supervised it hangs" if is_silent else None


def _hold(ledger: Ledger, watch: Watch) -> None:
    """A job that the user has not asked for is paused. One that was seen to be signed is not read again."""
    waiting = ledger.waiting()
    for number, turn in waiting:
        if (number, turn) not in watch.signed:
            for job in ledger.jobs("job=?", (number,)):
                if trust.is_signed(ledger, job):
                    watch.signed.add((number, turn))
                else:
                    trust.hold(ledger, job)
    watch.signed.intersection_update(waiting)


def _settle(ledger: Ledger) -> None:
    """A job that comes after one that will not finish cannot run."""
    for job in ledger.jobs("state='waiting' AND after!='[]'"):
        for number in job.after:
            state = ledger.state(number)
            if state in ("failed", "cancelled", "poisoned"):
                with ledger.database.transaction():
                    fresh = ledger.job(job.id)
                    if fresh.state == "waiting" and ledger.state(number) == state:
                        reason = f"job {number}, which it comes after, is {state}"
                        ledger.write(replace(fresh, state="failed", reason=reason, ended=now()))
                break
