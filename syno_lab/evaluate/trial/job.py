"""A trial as a job: the kind ``train``. It only forwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from syno_lab.errors import FormatError
from syno_lab.evaluate.trial.request import TrialRequest
from syno_lab.evaluate.trial.run import run_trial


class Context(Protocol):
    """What a job's context has that a trial needs."""

    folder: Path

    def report(self, fraction: float, message: str = "") -> None:
        """Say how far the job is."""

    def should_stop(self) -> bool:
        """Whether to stop at once, from the last checkpoint."""

    def log(self, line: str) -> None:
        """Write a line to the log."""


def run(params: dict[str, Any], context: Context) -> dict[str, Any]:
    """Run the trial of a :class:`.TrialRequest` as a dictionary; return its :class:`.TrialOutcome` as one.

    The checkpoint lies in the job's folder, so that the next attempt goes on from it. Raises JobFailed, not to be tried
    again, for parameters that are no request.
    """
    try:
        request = TrialRequest.from_dict(params)
    except FormatError as error:
        from syno_lab.evaluate.jobs import JobFailed

        raise JobFailed(str(error), retry=False) from None

    def report(fraction: float, message: str) -> None:
        context.report(fraction, message)
        if not message.startswith("epoch "):
            context.log(message)

    return run_trial(request, folder=context.folder, report=report, should_stop=context.should_stop).to_dict()
