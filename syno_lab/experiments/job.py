"""Run a search, as a job of kind ``search`` or as a call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab import private
from syno_lab.errors import SearchError, SynoError
from syno_lab.experiments.driver import Driver, Report, Stopped
from syno_lab.experiments.evaluators import Evaluators, JobEvaluators, LocalEvaluators
from syno_lab.experiments.finals import against, baselines_beside, train_on_seeds
from syno_lab.experiments.in_rungs import run_in_rungs
from syno_lab.experiments.own_choice import bring_choice
from syno_lab.experiments.rung_worker import JobWorkers, LocalWorkers
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.space import Space
from syno_lab.experiments.standing import Times
from syno_lab.experiments.tunings import JobTuners, LocalTuners, Tuners, Tunings
from syno_lab.experiments.untrained import run_untrained
from syno_lab.experiments.watching import (
    LOCK_FILE,
    RESULT_FILE,
    SETTINGS_FILE,
    STATUS_FILE,
    Board,
    read_json,
    search_folder,
)
from syno_lab.processes.alone import alone
from syno_lab.store import SearchLog, Store
from syno_lab.systems import title_of
from syno_lab.training.files import write_whole
from syno_lab.trial import TrialOutcome, TrialRequest, run_trial
from syno_lab.trial.own import bring, needs_this_process

if TYPE_CHECKING:
    from syno_lab.jobs import JobContext

#: The share of the progress bar that each part of a search has.
_BEFORE, _SEARCH, _AFTER = 0.1, 0.7, 0.95
#: Seconds to wait for the process of an earlier attempt to end.
_PATIENCE_S = 10.0
_TIMES = ("search_s", "asking_s", "store_s", "held_s")


def run(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Run the search of a :class:`.SearchSettings` as a dictionary; return the result of :func:`run_search`.

    Raises JobFailed, which is not retried, for invalid settings and while another job does this search; JobStopped when
    the job was paused or cancelled.
    """
    from syno_lab.jobs import JobFailed, JobStopped, Lab

    lab = Lab.of(context)
    try:
        settings = SearchSettings.from_dict(params)
        bring(settings.training)  # the user has signed the job, and its code with it
        bring_choice(settings)
        for other in lab.jobs(kind="search", state="running"):
            if other.id < context.id and other.params.get("name") == settings.name:
                raise JobFailed(f"job {other.id} does the search {settings.name!r} already; take another name")
        place = search_folder(context.root, settings.name)
        place.mkdir(parents=True, exist_ok=True)
        with alone(place / LOCK_FILE, busy(settings.name, context.root), _PATIENCE_S):
            if settings.rungs:
                return run_in_rungs(
                    settings,
                    lab.store,
                    lambda log: JobWorkers(settings, lab),
                    folder=place,
                    report=context.report,
                    should_stop=context.should_stop,
                )
            return run_search(
                settings,
                lab.store,
                JobEvaluators(lab, settings.resources),
                JobTuners(lab),
                folder=place,
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
    """The message while another process, ``{who}``, does the search of this name: it says how to watch the search."""
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
) -> dict[str, Any]:
    """:func:`run_search` with trainings and tunings in threads of this process, in the lab of a folder.

    With one worker they run one after another. ``clock`` is that of a search in rungs. Raises as :func:`run_search`
    does.
    """
    place = search_folder(folder, settings.name)
    private.folder(place)
    train = _in_this_process if needs_this_process(settings.training) else None
    with (
        alone(place / LOCK_FILE, busy(settings.name, folder)),
        Store.open(folder) as store,
    ):
        if settings.rungs:
            return run_in_rungs(
                settings,
                store,
                lambda log: LocalWorkers(settings, log, place / "rungs", should_stop, train),
                folder=place,
                report=report,
                should_stop=should_stop,
                clock=clock,
            )
        return _run_here(settings, folder, store, report, should_stop)


def _in_this_process(request: TrialRequest, *, folder: Path, should_stop: Callable[[], bool], **_: Any) -> TrialOutcome:
    """A training in a thread of this process, for a network or data that no other process can make."""
    return run_trial(request, folder=folder, should_stop=should_stop)


def _run_here(
    settings: SearchSettings, folder: Path, store: Store, report: Report, should_stop: Callable[[], bool]
) -> dict[str, Any]:
    place = search_folder(folder, settings.name)
    with (
        LocalEvaluators(place / "trainings", settings.workers, should_stop) as evaluators,
    ):
        tuners = LocalTuners(evaluators, folder)
        return run_search(settings, store, evaluators, tuners, folder=place, report=report, should_stop=should_stop)


