"""How long one step takes: all candidates of a state with verdicts and distances, explanations left out.

``python benchmarks/step.py`` walks the conv-authors spec (at most 12 primitives) by random canonical steps that stay
within reach of the input, times ``state.candidates()`` at every depth, prints JSON and writes it to
``benchmarks/results/step.json``.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from common import about, parser, save, say, typed, use_one_core

import syno_lab as sl
from syno_lab.commands.specs import load_spec
from syno_lab.ir.spec import Spec

MOST = 12


def walk(spec: Spec, rng: random.Random, times: list[list[float]]) -> None:
    """One random walk; adds the milliseconds at each depth."""
    state = sl.State.root(spec)
    for depth in range(MOST):
        start = time.perf_counter()
        found = state.candidates()
        times[depth].append(1e3 * (time.perf_counter() - start))
        left = MOST - depth - 1
        open_ones: dict[str, list[Any]] = {}
        for candidate in found:
            if candidate.verdict.canonical and candidate.distance is not None and candidate.distance <= left:
                open_ones.setdefault(candidate.primitive, []).append(candidate)
        if not open_ones:
            return
        state = state.apply(rng.choice(open_ones[rng.choice(list(open_ones))]))


def figures(milliseconds: list[float]) -> dict[str, Any]:
    """Median and 95th percentile."""
    if len(milliseconds) < 2:
        return {"states": len(milliseconds), "median_ms": None, "p95_ms": None}
    return {
        "states": len(milliseconds),
        "median_ms": statistics.median(milliseconds),
        "p95_ms": statistics.quantiles(milliseconds, n=20, method="inclusive")[-1],
        "worst_ms": max(milliseconds),
    }


def main() -> None:
    """Walk for so many seconds with each of the weight limits."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--seconds", type=float, default=60.0, help="for each of primary and free (60)")
    arguments.add_argument("--walks", type=int, default=200, help="at most, for each (200)")
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    result: dict[str, Any] = {}
    for limits in ("primary", "free"):
        spec, _ = load_spec("conv-authors", max_primitives=MOST, weight_limits=limits)
        rng = random.Random(chosen.seed)
        times: list[list[float]] = [[] for _ in range(MOST)]
        end = time.monotonic() + chosen.seconds
        walks = 0
        while walks < chosen.walks and (not walks or time.monotonic() < end):
            walk(spec, rng, times)
            walks += 1
        say(f"{limits}: {walks} walks, median {figures([t for depth in times for t in depth])['median_ms']} ms")
        result[limits] = {
            "walks": walks,
            "all": figures([t for depth in times for t in depth]),
            "depths": [{"depth": depth} | figures(found) for depth, found in enumerate(times)],
        }
    save("step", result | {"about": about(typed(), core)})


if __name__ == "__main__":
    main()
