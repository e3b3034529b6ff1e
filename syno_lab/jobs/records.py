"""The record of a job, and the exceptions by which a job says that it cannot continue."""

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
#: States that nothing but a user's retry leads out of.
ENDED = ("finished", "failed", "cancelled", "poisoned")


class JobFailed(JobError):  # noqa: N818 - reads as what it says where a kind raises it
    """Raised by a kind's function: the job cannot be done; with ``retry`` it is tried again, as after a death."""

    def __init__(self, reason: str, *, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


class JobStopped(JobError):  # noqa: N818
    """Raised by a kind's function that stopped because ``should_stop()`` said so; it goes on later from its folder."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the store knows it; times are ISO 8601 in UTC.

    Attributes:
        id: its number in the lab, from 1 on.
        kind: which function it runs, a name of :mod:`syno_lab.jobs.kinds`.
        name: for people.
        params: what the function is given.
        parent: the job that submitted it.
        after: jobs that must finish first.
        resources: what it occupies of a Dask worker; nothing for drivers, which mostly wait.
        max_attempts: after so many deaths it is poisoned.
        created: when it was submitted.
        state: ``waiting``, ``running``, ``paused``, ``finished``, ``failed``, ``cancelled`` or ``poisoned``.
        wish: what it was asked for and has not done yet: ``pause`` or ``cancel``.
        round: how often it was put in line.
        attempt: how often it was started.
        deaths: how often it died of itself: by a signal, by an exit without a result, out of memory.
        reason: why it is where it is, one line; empty when all is well.
        result: what the function returned.
        started: when the last attempt began.
        ended: when it came to its end.
        wall_s: seconds of all attempts together.
        cpu_s: processor seconds of all attempts together, those of descendants included.
        progress: from 0 to 1, as the function said last.
        message: with it.
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
        """Whether nothing but a retry will change it."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a job and how it ended; ``cause`` is empty while it runs and when it gave a result."""

    job: int
    attempt: int
    host: str
    started: str
    ended: str | None
    cause: str
    wall_s: float
    cpu_s: float


class Ending(msgspec.Struct, frozen=True):
    """How an attempt ended, and the seconds that it took.

    Attributes:
        how: ``finished``; ``failed``: the job cannot be done; ``stopped``, not by the job's fault: it waits again, or
            is paused where it was asked to; ``died`` of itself: it is tried again, from what it left in its folder, or
            poisoned.
        reason: one line; empty where it finished.
        result: what the function returned, where it finished.
        wall_s, cpu_s: of the attempt.
    """

    how: Literal["finished", "failed", "stopped", "died"]
    reason: str = ""
    result: dict[str, Any] | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0


#: The columns of the table, in the order of the fields; progress is kept apart, as it changes often.
COLUMNS = "job, " + ", ".join(field.name for field in fields(JobRecord)[1:-2])
ATTEMPT_COLUMNS = ", ".join(field.name for field in fields(Attempt))
_JSON = ("params", "after", "resources", "result")
_NAMES = tuple(field.name for field in fields(JobRecord))


def from_row(row: Sequence[Any], progress: tuple[float, str] = (0.0, "")) -> JobRecord:
    """Make a record of a row of the table.

    Raises StoreError: something in it is not what a record holds; whoever wrote the row was not this program.
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
        what = printable(str(error), QUOTED)
        raise StoreError(f"job {quoted(row[0])} in the results store is not what a job is: {what}") from None
    return record


def to_row(record: JobRecord, texts: dict[str, str]) -> list[Any]:
    """Make a row of a record; ``texts`` holds the JSON of its mappings."""
    names = [field.name for field in fields(JobRecord)[:-2]]
    return [texts[name] if name in texts else getattr(record, name) for name in names]
