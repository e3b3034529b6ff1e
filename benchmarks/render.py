"""Put the results into ``benchmarks/README.md``, between its markers: ``python benchmarks/render.py``.

``--check`` writes nothing and fails when the README is not that of the results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import render_lab
import render_stepper
import render_tuning
import render_tvm
from common import RESULTS, typed
from render_ablations import ablation_tables
from render_codegen import tables

Result = dict[str, Any]
README = Path(__file__).parent / "README.md"

# Distinct operators a CPU-second: the authors' C++ engine and a Python prototype, both measured on two cores, and what
# we want. From the design notes of the project, section 7.
PEERS = {
    "conv-strict-7": ("–", "643 (fingerprints not paid)", None),
    "conv-strict-8": ("2.5 (249 in all)", "885 (fingerprints not paid)", 3000),
    "conv-strict-9": ("0.01 cold, 1.6 once its tree is expanded", "363 to 1,237", 2000),
    "conv-strict-12": ("0.01 or none in minutes", "22 plain, 102 to 173 with resampling", 500),
    "conv-free-7": ("22 (2,559 in all)", "–", 3000),
    "conv-free-8": ("6.6", "–", 2000),
    "conv-free-9": ("0.06", "155", 1000),
    "conv-free-12": ("0.03", "–", 300),
    "readme-8": ("0.5", "155 to 2,513", 2000),
}


def load(name: str) -> dict[str, Any] | None:
    """A result, or None where there is none yet."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def number(value: float | None, digits: int = 3) -> str:
    """A figure for people: thousands with commas, else so many significant digits."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def footer(abouts: list[dict[str, Any]]) -> str:
    """Which machine, when, and by which command, each said once."""
    said = []
    for item in abouts:
        line = (
            f"`{item['command']}`, {item['date']}, commit {item['commit']}, {item['machine']}, Python {item['python']}"
        )
        if line not in said:
            said.append(line)
    return "\n".join(f"- {line}" for line in said)


def one_table(make: Callable[[Result], tuple[list[str], list[list[str]]]]) -> Callable[[Result], str]:
    """A part that is one table."""
    return lambda result: table(*make(result))


def part_of(name: str, make: Callable[[Result], str]) -> str:
    """What ``make`` makes of one result, and what it was measured by."""
    result = load(name)
    if result is None:
        return "Not run yet."
    abouts = result.get("abouts") or [result["about"]]
    if "single" in result:
        abouts = [*abouts, result["single"]["about"]]
    return f"{make(result)}\n\n{footer(abouts)}"


def synthesis() -> str:
    """The table of rates."""
    result = load("synthesis") or {}
    rows = []
    for row, (authors, prototype, wanted) in PEERS.items():
        found = result.get(row)
        name = row.replace("-", " ").replace("readme 8", "README spec 8")
        goal = "–" if wanted is None else f"{wanted:,}"
        if found is None:
            ours = ["not run"] + [""] * 5
        elif "error" in found:
            ours = [found["error"].replace("|", "\\|")] + [""] * 5
        else:
            share = found["repeat_share"]
            ours = [
                f"**{number(found['distinct_per_cpu_second'])}**",
                f"{found['distinct']:,}" + (" (all)" if found["exhausted"] else ""),
                number(found["cpu_seconds"]),
                "–" if share is None else f"{100 * share:.2f} % of {found['fingerprinted']:,}",
                f"{found['peak_memory_bytes'] / 2**20:.0f} MiB",
                number(found["fingerprint_cpu_seconds"]),
            ]
        rows.append([name, *ours, goal, authors, prototype])
    header = ["spec, limits, at most", "distinct a CPU-second", "drawn", "CPU-seconds", "repeats", "peak memory"]
    header += ["fingerprints, CPU-seconds", "wanted", "authors' engine", "prototype"]
    return table(header, rows) + "\n\n" + (footer([found["about"] for found in result.values()]) or "Not run yet.")


def growth(result: Result) -> str:
    """The table beside the plot."""
    by_size: dict[int, dict[str, dict[str, Any]]] = {}
    for row in result["rows"]:
        by_size.setdefault(row["max_primitives"], {})[row["weight_limits"]] = row

    def cells(row: dict[str, Any] | None) -> list[str]:
        if row is None:
            return ["–"] * 3
        if "error" in row:
            return [row["error"].replace("|", "\\|"), "–", "–"]
        drawn = f"{row['distinct']:,}" + (" (all)" if row["exhausted"] else "")
        return [drawn, number(row["one_more_ms"]), f"{row['peak_memory_bytes'] / 2**20:.0f}"]

    rows = [[str(size), *cells(found.get("strict")), *cells(found.get("free"))] for size, found in by_size.items()]
    header = ["at most"]
    header += [f"{limits}: {what}" for limits in ("strict", "free") for what in ("drawn", "ms for one more", "MiB")]
    plot = "![Time for one more operator and peak memory by size](results/growth.svg)"
    return f"{plot}\n\n{table(header, rows)}"


def budgets(result: Result) -> tuple[list[str], list[list[str]]]:
    """Operators a CPU-second under budgets, where partial pGraphs are pruned and where whole operators are measured."""
    rows = []
    for name, found in result.items():
        if name == "about":
            continue
        ratios = [bounds["rate"] / whole["rate"] for whole, bounds in found["pairs"]]
        spread = f"{number(min(ratios))} to {number(max(ratios))}"
        rows.append([name, number(found["whole"]), number(found["bounds"]), f"{number(found['ratio'])} ({spread})"])
    header = ["limits, at most, budget", "whole operators measured", "partial pGraphs pruned", "ratio (least to most)"]
    return header, rows


def step(result: Result) -> str:
    """Times of one step by depth."""
    rows = []
    for strict, free in zip(result["strict"]["depths"], result["free"]["depths"], strict=True):
        cells = [f"{number(f['median_ms'])} / {number(f['p95_ms'])} ({f['states']})" for f in (strict, free)]
        rows.append([str(strict["depth"]), *cells])
    whole = [result[limits]["all"] for limits in ("strict", "free")]
    rows.append(["**all**", *(f"**{number(f['median_ms'])} / {number(f['p95_ms'])}** ({f['states']})" for f in whole)])
    header = ["depth", "strict: median / 95th percentile, ms (states)", "free"]
    return f"{table(header, rows)}"


def bias(result: Result) -> str:
    """Walks beside uniform draws, by number of steps."""
    walks, uniform = result["walks"], result["uniform"]

    def ratio(row: dict[str, Any]) -> str:
        times = "–" if row["most_to_least"] is None else f"{row['most_to_least']:.1f}"
        return f"{times} ({row['most']:,} / {row['least']:,})"

    rows = [
        [
            str(ours["steps"]),
            f"{ours['operators']:,}",
            f"{ours['share_of_space']:.1%}",
            f"{ours['share_of_draws']:.1%}",
            f"{ours['never_drawn']:,}",
            ratio(ours),
            ratio(theirs),
        ]
        for ours, theirs in zip(walks["by_steps"], uniform["by_steps"], strict=True)
    ]
    header = ["steps", "operators", "of the space", "of the walks", "never drawn by walks"]
    header += ["most to least often: walks (times)", "uniform draws"]
    operators = result["operators"]
    never = walks["never_drawn"]
    summary = (
        f"Of {operators:,} operators {walks['draws']:,} walks never drew {never:,} ({never / operators:.0%}); as many "
        f"uniform draws left out {uniform['never_drawn']:,}. The total variation from uniform is "
        f"{walks['total_variation']:.2f} for walks, and {uniform['total_variation']:.2f} for uniform draws by chance."
    )
    return f"{table(header, rows)}\n\n{summary}"


def trust(result: Result) -> str:
    """How many operators agreed, and how often each corner was met."""
    checks = list(result["checked"])
    rows = [["**operators**", *(f"**{result['checked'][check]:,}**" for check in checks)]]
    rows += [["that disagree", *(f"{result['failed'][check]:,}" for check in checks)]]
    rows += [["from the sampler", *(_drawn(result["sources"][check]) for check in checks)]]
    rows += [[name, *(f"{met[check]:,}" for check in checks)] for name, met in result["corners"].items()]
    names = {"values": "torch values", "gradients": "torch gradients", "tvm": "compiled TVM"}
    return f"{table(['', *(names[check] for check in checks)], rows)}"


def _drawn(sources: dict[str, int]) -> str:
    """How many were not built at random, and over how many specs."""
    drawn = {name: found for name, found in sources.items() if name != "built at random"}
    return f"{sum(drawn.values()):,} over {len(drawn)} specs"


def flops(result: Result) -> str:
    """ResNet-34 with other operators in it, beside the paper's ranges."""
    found = result["sampled"]
    rows = [
        ["the paper's best", "–", "–", *(f"{low} to {high}" for low, high in result["paper"].values()), "–", "–"],
        *_flops_rows(result["rows"]),
        *(
            _flops_rows(
                [
                    {**one, "name": f"{what} sampled: {one['name']}"}
                    for what in ("cheapest", "median")
                    for one in found[what]
                ]
            )
        ),
    ]
    header = ["operator", "GFLOPs", "million parameters", "FLOPs down", "parameters down"]
    header += ["FLOPs down, replaced layers alone", "parameters down, replaced layers alone"]
    said = f"Of {found['drawn']:,} operators drawn, {found['fit']:,} slide along H and W and join C_in and C_out in a "
    said += "weight: of these the cheapest and the median by FLOPs."
    return f"{table(header, rows)}\n\n{said}"


