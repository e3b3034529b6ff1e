"""Rewards that cost nothing, over a space that is enumerated whole, so that the best operator is known.

Declared before any search was run on them. What is hidden is drawn anew for each seed, the same for all searches. All
work on features of the finished operator that no search is told: how often each primitive is used, how many windows
slide along H and along W, how many weights there are, how large the largest of them is, whether one weight holds both
C_in and C_out, whether the last weight sees both H and W through windows, and the logarithms of FLOPs and of
parameters. Each feature is standardised over the space.

- ``linear``: a weighted sum, the weights normal. Every feature counts by itself.
- ``interaction``: a sum of 24 products of two features each, with normal weights, and no feature by itself.
- ``target``: ``exp(-d**2 / (2*D**2))`` of the distance d from one hidden operator's features, D the mean distance in
  the space: one hill, most of the space far from it.

Each is scaled so that the worst operator of the space has 0 and the best 1.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import log2

import numpy as np

from syno_lab.ir.operator import Operator

PRIMITIVES = ("REDUCE", "SPLIT", "MERGE", "SHIFT", "EXPAND", "UNFOLD", "STRIDE", "SHARE")
PRODUCTS = 24


def features(operator: Operator) -> list[float]:
    """What the surrogates see of an operator."""
    steps = operator.steps
    found = [float(sum(step.primitive == name for step in steps)) for name in PRIMITIVES]
    slides = {"H": 0, "W": 0}
    for step in steps:
        if step.primitive == "UNFOLD":
            for axis in slides:
                slides[axis] += any(str(c.size) == axis for c in step.operands[0].leaves())
    found += [float(number) for number in slides.values()]
    weights = [{str(c.size) for c in weight.coordinates} for weight in operator.weights]
    found.append(float(max((len(weight.coordinates) for weight in operator.weights), default=0)))
    found.append(float(any({"C_in", "C_out"} <= weight for weight in weights)))
    found.append(float(all(slides.values())))
    found += [log2(max(1, operator.flops())), log2(max(1, operator.params()))]
    return found


def standardised(operators: Sequence[Operator]) -> np.ndarray:
    """The features of all operators, one row each; those that are the same everywhere are left out."""
    table = np.array([features(operator) for operator in operators])
    table = table[:, table.std(axis=0) > 0]
    return (table - table.mean(axis=0)) / table.std(axis=0)


def linear(table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """See the head of this file."""
    return scaled(table @ rng.standard_normal(table.shape[1]))


def interaction(table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """See the head of this file."""
    pairs = [(i, j) for i in range(table.shape[1]) for j in range(i)]
    chosen = rng.choice(len(pairs), size=min(PRODUCTS, len(pairs)), replace=False)
    weights = rng.standard_normal(len(chosen))
    return scaled(sum(w * table[:, pairs[k][0]] * table[:, pairs[k][1]] for w, k in zip(weights, chosen, strict=True)))


def target(table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """See the head of this file."""
    distance = np.linalg.norm(table - table[rng.integers(len(table))], axis=1)
    return scaled(np.exp(-(distance**2) / (2 * distance.mean() ** 2)))


def scaled(values: np.ndarray) -> np.ndarray:
    """From 0 to 1."""
    return (values - values.min()) / (values.max() - values.min())


SURROGATES: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "linear": linear,
    "interaction": interaction,
    "target": target,
}


def uniform(rewards: np.ndarray, trials: int, rng: random.Random) -> list[float]:
    """The rewards of operators drawn without repetition, all equally likely: what no search can know to do."""
    return [float(rewards[i]) for i in rng.sample(range(len(rewards)), min(trials, len(rewards)))]
