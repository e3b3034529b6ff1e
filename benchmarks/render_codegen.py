"""The tables of ``codegen.json``: generated torch modules against PyTorch's own layers and against the naive plan."""

from __future__ import annotations

from math import exp, log
from typing import Any

TITLES = {
    "conv2d": "conv2d's pGraph over `nn.Conv2d`, wanted at most 1.1",
    "operator_1": "Operator 1 (K=3, g=8) over `nn.Conv2d`, wanted below 1 at stride 1 from 128 channels on",
    "calls": "Over PyTorch's own call, wanted at most 1.1",
    "compile": "`compile=True` over the same module without",
}
Rows = list[dict[str, Any]]


def tables(rows: Rows) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, header and lines of each table: a ratio and the two peaks of memory for each setting."""
    settings = sorted({(r["threads"], r["batch"]) for r in rows if r["table"] != "plans"})
    made = []
    for table, title in TITLES.items():
        lines = []
        for name in dict.fromkeys(r["name"] for r in rows if r["table"] == table):
            found = {(r["threads"], r["batch"]): r for r in rows if r["table"] == table and r["name"] == name}
            lines.append([name, *(_cell(found.get(setting)) for setting in settings)])
        header = ["ratio of times (peak memory: ours / peer's, MiB)"]
        header += [f"{threads} thread{'s' * (threads > 1)}, batch {batch}" for threads, batch in settings]
        if lines:
            made.append((title, header, lines))
    lines = []
    for threads in sorted({r["threads"] for r in rows if r["table"] == "plans"}):
        some = [r for r in rows if r["table"] == "plans" and r["threads"] == threads]
        lines.append(
            [
                f"{threads}",
                f"{len(some)}",
                f"{_mean([r['ratio'] for r in some]):.2f}",
                f"{max(r['ratio'] for r in some):.2f}",
                f"{_mean([r['best_flops'] / r['naive_flops'] for r in some]):.2f}",
                f"{_mean([r['ours_peak_bytes'] / r['peer_peak_bytes'] for r in some]):.2f}",
                f"{max(r['ours_peak_bytes'] / r['peer_peak_bytes'] for r in some):.2f}",
            ]
        )
    header = ["threads", "operators", "time: geometric mean", "worst", "FLOPs: mean", "peak memory: mean", "worst"]
    if lines:
        made.append(("The plan with the fewest FLOPs over the naive one, where they differ", header, lines))
    return made


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    ours, peer = (row[f"{who}_peak_bytes"] / 2**20 for who in ("ours", "peer"))
    return f"**{row['ratio']:.2f}** ({ours:.1f} / {peer:.1f})"


def _mean(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))
