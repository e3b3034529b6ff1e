"""Copies along an axis in torch modules: rolled, split, summed, kept or weighted, against the loop nest."""

import random
from itertools import product
from math import prod

import pytest
from torch_oracle import agrees

from syno_lab.codegen.torch_choice import Form
from syno_lab.codegen.torch_module import to_torch_source
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.pgraphs.traits import stored_elements

FORMS = [Form(*values) for values in product(("best", "naive"), (True, False), (False, True))]


def copied(rng: random.Random, shifts: int, ways: list[str], places: int, periodic: bool) -> Operator:
    """An axis of ``places`` times 3 positions and digits behind it, rolled and read from copies of few elements.

    ``ways`` says of each digit whether it is an output axis, summed, or summed with a weight.
    """
    sizes = [rng.choice([1, 2, 3]) for _ in ways]
    total = places * 3 * prod(sizes)
    low = rng.choice([n for n in range(1, total + 1) if total % n == 0])
    if rng.random() < 0.5:
        low = prod(sizes) * places  # copies are all that the digits count
    names = [f"d{i}={size}" for i, size in enumerate(sizes)] + [f"L={low}"]
    high_size = "*".join([*(f"d{i}" for i in range(len(sizes))), "P", "L^-1"])
    outputs = ["N", "P", *(f"d{i}" for i, way in enumerate(ways) if way == "keep"), "W"]
    build = Build(
        f"[N, {'L' if periodic else high_size}, W]",
        f"[{', '.join(outputs)}]",
        ["N=2", f"P={3 * places}", "W=2"],
        names,
        fixed_io_pairs=[(0, 0)],
    )
    n, position, *kept, w = build.output
    digits = [kept.pop(0) if way == "keep" else build.reduce(f"d{i}") for i, way in enumerate(ways)]
    if "weight" in ways:
        build.contract(share=[digit for digit, way in zip(digits, ways, strict=True) if way == "weight"])
    for digit in digits:
        position = build.split(position, digit)
    for _ in range(shifts):
        position = build.shift(position)
    high, lowest = build.merge(position, "L")
    build.expand(high if periodic else lowest)
    return build.finish(n, lowest if periodic else high, w)


@pytest.mark.parametrize("periodic", [False, True], ids=["copies", "periodic"])
@pytest.mark.parametrize("shifts", [0, 1, 2, 5])
def test_copies_are_the_loop_nest_in_every_form(shifts: int, periodic: bool, rng: random.Random) -> None:
    for number in range(12):
        ways = [rng.choice(["keep", "sum", "sum", "weight"]) for _ in range(rng.randint(0, 3))]
        operator = copied(rng, shifts, ways, rng.choice([1, 2]), periodic)
        binding = operator.complete_binding(None)
        agrees(operator, binding)
        agrees(operator, binding, FORMS[number % len(FORMS)])


def rolled_copies(shifts: int = 1) -> Operator:
    """Sums of four copies of each channel, rolled: three parts the channel and one the next, for one shift."""
    build = Build("[N, C, H]", "[N, C, H]", ["N=2", "C=6", "H=5"], ["a=2"], fixed_io_pairs=[(0, 0)])
    n, c, h = build.output
    p, q = build.reduce("a"), build.reduce("a")
    rolled = build.split(build.split(c, p), q)
    for _ in range(shifts):
        rolled = build.shift(rolled)
    channel, copy = build.merge(rolled, "a^2")
    build.expand(copy)
    return build.finish(n, channel, h)


@pytest.mark.parametrize("shifts", [1, 2, 4, 7])
def test_rolled_copies_that_are_summed_are_never_written(shifts: int) -> None:
    operator = rolled_copies(shifts)
    binding = operator.complete_binding(None)
    source = to_torch_source(operator, binding)
    assert ".expand(" not in source
    assert "torch.cat(" not in source
    assert source.count(".roll(") <= 2
    assert stored_elements(operator, binding) == 0
    agrees(operator, binding)


def test_copies_that_are_kept_are_written_once() -> None:
    build = Build("[N, C, H]", "[N, a*C, H]", ["N=2", "C=6", "H=5"], ["a=4"], fixed_io_pairs=[(0, 0)])
    n, c, h = build.output
    channel, copy = build.merge(build.shift(c), "a")
    build.expand(copy)
    operator = build.finish(n, channel, h)
    binding = operator.complete_binding(None)
    assert stored_elements(operator, binding) == 2 * 24 * 5
    agrees(operator, binding)


def test_neighbouring_rolls_are_one() -> None:
    build = Build("[N, C]", "[N, C]", ["N=2", "C=6"], [], fixed_io_pairs=[(0, 0)])
    n, c = build.output
    operator = build.finish(n, build.shift(build.shift(build.shift(c))))
    assert "x.roll(-3, 1)" in to_torch_source(operator)
    agrees(operator, operator.complete_binding(None))


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("dilation", [2, 3, 4])
@pytest.mark.parametrize("window", [3, 4, 7])
def test_dilated_windows_are_summed_by_bands_of_blocks(place: int, dilation: int, window: int) -> None:
    """Lengths that the dilation divides and others, windows that reach beyond both ends, and axes behind and before."""
    for length in (8, 9, 12, 17):
        build = Build(
            "[N, H, C]" if place == 1 else "[N, C, H]" if place == 2 else "[H, C]",
            "[N, H, C]" if place == 1 else "[N, C, H]" if place == 2 else "[H, C]",
            ["N=2", f"H={length}", "C=8"],
            [f"k={window}", f"d={dilation}"],
            fixed_io_pairs=[(0, 0)] if place else [],
        )
        axes = list(build.output)
        axes[place] = build.unfold(axes[place], build.stride(build.reduce("k"), "d"))
        operator = build.finish(*axes)
        binding = operator.complete_binding(None)
        is_wide = place < 2  # else the remainders alone are columns
        assert ("torch.bmm(torch.ones(" in to_torch_source(operator, binding)) == is_wide
        agrees(operator, binding)
        agrees(operator, binding, Form(matrices=False))
