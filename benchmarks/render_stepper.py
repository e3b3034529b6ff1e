"""Clicks in the stepper as a table of ``benchmarks/README.md``, from what ``stepper.py`` has written."""

from __future__ import annotations

from typing import Any

Rows = tuple[list[str], list[list[str]]]


def clicks(result: dict[str, Any]) -> Rows:
    """Milliseconds to the picture and to the whole answer by depth, and in the browser where that was measured."""
    header = ["depth", *(f"{limits}: {what}" for limits in ("strict", "free") for what in ("picture", "whole answer"))]
    header = [header[0], *(f"{name}, ms" for name in header[1:]), "clicks"]
    rows = []
    for strict, free in zip(result["strict"]["depths"], result["free"]["depths"], strict=True):
        rows.append([str(strict["depth"]), *_cells(strict), *_cells(free), f"{strict['steps']} / {free['steps']}"])
    strict, free = result["strict"]["all"], result["free"]["all"]
    cells = [f"**{cell}**" for cell in (*_cells(strict), *_cells(free))]
    rows.append(["**all**", *cells, f"{strict['steps']} / {free['steps']}"])
    if "browser" in result:
        found = result["browser"]
        told = f"**{found['median_ms']:.0f} / {found['p95_ms']:.0f}**"
        rows.append(["in JupyterLab, click to frame", told, "", "", "", str(found["steps"])])
    return header, rows


def _cells(found: dict[str, Any]) -> list[str]:
    """Median and 95th percentile of both times."""
    times = [found.get(name) for name in ("picture_ms", "whole_ms")]
    return ["–" if one is None else f"{one['median']:.1f} / {one['p95']:.1f}" for one in times]
