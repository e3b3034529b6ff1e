"""Runs a search: as a job of kind ``search`` that the caller watches, or as a call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab import private
from syno_lab.errors import SearchError, SynoError
from syno_lab.experiments.driver import Driver
from syno_lab.experiments.finals import against, baselines_beside, timed, train_on_seeds
from syno_lab.experiments.in_rungs import run_in_rungs
from syno_lab.experiments.loop import Begun
from syno_lab.experiments.own_choice import bring_choice
from syno_lab.experiments.plan import TIMES_SHARE
from syno_lab.experiments.rung_worker import JobWorkers, LocalWorkers
from syno_lab.experiments.runner import LOOK_S, JobRunner, LocalRunner, Report, Runner, Stopped
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.standing import Times
from syno_lab.experiments.tunings import Tunings
from syno_lab.experiments.untrained import run_untrained
from syno_lab.experiments.watching import LOCK_FILE, search_folder
from syno_lab.processes.alone import alone
from syno_lab.reports.searched import TRAINED, TRAINED_STATUS, Point, Recorded, Searched
from syno_lab.store import SearchTrial, Store
from syno_lab.systems import title_of
from syno_lab.trial import TrialOutcome, TrialRequest, run_trial
from syno_lab.trial.own import bring, needs_this_process
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.jobs import JobContext, JobHandle, JobRecord, Lab

#: The progress, from 0 to 1, after the baseline's trainings; the share of the search; the progress after the finals.
_BEFORE, _SEARCH, _AFTER = 0.1, 0.7, 0.95
#: Seconds to wait until the process of an earlier attempt has ended.
_PATIENCE_S = 10.0
#: Seconds to wait, after Ctrl-C, until a search that is a job has stopped; trainings stop at their next batch.
REST_S = 60.0
KIND = "search"


def run(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Run the search of a :class:`.SearchSettings` as a dictionary; return the result of :func:`run_search`.

    Raises JobFailed without a retry for invalid settings and if another job runs this search; JobStopped if the job was
    paused or cancelled.
    """
    from syno_lab.jobs import JobFailed, JobStopped, Lab

    lab = Lab.of(context)
    try:
        settings = SearchSettings.from_dict(params)
        bring(settings.training)  # the user's signature of the job covers the code
        bring_choice(settings)
        for other in lab.jobs(kind=KIND, state="running"):
            if other.id < context.id and other.params.get("name") == settings.name:
                raise JobFailed(f"job {other.id} does the search {settings.name!r} already; take another name")
        search_files = search_folder(context.root, settings.name)
        search_files.mkdir(parents=True, exist_ok=True)
        with alone(search_files / LOCK_FILE, busy(settings.name, context.root), _PATIENCE_S):
            if settings.rungs:
                return run_in_rungs(
                    settings,
                    lab.store,
                    lambda log: JobWorkers(settings, lab),
                    folder=search_files,
                    report=context.report,
                    should_stop=context.should_stop,
                )
            return run_search(
                settings,
                lab.store,
                JobRunner(lab, settings.resources),
                folder=search_files,
                report=context.report,
                should_stop=context.should_stop,
            )
    except Stopped as error:
        raise JobStopped(str(error)) from None
    except SynoError as error:
        if isinstance(error, JobFailed):
            raise
        raise JobFailed(str(error), retry=False) from None


def busy(name: str, folder: Path) -> str:
    """Return the message that another process, ``{who}``, runs the search, with a way to watch the search."""
    return (
        f"the search {name!r} in {folder} is already running ({{who}}): watch it in a notebook by "
        f"`from syno_widgets import RunsView; RunsView({str(folder)!r})`, or give this one another name or folder"
    )


