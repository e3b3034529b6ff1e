"""The solver by constraints: numbers for G and for the dynamic variables that are left (Canvas, section 6.3).

A place is a convolution that a kernel replaces. All places of a network share the kernel and the number of groups; each
has its own numbers for the dynamic variables, equal places the same ones. A variable must be a multiple of the least
common multiple (lcm) of the denominators under it. The *base* solution is the least one that keeps to the channels of
the places. It grows while the budget allows: it is doubled variable by variable, the cheapest first, as the paper has
it, and then topped up by halves, quarters, … down to one lcm.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd, inf, lcm, prod
from typing import NamedTuple

from syno_lab.canvas.kernel import Kernel
from syno_lab.canvas.primitives import Cost
from syno_lab.canvas.sizes import SYMBOLS, Size, static_part, variables_of
from syno_lab.errors import SpecError
from syno_lab.inputs import positive, quoted


@dataclass(frozen=True)
class Place:
    """Equal convolutions of a network, to be replaced by one kernel with one solution.

    The template runs on C = min(c_in, c_out) channels, once for each of :attr:`parts` parts; a stride is pooled in
    front.

    Attributes:
        c_in, c_out: channels, one a multiple of the other.
        h, w: rows and columns of the output.
        kh, kw: the window, odd.
        stride: of the convolution.
        layers: how many there are.

    Raises:
        SpecError: where a number is none of these: which, and what was expected.
    """

    c_in: int
    c_out: int
    h: int
    w: int
    kh: int = 3
    kw: int = 3
    stride: int = 1
    layers: int = 1

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            if positive(number) is None:
                raise SpecError(f"place: expected a whole number from 1 up for {name}, found {quoted(number)}")
        if max(self.c_in, self.c_out) % self.channels:
            raise SpecError(
                "place: expected c_in and c_out of which one is a multiple of the other, "
                f"found {self.c_in} and {self.c_out}"
            )
        for name, number in (("kh", self.kh), ("kw", self.kw)):
            if number % 2 == 0:
                raise SpecError(f"place: expected an odd number for {name}, found {number}: a window has a middle")

    @property
    def channels(self) -> int:
        """C of the template."""
        return min(self.c_in, self.c_out)

    @property
    def parts(self) -> int:
        """How often the template runs, each time with weights of its own (section 4)."""
        return max(self.c_in, self.c_out) // self.channels

    @property
    def params(self) -> int:
        """Weight elements of the convolutions themselves."""
        return self.layers * self.c_in * self.c_out * self.kh * self.kw

    @property
    def flops(self) -> int:
        """FLOPs of the convolutions themselves for one example, 2 for each multiply-add."""
        return 2 * self.params * self.h * self.w

    @property
    def pooling(self) -> int:
        """FLOPs for one example of the pooling in front."""
        return self.layers * self.stride**2 * self.c_in * self.h * self.w if self.stride > 1 else 0

    def binding(self, groups: int) -> dict[str, int]:
        """The numbers of the template's variables but for the dynamic ones."""
        return {"C": self.channels, "H": self.h, "W": self.w, "KH": self.kh, "KW": self.kw, "G": groups}

    def __str__(self) -> str:
        return f"place {self.c_in}->{self.c_out}, {self.h}x{self.w}, window {self.kh}x{self.kw}"


