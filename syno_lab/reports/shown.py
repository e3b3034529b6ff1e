"""A reading of a lab as plain data for a page: finite numbers, texts, lists and mappings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from syno_lab.errors import FormatError
from syno_lab.reports.axes import LATENCY, list_axes
from syno_lab.reports.courses import Course
from syno_lab.reports.fronts import Front
from syno_lab.reports.lab import Reading
from syno_lab.reports.pictures import describe_front
from syno_lab.reports.rows import TrialRow
from syno_lab.systems import find_system, format_of

_TEXTS = ("label", "source", "state")
_NUMBERS = ("accuracy", "flops", "params", "memory_mib", "probe", "wall_s", "number")
_LAST = ("system", "primitives", "reason")
_TITLES = {
    "label": "trial",
    "source": "of",
    "flops": "FLOPs",
    "params": "parameters",
    "memory_mib": "memory [MiB]",
    "wall_s": "seconds",
    "number": "order",
}


def shown_trials(rows: Sequence[TrialRow], targets: Iterable[str]) -> dict[str, Any]:
    """A table by columns: ``keys``, and ``columns``, each with ``name``, ``title``, ``kind`` and ``values``.

    ``kind`` is ``text`` or ``number``; an unknown number is None, an unknown text empty.
    """
    latencies = tuple(LATENCY + target for target in targets)
    columns = []
    for name in (*_TEXTS, _NUMBERS[0], *latencies, *_NUMBERS[1:], *_LAST):
        is_latency = name in latencies
        values = [_value(row, name) for row in rows]
        title = f"ms on {name.removeprefix(LATENCY)}" if is_latency else _TITLES.get(name, name)
        kind = "number" if is_latency or name in _NUMBERS else "text"
        columns.append({"name": name, "title": title, "kind": kind, "values": values})
    return {"keys": [row.key for row in rows], "columns": columns}


def _value(row: TrialRow, name: str) -> Any:
    if name == "system":
        return _system(row.operator)
    return row.latencies.get(name.removeprefix(LATENCY)) if name.startswith(LATENCY) else getattr(row, name)


def _system(operator: str) -> str:
    """The title of the system that reads an operator's JSON; empty without an operator, or for an unknown system."""
    try:
        return find_system(format_of(operator)).title if operator else ""
    except FormatError:
        return ""


def shown_axes(targets: Iterable[str]) -> list[dict[str, str]]:
    """The axes that a user can choose: ``name`` and ``title``."""
    return [{"name": axis.name, "title": axis.title} for axis in list_axes(targets)]


def shown_sources(reading: Reading) -> list[dict[str, Any]]:
    """The searches and runs: ``key``, ``title``, and ``has_baseline``."""
    return [
        {"key": one.key, "title": f"{one.kind} {one.name}", "has_baseline": one.baseline is not None}
        for one in reading.sources
    ]


def shown_front(front: Front, title: str, published: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A front for drawing.

    ``axes`` (``name``, ``text``, ``maximise``), ``keys``, ``labels``, ``baselines`` (indices) and ``values`` (a list
    for each axis), ``front`` (indices), ``history``, ``hypervolume``, ``reference``, ``unplaced``, ``text``, and the
    ``paper``'s statements of :func:`.published_on`.
    """
    return {
        "axes": [{"name": axis.name, "text": axis.text, "maximise": axis.maximise} for axis in front.axes],
        "keys": [point.key for point in front.points],
        "labels": [point.label for point in front.points],
        "baselines": [place for place, point in enumerate(front.points) if point.is_baseline],
        "values": [[point.values[number] for point in front.points] for number in range(len(front.axes))],
        "front": list(front.front),
        "history": [list(one) for one in front.history],
        "hypervolume": front.hypervolume,
        "reference": list(front.reference),
        "unplaced": front.unplaced,
        "text": describe_front(front, title),
        "paper": [dict(one) for one in published],
    }


def shown_courses(courses: Iterable[Course]) -> list[dict[str, Any]]:
    """Curves for drawing: ``job``, ``name``, ``state``, ``kind`` and ``points``."""
    return [
        {
            "job": one.job,
            "name": one.name,
            "state": one.state,
            "kind": one.kind,
            "points": [list(point) for point in one.points],
        }
        for one in courses
    ]


def summary(reading: Reading, rows: Sequence[TrialRow], front: Front | None) -> str:
    """A summary of the trials and the front, in one line for people."""
    if not rows:
        return "No trials yet." if reading.sources else "No search and no run yet."
    states: dict[str, int] = {}
    for row in rows:
        if not row.is_baseline:
            states[row.state] = states.get(row.state, 0) + 1
    total = sum(states.values())
    text = f"{total} {'trial' if total == 1 else 'trials'}: " + ", ".join(f"{n} {name}" for name, n in states.items())
    if front is None or not front.points:
        return f"{text}."
    return f"{text}; {len(front.front)} on the front, hypervolume {front.hypervolume:.4g}."
