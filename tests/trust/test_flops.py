"""FLOPs and parameters of the plan against ``torch.utils.flop_counter`` on the generated module.

The counter knows matrix products and convolutions, two FLOPs for a multiply-add as in the plan. It cannot count mere
sums and element-wise products (``add``, ``sum``, ``mul``, ``avg_pool2d``: it sees them as free), and where a stage
multiplies by several weights PyTorch makes several products of what the plan counts as one loop nest. Operators with
neither must agree exactly, but for four corners: along a size of 1 the module may have nothing to multiply by where the
plan, made in symbols, still does; a window around a STRIDEd coordinate is computed at every position first; and with a
window longer than its axis the module multiplies at the axis's positions, of which there are fewer, and then moves the
products to their places; and along an EXPANDed coordinate it may compute once what is the same everywhere. No module
may do more than :func:`most` says. Counted is the form without matrices: block-diagonal weights, bands of ones and
Toeplitz matrices do more multiplications than the plan, in less time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
from strategies import random_operator, repro
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from syno_lab.api import Operator
from syno_lab.codegen.torch_band import BAND_GAIN, MOST_MERGED
from syno_lab.codegen.torch_choice import Form
from syno_lab.codegen.torch_module import _made
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.plan import plan
from syno_lab.operators import KNOWN, operator_1

SMALL = {
    "N": 2,
    "H": 6,
    "W": 4,
    "M": 3,
    "K": 6,
    "L": 6,
    "T": 5,
    "C": 16,
    "C_in": 16,
    "C_out": 16,
    "D_in": 8,
    "D_out": 16,
}
#: Arithmetic that the counter takes for free.
FREE = {"mul", "mul_", "sum", "mean", "add", "add_", "avg_pool1d", "avg_pool2d", "avg_pool3d"}


class _Calls(TorchDispatchMode):
    """The names of the ATen operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(function).split(".")[1])
        return function(*args, **(kwargs or {}))


def counted(operator: Operator, binding: dict[str, int], matrices: bool = False) -> tuple[int, set[str], int]:
    """What PyTorch counts, which free arithmetic it ran besides, and the module's parameters."""
    module = _made(operator, operator.complete_binding(binding), 1.0, None, Form(matrices=matrices))
    counter, calls = FlopCounterMode(display=False), _Calls()
    with torch.no_grad(), counter, calls:
        module(torch.zeros(operator.input_sizes(binding)))
    return counter.get_total_flops(), calls.names & FREE, sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("make", KNOWN.values(), ids=KNOWN)
def test_known_operators(make: Callable[[], Operator]) -> None:
    operator = make()
    binding = {n: SMALL.get(n, operator.spec.defaults.get(n, 0)) for n in operator.spec.symbols.names}
    flops, _, params = counted(operator, binding)
    multiplied = sum(stage.flops for stage in plan(operator, binding).stages if stage.weights)
    assert flops == multiplied
    assert params == operator.params(binding)


@pytest.mark.parametrize("make", KNOWN.values(), ids=KNOWN)
def test_matrices_do_a_bounded_number_of_times_the_work(make: Callable[[], Operator]) -> None:
    """Merged groups multiply by their number, and a band of ones has so many elements for one that is added."""
    operator = make()
    binding = {n: SMALL.get(n, operator.spec.defaults.get(n, 0)) for n in operator.spec.symbols.names}
    plain, _, params = counted(operator, binding)
    flops, _, same = counted(operator, binding, matrices=True)
    sums = sum(stage.flops for stage in plan(operator, binding).stages if not stage.weights)
    assert flops <= MOST_MERGED * plain + BAND_GAIN * sums
    assert params == same


def windowed_strides(operator: Operator) -> set[Coordinate]:
    """The operands of the STRIDEs that have an UNFOLD above them."""

    def strided(coordinate: Coordinate) -> set[Coordinate]:
        node = coordinate.node
        return set(node.operands if node.primitive == "STRIDE" else ()).union(*map(strided, node.operands))

    windows = [step for step in operator.steps if step.primitive == "UNFOLD"]
    return set().union(*(strided(operand) for step in windows for operand in step.operands))


