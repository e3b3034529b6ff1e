"""The part of ``benchmarks/README.md`` on the time that operators take to train."""

from __future__ import annotations

import statistics

from page import Result, single, table

#: What is wanted of the operators with the fewest FLOPs: the ratio of times.
WANTED = 1.0
#: What is compared, by its head in the table.
TIMES = {
    "ratio": "all layers, module as written",
    "measured": "all layers, fastest of equal modules",
    "network": "training step of the network",
}


def training_time(result: Result) -> str:
    """By group the median and the largest ratio of times; then each operator of the first group."""
    rows: list[Result] = result["rows"]
    groups = list(dict.fromkeys(row["group"] for row in rows))
    summary = []
    for group in groups:
        found = [row for row in rows if row["group"] == group]
        flops = [row["flops_ratio"] for row in found]
        cells = [group, str(len(found)), f"{min(flops):.4f} to {max(flops):.4f}"]
        for kind in TIMES:
            ratios = [_ratio(row, kind) for row in found]
            above = sum(ratio > WANTED for ratio in ratios)
            cells.append(f"{statistics.median(ratios):.2f}, {max(ratios):.2f} ({above})")
        summary.append(cells)
    loads = [row["load"] for row in rows]
    heads = [f"{head}: median, largest (how many above {WANTED:g})" for head in TIMES.values()]
    first = (
        [
            f"{row['number'] + 1}",
            f"`{'; '.join(row['steps'][1:])}`",
            f"{row['flops_ratio']:.4f}",
            *(f"{_ratio(row, kind):.2f}" for kind in TIMES),
        ]
        for row in rows
        if row["group"] == groups[0]
    )
    return (
        f"{table(['operators', 'how many', 'FLOPs', *heads], summary)}\n\n"
        f"Load of the machine of two cores during the run: {min(loads):.1f} to {max(loads):.1f}. "
        f"The operators with the fewest FLOPs:\n\n"
        f"{table(['', 'steps', 'FLOPs', *TIMES.values()], first)}"
    )


def _ratio(row: Result, kind: str) -> float:
    found = row[kind]
    return float(found["ratio"] if isinstance(found, dict) else found)


PARTS = (single("training-time", training_time),)
