"""The signatures of jobs. A job runs only if the store has a signature of the job by the account that runs it.

A lab's folder may be a copy from another person, and its store may have any content. A submitted job is signed with the
key of :mod:`syno_lab.signing`. A job without a valid signature is paused, with a line on how to allow it. The signature
covers all that the job does, including the user's code, and stays valid when the folder moves.
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
    """Return a line that says why an unsigned job is paused, and how to allow it."""
    return f"not signed with your key: `syno-lab jobs allow {number}` shows what it would run, and allows it"


def request(job: JobRecord) -> str:
    """Return the text to sign: canonical JSON of the job's number and of everything that decides what the job does."""
    return msgspec.json.encode([job.id, job.kind, job.params, job.resources], order="sorted").decode()


def sign(ledger: Ledger, job: JobRecord) -> None:
    """Store the user's signature of this record; within a transaction.

    Raises SynoError where no key exists or can be created.
    """
    row = (job.id, signing.sign(PURPOSE, request(job)))
    ledger.database.write("INSERT OR REPLACE", "syno_signatures", SIGNATURE, row)


def is_signed(ledger: Ledger, job: JobRecord) -> bool:
    """Whether the user has signed this job in its current form. Raises SynoError where the key cannot be read."""
    rows = ledger.database.read(SIGNATURE, "FROM syno_signatures WHERE job=?", (job.id,))
    return bool(rows) and signing.is_signed(PURPOSE, request(job), str(rows[0][1]))


def check_signed(ledger: Ledger, job: JobRecord) -> None:
    """Refuse a job that the user has not signed. Raises JobError with the command that allows the job."""
    if not is_signed(ledger, job):
        raise JobError(f"job {job.id} is {unsigned(job.id)}")


def hold(ledger: Ledger, job: JobRecord) -> None:
    """Pause a waiting job that the user has not signed, and store the reason."""
    with ledger.database.transaction():
        fresh = ledger.job(job.id)
        if fresh.state == "waiting" and not is_signed(ledger, fresh):
            ledger.write(replace(fresh, state="paused", reason=unsigned(job.id)))


def code_in(params: Any) -> Iterator[Mapping[str, Any]]:
    """Yield each piece of a user's source code in a job's parameters, as plain data of :class:`.UserCode`."""
    if isinstance(params, Mapping):
        if isinstance(params.get("source"), str):
            yield params
        else:
            for value in params.values():
                yield from code_in(value)
    elif isinstance(params, list):
        for value in params:
            yield from code_in(value)
