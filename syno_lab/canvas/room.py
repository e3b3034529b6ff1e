"""What a kernel of Canvas may become while it grows, and the least that its nodes cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import inf

from syno_lab.canvas.filling import ratios_of
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.primitives import PRIMITIVES, Primitive, flops_of, weight_of
from syno_lab.canvas.rules import RULES, Rule, RulesOf, rules_of
from syno_lab.canvas.shape import Shape, Size, volume_of


class LeastCosts:
    """The least FLOPs and parameters that sizes stand for at all places together: every dynamic variable is 1.

    ``groups`` are the numbers that G may have.
    """

    def __init__(self, places: Sequence[Place], budget: Budget, *groups: int) -> None:
        self.most_flops = inf if budget.max_flops is None else budget.max_flops
        self.most_params = inf if budget.max_params is None else budget.max_params
        self.pooling = sum(place.pooling for place in places)
        self._ratios = [
            [(place.parts * place.layers, ratios_of(place, number)) for place in places] for number in groups
        ]
        #: FLOPs and parameters of a primitive on tensors of these shapes; most are asked for often.
        self.of_node = lru_cache(maxsize=1 << 16)(self._of_node)

    def of(self, size: Size) -> float:
        """The sum over all places, each part of each layer on its own; a size that must be whole is at least 1."""
        return min([sum([times * max(1.0, _quotient(known[size])) for times, known in row]) for row in self._ratios])

    def _of_node(self, primitive: Primitive, shapes: tuple[Shape, ...]) -> tuple[float, float]:
        flops = flops_of(primitive, shapes)
        weight = weight_of(primitive, shapes[0])
        return (
            flops.number * self.of(flops.size) if flops.number else 0.0,
            0.0 if weight is None else self.of(volume_of(weight)),
        )


def _quotient(ratio: tuple[int, int]) -> float:
    return ratio[0] / ratio[1]


@dataclass(frozen=True)
class Room:
    """What a kernel may become: its number of primitives, and what it must and may have.

    Attributes:
        primitives: how many a kernel has, input and output not counted.
        width: the most leaves at a time.
        fcs: the fewest and the most FCs.
        include: the names of the primitives that it may have.
        must_have: the names of those of them that it must have, once at least.
        without: primitives, as text, that make no sense in these places: ``group G`` without a common divisor.
        must_mix: whether it must have a primitive that reads along H and one along W.
        prefers_free: whether draws take steps that keep dynamic variables more often.
        costs: the least costs, held against the budget; None: without a budget.
        rules: that prune it.
    """

    primitives: int
    width: int = 8
    fcs: tuple[int, int] = (1, 4)
    include: frozenset[str] = frozenset(PRIMITIVES)
    must_have: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    must_mix: bool = True
    prefers_free: bool = False
    costs: LeastCosts | None = field(default=None, compare=False)
    rules: tuple[Rule, ...] = RULES

    @cached_property
    def rules_of(self) -> RulesOf:
        """The rules by the names of primitives."""
        return rules_of(self.rules)
