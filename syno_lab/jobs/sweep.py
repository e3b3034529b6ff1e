"""The sweep ends the attempts of dead processes. Every reader of a lab's jobs runs a sweep first.

The wall clock does not decide whether an attempt is alive. On this machine and boot, an attempt is alive while its
processes are alive. On other machines, an attempt counts as dead if a reader has seen no heartbeat for a while.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from syno_lab.jobs import attempts, trust
from syno_lab.jobs.ledger import CANCELLED, Lease, Ledger
from syno_lab.jobs.records import Ending
from syno_lab.processes import alive
from syno_lab.store.records import now

#: Seconds without a heartbeat after which an attempt on another machine counts as dead.
GRACE_S = 60.0
#: The most seconds between two sweeps that count as watched time, because the reader may have slept between them.
LONGEST_LOOK_S = 5.0


@dataclass
class Watch:
    """The data that a process keeps between sweeps: how long each heartbeat is unchanged, and which jobs are signed."""

    grace_s: float = GRACE_S
    signed: set[tuple[int, int]] = field(default_factory=set)
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)
    _looked: float | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def look(self, leases: list[Lease], at: float) -> set[str]:
        """Return the tokens of leases without a heartbeat for ``grace_s``; ``at`` is a time of the monotonic clock."""
        with self._guard:
            passed = 0.0 if self._looked is None else min(at - self._looked, LONGEST_LOOK_S)
            self._looked = at
            beats = {}
            for lease in leases:
                beat, still = self._seen.get(lease.token, (lease.beat, 0.0))
                beats[lease.token] = (lease.beat, still + passed if beat == lease.beat else 0.0)
            self._seen = beats
            return {token for token, (_, still) in beats.items() if still >= self.grace_s}


def sweep(ledger: Ledger, watch: Watch) -> list[int]:
    """Queue the jobs of dead attempts again. Fail jobs whose predecessors failed, and pause unsigned jobs.

    Return the numbers of the jobs of dead attempts.
    """
    lost = []
    leases = ledger.leases()
    silent = watch.look(leases, time.monotonic())
    for lease in leases:
        cause = _loss(lease, lease.token in silent)
        if cause is None and lease.is_orphan and ledger.job(lease.job).wish == "cancel":
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


def _loss(lease: Lease, is_silent: bool) -> str | None:
    """Return the reason why an attempt has no supervisor any more; None while it has a supervisor."""
    if lease.place != alive.place():
        return "nothing was heard of its machine any more" if is_silent else None
    if lease.boot != alive.boot():
        return "the machine was started anew"
    if alive.is_alive(lease.child):  # a living child is adopted, or ends by itself
        return None
    if not alive.is_alive(lease.supervisor):
        return "it and the worker that supervised it died"
    return "the worker that supervised it hangs" if is_silent else None


def _hold(ledger: Ledger, watch: Watch) -> None:
    """Pause jobs that the user has not signed. A job that was found signed is not checked again."""
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
    """Fail every waiting job whose predecessor failed, was cancelled or is poisoned."""
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
