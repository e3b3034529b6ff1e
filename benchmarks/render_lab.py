"""Jobs, store and one search as tables of ``benchmarks/README.md``, from what their benchmarks have written."""

from __future__ import annotations

from typing import Any

Rows = tuple[list[str], list[list[str]]]
TROUBLES = ("lost", "duplicated", "wrong", "overlapping", "stuck")


def store_rows(result: dict[str, Any]) -> Rows:
    """The store with many trials, and Optuna's with what it can be filled with in the time."""
    header = ["store", "trials", "one trial written, ms", "opened, s", "all listed, s", "front of them, s", "MiB"]
    rows = []
    for name, label in (("ours", "ours"), ("optuna", "Optuna's, SQLite")):
        found = result[name]
        times = [f"{found[f'{part}_s']:.3f} ({found[f'{part}_cpu_s']:.3f})" for part in ("open", "list", "front")]
        rows.append(
            [label, f"{found['trials']:,}", f"{found['write_in_memory_ms']:.3g}", *times, f"{found['mib']:.1f}"]
        )
    return header, rows


def start_rows(result: dict[str, Any]) -> Rows:
    """What a training as a job costs beside the training."""
    header = ["the job's process", "CPU-seconds beside the training", "of a trial from this long on at most 2 %, s"]
    rows = [
        [label, f"{found['beside_training_s']:.2f}", f"{found['least_trial_s']:.0f}"]
        for way, label in (("alone", "started by itself"), ("forked", "forked by one that has imported torch"))
        for found in [result["ways"][way]]
    ]
    return header, rows


def chaos_rows(result: dict[str, Any]) -> Rows:
    """What was lost when processes were killed."""
    killed = ", ".join(f"{number} of the {role}" for role, number in sorted(result["killed"].items()))
    recovery = result["recovery_s"]
    header = ["kills", "whom", *TROUBLES, "processes left", "whole again after, s: median / 95th percentile"]
    troubles = [str(len(result[name])) for name in TROUBLES]
    row = [
        str(result["kills"]),
        killed,
        *troubles,
        str(result["processes left"]),
        f"{recovery['p50']:.1f} / {recovery['p95']:.1f}",
    ]
    return header, [row]


def search_lines(result: dict[str, Any]) -> list[str]:
    """One search for a network, in words."""
    states = ", ".join(f"{number} {state}" for state, number in sorted(result["states"].items()))
    seeds = ", ".join(f"{value:.3f}" for value in result["baseline"]["accuracies"])
    lines = [
        f"- {result['trials']} operators evaluated ({states}: a training may take twice the baseline's time)",
        f"- {result['trials_per_hour']:.0f} an hour; overhead {result['overhead_share']:.1%} of the trainings' time",
        f"- baseline: accuracy {result['baseline']['accuracy']:.3f} (seeds: {seeds})",
    ]
    wanted = [("half", "best within a half of its FLOPs"), ("quarter", "best within a quarter of its FLOPs")]
    if result.get("known"):
        wanted.append(("known", f"best of {len(result['known'])} known operators, {_best_known(result)}"))
    for name, which in wanted:
        found = result["comparisons"].get(name)
        if found is None:
            lines.append(f"- {which}: none")
            continue
        interval = found["interval"]
        lines.append(
            f"- {which}: accuracy {found['operator']:.3f} at {found['flops_ratio']:.3f} of "
            f"the FLOPs, {found['params_ratio']:.3f} of the parameters; difference {interval['difference']:+.3f}, "
            f"95 % interval {interval['low']:+.3f} to {interval['high']:+.3f}"
        )
    return lines


def _best_known(result: dict[str, Any]) -> str:
    best = max(result["known"], key=lambda one: one["accuracy"])
    return str(best["known"])


def traffic_rows(result: dict[str, Any]) -> Rows:
    """What a limit on the memory traffic would have cut of a search's trials."""
    header = ["limit of traffic", "slow trials cut", "other trials cut", "the most accurate is cut"]
    rows = [
        [
            f"{found['limit']:g}",
            f"{found['slow_cut']} of {result['slow']}",
            f"{found['fine_cut']} of {found['fine']}",
            "yes" if found["best_is_cut"] else "no",
        ]
        for found in result["limits"]
    ]
    return header, rows


def traffic_line(result: dict[str, Any]) -> str:
    """How well what is known before a training orders the trainings' times, in words."""
    by = {
        what: f"{found['rho']:.2f} ({found['low']:.2f} to {found['high']:.2f})"
        for what, found in result["time_by"].items()
    }
    return (
        f"{result['trials']} trials that a filter at {result['filter']:g} had let through, {result['slow']} of them "
        f"slow (above {result['allowed_s']:.0f} s). Rank correlation with the time of a whole training: memory traffic "
        f"{by['traffic']}, FLOPs {by['flops_ratio']}."
    )
