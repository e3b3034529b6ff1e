"""What a reproduction gave beside what the paper states, in sentences: the numbers come from the parts' results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from reproduction.paper.facts import results_of
from reproduction.paper.language import figure_10
from reproduction.paper.layers import figure_9
from reproduction.paper.rates import table_2
from reproduction.paper.vision import WITHIN
from reproduction.paper.whole import networks_of, threads_of
from syno_lab.reports.published import published_points
from syno_lab.store.records import finite


def of_rates(path: Path) -> list[str]:
    """Table 2."""
    figure, found = table_2(path), results_of(path)
    (here,), (paper,) = figure.measured, figure.paper
    theirs = {str(size): rate for size, rate in paper.values}
    sides: dict[str, list[str]] = {"above": [], "within": [], "below": []}
    sentences = []
    for (size, share), (hits, drawn), (low, high) in zip(here.values, here.counts, here.ranges, strict=True):
        rate = theirs.get(str(size))
        if rate is not None:
            sides["above" if rate > high else "below" if rate < low else "within"].append(str(size))
        if size in (here.values[0][0], here.values[-1][0]):
            stated = "states none" if rate is None else f"has {100 * rate:g} %"
            sentences.append(
                f"Of pGraphs of {size} primitives {100 * share:.2f} % are canonical here ({hits:,} of {drawn:,}, 95 % "
                f"interval {100 * low:.2f} to {100 * high:.2f} %); the paper {stated}."
            )
    beside = "; ".join(f"{side} for {_listed(sizes)}" for side, sizes in sides.items() if sizes)
    drawn_how = (
        "Each step is drawn evenly among all legal ones, and a pGraph with a step that the space refuses counts as not "
        f"canonical: {found.get('walks'):,} walks, of {found.get('spec')}."
    )
    silent = (
        "The paper states neither its shapes nor how steps were drawn. It has all pGraphs of 2 primitives canonical, "
        "which draws evenly over all legal steps do not give."
    )
    return [*sentences, f"The paper's rate against our interval, by primitives: {beside}.", drawn_how, silent]


def of_distance(path: Path) -> list[str]:
    """The ablation of the shape distance."""
    sentences = []
    for row in _rows(results_of(path)):
        which = "With" if row.get("guided") else "Without"
        trials, distinct, valid = (_count(row, key) for key in ("trials", "distinct", "valid"))
        told = f"{valid:,} of {trials:,} trials end at an operator; distinct operators: {distinct:,}"
        if not valid:
            rarest = 1 / (finite(row.get("high")) or 1.0)
            told = f"none of {trials:,} trials ends at an operator: fewer than one in {rarest:,.0f} at 95 %"
        sentences.append(f"{which} the distance {told}.")
    theirs = (
        "The paper has 253 distinct operators of 5 million trials with it, and none of 500 million without. It states "
        "neither its shapes nor when a trial asks for the distance; here a trial asks before every step."
    )
    return [*sentences, theirs]


def of_layers(path: Path) -> list[str]:
    """Figure 9."""
    found = results_of(path)
    stated = [one for one in published_points("figure_9") if one.speedup is not None and one.device == "CPU"]
    theirs = {one.operator: one.speedup[0] for one in stated if one.operator and one.speedup is not None}
    ours: dict[str, float] = {}
    for series in figure_9(path).measured:
        name = series.name.removeprefix("here, ").split(",")[0]
        ours[name] = geometric_mean([value for _, value in series.values])
    sentences = [
        f"{name.replace('_', ' ').capitalize()} is {_times(ours[name])} as conv2d in the geometric mean over the "
        f"layers, {_times(theirs[name])} in the paper (CPU)."
        for name in ("operator_1", "operator_2")
        if name in ours and name in theirs
    ]
    best = [max((ours[name] for name in ours if part in name), default=None) for part in ("operator_", "nas_pte_")]
    if best[0] and best[1]:
        sentences.append(
            f"The faster of these is {_times(best[0] / best[1])} as the fastest of NAS-PTE's operators, by such means, "
            f"{_times(2.13)} in the paper."
        )
    missing = [
        f"{row.get('operator')} with {row.get('channels')} channels"
        for row in _rows(found, "layers")
        if row.get("error")
    ]
    if missing:
        sentences.append(f"Not tuned: {_listed(missing)}.")
    here = (
        f"Every operator has {found.get('candidates')} candidates on each layer here, in {threads_of(found)} of this "
        "processor. The paper tunes on its Jetson Orin Nano and does not say how long. The layers are the 3x3 "
        "convolutions of stride 1 in ResNet-34."
    )
    return [*sentences, here]


def of_text(path: Path) -> list[str]:
    """Figure 10."""
    given = results_of(path).get("settings")
    settings = given if isinstance(given, Mapping) else {}
    sentences = []
    for one in figure_10(path).measured:
        steps, perplexity = one.values[-1]
        name = one.name.removeprefix("here, ").rpartition(", seed")[0]
        sentences.append(f"{name}: perplexity {perplexity:.3g} after {float(steps):,.0f} steps.")
    here = (
        f"A tiny GPT reads {settings.get('data')} here, for {finite(settings.get('budget_s')) or 0.0:,.0f} s each and "
        "in tokens of its own, so that only these networks can be compared with each other. The paper trains GPT-2 "
        "(117M parameters) on LM1B for 100,000 steps: perplexity 99 with its operator, 111 without."
    )
    return [*sentences, here]


def of_networks(path: Path) -> list[str]:
    """Figures 5, 6 and 8 together."""
    whole = networks_of(path)
    best = whole.fastest(WITHIN)
    sentences = [
        f"No operator is within {WITHIN:g} point of the baseline's accuracy."
        if best is None
        else f"The fastest within {WITHIN:g} point of the baseline's accuracy is {best.label}, "
        f"{_times(whole.speedup(best))}.",
        f"The paper's best are {_times(2.06)} in the geometric mean of five networks (CPU).",
    ]
    if whole.baseline.accuracy is not None:
        told = f"The baseline's accuracy is {100 * whole.baseline.accuracy:.1f} %"
        if whole.indistinct is not None:
            told += (
                f" on {whole.test_images:,} test images: accuracies that differ by less than {whole.indistinct:.1f} "
                "percentage points may differ by chance alone (95 %)"
            )
        sentences.append(f"{told}.")
    for row in whole.rows:
        points = whole.points(row)
        lost = "no accuracy" if points is None else f"{points:+.2f} percentage points"
        sentences.append(f"{row.label}: {_times(whole.speedup(row))}, {lost}.")
    here = (
        f"Here: {whole.name}, {whole.about}. The paper has five networks, whole trainings on CIFAR-100 and ImageNet, "
        "and its Jetson Orin Nano: its values and ours agree in direction at most."
    )
    int8 = "INT8 (Figure 8) is no part of a reproduction: `benchmarks/int8.py` measures it by PyTorch, layer by layer."
    return [*sentences, here, int8]


def _times(speedup: float | None) -> str:
    return "no latency" if speedup is None else f"{speedup:.2f} times as fast"


def _listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _rows(found: Mapping[str, Any], key: str = "rows") -> Sequence[Mapping[str, Any]]:
    rows = found.get(key)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _count(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key)
    return value if isinstance(value, int) else 0
