"""Evolution along the front of the reward and further objectives (αNAS, appendix B.3, Algorithm 2).

Whoever was told may be a parent, and nobody dies. For each parent one objective is drawn; those that are nearest to the
front of the reward against it are preferred. The front is a curve: its points, in order of the objective, joined by
straight lines.
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

#: Answers in a row that give nothing new before an operator is drawn at random instead.
ATTEMPTS = 50
#: A reward and a value of an objective.
Point = tuple[float, float]


@dataclass(frozen=True)
class Selection:
    """How a parent is chosen among all that may be one.

    Attributes:
        share: the share of the population that is kept, the nearest to the front.
        least: so many are kept at least.
        alone: the probability that the reward alone counts, and no front.
        falling: of those that are kept the nearest is ten times as likely as the farthest, by 10^-w with the weights w
            scaled to 0 to 1; otherwise all are as likely.
        anchored: distances are those from one random point of the front and not from all of it.
        floor: those with a lower reward are no parents, unless all have.

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


#: Algorithm 2 of the paper, and what the authors' published code does; the paper names no share.
SELECTIONS = {"paper": Selection(), "code": Selection(alone=0.2, falling=True, anchored=True)}


class Member(NamedTuple):
    """An operator that was told, with its measures."""

    trail: Trail
    operator: Any
    reward: float
    measures: Measures


class ParetoEvolution(Search):
    """Evolution with several objectives.

    Operators with reward 0 have failed: they are no parents. What lacks a measure takes no part where that is drawn.

    Args:
        root: the space.
        rng: the only source of chance.
        objectives: the names of the measures beside the reward, at least one; less is better.
        costs: measures that follow from an operator; the others come with :meth:`tell`.
        start: how many are drawn at random before the first parent is chosen.
        selection: its rules, or the name of one of :data:`SELECTIONS`.

    Raises SearchError for no objective or one twice, a start below 1, and a name that is none.
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
        """Those that none beats in the reward and all of these objectives, by default all; in the order told."""
        found = [one for one in self.members if one.reward]
        points = [{**one.measures, "": one.reward} for one in found]
        return [found[i] for i in pareto_front(points, maximise=[""], minimise=objectives or self.objectives)]

    def _propose(self) -> tuple[Trail, Any] | None:
        return self._first_new(self._ways())

    def _ways(self) -> Iterator[Steps | None]:
        for _ in range(ATTEMPTS):
            if self._should_stop():
                return
            parent = self._parent()
            yield self._begun() if parent is None else self._varied(parent.trail.steps)

    def _begun(self) -> Steps | None:
        """Steps to one of the first operators; None where this attempt gives none."""
        return descend(self.root, self.rng, self.facts, should_stop=self._should_stop)

    def _varied(self, parent: Steps) -> Steps | None:
        """Steps to a mutation of an operator; None where this attempt gives none."""
        return mutated(self.root, parent, self.rng, self.facts)

    def _parent(self) -> Member | None:
        """A member by Algorithm 2; None while there are too few."""
        if len(self.members) < self.start:
            return None
        living = [one for one in self.members if one.reward]
        able = [one for one in living if one.reward >= self.selection.floor] or living
        if not able:
            return None
        weights = None
        if self.rng.random() >= self.selection.alone:
            name = self.rng.choice(self.objectives)
            measured = [one for one in able if name in one.measures]
            if measured:
                able = measured
                weights = self._weights([(one.reward, one.measures[name]) for one in able])
        if weights is None:
            weights = [-one.reward for one in able]
        return able[chosen(weights, self.selection, self.rng)]

    def _weights(self, points: Sequence[Point]) -> list[float]:
        if not self.selection.anchored:
            return pareto_weights(points)
        line, place = _scaled(points)
        lengths = [dist(*ends) for ends in pairwise(line)]
        anchor = line[0]
        if sum(lengths):
            ((one, other),) = self.rng.choices(list(pairwise(line)), lengths)
            along = self.rng.random()
            anchor = (one[0] + along * (other[0] - one[0]), one[1] + along * (other[1] - one[1]))
        return [dist(place(point), anchor) for point in points]

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:
        known = {name: cost(operator) for name, cost in self.costs.items() if name not in measures}
        check_measures(known)
        self.members.append(Member(trail, operator, reward, {**known, **measures}))


def chosen(weights: Sequence[float], rules: Selection, rng: random.Random) -> int:
    """The place of the one that is drawn among those with the least weights."""
    order = sorted(range(len(weights)), key=weights.__getitem__)
    top = order[: max(rules.least, ceil(rules.share * len(order)))]
    if not rules.falling:
        return rng.choice(top)
    low, high = weights[top[0]], weights[top[-1]]
    scale = (high - low) or 1.0
    return rng.choices(top, [10 ** -((weights[place] - low) / scale) for place in top])[0]


def pareto_weights(points: Sequence[Point]) -> list[float]:
    """The distance of each point, a reward and a cost, from their front: 0 for those on it (appendix B.3).

    The front's points are joined by straight lines. Both axes are divided by the ranges between its ends; where these
    do not differ, by those of all points.
    """
    line, place = _scaled(points)
    segments = list(pairwise(line)) or [(line[0], line[0])]
    return [min(_apart(place(point), *ends) for ends in segments) for point in points]


def _scaled(points: Sequence[Point]) -> tuple[list[Point], Callable[[Point], Point]]:
    """The front in order of the cost, and where a point lies, both in scaled axes."""
    named = [{"reward": reward, "cost": cost} for reward, cost in points]
    found = pareto_front(named, maximise=["reward"], minimise=["cost"])
    front = sorted({points[i] for i in found}, key=lambda point: point[1])
    ranges = [
        front[-1][axis] - front[0][axis] or max(p[axis] for p in points) - min(p[axis] for p in points) or 1.0
        for axis in (0, 1)
    ]

    def place(point: Point) -> Point:
        return point[0] / ranges[0], point[1] / ranges[1]

    return [place(point) for point in front], place


def _apart(point: Point, start: Point, end: Point) -> float:
    """The distance of a point from a segment."""
    along = (end[0] - start[0], end[1] - start[1])
    length = hypot(*along)
    if not length:
        return dist(point, start)
    share = ((point[0] - start[0]) * along[0] + (point[1] - start[1]) * along[1]) / length**2
    share = min(1.0, max(0.0, share))
    return dist(point, (start[0] + share * along[0], start[1] + share * along[1]))
