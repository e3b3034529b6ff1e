"""Operators as paths through the search graph: counting, replaying, enumerating and drawing them.

A path is the list of edges from the root to the end of an operator; there is one for each pGraph. Rules that look
deeper than a node shows (:attr:`syno_lab.synthesis.rules.Rule.is_deep`), the FLOPs of the best plan, which bounds for
partial pGraphs may not reach, the wishes (:mod:`syno_lab.common.wants`) and the inner order of unordered axes
(:mod:`syno_lab.synthesis.orders`) are asked when a path is replayed, so a path may turn out to be none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate, Node, reduce_coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.state import State, Step, Weight
from syno_lab.synthesis.budgets import fits
from syno_lab.synthesis.graph import Edge, Graph, Move, SearchNode
from syno_lab.synthesis.orders import is_in_order
from syno_lab.synthesis.reach import pack
from syno_lab.synthesis.rules import rules_for
from syno_lab.synthesis.space import sums_no_weights

Path = tuple[Edge, ...]


class TooManyError(Exception):
    """Counting has met more nodes than it may."""


class VastError(TooManyError):
    """Counting has met a node with too many moves to list."""


def count(
    graph: Graph, node: SearchNode, left: int, most_nodes: int | None = None, most_looked: int | None = None
) -> int:
    """How many paths lead from ``node`` to the end of an operator in at most ``left`` steps.

    Raises:
        TooManyError: when the graph has more than ``most_nodes`` nodes before they are counted, or more than
            ``most_looked`` views were looked at for it.
        VastError: where a node has too many moves to list.
        EffortError: for what exceeds the graph's effort.
    """
    known = node.counts.get(left)
    if known is None:
        if most_nodes is not None and len(graph) > most_nodes:
            raise TooManyError
        if most_looked is not None and graph.looked > most_looked:
            raise TooManyError
        if graph.is_vast(node, left):
            raise VastError
        graph.effort.tick("counting operators")
        known = 0
        for move in graph.moves(node, left):
            for edge in move.edges():
                known += (
                    1 if edge.target is None else count(graph, edge.target, left - edge.cost, most_nodes, most_looked)
                )
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

    Few steps are tried first, for where they are enough there is little to look at. Raises EffortError for what exceeds
    the graph's effort.
    """
    if node.shortest is not None and node.shortest <= left:
        return True
    for limit in range(max(need, node.dead + 1), left + 1):
        graph.effort.tick("looking for a first operator")
        if node.counts.get(limit, 1) and _ends_within(graph, node, limit):
            node.shortest = limit
            return True
        node.dead = limit
    return False


def _ends_within(graph: Graph, node: SearchNode, limit: int) -> bool:
    return any(
        edge.target is None or is_alive(graph, edge.target, limit - edge.cost, edge.need)
        for move in _nearest_first(graph, node, limit)
        for edge in move.edges()
    )


def first_path(graph: Graph, node: SearchNode) -> Path:
    """A shortest path from a node that :func:`is_alive` has said yes of."""
    limit = node.shortest or 0
    for move in _nearest_first(graph, node, limit):
        for edge in move.edges():
            if edge.target is None:
                return (edge,)
            if is_alive(graph, edge.target, limit - edge.cost, edge.need):
                return (edge, *first_path(graph, edge.target))
    return ()


def _nearest_first(graph: Graph, node: SearchNode, limit: int) -> Iterable[Move]:
    moves = graph.each_move(node, limit)
    return sorted(moves, key=attrgetter("need")) if isinstance(moves, list) else moves


def exactly(graph: Graph, node: SearchNode, length: int) -> Iterator[Path]:
    """Every path from ``node`` of exactly ``length`` steps."""
    for edge in graph.edges(node, length):
        if edge.target is None:
            if edge.cost == length:
                yield (edge,)
        elif is_alive(graph, edge.target, length - edge.cost, edge.need):
            for path in exactly(graph, edge.target, length - edge.cost):
                yield (edge, *path)


