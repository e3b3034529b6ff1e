"""Walks: paths drawn from a search graph that is too large to be counted, and where they begin."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import ClassVar

from syno_lab.errors import EffortError, TooLargeError
from syno_lab.synthesis.graph import Graph, Move, SearchNode
from syno_lab.synthesis.paths import Path, TooManyError, VastError, count, first_path, is_alive, take

Chance = Callable[[Move], float]


@dataclass(eq=False)
class Beginnings(ABC):
    """Chooses where walks begin, and learns from what they found.

    Args:
        graph: the space.
        most: steps of a path.
        rng: the source of chance.
        affordable: how much rarer a multiset of REDUCEs is taken since it exceeds the budget of FLOPs by itself, 1 for
            one that does not.
        weight: how likely a move is taken where moves are drawn by weight.
    """

    #: Steps left at which what lies ahead is counted whatever it takes.
    SMALL: ClassVar[int]

    graph: Graph
    most: int
    rng: random.Random
    affordable: Chance
    weight: Chance

    @abstractmethod
    def deal(self) -> tuple[Move, int] | None:
        """The REDUCEs of the next walk, and the most steps of a path; None where there are none of that length."""

    @abstractmethod
    def room(self) -> tuple[int, int]:
        """The nodes that the next walk may add to the graph, and the most paths that it takes."""

    @abstractmethod
    def note(self, nodes: int, paths: int) -> None:
        """The walk that was dealt last has added so many nodes and counted so many paths."""

    @abstractmethod
    def reward(self, new: int) -> None:
        """So many paths of that walk were new."""

    @abstractmethod
    def forget(self) -> None:
        """The graph has forgotten its nodes."""


@dataclass(eq=False)
class _Deck(Beginnings):
    """Every multiset of REDUCEs in turn, and few paths from one place: draws that spread.

    First how many REDUCEs, each number once before any comes again; then which of those multisets, likewise. What gave
    nothing new when it was there is passed over the more often, and so are REDUCEs that are not affordable. The length
    is drawn evenly. One walk takes at most :data:`FEW` paths, or a hundredth of what was drawn before: where many
    are asked for, no place gives more than one in a hundred of them.
    """

    SMALL = 1  # a node, and no others: at two there can be a hundred behind it
    FEW = 4
    NODES_A_PATH = 8
    MOST_NODES = 3_000
    MOST_PATHS = 4_000
    #: Multisets that are passed over before one is taken all the same.
    PASSED = 200
    #: How likely at least one is taken that gave nothing new.
    HOPE = 1 / 64

    def __post_init__(self) -> None:
        self._in_vain: Counter[Hashable] = Counter()  # by REDUCEs and by length
        self._last: tuple[Hashable, ...] = ()
        self._drawn = 0
        self.forget()

    def forget(self) -> None:
        # A card that is left would hold nodes that the graph has forgotten.
        self._all: dict[int, list[Move]] = {}
        self._numbers: list[int] = []  # of REDUCEs, those that are still to come
        self._cards: dict[int, list[Move]] = {}  # of each number the multisets that are

    def deal(self) -> tuple[Move, int] | None:
        rng = self.rng
        for passed in range(self.PASSED + 1):
            if not self._numbers:
                self._begin_round()
                if not self._numbers:
                    return None
            number = self._numbers.pop()
            if not self._cards.get(number):
                self._cards[number] = rng.sample(self._all[number], len(self._all[number]))
            move = self._cards[number].pop()
            if passed == self.PASSED or rng.random() < self.affordable(move) * self._hope(move.sizes):
                break
        lengths = range(move.cost + move.need, self.most + 1)
        (most,) = rng.choices(lengths, [self._hope(length) for length in lengths])
        self._last = (most, move.sizes)
        return move, most

    def _begin_round(self) -> None:
        """Every number of REDUCEs comes once more; of too many multisets to list, others than before."""
        root = self.graph.root
        if not self._all or self.graph.is_vast(root, self.most):
            self._all = {}
            for move in self.graph.some_moves(root, self.most, self.rng):
                self._all.setdefault(move.cost, []).append(move)
        self._numbers = self.rng.sample(list(self._all), len(self._all))

    def room(self) -> tuple[int, int]:
        paths = min(self.MOST_PATHS, max(self.FEW, self._drawn // 100))
        return min(self.MOST_NODES, self.NODES_A_PATH * paths), paths

    def note(self, nodes: int, paths: int) -> None:
        if paths:
            self._drawn += min(paths, self.room()[1])
        else:
            self.reward(0)

    def reward(self, new: int) -> None:
        for key in self._last:
            self._in_vain[key] = 0 if new else self._in_vain[key] + 1

    def _hope(self, key: Hashable) -> float:
        return max(2.0 ** -min(self._in_vain[key], 9), self.HOPE)


@dataclass(eq=False)
class _Worthwhile(Beginnings):
    """Where most was found for the time it took: the fastest way to many operators, and to many that are alike.

    One walk lists the neighbourhood of a place.
    """

    SMALL = 2
    #: Nodes that one walk may add to the graph, the first walks fewer, so that the first operators differ widely.
    MOST_NODES = 3_000
    FIRST_NODES = 60
    MOST_PATHS = 4_000
    #: What a walk that finds nothing new costs, in nodes.
    IN_VAIN = 100

    def __post_init__(self) -> None:
        # New paths, and what they cost in nodes and in paths drawn.
        self._history: dict[Hashable, tuple[int, float]] = {}
        self._last: tuple[Hashable, ...] = ()
        self._walks = 0

    def deal(self) -> tuple[Move, int] | None:
        lengths = range(self.graph.root.shortest or 0, self.most + 1)
        (most,) = self.rng.choices(lengths, [self._worth(length) for length in lengths])
        moves = self.graph.some_moves(self.graph.root, most, self.rng)
        if not moves:
            return None
        weights = [self.weight(move) * self._worth((most, move.sizes)) for move in moves]
        (move,) = self.rng.choices(moves, weights)
        self._last = (most, (most, move.sizes))
        return move, most

    def room(self) -> tuple[int, int]:
        nodes = self.FIRST_NODES << min(self._walks // 4, 20)
        self._walks += 1
        return min(self.MOST_NODES, nodes), self.MOST_PATHS

    def note(self, nodes: int, paths: int) -> None:
        for key in self._last:
            gain, cost = self._history.get(key, (0, 0.0))
            self._history[key] = (gain, cost + nodes + min(paths, self.MOST_PATHS) / 4)

    def reward(self, new: int) -> None:
        for key in self._last:
            gain, cost = self._history.get(key, (0, 0.0))
            self._history[key] = (gain + new, cost if new else cost + self.IN_VAIN)

    def forget(self) -> None:
        """See :class:`Beginnings`: no nodes are held here."""

    def _worth(self, key: Hashable) -> float:
        gain, cost = self._history.get(key, (0, 0.0))
        return (gain + 50) / (cost + 100)


@dataclass
class _Region:
    """What a walk has counted: places with all the paths that go on from them.

    Attributes:
        most_nodes: size of the graph at which the walk stops counting.
        places: (number of paths, node, steps left, the path to it), none of them below another; no node for the end
            of an operator.
    """

    most_nodes: int
    places: list[tuple[int, SearchNode | None, int, Path]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many paths there are."""
        return sum(number for number, *_ in self.places)


