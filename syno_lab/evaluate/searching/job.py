"""A search as a job, and as a call: the kind ``search``."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab.errors import SearchError, SynoError
from syno_lab.evaluate.searching.driver import Driver, Report, Stopped
from syno_lab.evaluate.searching.evaluators import Evaluators, JobEvaluators, LocalEvaluators
from syno_lab.evaluate.searching.finals import against, train_on_seeds
from syno_lab.evaluate.searching.settings import SearchSettings
from syno_lab.evaluate.searching.space import Space
from syno_lab.evaluate.searching.standing import SHARES, Times
from syno_lab.evaluate.searching.tunings import JobTuners, Tuners, Tunings
from syno_lab.evaluate.searching.watching import (
    RESULT_FILE,
    SETTINGS_FILE,
    STATUS_FILE,
    Board,
    read_json,
    search_folder,
)
from syno_lab.evaluate.store import SearchLog, Store
from syno_lab.evaluate.training.files import write_whole
from syno_lab.evaluate.trial import TrialOutcome

if TYPE_CHECKING:
    from syno_lab.evaluate.jobs import JobContext

#: What the parts of a search take of the progress bar.
_BEFORE, _SEARCH, _AFTER = 0.1, 0.7, 0.95
_TIMES = ("search_s", "asking_s", "store_s", "held_s")


def run(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """The search of a :class:`.SearchSettings` as a dictionary; return what :func:`run_search` does.

    Raises JobFailed, not to be tried again, for settings that make no sense and while another job does this search;
    JobStopped when it was asked to stop.
    """
    from syno_lab.evaluate.jobs import JobFailed, JobStopped

    try:
        settings = SearchSettings.from_dict(params)
        for other in context.lab.jobs(kind="search", state="running"):
            if other.id < context.id and other.params.get("name") == settings.name:
                raise JobFailed(f"job {other.id} does the search {settings.name!r} already; take another name")
        return run_search(
            settings,
            context.lab.store,
            JobEvaluators(context.lab),
            JobTuners(context.lab),
            folder=search_folder(context.root, settings.name),
            report=context.report,
            should_stop=context.should_stop,
        )
    except Stopped as error:
        raise JobStopped(str(error)) from None
    except SynoError as error:
        if isinstance(error, JobFailed):
            raise
        raise JobFailed(str(error), retry=False) from None


def run_here(
    settings: SearchSettings,
    folder: Path,
    *,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """:func:`run_search` with trainings in threads of this process, in the lab of a folder; raises as it does.

    Nothing is tuned here: tunings are jobs.
    """
    place = search_folder(folder, settings.name)
    place.mkdir(parents=True, exist_ok=True)
    with (
        Store.open(folder) as store,
        LocalEvaluators(place / "trainings", settings.workers, should_stop) as evaluators,
    ):
        return run_search(settings, store, evaluators, folder=place, report=report, should_stop=should_stop)


def run_search(
    settings: SearchSettings,
    store: Store,
    evaluators: Evaluators,
    tuners: Tuners | None = None,
    *,
    folder: Path,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Syno's Algorithm 1: extract, derive, search, evaluate, decide, keep; continued from the store if it has begun.

    The baseline is trained on the settings' seeds first, alike in everything; then the clock of the search runs; then
    the best operator within a half and within a quarter of the baseline's FLOPs is trained on the same seeds, and the
    best of the known operators where the search began with such. Where the
    settings say so, what is about as accurate as the baseline is tuned meanwhile; at the end tunings are waited for.
    ``folder`` has what is shown meanwhile (:mod:`.watching`) and, at the end, the result.

    Raises:
        SpecError: the backbone has nothing to replace, or no operator can be within the limit.
        StoreError: the store has a search of this name with other settings, or cannot be written.
        SearchError: the baseline does not train to the end, or there is something to tune and no ``tuners``.
        Stopped: when ``should_stop`` says so.
    """
    if settings.tuning is not None and tuners is None:
        raise SearchError(
            "tuning: expected a search as a job, in whose lab tunings are jobs, found one in this process"
        )
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
    if settings.tuning is not None and tuners is not None:
        if baseline["accuracy"] is None:
            raise SearchError("tuning: expected a baseline with an accuracy, found one without")
        driver.tunings = Tunings(settings.tuning, settings.name, baseline["accuracy"], space, log, tuners)
    driver.run()
    standing, tunings = driver.standing, driver.tunings
    found = {name: best for name, share in SHARES.items() if (best := standing.best(share)) is not None}
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
    if tunings is not None:
        earlier |= _tuned(tunings)
        show("tuning")
        if not tunings.finish(part(_AFTER, 1), should_stop):
            raise Stopped("stopped while trials were tuned; those that were are in the store")
    result = standing.to_dict(times) | {
        "settings": settings.to_dict(),
        "end": driver.end_reason or f"{standing.total} trials are done",
        "baseline": baseline,
        "comparisons": {
            name: against(settings, baselines, finals[f"trial {best.number}"]).to_dict()
            for name, best in compared.items()
            if settings.seeds
        },
        "front": _front(log, space, driver.known),
        "recorded": _recorded(log, tunings, driver.known),
        "folder": str(folder),
    }
    result |= _tuned(tunings)
    for name, best in found.items():
        result["best"][name]["operator"] = log.trial(best.number).operator
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


def _front(log: SearchLog, space: Space, known: dict[str, str]) -> list[dict[str, Any]]:
    """What no other trial beats in accuracy and FLOPs; ``known`` has names by operators' JSON."""
    return [
        {
            "number": trial.number,
            "accuracy": trial.accuracy,
            "flops_ratio": trial.flops / space.baseline.flops,
            "params": trial.params,
            "known": known.get(trial.operator),
        }
        for trial in log.front(("accuracy", "flops"))
    ]


def _tuned(tunings: Tunings | None) -> dict[str, Any]:
    return {} if tunings is None else {"tuning": tunings.to_dict()}


def _recorded(log: SearchLog, tunings: Tunings | None, known: dict[str, str]) -> list[dict[str, Any]]:
    """Every trial in short, in the order of asking: what simulations and comparisons of searches are made from."""
    return [
        {
            "number": trial.number,
            "steps": list(trial.steps),
            "state": trial.state,
            "accuracy": trial.accuracy,
            "reward": trial.reward,
            "flops": trial.flops,
            "params": trial.params,
            "known": known.get(trial.operator),
            "wall_s": trial.wall_s,
            **({} if tunings is None else {"latency_ms": tunings.latency_ms(trial.number)}),
        }
        for trial in log.trials()
        if trial.reward is not None
    ]