class _Beginning(NamedTuple):
    """What the first edges of a path have built.

    Attributes:
        places: the coordinates, in the order of the node that the edges lead to.
        reductions, weights, expanded, steps: as in the state that they lead to.
        longer: the beginnings with one edge more that are known, by the edge's identity; with the edge, so that no
            other object takes its identity. None instead of one that a deep rule rejects.
    """

    places: tuple[Coordinate, ...]
    reductions: tuple[Coordinate, ...]
    weights: tuple[Weight, ...]
    expanded: tuple[Coordinate, ...]
    steps: tuple[Step, ...]
    longer: dict[int, tuple[Edge, _Beginning | None]]


class Builder:
    """Replays paths of one graph. As far as paths begin alike, they are built and judged by deep rules once."""

    #: Beginnings that are kept at most: some ten megabytes.
    MOST_BEGINNINGS = 10_000

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        spec = graph.spec
        self.spec = spec
        self._fixed = graph.fixed
        self._pinned = {inp: graph.root.state.output[out] for inp, out in spec.fixed_io_pairs}
        self._deep = {p: tuple(r.match for r in rules_for(p, graph.rules) if r.is_deep) for p in PRIMITIVES}
        self._root = _Beginning(graph.root.places, (), (), (), (), {})
        self._number = 0  # of beginnings that are kept

    def operator(self, path: Path) -> Operator | None:
        """The operator at the end of ``path``; None where a deep rule, a wish, a budget or the order rejects it."""
        operator = self.complete(path)
        return operator if operator is not None and self.keeps(operator) else None

    def keeps(self, operator: Operator) -> bool:
        """Whether a complete operator meets the wishes, the budgets of a whole operator, and the order of axes."""
        if self.spec.wants and not operator.meets():
            return False
        return fits(operator) and is_in_order(operator, self.graph.rules, effort=self.graph.effort)

    def complete(self, path: Path) -> Operator | None:
        """The operator at the end of ``path``, whatever it does and costs; None where a deep rule rejects it."""
        if self._number > self.MOST_BEGINNINGS:
            self._root.longer.clear()
            self._number = 0
        built = self._root
        for edge in path:
            known = built.longer.get(id(edge))
            longer = self._with(built, edge) if known is None else known[1]
            if known is None and edge.target is not None:  # the end is this path's alone
                built.longer[id(edge)] = (edge, longer)
                self._number += 1
            if longer is None:
                return None
            built = longer
        places, reductions, weights, expanded, steps, _ = built
        state = State(self.spec, self._fixed + places, reductions, weights, expanded, steps)
        inputs = list(places)
        for axis in sorted(self._pinned):
            inputs.insert(axis, self._pinned[axis])
        return Operator(state, tuple(inputs)) if sums_no_weights(state) else None

    def _with(self, built: _Beginning, edge: Edge) -> _Beginning | None:
        """What one edge more builds; None where a deep rule rejects its step."""
        primitive, order = edge.primitive, edge.order
        places, reductions, weights, expanded, steps, _ = built
        pool = places
        if primitive == "REDUCE":
            reductions = tuple([reduce_coordinate(number, size) for number, size in enumerate(edge.parameter)])
            pool = places + reductions
            steps = tuple([Step("REDUCE", (), size) for size in edge.parameter])
        elif primitive:
            operands = tuple([places[i] for i in edge.operands])
            given = tuple([places[i] for i in edge.given])
            step = Step(primitive, operands, edge.parameter, given)
            deep = self._deep[primitive]
            if deep:
                state = State(self.spec, self._fixed + places, reductions, weights, expanded, steps)
                for match in deep:
                    if match(state, step):
                        return None
            if primitive == "SHARE":
                weights = (*weights, Weight(operands, given))
            elif primitive == "EXPAND":
                expanded += operands
            else:
                node = Node(primitive, operands, edge.parameter)
                sizes = _result_sizes(primitive, tuple([c.size for c in operands]), edge.parameter)
                pool = places + tuple([Coordinate(node, i, size) for i, size in enumerate(sizes)])
            steps = (*steps, step)
        return _Beginning(tuple([pool[i] for i in order]), reductions, weights, expanded, steps, {})


@lru_cache(maxsize=1 << 14)
def _result_sizes(primitive: str, operands: tuple[Size, ...], parameter: Size | None) -> tuple[Size, ...]:
    return tuple(PRIMITIVES[primitive].result_sizes(operands, parameter))


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