class Walker:
    """Draws paths from spaces that are too large to be counted.

    A walk goes down from the root and counts what lies around the place where it comes down, as much as a budget of
    nodes allows; of the paths that lie there it takes some, all equally likely. The length is drawn first: long
    operators outnumber short ones by far, and would leave no room for them. On the way down moves are preferred that do
    not lead away from the input, and REDUCEs that do not exceed the budget of FLOPs by themselves. So paths of one walk
    begin alike, and paths in small places are likelier than in large ones.

    Walks that *spread* begin with each multiset of REDUCEs in turn and take few paths from one place
    (:class:`_Deck`); the others list neighbourhoods (:class:`_Worthwhile`).

    Args:
        graph: the space.
        most: steps of a path.
        rng: the source of chance.
        spread: whether walks spread.
    """

    #: Nodes that a walk counts on where it has found nothing.
    NODES_A_WALK = 3_000
    #: How much likelier a move is that leads a step nearer to the input.
    PULL = 2.0
    #: Walks in vain after which the graph is searched from its first path on.
    ATTEMPTS = 200

    def __init__(self, graph: Graph, most: int, rng: random.Random, *, spread: bool = True) -> None:
        self.graph = graph
        self.most = most
        self.rng = rng
        self.walks = 0
        beginnings = _Deck if spread else _Worthwhile
        self._beginnings = beginnings(graph, most, rng, self._affordable, self._weight)
        self._is_begun = False
        self._spare: Path = ()  # a shortest one, for where the time is over before the first walk has found any
        maps, limits = graph.spec.binding_maps, graph.spec.limits
        self._binding = maps[0] if maps else None
        self._most_flops = limits.max_flops
        outputs = prod(size.at(maps[0]) for size in graph.spec.output_shape) if maps else 0
        self._spare_flops = (limits.max_flops or 0) / max(1, 2 * outputs)

    def walk(self, wanted: int | None = None) -> list[Path]:
        """Paths of one walk, all different, at most ``wanted``; none where no operator exists.

        Raises EffortError for what exceeds the graph's effort, where nothing was found until then.
        """
        graph = self.graph
        if not self._is_begun:
            if not is_alive(graph, graph.root, self.most):
                return []
            self._is_begun = True
            self._spare = first_path(graph, graph.root)
        is_tight = graph.effort.is_tight
        if is_tight:
            graph.forget()
        if graph.make_room() or is_tight:
            self._beginnings.forget()
        nodes, most = self._beginnings.room()
        self.walks += 1
        region = _Region(0)
        try:
            for _ in range(self.ATTEMPTS):
                graph.effort.look("looking for an operator")
                region = _Region(len(graph) + nodes)
                self._from_root(region)
                if region.total:
                    break
            # Nothing where it was likely, but somewhere: count on until it is met.
            while not region.total:
                graph.effort.look("looking for an operator")
                region = _Region(len(graph) + self.NODES_A_WALK)
                self._gather(region, graph.root, self.most, ())
        except EffortError as error:
            if isinstance(error, TooLargeError):
                graph.forget()
                self._beginnings.forget()
            if not region.total:
                spare, self._spare = self._spare, ()
                if not spare or self.walks > 1:
                    raise
                return [spare]
        return self._drawn(region, most if wanted is None else min(most, wanted))

    def shortest(self) -> Path:
        """A shortest path, found before the first walk and given once; empty where it was given, or not found yet."""
        spare, self._spare = self._spare, ()
        return spare

    def reward(self, new: int) -> None:
        """So many paths of the last walk were new; where none was there is little left to find."""
        self._beginnings.reward(new)

    def _from_root(self, region: _Region) -> None:
        """What one walk counts."""
        start = self._beginnings.deal()
        if start is not None:
            before = len(self.graph)
            move, most = start
            for edge in move.edges():
                assert edge.target is not None
                self._gather(region, edge.target, most - edge.cost, (edge,))
            self._beginnings.note(len(self.graph) - before, region.total)

    def _gather(self, region: _Region, node: SearchNode, left: int, path: Path) -> bool:
        """Count what lies ahead of ``node``, its moves in random order; whether all of it could be counted."""
        graph, rng = self.graph, self.rng
        number = node.counts.get(left)
        is_vast = graph.is_vast(node, left)
        if number is None and left <= self._beginnings.SMALL and not is_vast:
            with suppress(VastError):
                number = count(graph, node, left)
        if number is not None:
            if number:
                region.places.append((number, node, left, path))
            return True
        if len(graph) > region.most_nodes:
            return False
        first = len(region.places)
        ends = 0
        moves = list(graph.some_moves(node, left, rng))
        # Weighted, without replacement: the order of exponential waiting times.
        waits = [rng.expovariate(1.0) / self._weight(move) for move in moves]
        for at in sorted(range(len(moves)), key=waits.__getitem__):
            for edge in moves[at].edges():
                if edge.target is None:
                    ends += 1
                    if is_vast:
                        region.places.append((1, None, 0, (*path, edge)))
                elif not self._gather(region, edge.target, left - edge.cost, (*path, edge)):
                    return False
        if is_vast:
            return False  # not all of it was looked at
        # All is known now: one place instead of many.
        number = node.counts[left] = ends + sum([n for n, *_ in region.places[first:]])
        node.moves[left] = [move for move in graph.moves(node, left) if move.edges()] if number else []
        del region.places[first:]
        if number:
            region.places.append((number, node, left, path))
        return True

    def _drawn(self, region: _Region, wanted: int) -> list[Path]:
        """At most ``wanted`` paths of a region, all equally likely."""
        total = region.total
        ranks = list(range(total)) if total <= wanted else sorted(self.rng.sample(range(total), wanted))
        paths: list[Path] = []
        at = 0
        ends = accumulate(number for number, *_ in region.places)
        for (number, node, left, path), end in zip(region.places, ends, strict=True):
            start = at
            while at < len(ranks) and ranks[at] < end:
                at += 1
            if at > start and node is None:
                paths.append(path)
            elif at > start and node is not None:
                below = [rank - (end - number) for rank in ranks[start:at]]
                paths += take(self.graph, node, left, below, path)
        return paths

    def _weight(self, move: Move) -> float:
        return move.width * self.PULL ** -min(move.need, 9) * move.favour * self._affordable(move)

    def _affordable(self, move: Move) -> float:
        """1 but for REDUCEs that exceed the budget of FLOPs by themselves."""
        if not move.sizes or self._most_flops is None or self._binding is None:
            return 1.0
        naive = prod(size.at(self._binding) for size in move.sizes)
        return min(1.0, (self._spare_flops / naive) ** 2)


def counted(graph: Graph, most: int) -> int | None:
    """How many paths the whole graph has; None where it is too large for that.

    Raises EffortError for what exceeds the graph's effort.
    """
    while len(graph) <= graph.MOST_NODES:
        try:
            return count(graph, graph.root, most, len(graph) + Walker.NODES_A_WALK)
        except VastError:
            return None
        except TooManyError:
            continue
    return None
