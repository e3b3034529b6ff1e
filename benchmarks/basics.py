"""How long the lab's daily steps take: medians in milliseconds, as JSON on standard output.

Run it on a quiet machine: ``python benchmarks/basics.py``. Nothing here is asserted by a test.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import syno_lab as sl
from syno_lab.codegen.drawing import svg
from syno_lab.ir.plan import _plan, plan
from syno_lab.ir.state import Step

CONV = (
    "[N, C_in, H, W]",
    "[N, C_out, H, W]",
    ["N=1: 0", "C_in=64: 3", "C_out=64: 1", "H=32: 0", "W=32: 0"],
    ["k_1=3: 4", "k_2=5: 3", "s=2: 0", "g=16: 3"],
)
SMALL = {"N": 1, "C_in": 4, "C_out": 8, "H": 8, "W": 16, "k_1": 3, "s": 2, "g": 2}


def median_ms(work: Callable[[], object], repeats: int = 15) -> float:
    """The median wall time of ``work``, after one run that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def daily_steps() -> dict[str, float]:
    """Milliseconds of what the stepper and the sampler do all day."""
    sampler = sl.Sampler(*CONV, fixed_io_pairs=[(0, 0)], max_primitives=8, max_flops=10**9, seed=0)
    state = sampler.root()
    for size in ("C_in", "k_1", "k_1"):
        state = state.apply(Step("REDUCE", (), sampler.spec.symbols.size(size)))
    conv, one = sl.operators.conv2d(), sl.operators.operator_1()

    def replan() -> None:
        _plan.cache_clear()
        plan(one, SMALL)

    return {
        "candidates_of_conv2d_after_its_reduces_ms": median_ms(state.candidates, 5),
        "draw_conv2d_ms": median_ms(lambda: svg(conv)),
        "fingerprint_conv2d_small_binding_ms": median_ms(
            lambda: conv.fingerprint({name: SMALL[name] for name in conv.spec.symbols.names})
        ),
        "plan_operator_1_ms": median_ms(replan),
    }


if __name__ == "__main__":
    result = {
        "machine": platform.machine(),
        "daily_steps": daily_steps(),
    }
    print(json.dumps(result, indent=1))
