"""Which operators of a rung continue: the best within each share of the FLOPs, of different kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

#: The penalty for each operator of the same kind that is already chosen, in standard deviations of a rung's measures.
#: Chosen after three half-hour searches of ResNet-20, whose last rung had up to five variants of one operator.
ALIKE = 0.5


@dataclass(frozen=True)
class Score:
    """The score of an operator on a rung.

    Attributes:
        number: the trial's number.
        ratio: FLOPs of the operator in the replaced layers, divided by the FLOPs of these layers.
        value: the score, higher is better; see :meth:`.RungDriver.scores`.
        kind: FLOPs and parameters; operators with equal numbers are probably variants of one operator.
    """

    number: int
    ratio: float
    value: float
    kind: Hashable = None


def survivors(scores: Sequence[Score], count: int, shares: Sequence[float]) -> list[int]:
    """Return the numbers of ``count`` operators: the best within each share of the FLOPs, of different kinds.

    For each share in turn, the smallest first, the best remaining operator within the share is chosen. So the best
    operator within a quarter of the FLOPs continues, even if operators within a half are better. Each chosen operator
    lowers the values of its kind by :data:`ALIKE`. Variants of one operator have similar accuracies, and measures on a
    proxy are noisy, so a rung learns more from different operators.
    """
    remaining = sorted(scores, key=lambda score: (-score.value, score.ratio, score.number))
    chosen: list[int] = []
    of_kind: Counter[Hashable] = Counter()

    def take(within: list[Score]) -> None:
        best = max(within, key=lambda score: score.value - ALIKE * of_kind[score.kind])
        remaining.remove(best)
        chosen.append(best.number)
        of_kind[best.kind] += 1

    while remaining and len(chosen) < count:
        before = len(chosen)
        for share in sorted(shares):
            within = [score for score in remaining if score.ratio <= share]
            if within and len(chosen) < count:
                take(within)
        if len(chosen) == before:  # no remaining operator is within the largest share
            take(remaining)
    return chosen