def has_long_window(operator: Operator, binding: dict[str, int]) -> bool:
    """Whether an UNFOLD's window is longer than the axis that it slides along."""
    at = operator.complete_binding(binding)
    windows = [step.operands for step in operator.steps if step.primitive == "UNFOLD"]
    return any(window.size.at(at) > main.size.at(at) for main, window in windows)


def most(operator: Operator, binding: dict[str, int]) -> int:
    """What PyTorch can count at most, stage by stage of the plan.

    A stage that multiplies by no weight has no matrix product. One that multiplies by several has as many products,
    each over some of the stage's loops, so each has at most the stage's iterations. A product that comes before a
    STRIDE below a window is undone is over the stride times as many positions.
    """
    at, windowed = operator.complete_binding(binding), windowed_strides(operator)
    total = 0
    for stage in plan(operator, binding).stages:
        total += len(stage.weights) * stage.flops * prod(
            step.parameter.at(at)
            for step in stage.undo
            if step.primitive == "STRIDE" and step.parameter is not None and step.operands[0] in windowed
        )  # fmt: skip
    return total


def all_sizes(operator: Operator, binding: dict[str, int]) -> set[int]:
    """Of all coordinates, and of all variables in them."""
    at = operator.complete_binding(binding)
    return {*at.values(), *(c.size.at(at) for step in operator.steps for c in (*step.operands, *step.given))}


def test_random_operators(fresh_seed: int) -> None:
    kinds: Counter[str] = Counter()
    for offset in range(400):
        operator, binding = random_operator(random.Random(fresh_seed + offset))
        flops, free, params = counted(operator, binding)
        why = f"seed {fresh_seed} offset {offset}, counted {flops}, besides {free}{repro(operator, binding)}"
        assert params == operator.params(binding), why
        stages = plan(operator, binding).stages
        assert flops <= most(operator, binding), why
        is_counted_whole = not free and all(stage.weights for stage in stages if stage.flops)
        if flops == operator.flops(binding):
            kinds["exact"] += 1
        elif windowed_strides(operator):
            kinds["windows around strided coordinates"] += 1
        elif any(len(stage.weights) > 1 for stage in stages):
            kinds["several weights in a stage"] += 1
        elif has_long_window(operator, binding):
            kinds["a window longer than its axis"] += 1
            assert flops < operator.flops(binding), why
        elif any(step.primitive == "EXPAND" for step in operator.steps):
            kinds["an EXPANDed coordinate"] += 1
            assert flops < operator.flops(binding), why
        elif not is_counted_whole:  # a sum of one term is no call at all
            kinds["arithmetic that is not counted"] += 1
        else:
            kinds["a size of 1"] += 1
            assert 1 in all_sizes(operator, binding), why
    print(kinds)
    assert kinds["exact"] >= 40, kinds


@pytest.mark.parametrize(("k", "g", "s"), [(3, 8, 2), (3, 4, 4), (5, 2, 1), (1, 1, 2)])
def test_closed_forms_of_operator_1(k: int, g: int, s: int) -> None:
    """DESIGN, section 6: two FLOPs for each term of Z and of Y."""
    c_in, c_out, h, w = 32, 64, 7, 5
    binding = {"N": 1, "C_in": c_in, "C_out": c_out, "H": h, "W": w, "k_1": k, "g": g, "s": s}
    operator = operator_1()
    assert operator.params(binding) == c_in * k * c_out // (g * s) + k * k * c_out * c_out // s
    first = (g * (c_out // (g * s)) * h * w * k) * (c_in // g)  # of Z[n, a, m, h, w, q], over c
    second = (c_out * h * w) * (g * k * k * (c_out // (g * s)))  # of Y[n, o, h, w], over a, p, q, m
    assert operator.flops(binding) == 2 * (first + second)
