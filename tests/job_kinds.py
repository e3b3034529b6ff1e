"""Small real jobs for tests and benchmarks: ``SYNO_LAB_KINDS`` registers them, see :data:`VARIABLE`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syno_lab.jobs import JobContext

NAMES = ("sleep", "count", "end", "drive", "nothing", "full_disk", "sees")
VARIABLE = ";".join(f"{name}=job_kinds:{name}" for name in NAMES)


def nothing(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Give back the parameters."""
    return params


def sees(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Say which GPUs this process sees, and where it is, once there is a file ``until``."""
    while not Path(params["until"]).exists():
        context.report(0.5, "waits")
        time.sleep(0.02)
    return {"gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "root": str(context.root)}


def sleep(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Sleep for ``seconds``, saying how far it is; stops when asked to."""
    from syno_lab.jobs import JobStopped

    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < params["seconds"]:
        context.report(passed / params["seconds"], "sleeping")
        if context.should_stop():
            raise JobStopped("asked to")
        time.sleep(0.02)
    return {"slept": params["seconds"], "attempt": context.attempt}


def count(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Count to ``steps``, or until there is a file ``until``, with a checkpoint after each step.

    A line in a journal tells of steps done twice.
    """
    from syno_lab.jobs import JobStopped

    checkpoint, journal = context.folder / "checkpoint.json", context.folder / "journal.txt"
    step = json.loads(checkpoint.read_text())["step"] if checkpoint.is_file() else 0
    if journal.is_file():  # a line is written at once, so that an attempt killed before its checkpoint loses nothing
        step = max([step, *(int(line.split()[1]) for line in journal.read_text().splitlines())])
    total = sum(range(step))
    context.log(f"begins at step {step}")
    steps, until = params.get("steps", 1_000_000), Path(params.get("until", "/no such file"))
    while step < steps and not until.exists():
        time.sleep(params.get("seconds", 0.01))
        total += step
        step += 1
        with journal.open("a") as file:
            file.write(f"{context.attempt} {step} {os.getpid()}\n")
        half = checkpoint.with_suffix(".new")
        half.write_text(json.dumps({"step": step}))
        half.replace(checkpoint)
        context.report(step / steps, f"step {step}")
        if context.should_stop():
            raise JobStopped("asked to")
    return {"total": total, "steps": step}


def end(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """End in the way that ``how`` names, in the first ``times`` attempts."""
    from syno_lab.jobs import JobFailed

    how = params["how"]
    if context.attempt > params.get("times", 1000):
        return {"attempt": context.attempt}
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(60)
    if how == "exit":
        os._exit(params.get("status", 0))
    if how == "SystemExit":
        sys.exit(0)
    if how == "memory":
        raise MemoryError("no room")
    if how == "bug":
        raise ValueError("two\nlines")
    if how == "give up":
        raise JobFailed("the data is of the wrong shape")
    if how == "try again":
        raise JobFailed("the board did not answer", retry=True)
    if how == "not a mapping":
        return 3  # type: ignore[return-value]
    if how == "not plain":
        return {"x": object()}
    if how == "orphans":
        sleeper = [sys.executable, "-c", "import time; time.sleep(300)"]
        mine = [subprocess.Popen(sleeper), subprocess.Popen(sleeper, start_new_session=True)]
        (context.folder / "orphans.json").write_text(json.dumps([process.pid for process in mine]))
        time.sleep(300)
    raise AssertionError(how)


def drive(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Submit ``jobs`` counting jobs with the parameters ``count``, each once whatever happens; give their sums."""
    from syno_lab.jobs import Lab

    lab = Lab.of(context)
    known = {job.name for job in lab.jobs(parent=context.id)}
    for index in range(params["jobs"]):
        if f"count {index}" not in known:
            lab.submit("count", params["count"], name=f"count {index}", max_attempts=params.get("max_attempts", 3))
    jobs = lab.jobs(parent=context.id)
    while not all(job.is_ended for job in jobs):
        context.report(sum(job.is_ended for job in jobs) / len(jobs))
        time.sleep(0.1)
        jobs = lab.jobs(parent=context.id)
    return {"totals": [job.result["total"] for job in jobs if job.result], "jobs": len(jobs)}


def full_disk(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Return while this process can write no file, for ``seconds``: what a full disk is to the store."""
    import resource
    import threading

    from syno_lab.errors import StoreError
    from syno_lab.jobs import attempts

    unlimited = resource.RLIM_INFINITY
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, unlimited))
    free = threading.Timer(params["seconds"], resource.setrlimit, (resource.RLIMIT_FSIZE, (unlimited, unlimited)))
    free.start()
    try:
        attempts.beat(context._ledger, context.id, context._token)
    except StoreError as error:
        return {"refused": str(error)}
    return {"refused": "nothing"}
