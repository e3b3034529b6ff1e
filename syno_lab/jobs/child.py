"""The process of one attempt: ``python -m … <lab folder> <job> <token>``. The process stores how the attempt ended."""

from __future__ import annotations

import importlib
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from syno_lab import private
from syno_lab.errors import JobError, StoreError, SynoError
from syno_lab.inputs import quoted
from syno_lab.jobs import attempts, trust
from syno_lab.jobs.context import JobContext
from syno_lab.jobs.kinds import check, kinds
from syno_lab.jobs.ledger import Ledger
from syno_lab.jobs.records import Ending, JobFailed, JobStopped
from syno_lab.store import Store
from syno_lab.store.records import plain

#: The function of a kind of jobs. The function takes the job's parameters and the context, and returns the result.
Function = Callable[[dict[str, Any], JobContext], dict[str, Any]]
#: Seconds for which the write of an ending is repeated, for example while the disk is full.
PATIENCE_S = 600.0


def main(arguments: list[str]) -> None:
    """Run one attempt of a job, and record its ending as a row of the store, unless this process dies."""
    private.keep_private()
    root, number, token = Path(arguments[0]), int(arguments[1]), arguments[2]
    started = time.monotonic()
    with Store.open(root, is_thorough=False) as store:
        ledger = Ledger(store.database)
        if not attempts.register(ledger, number, token):
            return
        context = JobContext(ledger, root, number, token)
        context.keep()
        outcome = _run(ledger, number, context)
        insist(context.log, context.flush)
        final = msgspec.structs.replace(outcome, wall_s=time.monotonic() - started, cpu_s=cpu_seconds())
        insist(context.log, lambda: attempts.end(ledger, number, token, final))


def _run(ledger: Ledger, number: int, context: JobContext) -> Ending:
    """Call the function of the job and return the ending."""
    job = ledger.job(number)
    try:
        trust.check_signed(ledger, job)  # check the signature in the process that runs the job
        result = _function(job.kind)(job.params, context)
        if not isinstance(result, dict):
            raise JobFailed(f"a job of kind {job.kind} returned {type(result).__name__}, expected a mapping")
        if result.get("state") == "interrupted":
            raise JobStopped(str(result.get("reason") or "interrupted"))
        return Ending("finished", result=plain(result, "result"))
    except JobStopped as error:
        if context.should_stop():
            return Ending("stopped", context.stop_reason)
        return Ending("died", f"stopped without being asked to: {one_line(error)}")
    except MemoryError as error:
        context.log(traceback.format_exc())
        return Ending("died", f"out of memory: {one_line(error)}")
    except Exception as error:  # noqa: BLE001 - the store and the log record any error as an ending
        context.log(traceback.format_exc())
        reason = str(error) if isinstance(error, SynoError) else one_line(error)
        return Ending("died" if isinstance(error, JobFailed) and error.retry else "failed", reason)


def _function(kind: str) -> Function:
    """Import the function of a kind. Raises JobError where the kind is not registered or the import fails."""
    check(kind)
    module, _, name = kinds()[kind].partition(":")
    try:
        function: Function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise JobError(f"the function of jobs of kind {quoted(kind)} cannot be loaded ({error})") from error
    return function


def insist(log: Callable[[str], None], write: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Call ``write``; repeat it for ``patience_s`` seconds while the store or the lab refuses it, to lose no result."""
    deadline, wait = time.monotonic() + patience_s, 0.5
    while True:
        try:
            write()
        except (StoreError, JobError) as error:
            if time.monotonic() > deadline:
                raise
            log(f"{error}; trying again")
            time.sleep(wait)
            wait = min(2 * wait, 10.0)
        else:
            return


def cpu_seconds() -> float:
    """Processor seconds of this process and of its descendants that have ended."""
    used = (resource.getrusage(scope) for scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in used)


def one_line(error: BaseException) -> str:
    """Return a line with the class and the message of an exception."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(": ")


if __name__ == "__main__":
    main(sys.argv[1:])
