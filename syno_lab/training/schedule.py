"""The schedule of an epoch: batches, learning rates, and a different seed for each random stream."""

from __future__ import annotations

import math

import torch

WARM_UP = 0.2
"""The share of the steps during which the learning rate rises."""

WARM_UP_STEPS = 100
"""The number of steps during which it rises where the number of all steps is unknown."""


def batch_bounds(count: int, size: int, *, merge_single: bool = True) -> list[tuple[int, int]]:
    """Cut ``count`` images into batches; a last batch of a single image joins the one before.

    Batch normalisation cannot train on a single image whose features have a single pixel.
    """
    bounds = [(first, min(first + size, count)) for first in range(0, count, size)]
    if merge_single and size > 1 and len(bounds) > 1 and bounds[-1][1] - bounds[-1][0] == 1:
        bounds[-2:] = [(bounds[-2][0], count)]
    return bounds


class InBatches:
    """Examples that a task reads in batches, those of the training part in a new order in each epoch."""

    def __init__(self, train_count: int, test_count: int, batch_size: int) -> None:
        self._train_count = train_count
        self._train_bounds = batch_bounds(train_count, batch_size)
        self._test_bounds = batch_bounds(test_count, batch_size, merge_single=False)
        self._order = torch.empty(0, dtype=torch.int64)

    @property
    def train_batches(self) -> int:
        """Batches of an epoch."""
        return len(self._train_bounds)

    @property
    def test_batches(self) -> int:
        """Batches of a test."""
        return len(self._test_bounds)

    def start_epoch(self, draw: torch.Generator) -> None:
        """Draw the order of the examples."""
        self._order = torch.randperm(self._train_count, generator=draw)

    def close(self) -> None:
        """End what the task has begun."""


def cycle(step: int, steps: int) -> float:
    """Return the share of the highest learning rate at ``step``: half a cosine up to it, then one down to zero."""
    position = (step + 1) / (steps + 1)
    if position < WARM_UP:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * position / WARM_UP)) / 2
    return (1 + math.cos(math.pi * (position - WARM_UP) / (1 - WARM_UP))) / 2


def inverse_root(step: int, _steps: int) -> float:
    """Return the share of the highest learning rate at ``step`` of a training that a time limit ends, not a count.

    It rises linearly for :data:`WARM_UP_STEPS`, then falls with the square root of the step (Vaswani et al. 2017,
    section 5.3; also in Primer, which Syno's section 9.3 follows), so that the training can be stopped fairly at any
    step.
    """
    return min((step + 1) / WARM_UP_STEPS, math.sqrt(WARM_UP_STEPS / (step + 1)))


def mix(seed: int, stream: int) -> int:
    """Return a seed of 63 bits, different for neighbouring seeds and streams (splitmix64, Steele et al. 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1342543DE82EF95) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) >> 1