def run_here(
    settings: SearchSettings,
    folder: Path,
    *,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, JSON]:
    """Run :func:`run_search` with trainings and tunings in threads of this process, in the lab of a folder.

    With one worker all work runs in sequence. ``clock`` is the clock of a search in rungs. Raises as :func:`run_search`
    does.
    """
    search_files = search_folder(folder, settings.name)
    private.folder(search_files)
    train = _in_this_process if needs_this_process(settings.training) else None
    with (
        alone(search_files / LOCK_FILE, busy(settings.name, folder)),
        Store.open(folder) as store,
    ):
        if settings.rungs:
            return run_in_rungs(
                settings,
                store,
                lambda log: LocalWorkers(settings, log, search_files / "rungs", should_stop, train),
                folder=search_files,
                report=report,
                should_stop=should_stop,
                clock=clock,
            )
        with LocalRunner(search_files / "trainings", settings.workers, should_stop, lab=folder) as runner:
            return run_search(settings, store, runner, folder=search_files, report=report, should_stop=should_stop)


def _in_this_process(request: TrialRequest, *, folder: Path, should_stop: Callable[[], bool], **_: Any) -> TrialOutcome:
    """Train in a thread of this process, because no other process has the network or the data."""
    return run_trial(request, folder=folder, should_stop=should_stop)


def run_search(
    settings: SearchSettings,
    store: Store,
    runner: Runner,
    *,
    folder: Path,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, JSON]:
    """Run Syno's Algorithm 1: extract, derive, search, evaluate, decide, store; continue a stored search.

    The baseline is trained first, with the settings and seeds of the finals. The time of the search starts after the
    baseline. At the end the best operator within each share of FLOPs (:data:`.standing.SHARES`), and the best known
    operator (if any), are trained on the same seeds. With a :class:`.TuningChoice`, trials about as accurate as the
    baseline are tuned during the search, and the call waits for the tunings at the end. ``folder`` gets the files for
    views (:mod:`.watching`) and, at the end, the result. :func:`.run_untrained` runs an untrained search.

    Raises:
        SpecError, StoreError: as :meth:`.Begun.of`.
        SearchError: the baseline's training does not finish.
        Stopped: ``should_stop`` returned True.
    """
    if settings.untrained:
        return run_untrained(settings, store, folder=folder, report=report, should_stop=should_stop)
    search = Begun.of(settings, store, folder)
    space, log, before = search.space, search.log, search.earlier
    times = Times(before.search_s, before.asking_s, before.store_s, before.held_s)

    def part(low: float, high: float) -> Report:
        return lambda fraction, message: report(low + (high - low) * fraction, message)

    def show(status: Searched) -> None:
        search.board.show(status, TRAINED_STATUS)

    show(msgspec.structs.replace(before, phase="baseline"))
    unchanged: dict[str, str | None] = {"baseline": None} if settings.seeds else {}
    trained = train_on_seeds(settings, "the baseline", unchanged, runner, part(0, _BEFORE), should_stop)
    baselines = trained.get("baseline", [])
    baseline = search.baseline(baselines)
    driver = Driver(
        settings,
        space,
        log,
        runner,
        search.board,
        report=part(_BEFORE, _BEFORE + _SEARCH),
        should_stop=should_stop,
        times=times,
        baseline_s=statistics.median(outcome.wall_s for outcome in baselines) if baselines else None,
        baseline_accuracy=baseline.accuracy,
    )
    margin = None if settings.tuning is None else settings.tuning.within
    for setting, value in (("tuning", margin), ("lower within", settings.lower_within)):
        if value is not None and baseline.accuracy is None:
            raise SearchError(f"{setting}: expected a baseline with an accuracy, found one without")
    if settings.tuning is not None:
        driver.tunings = Tunings(settings.tuning, settings.name, baseline.accuracy, space, log, runner)
    driver.run()
    standing, tunings = driver.standing, driver.tunings
    best_points = {name: best for name, share in standing.shares.items() if (best := standing.best(share)) is not None}
    show(driver.status("comparison"))
    compared = best_points if standing.best_known is None else best_points | {"known": standing.best_known}
    finalists = {f"trial {best.number}": log.trial(best.number).operator for best in compared.values()}
    chosen = finalists if settings.seeds else {}
    finals = train_on_seeds(settings, "the best", chosen, runner, part(_BEFORE + _SEARCH, _AFTER), should_stop)
    baselines = baselines_beside(settings, baselines, finals, runner, part(_AFTER, _AFTER), should_stop)
    if tunings is not None:
        show(driver.status("tuning"))
        if not tunings.finish(part(_AFTER, 1), should_stop):
            raise Stopped("stopped while trials were tuned; the finished tunings are in the store")

    def ended(one: Recorded, trial: SearchTrial) -> Recorded:
        latency = {} if tunings is None else {"latency_ms": tunings.latency_ms(trial.number)}
        return msgspec.structs.replace(one, accuracy=trial.accuracy, wall_s=trial.wall_s, **latency)

    def point(trial: SearchTrial) -> Point:
        ratio, known = standing.replaced_ratio(trial.flops), driver.known.get(trial.operator)
        return search.point(trial, trial.accuracy, ratio, known)

    def finalist(best: Point, number: int) -> Point:
        operator = log.trial(number).operator
        return msgspec.structs.replace(best, operator=operator, system=title_of(operator))

    status = driver.status("done")
    end = driver.end_reason or f"{standing.total} trials are done"
    result = msgspec.structs.replace(
        status,
        settings=search.said_settings,
        end=end,
        lowered=None if settings.lower_within is None else tuple(driver.lowered),
        baseline=baseline,
        best=status.best | {name: finalist(best, best.number) for name, best in best_points.items()},
        comparisons={
            name: against(settings, baselines, finals[f"trial {best.number}"])
            for name, best in compared.items()
            if settings.seeds
        },
        front=tuple([point(trial) for trial in log.front(("accuracy", "flops"))]),
        recorded=search.recorded(driver.known, ended),
    )
    numbers = {name: best.number for name, best in compared.items()}
    result = timed(search, result, numbers, {}, TIMES_SHARE * 60 * (settings.minutes or 5.0))
    plain = search.end(result, TRAINED)
    show(msgspec.structs.replace(status, end=end))
    return plain


