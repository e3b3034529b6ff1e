"""The comparison of a search: the baseline and the best operators, trained alike on several seeds.

It trains as :func:`syno_lab.trial.compare` does, but through the search's evaluators: all trainings begin together and
survive a kill, and the baseline is trained once for all operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any

import msgspec

from syno_lab.errors import SearchError
from syno_lab.experiments.driver import LOOK_S, Report, Stopped, outcome_of
from syno_lab.experiments.evaluators import Evaluators
from syno_lab.experiments.settings import SearchSettings
from syno_lab.trial import TrialOutcome
from syno_lab.trial.compare import Comparison, compared


def train_on_seeds(
    settings: SearchSettings,
    label: str,
    operators: Mapping[str, str | None],
    evaluators: Evaluators,
    report: Report,
    should_stop: Callable[[], bool],
) -> dict[str, list[TrialOutcome]]:
    """Train each of ``operators`` (a name to its JSON, None for the baseline) on every seed of the settings.

    No rule may end a training early. Returns the outcomes by name, in the order of the seeds.

    Raises:
        SearchError: a training did not finish; the message has its reason.
        Stopped: ``should_stop`` returned True; the trainings that have ended are kept.
    """
    training = msgspec.structs.replace(settings.training, stopping=None, rivals=[], keep_predictions=True)
    wanted = [(name, seed) for name in operators for seed in settings.seeds]
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


def against(settings: SearchSettings, baselines: list[TrialOutcome], operators: list[TrialOutcome]) -> Comparison:
    """Compare the operator's trainings with the baseline's, both in the order of the seeds."""
    return compared(settings.training, list(settings.seeds), baselines, operators)


def _whole(outcome: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in outcome.items() if value is not None}
