"""Compare an operator with the layers that it replaces, trained alike on several seeds, and measure the difference.

Shapes: S seeds, N test images (for a text: test windows).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import stdev

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from syno_lab.errors import TrainingError
from syno_lab.inputs import quoted
from syno_lab.store.outcomes import Comparison, Interval
from syno_lab.store.verdicts import EQUAL_WITHIN, verdict_of
from syno_lab.trial.examples import examples_of
from syno_lab.trial.facts import facts_of
from syno_lab.trial.machine import one_machine
from syno_lab.trial.request import TrialOutcome, TrialRequest

RESAMPLES = 10_000
_NUMBERS_AT_ONCE = 1 << 24
#: A plan assumes at least this standard deviation of a mean score between seeds.
SEED_SPREAD = 0.01
#: A network is above chance level if a random guess is as good with a probability of at most 1 / ``ONCE_IN``.
ONCE_IN = 1000


def is_at_chance(accuracy: float, count: int, guess: float) -> bool:
    """Return whether ``accuracy`` on ``count`` images may be chance, if a guess is right with probability ``guess``."""
    from scipy.stats import binom

    return bool(binom.sf(round(accuracy * count) - 1, count, guess) > 1 / ONCE_IN)


def seed_spread(outcomes: Iterable[TrialOutcome]) -> float | None:
    """Return the standard deviation of the accuracy over the seeds: the variation that another seed may cause.

    Returns None for fewer than two trainings with an accuracy. Accuracies of single seeds that differ by less than
    twice this deviation do not rank operators.
    """
    accuracies = [outcome.accuracy for outcome in outcomes if outcome.accuracy is not None]
    return stdev(accuracies) if len(accuracies) > 1 else None


def paired_bootstrap(
    baseline: ArrayLike,
    operator: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return the mean of ``operator`` - ``baseline``, both [S, N] or [N], with its bootstrap interval over N examples.

    The bootstrap draws examples with replacement, the same for both arrays and all seeds. The interval is the
    percentile interval (Efron and Tibshirani 1993, section 13.3). Raises TrainingError if the shapes differ, if there
    are fewer than two examples, or if ``confidence`` is not between 0 and 1.
    """
    from scipy.stats import bootstrap

    baselines, operators = np.asarray(baseline, dtype=float), np.asarray(operator, dtype=float)
    if baselines.shape != operators.shape or baselines.ndim not in (1, 2) or baselines.shape[-1] < 2:
        raise TrainingError(
            "expected answers to the same examples, two or more, found "
            f"{list(baselines.shape)} and {list(operators.shape)}"
        )
    if not 0 < confidence < 1:
        raise TrainingError(f"expected confidence as a number between 0 and 1, found {quoted(confidence)}")
    differences = np.atleast_2d(operators - baselines).mean(axis=0)
    mean = float(differences.mean())
    if np.ptp(differences) == 0:
        return Interval(difference=mean, low=mean, high=mean, confidence=confidence)
    interval = bootstrap(
        (differences,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, _NUMBERS_AT_ONCE // len(differences)),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(difference=mean, low=float(interval.low), high=float(interval.high), confidence=confidence)


def two_way_interval(baseline: ArrayLike, operator: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return the mean of ``operator`` - ``baseline`` [S, N], with its t interval over S seeds and N examples.

    The variance is a sum of three parts. The examples add the variance of the paired differences of the means over the
    seeds, divided by N. Right and wrong answers get one more difference, half in each direction (Agresti and Min 2005),
    because equal answers to few examples prove no equality. The seeds of each network add the variance of its means
    over the examples, divided by S, and at least the variance from single answers. A seed draws different weights in
    two networks, so seeds are not paired. The degrees of freedom are Satterthwaite's (1946). The interval is cautious
    (``benchmarks/power.py``): seeds and examples both add the variation of single answers.

    Raises TrainingError if the shapes differ, if there are fewer than two seeds or examples, or if ``confidence`` is
    not between 0 and 1.
    """
    baselines, operators = np.asarray(baseline, dtype=float), np.asarray(operator, dtype=float)
    if baselines.shape != operators.shape or baselines.ndim != 2 or min(baselines.shape) < 2:
        raise TrainingError(
            "expected answers to the same examples on the same seeds, two of each or more, found "
            f"{list(baselines.shape)} and {list(operators.shape)}"
        )
    if not 0 < confidence < 1:
        raise TrainingError(f"expected confidence as a number between 0 and 1, found {quoted(confidence)}")
    seeds, count = baselines.shape
    differences = (operators - baselines).mean(axis=0)
    mean = float(differences.mean())
    parts = [(example_variance(differences, bool(np.isin([baselines, operators], (0, 1)).all())), count - 1)]
    for scores in (baselines, operators):
        single = float(scores.var(axis=0, ddof=1).mean()) / count
        parts.append((max(float(scores.mean(axis=1).var(ddof=1)), single) / seeds, seeds - 1))
    half = t_error(parts, (1 + confidence) / 2)
    return Interval(difference=mean, low=mean - half, high=mean + half, confidence=confidence)


def least_difference(baselines: ArrayLike, seeds: int, *, confidence: float = 0.95, power: float = 0.8) -> float:
    """Return the least difference from the baseline that a comparison on ``seeds`` seeds detects, in the scores' unit.

    ``power`` is the probability that the comparison detects it. The variance comes from T trainings of the baseline,
    ``baselines`` [T, N]. Two assumptions: an operator's answers differ from the baseline's as much as another
    training's answers, and a seed changes the mean by :data:`SEED_SPREAD` or more. With T = 1, the variation between
    examples replaces the variation of single answers.
    """
    scores = np.asarray(baselines, dtype=float)
    trained, count = scores.shape
    single = float(scores.var(axis=0, ddof=1).mean() if trained > 1 else scores.var()) / count
    extra = 1 / (count * (count + 1)) if np.isin(scores, (0, 1)).all() else 0.0
    parts = [(2 * single + extra, max(1, count - 1))]
    if seeds > 1:
        means = float(scores.mean(axis=1).var(ddof=1)) if trained > 1 else 0.0
        parts += [(max(means, SEED_SPREAD**2 + single) / seeds, seeds - 1)] * 2
    return t_error(parts, (1 + confidence) / 2, power)


def example_variance(differences: NDArray[np.float64], are_answers: bool) -> float:
    """Return the variance of the mean of ``differences`` [N]; see :func:`two_way_interval`.

    ``are_answers``: whether these are differences of right (1) and wrong (0) answers.
    """
    count = len(differences)
    return (
        (float(((differences - differences.mean()) ** 2).sum()) + are_answers) / (count - 1 + 2 * are_answers) / count
    )


def t_error(parts: Iterable[tuple[float, int]], *quantiles: float) -> float:
    """Return the standard error times the sum of these quantiles of the t distribution.

    ``parts`` are independent variances with their degrees of freedom; the variance is their sum (Satterthwaite 1946).
    """
    from scipy.stats import t

    known = [(variance, free) for variance, free in parts if variance > 0]
    total = math.fsum(variance for variance, _ in known)
    if not total:
        return 0.0
    free = total**2 / math.fsum(variance**2 / free for variance, free in known)
    return math.sqrt(total) * math.fsum(float(t.ppf(quantile, free)) for quantile in quantiles)


def compared(
    request: TrialRequest,
    seeds: list[int],
    baselines: list[TrialOutcome],
    operators: list[TrialOutcome],
    *,
    confidence: float = 0.95,
    within: float = EQUAL_WITHIN,
) -> Comparison:
    """Compare finished trials, in the order of ``seeds``; ``request`` names their data.

    ``within`` is the margin of the verdict "equal", see :func:`.verdict_of`; one seed cannot show equality.

    Raises TrainingError for trials without stored predictions (``keep_predictions``), on different test data, or on
    different machines.
    """
    trials = [*baselines, *operators]
    machine = one_machine(trial.machine for trial in trials)
    if len(parts := sorted({trial.measured_on for trial in trials})) > 1:
        raise TrainingError(
            f"expected trainings measured on the same images, found some on {parts[0]} and some on {parts[1]} ones; "
            "train the baseline on the same images"
        )
    (first, labels), (second, _) = (scores_of(request, some) for some in (baselines, operators))
    interval = paired_bootstrap(first, second, confidence=confidence)
    over_seeds = two_way_interval(first, second, confidence=confidence) if len(seeds) > 1 else None
    return Comparison(
        measure="loss" if labels is None else "accuracy",
        baseline=float(first.mean()),
        operator=float(second.mean()),
        interval=interval,
        by_seed=tuple((second - first).mean(axis=1).tolist()),
        flops_ratio=operators[0].flops / baselines[0].flops,
        params_ratio=operators[0].params / baselines[0].params,
        seeds=tuple(seeds),
        baselines=tuple([msgspec.structs.replace(trial, predictions=None, losses=None) for trial in baselines]),
        operators=tuple([msgspec.structs.replace(trial, predictions=None, losses=None) for trial in operators]),
        over_seeds=over_seeds,
        verdict=str(
            verdict_of(
                over_seeds or interval,
                within if over_seeds else 0.0,
                higher_is_better=labels is not None,
                at_chance=is_guess(float(second.mean()), guess_of(request, labels), labels),
            )
        ),
        within=within if over_seeds else 0.0,
        examples=first.shape[1],
        measured_on=trials[0].measured_on,
        machine=machine,
        seed_spread=seed_spread(baselines),
    )


def scores_of(
    request: TrialRequest, trials: Sequence[TrialOutcome]
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Return the score of each seed and example [S, N], and the labels [N] of the test images (of a text None).

    The score of an image is 1 for a right class, else 0; the score of a text's window is its loss.
    """
    if facts_of(request).domain != "images":
        return np.array([trial.losses for trial in trials], dtype=float), None
    labels = examples_of(request).test_labels
    return np.array([np.asarray(trial.predictions) == labels for trial in trials], dtype=float), labels


def guess_of(request: TrialRequest, labels: NDArray[np.int64] | None) -> float:
    """Return the accuracy of the best guess without looking at an image, or the loss of a uniform guess of a token."""
    if labels is None:
        return math.log(facts_of(request).outputs)
    return float(np.bincount(labels).max()) / len(labels)


def is_guess(value: float, guess: float, labels: NDArray[np.int64] | None) -> bool:
    """Return whether a mean score may come from guesses; ``guess`` is the result of :func:`guess_of`."""
    return value >= guess if labels is None else is_at_chance(value, len(labels), guess)
