"""What a comparison decides, as a value: better, worse, undecided, at chance level, untrained, or nothing found."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from statistics import stdev

from syno_lab.trial.request import TrialOutcome

#: A network is above chance level if guessing were as good as it only once in so many times.
ONCE_IN = 1000


class Verdict(StrEnum):
    """What is known of an operator after its comparison; the value is its text for people."""

    better = "better than the baseline"
    worse = "worse than the baseline"
    undecided = "no difference from the baseline shown"
    at_chance = "at chance level: no better than guessing"
    untrained = "not trained enough to tell"
    none_found = "no new operator was found"


def is_at_chance(accuracy: float, count: int, guess: float) -> bool:
    """Whether guessing with the share ``guess`` right would be as good on ``count`` images once in :data:`ONCE_IN`."""
    from scipy.stats import binom

    return bool(binom.sf(round(accuracy * count) - 1, count, guess) > 1 / ONCE_IN)


def verdict_of(
    low: float, high: float, *, higher_is_better: bool = True, at_chance: bool = False, trained: bool = True
) -> Verdict:
    """The verdict on an operator whose difference from the baseline has an interval from ``low`` to ``high``."""
    if not trained:
        return Verdict.untrained
    if at_chance:
        return Verdict.at_chance
    if low <= 0 <= high:
        return Verdict.undecided
    return Verdict.better if (low > 0) == higher_is_better else Verdict.worse


def seed_spread(outcomes: Iterable[TrialOutcome]) -> float | None:
    """The standard deviation of the accuracy over the seeds: what to expect of another seed on this machine.

    None for fewer than two trainings with an accuracy. Single-seed accuracies that differ by less than twice this much
    rank nothing.
    """
    accuracies = [one.accuracy for one in outcomes if one.accuracy is not None]
    return stdev(accuracies) if len(accuracies) > 1 else None
