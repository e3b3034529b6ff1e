"""How often a comparison decides, how often it is wrong, and whether a plan can promise that a difference is told.

``python benchmarks/power.py`` simulates searches: a baseline and an operator answer the same 1,000 examples after
trainings with three seeds each. Examples are hard or easy, each network finds some of them easier than the other does,
and each seed moves all answers of a network. The planted difference is that of the expected accuracies. The first two
trainings of the baseline are the plan's: from them it says the least difference that can be told. The script prints
JSON and writes it to ``benchmarks/results/power.json``; ``python benchmarks/render.py`` puts it into the README.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import hypot
from typing import Any

import numpy as np
from common import about, parser, save, say, typed, use_one_core
from numpy.typing import NDArray

from syno_lab.store.verdicts import Verdict, verdict_of
from syno_lab.trial.compare import least_difference, two_way_interval

#: The planted differences, in percentage points.
POINTS = (0.0, 2.0, 5.0, 10.0)
SAID = (Verdict.worse, Verdict.better, Verdict.equal, Verdict.undecided)
#: The standard deviations of the accuracy between seeds, in percentage points.
SPREADS = (0.0, 1.0, 2.0)
#: The baseline's accuracy; how much examples differ, and how much networks differ on each of them, in logits.
ACCURACY, HARD, OWN = 0.7, 2.0, 1.0
EXAMPLES, SEEDS = 1_000, 3


def chance(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probability of a right answer."""
    return 1 / (1 + np.exp(-logits))


@cache
def logit_of(accuracy: float) -> float:
    """The mean logit of a network with this expected accuracy."""
    low, high = -20.0, 20.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if accuracy_of(middle) < accuracy else (low, middle)
    return low


def accuracy_of(logit: float) -> float:
    """The expected accuracy of a network with this mean logit."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    return float((chance(logit + hypot(HARD, OWN) * nodes) * weights).sum() / weights.sum())


def answers(
    rng: np.random.Generator, hard: NDArray[np.float64], accuracy: float, spread: float, seeds: int = SEEDS
) -> NDArray[np.float64]:
    """The right (1) and wrong (0) answers [seeds, N] of a network to examples of these logits [N]."""
    logit = logit_of(accuracy)
    slope = (accuracy_of(logit + 0.01) - accuracy_of(logit - 0.01)) / 0.02
    moved = rng.normal(size=(seeds, 1)) * spread / 100 / slope
    right = chance(logit + hard + OWN * rng.normal(size=len(hard)) + moved)
    return (rng.random((seeds, len(hard))) < right).astype(float)


def searches(rng: np.random.Generator, points: float | None, spread: float, runs: int) -> dict[str, Any]:
    """The verdicts of so many searches, as shares of all, for an operator that is worse by ``points``.

    ``points`` None: worse by the least difference that the plan of each search says. ``told_decided`` is the share of
    right verdicts among the searches whose plan said that the difference can be told.
    """
    found: Counter[Verdict] = Counter()
    plans, told, told_decided = [], 0, 0
    for _ in range(runs):
        hard = HARD * rng.normal(size=EXAMPLES)
        baseline = answers(rng, hard, ACCURACY, spread)
        least = 100 * least_difference(baseline[:2], SEEDS)
        planted = least if points is None else points
        verdict = verdict_of(two_way_interval(baseline, answers(rng, hard, ACCURACY - planted / 100, spread)))
        found[verdict] += 1
        plans.append(least)
        if planted and least <= planted:
            told += 1
            told_decided += verdict is Verdict.worse
    return {
        "points": points,
        "spread": spread,
        "runs": runs,
        **{verdict.name: found[verdict] / runs for verdict in SAID},
        "least": float(np.median(plans)),
        "told": told,
        "told_decided": told_decided / told if told else None,
    }


def main() -> None:
    """All planted differences and spreads."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--runs", type=int, default=1_000, help="searches of each kind (1000)")
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    rows = []
    for spread in SPREADS:
        for points in (*POINTS, None):
            rows.append(searches(np.random.default_rng(chosen.seed), points, spread, chosen.runs))
            say(f"seed {chosen.seed}: {rows[-1]}")
    save("power", {"seed": chosen.seed, "rows": rows, "about": about(typed(), core)})


if __name__ == "__main__":
    main()
