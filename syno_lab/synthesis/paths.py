"""Operators as paths through the search graph: counted, replayed, enumerated and drawn.

A path is the list of edges from the root to the end of an operator; there is one for each pGraph. Rules that look
deeper than a node shows (:attr:`syno_lab.synthesis.rules.Rule.is_deep`) and the budgets that only a whole operator has
are asked when a path is replayed, so a path may turn out to be none.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

from syno_lab.ir.coordinate import Coordinate, Node, reduce_coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.size import Size
from syno_lab.ir.state import State, Step, Weight
from syno_lab.synthesis.budgets import fits
from syno_lab.synthesis.graph import NEVER, Edge, Graph, Move, SearchNode
from syno_lab.synthesis.reach import pack
from syno_lab.synthesis.rules import rules_for
from syno_lab.synthesis.space import sums_no_weights

Path = tuple[Edge, ...]


class TooManyError(Exception):
    """Counting has met more nodes than it may."""


def count(graph: Graph, node: SearchNode, left: int, most_nodes: int | None = None) -> int:
    """How many paths lead from ``node`` to the end of an operator in at most ``left`` steps.

    Raises:
        TooManyError: when the graph has more than ``most_nodes`` nodes before they are counted.
    """
    known = node.counts.get(left)
    if known is None:
        if most_nodes is not None and len(graph) > most_nodes:
            raise TooManyError
        known = 0
        for move in graph.moves(node, left):
            for edge in move.edges():
                known += 1 if edge.target is None else count(graph, edge.target, left - edge.cost, most_nodes)
        node.counts[left] = known
        # Where no path lies there is nothing to come back for; elsewhere only for moves that lead somewhere.
        node.moves[left] = [move for move in graph.moves(node, left) if move.edges()] if known else []
    return known


def take(graph: Graph, node: SearchNode, left: int, ranks: list[int], before: Path = ()) -> Iterator[Path]:
    """The paths with these (sorted) numbers among those that :func:`count` counts, each behind ``before``."""
    at = first = 0
    for edge in graph.edges(node, left):
        if at == len(ranks):
            return
        number = 1 if edge.target is None else count(graph, edge.target, left - edge.cost)
        start = at
        while at < len(ranks) and ranks[at] < first + number:
            at += 1
        if at > start:
            if edge.target is None:
                yield (*before, edge)
            else:
                below = [rank - first for rank in ranks[start:at]]
                yield from take(graph, edge.target, left - edge.cost, below, (*before, edge))
        first += number


def is_alive(graph: Graph, node: SearchNode, left: int, need: int = 0) -> bool:
    """Whether any path leads from ``node`` to the end of an operator in at most ``left`` steps.

    Few steps are tried first, for where they are enough there is little to look at.
    """
    if node.shortest is not None and node.shortest <= left:
        return True
    for limit in range(max(need, node.dead + 1), left + 1):
        if node.counts.get(limit, 1) and _ends_within(graph, node, limit):
            node.shortest = limit
            return True
        node.dead = limit
    return False


def _ends_within(graph: Graph, node: SearchNode, limit: int) -> bool:
    moves = sorted(graph.moves(node, limit), key=_distance)
    return any(
        edge.target is None or is_alive(graph, edge.target, limit - edge.cost, edge.need)
        for move in moves
        for edge in move.edges()
    )


def _distance(move: Move) -> int:
    return move.need


def exactly(graph: Graph, node: SearchNode, length: int) -> Iterator[Path]:
    """Every path from ``node`` of exactly ``length`` steps."""
    for edge in graph.edges(node, length):
        if edge.target is None:
            if edge.cost == length:
                yield (edge,)
        elif is_alive(graph, edge.target, length - edge.cost, edge.need):
            for path in exactly(graph, edge.target, length - edge.cost):
                yield (edge, *path)


class Builder:
    """Replays paths of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        spec = graph.spec
        self.spec = spec
        self._root = graph.root.places
        self._fixed = graph.fixed
        self._pinned = {inp: graph.root.state.output[out] for inp, out in spec.fixed_io_pairs}
        self._deep = {p: tuple(r for r in rules_for(p, graph.rules) if r.is_deep) for p in PRIMITIVES}

    def operator(self, path: Path) -> Operator | None:
        """The operator at the end of ``path``; None where a deep rule or a budget rejects it."""
        places: tuple[Coordinate, ...] = self._root
        reductions: tuple[Coordinate, ...] = ()
        weights: list[Weight] = []
        expanded: list[Coordinate] = []
        steps: list[Step] = []
        for edge in path:
            primitive = edge.primitive
            results: tuple[Coordinate, ...] = ()
            if primitive == "REDUCE":
                results = tuple([reduce_coordinate(number, size) for number, size in enumerate(edge.parameter)])
                reductions = results
                steps += [Step("REDUCE", (), size) for size in edge.parameter]
            elif primitive:
                operands = tuple([places[i] for i in edge.operands])
                given = tuple([places[i] for i in edge.given])
                step = Step(primitive, operands, edge.parameter, given)
                deep = self._deep[primitive]
                if deep:
                    data = self._fixed + places
                    state = State(self.spec, data, reductions, tuple(weights), tuple(expanded), tuple(steps))
                    if any(rule.match(state, step) for rule in deep):
                        return None
                if primitive == "SHARE":
                    weights.append(Weight(operands, given))
                elif primitive == "EXPAND":
                    expanded += operands
                else:
                    made = Node(primitive, operands, edge.parameter)
                    sizes = _result_sizes(primitive, tuple([c.size for c in operands]), edge.parameter)
                    results = tuple([Coordinate(made, i, size) for i, size in enumerate(sizes)])
                steps.append(step)
            pool = places + results
            places = tuple([pool[i] for i in edge.order])
        state = State(self.spec, self._fixed + places, reductions, tuple(weights), tuple(expanded), tuple(steps))
        inputs = list(places)
        for axis in sorted(self._pinned):
            inputs.insert(axis, self._pinned[axis])
        operator = Operator(state, tuple(inputs))
        return operator if sums_no_weights(state) and fits(operator) else None


