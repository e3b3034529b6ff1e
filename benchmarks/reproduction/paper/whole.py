"""Figures 5, 6 and 8 from whole networks: the file of the part ``networks`` of ``reproduce.py``.

There latencies are those of networks that TVM compiled and tuned alike, and accuracies are of the test images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

from reproduction.paper.facts import Series, results_of
from syno_lab.errors import FormatError
from syno_lab.store.pareto import pareto_front
from syno_lab.store.records import finite

#: Known operators as the paper names them, so that theirs and ours stand at one place.
_NAMES = {
    "operator_1": "Operator 1",
    "operator_2": "Operator 2",
    "stacked_grouped_convolution": "stacked convolution",
}


@dataclass(frozen=True)
class WholeRow:
    """One network: ``label`` names its operator; ``accuracy`` is the mean over ``seeds``; None where there is none."""

    label: str
    accuracy: float | None
    seeds: int
    latency_ms: float | None


@dataclass(frozen=True)
class WholeNetworks:
    """The networks of one file: the baseline, and the others in the order of the file."""

    name: str
    about: str
    baseline: WholeRow
    rows: tuple[WholeRow, ...]
    test_images: int | None = None

    @property
    def indistinct(self) -> float | None:
        """Percentage points by which two accuracies near the baseline's differ by chance alone, 19 times of 20 less.

        As if the images of both were drawn anew; None where the number of test images is not known.
        """
        share = self.baseline.accuracy
        if share is None or not self.test_images:
            return None
        return 100 * NormalDist().inv_cdf(0.975) * sqrt(2 * share * (1 - share) / self.test_images)

    def speedup(self, row: WholeRow) -> float | None:
        """The baseline's latency over a network's."""
        if row.latency_ms is None or self.baseline.latency_ms is None:
            return None
        return self.baseline.latency_ms / row.latency_ms

    def points(self, row: WholeRow) -> float | None:
        """A network's accuracy minus the baseline's, in percentage points."""
        if row.accuracy is None or self.baseline.accuracy is None:
            return None
        return 100 * (row.accuracy - self.baseline.accuracy)

    def fastest(self, within: float) -> WholeRow | None:
        """The fastest network that is at most so many percentage points less accurate than the baseline."""
        near = [
            row
            for row in self.rows
            if row.latency_ms is not None and (points := self.points(row)) is not None and points >= -within
        ]
        return min(near, key=lambda row: row.latency_ms or 0.0, default=None)

    def best(self, within: float) -> tuple[Series, ...]:
        """For Figure 5: the speedup of the fastest network within the points; nothing where none is."""
        found = self.fastest(within)
        speedup = None if found is None else self.speedup(found)
        if found is None or speedup is None:
            return ()
        return (Series("here, whole network", ((f"{self.name}, {found.label}", speedup),)),)

    def front(self) -> tuple[Series, ...]:
        """For Figure 6: every network, and the front of those that no other is both faster and more accurate than."""
        placed = {
            row.label: (1 / speedup, points)
            for row in self.rows
            if (speedup := self.speedup(row)) is not None and (points := self.points(row)) is not None
        }
        if not placed:
            return ()
        values = [(1.0, 0.0), *placed.values()]
        rows = [{"time": time, "points": points} for time, points in values]
        best = pareto_front(rows, maximise=("points",), minimise=("time",))
        line = tuple(sorted(values[place] for place in best))
        each = tuple(Series(f"here, whole network: {label}", (value,)) for label, value in placed.items())
        return (
            Series(f"here, whole networks, {self.name}: the front", line, is_line=True),
            Series("here, the baseline", ((1.0, 0.0),)),
            *each,
        )

    def bars(self, unit: str) -> tuple[Series, ...]:
        """For Figure 8: speedups, and accuracies in ``unit``."""
        speedups = tuple((row.label, found) for row in self.rows if (found := self.speedup(row)) is not None)
        points = tuple((row.label, found) for row in self.rows if (found := self.points(row)) is not None)
        series = [Series("here, speedup, whole network", speedups)] if speedups else []
        return (*series, *([Series("here, accuracy", points, unit=unit)] if points else []))


def networks_of(path: Path) -> WholeNetworks:
    """Read the file. Raises FormatError where it has no networks with a baseline."""
    found = results_of(path)
    rows = [_row(row) for row in found.get("rows") or () if isinstance(row, Mapping)]
    named = str(found.get("baseline", "baseline"))
    baseline = next((row for row in rows if row.label == named), None)
    if baseline is None:
        raise FormatError(
            f"{path}: expected whole networks with a baseline (the part networks of reproduce.py), found none"
        )
    name = f"{found.get('backbone')} on {found.get('data')}"
    image = "x".join(map(str, found.get("image") or ()))
    seeds = f"{found.get('seeds')} seed{'' if found.get('seeds') == 1 else 's'}"
    about = (
        f"whole networks of {image}, {found.get('candidates')} candidates a function, {threads_of(found)}, "
        f"the median of {found.get('rounds')} rounds; trained for {found.get('steps')} batches, {seeds}"
    )
    images = found.get("test_images")
    others = tuple(row for row in rows if row is not baseline)
    return WholeNetworks(name, about, baseline, others, images if isinstance(images, int) and images > 0 else None)


def threads_of(found: Mapping[str, Any]) -> str:
    """``1 thread``, ``2 threads``: with how many a part measured."""
    threads = found.get("threads")
    return f"{threads} thread{'' if threads == 1 else 's'}"


def _row(row: Mapping[str, Any]) -> WholeRow:
    accuracies = row.get("accuracies")
    values = [
        value
        for one in (accuracies.values() if isinstance(accuracies, Mapping) else ())
        if (value := finite(one)) is not None
    ]
    label = str(row.get("label"))
    return WholeRow(
        _NAMES.get(label, label), fmean(values) if values else None, len(values), finite(row.get("latency_ms"))
    )
