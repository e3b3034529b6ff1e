"""How long one step takes: the candidates of a state with distances, the nearest first, explanations left out.

``python benchmarks/step.py`` walks the conv-authors spec (at most 12 primitives) by random canonical steps that stay
within reach of the input, times ``state.candidates()``, the first 200 with verdicts and all of them at every depth,
prints JSON and writes it to ``benchmarks/results/step.json``.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from common import about, parser, save, say, typed, use_one_core

import syno_lab as sl
from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.ir.spec import Spec

MOST = 12


FIRST = 200
Times = tuple[float, float, float, int]  # milliseconds: their number, the first, all; and how many there are


def walk(spec: Spec, rng: random.Random, times: list[list[Times]]) -> None:
    """One random walk; adds the times at each depth."""
    state = sl.State.root(spec)
    for depth in range(MOST):
        start = time.thread_time()
        found = state.candidates()
        number = time.thread_time()
        first = [one.verdict.rule for one in found[:FIRST]]
        after = time.thread_time()
        every = [one.verdict.rule for one in found]
        end = time.thread_time()
        assert first == every[:FIRST]
        # All of them: without the first, which were made twice.
        took = (number - start, after - start, number - start + end - after)
        times[depth].append((1e3 * took[0], 1e3 * took[1], 1e3 * took[2], len(found)))
        left = MOST - depth - 1
        open_ones: dict[str, list[Any]] = {}
        for candidate in found:
            if candidate.verdict.canonical and candidate.distance is not None and candidate.distance <= left:
                open_ones.setdefault(candidate.primitive, []).append(candidate)
        if not open_ones:
            return
        state = state.apply(rng.choice(open_ones[rng.choice(list(open_ones))]))


def figures(times: list[Times]) -> dict[str, Any]:
    """Median, 95th percentile and longest, of each of the three."""
    found: dict[str, Any] = {"states": len(times), "most_candidates": max((one[3] for one in times), default=0)}
    for place, name in enumerate(("number", "first", "all")):
        milliseconds = [one[place] for one in times]
        if len(milliseconds) < 2:
            found[name] = {"median_ms": None, "p95_ms": None, "worst_ms": None}
            continue
        found[name] = {
            "median_ms": statistics.median(milliseconds),
            "p95_ms": statistics.quantiles(milliseconds, n=20, method="inclusive")[-1],
            "worst_ms": max(milliseconds),
        }
    return found


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
        times: list[list[Times]] = [[] for _ in range(MOST)]
        end = time.monotonic() + chosen.seconds
        walks = 0
        while walks < chosen.walks and (not walks or time.monotonic() < end):
            walk(spec, rng, times)
            walks += 1
        say(f"{limits}: {walks} walks, {figures([t for depth in times for t in depth])}")
        result[limits] = {
            "walks": walks,
            "all": figures([t for depth in times for t in depth]),
            "depths": [{"depth": depth} | figures(found) for depth, found in enumerate(times)],
        }
    save("step", result | {"about": about(typed(), core)})


if __name__ == "__main__":
    main()
