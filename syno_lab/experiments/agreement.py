"""Measures how well predictors rank operators: rank correlation with measured accuracies, its interval and its ceiling.

Shapes: N operators, S seeds. The *truth* of an operator is its accuracy in full trainings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from syno_lab.errors import SearchError

RESAMPLES = 4_000
#: The least number of operators for a rank correlation. With fewer operators the interval covers most of -1 to 1.
LEAST = 4


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How well a predictor's ranking of operators agrees with the accuracies after full trainings (the truth).

    Attributes:
        predictor: the predictor's name, for reports.
        spearman: the rank correlation with the truth over the operators; None where all operators have one value.
        low, high: the ends of the correlation's bootstrap interval over the operators, at the level ``confidence``.
        above: the share of resamples in which the correlation exceeds each yardstick's; None for a yardstick.
        is_used: whether the predictor may choose operators: its correlation exceeds each yardstick's, and its interval
            is above 0. None for a yardstick.
    """

    predictor: str
    spearman: float | None
    low: float | None
    high: float | None
    confidence: float
    above: float | None = None
    is_used: bool | None = None


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """The highest correlation to expect: below 1, because accuracies differ from seed to seed.

    Attributes:
        between_seeds: the mean rank correlation between the accuracies of two seeds; None with one seed.
        reliability: the reliability of the mean accuracies over the seeds, by the Spearman-Brown formula.
        most: the square root of the reliability: a perfect predictor's expected rank correlation with the truth.
    """

    between_seeds: float | None = None
    reliability: float | None = None
    most: float | None = None


def spearman(one: ArrayLike, other: ArrayLike) -> NDArray[np.float64]:
    """Return the rank correlation along the last axis; ties get their mean rank; NaN if an input is constant."""
    from scipy.stats import rankdata

    first, second = (rankdata(np.asarray(values, dtype=float), axis=-1) for values in (one, other))
    first = first - first.mean(axis=-1, keepdims=True)
    second = second - second.mean(axis=-1, keepdims=True)
    scale = np.sqrt((first**2).sum(axis=-1) * (second**2).sum(axis=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((first * second).sum(axis=-1) / scale)


def agreements(
    predictors: Mapping[str, Sequence[float]],
    yardsticks: Mapping[str, Sequence[float]],
    truth: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Agreement]:
    """Return the agreement of each predictor, then of each yardstick, with the truth of N operators.

    A resample has the same operators for all predictors, so that :attr:`Agreement.above` compares on equal operators.

    Raises SearchError where there are fewer than :data:`LEAST` operators, or a list of values has another length.
    """
    count = len(truth)
    wrong = [name for name, values in {**predictors, **yardsticks}.items() if len(values) != count]
    if count < LEAST or wrong:
        raise SearchError(f"expected {LEAST} or more operators with all their values, found {count} {', '.join(wrong)}")
    samples = np.random.default_rng(seed).integers(count, size=(resamples, count))
    aim = np.asarray(truth, dtype=float)

    def measured(values: Sequence[float]) -> tuple[float, NDArray[np.float64]]:
        array = np.asarray(values, dtype=float)
        return float(spearman(array, aim)), spearman(array[samples], aim[samples])

    sticks = {name: measured(values) for name, values in yardsticks.items()}
    bar = max((value for value, _ in sticks.values() if np.isfinite(value)), default=0.0)
    bars = np.max([np.nan_to_num(many, nan=-1.0) for _, many in sticks.values()], axis=0) if sticks else None

    def agreement(name: str, pair: tuple[float, NDArray[np.float64]], is_stick: bool) -> Agreement:
        value, many = pair
        is_known = bool(np.isfinite(value))
        low, high = np.nanquantile(many, [(1 - confidence) / 2, (1 + confidence) / 2]) if is_known else (None, None)
        above = None if is_stick or bars is None else float((np.nan_to_num(many, nan=-1.0) > bars).mean())
        return Agreement(
            predictor=name,
            spearman=value if is_known else None,
            low=None if low is None else float(low),
            high=None if high is None else float(high),
            confidence=confidence,
            above=above,
            is_used=None if is_stick else bool(is_known and low is not None and value > max(bar, 0.0) and low > 0),
        )

    return [
        *(agreement(name, measured(values), False) for name, values in predictors.items()),
        *(agreement(name, pair, True) for name, pair in sticks.items()),
    ]


def ceiling(truths: ArrayLike) -> Ceiling:
    """Return the ceiling for accuracies [S, N]; the fields are None with one seed.

    With r the mean rank correlation between two seeds, the mean over S seeds has the reliability S r / (1 + (S - 1) r)
    (Spearman 1910, Brown 1910). A correlation with the mean exceeds the square root of the reliability only by chance.
    """
    table = np.atleast_2d(np.asarray(truths, dtype=float))
    seeds = len(table)
    if seeds < 2 or table.shape[1] < LEAST:
        return Ceiling()
    pairs = [float(spearman(table[a], table[b])) for a, b in combinations(range(seeds), 2)]
    between = float(np.mean(pairs))
    if not np.isfinite(between):
        return Ceiling()
    positive = max(0.0, between)
    reliability = seeds * positive / (1 + (seeds - 1) * positive)
    return Ceiling(between_seeds=between, reliability=reliability, most=reliability**0.5)
