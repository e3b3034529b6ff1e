"""Search by elites: store the best few operators of each range of cost (elites), and make new operators from them.

The method is MAP-Elites (Mouret and Clune, Illuminating search spaces by mapping elites, 2015). The cost is the only
dimension, because a front of reward against cost needs the best operators of each cost. A call of ``ask`` has three
ways to make an operator: a descent from the root, an elite with new steps after a random position, or a neighbour of an
elite. A neighbour has another size in one step; its later steps are the elite's if possible. The search has no tree and
no estimate, so a call costs little more than a descent. Elites suit rewards without training (:func:`examine`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import zip_longest
from math import floor, isfinite, log2
from typing import Any, NamedTuple

from syno_lab.errors import SearchError
from syno_lab.inputs import quoted
from syno_lab.search.asking import Measures, Search, check_numbers
from syno_lab.search.descent import Stop, claim, descend, never
from syno_lab.search.evolution import followed, most_alike, neighbours, open_steps, regrown
from syno_lab.search.protocol import Candidate, State, Step, Steps, Trail

#: The number of failed attempts in a row after which an operator is drawn at random.
ATTEMPTS = 50
#: The number of ranges of cost per octave.
BINS_AN_OCTAVE = 2
#: The three ways to make an operator, with their shares: a descent from the root, a neighbour of an elite, and an elite
#: with random steps after a random position. A way that fails more often is tried less often: in a large space most
#: descents from the root may fail, and they take longest.
WAYS = {"fresh": 0.25, "near": 0.25, "anew": 0.5}


class Elite(NamedTuple):
    """An operator among the best of its range of cost, and of its group if operators have groups."""

    trail: Trail
    operator: Any
    score: float
    cost: float
    group: Hashable = None


class Elites:
    """The best few operators of each range of cost; each group has its own ranges, so groups do not compete.

    Args:
        bins: the number of ranges of cost. The first range has costs above 2^(-1/2). The lower limit of each further
            range is 2^(-1/2) of the limit before, and the last range has all lower costs.
        per_bin: the number of operators in a range.

    Raises SearchError for a number below 1.
    """

    def __init__(self, bins: int = 16, per_bin: int = 6) -> None:
        check_numbers(("bins", bins, bins >= 1, "1 or more"), ("per_bin", per_bin, per_bin >= 1, "1 or more"))
        self.per_bin = per_bin
        self._ranges = bins
        self._groups: dict[Hashable, list[list[Elite]]] = {}

    @property
    def bins(self) -> list[list[Elite]]:
        """Return the elites of each range, for one group after the other."""
        return [elites for bins in self._groups.values() for elites in bins]

    def __iter__(self) -> Iterator[Elite]:
        """Iterate over all elites by range, the best of a range first."""
        return (elite for elites in self.bins for elite in elites)

    def __len__(self) -> int:
        return sum(map(len, self.bins))

    def add(self, elite: Elite) -> bool:
        """Add an operator if it is among the best of its range; return whether it is.

        Of equal scores, the cheaper operator is better. Raises SearchError for a cost that is no number of 0 or more.
        """
        number = self.bin_of(elite.cost)
        bins = self._groups.setdefault(elite.group, [])
        bins += [[] for _ in range(self._ranges - len(bins))]
        elites = bins[number]
        elites.append(elite)
        elites.sort(key=lambda e: (-e.score, e.cost))  # a stable sort: of equal elites, the earlier stays first
        return len(elites) <= self.per_bin or elites.pop() is not elite

    def bin_of(self, cost: float) -> int:
        """Return the number of the range that contains this cost. Raises SearchError as :meth:`add` does."""
        if not (isfinite(cost) and cost >= 0):
            raise SearchError(f"cost: expected a number of 0 or more, found {quoted(cost)}")
        if cost == 0:
            return self._ranges - 1
        return min(self._ranges - 1, max(0, floor(-BINS_AN_OCTAVE * log2(cost))))

    def draw(self, rng: random.Random) -> Elite:
        """Draw an elite: a random group, then a random range with elites, then a random elite, each uniformly."""
        groups = list(self._groups.values())
        bins = groups[0] if len(groups) == 1 else rng.choice(groups)
        return rng.choice(rng.choice([elites for elites in bins if elites]))

    def in_turn(self) -> list[Elite]:
        """Return all elites: the best of each range (by score), then the second of each range, …; groups alternate."""
        rows = []
        for bins in self._groups.values():
            ranks = [[elites[rank] for elites in bins if len(elites) > rank] for rank in range(self.per_bin)]
            rows.append([elite for rank in ranks for elite in sorted(rank, key=lambda e: (-e.score, e.cost))])
        return [elite for turn in zip_longest(*rows) for elite in turn if elite is not None]

    def front(self) -> list[Elite]:
        """Return the front of score against cost, the cheapest elite first."""
        front: list[Elite] = []
        for elite in sorted(self, key=lambda e: (e.cost, -e.score)):
            if not front or elite.score > front[-1].score:
                front.append(elite)
        return front


class EliteSearch(Search):
    """Search by elites.

    Args:
        cost: a function from an operator to its cost as a share of the space's limit, such as its FLOPs.
        group: a function from an operator to its group, such as its system.
        bins, per_bin: see :class:`Elites`.

    Attributes:
        ways: the current shares of :data:`WAYS`, which apply as soon as there are elites.
    """

    def __init__(
        self,
        root: State,
        rng: random.Random,
        *,
        cost: Callable[[Any], float],
        group: Callable[[Any], Hashable] = lambda operator: None,
        bins: int = 16,
        per_bin: int = 6,
    ) -> None:
        super().__init__(root, rng)
        self.cost, self.group = cost, group
        self.elites = Elites(bins, per_bin)
        self.ways = dict(WAYS)
        self.tries: Counter[str] = Counter()  # The number of attempts in each way.
        self.answers: Counter[str] = Counter()  # The number of attempts in each way that found a new operator.
        self._first: list[Step] | None = None  # The steps that are possible at the root; there may be thousands.
        self._near_first: dict[str, list[Step]] = {}  # The neighbours of each first step, by the step's name.

    def _propose(self) -> tuple[Trail, Any] | None:
        for _ in range(ATTEMPTS if len(self.elites) else 0):
            if self._should_stop():
                return None
            way = self._way()
            steps = self._steps_of(way)
            operator = None if steps is None else claim(steps[-1].state, self.facts, self._known)
            self.tries[way] += 1
            if steps is not None and operator is not None:
                self.answers[way] += 1
                return Trail(steps), operator
        return self._by_chance()

    def _way(self) -> str:
        """Draw one of :data:`WAYS` by share times rate of success; the rate counts one success in two attempts more."""
        weights = [share * (self.answers[way] + 1) / (self.tries[way] + 2) for way, share in self.ways.items()]
        (way,) = self.rng.choices(list(self.ways), weights)
        return way

    def _steps_of(self, way: str) -> Steps | None:
        """Return steps to a complete state that was not met before; None if this attempt fails."""
        if way == "fresh":
            return descend(self.root, self.rng, self.facts, should_stop=self._should_stop)
        parent = self.elites.draw(self.rng).trail.steps
        place = self.rng.randrange(len(parent))
        if way == "anew":
            return regrown(self.root, parent, place, self.rng, self.facts)
        near = self._neighbours(parent, place)
        if not near:
            return None
        path = (*parent[:place], self.rng.choice(near))
        return followed(path, parent[place + 1 :], most_alike, self.rng, self.facts)

    def _neighbours(self, parent: Steps, place: int) -> list[Step]:
        """Return the steps that differ in one word from the step at ``place``."""
        old = parent[place]
        if place:
            return neighbours(open_steps(parent[place - 1].state, self.facts), old)
        if self._first is None:
            self._first = open_steps(self.root, self.facts)
        if old.name not in self._near_first:
            self._near_first[old.name] = neighbours(self._first, old)
        return [step for step in self._near_first[old.name] if self.facts.is_open(step.state)]

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:
        self.elites.add(Elite(trail, operator, reward, self.cost(operator), self.group(operator)))


class Examined(NamedTuple):
    """An operator, the steps that lead to it, and its score."""

    operator: Any
    trail: Trail
    score: float


def examine(
    search: Search, score: Callable[[Any], float], should_stop: Stop = never, given: Iterable[Any] = ()
) -> Iterator[Examined]:
    """Ask ``search`` for operators and tell it their scores, from 0 to 1, until the space is exhausted or stopped.

    The operators in ``given`` come first if the space has them. Raises SearchError for a score outside [0, 1].
    """

    def examined(candidate: Candidate) -> Examined:
        value = score(candidate.operator)
        trail = search.trail_of(candidate)
        search.tell(candidate, value)
        return Examined(candidate.operator, trail, value)

    for operator in given:
        if should_stop():
            return
        candidate = search.adopt(operator)
        if candidate is not None:
            yield examined(candidate)
    while not should_stop() and (candidate := search.ask(should_stop)) is not None:
        yield examined(candidate)
