"""A trial as a job of kind ``train``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syno_lab.errors import CodeError, DiskFullError, FormatError
from syno_lab.trial.own import bring
from syno_lab.trial.request import TrialOutcome, TrialRequest
from syno_lab.trial.run import run_trial

if TYPE_CHECKING:
    from syno_lab.jobs import JobContext

#: Seconds between two attempts while the disk is full.
RETRY_S = 10.0


def run(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Run the trial of a :class:`.TrialRequest` as a dictionary; return its :class:`.TrialOutcome` as a dictionary.

    The checkpoint is in the job's folder, so that the next attempt continues from it. While the disk has no room for
    the checkpoint, the job reports this and waits. Raises JobFailed without retry for parameters that are no request.
    """
    try:
        request = TrialRequest.from_dict(params)
        bring(request)  # the user's signature of the job covers the code
    except (FormatError, CodeError) as error:
        from syno_lab.jobs import JobFailed

        raise JobFailed(str(error), retry=False) from None

    def report(fraction: float, message: str) -> None:
        context.report(fraction, message)
        if not message.startswith("epoch "):
            context.log(message)

    def once() -> TrialOutcome:
        return run_trial(request, folder=context.folder, report=report, should_stop=context.should_stop)

    return with_room(once, report, context.should_stop).to_dict()


def with_room(
    once: Callable[[], TrialOutcome], report: Callable[[float, str], None], should_stop: Callable[[], bool]
) -> TrialOutcome:
    """Run a trial by ``once()``; while the disk is too full for its checkpoint, report this, wait and try again."""
    while True:
        try:
            return once()
        except DiskFullError as error:
            report(0.0, f"waits for free disk space: {error}")
            again = time.monotonic() + RETRY_S
            while time.monotonic() < again and not should_stop():
                time.sleep(0.2)
