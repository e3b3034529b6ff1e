"""How long a click in the stepper takes to the drawn graph, and to the lists of next steps that follow it.

``python benchmarks/stepper.py`` steps through the conv-authors spec (at most 12 primitives) by random canonical steps
that stay within reach of the input, each as the message that a click sends, and times two things at every depth: until
the picture is ready to be sent (the step taken, laid out and described, with all that belongs to it), and until the
answer is whole (all candidates with verdicts and distances, the explanation of the distance, the session's text). It
prints JSON and writes it to ``benchmarks/results/stepper.json``. ``--browser`` measures in JupyterLab and Chromium too,
from the click to the frame in which the new graph stands, and to that with the new list of next steps
(``benchmarks/stepper_browser.py``), on all cores. ``load`` is the machine's, over a minute, before and after.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from typing import Any

import msgspec
from common import about, parser, save, say, typed, use_one_core
from syno_widgets import Stepper

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.drawing.render import render
from syno_lab.ir.spec import Spec

MOST = 12
PICTURE = ("svg", "description", "links", "line", "place", "selected", "complete", "status", "error")


class Timed(Stepper):
    """A stepper that notes when its picture is ready."""

    drawn = 0.0

    def _show_picture(self) -> None:
        super()._show_picture()
        self.drawn = time.perf_counter()


def choose(stepper: Stepper, rng: random.Random) -> int | None:
    """The index of a random canonical step after which the input may still be reached: the primitive first."""
    left = MOST - len(stepper.state.steps) - 1
    open_ones: dict[str, list[int]] = {}
    for index, candidate in enumerate(stepper.candidates):
        if candidate.verdict.canonical and candidate.distance is not None and candidate.distance <= left:
            open_ones.setdefault(candidate.primitive, []).append(index)
    return rng.choice(open_ones[rng.choice(list(open_ones))]) if open_ones else None


def walk(spec: Spec, rng: random.Random, steps: list[dict[str, Any]], most: int) -> None:
    """One synthesis; adds a record for each step."""
    render.cache_clear()  # pictures of another synthesis
    stepper = Timed(spec)
    while len(steps) < most:
        index = choose(stepper, rng)
        if index is None:
            return
        message = {"kind": "step", "index": index, "request": stepper.answered + 1, "revision": stepper.revision}
        start = time.perf_counter()
        stepper.handle(message)
        end = time.perf_counter()
        if stepper.error:
            raise SystemExit(f"stepper: {stepper.error}")
        steps.append(
            {
                "depth": len(stepper.state.steps),
                "picture_ms": 1e3 * (stepper.drawn - start),
                "whole_ms": 1e3 * (end - start),
                "bytes": len(msgspec.json.encode({name: getattr(stepper, name) for name in PICTURE})),
            }
        )


def figures(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and 95th percentile of each time."""
    found: dict[str, Any] = {"steps": len(steps), "bytes": max((one["bytes"] for one in steps), default=0)}
    for name in ("picture_ms", "whole_ms"):
        times = [one[name] for one in steps]
        if len(times) > 1:
            ordered = statistics.quantiles(times, n=20, method="inclusive")
            found[name] = {"median": statistics.median(times), "p95": ordered[-1], "worst": max(times)}
    return found


def main() -> None:
    """So many steps with each of the weight limits."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--steps", type=int, default=200, help="for each of primary and free (200)")
    arguments.add_argument("--browser", action="store_true", help="in JupyterLab and Chromium too")
    chosen = arguments.parse_args()
    all_cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    core = use_one_core(chosen.core)
    result: dict[str, Any] = {"load": [os.getloadavg()[0]]}
    for limits in ("primary", "free"):
        spec, _ = load_spec("conv-authors", max_primitives=MOST, weight_limits=limits)
        rng = random.Random(chosen.seed)
        steps: list[dict[str, Any]] = []
        walk(spec, rng, [], 1)  # what is loaded and cached on first use
        while len(steps) < chosen.steps:
            walk(spec, rng, steps, chosen.steps)
        by_depth = {depth: [one for one in steps if one["depth"] == depth] for depth in range(1, MOST + 1)}
        result[limits] = {
            "all": figures(steps),
            "depths": [{"depth": depth} | figures(found) for depth, found in by_depth.items()],
        }
        say(f"{limits}: picture {result[limits]['all']['picture_ms']}")
    if chosen.browser:
        from stepper_browser import measure

        if all_cores is not None:
            os.sched_setaffinity(0, all_cores)  # page, server and kernel are three processes, as at a user's
        result["browser"] = {limits: measure(chosen.steps, chosen.seed, limits) for limits in ("primary", "free")}
    result["load"].append(os.getloadavg()[0])
    save("stepper", result | {"about": about(typed(), core)})


if __name__ == "__main__":
    main()
