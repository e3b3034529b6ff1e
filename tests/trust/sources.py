"""Where the operators of a run come from: the sampler over several specs, and the random builder, in turn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from math import prod
from typing import Any

from strategies import random_operator

from syno_lab.api import Operator, Sampler
from syno_lab.errors import SpecError

#: What the random builder is called in reports.
BUILT = "built at random"
#: The loop nest runs in Python: bounds of all its iterations, and of those that are not over output axes.
MAX_ITERATIONS, MAX_REDUCED = 6000, 300
#: Operators drawn for one spec before it gets another binding.
BLOCK = 150


@dataclass(frozen=True)
class Case:
    """One operator of a run, as the text that a stranger would be given.

    Attributes:
        text: the operator's JSON.
        binding: the sizes it is run with.
        seed: of the numbers in its tensors.
        source: a name in :data:`SPECS`, or :data:`BUILT`.
    """

    text: str
    binding: dict[str, int]
    seed: int
    source: str

    @cached_property
    def operator(self) -> Operator:
        """Read from the text, so that what is checked is what is printed."""
        return Operator.from_json(self.text)


@dataclass(frozen=True)
class Source:
    """A spec for the sampler, and small bindings for it drawn at random."""

    arguments: tuple[str, str, list[str], list[str]]
    binding: Callable[[random.Random], dict[str, int]]
    options: dict[str, Any]

    def sampler(self, rng: random.Random) -> tuple[Sampler, dict[str, int]]:
        """A sampler under a new binding, which every operator it draws fits."""
        binding = self.binding(rng)
        return Sampler(*self.arguments, mappings=[binding], seed=rng.getrandbits(32), **self.options), binding


def _conv(rng: random.Random) -> dict[str, int]:
    g = rng.choice((1, 2, 2, 3))
    return {
        "N": 1,
        "C_in": g * rng.choice((1, 2)),
        "C_out": g * rng.choice((1, 2, 3)),
        "H": rng.choice((1, 3, 4, 5)),
        "W": rng.choice((2, 6)),
        "k_1": rng.choice((1, 3, 3)),
        "k_2": rng.choice((2, 4, 5)),
        "g": g,
    }


def _line(rng: random.Random) -> dict[str, int]:
    return {
        "N": rng.choice((1, 2)),
        "C_in": rng.choice((1, 2, 3)),
        "C_out": rng.choice((2, 4)),
        "H": rng.choice((2, 5, 6)),
        "k": rng.choice((2, 3, 3, 5, 7)),
    }


def _pool(rng: random.Random) -> dict[str, int]:
    return {
        "N": 1,
        "C": rng.choice((1, 2)),
        "H": rng.choice((1, 3)),
        "W": rng.choice((2, 3)),
        "k": rng.choice((3, 4)),
        "s": rng.choice((2, 3)),
    }


def _coefficients(rng: random.Random) -> dict[str, int]:
    s, g = rng.choice(((2, 2), (2, 3), (3, 2)))
    return {
        "C": g * rng.choice((1, 2)),
        "D": g * rng.choice((1, 2)),
        "H": s * rng.choice((1, 2, 3)),
        "k": rng.choice((3, 5)),
        "e": rng.choice((2, 4)),
        "s": s,
        "g": g,
    }


def _readme(rng: random.Random) -> dict[str, int]:
    s = rng.choice((2, 2, 3))
    return {"H": 6 * rng.choice((1, 2)), "W": 6, "s_1": s, "s_2": 5 - s}


def _product(rng: random.Random) -> dict[str, int]:
    g = rng.choice((2, 3))
    return {"M": g * rng.choice((1, 2)), "K": g * rng.choice((1, 2, 3)), "L": g * rng.choice((1, 2)), "g": g}


def _larger(rng: random.Random) -> dict[str, int]:
    return {
        "C": rng.choice((1, 2, 3)),
        "H": rng.choice((1, 2, 4)),
        "s": rng.choice((2, 3)),
        "k": rng.choice((2, 3, 4, 5)),
    }


def _strided(rng: random.Random) -> dict[str, int]:
    return {
        "N": rng.choice((1, 2)),
        "C_in": rng.choice((1, 2)),
        "C_out": rng.choice((2, 3)),
        "H": rng.choice((1, 3, 4)),
        "k": rng.choice((2, 3, 4, 5)),
        "s": rng.choice((2, 3)),
    }


BATCH = {"fixed_io_pairs": [(0, 0)]}
#: Specs by name. Budgets are such that a sampler starts in a second or two.
SPECS = {
    "conv": Source(
        (
            "[N, C_in, H, W]",
            "[N, C_out, H, W]",
            ["N: 0", "C_in: 3", "C_out: 0", "H: 0", "W: 0"],
            ["k_1: 4", "k_2: 3", "g: 3"],
        ),
        _conv,
        {**BATCH, "max_primitives": 9},
    ),
    "readme": Source(
        ("[H, W]", "[H, W]", ["H: 2", "W: 2"], ["s_1: 2", "s_2: 2"]),
        _readme,
        {"max_primitives": 8},
    ),
    "1-D": Source(
        ("[N, C_in, H]", "[N, C_out, H]", ["N: 0", "C_in: 3", "C_out: 1", "H: 1"], ["k: 4"]),
        _line,
        {**BATCH, "max_primitives": 8},
    ),
    "pooling": Source(
        ("[N, C, s*H, s*W]", "[N, C, H, W]", ["N: 0", "C: 1", "H: 1", "W: 1"], ["k: 3", "s: 4"]),
        _pool,
        {**BATCH, "max_primitives": 8, "max_tensors": 1, "min_weights": 0},
    ),
    "several coefficients": Source(
        ("[C, H]", "[D, H]", ["C: 2", "D: 0", "H: 1"], ["k: 3", "e: 2", "s: 2", "g: 2"]),
        _coefficients,
        {"max_primitives": 6},
    ),
    "matmul": Source(
        ("[M, K]", "[M, L]", ["M: 1", "K: 2", "L: 1"], ["g: 2"]),
        _product,
        {"max_primitives": 7},
    ),
    "up-sampling": Source(
        ("[C, H]", "[C, s*H]", ["C: 2", "H: 1"], ["s: 4", "k: 3"]),
        _larger,
        {"max_primitives": 7, "min_weights": 0},
    ),
    "strided": Source(
        ("[N, C_in, s*H]", "[N, C_out, H]", ["N: 0", "C_in: 2", "C_out: 1", "H: 0"], ["k: 3", "s: 3"]),
        _strided,
        {**BATCH, "max_primitives": 8},
    ),
}


def cases(seed: int) -> Iterator[Case]:
    """Without end: one drawn by the sampler, one built at random, and so on, no operator twice under one binding."""
    drawn, built = _drawn(seed), _built(seed)
    seen: set[tuple[Operator, tuple[tuple[str, int], ...]]] = set()
    for number in count():
        for operator, binding, source in drawn if number % 2 == 0 else built:
            key = (operator, tuple(sorted(binding.items())))
            if key not in seen:
                seen.add(key)
                yield Case(operator.to_json(), binding, seed + number, source)
                break


def _built(seed: int) -> Iterator[tuple[Operator, dict[str, int], str]]:
    for number in count():
        operator, binding = random_operator(random.Random(f"{seed}, built {number}"))
        yield operator, binding, BUILT


def _drawn(seed: int) -> Iterator[tuple[Operator, dict[str, int], str]]:
    streams = {name: _of_spec(name, random.Random(f"{seed}, {name}")) for name in SPECS}
    while True:
        for name, stream in streams.items():
            yield *next(stream), name


def _of_spec(name: str, rng: random.Random) -> Iterator[tuple[Operator, dict[str, int]]]:
    while True:
        sampler, binding = SPECS[name].sampler(rng)
        given = 0
        try:
            for operator in sampler.samples():
                if is_small(operator, binding):
                    yield operator, binding
                    given += 1
                if given == BLOCK:
                    break
        except SpecError:
            continue  # some bindings have no operator: K = 1 where all digits are K, say


def is_small(operator: Operator, binding: dict[str, int]) -> bool:
    """Whether the loop nest runs in a blink."""
    reduced = prod(c.size.at(binding) for c in operator.reductions)
    return reduced <= MAX_REDUCED and reduced * prod(operator.output_sizes(binding)) <= MAX_ITERATIONS
