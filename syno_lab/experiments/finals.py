"""The final comparison of a search: the baseline and the best operators, trained with equal settings on several seeds.

The trainings are as in :func:`syno_lab.trial.run_stage`, but use the search's runner. All trainings start together. If
the search is killed, its next process uses the trainings that have ended. The baseline is trained once for all
operators. Only the finals train on all training images and read the test images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from syno_lab.blame import said_by
from syno_lab.errors import SearchError, SynoError, TrainingError
from syno_lab.experiments.loop import Begun
from syno_lab.experiments.runner import Report, Runner, Stopped, train_all
from syno_lab.experiments.settings import SearchSettings
from syno_lab.reports.searched import Searched
from syno_lab.store.latencies import Times
from syno_lab.store.rungs import BASELINE
from syno_lab.trial import TrialOutcome, TrialRequest
from syno_lab.trial.compare import Comparison, compared
from syno_lab.trial.machine import one_machine
from syno_lab.trial.meter import times_in_turns

#: The first seed of finals. Trainings before the finals use seeds from 0 on.
FIRST_FINAL_SEED = 1000
#: The fewest seeds for the operator that a search names as its best.
LEAST_FINAL_SEEDS = 5


def final_seeds(count: int = LEAST_FINAL_SEEDS) -> tuple[int, ...]:
    """Return ``count`` new seeds for finals, because a search prefers operators that were lucky on its own seeds."""
    return tuple(range(FIRST_FINAL_SEED, FIRST_FINAL_SEED + count))


def train_on_seeds(
    settings: SearchSettings,
    label: str,
    operators: Mapping[str, str | None],
    runner: Runner,
    report: Report,
    should_stop: Callable[[], bool],
) -> dict[str, list[TrialOutcome]]:
    """Train each of ``operators`` (name to JSON; None: the baseline) on every seed of the settings.

    No rule may end a training early, no images are held out, and the outcomes are measured on the test images. Returns
    the outcomes by name, in the order of the seeds.

    Raises:
        SearchError: a training did not finish; the message has its reason.
        Stopped: ``should_stop`` returned True; the ended trainings are stored.
    """
    training = msgspec.structs.replace(settings.training, stopping=None, rivals=[], keep_predictions=True, holdout=None)
    requests = {
        (name, seed): (
            f"{settings.name}: {name}, seed {seed}",
            msgspec.structs.replace(training, operator=operators[name], seed=seed),
        )
        for name in operators
        for seed in settings.seeds
    }

    def report_count(done: int, total: int) -> None:
        report(done / total, f"{label}: {done} of {total} trainings")

    stopped = f"stopped while {label} was trained"
    outcomes: dict[str, list[TrialOutcome]] = {}
    for (name, seed), outcome in train_all(runner, requests, report_count, should_stop, stopped).items():
        if outcome.state == "interrupted" and should_stop():
            raise Stopped(stopped)
        if outcome.state != "finished":
            raise SearchError(
                f"expected {name} with seed {seed} to be trained to the end, found {outcome.state}: {outcome.reason}"
            )
        outcomes.setdefault(name, []).append(outcome)
    return outcomes


def baselines_beside(
    settings: SearchSettings,
    baselines: list[TrialOutcome],
    operators: Mapping[str, list[TrialOutcome]],
    runner: Runner,
    report: Report,
    should_stop: Callable[[], bool],
) -> list[TrialOutcome]:
    """Return the baseline's trainings on the operators' machine; after a change of machine, train the baseline again.

    A search that continues on another machine has a baseline of the first machine, and different machines are never
    compared. Raises SearchError where the operators' trainings are on several machines, and as :func:`train_on_seeds`.
    """
    try:
        here = one_machine(outcome.machine for trained in operators.values() for outcome in trained)
        one_machine([here, *(outcome.machine for outcome in baselines)])
    except TrainingError as error:
        if len({outcome.machine for trained in operators.values() for outcome in trained} - {""}) > 1:
            raise SearchError(str(error)) from None
        name = f"baseline on {here}"
        report(0.0, f"the baseline was trained on another machine, so it is trained again on {here}")
        return train_on_seeds(settings, "the baseline again", {name: None}, runner, report, should_stop)[name]
    return baselines


def against(settings: SearchSettings, baselines: list[TrialOutcome], operators: list[TrialOutcome]) -> Comparison:
    """Compare the operator's trainings with the baseline's trainings, both in the order of the settings' seeds.

    Raises TrainingError for trainings on two machines, see :func:`baselines_beside`.
    """
    training = msgspec.structs.replace(settings.training, holdout=None)
    return compared(training, list(settings.seeds), baselines, operators, within=settings.equal_within)


def timed(
    search: Begun, found: Searched, finalists: Mapping[str, int], rivals: Mapping[str, TrialRequest], limit_s: float
) -> Searched:
    """Return the result ``found`` with the times of the compared networks and the baseline; store those of the trials.

    The times are measured in turns, for about ``limit_s`` wall seconds, unless an earlier result has them. If a network
    fails here, for example for lack of memory, ``not_compared`` has the reason. ``finalists`` has the trials of the
    comparisons.
    """
    plain = msgspec.structs.replace(search.settings.training, operator=None)
    wanted: dict[int | str, TrialRequest] = {BASELINE: plain} | {title: rivals[title] for title in found.rivals}
    for number in (finalists[name] for name in found.comparisons):
        wanted[number] = msgspec.structs.replace(plain, operator=search.log.trial(number).operator)
    before = search.ended
    times: dict[int | str, Times] = {BASELINE: before.baseline.times or {}}
    times |= {number: one.times for number, one in before.finals.items()}
    times |= {title: one.times for title, one in before.rivals.items()}
    if not found.comparisons:
        return found
    try:
        if not all(map(times.get, wanted)):
            times = times_in_turns(wanted, limit_s)
            for number in {*map(finalists.__getitem__, found.comparisons)}:
                for target, value in times[number].items():
                    search.log.record_latency(number, target, {"latency_ms": value})
    except (SynoError, RuntimeError, ValueError) as error:
        return msgspec.structs.replace(found, not_compared=found.not_compared | {"the time": said_by(error)})

    def clocked(one: Comparison, key: int | str) -> Comparison:
        return msgspec.structs.replace(one, times=times[key], baseline_times=times[BASELINE])

    return msgspec.structs.replace(
        found,
        baseline=msgspec.structs.replace(found.baseline, times=times[BASELINE]),
        comparisons={name: clocked(one, finalists[name]) for name, one in found.comparisons.items()},
        rivals={title: clocked(one, title) for title, one in found.rivals.items()},
    )
