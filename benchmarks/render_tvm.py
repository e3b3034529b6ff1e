"""The tables of tuned latencies, from ``results/tvm.json``; ``render.py`` puts them into the README."""

from __future__ import annotations

import statistics
from typing import Any

#: What the paper reports for its CPU (Figure 9), and what we want against the hand-written convolution.
PAPER = {"operator_1": 2.25, "operator_2": 5.35}
WANTED_BY_HAND = 1.1
KINDS = {"latency_ms": "medians", "best_ms": "least"}


def best(row: dict[str, Any], kind: str) -> float | None:
    """The median over a row's tunings of their latencies (each a median or the least of 12 measurements)."""
    found = [run[kind] for run in row["runs"] if kind in run]
    return statistics.median(found) if found else None


def by_hand(result: dict[str, Any]) -> list[list[str]]:
    """conv2d's pGraph over the TE written by hand: the median over the seeds, all ratios beside it."""
    rows = []
    for row in result["by_hand"]:
        pairs = [pair for pair in row["pairs"] if all("latency_ms" in one for one in pair.values())]
        cells = [f"{row['channels']} channels, {row['height']} x {row['height']}"]
        for kind in KINDS:
            ratios = sorted(pair["pgraph"][kind] / pair["te"][kind] for pair in pairs)
            cells.append(
                f"**{statistics.median(ratios):.2f}** ({', '.join(f'{ratio:.2f}' for ratio in ratios)})"
                if ratios
                else "–"
            )
        rows.append([*cells, f"{WANTED_BY_HAND}"])
    return rows


def layers(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """conv2d's latency over each operator's, layer by layer, with the geometric mean."""
    widths = list(dict.fromkeys(row["channels"] for row in result["layers"]))
    found = {(row["operator"], row["channels"]): row for row in result["layers"]}
    rows = []
    for name in dict.fromkeys(row["operator"] for row in result["layers"]):
        cells, ratios = [], {kind: [] for kind in KINDS}
        for width in widths:
            base, row = found["conv2d", width], found[name, width]
            pair = []
            for kind in KINDS:
                ours, theirs = best(row, kind), best(base, kind)
                pair.append(None if ours is None or theirs is None else theirs / ours)
                if pair[-1] is not None:
                    ratios[kind].append(pair[-1])
            flops = base["flops"] / row["flops"]
            cells.append(" / ".join("–" if one is None else f"{one:.2f}" for one in pair) + f" ({flops:.2f})")
        means = [f"{statistics.geometric_mean(one):.2f}" if one else "–" for one in ratios.values()]
        note = "" if len(ratios["best_ms"]) == len(widths) else f", of {len(ratios['best_ms'])} layers"
        peer = PAPER.get(name.partition(",")[0])
        rows.append([name, *cells, f"**{' / '.join(means)}**{note}", "–" if peer is None else f"{peer}"])
    header = ["operator", *(f"{width} channels" for width in widths), "geometric mean", "paper"]
    return header, rows


def rules(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """What each schedule rule buys, from ``results/tuning_rules.json``: the winners beside each other."""
    rows, first, before = [], result["rows"][0]["beside_ms"]["least"], None
    for row in result["rows"]:
        least, median = row["beside_ms"]["least"], row["beside_ms"]["median"]
        seeds = ", ".join(f"{one:.2f}" for one in row["best_ms"])
        step = "" if before is None else f"{before / least:.2f}"
        rows.append([row["space"], f"**{least:.3f}**", f"{median:.3f}", step, f"{first / least:.0f}", seeds])
        before = least
    header = ["rules", "winner, ms, least", "median", "times faster than the row above", "than no rule"]
    return [*header, "found by each seed's search, ms"], rows
