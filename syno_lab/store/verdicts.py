"""The verdict on an operator. Only this module decides verdicts and writes their sentences."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from syno_lab.inputs import count_of
from syno_lab.store.latencies import TIMES
from syno_lab.store.outcomes import Comparison, Interval

#: The default margin of equality: percentage points of accuracy, or hundredths of a nat.
EQUAL_WITHIN = 2.0
#: A time is slower where it is more than this multiple of the baseline's; medians of equal networks differ by less.
SLOWER = 1.05


class Verdict(StrEnum):
    """The result of comparing an operator with its baseline; the value is a text to show."""

    better = "better than the baseline"
    worse = "worse than the baseline"
    equal = "equal to the baseline"
    undecided = "undecided"
    at_chance = "at chance level: no better than guessing"
    untrained = "not trained enough to tell"
    none_found = "no new operator was found"


def verdict_of(
    by: Interval, within: float = EQUAL_WITHIN, *, higher_is_better: bool = True, at_chance: bool = False
) -> Verdict:
    """Return the verdict on an operator whose difference from the baseline has the interval ``by``.

    Better or worse: the interval does not contain 0. Equal: the whole interval is less than ``within`` hundredths from
    0. With a 95 % interval, the check of equality is two one-sided tests (Schuirmann 1987) with errors of 2.5 % each.
    """
    if at_chance:
        return Verdict.at_chance
    if by.low <= 0 <= by.high:
        return Verdict.equal if _is_near(by, within) else Verdict.undecided
    return Verdict.better if (by.low > 0) == higher_is_better else Verdict.worse


def sentence(one: Comparison) -> str:
    """Return a comparison's verdict, its difference and interval, the numbers of seeds and examples, and the times.

    Without an interval, as in a damaged file, return the stored verdict alone.
    """
    by, (difference, interval) = one.by, one.texts
    if by is None:
        return one.verdict
    at_chance = one.verdict == Verdict.at_chance
    verdict = verdict_of(by, one.within, higher_is_better=one.is_accuracy, at_chance=at_chance)
    margin = f"{one.within:g} points" if one.is_accuracy else f"{one.within / 100:g} nats"
    words = f"{verdict} within {margin}" if verdict is Verdict.equal else str(verdict)
    if verdict in (Verdict.better, Verdict.worse) and _is_near(by, one.within):
        words += f" by less than {margin}"
    folds = one.operators[0].by_fold if one.operators else None
    tested = count_of(len(one.seeds), "seed") + (f" on {len(folds)} folds" if folds else "")
    tested += f", {count_of(one.examples, 'test example')}" if one.examples else ""
    time = f"; {speed}" if (speed := speed_of(one.times, one.baseline_times)) else ""
    return f"{words}, {difference} ({by.confidence:.0%} interval {interval}; {tested}){time}"


def slower(own: Mapping[str, float], base: Mapping[str, float], *names: str) -> bool:
    """Whether a network is slower than the baseline in one of these times."""
    return any(own[name] > SLOWER * base[name] for name in names if name in own and name in base)


def speed_of(own: Mapping[str, float], base: Mapping[str, float]) -> str:
    """Return the times of one example and of a training step in multiples of the baseline's; empty if not measured."""
    said = [
        f"{own[name] / base[name]:.2f}x in a {TIMES[name]}"
        for name in ("forward", "step-batch")
        if own.get(name) and base.get(name)
    ]
    return f"{'slower' if slower(own, base, *TIMES) else 'not slower'}: {', '.join(said)}" if said else ""


def _is_near(by: Interval, within: float) -> bool:
    return -within / 100 < by.low and by.high < within / 100
