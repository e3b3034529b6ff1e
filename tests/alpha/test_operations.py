"""Rows of the table against PyTorch: shapes, costs, and pairings against the full Jacobian."""

from __future__ import annotations

import random
import time
from collections import Counter
from math import prod

import pytest
import torch
from alpha_in_torch import Shape, draw, module
from alpha_networks import representatives
from torch.func import jacrev
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from syno_lab.alpha import OPERATIONS, Operation, Rel, operation
from syno_lab.alpha.operations import choices
from syno_lab.alpha.pairings import Windows, of_reshape, of_windows
from syno_lab.errors import SpecError

# An operation of another system is held against its own system: test_operator_node.
IN_TORCH = [name for name in OPERATIONS if name not in ("opaque", "operator")]


@pytest.mark.parametrize("name", IN_TORCH)
def test_shapes_params_and_flops_are_pytorch_s(name: str, rng: random.Random) -> None:
    for _ in range(25):
        found, shapes = draw(rng, name)
        made = module(found, *shapes)
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            result = made(*map(torch.randn, shapes))
        assert found.shape(*shapes) == tuple(result.shape), (found, shapes)
        assert found.params(*shapes) == sum(weight.numel() for weight in made.parameters()), (found, shapes)
        assert found.flops(*shapes) == counter.get_total_flops(), (found, shapes)


def contributes(found: Operation, shapes: tuple[Shape, ...]) -> list[torch.Tensor]:
    """For each input, whether each element of the result (first axes) depends on each of its elements (last axes).

    A derivative that is not identically zero vanishes at a random point with probability 0; three points are there for
    values that rounding takes for zero.
    """
    made = module(found, *shapes, smooth=True).double()
    which = tuple(range(len(shapes)))
    depends = None
    if not shapes:
        return []
    for _ in range(3):
        # Attention has no derivative under vmap in the fast kernels.
        with sdpa_kernel(SDPBackend.MATH):
            parts = jacrev(made, argnums=which)(*(torch.randn(shape, dtype=torch.float64) for shape in shapes))
        now = [part.abs() > 1e-11 for part in parts]
        depends = now if depends is None else [a | b for a, b in zip(depends, now, strict=True)]
    return depends or []


def pairing(depends: torch.Tensor, outs: int) -> tuple[tuple[str, ...], ...]:
    """Definitions 3.4 and 3.5, read literally."""
    ins = depends.dim() - outs
    rows = []
    for k in range(outs):
        slices = depends.any(dim=k)  # a set of output elements contributes what one of them does
        row = []
        for axis in range(ins):
            others = [outs - 1 + i for i in range(ins) if i != axis]
            of_slices = slices.any(dim=others) if others else slices
            if not of_slices.all(-1).any():
                row.append("x")
                continue
            others = [outs + i for i in range(ins) if i != axis]
            of_elements = depends.any(dim=others) if others else depends
            most = int(of_elements.sum(-1).max())
            row.append("a" if most == of_elements.shape[-1] else "m" if most > 1 else "o")
        rows.append(tuple(row))
    return tuple(rows)


@pytest.mark.parametrize("name", IN_TORCH)
def test_pairings_are_those_of_the_jacobian(name: str, rng: random.Random) -> None:
    draws = {"conv": 40, "reshape": 30, "einsum": 20, "group_norm": 20, "average_pool": 20}.get(name, 8)
    for _ in range(draws):
        found, shapes = draw(rng, name)
        while prod(found.shape(*shapes)) * max(map(prod, shapes), default=1) > 150_000:
            found, shapes = draw(rng, name)
        outs = len(found.shape(*shapes))
        exact = [pairing(depends, outs) for depends in contributes(found, shapes)]
        assert [each.marks for each in found.pairings(*shapes)] == exact, (found, shapes)


