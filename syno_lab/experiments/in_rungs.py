"""Run a search in rungs, and say what it found."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from syno_lab.errors import TrainingError
from syno_lab.experiments.finals import against
from syno_lab.experiments.loop import Begun
from syno_lab.experiments.plan import FINALISTS, Funnel, as_begun
from syno_lab.experiments.rung_driver import RungDriver, Score
from syno_lab.experiments.rung_worker import Workers
from syno_lab.experiments.runner import Report
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.validate_proxy import usable_probe, usable_rungs, validations_in
from syno_lab.models.rungs import Rung
from syno_lab.reports.searched import IN_RUNGS, NOT_SAID, RUNGS_STATUS, Point, Recorded, Searched, Taken
from syno_lab.reports.why import write_pages
from syno_lab.store import SearchLog, SearchTrial, Store
from syno_lab.store.outcomes import Comparison
from syno_lab.store.rungs import BASELINE, FINAL, TIMING, RungTraining
from syno_lab.trial import TrialOutcome
from syno_lab.trial.compare import Verdict
from syno_lab.trial.rungs import rungs_of
from syno_lab.versioned import JSON

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
) -> dict[str, JSON]:
    """Do the search of ``settings``, whose minutes bound all of it, or continue it from the store.

    ``workers`` makes the workers for the search's records. ``folder`` gets the files that views read
    (:mod:`.watching`) and, at the end, the result. The result's ``verdict`` is the text of a :class:`.Verdict`: that on
    the best discovered operator within the largest share; ``not_compared`` has reasons, where finals could not be
    compared (they ran on two machines).

    Raises:
        SpecError, StoreError: as :meth:`.Begun.of`; SpecError where the backbone has no proxies, too.
        SearchError: the minutes are too few, or the baseline does not train to the end.
        Stopped: ``should_stop`` returned True.
    """
    begun = Begun.of(settings, store, folder)
    earlier = begun.earlier
    rungs, uses_probe = _evidence(settings, folder, earlier, report)
    begun_cpu = time.process_time()
    with workers(begun.log) as running:
        driver = RungDriver(
            settings,
            begun.space,
            begun.log,
            rungs,
            running,
            begun.board,
            tuple(SHARES.values()),
            report=report,
            should_stop=should_stop,
            clock=clock,
            sleep=sleep,
            uses_probe=uses_probe,
            elapsed_s=earlier.search_s,
            funnel=Funnel.after(earlier.funnel),
        )
        driver.run()
    result = _result(begun, driver, time.process_time() - begun_cpu)
    plain = begun.end(result, IN_RUNGS)
    write_pages(store.path.parent, [f"{settings.name}#{number}" for number in driver.finalists()], folder)
    status = msgspec.structs.replace(driver.status(), phase="done", end=result.end, verdict=result.verdict)
    begun.board.show(status, RUNGS_STATUS)
    return plain


def _evidence(
    settings: SearchSettings, folder: Path, earlier: Searched, report: Report
) -> tuple[tuple[Rung, ...], bool]:
    """The rungs that may be used, by the lab's validations, and whether the probe may.

    A search that is continued keeps those of its plan.
    """
    if earlier.plan is not None:
        return as_begun(rungs_of(settings.training), earlier.plan), earlier.uses_probe
    found = validations_in(folder.parent.parent)
    rungs, lines = usable_rungs(settings.training, found, settings.system)
    uses_probe, more = usable_probe(settings.training, found, settings.system)
    for line in lines + more:
        report(0.0, line)
    return rungs, uses_probe


def _result(begun: Begun, driver: RungDriver, process_s: float) -> Searched:
    settings, space, log = begun.settings, begun.space, begun.log
    trials = {trial.number: trial for trial in log.trials()}
    trainings = log.rungs.trainings()
    baselines = _finals(trainings, BASELINE)
    measures = {rung.name: driver.measures(rung) for rung in driver.rungs}
    whole = measures[driver.rungs[-1].name]
    found = {name: driver.best_within(share) for name, share in SHARES.items()}
    finalists = {name: one.number for name, one in (found | {"known": driver.best_known()}).items() if one is not None}
    comparisons: dict[str, Comparison] = {}
    not_compared = {}
    for name, number in finalists.items():
        finals = _finals(trainings, number)
        if baselines and finals:
            try:
                comparisons[name] = against(settings, baselines, finals)
            except TrainingError as error:
                not_compared[name] = str(error)

    def point(one: Score) -> Point:
        trial = trials[one.number]
        return begun.point(trial, whole[one.number], one.ratio, driver.known.get(trial.operator))

    def finalist(one: Score | None) -> Point | None:
        if one is None:
            return None
        operator = trials[one.number].operator
        return msgspec.structs.replace(point(one), known=NOT_SAID, system=NOT_SAID, operator=operator)

    def passed(one: Recorded, trial: SearchTrial) -> Recorded:
        measured = {name: values[trial.number] for name, values in measures.items() if trial.number in values}
        return msgspec.structs.replace(one, replaced_ratio=space.replaced_share(trial.flops), rungs=measured)

    best = {name: finalist(one) for name, one in found.items()}
    return Searched(
        settings=begun.said_settings,
        trials=len(trials),
        states=dict(Counter(trial.state for trial in trials.values())),
        trials_per_hour=3600 * len(trials) / driver.search_s,
        end=driver.end_reason or "its minutes are used",
        plan=driver.plan,
        uses_probe=driver.uses_probe,
        funnel=driver.funnel,
        time=times(settings, driver, trainings, process_s),
        baseline=begun.baseline(baselines),
        best=best,
        finalists=finalists,
        comparisons=comparisons,
        not_compared=not_compared,
        verdict=str(verdict(best, comparisons)),
        front=tuple(map(point, driver.scores(driver.rungs[-1]))),
        recorded=begun.recorded(driver.known, passed),
    )


def verdict(best: Mapping[str, Point | None], comparisons: Mapping[str, Comparison]) -> Verdict:
    """What the search may claim of the best operator that it discovered within the largest share that has one."""
    if not any(best.values()):
        return Verdict.none_found
    found = next((comparisons[name].verdict for name in best if name in comparisons), None)
    return Verdict.untrained if found is None else Verdict(found)


def times(settings: SearchSettings, driver: RungDriver, trainings: Sequence[RungTraining], process_s: float) -> Taken:
    """Where the time of all workers went."""
    total = settings.workers * driver.search_s
    spent: defaultdict[str, float] = defaultdict(float)
    for one in trainings:
        name = "baseline" if one.number == BASELINE else one.rung
        spent["timing" if one.rung == TIMING else name] += one.spent("cpu_s")
    spent["draws"] = driver.funnel.draws["seconds"]
    shares = {name: seconds / total for name, seconds in spent.items()}
    return Taken(
        wall_s=driver.search_s,
        cpu_s=dict(spent),
        search_process_s=process_s,
        idle=1 - sum(one.spent("wall_s") for one in trainings) / total,
        shares=shares | {"rest": 1 - sum(shares.values())},
    )


def _finals(trainings: Sequence[RungTraining], number: int) -> list[TrialOutcome]:
    """The finals of a trial that finished, in the order of their seeds."""
    mine = sorted((one for one in trainings if one.rung == FINAL and one.number == number), key=lambda one: one.seed)
    found = [TrialOutcome.from_dict(one.outcome) for one in mine]
    return found if all(one.state == "finished" for one in found) else []
