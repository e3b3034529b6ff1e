"""Evolution along the front of the reward and further objectives (αNAS, appendix B.3, Algorithm 2).

Every evaluated operator may be a parent, and no operator is removed. Each choice of a parent draws one objective, and
prefers operators near the front of the reward against this objective. The front is a curve: its points, sorted by the
objective, are joined by straight lines.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, dist, hypot
from typing import Any, NamedTuple

from syno_lab.errors import SearchError
from syno_lab.inputs import positive, quoted
from syno_lab.search.asking import Measures, Search, check_measures, check_numbers
from syno_lab.search.descent import descend
from syno_lab.search.evolution import mutated
from syno_lab.search.protocol import State, Steps, Trail
from syno_lab.store.pareto import pareto_front

#: The number of failed attempts in a row after which an operator is drawn at random.
ATTEMPTS = 50
#: A reward, and the value of an objective.
Point = tuple[float, float]


@dataclass(frozen=True)
class Selection:
    """The rules by which a parent is chosen.

    Attributes:
        share: the parent is drawn from this share of the population: the operators nearest to the front.
        least: the parent is drawn from at least this number of operators.
        alone: the probability that the reward alone counts, without a front.
        falling: whether nearer operators are likelier, in proportion to 10^-w with w the distance scaled to 0 to 1. If
            so, the nearest operator is ten times as likely as the farthest.
        anchored: whether distances are measured from one random point of the front instead of the whole front.
        floor: the least reward of a parent; ignored if all operators have a lower reward.

    Raises SearchError for a share or a probability outside 0 to 1, a number below 1, and a reward outside 0 to 1.
    """

    share: float = 0.1
    least: int = 10
    alone: float = 0.0
    falling: bool = False
    anchored: bool = False
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(
            ("share", self.share, 0 <= self.share <= 1, "a share from 0 to 1"),
            ("least", self.least, positive(self.least) is not None, "an integer of 1 or more"),
            ("alone", self.alone, 0 <= self.alone <= 1, "a probability from 0 to 1"),
            ("floor", self.floor, 0 <= self.floor <= 1, "a reward from 0 to 1"),
        )


#: The selections of the paper's Algorithm 2 and of the authors' published code; the paper states no share.
SELECTIONS = {"paper": Selection(), "code": Selection(alone=0.2, falling=True, anchored=True)}


class Member(NamedTuple):
    """An evaluated operator with its measures."""

    trail: Trail
    operator: Any
    reward: float
    measures: Measures


class ParetoEvolution(Search):
    """Evolution with several objectives.

    Operators with reward 0 have failed and are no parents. An operator without the drawn measure is no parent either.

    Args:
        objectives: the names of the measures besides the reward, at least one; less is better.
        costs: functions from an operator to a measure; all other measures come with :meth:`tell`.
        start: the number of random operators before the first parent is chosen.
        selection: the rules for the choice of a parent, or a name in :data:`SELECTIONS`.

    Raises SearchError for no objective, a repeated objective, a start below 1, and an unknown name.
    """

    def __init__(
        self,
        root: State,
        rng: random.Random,
        *,
        objectives: Sequence[str],
        costs: Mapping[str, Callable[[Any], float]] | None = None,
        start: int = 10,
        selection: Selection | str = "paper",
    ) -> None:
        super().__init__(root, rng)
        if not objectives or len(set(objectives)) < len(objectives):
            raise SearchError(f"objectives: expected at least one, each once, found {quoted(list(objectives))}")
        if isinstance(selection, str):
            if selection not in SELECTIONS:
                raise SearchError(f"selection: expected one of {', '.join(SELECTIONS)}, found {quoted(selection)}")
            selection = SELECTIONS[selection]
        check_numbers(("start", start, positive(start) is not None, "an integer of 1 or more"))
        self.objectives = tuple(objectives)
        self.costs = dict(costs or {})
        self.start = start
        self.selection = selection
        self.members: list[Member] = []

    def front(self, *objectives: str) -> list[Member]:
        """Return the Pareto front of the reward and ``objectives`` (default: all), in the order of the members."""
        living = [member for member in self.members if member.reward]
        points = [{**member.measures, "": member.reward} for member in living]
        return [living[i] for i in pareto_front(points, maximise=[""], minimise=objectives or self.objectives)]

    def _propose(self) -> tuple[Trail, Any] | None:
        return self._first_new(self._ways())

    def _ways(self) -> Iterator[Steps | None]:
        for _ in range(ATTEMPTS):
            if self._should_stop():
                return
            parent = self._parent()
            yield self._first_steps() if parent is None else self._mutation(parent.trail.steps)

    def _first_steps(self) -> Steps | None:
        """Return random steps to one of the first ``start`` operators; None if this attempt fails."""
        return descend(self.root, self.rng, self.facts, should_stop=self._should_stop)

    def _mutation(self, parent: Steps) -> Steps | None:
        """Return steps to a mutation of an operator; None if this attempt fails."""
        return mutated(self.root, parent, self.rng, self.facts)

    def _parent(self) -> Member | None:
        """Draw a parent by Algorithm 2; None while there are too few members."""
        if len(self.members) < self.start:
            return None
        living = [member for member in self.members if member.reward]
        able = [member for member in living if member.reward >= self.selection.floor] or living
        if not able:
            return None
        weights = None
        if self.rng.random() >= self.selection.alone:
            name = self.rng.choice(self.objectives)
            measured = [member for member in able if name in member.measures]
            if measured:
                able = measured
                weights = self._weights([(member.reward, member.measures[name]) for member in able])
        if weights is None:
            weights = [-member.reward for member in able]
        return able[chosen(weights, self.selection, self.rng)]

    def _weights(self, points: Sequence[Point]) -> list[float]:
        if not self.selection.anchored:
            return pareto_weights(points)
        line, place = _scaled(points)
        lengths = [dist(*ends) for ends in pairwise(line)]
        anchor = line[0]
        if sum(lengths):
            ((start, end),) = self.rng.choices(list(pairwise(line)), lengths)
            along = self.rng.random()
            anchor = (start[0] + along * (end[0] - start[0]), start[1] + along * (end[1] - start[1]))
        return [dist(place(point), anchor) for point in points]

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:
        known = {name: cost(operator) for name, cost in self.costs.items() if name not in measures}
        check_measures(known)
        self.members.append(Member(trail, operator, reward, {**known, **measures}))


def chosen(weights: Sequence[float], rules: Selection, rng: random.Random) -> int:
    """Draw the index of a weight among the least weights."""
    order = sorted(range(len(weights)), key=weights.__getitem__)
    top = order[: max(rules.least, ceil(rules.share * len(order)))]
    if not rules.falling:
        return rng.choice(top)
    low, high = weights[top[0]], weights[top[-1]]
    scale = (high - low) or 1.0
    return rng.choices(top, [10 ** -((weights[place] - low) / scale) for place in top])[0]


def pareto_weights(points: Sequence[Point]) -> list[float]:
    """Return the distance of each point (reward, cost) from the front, 0 for points on the front (appendix B.3).

    Straight lines join the points of the front. Each axis is divided by its range on the front, or by its range over
    all points if its range on the front is 0.
    """
    line, place = _scaled(points)
    segments = list(pairwise(line)) or [(line[0], line[0])]
    return [min(_apart(place(point), *ends) for ends in segments) for point in points]


def _scaled(points: Sequence[Point]) -> tuple[list[Point], Callable[[Point], Point]]:
    """Return the scaled front, sorted by cost, and a function that scales a point in the same way."""
    named = [{"reward": reward, "cost": cost} for reward, cost in points]
    on_front = pareto_front(named, maximise=["reward"], minimise=["cost"])
    front = sorted({points[i] for i in on_front}, key=lambda point: point[1])
    ranges = [
        front[-1][axis] - front[0][axis] or max(p[axis] for p in points) - min(p[axis] for p in points) or 1.0
        for axis in (0, 1)
    ]

    def place(point: Point) -> Point:
        return point[0] / ranges[0], point[1] / ranges[1]

    return [place(point) for point in front], place


def _apart(point: Point, start: Point, end: Point) -> float:
    """Return the distance of a point from a segment."""
    along = (end[0] - start[0], end[1] - start[1])
    length = hypot(*along)
    if not length:
        return dist(point, start)
    share = ((point[0] - start[0]) * along[0] + (point[1] - start[1]) * along[1]) / length**2
    share = min(1.0, max(0.0, share))
    return dist(point, (start[0] + share * along[0], start[1] + share * along[1]))
