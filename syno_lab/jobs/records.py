"""The record of a job, and the exceptions by which a job's function reports that it cannot continue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

import msgspec

from syno_lab.errors import JobError, StoreError
from syno_lab.inputs import QUOTED, printable, quoted

JobState = Literal["waiting", "running", "paused", "finished", "failed", "cancelled", "poisoned"]
#: States that only a user's retry ends.
ENDED = ("finished", "failed", "cancelled", "poisoned")


class JobFailed(JobError):  # noqa: N818 - the name reads well where a function raises it
    """Raised by the function of a job that cannot be done. With ``retry`` the job runs again, as after a death."""

    def __init__(self, reason: str, *, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


class JobStopped(JobError):  # noqa: N818
    """Raised by a kind's function after ``should_stop()`` was true. The job later continues from its folder."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it is in the store. Times are ISO 8601 in UTC.

    Attributes:
        id: the job's number in the lab, from 1 on.
        kind: the kind of the job, a name in :mod:`syno_lab.jobs.kinds`.
        name: a title for people.
        params: the parameters of the job's function.
        parent: the number of the job that submitted this job.
        after: the numbers of jobs that must finish first.
        resources: the amounts that the job takes of a Dask worker; empty for drivers, which mostly wait.
        max_attempts: the number of dead attempts after which the job is poisoned.
        created: the time of submission.
        state: ``waiting``, ``running``, ``paused``, ``finished``, ``failed``, ``cancelled`` or ``poisoned``.
        wish: the user's pending request: ``pause`` or ``cancel``.
        round: the number of times that the job was put in the queue.
        attempt: the number of times that the job was started.
        deaths: the number of attempts that ended by a signal, by an exit without a result, or out of memory.
        reason: the reason for the state, in one line; empty without an error.
        result: the return value of the job's function.
        started: the time at which the last attempt started.
        ended: the time at which the job ended.
        wall_s: seconds of all attempts together.
        cpu_s: processor seconds of all attempts together, including descendants.
        progress: the last reported progress, from 0 to 1.
        message: the message that was reported with ``progress``.
    """

    id: int
    kind: str
    name: str
    params: dict[str, Any]
    parent: int | None
    after: tuple[int, ...]
    resources: dict[str, float]
    max_attempts: int
    created: str
    state: JobState
    wish: str
    round: int
    attempt: int
    deaths: int
    reason: str
    result: dict[str, Any] | None
    started: str | None
    ended: str | None
    wall_s: float
    cpu_s: float
    progress: float = 0.0
    message: str = ""

    @property
    def is_ended(self) -> bool:
        """Whether the job has ended, so that only a retry can change it."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to run a job. ``cause`` is empty while the attempt runs and after it returned a result."""

    job: int
    attempt: int
    host: str
    started: str
    ended: str | None
    cause: str
    wall_s: float
    cpu_s: float


class Ending(msgspec.Struct, frozen=True):
    """The ending of an attempt.

    Attributes:
        how: ``finished``; ``failed``: the job cannot be done; ``stopped``: without a fault of the job, which waits
            again or is paused on request; ``died``: the job is poisoned, or tried again from its folder.
        reason: one line; empty for ``finished``.
        result: the return value of the function, for ``finished``.
        wall_s, cpu_s: the seconds and processor seconds of the attempt.
    """

    how: Literal["finished", "failed", "stopped", "died"]
    reason: str = ""
    result: dict[str, Any] | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0


#: The columns of the table, in the order of the fields. Progress has its own table because it changes often.
COLUMNS = "job, " + ", ".join(field.name for field in fields(JobRecord)[1:-2])
ATTEMPT_COLUMNS = ", ".join(field.name for field in fields(Attempt))
_JSON = ("params", "after", "resources", "result")
_NAMES = tuple(field.name for field in fields(JobRecord))


def from_row(row: Sequence[Any], progress: tuple[float, str] = (0.0, "")) -> JobRecord:
    """Return the record of a row of the table.

    Raises StoreError where a value is not valid in a record, because another program wrote the row.
    """
    values = dict(zip(_NAMES, (*row, *progress), strict=True))
    try:
        for name in _JSON:
            if values[name] is not None:
                values[name] = json.loads(values[name])
        for name in ("started", "ended"):
            if values[name] is not None:
                datetime.fromisoformat(values[name])
        if values["state"] == "finished":
            values["progress"] = 1.0
        record = msgspec.convert(values, JobRecord)
    except (TypeError, ValueError, RecursionError, msgspec.ValidationError) as error:
        detail = printable(str(error), QUOTED)
        raise StoreError(f"job {quoted(row[0])} in the results store is not a valid job: {detail}") from None
    return record


def to_row(record: JobRecord, texts: dict[str, str]) -> list[Any]:
    """Return the row of a record; ``texts`` has the JSON texts of the record's mappings."""
    names = [field.name for field in fields(JobRecord)[:-2]]
    return [texts[name] if name in texts else getattr(record, name) for name in names]
