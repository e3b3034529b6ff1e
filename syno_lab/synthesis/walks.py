"""Walks: paths drawn from a search graph that is too large to count, and the choice of their first moves."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar

from syno_lab.common.size import value
from syno_lab.errors import EffortError, TooLargeError
from syno_lab.ir.spec import Spec
from syno_lab.synthesis.graph import Graph, Move, SearchNode
from syno_lab.synthesis.paths import Path, TooManyError, VastError, count, first_path, is_alive, take

Chance = Callable[[Move], float]


def affordable(spec: Spec) -> Chance:
    """Return a function from a move to 1, or to less for REDUCEs that alone exceed the spec's budget of FLOPs."""
    maps, most = spec.binding_maps, spec.limits.max_flops
    if not maps or most is None:
        return lambda move: 1.0
    spare = most / max(1, 2 * value(spec.output_shape, maps[0]))
    return lambda move: min(1.0, (spare / value(move.sizes, maps[0])) ** 2) if move.sizes else 1.0


@dataclass(eq=False)
class Beginnings(ABC):
    """Chooses the REDUCEs at the start of a walk, and learns from the walks' results.

    Args:
        graph: the search graph.
        most: the limit of a path's steps.
        rng: the random generator.
        affordable: a function from REDUCEs to a factor on their probability: below 1 if they alone exceed the budget of
            FLOPs, else 1.
        weight: a function from a move to its weight in a weighted draw.
    """

    #: With at most this number of remaining steps, the paths ahead are counted at any cost.
    SMALL: ClassVar[int]

    graph: Graph
    most: int
    rng: random.Random
    affordable: Chance
    weight: Chance

    @abstractmethod
    def deal(self) -> tuple[Move, int] | None:
        """Return the REDUCEs of the next walk and the limit of a path's steps; None if no REDUCEs fit this limit."""

    @abstractmethod
    def room(self) -> tuple[int, int]:
        """Return the limits of the next walk: new nodes of the graph, and paths."""

    @abstractmethod
    def note(self, nodes: int, paths: int) -> None:
        """Record how many nodes the last walk added and how many paths it counted."""

    @abstractmethod
    def reward(self, new: int) -> None:
        """Note how many paths of the last walk were new."""

    @abstractmethod
    def forget(self) -> None:
        """Drop all references to nodes, because the graph has dropped its nodes."""


