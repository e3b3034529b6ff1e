"""The tables of what a tuning costs and of INT8, from ``results/tuning_cost.json`` and ``int8.json``.

``render.py`` puts them into the README.
"""

from __future__ import annotations

import statistics
from typing import Any

#: Each way to tune in words; the first two are TVM's ``tune_tir``.
WAYS = {
    "defaults": "MetaSchedule's defaults, imports made cheap",
    "as-it-comes": "MetaSchedule's defaults as they come",
    "same-space": "ours, TVM's rules",
    "ours": "ours",
}
#: Seconds a trial, from the design notes of the project, section 7.
WANTED_S = 0.5


def groups(result: dict[str, Any]) -> dict[tuple[str, str], dict[str, list[dict[str, Any]]]]:
    """The cells of each operator and layer, by their way."""
    found: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for cell in result["cells"]:
        operator, shape, _, way = cell["cell"]
        found.setdefault((operator, shape), {}).setdefault(way, []).append(cell)
    return found


def cost(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A row for each operator, layer and way: medians over the seeds, with the range."""
    beside = {tuple(one["of"]): one["least_ms"] for one in result["beside"]}
    rows = []
    for (operator, shape), ways in groups(result).items():
        winners = {
            way: [ms for name, ms in beside.get((operator, shape), {}).items() if name.rpartition(" ")[0] == way]
            for way in ways
        }
        base = statistics.median(winners["defaults"]) if winners.get("defaults") else None
        for way in (name for name in WAYS if name in ways):
            cells = [one for one in ways[way] if "error" not in one]
            errors = len(ways[way]) - len(cells)
            tried = [one for one in ways[way] if one.get("trials")]
            paces, loads = ([one[what] / one["trials"] for one in tried] for what in ("seconds", "cpu_s"))
            found = winners[way]
            times = f"{base / statistics.median(found):.2f}" if base and found else "–"
            trials = sorted({one["trials"] for one in tried})
            rows.append(
                [
                    f"{operator}, {_layer(shape)}",
                    WAYS[way],
                    f"{len(cells)}" + (f" ({errors} failed)" if errors else ""),
                    " to ".join(str(one) for one in dict.fromkeys((trials[0], trials[-1]))) if trials else "–",
                    _spread(paces, 2),
                    _spread(loads, 2),
                    str(sum(one["failed"] for one in tried)),
                    _spread(found, 3),
                    times,
                ]
            )
    header = ["operator, layer", "tuning", "seeds", "trials", f"seconds a trial (wanted: under {WANTED_S})"]
    return [
        *header,
        "CPU-seconds a trial",
        "candidates that failed",
        "winner, ms",
        "times as fast as the defaults'",
    ], rows


def network(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A row for each of the two networks, and PyTorch's call of the backbone."""
    settings = result["settings"]
    name, replaced, places = settings["backbone"], *result["places"]
    rows = [[f"{name}, PyTorch eager", "–", *_times(result["eager"]), "–", "–"]]
    for what in ("convolutions", "operator"):
        one = result[what]
        last = one["measurements"][-1]
        label = "convolutions" if what == "convolutions" else f"{settings['operator']} in {replaced} of {places} places"
        speedup = "1.00" if what == "convolutions" else f"**{result['speedup']:.2f}**"
        tuned = f"{last['tuned']} of {last['functions']}"
        rows.append([f"{name}, {label}", tuned, *_times(one), speedup, f"{last['error']:.1e}"])
    return ["network", "functions tuned", "ms, median", "ms, least", "times as fast", "error against torch"], rows


def against_pytorch(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A row for each way of running the operator."""
    timings = result["comparison"]["timings"]
    base = next(one["median_ms"] for one in timings if one["way"] == "eager")
    single = {way: one["least_ms"] for way, one in result["single"].items() if way in ("eager", "tvm")}
    words = {"eager": "PyTorch eager", "compile": "torch.compile"}
    rows = []
    for one in timings:
        tuned = f"TVM, {result['preset']}, {result['tuning']['trials']} trials in {result['tuning']['seconds']:.0f} s"
        quartiles = f"{one['median_ms']:.3f} ({one['low_ms']:.3f} to {one['high_ms']:.3f})"
        times = f"**{base / one['median_ms']:.2f}**"
        least = single.get(one["way"])
        alone = ["–", "–"] if least is None else [f"{least:.3f}", f"**{single['eager'] / least:.2f}**"]
        rows.append([words.get(one["way"], tuned), quartiles, times, *alone])
    wanted = "times as fast as eager (wanted: 1 or more)"
    return ["way", "samples, ms, median (quartiles)", wanted, "single calls, ms, least", "times as fast"], rows


def _times(one: dict[str, float]) -> list[str]:
    return [f"{one['latency_ms']:.2f}", f"{one['best_ms']:.2f}"]


def int8_layers(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A row for each operator and layer: milliseconds in float32 and INT8."""
    rows = [
        [
            f"{one['of'][0]}, {_layer(one['of'][1])}",
            f"{one['float_ms']:.3f}",
            f"{one['int8_ms']:.3f}",
            f"**{one['float_ms'] / one['int8_ms']:.2f}**",
            f"{100 * one['error']:.1f} %",
        ]
        for one in result["layers"]
    ]
    return ["operator, layer", "float32, ms", "INT8, ms", "times as fast", "error of INT8's output"], rows


def int8_accuracy(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A row for each operator: test accuracies, the mean and those of each seed."""
    rows = []
    for name in dict.fromkeys(one["of"][0] for one in result["accuracy"]):
        found = [one for one in result["accuracy"] if one["of"][0] == name]
        kinds = [[one[kind] for one in found] for kind in ("float32", "int8")]
        cells = [f"**{statistics.mean(one):.3f}** ({', '.join(f'{x:.3f}' for x in one)})" for one in kinds]
        change = statistics.mean(kinds[1]) - statistics.mean(kinds[0])
        rows.append([name, *cells, f"{100 * change:+.1f} points"])
    return ["operator", "accuracy in float32", "accuracy in INT8", "change"], rows


def _layer(shape: str) -> str:
    return shape.replace("x", " channels, height ")


def _spread(values: list[float], digits: int) -> str:
    """The median, and in brackets the least and the greatest."""
    if not values:
        return "–"
    low, high = (f"{one:.{digits}f}" for one in (min(values), max(values)))
    return f"**{statistics.median(values):.{digits}f}** ({low} to {high})"
