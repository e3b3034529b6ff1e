"""The axes on which trials are compared, from accuracy to the probe; plain or over the baseline's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from syno_lab.errors import SynoError
from syno_lab.inputs import quoted
from syno_lab.reports.rows import TrialRow
from syno_lab.store.pareto import AXES, Axis

__all__ = ["LATENCY", "Axis", "axis_value", "find_axis", "list_axes"]

#: The name of the latency on a target is ``latency_ms@TARGET``.
LATENCY = "latency_ms@"
_MEMORY = Axis("memory_mib", "memory of the training", "MiB", False)
_PROBE = Axis("probe", "score of the probe", "", True)
_PLAIN = {name: AXES[name] for name in ("accuracy", "flops", "params")} | {one.name: one for one in (_MEMORY, _PROBE)}


def list_axes(targets: Iterable[str]) -> tuple[Axis, ...]:
    """Every axis of a lab with these targets, accuracy first, then the latencies."""
    accuracy, *others = _PLAIN.values()
    latencies = (find_axis(LATENCY + target) for target in targets)
    return (accuracy, *latencies, *others)


def find_axis(name: str) -> Axis:
    """The axis of this name: ``accuracy``, ``latency_ms@TARGET``, ``flops``, ``params``, ``memory_mib``, ``probe``.

    Raises:
        SynoError: there is no such axis.
    """
    if name in _PLAIN:
        return _PLAIN[name]
    if name.startswith(LATENCY) and len(name) > len(LATENCY):
        return Axis(name, f"latency on {name.removeprefix(LATENCY)}", "ms", False)
    raise SynoError(f"no axis {quoted(name)}: expected one of {', '.join(_PLAIN)} or {LATENCY}TARGET")


def relative(axis: Axis) -> Axis:
    """The axis as a comparison with the baseline: percentage points of accuracy, else a ratio (below 1 is less)."""
    if axis.name == "accuracy":
        return axis._replace(title="accuracy against the baseline", unit="percentage points")
    return axis._replace(title=f"{axis.title} over the baseline's", unit="")


def axis_value(row: TrialRow, axis: Axis, baselines: Mapping[str, TrialRow] | None = None) -> float | None:
    """The row's value, None where it was not measured; against the baseline of its source where these are given."""
    value = _value(row, axis)
    if value is None or baselines is None:
        return value
    base = None if row.source not in baselines else _value(baselines[row.source], axis)
    if base is None or (axis.name != "accuracy" and base <= 0):
        return None
    return 100 * (value - base) if axis.name == "accuracy" else value / base


def _value(row: TrialRow, axis: Axis) -> float | None:
    if axis.name.startswith(LATENCY):
        return row.latencies.get(axis.name.removeprefix(LATENCY))
    if axis.name == "accuracy":  # an unfinished training's accuracy is not comparable
        return row.accuracy if row.state == "finished" else None
    found: float | None = getattr(row, axis.name)
    return None if found is None else float(found)
