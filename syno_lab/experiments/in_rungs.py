"""Runs a search in rungs and returns its result."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from syno_lab.errors import TrainingError
from syno_lab.experiments.finals import against, timed
from syno_lab.experiments.loop import Begun
from syno_lab.experiments.plan import FINALISTS, Funnel, as_begun
from syno_lab.experiments.rung_driver import RungDriver
from syno_lab.experiments.rung_worker import Workers
from syno_lab.experiments.runner import Report
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.survivors import Score
from syno_lab.experiments.validate_proxy import usable_probe, usable_rungs, validations_in
from syno_lab.experiments.watching import search_folder
from syno_lab.models.rungs import Rung
from syno_lab.reports.case_study import write_case_study
from syno_lab.reports.searched import IN_RUNGS, NOT_SAID, RUNGS_STATUS, Point, Recorded, Searched, Taken
from syno_lab.reports.why import write_pages
from syno_lab.store import SearchLog, SearchTrial, Store
from syno_lab.store.outcomes import Comparison
from syno_lab.store.rungs import BASELINE, FINAL, RIVALS, TIMES, TIMING, RungTraining
from syno_lab.store.verdicts import Verdict, sentence
from syno_lab.trial import TrialOutcome, TrialRequest
from syno_lab.trial.rungs import rungs_of
from syno_lab.versioned import JSON

#: Shares of the replaced layers' FLOPs, by their names in results; the best operator within each is chosen.
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
    """Run the search of ``settings``, or continue it from the store; its minutes bound the whole search.

    ``workers`` is a function that returns the search's workers for its records in the store. ``folder`` gets the files
    for views (:mod:`.watching`) and, at the end, the result. The result's ``verdict`` is the sentence
    (:mod:`.verdicts`) on the best discovered operator within the largest share of FLOPs. ``not_compared`` has the
    reason for each finalist that could not be compared, because its finals ran on two machines.

    Raises:
        SpecError, StoreError: as :meth:`.Begun.of`; SpecError also where the backbone has no proxies.
        SearchError: the minutes are too few, or the baseline's training does not finish.
        Stopped: ``should_stop`` returned True.
    """
    search = Begun.of(settings, store, folder)
    earlier = search.earlier
    rungs, uses_probe = _evidence(settings, folder, earlier, report)
    begun_cpu = time.process_time()
    with workers(search.log) as running:
        driver = RungDriver(
            settings,
            search.space,
            search.log,
            rungs,
            running,
            search.board,
            tuple(SHARES.values()),
            report=report,
            should_stop=should_stop,
            clock=clock,
            sleep=sleep,
            uses_probe=uses_probe,
            elapsed_s=earlier.search_s,
            begun_at=len(search.log.rungs.trainings()) if earlier.phase == "done" else earlier.begun_at,
            funnel=Funnel.after(earlier.funnel),
        )
        driver.run()
    result = _result(search, driver, time.process_time() - begun_cpu)
    plain = search.end(result, IN_RUNGS)
    write_pages(store.path.parent, [f"{settings.name}#{number}" for number in driver.finalists()], folder)
    if folder == search_folder(store.path.parent, settings.name):
        write_case_study(store.path.parent, settings.name)
    status = msgspec.structs.replace(driver.status(), phase="done", end=result.end, verdict=result.verdict)
    search.board.show(status, RUNGS_STATUS)
    return plain


def _evidence(
    settings: SearchSettings, folder: Path, earlier: Searched, report: Report
) -> tuple[tuple[Rung, ...], bool]:
    """Return the rungs that the lab's validations allow, and whether they allow the probe.

    A continued search keeps the rungs of its plan, and uses the probe if it used the probe before.
    """
    if earlier.plan is not None:
        return as_begun(rungs_of(settings.training), earlier.plan), earlier.uses_probe
    validations = validations_in(folder.parent.parent)
    rungs, lines = usable_rungs(settings.training, validations, settings.system)
    uses_probe, more = usable_probe(settings.training, validations, settings.system)
    for line in lines + more:
        report(0.0, line)
    return rungs, uses_probe


def _result(search: Begun, driver: RungDriver, process_s: float) -> Searched:
    settings, space, log = search.settings, search.space, search.log
    trials = {trial.number: trial for trial in log.trials()}
    trainings = log.rungs.trainings()
    baselines = _finals(trainings, BASELINE)
    measures = {rung.name: driver.measures(rung) for rung in driver.rungs}
    on_network = measures[driver.rungs[-1].name]
    tops = {name: driver.best_within(share) for name, share in SHARES.items()}
    finalists = {name: top.number for name, top in (tops | {"known": driver.best_known()}).items() if top is not None}
    comparisons: dict[str, Comparison] = {}
    not_compared = {}
    rivals: dict[str, Comparison] = {}

    def compare(name: str, trained: Sequence[TrialOutcome], into: dict[str, Comparison]) -> None:
        pairs = [(first, second) for first in baselines for second in trained if first.seed == second.seed]
        if pairs:
            paired = msgspec.structs.replace(settings, seeds=tuple([first.seed for first, _ in pairs]))
            try:
                into[name] = against(paired, [first for first, _ in pairs], [second for _, second in pairs])
            except TrainingError as error:
                not_compared[name] = str(error)

    for name, number in finalists.items():
        compare(name, _finals(trainings, number), comparisons)
    requests: dict[str, TrialRequest] = {}
    for name, (number, title, rival) in driver.rivals.items():
        compare(title, _finals(trainings, number, f"{RIVALS}: {name}"), rivals)
        if isinstance(rival, str):
            not_compared[title] = rival
        elif title in rivals:
            requests[title] = rival
        else:
            reasons = [row.reason for row in trainings if (row.number, row.rung) == (number, f"{RIVALS}: {name}")]
            not_compared.setdefault(title, "".join(reasons) or "a fifth of the minutes is too short for its training")

    def point(score: Score) -> Point:
        trial = trials[score.number]
        return search.point(trial, on_network[score.number], score.ratio, driver.known.get(trial.operator))

    def finalist(score: Score | None) -> Point | None:
        if score is None:
            return None
        operator = trials[score.number].operator
        return msgspec.structs.replace(point(score), known=NOT_SAID, system=NOT_SAID, operator=operator)

    def passed(record: Recorded, trial: SearchTrial) -> Recorded:
        measured = {name: values[trial.number] for name, values in measures.items() if trial.number in values}
        return msgspec.structs.replace(record, replaced_ratio=space.replaced_share(trial.flops), rungs=measured)

    best = {name: finalist(score) for name, score in tops.items()}
    found = Searched(
        settings=search.said_settings,
        trials=len(trials),
        states=dict(Counter(trial.state for trial in trials.values())),
        trials_per_hour=3600 * len(trials) / driver.search_s,
        end=driver.end_reason or "its minutes are used",
        plan=driver.plan,
        uses_probe=driver.uses_probe,
        evidence=driver.evidence,
        funnel=driver.funnel,
        time=times(settings, driver, trainings, process_s),
        baseline=search.baseline(baselines),
        best=best,
        finalists=finalists,
        comparisons=comparisons,
        not_compared=not_compared,
        rivals=rivals,
        front=tuple(map(point, driver.scores(driver.rungs[-1]))),
        recorded=search.recorded(driver.known, passed),
    )
    found = timed(search, found, finalists, requests, driver.plan.part(TIMES).seconds / settings.workers)
    return msgspec.structs.replace(found, verdict=verdict(best, found.comparisons, found.rivals))


def verdict(
    best: Mapping[str, Point | None], comparisons: Mapping[str, Comparison], rivals: Mapping[str, Comparison]
) -> str:
    """Return the verdict on the best discovered operator, within the largest share of FLOPs that has an operator."""
    if not any(best.values()):
        return str(Verdict.none_found)
    first = next(point for point in best.values() if point is not None)
    line = f"{Verdict.untrained}: trial {first.number} led on the last rung, but was not compared with the baseline"
    line = next((sentence(comparisons[name]) for name in best if name in comparisons), line)
    words = [f"{title} {one.texts[0]}" for title, one in rivals.items()]
    return f"{line}; rivals on one seed: {', '.join(words)}" if words else line


def times(settings: SearchSettings, driver: RungDriver, trainings: Sequence[RungTraining], process_s: float) -> Taken:
    """Return the time of all workers by purpose."""
    total = settings.workers * driver.search_s
    spent: defaultdict[str, float] = defaultdict(float)
    for training in trainings:
        name = "baseline" if training.number == BASELINE else training.part
        spent["timing" if training.rung == TIMING else name] += training.spent("cpu_s")
    spent["draws"] = driver.funnel.draws["seconds"]
    shares = {name: seconds / total for name, seconds in spent.items()}
    return Taken(
        wall_s=driver.search_s,
        cpu_s=dict(spent),
        search_process_s=process_s,
        idle=1 - sum(item.spent("wall_s") for item in trainings) / total,
        shares=shares | {"rest": 1 - sum(shares.values())},
    )


def _finals(trainings: Sequence[RungTraining], number: int, rung: str = FINAL) -> list[TrialOutcome]:
    """Return the final trainings of a trial that have finished, in the order of their seeds."""
    rows = sorted((row for row in trainings if row.rung == rung and row.number == number), key=lambda row: row.seed)
    return [TrialOutcome.from_dict(row.outcome) for row in rows if row.state == "finished"]
