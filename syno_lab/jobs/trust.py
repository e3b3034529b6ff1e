"""Which jobs run: those that the user's own account has asked for, by a signature that stands beside them in the store.

A lab's folder may have been copied from somebody else, and its store may hold anything. Whoever submits a job signs it
with the key of :mod:`syno_lab.signing`; a job without a valid signature is paused, with a line that says how to allow
it. The signature is over all that the job does, code of the user's own included, and holds wherever the folder is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab import signing
from syno_lab.errors import JobError

if TYPE_CHECKING:
    from syno_lab.jobs.ledger import Ledger
    from syno_lab.jobs.records import JobRecord

PURPOSE = "job"
SIGNATURE = "job, signature"


def unsigned(number: int) -> str:
    """Why a job is held, and how to allow it, in one line."""
    return f"not signed with your key: `syno-lab jobs allow {number}` shows what it would run, and allows it"


def request(job: JobRecord) -> str:
    """The text that is signed: canonical JSON of the job's number and of everything that decides what it does."""
    return msgspec.json.encode([job.id, job.kind, job.params, job.resources], order="sorted").decode()


def sign(ledger: Ledger, job: JobRecord) -> None:
    """Put the user's signature of this very record beside it; within a transaction.

    Raises SynoError where there is no key, and none can be made.
    """
    row = (job.id, signing.sign(PURPOSE, request(job)))
    ledger.database.write("INSERT OR REPLACE", "syno_signatures", SIGNATURE, row)


def is_signed(ledger: Ledger, job: JobRecord) -> bool:
    """Whether the user has asked for this job, as it is now. Raises SynoError where the key cannot be read."""
    rows = ledger.database.read(SIGNATURE, "FROM syno_signatures WHERE job=?", (job.id,))
    return bool(rows) and signing.is_signed(PURPOSE, request(job), str(rows[0][1]))


def check_signed(ledger: Ledger, job: JobRecord) -> None:
    """Refuse a job that the user has not asked for. Raises JobError with how to allow it."""
    if not is_signed(ledger, job):
        raise JobError(f"job {job.id} is {unsigned(job.id)}")


def hold(ledger: Ledger, job: JobRecord) -> None:
    """Pause a job that waits and that the user has not asked for; says why in its row."""
    with ledger.database.transaction():
        fresh = ledger.job(job.id)
        if fresh.state == "waiting" and not is_signed(ledger, fresh):
            ledger.write(replace(fresh, state="paused", reason=unsigned(job.id)))


def code_in(params: Any) -> Iterator[Mapping[str, Any]]:
    """Every text of a user's own in a job's parameters, as plain data of :class:`.UserCode`."""
    if isinstance(params, Mapping):
        if isinstance(params.get("source"), str):
            yield params
        else:
            for value in params.values():
                yield from code_in(value)
    elif isinstance(params, list):
        for value in params:
            yield from code_in(value)
