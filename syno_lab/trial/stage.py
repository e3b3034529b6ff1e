"""Train several operators alike: the second stage of a search, on other data or at another resolution (section 9.1).

The request selects the layers; each operator replaces those of them that it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from syno_lab.errors import SpecError, TrainingError
from syno_lab.trial.backbone import costs_of
from syno_lab.trial.compare import Comparison, compare
from syno_lab.trial.request import Plain, TrialOutcome, TrialRequest
from syno_lab.trial.run import Report, run_trial

BASELINE = "baseline"


class StageTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial of a stage: the operator's label, the request and the outcome."""

    label: str
    request: TrialRequest
    outcome: TrialOutcome


class Stage(Plain, frozen=True, kw_only=True):
    """All trials of a stage in their order, and by label the comparisons with the baseline."""

    trials: list[StageTrial]
    comparisons: dict[str, Comparison]


def run_stage(
    operators: Mapping[str, str | None],
    request: TrialRequest,
    seeds: Sequence[int] = (0,),
    *,
    folder: Path,
    against_baseline: bool = False,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Stage:
    """Train the ``request`` with each of the ``operators`` (label to JSON; None: the baseline) on each of the seeds.

    With ``against_baseline``, the baseline is trained once on each seed as well, and each operator has its
    :class:`.Comparison`; then rules for early termination do not apply. Otherwise a rule compares with the trials of
    the stage that finished before. All files are in ``folder``, from which a killed stage continues.

    Raises:
        SpecError: before any training, for an operator that fits no layer.
        SynoError: for a request that cannot be trained, and with ``against_baseline`` a trial that did not finish.
    """
    requests = {
        label: msgspec.structs.replace(request, operator=operator)
        for label, operator in operators.items()
        if not (against_baseline and operator is None)
    }
    if not requests or not seeds:
        raise TrainingError(f"expected operators and seeds to train, found {len(requests)} and {len(seeds)}")
    for label, wanted in requests.items():
        try:
            costs_of(wanted)
        except SpecError as error:
            raise SpecError(f"{label}: {error}") from None
    trials: list[StageTrial] = []
    comparisons: dict[str, Comparison] = {}
    curves: list[list[float]] = []
    for at, (label, wanted) in enumerate(requests.items()):

        def told(fraction: float, message: str, label: str = label, at: int = at) -> None:
            report((at + fraction) / len(requests), f"{label}: {message}")

        place = Path(folder) / f"{at}-{''.join(letter if letter.isalnum() else '-' for letter in label)[:40]}"
        if against_baseline:
            found = compare(
                wanted,
                seeds,
                folder=place,
                baseline_folder=Path(folder) / BASELINE,
                report=told,
                should_stop=should_stop,
            )
            if not comparisons:
                trials += _trials(BASELINE, msgspec.structs.replace(wanted, operator=None), found.baselines)
            trials += _trials(label, wanted, found.operators)
            comparisons[label] = found
            continue
        for seed in seeds:
            rivals = curves if wanted.stopping is not None else []
            one = msgspec.structs.replace(wanted, seed=seed, rivals=[*wanted.rivals, *rivals])
            outcome = run_trial(one, folder=place / str(seed), report=told, should_stop=should_stop)
            trials.append(StageTrial(label=label, request=one, outcome=outcome))
            if outcome.state == "finished":
                curves.append([row["accuracy"] for row in outcome.curve])
    return Stage(trials=trials, comparisons=comparisons)


def _trials(label: str, request: TrialRequest, outcomes: Sequence[TrialOutcome]) -> list[StageTrial]:
    return [
        StageTrial(label=label, request=msgspec.structs.replace(request, seed=outcome.seed), outcome=outcome)
        for outcome in outcomes
    ]