@dataclass(frozen=True)
class Budget:
    """Limits of the sums over all places; None is no limit.

    Attributes:
        max_flops, max_params: the most FLOPs for one example, and the most weight elements: the solver fills up.
        min_flops, min_params: the least that must be used after that.

    Raises:
        SpecError: where a limit is no whole number from 1 up, or a lower one is above the upper one.
    """

    max_flops: int | None = None
    max_params: int | None = None
    min_flops: int | None = None
    min_params: int | None = None

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            if number is not None and positive(number) is None:
                raise SpecError(f"budget: expected a whole number from 1 up or None for {name}, found {quoted(number)}")
        for name, least, most in (
            ("flops", self.min_flops, self.max_flops),
            ("params", self.min_params, self.max_params),
        ):
            if least is not None and most is not None and least > most:
                raise SpecError(f"budget: expected min_{name} of at most {most}, which is max_{name}, found {least}")

    @classmethod
    def of_shares(
        cls,
        places: Sequence[Place],
        *,
        max_flops: float | None = None,
        max_params: float | None = None,
        min_flops: float | None = None,
        min_params: float | None = None,
    ) -> Budget:
        """The budget of shares of what the convolutions themselves cost; raises SpecError for one not above 0."""
        flops, params = sum(place.flops for place in places), sum(place.params for place in places)

        def part(name: str, share: float | None, of: int) -> int | None:
            if share is None:
                return None
            if not 0 < share < inf:
                raise SpecError(f"budget: expected a share above 0 for {name}, found {quoted(share)}")
            return max(1, int(share * of))

        return cls(
            part("max_flops", max_flops, flops),
            part("max_params", max_params, params),
            part("min_flops", min_flops, flops),
            part("min_params", min_params, params),
        )


class Spent(NamedTuple):
    """FLOPs for one example, and weight elements."""

    flops: int
    params: int


@dataclass(frozen=True)
class Fitted:
    """A kernel with numbers for every place of a network.

    Attributes:
        kernel: the template.
        groups: the number of groups; 1 where the kernel has no G.
        places: no two of equal sizes.
        solutions: for each place, the numbers of :attr:`numbers_of`.
        spent: the sums over all places.
    """

    kernel: Kernel
    groups: int
    places: tuple[Place, ...]
    solutions: tuple[tuple[int, ...], ...]
    spent: Spent

    def binding(self, place: Place) -> dict[str, int]:
        """All numbers of the template at a place, whatever its number of layers.

        Raises:
            SpecError: for a place that is not among :attr:`places`.
        """
        for known, solution in zip(self.places, self.solutions, strict=True):
            if replace(known, layers=place.layers) == place:
                return place.binding(self.groups) | dict(zip(self.kernel.free, solution, strict=True))
        raise SpecError(f"expected a place that was solved, such as {self.places[0]}; found {place}")


