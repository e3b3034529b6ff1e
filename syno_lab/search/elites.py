"""Search by elites: the best few operators of each range of cost, and new ones made from them.

MAP-Elites (Mouret and Clune, Illuminating search spaces by mapping elites, 2015) with one dimension, the cost: whoever
looks for a front of reward against cost wants the best of each cost, not the best alone. Each question is answered in
one of three ways: by a descent from the root, by an elite whose steps after a random place are grown anew, or by a
neighbour of an elite, in which one step has another size and the rest follows the old steps as far as it can. The
search needs no tree and no estimate, so a question costs little more than its descent: it is made for rewards that cost
no training (:func:`examine`).
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
from syno_lab.search.asking import Measures, Search
from syno_lab.search.descent import Stop, claim, descend, never
from syno_lab.search.evolution import followed, most_alike, neighbours, open_steps, regrown
from syno_lab.search.protocol import Candidate, State, Step, Steps, Trail

#: Answers in a row that give nothing new before an operator is drawn at random instead.
ATTEMPTS = 50
#: The ranges of cost in an octave.
BINS_AN_OCTAVE = 2
#: The ways to answer a question, a descent from the root, a neighbour of an elite, an elite grown anew after a random
#: place, and their shares where all come to new operators alike. A way that comes to nothing more often is tried less,
#: in proportion: in a large space most descents from the root may be in vain, and take longest.
WAYS = {"fresh": 0.25, "near": 0.25, "anew": 0.5}


class Elite(NamedTuple):
    """An operator that is among the best of its range of cost, and of its group where operators have groups."""

    trail: Trail
    operator: Any
    score: float
    cost: float
    group: Hashable = None


class Elites:
    """The best few operators of each range of cost; of each group its own, so that no group ousts another.

    Args:
        bins: ranges of cost; the first has costs above 2^(-1/2), each further one those down to 2^(-1/2) of it, and the
            last all below.
        per_bin: operators that a range keeps.

    Raises SearchError for a number below 1.
    """

    def __init__(self, bins: int = 16, per_bin: int = 6) -> None:
        for name, number in (("bins", bins), ("per_bin", per_bin)):
            if number < 1:
                raise SearchError(f"{name}: expected 1 or more, found {number}")
        self.per_bin = per_bin
        self._ranges = bins
        self._groups: dict[Hashable, list[list[Elite]]] = {}

    @property
    def bins(self) -> list[list[Elite]]:
        """The ranges of all groups, one group after the other."""
        return [kept for bins in self._groups.values() for kept in bins]

    def __iter__(self) -> Iterator[Elite]:
        """All of them, by range, the best of a range first."""
        return (elite for kept in self.bins for elite in kept)

    def __len__(self) -> int:
        return sum(map(len, self.bins))

    def add(self, elite: Elite) -> bool:
        """Keep an operator if it is among the best of its range; whether it is. Of equal scores the cheaper is better.

        Raises SearchError for a cost that is no number of 0 or more.
        """
        number = self.bin_of(elite.cost)
        bins = self._groups.setdefault(elite.group, [])
        bins += [[] for _ in range(self._ranges - len(bins))]
        kept = bins[number]
        kept.append(elite)
        kept.sort(key=lambda one: (-one.score, one.cost))  # stable: of equals the earlier stays first
        if len(kept) <= self.per_bin:
            return True
        return kept.pop() is not elite

    def bin_of(self, cost: float) -> int:
        """The number of the range with this cost. Raises as :meth:`add`."""
        if not (isfinite(cost) and cost >= 0):
            raise SearchError(f"cost: expected a number of 0 or more, found {quoted(cost)}")
        if cost == 0:
            return self._ranges - 1
        return min(self._ranges - 1, max(0, floor(-BINS_AN_OCTAVE * log2(cost))))

    def draw(self, rng: random.Random) -> Elite:
        """One of them: of a random group, of a random range of it that has some, each with the same chance."""
        groups = list(self._groups.values())
        bins = groups[0] if len(groups) == 1 else rng.choice(groups)
        return rng.choice(rng.choice([kept for kept in bins if kept]))

    def in_turn(self) -> list[Elite]:
        """All of them: the best of each range, by score, then the second ones, and so on; groups take turns."""
        rows = []
        for bins in self._groups.values():
            ranks = [[kept[rank] for kept in bins if len(kept) > rank] for rank in range(self.per_bin)]
            rows.append([one for rank in ranks for one in sorted(rank, key=lambda one: (-one.score, one.cost))])
        return [elite for turn in zip_longest(*rows) for elite in turn if elite is not None]

    def front(self) -> list[Elite]:
        """Those than which none is cheaper with the same score, or better at the same cost; the cheapest first."""
        found: list[Elite] = []
        for elite in sorted(self, key=lambda one: (one.cost, -one.score)):
            if not found or elite.score > found[-1].score:
                found.append(elite)
        return found


class EliteSearch(Search):
    """Search by elites.

    Args:
        root: the space.
        rng: the only source of chance.
        cost: of an operator as a share of the most that the space allows, such as its FLOPs.
        group: of an operator, such as its system.
        bins, per_bin: of :class:`Elites`.

    Attributes:
        ways: the shares of :data:`WAYS`, once there are elites.
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
        self.tries: Counter[str] = Counter()  # attempts by their way
        self.answers: Counter[str] = Counter()  # those that gave a new operator
        self._first: list[Step] | None = None  # the steps from the root, which may be thousands
        self._near_first: dict[str, list[Step]] = {}  # the neighbours of one of them

    def _propose(self) -> tuple[Trail, Any] | None:
        for _ in range(ATTEMPTS if len(self.elites) else 0):
            if self._should_stop():
                return None
            way = self._way()
            steps = self._made(way)
            operator = None if steps is None else claim(steps[-1].state, self.facts, self._known)
            self.tries[way] += 1
            if steps is not None and operator is not None:
                self.answers[way] += 1
                return Trail(steps), operator
        return self._by_chance()

    def _way(self) -> str:
        """A way by its share, times the share of its attempts that were answered (as if one of two before had been)."""
        weights = [share * (self.answers[way] + 1) / (self.tries[way] + 2) for way, share in self.ways.items()]
        (way,) = self.rng.choices(list(self.ways), weights)
        return way

    def _made(self, way: str) -> Steps | None:
        """Steps to a complete state that was not met before; None where this attempt gives none."""
        if way == "fresh":
            return descend(self.root, self.rng, self.facts, should_stop=self._should_stop)
        parent = self.elites.draw(self.rng).trail.steps
        place = self.rng.randrange(len(parent))
        if way == "anew":
            return regrown(self.root, parent, place, self.rng, self.facts)
        near = self._neighbours(parent, place)
        if not near:
            return None
        taken = (*parent[:place], self.rng.choice(near))
        return followed(taken, parent[place + 1 :], most_alike, self.rng, self.facts)

    def _neighbours(self, parent: Steps, place: int) -> list[Step]:
        """The steps that may stand for the one at ``place``, with one other word."""
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
    """An operator with its score, and the steps that lead to it."""

    operator: Any
    trail: Trail
    score: float


def examine(
    search: Search, score: Callable[[Any], float], should_stop: Stop = never, given: Iterable[Any] = ()
) -> Iterator[Examined]:
    """Ask ``search`` for operators and tell it their scores, from 0 to 1, until the space is exhausted or stopped.

    ``given`` are examined first, where the space has them. Raises SearchError for a score outside [0, 1].
    """

    def examined(candidate: Candidate) -> Examined:
        found = score(candidate.operator)
        trail = search.trail_of(candidate)
        search.tell(candidate, found)
        return Examined(candidate.operator, trail, found)

    for operator in given:
        if should_stop():
            return
        candidate = search.adopt(operator)
        if candidate is not None:
            yield examined(candidate)
    while not should_stop() and (candidate := search.ask(should_stop)) is not None:
        yield examined(candidate)
