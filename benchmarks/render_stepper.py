"""What the widgets cost as tables of ``benchmarks/README.md``, from what the scripts have written."""

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
        strict, free = result["browser"]["strict"]["all"], result["browser"]["free"]["all"]
        cells = [f"**{cell}**" for one in (strict, free) for cell in _cells(one, ("graph_ms", "list_ms"))]
        before, after = result["load"]
        what = f"**in JupyterLab, click to frame**, load {before:.1f} to {after:.1f}"
        rows.append([what, *cells, f"{strict['steps']} / {free['steps']}"])
    return header, rows


def fluid(result: dict[str, Any]) -> Rows:
    """What a reader does with many trials on the front costs the page and the kernel."""
    frames = result["lasso_frames"]
    told = f"frames {frames['median_ms']:.0f} / {frames['p95_ms']:.0f} ms" if "p95_ms" in frames else ""
    rows = [
        ["a move of the mouse while a lasso is drawn", f"{result['lasso_move_cpu_ms']:.1f}", told],
        ["a move of the mouse from point to point", f"{result['pointing_cpu_ms']:.1f}", ""],
        [
            "another front from the kernel",
            f"{result['update_cpu_ms']:.1f}",
            f"{result['bytes_sent'] / 1e3:.0f} kB sent",
        ],
        ["the table sorted by another column", f"{result['sort_cpu_ms']:.1f}", ""],
        ["the page opened", f"{result['page_cpu_ms']:.0f}", ""],
        ["the store read, in the kernel", f"{result['read_cpu_ms']:.0f}", ""],
        ["the view made, in the kernel", f"{result['construct_cpu_ms']:.0f}", ""],
    ]
    return [
        f"{result['trials']:,} trials, {result['on_front']} on the front",
        "CPU ms",
        "median / 95th percentile",
    ], rows


def first(result: dict[str, Any]) -> Rows:
    """How long the first picture takes in a fresh kernel."""
    low, high = sorted(result["load"])
    row = [f"{result['median_s']:.2f}", f"{result['longest_s']:.2f}", str(result["runs"]), f"{low:.1f} to {high:.1f}"]
    return ["seconds, median", "longest", "fresh kernels", "load"], [row]


def memory(result: dict[str, Any]) -> Rows:
    """What the page holds after so many steps."""
    rows = [[str(one["steps"]), f"{one['heap_mib']:.1f}", f"{one['nodes']:,}"] for one in result["memory"]]
    return ["steps in the stepper", "heap of JupyterLab's page, MiB", "DOM nodes"], rows


def _cells(found: dict[str, Any], names: tuple[str, str] = ("picture_ms", "whole_ms")) -> list[str]:
    """Median and 95th percentile of both times."""
    times = [found.get(name) for name in names]
    return ["–" if one is None else f"{one['median']:.1f} / {one['p95']:.1f}" for one in times]
