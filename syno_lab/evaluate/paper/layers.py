"""Figure 9: operators against conv2d on the layers of ResNet-34, one by one (Syno, section 9.2)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from syno_lab.errors import FormatError, StoreError
from syno_lab.evaluate.paper.facts import LabLike, PaperFigure, Series, place_of, results_of
from syno_lab.evaluate.reading.published import published_points
from syno_lab.evaluate.store import Store
from syno_lab.evaluate.store.records import finite

#: Milliseconds by operator and layer, and the operator that the others are compared with.
_Table = dict[str, dict[str, float]]


def figure_9(source: LabLike | None = None, *, run: str | None = None, target: str | None = None) -> PaperFigure:
    """The speedup of each operator over the baseline on each layer.

    Args:
        source: the stored results of ``benchmarks/tvm_tuning.py`` (a ``.json`` file), or a lab or store with a run that
            has latencies by layer; None: the paper's alone.
        run: its name; None: the last run that has latencies of a baseline and of another operator.
        target: of the run; None: its first.

    Raises:
        FormatError: the file has no layers.
        StoreError: the store cannot be read, or has no such run.
    """
    measured: tuple[_Table, str, str] | None = None
    if source is not None:
        place = place_of(source)
        measured = _of_file(place) if place.suffix == ".json" else _of_store(place, run, target)
    series = [] if measured is None else _speedups(*measured)
    means = [
        (f"{one.label}, {one.device}", one.speedup[0])
        for one in published_points("figure_9")
        if one.speedup is not None
    ]
    paper = Series("the paper, section 9.2", tuple(means), True)
    lacking = "" if series else " Nothing of it was measured here."
    note = (
        "Speedup over conv2d (or the run's baseline), both tuned with one budget. The paper gives averages in words, "
        f"on its Jetson Orin Nano; they are purple.{lacking}"
    )
    return PaperFigure("figure_9", "Layer by layer on ResNet-34", "bars", "", "speedup", (*series, paper), note)


def _speedups(table: _Table, baseline: str, where: str) -> list[Series]:
    base = table[baseline]
    found = []
    for name, layers in table.items():
        pairs = tuple((layer, base[layer] / ms) for layer, ms in layers.items() if layer in base)
        if name != baseline and pairs:
            found.append(Series(f"here, {name}, {where}", pairs))
    return found


def _of_file(path: Path) -> tuple[_Table, str, str]:
    results = results_of(path)
    table: _Table = {}
    layers = results.get("layers")
    for row in layers if isinstance(layers, list) else []:
        latency = finite(row.get("latency_ms")) if isinstance(row, Mapping) else None
        if latency:
            name = f"{row.get('channels')} channels, {row.get('height')}x{row.get('height')}"
            table.setdefault(str(row.get("operator")), {})[name] = latency
    if "conv2d" not in table:
        raise FormatError(f"{path}: expected results of benchmarks/tvm_tuning.py with the layers of conv2d, found none")
    about = results.get("about")
    return table, "conv2d", str(about.get("machine", "this machine")) if isinstance(about, Mapping) else "this machine"


def _of_store(place: Path, name: str | None, target: str | None) -> tuple[_Table, str, str] | None:
    with closing(Store.look(place)) as store:
        runs = [one for one in store.runs() if name in (None, one.name)]
        if name is not None and not runs:
            known = ", ".join(repr(one.name) for one in store.runs()) or "none"
            raise StoreError(f"no run {name!r} in {store.path}; there is {known}")
        for one in reversed(runs):
            targets = one.targets()
            chosen = target if target is not None else next(iter(targets), None)
            if chosen is None:
                continue
            table: _Table = {}
            baseline = ""
            for record in one.operators():
                layers = {
                    _layer(sizes): finite(result.get("latency_ms"))
                    for sizes, _, result in one.latencies(record.fingerprint, chosen)
                }
                found = {layer: latency for layer, latency in layers.items() if latency}
                if found:
                    table[record.label] = found
                    baseline = record.label if record.baseline else baseline
            if baseline and len(table) > 1:
                return table, baseline, chosen
    return None


def _layer(sizes: Mapping[str, Any]) -> str:
    """``64 to 128 channels, 28x28`` for the sizes of a convolution, else all sizes."""
    if {"C_in", "C_out", "H", "W"} <= sizes.keys():
        many = f"{sizes['C_in']}" if sizes["C_in"] == sizes["C_out"] else f"{sizes['C_in']} to {sizes['C_out']}"
        return f"{many} channels, {sizes['H']}x{sizes['W']}"
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