@lru_cache(maxsize=1 << 14)
def _result_sizes(primitive: str, operands: tuple[Size, ...], parameter: Size | None) -> tuple[Size, ...]:
    return tuple(PRIMITIVES[primitive].result_sizes(operands, parameter))


class Walker:
    """Draws paths from spaces that are too large to be counted.

    A walk goes down from the root, one move after the other, until few enough steps are left that what lies ahead can
    be counted; of the paths that lie there it takes a handful, all equally likely. A place where none lies is left
    again before anything is drawn. The length is drawn first: long operators outnumber short ones by far, and would
    leave no room for them. On the way down moves are preferred that do not lead away from the input, and REDUCEs that
    do not exceed the budget of FLOPs by themselves. So paths of one walk begin alike, and paths in small
    places are likelier than in large ones.
    """

    #: Nodes that counting what lies ahead of one place may add.
    NODES_A_PLACE = 3_000
    #: Paths that are taken from one place: few by the first walks, so that the first operators differ widely.
    PATHS_A_PLACE = 4_000
    #: How much likelier a move is that leads a step nearer to the input.
    PULL = 2.0
    #: Nodes, and known distances, that are kept before all are forgotten: a bound of memory, some hundred megabytes.
    MOST_NODES = 100_000
    MOST_BOUNDS = 1_500_000
    #: Places without any path after which a walk begins anew, and how often it does.
    PLACES_A_WALK = 3
    ATTEMPTS = 200

    def __init__(self, graph: Graph, most: int, rng: random.Random) -> None:
        self.graph = graph
        self.most = most
        self.rng = rng
        self.walks = 0
        self._patience = 0
        self._least = 0
        self._history: dict[Any, tuple[int, float]] = {}  # new paths, and what they cost in nodes and in paths drawn
        self._last: tuple[Any, ...] = ()
        self._counted = 3.0  # steps whose paths are counted: learned, so that a place costs about NODES_A_PLACE
        maps, limits = graph.spec.binding_maps, graph.spec.limits
        self._binding = maps[0] if maps else None
        self._most_flops = limits.max_flops
        outputs = prod(size.at(maps[0]) for size in graph.spec.output_shape) if maps else 0
        self._spare_flops = (limits.max_flops or 0) / max(1, 2 * outputs)

    def walk(self, wanted: int | None = None) -> list[Path]:
        """Paths of one walk, all different, at most ``wanted``; none only where no operator exists."""
        self.walks += 1
        if self.walks == 1 and is_alive(self.graph, self.graph.root, self.most):
            self._least = self.graph.root.shortest or 0
        if len(self.graph) > self.MOST_NODES or len(self.graph.reach) > self.MOST_BOUNDS:
            self.graph.forget()
        if wanted is None:
            wanted = min(self.PATHS_A_PLACE, 4 << min(self.walks // 2, 20))
        for _ in range(self.ATTEMPTS):
            found = self._from_root(wanted)
            if found:
                return found
        # Nothing where it was likely: look everywhere.
        self._patience = NEVER
        return self._below(self.graph.root, self.most, (), wanted)

    def _from_root(self, wanted: int) -> list[Path]:
        """A walk with little patience; it remembers which lengths and which REDUCEs were worth their while."""
        graph, rng = self.graph, self.rng
        lengths = range(self._least, self.most + 1)
        (most,) = rng.choices(lengths, [self._worth(length) for length in lengths])
        moves = graph.moves(graph.root, most)
        if not moves:
            return []
        (move,) = rng.choices(moves, [self._weight(move) * self._worth((most, move.sizes)) for move in moves])
        before = len(graph)
        self._patience = self.PLACES_A_WALK
        found: list[Path] = []
        for edge in move.edges():
            assert edge.target is not None
            found = self._below(edge.target, most - edge.cost, (edge,), wanted)
        self._last = (most, (most, move.sizes))
        for key in self._last:
            gain, cost = self._history.get(key, (0, 0.0))
            self._history[key] = (gain, cost + len(graph) - before + len(found) / 4)
        return found

    def reward(self, new: int) -> None:
        """So many paths of the last walk were new."""
        for key in self._last:
            gain, cost = self._history.get(key, (0, 0.0))
            self._history[key] = (gain + new, cost)

    def _worth(self, key: Any) -> float:
        gain, cost = self._history.get(key, (0, 0.0))
        return (gain + 50) / (cost + 100)

    def _below(self, node: SearchNode, left: int, taken: Path, wanted: int) -> list[Path]:
        graph, rng = self.graph, self.rng
        if left <= self._counted and taken:
            before = len(graph)
            try:
                total = count(graph, node, left, before + self.NODES_A_PLACE)
            except TooManyError:
                self._counted = max(1.0, self._counted - 0.25)
            else:
                if not total:
                    self._patience -= 1
                    return []
                if len(graph) - before < self.NODES_A_PLACE / 4 and total < wanted:
                    self._counted = min(self._counted + 0.02, self.most)
                ranks = range(total) if total <= wanted else sorted(rng.sample(range(total), wanted))
                return list(take(graph, node, left, list(ranks), taken))
        moves = list(graph.moves(node, left))
        weights = [self._weight(move) for move in moves]
        while moves and self._patience > 0:
            (at,) = rng.choices(range(len(moves)), weights)
            edges = list(moves[at].edges())
            rng.shuffle(edges)
            for edge in edges:
                if edge.target is None:
                    return [(*taken, edge)]
                found = self._below(edge.target, left - edge.cost, (*taken, edge), wanted)
                if found:
                    return found
            moves[at], weights[at] = moves[-1], weights[-1]
            moves.pop()
            weights.pop()
        return []

    def _weight(self, move: Move) -> float:
        weight = move.width * self.PULL ** -min(move.need, 9)
        if move.sizes and self._most_flops is not None and self._binding is not None:
            naive = prod(size.at(self._binding) for size in move.sizes)
            if naive > self._spare_flops:
                weight *= (self._spare_flops / naive) ** 2
        return weight


def name(path: Path) -> int:
    """A number of 64 bits that tells the operators of one graph apart, within one process.

    The last step may lead to the end at once or to a node that is an end: both are one.
    """
    steps = []
    end: tuple[int, ...] = ()
    for edge in path:
        if edge.primitive:
            # Packed, because Python's hash does not tell -1 from -2, and exponents are just that.
            sizes = (
                edge.parameter if edge.primitive == "REDUCE" else () if edge.parameter is None else (edge.parameter,)
            )
            steps.append((edge.primitive, edge.operands, edge.given, tuple([pack(size) for size in sizes])))
            end = edge.order
        elif edge.target is None:
            end = tuple([end[i] for i in edge.order]) if end else edge.order
    return hash((tuple(steps), end))
