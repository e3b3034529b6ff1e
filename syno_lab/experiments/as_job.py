"""A search as a job that the caller watches: begun or gone on with, and paused when the caller is interrupted."""

from __future__ import annotations

import time
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import SynoError
from syno_lab.experiments.driver import Report
from syno_lab.experiments.settings import SearchSettings

if TYPE_CHECKING:
    from syno_lab.jobs import JobHandle, JobRecord, Lab

KIND = "search"
LOOK_S = 0.5
#: Seconds that a search has to come to rest after Ctrl-C; its trainings stop at their next batch.
REST_S = 60.0


def run_as_job(
    settings: SearchSettings,
    folder: Path,
    *,
    address: str | None = None,
    report: Report = lambda fraction, message: None,
) -> dict[str, Any]:
    """Do the search as a job of the lab in ``folder``, and return its result.

    KeyboardInterrupt pauses the job and its trainings, and is raised again: the same call goes on. Raises SynoError
    where the job ends otherwise than with a result.
    """
    from syno_lab.jobs import Lab

    if address is None:
        offer_gpus(settings, folder)
    with Lab.open(folder, address=address, slots=settings.workers) as lab:
        handle = _job(lab, settings)
        record = handle.record()
        try:
            while not record.is_ended:
                report(record.progress, record.message or f"job {record.id} is {record.state}")
                if lab.keeper.trouble:
                    report(record.progress, lab.keeper.trouble)
                time.sleep(LOOK_S)
                record = handle.record()
        except (KeyboardInterrupt, SystemExit):
            _pause(lab, handle)
            raise
        if record.state != "finished":
            raise SynoError(f"the search ended as {record.state}: {record.reason}")
        return record.result or {}


def offer_gpus(settings: SearchSettings, folder: Path) -> None:
    """See that the lab's own workers have the GPUs that the trainings ask for; other jobs go on, or begin again.

    A cluster that the user names, or machines that join, have GPUs of their own.

    Raises:
        JobError: the cluster does not start, or this process may not see so many GPUs.
    """
    from syno_lab.jobs import Lab
    from syno_lab.jobs.endpoint import named

    if settings.gpus and named(None) is None:
        count = ceil(settings.workers * settings.gpus)
        with Lab.open(folder, slots=settings.workers, gpus=count, start=False, is_thorough=False) as lab:
            lab.cluster.serve()


def _job(lab: Lab, settings: SearchSettings) -> JobHandle:
    """The job that does this search: one that waits, runs or was paused with the same end, or a new one."""
    params = settings.to_dict()
    mine: list[JobRecord] = [job for job in lab.jobs(kind=KIND) if job.params.get("name") == settings.name]
    for job in reversed(mine):
        if job.is_ended:
            continue
        handle = lab.job(job.id)
        if job.params == params or job.state == "running":
            if job.params == params:
                handle.allow(job)  # it has exactly the settings of this call
            handle.resume()
            return handle
        handle.cancel()
    return lab.submit(KIND, params, name=settings.name)


def _pause(lab: Lab, handle: JobHandle) -> None:
    """Pause the search and its trainings at the next batch; their results are kept."""
    handle.pause()
    for job in lab.jobs(parent=handle.id):
        if not job.is_ended:
            lab.job(job.id).pause()
    deadline = time.monotonic() + REST_S
    while time.monotonic() < deadline:
        if not any(job.state == "running" for job in (handle.record(), *lab.jobs(parent=handle.id))):
            return
        time.sleep(0.2)
