"""Run a search in rungs, and say what it found."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from syno_lab.errors import TrainingError
from syno_lab.experiments.driver import Report
from syno_lab.experiments.finals import against
from syno_lab.experiments.funnel import Funnel
from syno_lab.experiments.plan import FINALISTS, as_begun
from syno_lab.experiments.rung_driver import RungDriver
from syno_lab.experiments.rung_worker import Workers
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.space import Space
from syno_lab.experiments.validate_proxy import usable_probe, usable_rungs, validations_in
from syno_lab.experiments.watching import RESULT_FILE, SETTINGS_FILE, STATUS_FILE, Board, read_json
from syno_lab.models.rungs import Rung
from syno_lab.reports.why import write_pages
from syno_lab.store import SearchLog, Store
from syno_lab.store.rungs import BASELINE, FINAL, TIMING, RungTraining
from syno_lab.systems import title_of
from syno_lab.training.files import write_whole
from syno_lab.trial import TrialOutcome
from syno_lab.trial.compare import Comparison
from syno_lab.trial.rungs import rungs_of
from syno_lab.trial.verdicts import Verdict

#: Shares of the replaced layers' FLOPs within which a best operator is looked for, by the names in results.
SHARES = {"0.4": 0.4, "0.25": 0.25}
assert len(SHARES) == FINALISTS


def run_in_rungs(
    settings: SearchSettings,
    store: Store,
    workers: Callable[[SearchLog], Workers],
    *,
    folder: Path,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Do the search of ``settings``, whose minutes bound all of it, or continue it from the store.

    ``workers`` makes the workers for the search's records. ``folder`` gets the files that views read
    (:mod:`.watching`) and, at the end, the result. The result's ``verdict`` is the text of a :class:`.Verdict`: that on
    the best discovered operator within the largest share; ``not_compared`` has reasons, where finals could not be
    compared (they ran on two machines).

    Raises:
        SpecError: the backbone has no proxies or nothing to replace, or no operator can be within the limit.
        StoreError: the store has a search of this name with other settings, or cannot be written.
        SearchError: the minutes are too few, or the baseline does not train to the end.
        Stopped: ``should_stop`` returned True.
    """
    space = Space(settings)
    log = store.search(settings.name, settings.identity)
    board = Board(folder)
    write_whole(folder / SETTINGS_FILE, msgspec.json.encode(settings))
    earlier = read_json(folder / STATUS_FILE) or {}
    rungs, uses_probe = _evidence(settings, folder, earlier, report)
    begun_cpu = time.process_time()
    with workers(log) as running:
        driver = RungDriver(
            settings,
            space,
            log,
            rungs,
            running,
            board,
            tuple(SHARES.values()),
            report,
            should_stop,
            clock,
            sleep=sleep,
            uses_probe=uses_probe,
            elapsed_s=float(earlier.get("search_s") or 0.0),
            funnel=Funnel.begun(earlier.get("funnel")),
        )
        driver.run()
    result = _result(settings, space, log, driver, time.process_time() - begun_cpu) | {"folder": str(folder)}
    write_whole(folder / RESULT_FILE, msgspec.json.encode(result))
    write_pages(store.path.parent, [f"{settings.name}#{number}" for number in driver.finalists()], folder)
    status = read_json(folder / STATUS_FILE) or {}
    board.show({**status, "phase": "done", "end": result["end"], "verdict": result["verdict"]})
    return result


def _evidence(
    settings: SearchSettings, folder: Path, earlier: Mapping[str, Any], report: Report
) -> tuple[tuple[Rung, ...], bool]:
    """The rungs that may be used, by the lab's validations, and whether the probe may.

    A search that is continued keeps those of its plan.
    """
    if earlier.get("plan"):
        return as_begun(rungs_of(settings.training), earlier), bool(earlier["uses_probe"])
    found = validations_in(folder.parent.parent)
    rungs, lines = usable_rungs(settings.training, found, settings.system)
    uses_probe, more = usable_probe(settings.training, found, settings.system)
    for line in lines + more:
        report(0.0, line)
    return rungs, uses_probe