def run_search(
    settings: SearchSettings,
    store: Store,
    evaluators: Evaluators,
    tuners: Tuners,
    *,
    folder: Path,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Syno's Algorithm 1: extract, derive, search, evaluate, decide, keep; continued from the store if it has begun.

    The baseline is trained on the settings' seeds first, alike in everything; then the clock of the search runs; then
    the best operator within each share of FLOPs (:data:`.standing.SHARES`) is trained on the same seeds, and so is
    the best known operator, if the search began with known ones. With a :class:`.TuningChoice`, trials about as
    accurate as the baseline are tuned during the search, and the call waits for these tunings at its end. ``folder``
    gets the files that views read (:mod:`.watching`) and, at the end, the result. An untrained search is that of
    :func:`.run_untrained`.

    Raises:
        SpecError: the backbone has nothing to replace, or no operator can be within the limit.
        StoreError: the store has a search of this name with other settings, or cannot be written.
        SearchError: the baseline does not train to the end.
        Stopped: ``should_stop`` returned True.
    """
    if settings.untrained:
        return run_untrained(settings, store, folder=folder, report=report, should_stop=should_stop)
    space = Space(settings)
    log = store.search(settings.name, settings.identity)
    board = Board(folder)
    write_whole(folder / SETTINGS_FILE, msgspec.json.encode(settings))
    earlier = read_json(folder / STATUS_FILE) or {}
    times = Times(*(float(earlier.get(name) or 0.0) for name in _TIMES))

    def part(low: float, high: float) -> Report:
        return lambda fraction, message: report(low + (high - low) * fraction, message)

    def show(phase: str) -> None:
        board.show({**earlier, "phase": phase, **vars(times)})

    show("baseline")
    trained = train_on_seeds(
        settings,
        "the baseline",
        {"baseline": None} if settings.seeds else {},
        evaluators,
        part(0, _BEFORE),
        should_stop,
    )
    baselines = trained.get("baseline", [])
    driver = Driver(settings, space, log, evaluators, board, part(_BEFORE, _BEFORE + _SEARCH), should_stop, times=times)
    if baselines:
        driver.baseline_s = statistics.median(one.wall_s for one in baselines)
    baseline = _baseline(space, baselines)
    margin = None if settings.tuning is None else settings.tuning.within
    for what, is_asked in (("tuning", margin), ("lower within", settings.lower_within)):
        if is_asked is not None and baseline["accuracy"] is None:
            raise SearchError(f"{what}: expected a baseline with an accuracy, found one without")
    driver.baseline_accuracy = baseline["accuracy"]
    if settings.tuning is not None:
        driver.tunings = Tunings(settings.tuning, settings.name, baseline["accuracy"], space, log, tuners)
    driver.run()
    standing, tunings = driver.standing, driver.tunings
    found = {name: best for name, share in standing.shares.items() if (best := standing.best(share)) is not None}
    earlier = standing.to_dict(times) | {"end": driver.end_reason} | _tuned(tunings)
    show("comparison")
    compared = found if standing.best_known is None else found | {"known": standing.best_known}
    finalists = {f"trial {best.number}": log.trial(best.number).operator for best in compared.values()}
    finals = train_on_seeds(
        settings,
        "the best",
        finalists if settings.seeds else {},
        evaluators,
        part(_BEFORE + _SEARCH, _AFTER),
        should_stop,
    )
    baselines = baselines_beside(settings, baselines, finals, evaluators, part(_AFTER, _AFTER), should_stop)
    if tunings is not None:
        earlier |= _tuned(tunings)
        show("tuning")
        if not tunings.finish(part(_AFTER, 1), should_stop):
            raise Stopped("stopped while trials were tuned; the finished tunings are in the store")
    result = standing.to_dict(times) | {
        "settings": settings.to_dict(),
        "end": driver.end_reason or f"{standing.total} trials are done",
        "baseline": baseline,
        "comparisons": {
            name: against(settings, baselines, finals[f"trial {best.number}"]).to_dict()
            for name, best in compared.items()
            if settings.seeds
        },
        "front": _front(log, space, driver),
        "recorded": _recorded(log, tunings, driver.known),
        "folder": str(folder),
    }
    result |= _tuned(tunings) | ({} if settings.lower_within is None else {"lowered": driver.lowered})
    for name, best in found.items():
        operator = log.trial(best.number).operator
        result["best"][name] |= {"operator": operator, "system": title_of(operator)}
    write_whole(folder / RESULT_FILE, msgspec.json.encode(result))
    earlier = standing.to_dict(times) | {"end": result["end"]} | _tuned(tunings)
    show("done")
    return result


def _baseline(space: Space, trained: list[TrialOutcome]) -> dict[str, Any]:
    accuracies = [one.accuracy for one in trained if one.accuracy is not None]
    return {
        "flops": space.baseline.flops,
        "params": space.baseline.params,
        "accuracy": sum(accuracies) / len(accuracies) if accuracies else None,
        "accuracies": accuracies,
        "wall_s": [one.wall_s for one in trained],
    }


def _front(log: SearchLog, space: Space, driver: Driver) -> list[dict[str, Any]]:
    """The front of accuracy and FLOPs."""
    return [
        {
            "number": trial.number,
            "accuracy": trial.accuracy,
            "flops_ratio": trial.flops / space.baseline.flops,
            "replaced_ratio": driver.standing.replaced_ratio(trial.flops),
            "params": trial.params,
            "known": driver.known.get(trial.operator),
            "system": title_of(trial.operator),
        }
        for trial in log.front(("accuracy", "flops"))
    ]


def _tuned(tunings: Tunings | None) -> dict[str, Any]:
    return {} if tunings is None else {"tuning": tunings.to_dict()}


def _recorded(log: SearchLog, tunings: Tunings | None, known: dict[str, str]) -> list[dict[str, Any]]:
    """Every trial in short, in the order of asking, for simulations and comparisons of searches.

    ``taken`` are the complete steps, ``steps`` their names.
    """
    taken = log.taken()
    return [
        {
            "number": trial.number,
            "steps": list(trial.steps),
            "taken": msgspec.to_builtins(taken[trial.number]),
            "state": trial.state,
            "accuracy": trial.accuracy,
            "reward": trial.reward,
            "flops": trial.flops,
            "params": trial.params,
            "known": known.get(trial.operator),
            "system": title_of(trial.operator),
            "wall_s": trial.wall_s,
            **({} if tunings is None else {"latency_ms": tunings.latency_ms(trial.number)}),
        }
        for trial in log.trials()
        if trial.reward is not None
    ]
