"""The axes on which trials are compared, such as accuracy or latency, as plain values or relative to the baseline.

Accuracies on two rungs are two axes, because they are two measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from syno_lab.errors import SynoError
from syno_lab.inputs import quoted
from syno_lab.reports.rows import LATENCY, RUNG, TrialRow
from syno_lab.store.latencies import latency_title
from syno_lab.store.pareto import AXES, Axis

__all__ = ["LATENCY", "RUNG", "Axis", "axis_value", "find_axis", "is_accuracy", "list_axes"]

_MEMORY = Axis("memory_mib", "memory of the training", "MiB", False)
_PROBE = Axis("probe", "score of the probe", "", True)
_PLAIN = {name: AXES[name] for name in ("accuracy", "flops", "params")} | {own.name: own for own in (_MEMORY, _PROBE)}


def list_axes(targets: Iterable[str], rungs: Iterable[str] = ()) -> tuple[Axis, ...]:
    """Return all axes of a lab with these targets and rungs: accuracy, accuracies on rungs, latencies, other axes."""
    accuracy, *rest = _PLAIN.values()
    named = (*(RUNG + rung for rung in rungs), *(LATENCY + target for target in targets))
    return (accuracy, *map(find_axis, named), *rest)


def is_accuracy(axis: Axis) -> bool:
    """Whether an axis is an accuracy, of full trainings on test images or of a rung."""
    return axis.name == "accuracy" or axis.name.startswith(RUNG)


def find_axis(name: str) -> Axis:
    """Return the axis of this name.

    Names are ``accuracy``, ``accuracy@RUNG``, ``latency_ms@TARGET``, ``flops``, ``params``, ``memory_mib`` and
    ``probe``. Raises SynoError for any other name.
    """
    if name in _PLAIN:
        return _PLAIN[name]
    if name.startswith(LATENCY) and len(name) > len(LATENCY):
        return Axis(name, latency_title(name.removeprefix(LATENCY)), "ms", False)
    if name.startswith(RUNG) and len(name) > len(RUNG):
        return Axis(name, f"accuracy on the rung {name.removeprefix(RUNG)}, held-out images", "", True)
    raise SynoError(f"no axis {quoted(name)}: expected one of {', '.join(_PLAIN)}, {RUNG}RUNG or {LATENCY}TARGET")


def of_finals(axis: Axis) -> Axis:
    """Return the axis for trials in rungs; the accuracy is then titled as the accuracy of the finals."""
    return axis._replace(title="accuracy of the finals, test images") if axis.name == "accuracy" else axis


def relative(axis: Axis) -> Axis:
    """Return the axis relative to the baseline: in percentage points for accuracy, else a ratio to the baseline."""
    if is_accuracy(axis):
        return axis._replace(title=f"{axis.title} against the baseline", unit="percentage points")
    return axis._replace(title=f"{axis.title} over the baseline's", unit="")


def axis_value(row: TrialRow, axis: Axis, baselines: Mapping[str, TrialRow] | None = None) -> float | None:
    """Return a row's value on the axis, or None; with ``baselines``, relative to the baseline of the row's source."""
    value = _value(row, axis)
    if value is None or baselines is None:
        return value
    return _against(value, row, axis, baselines)


def interval_on(
    row: TrialRow, axis: Axis, baselines: Mapping[str, TrialRow] | None = None
) -> tuple[float, float] | None:
    """Return the interval of the row's finals on the axis of accuracy, as :func:`axis_value` does; or None."""
    if row.interval is None or axis.name != "accuracy":
        return None
    ends = row.interval if baselines is None else [_against(end, row, axis, baselines) for end in row.interval]
    low, high = ends
    return None if low is None or high is None else (low, high)


def _against(value: float, row: TrialRow, axis: Axis, baselines: Mapping[str, TrialRow]) -> float | None:
    base = None if row.source not in baselines else _value(baselines[row.source], axis)
    if base is None or (not is_accuracy(axis) and base <= 0):
        return None
    return 100 * (value - base) if is_accuracy(axis) else value / base


def _value(row: TrialRow, axis: Axis) -> float | None:
    value = row.value(axis.name)
    if value is None or (axis.name == "accuracy" and row.state != "finished"):
        return None  # an unfinished training's accuracy is not comparable
    return float(value)
