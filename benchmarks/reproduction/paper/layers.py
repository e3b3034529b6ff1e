"""Figure 9: operators against conv2d on the layers of ResNet-34, one by one (Syno, section 9.2)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from reproduction.paper.facts import LabLike, PaperFigure, Series, place_of, results_of
from syno_lab.errors import FormatError, StoreError
from syno_lab.inputs import quoted
from syno_lab.reports.published import published_points
from syno_lab.store import SearchLog, Store
from syno_lab.store.courses import read_course
from syno_lab.store.records import finite

#: Milliseconds by operator and layer, and the operator with which the others are compared.
_Table = dict[str, dict[str, float]]
_LONGEST_MACHINE = 40  # letters, in a legend


def figure_9(source: LabLike | None = None, *, run: str | None = None, target: str | None = None) -> PaperFigure:
    """The speedup of each operator over the baseline on each layer.

    Args:
        source: the stored results of ``benchmarks/tvm_tuning.py`` or of the part ``layers`` of ``reproduce.py``
            (a ``.json`` file), or a lab or store with a search whose trials were tuned;
            None: only the paper's values.
        run: the name of the search; None: the last one with latencies of a baseline and of another operator.
        target: of the search; None: its own.

    Raises:
        FormatError: the file has no layers.
        StoreError: the store cannot be read, or has no such search.
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
        "Speedup over conv2d (or the search's baseline), both tuned with one budget. The paper gives averages in "
        f"words, on its Jetson Orin Nano; they are purple.{lacking}"
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
        # The benchmark keeps the least of single calls in turns, a reproduction the median of a tuning's measurements.
        latency = finite(row.get("least_ms", row.get("latency_ms"))) if isinstance(row, Mapping) else None
        if latency:
            name = f"{row.get('channels')} channels, {row.get('height')}x{row.get('height')}"
            table.setdefault(str(row.get("operator")), {})[name] = latency
    if "conv2d" not in table:
        raise FormatError(f"{path}: expected results of benchmarks/tvm_tuning.py with the layers of conv2d, found none")
    about = results.get("about")
    machine = str(about.get("machine", "this machine")) if isinstance(about, Mapping) else "this machine"
    return table, "conv2d", machine if len(machine) <= _LONGEST_MACHINE else "this machine"


def _of_store(place: Path, name: str | None, target: str | None) -> tuple[_Table, str, str] | None:
    with closing(Store.look(place)) as store:
        searches = store.searches()
        if name is not None and name not in {one.name for one in searches}:
            known = ", ".join(repr(one.name) for one in searches) or "none"
            raise StoreError(f"no search {quoted(name)} in {store.path}; there is {known}")
        for log in reversed([one for one in searches if name in (None, one.name)]):
            found = _of_search(log, store.path.parent, target)
            if found is not None:
                return found
    return None


def _of_search(log: SearchLog, folder: Path, target: str | None) -> tuple[_Table, str, str] | None:
    """The tuned trials of a search beside its baseline; None where one of the two is missing."""
    said = None if set(log.name) & set("/\\") else read_course(folder / "searches" / log.name / "status.json")
    tuning = said.get("tuning") if isinstance(said, dict) else None
    if not isinstance(tuning, dict) or target not in (None, tuning.get("target")):
        return None
    where = str(tuning.get("target"))
    table = {f"trial {number}": _parts(found.get("layers")) for number, found in log.latencies(where).items()}
    table = {"baseline": _parts(tuning.get("baseline_layers")), **table}
    table = {name: layers for name, layers in table.items() if layers}
    return (table, "baseline", where) if "baseline" in table and len(table) > 1 else None


def _parts(layers: object) -> dict[str, float]:
    """Milliseconds by layer from data of :func:`syno_lab.experiments.tunings.summed`; empty for any other data."""
    found = {}
    for part in layers if isinstance(layers, list) else []:
        sizes = part.get("binding") if isinstance(part, dict) else None
        latency = finite(part.get("latency_ms")) if isinstance(part, dict) else None
        if isinstance(sizes, dict) and latency is not None and latency > 0:
            found[_layer(sizes)] = latency
    return found


def _layer(sizes: Mapping[str, Any]) -> str:
    """``64 to 128 channels, 28x28`` for the sizes of a convolution, else all sizes."""
    if {"C_in", "C_out", "H", "W"} <= sizes.keys():
        many = f"{sizes['C_in']}" if sizes["C_in"] == sizes["C_out"] else f"{sizes['C_in']} to {sizes['C_out']}"
        return f"{many} channels, {sizes['H']}x{sizes['W']}"
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
