"""The final comparison of a search: the baseline and the best operators, trained with equal settings on several seeds.

The trainings are as in :func:`syno_lab.trial.run_stage`, but use the search's runner. All trainings start together, a
killed search keeps these trainings, and the baseline is trained once for all operators. Only the finals train on all
training images and read the test images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from syno_lab.errors import SearchError, TrainingError
from syno_lab.experiments.runner import Report, Runner, Stopped, train_all
from syno_lab.experiments.settings import SearchSettings
from syno_lab.trial import TrialOutcome
from syno_lab.trial.compare import Comparison, compared
from syno_lab.trial.machine import one_machine

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
