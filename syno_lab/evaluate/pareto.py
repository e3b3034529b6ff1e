"""The facts of a Pareto figure: which operators nothing beats, and how much they cover. Nothing is drawn here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from syno_lab.errors import SynoError


class Evaluated(Protocol):
    """What a trial must tell to become a point; the store's `Trial` does."""

    @property
    def fingerprint(self) -> str: ...  # noqa: D102
    @property
    def label(self) -> str: ...  # noqa: D102
    @property
    def baseline(self) -> bool: ...  # noqa: D102
    @property
    def accuracy(self) -> float | None: ...  # noqa: D102
    @property
    def latency_ms(self) -> float | None: ...  # noqa: D102
    @property
    def flops(self) -> int: ...  # noqa: D102
    @property
    def params(self) -> int: ...  # noqa: D102


class Axis(NamedTuple):
    """One objective: the attribute it is read from, how it is called, its unit ("" for none) and its good side."""

    name: str
    title: str
    unit: str
    maximise: bool

    @property
    def text(self) -> str:
        """The title with its unit."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title


AXES = {
    axis.name: axis
    for axis in (
        Axis("accuracy", "accuracy", "", True),
        Axis("latency_ms", "latency", "ms", False),
        Axis("flops", "FLOPs", "", False),
        Axis("params", "parameters", "", False),
    )
}


class Point(NamedTuple):
    """An operator in the figure; `x` or `y` is None where it was not measured."""

    label: str
    fingerprint: str
    x: float | None
    y: float | None
    flops: int
    params: int
    baseline: bool


class ParetoFacts(NamedTuple):
    """All that a figure shows.

    `points` have both values; `unplaced` lack one and can only stand in the table. `front` are indices into
    `points`, from small x to large. `hypervolume` is the area that the front dominates up to `reference` (x, y), in
    the product of the axes' units; points beyond the reference add nothing.
    """

    title: str
    x: Axis
    y: Axis
    points: tuple[Point, ...]
    unplaced: tuple[Point, ...]
    baseline: Point | None
    front: tuple[int, ...]
    hypervolume: float
    reference: tuple[float, float]

    def on_front(self, fingerprint: str) -> bool:
        """Say whether the operator lies on the front."""
        return any(self.points[index].fingerprint == fingerprint for index in self.front)


def pareto_front(
    points: Sequence[Mapping[str, float | None]], *, maximise: Sequence[str] = (), minimise: Sequence[str] = ()
) -> list[int]:
    """Return the indices of the points that no other beats, in their given order.

    A point beats another when it is at least as good in every named value and better in one; so equal points are on
    the front together or not at all. Points with a value that is missing or not finite take no part.

    Raises:
        SynoError: no value is named, or one is named on both sides.

    """
    if not (maximise or minimise) or set(maximise) & set(minimise):
        raise SynoError(
            f"a Pareto front needs values to maximise or minimise, each once: got {list(maximise)}, {list(minimise)}"
        )
    signs = [*((name, -1.0) for name in maximise), *((name, 1.0) for name in minimise)]
    costs = {
        index: tuple(sign * value for (_, sign), value in zip(signs, values, strict=True))
        for index, point in enumerate(points)
        if (values := _numbers(point.get(name) for name, _ in signs)) is not None
    }
    front: list[tuple[float, ...]] = []
    best = math.inf  # of the last value: with two values a new point has only to be compared with it
    for cost in sorted(set(costs.values())):  # whatever beats a point sorts before it
        if len(signs) <= 2:
            beaten = bool(front) and best <= cost[-1]
        else:
            beaten = any(all(a <= b for a, b in zip(other, cost, strict=True)) for other in front)
        if not beaten:
            front.append(cost)
            best = cost[-1]
    kept = set(front)
    return [index for index, cost in costs.items() if cost in kept]


def hypervolume(points: Iterable[tuple[float, float]], reference: tuple[float, float], x: Axis, y: Axis) -> float:
    """Return the area between the points' front and the reference, which is worse than what counts on both axes."""
    sign_x, sign_y = (-1.0 if axis.maximise else 1.0 for axis in (x, y))
    limit_x, limit_y = sign_x * reference[0], sign_y * reference[1]
    area, height = 0.0, limit_y
    for cost_x, cost_y in sorted((sign_x * a, sign_y * b) for a, b in points):
        if cost_x < limit_x and cost_y < height:
            area += (limit_x - cost_x) * (height - cost_y)
            height = cost_y
    return area


def pareto_facts(
    trials: Iterable[Evaluated],
    *,
    x: str = "latency_ms",
    y: str = "accuracy",
    title: str = "Accuracy against latency",
    reference: tuple[float, float] | None = None,
) -> ParetoFacts:
    """Gather the facts of a figure of two of `AXES`.

    `reference` is the corner up to which the hypervolume counts. Without one it is the worst value seen on each axis,
    a tenth of the range seen further out (a tenth of the value, or 1, where there is no range), so two figures can be
    compared only when both are given the same.

    Raises:
        SynoError: an axis is unknown, or both are the same.

    """
    for name in (x, y):
        if name not in AXES:
            raise SynoError(f"no axis {name!r}: expected one of {', '.join(AXES)}")
    if x == y:
        raise SynoError(f"a Pareto figure needs two axes, got {x!r} twice")
    axes = AXES[x], AXES[y]
    everything = [
        Point(
            label=trial.label,
            fingerprint=trial.fingerprint,
            x=_number(getattr(trial, x)),
            y=_number(getattr(trial, y)),
            flops=trial.flops,
            params=trial.params,
            baseline=trial.baseline,
        )
        for trial in trials
    ]
    points = tuple(point for point in everything if point.x is not None and point.y is not None)
    pairs = placed(points)
    front = pareto_front(
        [{"x": a, "y": b} for a, b in pairs],
        maximise=[name for name, axis in zip("xy", axes, strict=True) if axis.maximise],
        minimise=[name for name, axis in zip("xy", axes, strict=True) if not axis.maximise],
    )
    corner = reference or (_beyond([a for a, _ in pairs], axes[0]), _beyond([b for _, b in pairs], axes[1]))
    return ParetoFacts(
        title=title,
        x=axes[0],
        y=axes[1],
        points=points,
        unplaced=tuple(point for point in everything if point.x is None or point.y is None),
        baseline=next((point for point in everything if point.baseline), None),
        front=tuple(sorted(front, key=lambda index: pairs[index])),
        hypervolume=hypervolume((pairs[index] for index in front), corner, *axes),
        reference=corner,
    )


def placed(points: Iterable[Point]) -> list[tuple[float, float]]:
    """Return (x, y) of the points that have both."""
    return [(point.x, point.y) for point in points if point.x is not None and point.y is not None]


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _numbers(values: Iterable[float | None]) -> tuple[float, ...] | None:
    """Return all values as numbers, or None when one of them is missing."""
    numbers = [_number(value) for value in values]
    return None if None in numbers else tuple(number for number in numbers if number is not None)


def _beyond(values: Sequence[float], axis: Axis) -> float:
    if not values:
        return 0.0
    low, high = min(values), max(values)
    step = 0.1 * ((high - low) or abs(high) or 10.0)
    return low - step if axis.maximise else high + step
