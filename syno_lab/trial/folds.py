"""A trial on folds: every image is tested once, by a network that was trained on the images of the other folds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from syno_lab.trial.request import TrialOutcome, TrialRequest

Report = Callable[[float, str], None]


def run_folds(
    run_trial: Callable[..., TrialOutcome], request: TrialRequest, *, folder: Path, report: Report, **rest: Any
) -> TrialOutcome:
    """Run ``request`` on each of its folds, each in a subfolder of ``folder``; return the outcome on all images.

    ``run_trial`` is :func:`.run.run_trial`, and ``rest`` are further arguments. A later call continues from the
    finished folds and from the checkpoint of an interrupted fold. A fold that does not finish ends the trial.
    """
    folds = request.folds or 0
    ended: list[TrialOutcome] = []
    for fold in range(1, folds + 1):

        def relay(fraction: float, message: str, fold: int = fold) -> None:
            report((fold - 1 + fraction) / folds, f"{message}, fold {fold} of {folds}")

        latency = request.measure_latency and fold == 1
        one = msgspec.structs.replace(request, fold=fold, keep_predictions=True, measure_latency=latency)
        ended.append(run_trial(one, folder=folder / f"fold-{fold}", report=relay, **rest))
        if ended[-1].state != "finished":
            reason = f"fold {fold} of {folds}: {ended[-1].reason}"
            return msgspec.structs.replace(ended[-1], reason=reason, accuracy=None, best_accuracy=None, curve=[])
    outcome = _pooled(ended, keep_predictions=request.keep_predictions)
    report(1.0, f"finished, accuracy {outcome.accuracy:.4f}, standard error {outcome.standard_error:.4f}")
    return outcome


def _pooled(ended: Sequence[TrialOutcome], *, keep_predictions: bool) -> TrialOutcome:
    predictions = [label for outcome in ended for label in outcome.predictions or ()]
    losses = [loss for outcome in ended for loss in outcome.losses or ()]
    sizes = [len(outcome.predictions or ()) for outcome in ended]

    def mean(values: Sequence[float | None]) -> float:
        return float(np.average(np.array(values, float), weights=sizes))

    accuracy = mean([outcome.accuracy for outcome in ended])
    is_even = len({len(outcome.curve) for outcome in ended}) == 1  # A time limit makes curves unequal.
    rows = zip(*(outcome.curve if is_even else outcome.curve[-1:] for outcome in ended), strict=True)
    curve = [{name: mean([row[name] for row in of_folds]) for name in of_folds[0]} for of_folds in rows]
    return msgspec.structs.replace(
        ended[-1],
        wall_s=sum(outcome.wall_s for outcome in ended),
        cpu_s=sum(outcome.cpu_s for outcome in ended),
        work_s=sum(outcome.work_s for outcome in ended),
        resumed=sum(outcome.resumed for outcome in ended),
        reason="; ".join(dict.fromkeys(outcome.reason for outcome in ended if outcome.reason)),
        accuracy=accuracy,
        best_accuracy=max(row["accuracy"] for row in curve),
        curve=curve,
        peak_mib=max(outcome.peak_mib for outcome in ended),
        latency_ms=ended[0].latency_ms,
        machine=", ".join(sorted({outcome.machine for outcome in ended})),
        predictions=predictions if keep_predictions else None,
        losses=losses if keep_predictions else None,
        train_loss=mean([outcome.train_loss for outcome in ended]),
        by_fold=[outcome.accuracy or 0.0 for outcome in ended],
        standard_error=math.sqrt(accuracy * (1 - accuracy) / len(predictions)),
    )
