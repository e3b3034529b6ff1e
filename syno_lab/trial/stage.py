"""Train several operators alike: the second stage of a search, on other data or at another resolution (section 9.1).

The request selects the layers. Each operator replaces the selected layers that it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from syno_lab.errors import SpecError, TrainingError
from syno_lab.trial.backbone import costs_of
from syno_lab.trial.compare import Comparison, compared
from syno_lab.trial.request import Plain, TrialOutcome, TrialRequest
from syno_lab.trial.run import Report, run_trial

BASELINE = "baseline"


class StageTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial of a stage: the operator's label, the request and the outcome."""

    label: str
    request: TrialRequest
    outcome: TrialOutcome


class Stage(Plain, frozen=True, kw_only=True):
    """All trials of a stage in order, and the comparison of each operator with the baseline, by label."""

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

    With ``against_baseline``, the baseline is trained on each seed too, and each operator has its :class:`.Comparison`:
    only the operator differs between the two trials, and no rule may end a training early. Without
    ``against_baseline``, a stopping rule compares a trial with earlier finished trials. Every trial has its own
    subfolder of ``folder``, from which a killed stage continues.

    Raises:
        SpecError: before any training, for an operator that fits no layer.
        TrainingError: without operators or seeds, for a repeated seed, and with ``against_baseline`` for an unfinished
            trial (with the reason of the trial).
        SynoError: for a request that cannot be trained.
    """
    chosen = {label: text for label, text in operators.items() if not (against_baseline and text is None)}
    if not chosen or not seeds:
        raise TrainingError(f"expected operators and seeds to train, found {len(chosen)} and {len(seeds)}")
    if len(set(seeds)) != len(seeds):
        raise TrainingError(f"expected seeds that differ, found {list(seeds)}")
    requests = {label: msgspec.structs.replace(request, operator=text) for label, text in chosen.items()}
    for label, wanted in requests.items():
        try:
            costs_of(wanted)
        except SpecError as error:
            raise SpecError(f"{label}: {error}") from None
    rows = list(requests.items())
    if against_baseline:
        rows.insert(0, (BASELINE, msgspec.structs.replace(request, operator=None)))
    trials: list[StageTrial] = []
    outcomes: list[list[TrialOutcome]] = [[] for _ in rows]
    curves: list[list[float]] = []
    for number, (at, seed) in enumerate((at, seed) for at in range(len(rows)) for seed in seeds):
        label, wanted = rows[at]

        def relay(fraction: float, message: str, ended: int = number, title: str = f"{label}, seed {seed}") -> None:
            report((ended + fraction) / len(rows) / len(seeds), f"{title}: {message}")

        trial = msgspec.structs.replace(wanted, seed=seed)
        if against_baseline:
            run_as = msgspec.structs.replace(trial, stopping=None, rivals=[], keep_predictions=True)
        elif trial.stopping is not None:
            run_as = trial = msgspec.structs.replace(trial, rivals=[*trial.rivals, *curves])
        else:
            run_as = trial
        name = f"{at}-{''.join(letter if letter.isalnum() else '-' for letter in label)[:40]}"
        outcome = run_trial(run_as, folder=Path(folder) / name / str(seed), report=relay, should_stop=should_stop)
        if against_baseline and outcome.state != "finished":
            which = "the baseline" if at == 0 else label
            raise TrainingError(f"expected {which} with seed {seed} to finish, found {outcome.state}: {outcome.reason}")
        outcomes[at].append(outcome)
        if against_baseline:
            outcome = msgspec.structs.replace(outcome, predictions=None, losses=None)
        trials.append(StageTrial(label=label, request=trial, outcome=outcome))
        if outcome.state == "finished":
            curves.append([row["accuracy"] for row in outcome.curve])
    comparisons = {
        label: compared(request, list(seeds), outcomes[0], trained)
        for label, trained in zip(requests, outcomes[1:], strict=False)
        if against_baseline
    }
    return Stage(trials=trials, comparisons=comparisons)