def _flops_rows(rows: list[dict[str, Any]]) -> list[list[str]]:
    ratios = ("flops_down", "params_down", "layer_flops_down", "layer_params_down")
    return [
        [row["name"], number(row["flops"] / 1e9), number(row["params"] / 1e6), *(number(row[name]) for name in ratios)]
        for row in rows
    ]


def tvm(result: Result) -> str:
    """Tuned latencies against TE by hand, and of operators against conv2d."""
    header = ["conv2d's pGraph over TE by hand", "ratio of medians", "ratio of the least", "wanted, at most"]
    hand = table(header, render_tvm.by_hand(result))
    return f"{hand}\n\n{table(*render_tvm.layers(result))}"


def int8(result: Result) -> str:
    """INT8 beside float32."""
    tables_of_it = (render_tuning.int8_layers(result), render_tuning.int8_accuracy(result))
    return "\n\n".join(table(*one) for one in tables_of_it)


def codegen(result: Result) -> str:
    """Generated torch modules against PyTorch."""
    return "\n\n".join(f"### {title}\n\n{table(header, rows)}" for title, header, rows in tables(result["rows"]))


def jobs() -> str:
    """What jobs and the store cost, and what they lose."""
    parts = []
    for name, title, rows in (
        ("chaos", "Killed at random", render_lab.chaos_rows),
        ("starts", "Beside a training", render_lab.start_rows),
        ("store", "The store (in brackets: CPU-seconds)", render_lab.store_rows),
    ):
        result = load(name)
        if result is not None:
            parts.append(f"### {title}\n\n{table(*rows(result))}\n\n{footer([result['about']])}")
    return "\n\n".join(parts) or "Not run yet."


