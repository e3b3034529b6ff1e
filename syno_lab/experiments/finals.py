"""The comparison of a search: the baseline and the best operators, trained alike on several seeds.

It trains as :func:`syno_lab.trial.compare` does, but through the search's evaluators: all trainings begin together and
survive a kill, and the baseline is trained once for all operators. All training images are trained on, and this is
where the test images are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any

import msgspec

from syno_lab.errors import SearchError, TrainingError
from syno_lab.experiments.driver import LOOK_S, Report, Stopped, outcome_of
from syno_lab.experiments.evaluators import Evaluators
from syno_lab.experiments.settings import SearchSettings
from syno_lab.trial import TrialOutcome
from syno_lab.trial.compare import Comparison, compared
from syno_lab.trial.machine import one_machine

#: Seeds of finals begin here: searches and rungs train on seeds from 0 up.
FIRST_FINAL_SEED = 1000
#: The fewest seeds for the operator that a search names as its best.
LEAST_FINAL_SEEDS = 5


def final_seeds(count: int = LEAST_FINAL_SEEDS, used: Iterable[int] = ()) -> tuple[int, ...]:
    """``count`` seeds for finals that a search did not use: what was chosen by a seed is flattered by it."""
    taken = set(used)
    free = (seed for seed in range(FIRST_FINAL_SEED, FIRST_FINAL_SEED + count + len(taken)) if seed not in taken)
    return tuple(free)[:count]


def train_on_seeds(
    settings: SearchSettings,
    label: str,
    operators: Mapping[str, str | None],
    evaluators: Evaluators,
    report: Report,
    should_stop: Callable[[], bool],
    *,
    seeds: Sequence[int] | None = None,
) -> dict[str, list[TrialOutcome]]:
    """Train each of ``operators`` (a name to its JSON, None for the baseline) on every seed, by default the settings'.

    No rule may end a training early, nothing is held out, and the outcomes are measured on the test images. Returns the
    outcomes by name, in the order of the seeds.

    Raises:
        SearchError: a training did not finish; the message has its reason.
        Stopped: ``should_stop`` returned True; the trainings that have ended are kept.
    """
    training = msgspec.structs.replace(settings.training, stopping=None, rivals=[], keep_predictions=True, holdout=None)
    wanted = [(name, seed) for name in operators for seed in (settings.seeds if seeds is None else seeds)]
    running = {}
    for name, seed in wanted:
        request = msgspec.structs.replace(training, operator=operators[name], seed=seed)
        job = f"{settings.name}: {name}, seed {seed}"
        running[name, seed] = evaluators.find(job) or evaluators.submit(job, request)
    futures = {one.future for one in running.values()}
    while futures:
        if should_stop():
            raise Stopped(f"stopped while {label} was trained")
        done = len(running) - len(futures)
        report(done / len(running), f"{label}: {done} of {len(running)} trainings")
        futures = wait(futures, timeout=LOOK_S, return_when=FIRST_COMPLETED).not_done
    found: dict[str, list[TrialOutcome]] = {}
    for name, seed in wanted:
        outcome = TrialOutcome.from_dict(_whole(outcome_of(running[name, seed])))
        if outcome.state == "interrupted" and should_stop():
            raise Stopped(f"stopped while {label} was trained")
        if outcome.state != "finished":
            raise SearchError(
                f"expected {name} with seed {seed} to be trained to the end, found {outcome.state}: {outcome.reason}"
            )
        found.setdefault(name, []).append(outcome)
    return found


def baselines_beside(
    settings: SearchSettings,
    baselines: list[TrialOutcome],
    operators: Mapping[str, list[TrialOutcome]],
    evaluators: Evaluators,
    report: Report,
    should_stop: Callable[[], bool],
    *,
    seeds: Sequence[int] | None = None,
) -> list[TrialOutcome]:
    """The baseline's trainings on the machine of the ``operators``': ``baselines``, or new ones where that is another.

    A search that is continued on another machine has a baseline from the first one; their numbers are not compared.
    Raises SearchError where the operators' trainings are on several machines, and as :func:`train_on_seeds`.
    """
    try:
        here = one_machine(outcome.machine for trained in operators.values() for outcome in trained)
        one_machine([here, *(outcome.machine for outcome in baselines)])
    except TrainingError as error:
        if len({outcome.machine for trained in operators.values() for outcome in trained} - {""}) > 1:
            raise SearchError(str(error)) from None
        name = f"baseline on {here}"
        report(0.0, f"the baseline was trained on another machine, so it is trained again on {here}")
        return train_on_seeds(
            settings, "the baseline again", {name: None}, evaluators, report, should_stop, seeds=seeds
        )[name]
    return baselines


def against(
    settings: SearchSettings,
    baselines: list[TrialOutcome],
    operators: list[TrialOutcome],
    *,
    seeds: Sequence[int] | None = None,
) -> Comparison:
    """Compare the operator's trainings with the baseline's, both in the order of the seeds (by default the settings').

    Raises TrainingError for trainings on two machines, see :func:`baselines_beside`.
    """
    training = msgspec.structs.replace(settings.training, holdout=None)
    return compared(training, list(settings.seeds if seeds is None else seeds), baselines, operators)


def _whole(outcome: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in outcome.items() if value is not None}
