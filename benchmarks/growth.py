"""How cost grows with size: CPU time for one more operator, and memory, at 6 to 14 primitives of the conv-authors spec.

``python benchmarks/growth.py`` runs ``syno-lab sample`` once for each size and limits (no fingerprints), prints JSON,
writes ``benchmarks/results/growth.json`` and draws ``benchmarks/results/growth.svg``. ``--draw`` draws it anew.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import plots
from common import RESULTS, about, parser, sample, save, say, typed, use_one_core

SIZES = range(6, 15)
LIMITS = ("primary", "free")
COLOURS = {"primary": "#1b6ca8", "free": "#c8553d"}


def marginal_ms(course: list[dict[str, Any]]) -> float | None:
    """CPU-milliseconds for one more operator over the second half of a run, when the sampler is warm."""
    if len(course) < 2:
        return None
    last = course[-1]
    middle = next(m for m in course if m["cpu_seconds"] >= last["cpu_seconds"] / 2)
    drawn = last["distinct"] - middle["distinct"]
    return 1e3 * (last["cpu_seconds"] - middle["cpu_seconds"]) / drawn if drawn else None


def measure(limits: str, size: int, seconds: float, seed: int) -> dict[str, Any]:
    """One run."""
    found = sample(
        spread=False,
        spec="conv-authors",
        weight_limits=limits,
        max_primitives=size,
        seconds=seconds,
        seed=seed,
        fingerprints=False,
    )
    row: dict[str, Any] = {"weight_limits": limits, "max_primitives": size}
    if "error" in found:
        return row | {"error": found["error"]}
    return row | {
        "distinct": found["distinct"],
        "cpu_seconds": found["cpu_seconds"],
        "mean_ms": 1e3 * found["cpu_seconds"] / found["distinct"],
        "one_more_ms": marginal_ms(found["course"]),
        "peak_memory_bytes": found["peak_memory_bytes"],
        "exhausted": found["exhausted"],
    }


def draw(result: dict[str, Any]) -> None:
    """The plot: time above, memory below, on a light background."""
    plt = plots.start("growth")
    from matplotlib.ticker import FuncFormatter

    figure, (time_axes, memory_axes) = plt.subplots(
        2, 1, figsize=(6.4, 6.0), sharex=True, layout="constrained", facecolor="white"
    )
    for limits in LIMITS:
        rows = [r for r in result["rows"] if r["weight_limits"] == limits and "error" not in r]
        sizes, colour = [r["max_primitives"] for r in rows], COLOURS[limits]
        warm = [(r["max_primitives"], r["one_more_ms"]) for r in rows if r["one_more_ms"]]
        time_axes.plot([x for x, _ in warm], [y for _, y in warm], "o-", color=colour, label=f"{limits}: one more")
        means = [r["mean_ms"] for r in rows]
        time_axes.plot(sizes, means, ":", color=colour, label=f"{limits}: mean, cold start counted")
        memory = [r["peak_memory_bytes"] / 2**20 for r in rows]
        memory_axes.plot(sizes, memory, "o-", color=colour, label=limits)
        done = [(x, y) for x, y, r in zip(sizes, memory, rows, strict=True) if r["exhausted"]]
        memory_axes.plot([x for x, _ in done], [y for _, y in done], "s", ms=10, mfc="none", color=colour)
    time_axes.set_yscale("log")
    time_axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    time_axes.set_ylabel("CPU-milliseconds an operator")
    time_axes.set_title(f"conv-authors spec, {result['seconds']:g} seconds each", fontsize=11)
    memory_axes.set_ylabel("peak memory, MiB")
    memory_axes.set_ylim(bottom=0)
    memory_axes.set_xlabel("most primitives (a square: the space was exhausted)")
    memory_axes.set_xticks(list(SIZES))
    plots.finish(plt, figure, "growth", (time_axes, memory_axes), (time_axes, memory_axes))


def main() -> None:
    """Measure and draw."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--seconds", type=float, default=20.0, help="for each run (20)")
    arguments.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="(6 to 14)")
    arguments.add_argument("--draw", action="store_true", help="draw the stored result, measure nothing")
    chosen = arguments.parse_args()
    path = RESULTS / "growth.json"
    if chosen.draw:
        if not path.is_file():
            sys.exit(f"--draw: expected a result at {path}; measure first")
        draw(json.loads(path.read_text(encoding="utf-8")))
        return
    core = use_one_core(chosen.core)
    rows = []
    for limits in LIMITS:
        for size in chosen.sizes:
            say(f"{limits}, at most {size} primitives: {chosen.seconds:g} seconds")
            rows.append(measure(limits, size, chosen.seconds, chosen.seed))
            say(f"  {rows[-1]}")
    result = {"seconds": chosen.seconds, "rows": rows, "about": about(typed(), core)}
    save("growth", result)
    draw(result)


if __name__ == "__main__":
    main()