def search_resnet20() -> str:
    """Searches for a network: one with the command's defaults, and a shorter one before it."""
    found = [result for name in ("search_resnet20", "search_resnet20_ten_minutes") if (result := load(name))]
    parts = ["\n".join([*render_lab.search_lines(result), "", footer([result["about"]])]) for result in found]
    traffic = load("traffic")
    if traffic is not None:
        parts += [
            "### Memory traffic and time",
            render_lab.traffic_line(traffic),
            table(*render_lab.traffic_rows(traffic)),
        ]
        parts.append(footer([traffic["about"]]))
    return "\n\n".join(parts) or "Not run yet."


def ablations() -> str:
    """The paper's ablations."""
    names = ("ablate-canonical", "ablate-complete", "ablate-distance")
    found = ablation_tables({name: load(name) for name in names})
    return "\n\n".join(f"### {title}\n\n{table(header, rows)}" for title, header, rows in found) or "Not run yet."


#: Parts of the page that are one result's, by the name of its file.
PARTS: dict[str, Callable[[Result], str]] = {
    "growth": growth,
    "budgets": one_table(budgets),
    "step": step,
    "stepper": one_table(render_stepper.clicks),
    "stepper-first": one_table(render_stepper.first),
    "stepper-memory": one_table(render_stepper.memory),
    "runs-view": one_table(render_stepper.fluid),
    "bias": bias,
    "flops": flops,
    "trust": trust,
    "tvm": tvm,
    "tuning-rules": one_table(render_tvm.rules),
    "tuning-cost": one_table(render_tuning.cost),
    "against-pytorch": one_table(render_tuning.against_pytorch),
    "network": one_table(render_tuning.network),
    "int8": int8,
    "codegen": codegen,
}
#: Parts that are made of several results, or row by row.
WHOLE: dict[str, Callable[[], str]] = {
    "synthesis": synthesis,
    "ablations": ablations,
    "jobs": jobs,
    "search-resnet20": search_resnet20,
}


def with_part(text: str, name: str, part: str) -> str:
    """``text`` with ``part`` between the markers of this name.

    Raises:
        SystemExit: when a marker is missing.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        sys.exit(f"{README.name}: expected {begin} and {end} once each")
    return pattern.sub(lambda _: f"{begin}\n{part}\n{end}", text)


def rendered(text: str) -> str:
    """``text`` with every marked part of this script made anew. Raises as :func:`with_part` does."""
    for name, make in PARTS.items():
        text = with_part(text, name, part_of(name.replace("-", "_"), make))
    for name, whole in WHOLE.items():
        text = with_part(text, name, whole())
    return text


def write_or_check(make: Callable[[str], str], about_it: str) -> None:
    """The main function of a script that makes the README anew; ``about_it`` is what the script says of itself."""
    arguments = argparse.ArgumentParser(description=about_it.partition("\n\n")[0])
    arguments.add_argument("--check", action="store_true", help="write nothing; fail when the README is out of date")
    chosen = arguments.parse_args()
    before = README.read_text(encoding="utf-8")
    after = make(before)
    if chosen.check and before != after:
        sys.exit(f"benchmarks/README.md is not that of benchmarks/results: run {typed().removesuffix(' --check')}")
    if not chosen.check:
        README.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    write_or_check(rendered, __doc__ or "")
