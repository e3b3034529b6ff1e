"""Rungs: the proxies on which operators are trained before the network itself, as declarations.

A trial of a search climbs: on the first rung a training takes seconds, on each next one longer, and only the best go
on (successive halving; Jamieson and Talwalkar 2016, Li et al. 2018). This file is plain data, without torch; what a
rung makes of a request is in :mod:`syno_lab.trial.rungs`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from syno_lab.errors import SpecError
from syno_lab.inputs import quoted

#: What a rung ranks by: the accuracy (of a text exp(-loss)), the loss on the examples that the outcome is measured on,
#: or the training loss of the last batches. Losses rank where an accuracy is still too coarse.
Measure = Literal["accuracy", "loss", "training loss"]


@dataclass(frozen=True)
class Rung:
    """One rung of the trials of a search.

    Attributes:
        name: for people and records, different from the others of its backbone.
        changes: the fields of a :class:`syno_lab.trial.TrialRequest` that make the proxy. Sizes are the most: a request
            whose network, images, context or number of steps is smaller already keeps its own. ``options`` are merged.
            Empty: the network itself with the full recipe.
        seeds: the trainings of an operator on this rung, with seeds from 0 up; the reward is their mean.
        keep: the share of its trials that go on to the next rung, above 0 and at most 1.
        measure: what it ranks by.
        unproven: used only where a validation has shown that it ranks better than FLOPs and parameters do.

    Raises SpecError for numbers out of range.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    seeds: int = 1
    keep: float = 1.0
    measure: Measure = "accuracy"
    unproven: bool = False

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise SpecError(f"rung {self.name}: expected seeds as a whole number from 1 up, found {self.seeds}")
        if not (math.isfinite(self.keep) and 0 < self.keep <= 1):
            raise SpecError(f"rung {self.name}: expected keep as a share above 0 and at most 1, found {self.keep}")
        if self.measure not in get_args(Measure):
            known = ", ".join(map(repr, get_args(Measure)))
            raise SpecError(f"rung {self.name}: expected the measure as one of {known}, found {quoted(self.measure)}")

    @property
    def is_full(self) -> bool:
        """Whether it is the network itself with the full recipe."""
        return not self.changes


def proxies(*, resolution: int, steps: tuple[int, int] = (40, 156), **sizes: int) -> tuple[Rung, ...]:
    """The rungs of a backbone for images: two short trainings of a smaller network, then the network itself.

    The second rung is the first with more steps and two seeds. The figures for ResNet-20, ResNet-8 at 16 x 16 with 40
    and then 156 batches of 64 images, are those of the first search that found anything; other backbones follow them.
    The first rung ranks by the training loss: in ResNet-20's validation it agreed with the full recipe better than
    FLOPs and parameters did, and the held-out loss after so few steps did not (``syno-lab search --validate-proxy``).
    """
    return _climbed({"options": dict(sizes), "resolution": resolution}, steps, ("training loss", "loss"))


def text_proxies(*, context: int, steps: tuple[int, int], **sizes: int) -> tuple[Rung, ...]:
    """The same for texts: fewer layers, a shorter context; unproven, so used only once a validation has shown them."""
    return _climbed({"options": {**sizes, "context": context}}, steps, ("loss", "loss"), unproven=True)


def _climbed(
    small: Mapping[str, Any], steps: tuple[int, int], measures: tuple[Measure, Measure], *, unproven: bool = False
) -> tuple[Rung, ...]:
    first, second = ({**small, "steps": number} for number in steps)
    return (
        Rung(f"{steps[0]} steps", first, keep=1 / 6, measure=measures[0], unproven=unproven),
        Rung(f"{steps[1]} steps", second, seeds=2, keep=1 / 4, measure=measures[1], unproven=unproven),
        Rung("network", keep=1 / 2),
    )


def own_proxies(steps: tuple[int, int] = (40, 156)) -> tuple[Rung, ...]:
    """The rungs of a network of the user's own: shorter trainings of itself, as nobody has declared a smaller one."""
    return (
        *(Rung(f"{number} steps", {"steps": number}, keep=1 / 4, measure="loss") for number in steps),
        Rung("network", keep=1 / 2),
    )
