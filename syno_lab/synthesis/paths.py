"""Operators as paths through the search graph: count, replay, enumerate and draw them.

A path is the list of edges from the root to the end of an operator; each pGraph has one path. Some checks happen only
during the replay of a path. Checks during the replay are deep rules (:attr:`syno_lab.synthesis.rules.Rule.is_deep`),
the best plan's FLOPs (bounds for partial pGraphs may be lower), wishes (:mod:`syno_lab.common.wants`), and the inner
order of unordered axes (:mod:`syno_lab.synthesis.orders`). A path may lead to no operator.
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
    """The count needs more nodes than allowed."""


class VastError(TooManyError):
    """The count met a node with too many moves to list."""


def count(
    graph: Graph, node: SearchNode, left: int, most_nodes: int | None = None, most_looked: int | None = None
) -> int:
    """Count the paths from ``node`` to the end of an operator in at most ``left`` steps.

    Raises:
        TooManyError: the graph exceeds ``most_nodes`` nodes before the count ends, or the count needs more than
            ``most_looked`` examined views.
        VastError: a node has too many moves to list.
        EffortError: the graph's effort is exceeded.
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
        # A node without paths needs no moves any more. A node with paths needs only the moves that have an edge.
        node.moves[left] = [move for move in graph.moves(node, left) if move.edges()] if known else []
    return known


def take(graph: Graph, node: SearchNode, left: int, ranks: list[int], before: Path = ()) -> Iterator[Path]:
    """Yield the paths with these sorted ranks among those that :func:`count` counts; each begins with ``before``."""
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
    """Return whether a path leads from ``node`` to the end of an operator in at most ``left`` steps.

    Short paths are tried first, because they need the least search. Raises EffortError when the graph's effort is
    exceeded.
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
    """Return a shortest path from a node for which :func:`is_alive` returned True."""
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
    """Yield every path from ``node`` with exactly ``length`` steps."""
    for edge in graph.edges(node, length):
        if edge.target is None:
            if edge.cost == length:
                yield (edge,)
        elif is_alive(graph, edge.target, length - edge.cost, edge.need):
            for path in exactly(graph, edge.target, length - edge.cost):
                yield (edge, *path)


class _Beginning(NamedTuple):
    """The partial state that the first edges of a path build.

    Attributes:
        places: the coordinates, in the order of the node to which the edges lead.
        reductions, weights, expanded, steps: the fields of the state after the edges.
        longer: the cached prefixes with one more edge, by the edge's ``id``. The edge is stored too, so that no other
            object gets its ``id``. None marks an edge that a deep rule rejects.
    """

    places: tuple[Coordinate, ...]
    reductions: tuple[Coordinate, ...]
    weights: tuple[Weight, ...]
    expanded: tuple[Coordinate, ...]
    steps: tuple[Step, ...]
    longer: dict[int, tuple[Edge, _Beginning | None]]


class Builder:
    """Replays paths of one graph; common prefixes of paths are built and checked by deep rules once."""

    #: The limit of cached prefixes of paths: some ten megabytes.
    MOST_BEGINNINGS = 10_000

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        spec = graph.spec
        self.spec = spec
        self._fixed = graph.fixed
        self._pinned = {inp: graph.root.state.output[out] for inp, out in spec.fixed_io_pairs}
        self._deep = {p: tuple(r.match for r in rules_for(p, graph.rules) if r.is_deep) for p in PRIMITIVES}
        self._root = _Beginning(graph.root.places, (), (), (), (), {})
        self._number = 0  # the number of cached prefixes

    def operator(self, path: Path) -> Operator | None:
        """Return the operator at the end of ``path``; None if a deep rule, wish, budget or axis order rejects it."""
        operator = self.complete(path)
        return operator if operator is not None and self.keeps(operator) else None

    def keeps(self, operator: Operator) -> bool:
        """Return whether a complete operator meets the wishes, all budgets, and the order of unordered axes."""
        if self.spec.wants and not operator.meets():
            return False
        return fits(operator) and is_in_order(operator, self.graph.rules, effort=self.graph.effort)

    def complete(self, path: Path) -> Operator | None:
        """Return the operator at the end of ``path``, not checked by :meth:`keeps`; None if a deep rule rejects it."""
        if self._number > self.MOST_BEGINNINGS:
            self._root.longer.clear()
            self._number = 0
        built = self._root
        for edge in path:
            known = built.longer.get(id(edge))
            longer = self._with(built, edge) if known is None else known[1]
            if known is None and edge.target is not None:  # a last edge belongs to only one path
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
        """Return the prefix with one more edge; None if a deep rule rejects the edge's step."""
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
    """Return a number of 64 bits that distinguishes the operators of one graph within one process.

    The last step may lead to no node or to a node where the operator ends; both paths have the same number.
    """
    steps = []
    end: tuple[int, ...] = ()
    for edge in path:
        if edge.primitive:
            # Pack sizes, because Python's hash does not distinguish -1 from -2, and exponents have these values.
            sizes = (
                edge.parameter if edge.primitive == "REDUCE" else () if edge.parameter is None else (edge.parameter,)
            )
            steps.append((edge.primitive, edge.operands, edge.given, tuple([pack(size) for size in sizes])))
            end = edge.order
        elif edge.target is None:
            end = tuple([end[i] for i in edge.order]) if end else edge.order
    return hash((tuple(steps), end))