def test_marks_of_windows_are_those_of_the_loop(rng: random.Random) -> None:
    def looped(windows: Windows) -> str | None:
        seen: set[int] = set()
        most = 0
        for place in range(windows.number):
            read = [place * windows.step - windows.before + i * windows.apart for i in range(windows.width)]
            inside = [position for position in read if 0 <= position < windows.size]
            seen.update(inside)
            most = max(most, len(inside))
        if len(seen) < windows.size:
            return "x" if seen else None
        return "a" if most == windows.size else "m" if most > 1 else "o"

    found = Counter[str | None]()
    for _ in range(6_000):
        width, step, apart = rng.randint(1, 9), rng.randint(1, 6), rng.choice([1, 1, 2, 3, 4])
        size, before = rng.randint(1, rng.choice([3, 12, 300])), rng.randint(-2, 9)
        fitting = max(1, (size + before + rng.randint(-3, width * apart) - width * apart) // step + 1)
        windows = Windows(size, rng.choice([fitting, rng.randint(1, 40)]), width, step, apart, before)
        assert of_windows(windows) == looped(windows), windows
        found[of_windows(windows)] += 1
    assert min(found[mark] for mark in ("a", "m", "o", "x", None)) > 20
    begun = time.process_time()
    assert of_windows(Windows(10**18, 10**18, 10**9, 1, 1, 5)) == "m"
    assert of_windows(Windows(10**18, 10**18, 3, 1, 2, 2)) == "m"
    assert of_windows(Windows(10**18, 10**17, 3, 10, 2, 2)) == "x"
    assert time.process_time() - begun < 1


def test_pairings_of_the_paper() -> None:
    # Figure 4b, and the matrices that the specification lists in 3.3.
    def text(found: Operation, *shapes: Shape) -> str:
        return " ".join("".join(row) for row in found.pairings(*shapes)[0].marks)

    shape = (2, 12, 14, 16)
    assert text(operation("conv", features=8), shape) == "oxxa xmxa xxma xxxa"
    assert text(operation("conv", features=8, kernel=1), shape) == "oxxa xoxa xxoa xxxa"
    assert text(operation("conv", features=8, groups=4), shape) == "oxxx xmxx xxmx xxxm"
    assert text(operation("conv", features=16, groups=Rel()), shape) == "oxxx xmxx xxmx xxxo"
    assert text(operation("conv", features=16, kernel=1, stride=2), shape) == "oxxa xxxa xxxa xxxa"
    assert text(operation("group_norm", groups=4), shape) == "oaax xaax xaax xaam"
    assert text(operation("group_norm", groups=1), shape) == "oaaa xaaa xaaa xaaa"
    assert text(operation("average_pool", window=0), shape) == "oaax xaax xaax xaao"
    assert text(operation("conv", features=8), (2, 3, 3, 16)) == "oaaa xaaa xaaa xaaa"
    assert text(operation("layer_norm"), shape) == text(operation("dense", features=3), shape)


def test_reshapes_of_all_small_shapes() -> None:
    # Every pair of shapes of 24 and of 36 elements with at most three axes, against the elements themselves.
    for number in (24, 36):
        divisors = [d for d in range(1, number + 1) if number % d == 0]
        shapes = [(number,), *((a, number // a) for a in divisors)]
        shapes += [(a, b, number // (a * b)) for a in divisors for b in divisors if number % (a * b) == 0]
        same = torch.eye(number, dtype=torch.bool)
        for after in shapes:
            for before in shapes:
                assert of_reshape(after, before).marks == pairing(same.reshape(*after, *before), len(after))


def test_large_reshapes_take_no_long_time() -> None:
    # Heads out of channels, positions out of rows and columns: sizes of a real network.
    rows = of_reshape((64, 3136, 12, 64), (64, 56, 56, 768)).marks
    assert ["".join(row) for row in rows] == ["oxxx", "xoox", "xxxx", "xxxx"]


# -- choices -----------------------------------------------------------------------------------------------------------


def test_choices_are_as_many_as_the_paper_s() -> None:
    found = choices()
    assert len(found) == len(set(found)) == 1_402
    numbers = Counter(each.name for each in found)
    assert (numbers["conv"], numbers["dense"], numbers["group_norm"]) == (1_350, 5, 8)
    assert numbers["average_pool"] == numbers["max_pool"] == 15
    assert sum(number == 1 for number in numbers.values()) == 9


def test_representatives_stand_for_what_no_property_tells_apart() -> None:
    shape = (2, 12, 12, 16)
    found = representatives(choices(), shape)
    kinds = set()
    for first, same in found.items():
        assert first in same
        kind = (first.name, first.shape(shape), first.pairings(shape))
        assert kind not in kinds
        kinds.add(kind)
        assert all((each.name, each.shape(shape), each.pairings(shape)) == kind for each in same)
    standing = {each for same in found.values() for each in same}
    for each in set(choices()) - standing:
        with pytest.raises(SpecError, match="expected"):
            each.shape(shape)


# -- attributes --------------------------------------------------------------------------------------------------------


def test_attributes_relative_to_the_input() -> None:
    found = operation("conv", features=Rel(2, 4), groups=Rel(1, 8))
    assert found["features"] == Rel(1, 2)
    assert found.shape((2, 5, 5, 16)) == (2, 5, 5, 8)
    assert found.shape((2, 5, 5, 64)) == (2, 5, 5, 32)
    assert found.at((2, 5, 5, 16)) == operation("conv", features=8, groups=2)
    with pytest.raises(SpecError, match="expected C/8 to be a whole number, found an axis of size 6"):
        found.shape((2, 5, 5, 6))


@pytest.mark.parametrize(
    ("name", "attributes", "message"),
    [
        ("fold", {}, r"expected an operation \(dense, conv, .*\), found 'fold'"),
        ("dense", {}, "dense: features: expected a positive integer or a Rel, found None"),
        ("dense", {"features": 0}, "dense: features: expected .*, found 0"),
        ("dense", {"features": True}, "dense: features: expected .*, found True"),
        ("dense", {"features": 10**30}, "dense: features: expected .*, found an integer of 100 bits"),
        (
            "dense",
            {"features": 3, "kernel": 3},
            "dense: expected attributes among these: features, bias; found 'kernel'",
        ),
        ("relu", {"x": 3}, "relu: expected attributes among these: none; found 'x'"),
        ("conv", {"features": 3, "kernel": 0}, "conv: kernel: expected an integer from 1 up, found 0"),
        ("conv", {"features": 3, "padding": "valid"}, "conv: padding: expected an integer from 0 up or 'same'"),
        ("average_pool", {"window": -1}, "average_pool: window: expected an integer from 0 up, found -1"),
        ("dropout", {"rate": 1.0}, "dropout: rate: expected a number from 0.0 to below 1.0, found 1.0"),
        ("dropout", {"rate": float("nan")}, "dropout: rate: expected"),
        ("scalar_multiply", {"constant": 0.0}, "scalar_multiply: constant: expected"),
        ("reshape", {"shape": (-1, -1)}, "reshape: shape: expected sizes, one of which may be -1"),
        ("reshape", {"shape": [3]}, "reshape: shape: expected"),
        ("transpose", {"axes": (1.0,)}, "transpose: axes: expected axes"),
        ("einsum", {"equation": "aa,b->a"}, "einsum: equation: expected an equation"),
        ("einsum", {"equation": "a,b->c"}, "einsum: equation: expected an equation"),
        ("einsum", {"equation": "a,b"}, "einsum: equation: expected an equation"),
        ("parameter", {"shape": (Rel(),)}, "parameter: shape: expected positive sizes"),
        ("opaque", {"what": "\n", "shape": (1,)}, "opaque: what: expected text"),
    ],
)
def test_attributes_are_checked(name: str, attributes: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        operation(name, **attributes)


@pytest.mark.parametrize(
    ("found", "shapes", "message"),
    [
        (operation("relu"), (), "relu: expected 1 inputs, found 0"),
        (operation("conv", features=4), ((2, 8),), "expected at least 3 axes"),
        (operation("conv", features=4, groups=3), ((2, 8, 8, 4),), "expected groups that divide 4 channels, found 3"),
        (operation("conv", features=5, groups=2), ((2, 8, 8, 4),), "expected groups that divide 5 features, found 2"),
        (
            operation("conv", features=5, padding=0),
            ((2, 2, 8, 4),),
            "expected an axis of at least 3 positions, found 2",
        ),
        (
            operation("max_pool", padding=2),
            ((2, 8, 8, 4),),
            "expected a padding of at most half of the window, found 2",
        ),
        (operation("add"), ((2, 3), (2, 4)), "expected axes of one size or of size 1, found 3 and 4"),
        (operation("reshape", shape=(5, -1)), ((2, 3),), "expected a shape of 6 elements"),
        (operation("transpose", axes=(0, 0)), ((2, 3),), "expected each axis from 0 to 1 once"),
        (operation("mean", axes=(0, -2)), ((2, 3),), "expected axes of .*, each once"),
        (operation("mean", axes=()), ((2, 3),), "expected axes of .*, at least one"),
        (operation("flatten"), ((2,),), "expected at least 2 axes"),
        (operation("dot"), ((2, 3), (4, 5)), "expected one size for 'j', found 3 and 4"),
        (operation("einsum", equation="ab,b->a"), ((2,), (4,)), "expected 2 axes for 'ab', found 1"),
        (operation("self_attention", heads=3), ((2, 4, 8),), "expected .* channels that 3 heads divide"),
        (operation("dense", features=10**17), ((10**9, 3),), "expected a result of at most"),
        (operation("dense", features=Rel(axis=3)), ((2, 3),), "expected an input with an axis 3"),
    ],
)
def test_operations_refuse_shapes(found: Operation, shapes: tuple[Shape, ...], message: str) -> None:
    for method in (found.shape, found.pairings, found.params, found.flops):
        with pytest.raises(SpecError, match=message):
            method(*shapes)


def test_bad_factors_are_refused() -> None:
    for bad in ({"mul": 0}, {"div": -1}, {"axis": 99}, {"axis": True}, {"mul": 1.5}):
        with pytest.raises(SpecError, match="expected"):
            Rel(**bad)  # type: ignore[arg-type]