def group_choices_of(places: Sequence[Place]) -> tuple[int, ...]:
    """The numbers of groups to draw from: the divisors from 2 up that all C have in common (section 6.3)."""
    common = gcd(*[place.channels for place in places])
    small = [number for number in range(1, int(common**0.5) + 1) if common % number == 0]
    return tuple(sorted({found for number in small for found in (number, common // number)} - {1}))


def group_choices(kernel: Kernel, places: Sequence[Place]) -> tuple[int, ...]:
    """:func:`group_choices_of` the places, or 1 for a kernel without G."""
    return group_choices_of(places) if "G" in kernel.variables else (1,)


def fit(kernel: Kernel, places: Sequence[Place], budget: Budget, rng: random.Random) -> Fitted | str:
    """Draw a number of groups and :func:`fill`; or why there is no solution, in one line."""
    choices = group_choices(kernel, places)
    if not choices:
        found = ", ".join(map(str, sorted({place.channels for place in places})[:8])) or "no place"
        return f"groups: expected channels with a common divisor from 2 up, found {found}"
    return fill(kernel, places, budget, rng.choice(choices))


def fill(kernel: Kernel, places: Sequence[Place], budget: Budget, groups: int = 1) -> Fitted | str:
    """The dynamic variables of a kernel at all places, filled up to the budget.

    Args:
        kernel: the template.
        places: what it replaces; those of equal sizes are taken together.
        budget: for the sums over all places. Without an upper limit the base solution stays.
        groups: the number for G.

    Returns:
        The solution, or why there is none, in one line.
    """
    merged = _merged(tuple(places))
    if not merged:
        return "expected at least one place, found none"
    if positive(groups) is None:
        return f"groups: expected a whole number from 1 up, found {quoted(groups)}"
    names = kernel.free
    ratios = [_ratios_of(replace(place, layers=1), groups) for place in merged]
    for place, known in zip(merged, ratios, strict=True):
        for size in kernel.conditions:
            if not variables_of(size) and known[size][1] > 1:
                above, below = known[size]
                return f"{place}: expected a whole number for {size.pretty} with G={groups}, found {above}/{below}"
    lcms = [_lcms(kernel, known) for known in ratios]
    costs = _costs_of(kernel)
    index = {int(name[1:]): number for number, name in enumerate(names)}
    solver = _Solver(
        [_terms(costs, index, place, known) for place, known in zip(merged, ratios, strict=True)],
        lcms,
        _base(merged, lcms, len(names)),
        budget,
    )
    why = solver.over_budget
    if why is not None:
        return f"base solution: {why}"
    solver.fill()
    spent = Spent(*solver.spent)
    for what, least, found in (
        ("FLOPs", budget.min_flops, spent.flops),
        ("parameters", budget.min_params, spent.params),
    ):
        if least is not None and found < least:
            return f"filled solution: expected at least {least} {what}, found {found}"
    return Fitted(kernel, groups, merged, tuple(map(tuple, solver.values)), spent)


# A product of powers of dynamic variables with a ratio in front: numerator, denominator, (number, power) of each.
_Term = tuple[int, int, tuple[tuple[int, int], ...]]


class _Ratios(dict[Size, tuple[int, int]]):
    """The static parts of sizes at a place, as reduced ratios; each is found once."""

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
def _ratios_of(place: Place, groups: int) -> _Ratios:
    return _Ratios(place.binding(groups))


@lru_cache(maxsize=1 << 6)
def _merged(places: tuple[Place, ...]) -> tuple[Place, ...]:
    """The places with those of equal sizes as one."""
    layers: dict[Place, int] = {}
    for place in places:
        alone = replace(place, layers=1)
        layers[alone] = layers.get(alone, 0) + place.layers
    return tuple([replace(place, layers=number) for place, number in layers.items()])


def _lcms(kernel: Kernel, ratios: _Ratios) -> list[int]:
    """For each dynamic variable what it must be a multiple of; a size has one variable at most (Theorem 1)."""
    found = dict.fromkeys(kernel.free, 1)
    for size in kernel.conditions:
        for number, _ in variables_of(size):
            found[f"x{number}"] = lcm(found[f"x{number}"], ratios[size][1])
    return list(found.values())


def _base(places: Sequence[Place], lcms: Sequence[Sequence[int]], variables: int) -> list[list[int]]:
    """The base solution, in multiples of the lcm: 1 at the place of the fewest channels, in proportion elsewhere."""
    found: list[list[int]] = [[] for _ in places]
    for j in range(variables):
        # Of places with equally few channels that of the least lcm, so that the order of places plays no part.
        channels, least = min((place.channels, lcms[i][j]) for i, place in enumerate(places))
        for i, place in enumerate(places):
            found[i].append(-(-place.channels * least // (channels * lcms[i][j])))
    return found


class _Costs(NamedTuple):
    """FLOPs and parameters of a kernel: numbers by sizes."""

    flops: tuple[tuple[Size, int], ...]
    params: tuple[tuple[Size, int], ...]


def _costs_of(kernel: Kernel) -> _Costs:
    """The costs of one run of the template, those of equal sizes together."""

    def summed(costs: Sequence[Cost]) -> tuple[tuple[Size, int], ...]:
        found: dict[Size, int] = {}
        for cost in costs:
            if cost.number:
                found[cost.size] = found.get(cost.size, 0) + cost.number
        return tuple(found.items())

    return _Costs(summed(kernel.flops_costs), summed([Cost(1, a * b * c) for a, b, c in kernel.weights]))


def _terms(costs: _Costs, index: Mapping[int, int], place: Place, ratios: _Ratios) -> tuple[list[_Term], list[_Term]]:
    """FLOPs and parameters of a place as polynomials of the dynamic variables; ``index`` counts these."""
    times = place.parts * place.layers
    flops, params = (
        [
            (
                number * times * ratios[size][0],
                ratios[size][1],
                tuple([(index[variable], power) for variable, power in variables_of(size)]),
            )
            for size, number in found
        ]
        for found in costs
    )
    if place.pooling:
        flops.append((place.pooling, 1, ()))
    return flops, params


def _value(terms: Sequence[_Term], numbers: Sequence[int]) -> int:
    return sum(above * prod(numbers[j] ** power for j, power in powers) // below for above, below, powers in terms)


class _Solver:
    """Multiples of lcms at all places, with what they cost, and how they grow within a budget.

    Costs are polynomials with positive factors, so what one step costs never falls while others grow: a step that does
    not fit once will not fit later.
    """

    def __init__(
        self,
        costs: Sequence[tuple[list[_Term], list[_Term]]],
        lcms: Sequence[Sequence[int]],
        multiples: list[list[int]],
        budget: Budget,
    ) -> None:
        self._costs, self._lcms, self._multiples, self._budget = costs, lcms, multiples, budget
        self._most = tuple([inf if most is None else most for most in (budget.max_flops, budget.max_params)])
        self._at = [self._cost(i, values) for i, values in enumerate(self.values)]
        self.spent = [sum(found) for found in zip(*self._at, strict=True)]

    @property
    def values(self) -> list[list[int]]:
        """The numbers of the dynamic variables at each place."""
        return [
            [a * b for a, b in zip(row, unit, strict=True)]
            for row, unit in zip(self._multiples, self._lcms, strict=True)
        ]

    @property
    def over_budget(self) -> str | None:
        for what, most, found in zip(("FLOPs", "parameters"), self._most, self.spent, strict=True):
            if found > most:
                return f"expected at most {most} {what}, found {quoted(found)}"
        return None

    def _cost(self, i: int, values: Sequence[int]) -> tuple[int, int]:
        flops, params = self._costs[i]
        return _value(flops, values), _value(params, values)

    def fill(self) -> None:
        """Grow by the whole number, by a half, by a quarter, …, by one lcm, until nothing fits."""
        if min(self._most) == inf:
            return
        halvings = 0
        while True:
            self._grow(halvings)
            if all(multiple >> halvings <= 1 for row in self._multiples for multiple in row):
                return
            halvings += 1

    def _grow(self, halvings: int) -> None:
        """Rounds in which each variable of each place takes one step where it fits, in ascending order of its cost."""
        left = [(i, j) for i, row in enumerate(self._multiples) for j in range(len(row))]
        prices = {(i, j): self._price(i, j, halvings) for i, j in left}
        while left:
            # By the share of the limit that is hit hardest; a budget without that limit divides by infinity.
            left.sort(key=lambda step: prices[step].share)
            fitting = []
            for i, j in left:
                if self._take(i, j, prices[i, j]):
                    fitting.append((i, j))
                    # What a step costs depends on the other variables of its place.
                    prices |= {(i, other): self._price(i, other, halvings) for other in range(len(self._multiples[i]))}
            left = fitting

    def _price(self, i: int, j: int, halvings: int) -> _Price:
        row = self._multiples[i]
        multiple = row[j] + max(1, row[j] >> halvings)
        values = [a * b for a, b in zip(row, self._lcms[i], strict=True)]
        values[j] = multiple * self._lcms[i][j]
        after = self._cost(i, values)
        more = (after[0] - self._at[i][0], after[1] - self._at[i][1])
        return _Price(max(more[0] / self._most[0], more[1] / self._most[1]), more, after, multiple)

    def _take(self, i: int, j: int, price: _Price) -> bool:
        """Take a step where it fits."""
        spent = [self.spent[0] + price.more[0], self.spent[1] + price.more[1]]
        if spent[0] > self._most[0] or spent[1] > self._most[1]:
            return False
        self.spent, self._at[i], self._multiples[i][j] = spent, price.after, price.multiple
        return True


class _Price(NamedTuple):
    """What a step costs.

    Attributes:
        share: the larger of its shares of the two limits.
        more: FLOPs and parameters.
        after: those of the place after it.
        multiple: the multiple of the lcm after it.
    """

    share: float
    more: tuple[int, int]
    after: tuple[int, int]
    multiple: int
