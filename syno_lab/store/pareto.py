"""The measures by which operators are compared, and the Pareto front. :mod:`syno_lab.reports` uses both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from syno_lab.errors import SynoError


class Axis(NamedTuple):
    """An objective: the attribute of a trial, the title, the unit ("" for none), and whether more is better."""

    name: str
    title: str
    unit: str
    maximise: bool

    @property
    def text(self) -> str:
        """The title of the axis with the unit."""
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


def pareto_front(
    points: Sequence[Mapping[str, float | None]], *, maximise: Sequence[str] = (), minimise: Sequence[str] = ()
) -> list[int]:
    """Return the indices of the points that no other point beats, in ascending order.

    A point beats another point if it is at least as good in every named value and better in at least one. So the front
    has all of several equal points, or none of them. A point is ignored if a value is missing or not finite.

    Raises SynoError where no value is named, or one value is both to maximise and to minimise.
    """
    if not (maximise or minimise) or set(maximise) & set(minimise):
        raise SynoError(
            f"a Pareto front needs values to maximise or minimise, each once: got {list(maximise)}, {list(minimise)}"
        )
    signs = [*((name, -1.0) for name in maximise), *((name, 1.0) for name in minimise)]
    costs = {}
    for index, point in enumerate(points):
        values = [value for name, _ in signs if (value := point.get(name)) is not None and math.isfinite(value)]
        if len(values) == len(signs):
            costs[index] = tuple(sign * value for (_, sign), value in zip(signs, values, strict=True))
    front: list[tuple[float, ...]] = []
    best = math.inf  # With one or two costs, the least last cost so far decides.
    for cost in sorted(set(costs.values())):  # A point is sorted after all points that beat it.
        if len(signs) <= 2:
            beaten = bool(front) and best <= cost[-1]
        else:
            beaten = any(all(a <= b for a, b in zip(other, cost, strict=True)) for other in front)
        if not beaten:
            front.append(cost)
            best = cost[-1]
    on_front = set(front)
    return [index for index, cost in costs.items() if cost in on_front]
