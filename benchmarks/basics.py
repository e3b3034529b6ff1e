"""How long the lab's daily steps take: medians in milliseconds and ratios within one run, as JSON on standard output.

Run it on a quiet machine: ``python benchmarks/basics.py``. Nothing here is asserted by a test.
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import syno_lab as sl
from syno_lab.codegen.drawing import svg
from syno_lab.ir.fingerprint import distinct_key
from syno_lab.ir.plan import _plan, plan
from syno_lab.ir.state import Step

CONV = (
    "[N, C_in, H, W]",
    "[N, C_out, H, W]",
    ["N=1: 0", "C_in=64: 3", "C_out=64: 1", "H=32: 0", "W=32: 0"],
    ["k_1=3: 4", "k_2=5: 3", "s=2: 0", "g=16: 3"],
)
SMALL = {"N": 1, "C_in": 4, "C_out": 8, "H": 8, "W": 16, "k_1": 3, "s": 2, "g": 2}
RESNET_34 = [(64, 56), (128, 28), (256, 14), (512, 7)]  # channels and height of its stride-1 3x3 convolutions


def median_ms(work: Callable[[], object], repeats: int = 15) -> float:
    """The median wall time of ``work``, after one run that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def training_step(module: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """Forward and backward, gradients dropped."""

    def step() -> None:
        module(x).sum().backward()
        module.zero_grad(set_to_none=True)

    return step


def daily_steps() -> dict[str, float]:
    """Milliseconds of what the stepper and the sampler do all day."""
    sampler = sl.Sampler(*CONV, fixed_io_pairs=[(0, 0)], max_primitives=8, max_flops=10**9, seed=0)
    state = sampler.root()
    for size in ("C_in", "k_1", "k_1"):
        state = state.apply(Step("REDUCE", (), sampler.spec.symbols.size(size)))
    conv, one = sl.operators.conv2d(), sl.operators.operator_1()

    def replan() -> None:
        _plan.cache_clear()
        plan(one, SMALL | {"C_out": 8})

    start, count = time.process_time(), 0
    names = set()
    for operator in sampler.samples():
        names.add(distinct_key(operator))
        count += 1
        if time.process_time() - start > 20:
            break
    seconds = time.process_time() - start
    return {
        "candidates_of_conv2d_after_its_reduces_ms": median_ms(state.candidates, 5),
        "draw_conv2d_ms": median_ms(lambda: svg(conv)),
        "fingerprint_conv2d_small_binding_ms": median_ms(lambda: conv.fingerprint(SMALL)),
        "plan_operator_1_ms": median_ms(replan),
        "distinct_operators_per_cpu_second_conv_free_8": len(names) / seconds,
        "repeat_share": 1 - len(names) / count,
    }


def modules_against_pytorch() -> dict[str, dict[str, float]]:
    """Time of a training step of the pGraph's module over nn.Conv2d's, batch 1, and of Operator 1's (K=3, g=8, s=2)."""
    found = {}
    for channels, height in RESNET_34:
        sizes = {"N": 1, "C_in": channels, "C_out": channels, "H": height, "W": height}
        x = torch.randn(1, channels, height, height, requires_grad=True)
        peer = median_ms(training_step(nn.Conv2d(channels, channels, 3, padding=1, bias=False), x))
        conv = median_ms(training_step(sl.operators.conv2d().to_torch(sizes), x))
        one = median_ms(training_step(sl.operators.operator_1().to_torch(sizes | {"g": 8}), x))
        found[f"{channels}x{height}x{height}"] = {
            "conv2d_over_nn_conv2d": conv / peer,
            "operator_1_over_nn_conv2d": one / peer,
        }
    return found


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    result = {
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "daily_steps": daily_steps(),
        "modules_against_pytorch": modules_against_pytorch(),
    }
    print(json.dumps(result, indent=1))