@dataclass(eq=False)
class _Deck(Beginnings):
    """Takes every multiset of REDUCEs in turn, with few paths from one node, so that draws spread.

    First the number of REDUCEs is chosen, each number once per round; then a multiset of this number, each once per
    round. Multisets and lengths without new paths are chosen less often, and so are multisets above the budget of
    FLOPs. One walk takes at most :data:`FEW` paths, or a hundredth of all earlier draws if this is more. In a long
    draw, no node yields more than one in a hundred paths.
    """

    SMALL = 1  # count one node only: with two remaining steps, a hundred nodes can follow
    FEW = 4
    NODES_A_PATH = 8
    MOST_NODES = 3_000
    MOST_PATHS = 4_000
    #: The number of multisets in a row that may be skipped.
    PASSED = 200
    #: The least probability of choosing REDUCEs (or a length) whose last walks had no new paths.
    HOPE = 1 / 64

    def __post_init__(self) -> None:
        self._in_vain: Counter[Hashable] = Counter()  # walks in a row without new paths, by REDUCEs and by length
        self._last: tuple[Hashable, ...] = ()
        self._paths_drawn = 0
        self.forget()

    def forget(self) -> None:
        # A remaining move would refer to nodes that the graph has dropped.
        self._all: dict[int, list[Move]] = {}
        self._numbers: list[int] = []  # The numbers of REDUCEs that remain in this round.
        self._cards: dict[int, list[Move]] = {}  # For each number of REDUCEs, the multisets that remain.

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
        """Begin a round with every number of REDUCEs; if there are too many multisets to list, draw new ones."""
        root = self.graph.root
        if not self._all or self.graph.is_vast(root, self.most):
            self._all = {}
            for move in self.graph.some_moves(root, self.most, self.rng):
                self._all.setdefault(move.cost, []).append(move)
        self._numbers = self.rng.sample(list(self._all), len(self._all))

    def room(self) -> tuple[int, int]:
        paths = min(self.MOST_PATHS, max(self.FEW, self._paths_drawn // 100))
        return min(self.MOST_NODES, self.NODES_A_PATH * paths), paths

    def note(self, nodes: int, paths: int) -> None:
        if paths:
            self._paths_drawn += min(paths, self.room()[1])
        else:
            self.reward(0)

    def reward(self, new: int) -> None:
        for key in self._last:
            self._in_vain[key] = 0 if new else self._in_vain[key] + 1

    def _hope(self, key: Hashable) -> float:
        return max(2.0 ** -min(self._in_vain[key], 9), self.HOPE)


@dataclass(eq=False)
class _Worthwhile(Beginnings):
    """Prefers REDUCEs with the most new paths for their cost: the fastest way to many, often similar, operators.

    One walk lists the neighbourhood of a node.
    """

    SMALL = 2
    #: The limits of nodes that a walk may add; the first walks may add fewer, so that the first operators differ much.
    MOST_NODES = 3_000
    FIRST_NODES = 60
    MOST_PATHS = 4_000
    #: The cost of a walk without new paths, in nodes.
    IN_VAIN = 100

    def __post_init__(self) -> None:
        # New paths, and their cost in nodes and in drawn paths.
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
        """Do nothing: no nodes are stored here (see :class:`Beginnings`)."""

    def _worth(self, key: Hashable) -> float:
        gain, cost = self._history.get(key, (0, 0.0))
        return (gain + 50) / (cost + 100)


@dataclass
class _Region:
    """The nodes that a walk has counted, with all paths after them.

    Attributes:
        most_nodes: the size of the graph at which the walk stops counting.
        places: tuples (number of paths, node, remaining steps, the path to the node); no node is below another. The
            node is None for the end of an operator.
    """

    most_nodes: int
    places: list[tuple[int, SearchNode | None, int, Path]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Return the number of paths."""
        return sum(number for number, *_ in self.places)


class Walker:
    """Draws paths from spaces that are too large to count.

    A walk goes down from the root and counts the paths around the node that it reaches, within a limit of nodes. The
    walk draws some of these paths, all equally likely. The length is drawn first, because long operators outnumber
    short operators by far. On the way down, the walk prefers moves that do not lead away from the input, and REDUCEs
    that do not exceed the budget of FLOPs alone. Paths of one walk begin with similar steps, and a path from a small
    region is more likely than a path from a large region.

    Walks that *spread* begin with each multiset of REDUCEs in turn and take few paths from one node (:class:`_Deck`);
    other walks list neighbourhoods (:class:`_Worthwhile`).

    Args:
        graph: the search graph.
        most: the limit of a path's steps.
        rng: the random generator.
        spread: whether walks spread over the space.
    """

    #: The number of further nodes that a walk without paths may count.
    NODES_A_WALK = 3_000
    #: The factor on the probability of a move for each step that it leads nearer to the input.
    PULL = 2.0
    #: The number of failed walks before the graph is searched systematically.
    ATTEMPTS = 200

    def __init__(self, graph: Graph, most: int, rng: random.Random, *, spread: bool = True) -> None:
        self.graph = graph
        self.most = most
        self.rng = rng
        self.walks = 0
        beginnings = _Deck if spread else _Worthwhile
        self._affordable = affordable(graph.spec)
        self._beginnings = beginnings(graph, most, rng, self._affordable, self._weight)
        self._is_begun = False
        self._spare: Path = ()  # a shortest path, in case the first walk runs out of time

    def walk(self, wanted: int | None = None) -> list[Path]:
        """Return at most ``wanted`` different paths of one walk; an empty list if no operator exists.

        Raises EffortError when the graph's effort is exceeded before a path is found.
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
            # The likely nodes had no path, but a path exists: count until it is found.
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
        return self._draw(region, most if wanted is None else min(most, wanted))

    def shortest(self) -> Path:
        """Return the shortest path that was found before the first walk, once; otherwise an empty path."""
        spare, self._spare = self._spare, ()
        return spare

    def reward(self, new: int) -> None:
        """Note how many paths of the last walk were new; without new paths, few paths remain."""
        self._beginnings.reward(new)

    def _from_root(self, region: _Region) -> None:
        """Count the paths of one walk."""
        start = self._beginnings.deal()
        if start is not None:
            before = len(self.graph)
            move, most = start
            for edge in move.edges():
                assert edge.target is not None
                self._gather(region, edge.target, most - edge.cost, (edge,))
            self._beginnings.note(len(self.graph) - before, region.total)

    def _gather(self, region: _Region, node: SearchNode, left: int, path: Path) -> bool:
        """Count the paths after ``node``, by its moves in random order; return whether all paths could be counted."""
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
        # Draw a weighted order without replacement: the order of exponential waiting times.
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
            return False  # Some moves were not examined.
        # All paths are counted now: store one node instead of many.
        number = node.counts[left] = ends + sum([n for n, *_ in region.places[first:]])
        node.moves[left] = [move for move in graph.moves(node, left) if move.edges()] if number else []
        del region.places[first:]
        if number:
            region.places.append((number, node, left, path))
        return True

    def _draw(self, region: _Region, wanted: int) -> list[Path]:
        """Draw at most ``wanted`` paths of a region, all equally likely."""
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


def counted(graph: Graph, most: int) -> int | None:
    """Count all paths of the graph; return None if it is too large.

    Raises EffortError when the graph's effort is exceeded.
    """
    while len(graph) <= graph.MOST_NODES:
        try:
            return count(graph, graph.root, most, len(graph) + Walker.NODES_A_WALK)
        except VastError:
            return None
        except TooManyError:
            continue
    return None
