"""A trial as a job of kind ``train``, and several short ones as a job of kind ``trials``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

from syno_lab.errors import DiskFullError, FormatError
from syno_lab.trial.request import TrialRequest
from syno_lab.trial.run import run_trial
from syno_lab.trial.workers import run_trials

#: Seconds between two attempts while the disk is full.
RETRY_S = 10.0


class Context(Protocol):
    """The part of a job's context that a trial needs."""

    folder: Path

    def report(self, fraction: float, message: str = "") -> None:
        """Report the job's progress, from 0 to 1."""

    def should_stop(self) -> bool:
        """Whether to stop at once, from the last checkpoint."""

    def log(self, line: str) -> None:
        """Write a line to the log."""


def run(params: dict[str, Any], context: Context) -> dict[str, Any]:
    """Run the trial of a :class:`.TrialRequest` as a dictionary; return its :class:`.TrialOutcome` as one.

    The checkpoint lies in the job's folder, so that the next attempt continues from it. While the disk has no room for
    it, the job reports that and waits. Raises JobFailed, which is not retried, for parameters that are not a request.
    """
    try:
        request = TrialRequest.from_dict(params)
    except FormatError as error:
        from syno_lab.jobs import JobFailed

        raise JobFailed(str(error), retry=False) from None

    def report(fraction: float, message: str) -> None:
        context.report(fraction, message)
        if not message.startswith("epoch "):
            context.log(message)

    while True:
        try:
            return run_trial(request, folder=context.folder, report=report, should_stop=context.should_stop).to_dict()
        except DiskFullError as error:
            report(0.0, f"waits for free disk space: {error}")
            again = time.monotonic() + RETRY_S
            while time.monotonic() < again and not context.should_stop():
                time.sleep(0.2)


def run_several(params: dict[str, Any], context: Context) -> dict[str, Any]:
    """Run the trials of ``requests``, a list of such dictionaries, in one process; return their ``outcomes`` in order.

    A trial that crashes or fails is an outcome too; the next attempt of the job finds the outcomes that lie in its
    folder. Raises JobFailed, which is not retried, for parameters that are not requests, and JobStopped when the job is
    paused or cancelled.
    """
    from syno_lab.jobs import JobFailed, JobStopped

    try:
        if not isinstance(params.get("requests"), list) or not params["requests"]:
            raise FormatError("expected a list of trials' requests, found none")
        requests = [TrialRequest.from_dict(one) for one in params["requests"]]
    except FormatError as error:
        raise JobFailed(str(error), retry=False) from None
    found = run_trials(requests, folder=context.folder, report=context.report, should_stop=context.should_stop)
    outcomes = [outcome.to_dict() for outcome in found]
    if any(outcome["state"] == "interrupted" for outcome in outcomes):
        raise JobStopped("stopped on request")
    return {"outcomes": outcomes}
