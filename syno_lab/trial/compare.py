"""Compare an operator with the layers it replaces: train both alike on several seeds and measure the difference.

Shapes: S seeds, N test images (for a text: test windows).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from syno_lab.errors import TrainingError
from syno_lab.inputs import quoted
from syno_lab.trial.examples import images_of
from syno_lab.trial.facts import facts_of
from syno_lab.trial.request import TrialOutcome, TrialRequest
from syno_lab.trial.run import Report, run_trial

RESAMPLES = 10_000
_NUMBERS_AT_ONCE = 1 << 24


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A difference and its confidence interval, for the level ``confidence``."""

    difference: float
    low: float
    high: float
    confidence: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """An operator against its baseline.

    Attributes:
        measure: ``accuracy`` (of images; higher is better) or ``loss`` (of text, in nats; lower is better).
        baseline, operator: the means over the seeds.
        interval: operator - baseline with a paired bootstrap interval over the test images (or windows). The interval
            shows how much the choice of test images matters; ``by_seed`` shows how much the seed matters.
        by_seed: operator - baseline for each seed.
        flops_ratio, params_ratio: operator over baseline, for the whole network.
        seeds: the seeds.
        baselines, operators: the trials, in the order of the seeds; without their predictions.
    """

    measure: Literal["accuracy", "loss"]
    baseline: float
    operator: float
    interval: Interval
    by_seed: list[float]
    flops_ratio: float
    params_ratio: float
    seeds: list[int]
    baselines: list[TrialOutcome]
    operators: list[TrialOutcome]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dictionaries, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def compare(
    request: TrialRequest,
    seeds: Sequence[int],
    *,
    folder: Path,
    baseline_folder: Path | None = None,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
    confidence: float = 0.95,
) -> Comparison:
    """Train ``request`` with its operator and without, on each seed, and compare the predictions on the test data.

    Only the operator differs between the two, and no rule may end a trial early. Every trial has its own subfolder of
    ``folder``, from which a killed comparison continues; comparisons that share a ``baseline_folder`` train the
    baseline only once. Raises TrainingError for a request without an operator, no seeds, or a trial that did not
    finish, with its reason.
    """
    if request.operator is None:
        raise TrainingError("expected a request with an operator to compare with its baseline, found none")
    if not seeds or len(set(seeds)) != len(seeds):
        raise TrainingError(f"expected seeds that differ, at least one, found {list(seeds)}")
    request = msgspec.structs.replace(request, stopping=None, rivals=[], keep_predictions=True)
    outcomes: dict[str, list[TrialOutcome]] = {"baseline": [], "operator": []}
    done, total = 0, 2 * len(seeds)
    for seed in seeds:
        for side, trials in outcomes.items():
            wanted = msgspec.structs.replace(
                request, seed=seed, operator=request.operator if side == "operator" else None
            )

            def told(fraction: float, message: str, label: str = f"{side}, seed {seed}", start: int = done) -> None:
                report((start + fraction) / total, f"{label}: {message}")

            root = Path(baseline_folder if side == "baseline" and baseline_folder is not None else folder)
            trial = run_trial(wanted, folder=root / f"{side}-{seed}", report=told, should_stop=should_stop)
            if trial.state != "finished":
                raise TrainingError(
                    f"expected the {side} with seed {seed} to finish, found {trial.state}: {trial.reason}"
                )
            trials.append(trial)
            done += 1
    return compared(request, list(seeds), outcomes["baseline"], outcomes["operator"], confidence=confidence)


def paired_bootstrap(
    baseline: ArrayLike,
    operator: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The mean of ``operator`` - ``baseline``, both [S, N] or [N], with its bootstrap interval over the N examples.

    Examples are drawn with replacement, the same ones for both sides and all seeds; the interval is the percentile
    interval (Efron and Tibshirani 1993, section 13.3). Raises TrainingError where the shapes differ, there are fewer
    than two examples, or ``confidence`` is not between 0 and 1.
    """
    from scipy.stats import bootstrap

    one, other = np.asarray(baseline, dtype=float), np.asarray(operator, dtype=float)
    if one.shape != other.shape or one.ndim not in (1, 2) or one.shape[-1] < 2:
        raise TrainingError(
            "expected answers to the same two or more examples of both, found "
            f"{list(one.shape)} and {list(other.shape)}"
        )
    if not 0 < confidence < 1:
        raise TrainingError(f"expected confidence as a number between 0 and 1, found {quoted(confidence)}")
    differences = np.atleast_2d(other - one).mean(axis=0)
    mean = float(differences.mean())
    if np.ptp(differences) == 0:
        return Interval(difference=mean, low=mean, high=mean, confidence=confidence)
    found = bootstrap(
        (differences,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, _NUMBERS_AT_ONCE // len(differences)),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(difference=mean, low=float(found.low), high=float(found.high), confidence=confidence)


def compared(
    request: TrialRequest,
    seeds: list[int],
    baselines: list[TrialOutcome],
    operators: list[TrialOutcome],
    *,
    confidence: float = 0.95,
) -> Comparison:
    """Compare finished trials, in the order of ``seeds``; ``request`` names their data.

    The trials must have kept their predictions (``keep_predictions``).
    """
    measure: Literal["accuracy", "loss"] = "loss"
    labels: NDArray[np.int64] | None = None
    if facts_of(request).domain == "images":
        measure = "accuracy"
        labels = images_of(request).test_labels
    first, second = _scores(baselines, labels), _scores(operators, labels)
    return Comparison(
        measure=measure,
        baseline=float(first.mean()),
        operator=float(second.mean()),
        interval=paired_bootstrap(first, second, confidence=confidence),
        by_seed=(second - first).mean(axis=1).tolist(),
        flops_ratio=operators[0].flops / baselines[0].flops,
        params_ratio=operators[0].params / baselines[0].params,
        seeds=seeds,
        baselines=[msgspec.structs.replace(trial, predictions=None, losses=None) for trial in baselines],
        operators=[msgspec.structs.replace(trial, predictions=None, losses=None) for trial in operators],
    )


def _scores(trials: list[TrialOutcome], labels: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """The score of each seed and example [S, N]: of images 1 for a right class, else 0; of text the loss."""
    if labels is None:
        return np.array([trial.losses for trial in trials], dtype=float)
    return np.array([np.asarray(trial.predictions) == labels for trial in trials], dtype=float)