def _result(
    settings: SearchSettings, space: Space, log: SearchLog, driver: RungDriver, process_s: float
) -> dict[str, Any]:
    trials = {trial.number: trial for trial in log.trials()}
    trainings = log.rungs.trainings()
    baselines = _finals(trainings, BASELINE)
    scores = driver.scores(driver.rungs[-1])
    measures = {rung.name: driver.measures(rung) for rung in driver.rungs}
    best: dict[str, Any] = dict.fromkeys(SHARES)
    finalists: dict[str, int] = {}
    for name, share in SHARES.items():
        found = driver.best_within(share)
        if found is not None:
            finalists[name] = found.number
            best[name] = {
                "number": found.number,
                "accuracy": measures[driver.rungs[-1].name][found.number],
                "flops_ratio": trials[found.number].flops / space.baseline.flops,
                "replaced_ratio": found.ratio,
                "params": trials[found.number].params,
                "operator": trials[found.number].operator,
            }
    known = driver.best_known()
    if known is not None:
        finalists["known"] = known.number
    comparisons: dict[str, Comparison] = {}
    not_compared = {}
    for name, number in finalists.items():
        finals = _finals(trainings, number)
        if baselines and finals:
            try:
                comparisons[name] = against(settings, baselines, finals)
            except TrainingError as error:
                not_compared[name] = str(error)
    accuracies = [one.accuracy for one in baselines if one.accuracy is not None]
    return {
        "settings": settings.to_dict(),
        "trials": len(trials),
        "states": dict(Counter(trial.state for trial in trials.values())),
        "trials_per_hour": 3600 * len(trials) / driver.search_s,
        "end": driver.end_reason or "its minutes are used",
        "plan": driver.plan.to_dict(),
        "uses_probe": driver.uses_probe,
        "funnel": driver.funnel.to_dict(),
        "time": times(settings, driver, trainings, process_s),
        "baseline": {
            "flops": space.baseline.flops,
            "params": space.baseline.params,
            "accuracy": sum(accuracies) / len(accuracies) if accuracies else None,
            "accuracies": accuracies,
            "wall_s": [one.wall_s for one in baselines],
        },
        "best": best,
        "finalists": finalists,
        "comparisons": {name: one.to_dict() for name, one in comparisons.items()},
        "not_compared": not_compared,
        "verdict": str(verdict(best, comparisons)),
        "front": [
            {
                "number": one.number,
                "accuracy": measures[driver.rungs[-1].name][one.number],
                "flops_ratio": trials[one.number].flops / space.baseline.flops,
                "replaced_ratio": one.ratio,
                "params": trials[one.number].params,
                "known": driver.known.get(trials[one.number].operator),
                "system": title_of(trials[one.number].operator),
            }
            for one in scores
        ],
        "recorded": _recorded(log, driver, measures, space),
    }


def verdict(best: Mapping[str, Any], comparisons: Mapping[str, Comparison]) -> Verdict:
    """What the search may claim of the best operator that it discovered within the largest share that has one."""
    if not any(best.values()):
        return Verdict.none_found
    found = next((comparisons[name].verdict for name in best if name in comparisons), None)
    return Verdict.untrained if found is None else Verdict(found)


def times(
    settings: SearchSettings, driver: RungDriver, trainings: Sequence[RungTraining], process_s: float
) -> dict[str, Any]:
    """Where the time of all workers went, as shares of ``workers`` x wall time.

    ``rest`` is what is left for the store, the jobs, the estimate and idle workers. ``idle`` is the share of wall time
    in which workers trained nothing, whatever else the machine did.
    """
    total = settings.workers * driver.search_s
    spent: defaultdict[str, float] = defaultdict(float)
    for one in trainings:
        name = "baseline" if one.number == BASELINE else one.rung
        spent["timing" if one.rung == TIMING else name] += float(one.outcome.get("cpu_s") or 0.0)
    spent["draws"] = driver.funnel.draws.seconds
    shares = {name: seconds / total for name, seconds in spent.items()}
    return {
        "wall_s": driver.search_s,
        "cpu_s": dict(spent),
        "search_process_s": process_s,
        "idle": 1 - sum(float(one.outcome.get("wall_s") or 0.0) for one in trainings) / total,
        "shares": shares | {"rest": 1 - sum(shares.values())},
    }


def _finals(trainings: Sequence[RungTraining], number: int) -> list[TrialOutcome]:
    """The finals of a trial that finished, in the order of their seeds."""
    mine = sorted((one for one in trainings if one.rung == FINAL and one.number == number), key=lambda one: one.seed)
    found = [
        TrialOutcome.from_dict({key: value for key, value in one.outcome.items() if value is not None}) for one in mine
    ]
    return found if all(one.state == "finished" for one in found) else []


def _recorded(
    log: SearchLog, driver: RungDriver, measures: Mapping[str, Mapping[int, float]], space: Space
) -> list[dict[str, Any]]:
    """Every trial in short, in the order of asking, with its measure on each rung that it passed."""
    taken = log.taken()
    return [
        {
            "number": trial.number,
            "steps": list(trial.steps),
            "taken": msgspec.to_builtins(taken[trial.number]),
            "state": trial.state,
            "reward": trial.reward,
            "flops": trial.flops,
            "params": trial.params,
            "replaced_ratio": space.replaced_share(trial.flops),
            "known": driver.known.get(trial.operator),
            "system": title_of(trial.operator),
            "rungs": {name: found[trial.number] for name, found in measures.items() if trial.number in found},
        }
        for trial in log.trials()
        if trial.reward is not None
    ]
