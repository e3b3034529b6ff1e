"""Walks: paths drawn from a search graph that is too large to be counted."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod

from syno_lab.errors import EffortError, TooLargeError
from syno_lab.synthesis.beginnings import Deck, Worthwhile
from syno_lab.synthesis.graph import Graph, Move, SearchNode
from syno_lab.synthesis.paths import Path, TooManyError, VastError, count, first_path, is_alive, take


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
    (:class:`.beginnings.Deck`); the others list neighbourhoods (:class:`.beginnings.Worthwhile`).

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
        beginnings = Deck if spread else Worthwhile
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

        Raises:
            EffortError: for what exceeds the graph's effort, where nothing was found until then.
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
        begun = self._beginnings.deal()
        if begun is not None:
            before = len(self.graph)
            move, most = begun
            for edge in move.edges():
                assert edge.target is not None
                self._gather(region, edge.target, most - edge.cost, (edge,))
            self._beginnings.note(len(self.graph) - before, region.total)

    def _gather(self, region: _Region, node: SearchNode, left: int, taken: Path) -> bool:
        """Count what lies ahead of ``node``, its moves in random order; whether all of it could be counted."""
        graph, rng = self.graph, self.rng
        number = node.counts.get(left)
        is_vast = graph.is_vast(node, left)
        if number is None and left <= self._beginnings.SMALL and not is_vast:
            with suppress(VastError):
                number = count(graph, node, left)
        if number is not None:
            if number:
                region.places.append((number, node, left, taken))
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
                        region.places.append((1, None, 0, (*taken, edge)))
                elif not self._gather(region, edge.target, left - edge.cost, (*taken, edge)):
                    return False
        if is_vast:
            return False  # not all of it was looked at
        # All is known now: one place instead of many.
        number = node.counts[left] = ends + sum([n for n, *_ in region.places[first:]])
        node.moves[left] = [move for move in graph.moves(node, left) if move.edges()] if number else []
        del region.places[first:]
        if number:
            region.places.append((number, node, left, taken))
        return True

    def _drawn(self, region: _Region, wanted: int) -> list[Path]:
        """At most ``wanted`` paths of a region, all equally likely."""
        total = region.total
        ranks = list(range(total)) if total <= wanted else sorted(self.rng.sample(range(total), wanted))
        found: list[Path] = []
        at = 0
        ends = accumulate(number for number, *_ in region.places)
        for (number, node, left, taken), end in zip(region.places, ends, strict=True):
            start = at
            while at < len(ranks) and ranks[at] < end:
                at += 1
            if at > start and node is None:
                found.append(taken)
            elif at > start and node is not None:
                mine = [rank - (end - number) for rank in ranks[start:at]]
                found += take(self.graph, node, left, mine, taken)
        return found

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

    Raises:
        EffortError: for what exceeds the graph's effort.
    """
    while len(graph) <= graph.MOST_NODES:
        try:
            return count(graph, graph.root, most, len(graph) + Walker.NODES_A_WALK)
        except VastError:
            return None
        except TooManyError:
            continue
    return None
