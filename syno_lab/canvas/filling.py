"""The solver by constraints: numbers for G and for the remaining dynamic variables (Canvas, section 6.3).

A place is a convolution that a kernel replaces. All places of a network share the kernel and the number of groups. Each
place has its own numbers for the dynamic variables; equal places have equal numbers. A variable must be a multiple of
the least common multiple (lcm) of its denominators. The *base* solution is the least solution in proportion to the
channels of the places. The solver increases this solution within the budget. As in the paper, variables are doubled one
by one, the cheapest first. After this, each variable grows by a half, by a quarter, … down to one lcm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd, inf, lcm
from typing import NamedTuple

from syno_lab.canvas.kernel import Kernel
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.primitives import Cost
from syno_lab.canvas.shape import SYMBOLS, Size, static_part, variables_of, volume_of
from syno_lab.inputs import positive, quoted

#: The limit of elements of a tensor for one example: 512 examples of float32 stay within 31 bits.
MOST_ELEMENTS = (1 << 31) // 512


class Spent(NamedTuple):
    """FLOPs for one example, and weight elements."""

    flops: int
    params: int


class Solution(NamedTuple):
    """Values for the dynamic variables of a kernel at all places."""

    places: tuple[Place, ...]  # The places, all of different sizes.
    numbers: tuple[tuple[int, ...], ...]  # For each place, the values of the kernel's dynamic variables.
    spent: Spent  # The costs, summed over all places.


def solve(kernel: Kernel, places: Sequence[Place], budget: Budget, groups: int = 1) -> Solution | str:
    """Return the solution for :func:`syno_lab.canvas.fitted.fill` with these arguments, or why there is no solution."""
    merged = _merged(tuple(places))
    if not merged:
        return "expected at least one place, found none"
    if positive(groups) is None:
        return f"groups: expected a whole number from 1 up, found {quoted(groups)}"
    names = kernel.free
    ratios = [ratios_of(place, groups) for place in merged]
    index = {int(name[1:]): number for number, name in enumerate(names)}
    static, free = conditions_of(kernel)
    for place, known_ratios in zip(merged, ratios, strict=True):
        for size in static:
            above, below = known_ratios[size]
            if below > 1:
                return f"{place}: expected a whole number for {size.pretty} with G={groups}, found {above}/{below}"
    lcms = [lcms_of(free, len(names), known) for known in ratios]
    costs = _costs_of(kernel)
    solver = _Solver(
        [_terms(costs, index, place, known) for place, known in zip(merged, ratios, strict=True)],
        lcms,
        _base(merged, lcms, len(names)),
        budget,
    )
    for name, most, needed in zip(("FLOPs", "parameters"), solver.most, solver.spent, strict=True):
        if needed > most:
            return f"base solution: expected at most {most} {name}, found {quoted(needed)}"
    solver.fill()
    spent = Spent(*solver.spent)
    for name, least, spent_now in (
        ("FLOPs", budget.min_flops, spent.flops),
        ("parameters", budget.min_params, spent.params),
    ):
        if least is not None and spent_now < least:
            return f"filled solution: expected at least {least} {name}, found {spent_now}"
    numbers = tuple(map(tuple, solver.values))
    for shape in dict.fromkeys(kernel.shapes):
        for place, known_ratios, row in zip(merged, ratios, numbers, strict=True):
            above, below = known_ratios[shape.volume]
            elements = above * (1 if shape.free is None else row[index[shape.free]]) // below
            if elements > MOST_ELEMENTS:
                return f"{place}: expected tensors of at most {MOST_ELEMENTS} elements, found {shape} with {elements}"
    return Solution(merged, numbers, spent)


# A ratio times dynamic variables: numerator, denominator, the index of each variable (twice for a square).
_Term = tuple[int, int, tuple[int, ...]]


class Ratios(dict[Size, tuple[int, int]]):
    """The static parts of sizes at a place, as reduced ratios; a cache computes each ratio once."""

    def __init__(self, binding: dict[str, int]) -> None:
        super().__init__()
        self._binding = [binding.get(name, 1) for name in SYMBOLS.names]

    def __missing__(self, size: Size) -> tuple[int, int]:
        above = below = 1
        for number, power in zip(self._binding, static_part(size).exponents, strict=True):
            if power > 0:
                above *= number**power
            elif power:
                below *= number**-power
        common = gcd(above, below)
        self[size] = above // common, below // common
        return self[size]


@lru_cache(maxsize=1 << 10)
def ratios_of(place: Place, groups: int) -> Ratios:
    """Return the static parts of sizes at a place with this number of groups; the number of layers has no effect."""
    return Ratios(place.binding(groups))


@lru_cache(maxsize=1 << 6)
def _merged(places: tuple[Place, ...]) -> tuple[Place, ...]:
    layers = Counter[Place]()
    for place in places:
        layers[replace(place, layers=1)] += place.layers
    return tuple([replace(place, layers=number) for place, number in layers.items()])


def conditions_of(kernel: Kernel) -> tuple[list[Size], list[tuple[Size, int]]]:
    """Return two lists of sizes that must be whole: static sizes, and sizes with the index of a dynamic variable."""
    static, free = [], []
    for size in kernel.conditions:
        variables = variables_of(size)  # at most one variable (Theorem 1)
        if variables:
            free.append((size, kernel.free.index(f"x{variables[0][0]}")))
        else:
            static.append(size)
    return static, free


def lcms_of(conditions: Sequence[tuple[Size, int]], variables: int, ratios: Ratios) -> list[int]:
    """Return for each dynamic variable the number that must divide it, so that all sizes are whole."""
    multiples = [1] * variables
    for size, j in conditions:
        multiples[j] = lcm(multiples[j], ratios[size][1])
    return multiples


def _base(places: Sequence[Place], lcms: Sequence[Sequence[int]], variables: int) -> list[list[int]]:
    """Return the base solution in multiples of the lcm: 1 at the place of fewest channels, in proportion elsewhere."""
    multiples: list[list[int]] = [[] for _ in places]
    for j in range(variables):
        # Among places with equally few channels the least lcm counts, so that the order of places has no effect.
        channels, least = min((place.channels, lcms[i][j]) for i, place in enumerate(places))
        for i, place in enumerate(places):
            multiples[i].append(-(-place.channels * least // (channels * lcms[i][j])))
    return multiples


#: FLOPs and parameters of a kernel: pairs of a size and a number.
_Costs = tuple[tuple[tuple[Size, int], ...], tuple[tuple[Size, int], ...]]


def _costs_of(kernel: Kernel) -> _Costs:
    """Return the costs of one run of the template; costs of equal size are added."""

    def summed(costs: Sequence[Cost]) -> tuple[tuple[Size, int], ...]:
        by_size = Counter[Size]()
        for cost in costs:
            if cost.number:
                by_size[cost.size] += cost.number
        return tuple(by_size.items())

    return summed(kernel.flops_costs), summed([Cost(1, volume_of(weight)) for weight in kernel.weights])


def _terms(costs: _Costs, index: Mapping[int, int], place: Place, ratios: Ratios) -> tuple[list[_Term], list[_Term]]:
    """Return FLOPs and parameters at a place as polynomials of dynamic variables; ``index``: indices of variables."""
    times = place.parts * place.layers
    flops, params = (_polynomial(cost_sums, times, index, ratios) for cost_sums in costs)
    if place.pooling:
        flops.append((place.pooling, 1, ()))
    return flops, params


def _polynomial(costs: Sequence[tuple[Size, int]], times: int, index: Mapping[int, int], ratios: Ratios) -> list[_Term]:
    """Return a sum of costs, multiplied by ``times``, with one term for each product of variables."""
    by_powers: dict[tuple[int, ...], tuple[int, int]] = {}
    for size, number in costs:
        variables = variables_of(size)
        powers = tuple([index[variable] for variable, power in variables for _ in range(power)]) if variables else ()
        above, below = ratios[size]
        before, under = by_powers.get(powers, (0, below))
        common = lcm(under, below)
        by_powers[powers] = before * (common // under) + times * number * above * (common // below), common
    return [(above, below, powers) for powers, (above, below) in by_powers.items()]


def _value(terms: Sequence[_Term], numbers: Sequence[int]) -> int:
    total = 0
    for above, below, powers in terms:
        for j in powers:
            above *= numbers[j]
        total += above // below
    return total


class _Solver:
    """The variables' values at all places, as multiples of lcms; a budget limits the costs, and so the values.

    Costs are polynomials with positive factors, so a step never becomes cheaper. A step that exceeds the budget once
    exceeds it always.
    """

    def __init__(
        self,
        costs: Sequence[tuple[list[_Term], list[_Term]]],
        lcms: Sequence[Sequence[int]],
        multiples: list[list[int]],
        budget: Budget,
    ) -> None:
        self._costs, self._lcms, self._multiples = costs, lcms, multiples
        self.most = tuple([inf if most is None else most for most in (budget.max_flops, budget.max_params)])
        self._at = [self._cost(i, values) for i, values in enumerate(self.values)]
        self.spent = [sum(found) for found in zip(*self._at, strict=True)]

    @property
    def values(self) -> list[list[int]]:
        """The values of the dynamic variables at each place."""
        return [
            [a * b for a, b in zip(row, unit, strict=True)]
            for row, unit in zip(self._multiples, self._lcms, strict=True)
        ]

    def _cost(self, i: int, values: Sequence[int]) -> tuple[int, int]:
        flops, params = self._costs[i]
        return _value(flops, values), _value(params, values)

    def fill(self) -> None:
        """Double the variables, then increase them by a half, by a quarter, … down to one lcm, while they fit."""
        if min(self.most) == inf:
            return
        halvings = 0
        while True:
            self._grow(halvings)
            if all(multiple >> halvings <= 1 for row in self._multiples for multiple in row):
                return
            halvings += 1

    def _grow(self, halvings: int) -> None:
        """Repeat rounds in which each variable of each place grows by one step if the step fits, the cheapest first."""
        steps = [(i, j) for i, row in enumerate(self._multiples) for j in range(len(row))]
        prices = {(i, j): self._price(i, j, halvings) for i, j in steps}
        while steps:
            # The share of the tighter limit decides; a missing limit is infinite, so that its share is 0.
            steps.sort(key=lambda step: prices[step].share)
            fitting = []
            for i, j in steps:
                if self._take(i, j, prices[i, j]):
                    fitting.append((i, j))
                    # The cost of a step depends on the other variables of its place.
                    prices |= {(i, other): self._price(i, other, halvings) for other in range(len(self._multiples[i]))}
            steps = fitting

    def _price(self, i: int, j: int, halvings: int) -> _Price:
        row = self._multiples[i]
        multiple = row[j] + max(1, row[j] >> halvings)
        values = [a * b for a, b in zip(row, self._lcms[i], strict=True)]
        values[j] = multiple * self._lcms[i][j]
        after = self._cost(i, values)
        more = (after[0] - self._at[i][0], after[1] - self._at[i][1])
        return _Price(max(more[0] / self.most[0], more[1] / self.most[1]), more, after, multiple)

    def _take(self, i: int, j: int, price: _Price) -> bool:
        spent = [self.spent[0] + price.more[0], self.spent[1] + price.more[1]]
        if spent[0] > self.most[0] or spent[1] > self.most[1]:
            return False
        self.spent, self._at[i], self._multiples[i][j] = spent, price.after, price.multiple
        return True


class _Price(NamedTuple):
    """The cost of a step."""

    share: float  # The larger of the step's two shares: of the limit of FLOPs, and of parameters.
    more: tuple[int, int]  # The FLOPs and parameters that the step adds.
    after: tuple[int, int]  # Costs of the place after the step.
    multiple: int  # Multiple of the lcm after the step.
