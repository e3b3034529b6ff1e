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


def power(result: Result) -> str:
    """For each planted difference and spread of the seeds, the shares of the verdicts and of the kept promises."""
    heads = [
        "planted",
        "seeds' spread",
        "worse",
        "better",
        "equal",
        "undecided",
        "the plan's least",
        "told",
        "of these decided",
    ]
    rows = (
        [
            "the plan's least" if row["points"] is None else f"{row['points']:g} points worse",
            f"{row['spread']:g} points",
            *(f"{row[verdict]:.1%}" for verdict in ("worse", "better", "equal", "undecided")),
            f"{row['least']:.1f} points",
            f"{row['told']} of {row['runs']}",
            "" if row["told_decided"] is None else f"{row['told_decided']:.1%}",
        ]
        for row in result["rows"]
    )
    return f"{table(heads, rows)}\n\nThe seed of all draws: {result['seed']}."


PARTS = (single("training-time", training_time), single("power", power))