# -- as a job that the caller watches ---------------------------------------------------------------------------------


def run_as_job(
    settings: SearchSettings,
    folder: Path,
    *,
    address: str | None = None,
    report: Report = lambda fraction, message: None,
) -> dict[str, JSON]:
    """Run the search as a job of the lab in ``folder``, and return its result.

    KeyboardInterrupt pauses the job and its trainings, and is raised again. A later call with the same settings
    continues. Raises SynoError where the job ends without a result.
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
    """Start the lab's own workers with the GPUs that the trainings require; other jobs continue, or start again.

    The lab does not change a cluster that the user names, or machines that join: they have their own GPUs.

    Raises JobError if the cluster does not start, or this process cannot see so many GPUs.
    """
    from syno_lab.jobs import Lab
    from syno_lab.jobs.endpoint import named

    if settings.gpus and named(None) is None:
        count = ceil(settings.workers * settings.gpus)
        with Lab.open(folder, slots=settings.workers, gpus=count, start=False, is_thorough=False) as lab:
            lab.cluster.serve()


def _job(lab: Lab, settings: SearchSettings) -> JobHandle:
    """Return the job of this search: a job with these settings that has not ended, a running job, or a new job."""
    params = settings.to_dict()
    same_name: list[JobRecord] = [job for job in lab.jobs(kind=KIND) if job.params.get("name") == settings.name]
    for job in reversed(same_name):
        if job.is_ended:
            continue
        handle = lab.job(job.id)
        if job.params == params or job.state == "running":
            if job.params == params:
                handle.allow(job)  # allowed, because its settings equal this call's
            handle.resume()
            return handle
        handle.cancel()
    return lab.submit(KIND, params, name=settings.name)


def _pause(lab: Lab, handle: JobHandle) -> None:
    """Pause the search and its trainings at the next batch, without loss of results."""
    handle.pause()
    for job in lab.jobs(parent=handle.id):
        if not job.is_ended:
            lab.job(job.id).pause()
    deadline = time.monotonic() + REST_S
    while time.monotonic() < deadline:
        if not any(job.state == "running" for job in (handle.record(), *lab.jobs(parent=handle.id))):
            return
        time.sleep(0.2)
