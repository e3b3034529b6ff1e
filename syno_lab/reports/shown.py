"""Converts the contents of a lab to plain data for a page: finite numbers, texts, lists and mappings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from syno_lab.inputs import count_of, printable
from syno_lab.reports.axes import LATENCY, RUNG, axis_value, find_axis, interval_on, list_axes
from syno_lab.reports.courses import Course
from syno_lab.reports.fronts import Front
from syno_lab.reports.lab import Reading
from syno_lab.reports.marks import mark_of
from syno_lab.reports.pictures import describe_front, shape_of
from syno_lab.reports.progress import (
    Progress,
    describe_funnel,
    finals_table,
    funnel_picture,
    funnel_table,
    headline,
    plan_table,
    read_progress,
    read_result,
)
from syno_lab.reports.published import Stated
from syno_lab.reports.rows import Source, TrialRow, rungs_among
from syno_lab.reports.searched import searched
from syno_lab.reports.text_tables import Cell, shown_table
from syno_lab.store.latencies import short_title, target_of
from syno_lab.store.rungs import BASELINE, FINAL

_TEXTS = ("label", "source", "state")
#: Additional columns of the table for a search in rungs.
_IN_RUNGS = ("known", "rung")
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


def shown_network(row: TrialRow, reading: Reading) -> str:
    """Return a sentence about the network of a trial: its name, the number of replaced layers, and its costs."""
    training: Any = next(source.settings.get("training") for source in reading.sources if source.key == row.source)
    network = str(training.get("backbone", "")) if isinstance(training, Mapping) else ""
    name = printable(network.removeprefix("own:").partition("@")[0].rpartition("/")[2]) or "its network"
    layers = f" with it in {count_of(sum(one.number for one in row.layers), 'layer')}" if row.layers else ""
    return f"In {name}{layers}: {row.flops:,} FLOPs, {row.params:,} parameters"


def shown_trials(
    rows: Sequence[TrialRow], targets: Iterable[str]
) -> dict[str, list[str] | list[dict[str, str | list[Cell]]]]:
    """Return a table by columns: ``keys``, and ``columns``, each with ``name``, ``title``, ``kind`` and ``values``.

    ``kind`` is ``text`` or ``number``; an unknown number is None, an unknown text empty. A search in rungs has a column
    for the accuracy on each rung.
    """
    latencies = tuple(LATENCY + target for target in targets)
    rungs = rungs_among(rows)
    more = (*(RUNG + rung for rung in rungs), *latencies)
    columns: list[dict[str, str | list[Cell]]] = []
    for name in (*_TEXTS, *(_IN_RUNGS if rungs else ()), _NUMBERS[0], *more, *_NUMBERS[1:], *_LAST):
        values = [row.value(name) for row in rows]
        kind = "number" if name in more or name in _NUMBERS else "text"
        columns.append({"name": name, "title": _title(name, bool(rungs)), "kind": kind, "values": values})
    return {"keys": [row.key for row in rows], "columns": columns}


def _title(name: str, in_rungs: bool) -> str:
    if name == "accuracy" and in_rungs:
        return "accuracy, finals"
    if name.startswith(RUNG):
        return f"accuracy on {name.removeprefix(RUNG)}"
    if name.startswith(LATENCY):
        return f"ms, {short_title(name.removeprefix(LATENCY))}"
    return _TITLES.get(name, name)


def shown_axes(targets: Iterable[str], rungs: Iterable[str] = ()) -> list[dict[str, str]]:
    """Return the axes among which a user can choose, each with ``name`` and ``title``."""
    return [{"name": axis.name, "title": axis.title} for axis in list_axes(targets, rungs)]


def shown_sources(reading: Reading) -> list[dict[str, str | bool]]:
    """Return the searches, each with ``key``, ``title`` and ``has_baseline``."""
    return [
        {"key": source.key, "title": f"search {source.name}", "has_baseline": source.baseline is not None}
        for source in reading.sources
    ]


def shown_front(front: Front, title: str, published: Sequence[Stated] = ()) -> dict[str, Any]:
    """Return a front as data for drawing.

    The data have ``axes`` (``name``, ``text``, ``maximise``), ``keys``, ``labels``, ``baselines`` and ``known``
    (indices); the points' ``systems`` (titles) and ``marks`` (indices in ``outlines``, SVG paths); ``legend``
    (``title`` and ``path`` of each system); ``values`` (a list for each axis), ``intervals`` (for each axis pairs or
    None), ``front`` (indices), ``history``, ``hypervolume``, ``reference``, ``unplaced`` and ``text``. ``paper`` has
    the statements of :func:`.published_on`.
    """
    outlines = list(dict.fromkeys(shape_of(point).path for point in front.points))
    return {
        "axes": [{"name": axis.name, "text": axis.text, "maximise": axis.maximise} for axis in front.axes],
        "keys": [point.key for point in front.points],
        "labels": [point.name for point in front.points],
        "baselines": [index for index, point in enumerate(front.points) if point.is_baseline],
        "known": [index for index, point in enumerate(front.points) if point.known],
        "systems": [point.system for point in front.points],
        "outlines": outlines,
        "marks": [outlines.index(shape_of(point).path) for point in front.points],
        "legend": [{"title": title, "path": mark_of(mark).path} for title, mark in front.systems.items()],
        "intervals": [[point.intervals[number] for point in front.points] for number in range(len(front.axes))],
        "values": [[point.values[number] for point in front.points] for number in range(len(front.axes))],
        "front": list(front.front),
        "history": [list(pair) for pair in front.history],
        "hypervolume": front.hypervolume,
        "reference": list(front.reference),
        "unplaced": front.unplaced,
        "text": describe_front(front, title),
        "paper": msgspec.to_builtins(published),
    }


def shown_finals(
    front: Front, rows: Sequence[TrialRow], sources: Sequence[Source], baselines: Mapping[str, TrialRow] | None
) -> dict[str, Any]:
    """Return the finals to draw over points with an accuracy on a rung; none if the second axis is no such accuracy.

    ``finals`` has the index of the point, the accuracy in the finals and the ends of its interval; ``baseline`` the
    baseline's mean in the finals, and the least and the greatest accuracy of its seeds, if the rows have one baseline.
    ``title`` is the title of the second axis.
    """
    y, axis = front.axes[1], find_axis("accuracy")
    if not y.name.startswith(RUNG):
        return {"finals": [], "baseline": [], "title": y.text}
    places, finals, bases = {point.key: at for at, point in enumerate(front.points)}, [], []
    for row in rows:
        value = axis_value(row, axis, baselines)
        if value is not None and row.is_baseline:
            trainings = (one for source in sources if source.key == row.source for one in source.trainings)
            seeds = [one.trained for one in trainings if one.number == BASELINE and one.rung == FINAL]
            ends = [axis_value(replace(row, accuracy=seed), axis, baselines) for seed in seeds]
            known = [end for end in ends if end is not None] or [value]
            bases.append([value, min(known), max(known)])
        elif value is not None and row.key in places:
            finals.append([places[row.key], value, *(interval_on(row, axis, baselines) or (value, value))])
    unit = f" against the baseline [{y.unit}]" if y.unit else ""
    title = f"accuracy{unit} (small marks: {y.name.removeprefix(RUNG)}; large: finals)"
    return {"finals": finals, "baseline": bases[0] if len(bases) == 1 else [], "title": title if finals else y.text}


def shown_courses(courses: Iterable[Course]) -> list[dict[str, str | int | list[list[float]]]]:
    """Return curves with ``job``, ``name``, ``state``, ``kind``, ``chart`` (:attr:`.Course.chart`) and ``points``."""
    return [
        {
            "job": course.job,
            "name": course.name,
            "state": course.state,
            "kind": course.kind,
            "chart": course.chart,
            "points": [list(point) for point in course.points],
        }
        for course in courses
    ]


def find_progress(reading: Reading, source: str) -> tuple[Source, Progress] | None:
    """Return the progress of the chosen search, by default of the newest search with a funnel, else None."""
    for search in reversed(reading.sources):
        if source in ("", search.key, search.name):
            progress = read_progress(reading.folder, search.name)
            if progress is not None:
                return search, progress
    return None


def shown_progress(reading: Reading, source: Source, progress: Progress) -> dict[str, Any]:
    """Return data of a search for a page: ``headline``, funnel (``svg`` and ``text``), ``tables``, ``finalists``.

    Each entry of ``finalists`` has the ``key`` and the ``label`` of a trial in the finals; empty before the end.
    """
    tables = [plan_table(progress)] if progress.plan else []
    tables.append(funnel_table(progress))
    result = read_result(reading.folder, source.name) if progress.phase == "done" else None
    keys = []
    if result is not None and progress.plan:
        tables.append(finals_table(result))
        keys = [f"{source.key}#{number}" for number in dict.fromkeys(searched(result).numbers.values())]
    rows = [reading.by_key[key] for key in keys if key in reading.by_key]
    return {
        "headline": headline(progress),
        "svg": funnel_picture(progress),
        "text": describe_funnel(progress),
        "tables": [shown_table(table) for table in tables],
        "finalists": [{"key": row.key, "label": row.label} for row in rows],
    }


def usual_measure(rows: Iterable[TrialRow]) -> str:
    """Return the default axis to compare trials: the accuracy, of full trainings or on a rung, that most trials have.

    In a tie, full trainings come first, then later rungs. Without an accuracy, the axis is the probe's score.
    """
    trials = [row for row in rows if not row.is_baseline]
    names = ["accuracy", *(RUNG + rung for rung in reversed(rungs_among(trials)))]
    counts = [sum(row.value(name) is not None for row in trials) for name in names]
    if most := max(counts):
        return names[counts.index(most)]
    return "probe" if any(row.probe is not None for row in trials) else "accuracy"


def summary(reading: Reading, rows: Sequence[TrialRow], front: Front | None) -> str:
    """Summarise the trials and the front in one line."""
    if not rows:
        return "No trials yet." if reading.sources else "No search yet."
    states: dict[str, int] = {}
    for row in rows:
        if not row.is_baseline:
            states[row.state] = states.get(row.state, 0) + 1
    total = sum(states.values())
    text = f"{count_of(total, 'trial')}: " + ", ".join(f"{n} {name}" for name, n in states.items())
    if front is None or not front.points:
        return f"{text}."
    text += f"; {len(front.front)} on the front."
    return text + _latencies(reading, rows, front)


def _latencies(reading: Reading, rows: Sequence[TrialRow], front: Front) -> str:
    """Describe what the latencies on the front's axes cover and how they were tuned; for each of several searches."""
    shown = {row.source for row in rows if row.latencies}
    sources = [source for source in reading.sources if source.key in shown]
    names_of: dict[str, list[str]] = {}
    for axis in front.axes:
        target = axis.name.removeprefix(LATENCY)
        for source in sources if axis.name.startswith(LATENCY) else ():
            if target in source.measured:
                names_of.setdefault(f"{target_of(target)}: {source.measured[target]}", []).append(source.name)
    if len(names_of) < 2:
        return "".join(f" On {text}." for text in names_of)
    return "".join(f" On {text} ({', '.join(names)})." for text, names in names_of.items())
