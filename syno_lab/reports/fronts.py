"""Compute Pareto fronts over two or three axes, and the dominated volume after each trial.

:func:`syno_lab.store.pareto.pareto_front` defines dominance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from syno_lab.errors import StoreError, SynoError
from syno_lab.reports.axes import axis_value, find_axis, interval_on, of_finals, relative
from syno_lab.reports.marks import system_and_mark
from syno_lab.reports.rows import TrialRow
from syno_lab.store.pareto import Axis, pareto_front

if TYPE_CHECKING:
    import plotly.graph_objects


def short_number(value: float) -> str:
    """Format a number with four digits and k, M, G or T, as the script ``runs_chart.js`` of the page does."""
    size = abs(value)
    for bound, unit, name in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= bound:
            return f"{float(f'{value / unit:.4g}'):g} {name}"
    return f"{value:.4g}"


class Placed(NamedTuple):
    """A trial with a value on every axis; ``values`` are in the order of the axes.

    ``known`` is the name of the operator, if it is a known operator with which the search began, else empty.
    ``intervals`` has the interval of the finals for each axis, or None. ``system`` is the title of the operator's
    system and ``mark`` the name of its mark; both are empty without an operator.
    """

    key: str
    label: str
    is_baseline: bool
    values: tuple[float, ...]
    known: str = ""
    intervals: tuple[tuple[float, float] | None, ...] = ()
    system: str = ""
    mark: str = ""

    @property
    def name(self) -> str:
        """The label of the trial, and the name of the known operator."""
        return f"{self.label} ({self.known})" if self.known else self.label


class Front(NamedTuple):
    """The data of a figure with two or three axes.

    Attributes:
        axes: the axes of the values; if the values are relative to the baseline, these are the relative axes.
        is_relative: whether values are compared with the baseline.
        points: the baseline of each source and the trials with a value on all axes, in the order in which they ended.
        unplaced: the number of trials that have no value on at least one axis.
        front: indices in ``points`` of the trials on the front, from the least to the greatest value of the first axis.
        reference: the point that bounds the volume.
        hypervolume: the volume that the front dominates up to ``reference``, in the product of the axes' units.
        history: for each point that raised the volume, the number of points up to that point and the new volume.
    """

    axes: tuple[Axis, ...]
    is_relative: bool
    points: tuple[Placed, ...]
    unplaced: int
    front: tuple[int, ...]
    reference: tuple[float, ...]
    hypervolume: float
    history: tuple[tuple[int, float], ...]

    @property
    def systems(self) -> dict[str, str]:
        """The titles of the systems among the points with their marks, in the order of the points.

        The baseline has its own mark and is left out.
        """
        return {point.system: point.mark for point in self.points if point.system and not point.is_baseline}

    def figure(self, title: str = "") -> plotly.graph_objects.Figure:
        """Return the front for plotly (:func:`.figures.front_figure`). Raises StoreError for a front without points."""
        from syno_lab.reports.figures import front_figure

        return front_figure(self, title)

    def save(self, path: str | Path, *, title: str = "Trials", **page: Any) -> Path:
        """Write the front's points for a paper, without a browser; see :meth:`.Figure.save` for forms, width and font.

        Raises StoreError where the front has no point, and what :meth:`.Figure.save` raises.
        """
        from syno_lab.reports.pictures import FrontFigure

        self.check()
        return FrontFigure(self, title=title).save(path, **page)

    def check(self) -> None:
        """Raise StoreError where no trial has a value on all axes, because a figure would be empty."""
        if not self.points:
            raise StoreError(
                f"figure of {' and '.join(axis.text for axis in self.axes)}: expected a trial with a value on each, "
                f"found none of {self.unplaced}; choose other axes, or train operators first"
            )


def front_of(
    rows: Iterable[TrialRow],
    axes: Sequence[str],
    *,
    baselines: Mapping[str, TrialRow] | None = None,
    reference: Sequence[float] | None = None,
) -> Front:
    """Return the Pareto front of ``rows`` over two or three axes by their names (:func:`.find_axis`).

    Args:
        rows: the trials in any order; this function sorts them by ``ended`` where it is known, baselines first.
        axes: the names of two or three axes.
        baselines: the baseline of each source, for relative values; None: plain values.
        reference: the point that bounds the volume. By default, each axis has its worst value plus a tenth of the range
            of values (for an empty range a tenth of the value, or 1). Compare only volumes with equal references.

    Raises SynoError for an unknown or repeated axis, another number of axes, or a ``reference`` of another length.
    """
    if not 2 <= len(axes) <= 3 or len(set(axes)) < len(axes):
        raise SynoError(f"a Pareto front needs two or three different axes, found {', '.join(axes) or 'none'}")
    rows = list(rows)
    plain = tuple(find_axis(name) for name in axes)
    if any(row.rungs for row in rows):
        plain = tuple(of_finals(axis) for axis in plain)
    shown = plain if baselines is None else tuple(map(relative, plain))
    if reference is not None and len(reference) != len(axes):
        raise SynoError(f"reference: expected {len(axes)} values, found {len(reference)}")
    ordered = sorted(rows, key=lambda row: (not row.is_baseline, row.ended or "~", row.number))
    points = []
    for row in ordered:
        values = [axis_value(row, axis, baselines) for axis in plain]
        known = [value for value in values if value is not None and np.isfinite(value)]
        if len(known) == len(values):
            intervals = tuple(interval_on(row, axis, baselines) for axis in plain)
            fields = (row.key, row.label, row.is_baseline, tuple(known), row.known, intervals)
            points.append(Placed(*fields, *system_and_mark(row.operator)))
    corner = tuple(reference) if reference is not None else _beyond(points, shown)
    names = [axis.name for axis in shown]
    front = pareto_front(
        [dict(zip(names, point.values, strict=True)) for point in points],
        maximise=[axis.name for axis in shown if axis.maximise],
        minimise=[axis.name for axis in shown if not axis.maximise],
    )
    history = _history(points, shown, corner)
    return Front(
        shown,
        baselines is not None,
        tuple(points),
        len(ordered) - len(points),
        tuple(sorted(front, key=lambda place: points[place].values)),
        corner,
        history[-1][1] if history else 0.0,
        tuple(history),
    )


def _beyond(points: Sequence[Placed], axes: Sequence[Axis]) -> tuple[float, ...]:
    corner = []
    for index, axis in enumerate(axes):
        values = [point.values[index] for point in points] or [0.0]
        low, high = min(values), max(values)
        step = 0.1 * ((high - low) or abs(high) or 10.0)
        corner.append(low - step if axis.maximise else high + step)
    return tuple(corner)


def _history(points: Sequence[Placed], axes: Sequence[Axis], corner: Sequence[float]) -> list[tuple[int, float]]:
    """Return the history of the volume; compute the volume only after points that no earlier point dominates."""
    if not points:
        return []
    signs = np.array([-1.0 if axis.maximise else 1.0 for axis in axes])
    limit = signs * np.array(corner)
    best = np.empty((0, len(axes)))
    history: list[tuple[int, float]] = []
    for number, point in enumerate(points, 1):
        cost = signs * np.array(point.values)
        if np.any(cost > limit) or np.any(np.all(best <= cost, axis=1)):
            continue
        best = np.vstack([best[~np.all(cost <= best, axis=1)], cost])
        history.append((number, hypervolume(best, limit)))
    if history and history[-1][0] < len(points):
        history.append((len(points), history[-1][1]))
    return history


def hypervolume(costs: np.ndarray, limit: np.ndarray) -> float:
    """Return the volume that points dominate up to the point ``limit``, in the product of the axes' units.

    The volume is a sum over slices along the last axis, each with the volume of the other axes (HSO: While, Hingston,
    Barone and Huband 2006, "A Faster Algorithm for Calculating Hypervolume").

    Args:
        costs: a point in each row, with two or more numbers of which less is better; no point is beyond ``limit``.
        limit: the corner.
    """
    costs = costs[np.argsort(costs[:, -1])]
    depths = np.diff(costs[:, -1], append=limit[-1])  # within a slice, the dominating points do not change
    if len(limit) == 2:
        return float(depths @ (limit[0] - np.minimum.accumulate(costs[:, 0])))
    slices = (depth * hypervolume(costs[:last, :-1], limit[:-1]) for last, depth in enumerate(depths, 1) if depth)
    return float(sum(slices))
