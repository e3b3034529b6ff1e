"""Rungs of a search: which cheaper networks and trainings (proxies) precede the training of the network itself.

A training on the first rung takes seconds, and longer on each later rung. Only the best trials continue (successive
halving; Jamieson and Talwalkar 2016, Li et al. 2018). The module is plain data without torch;
:mod:`syno_lab.trial.rungs` applies a rung to a request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.store.outcomes import Measure


@dataclass(frozen=True)
class Rung:
    """A rung: how the trials of a search are trained and ranked at one level of cost.

    Attributes:
        name: the displayed name, unique among the backbone's rungs.
        changes: the fields of a :class:`syno_lab.trial.TrialRequest` that make the proxy. Sizes are upper bounds:
            smaller sizes in a request stay. ``options`` are merged. Empty: the network with the full recipe.
        seeds: the number of trainings of an operator on this rung, with seeds from 0 up; the reward is their mean.
        keep: the share of the rung's trials that continue on the next rung, above 0 and at most 1.
        measure: the measure by which the rung ranks operators.
        unproven: whether the rung is used only after a validation in which it ranks better than FLOPs and parameters.

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
            kinds = ", ".join(map(repr, get_args(Measure)))
            raise SpecError(f"rung {self.name}: expected the measure as one of {kinds}, found {quoted(self.measure)}")

    @property
    def is_full(self) -> bool:
        """Whether the rung is the network itself with the full recipe."""
        return not self.changes


def proxies(*, resolution: int, steps: tuple[int, int] = (40, 156), **sizes: int) -> tuple[Rung, ...]:
    """Return the rungs of a backbone for images: two short trainings of a smaller network, then the network itself.

    The second rung is the first with more steps and two seeds. The default values are from the first successful search,
    on ResNet-20. ResNet-20's proxy was ResNet-8 at 16 x 16, with 40 and then 156 batches of 64 images. The first rung
    ranks by the training loss. In ResNet-20's validation the training loss agreed with the full recipe better than
    FLOPs and parameters did. The held-out loss after so few steps agreed less (``syno-lab search --validate-proxy``).
    """
    return _climbed({"options": dict(sizes), "resolution": resolution}, steps, ("training loss", "loss"))


def text_proxies(*, context: int, steps: tuple[int, int], **sizes: int) -> tuple[Rung, ...]:
    """Return the rungs of a backbone for text: fewer layers, a shorter context; unproven until a validation."""
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
    """Return the rungs of a user's own network: shorter trainings of the network itself, without a smaller network."""
    return (
        *(Rung(f"{number} steps", {"steps": number}, keep=1 / 4, measure="loss") for number in steps),
        Rung("network", keep=1 / 2),
    )
