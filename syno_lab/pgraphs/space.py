"""The synthesis graph as a search space: canonical partial pGraphs within the budgets of a spec.

A state is a node of :mod:`syno_lab.synthesis.graph`, the number of steps still allowed, and the path to the node. Rules
and distance depend only on the node, so every path to a node has the same next steps. Statistics have the node's name
as their key. The final operator depends on the whole path. A few rules and the budgets of a whole operator (FLOPs,
parameters, memory) depend on the path too. Rules and budgets of a path are checked for complete operators (Syno,
section 7.2: a hard limit).

In a space that is too large to count, a search first chooses a maximum number of steps. All maxima that allow an
operator are equally likely. Without a maximum, random descents would use nearly all allowed steps, because most
operators have many steps. Known operators have few steps.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate, Node, reduce_coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import Step as PrimitiveStep
from syno_lab.search.protocol import Child, Step, Taken
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.graph import Edge, Graph, Move, SearchNode
from syno_lab.synthesis.paths import Builder, Path, TooManyError, count, name
from syno_lab.synthesis.property_distance import check_wants
from syno_lab.synthesis.rules import RULES, Rule
from syno_lab.synthesis.walks import affordable

#: The factor for the weight of a step that leads one step nearer to the input, in a space too large to count. With 8, a
#: search found more operators within ResNet-20's limits in a CPU-second than with 2, 4, 16 and 32.
PULL = 8.0
_FAR = 9  # larger distances count as this distance
_UNKNOWN = -1
#: The largest space, in nodes, in which operators are counted before a search: a second or two.
COUNTABLE_NODES = 2_000

Words = tuple[tuple[str, int], ...]
#: The share of a graph's usual memory limit that a search's graph may use: some hundred megabytes.
MOST_HELD = 0.25

Accepts = Callable[[Operator], bool]
Describe = Callable[[Operator], Mapping[str, int]]
Drawn = Callable[[Hashable], None]


def synthesis_space(
    spec: Spec,
    rules: tuple[Rule, ...] = RULES,
    *,
    accepts: Accepts | None = None,
    describe: Describe | None = None,
    drawn: Drawn | None = None,
    countable_nodes: int = COUNTABLE_NODES,
) -> SynthesisState:
    """Return the first state of the space of ``spec``: the output's coordinates alone.

    In a space of at most ``countable_nodes`` nodes operators are counted, so random descents reach all equally often.
    In a larger space, random descents prefer steps towards the input, and operators in parts with few operators.

    Args:
        spec: the spec of the space, with its budgets.
        rules: the rules that decide which operators are canonical.
        accepts: a hard limit that the spec cannot express, such as the FLOPs of a network; it checks complete
            operators.
        describe: a function that returns an operator's traits, from which a search estimates rewards; ``accepts`` may
            reject this operator later.
        drawn: a callback that gets the key of every complete operator, before wishes and budgets reject any.
        countable_nodes: the largest space to count, in nodes; 0 counts none.

    Raises SpecError if no rules of kind ``space`` are given, and for wishes that no operator can meet.
    """
    check_wants(spec)
    space = _Space(spec, rules, accepts, describe, drawn, countable_nodes)
    return SynthesisState(space, None, spec.limits.max_primitives, (), chooses_most=not space.is_counted)


class _Space:
    def __init__(
        self,
        spec: Spec,
        rules: tuple[Rule, ...],
        accepts: Accepts | None,
        describe: Describe | None,
        drawn: Drawn | None,
        countable_nodes: int,
    ) -> None:
        self.graph = Graph(spec, rules)
        self.builder = Builder(self.graph)
        self._accepts = accepts
        self._describe = describe
        self._drawn = drawn
        self.is_counted = countable_nodes > 0
        if self.is_counted:
            try:
                count(self.graph, self.graph.root, spec.limits.max_primitives, countable_nodes)
            except TooManyError:
                self.is_counted = False
        self.pinned = {inp: self.graph.root.state.output[out] for inp, out in spec.fixed_io_pairs}
        self._weighted: dict[int, list[tuple[Move, float]]] = {}  # The results of ``weighted`` by the state's key.
        self._first: dict[int, list[tuple[Move, float]]] = {}  # The root's results by the allowed steps.
        self._affordable = affordable(spec)

    def operator(self, path: Path, key: Hashable) -> Operator | None:
        """Return the operator at the end of a path; None if a rule, a budget or ``accepts`` rejects it."""
        operator = self.builder.complete(path)
        if operator is None:
            return None
        if self._drawn is not None:
            self._drawn(key)
        is_kept = self.builder.keeps(operator) and (self._accepts is None or self._accepts(operator))
        return operator if is_kept else None

    def traits(self, path: Path) -> Mapping[str, int]:
        """Return the traits of the operator at the end of a path; {} if a rule or a budget rejects it."""
        operator = None if self._describe is None else self.builder.operator(path)
        return {} if operator is None or self._describe is None else self._describe(operator)

    def weighted(self, node: SearchNode, left: int) -> list[tuple[Move, float]]:
        """Return the moves from ``node`` that lead to an operator, with their weights; cached.

        Every random descent starts at the root, which may have thousands of moves. If there are too many moves to list,
        the result is a fixed random part of them. The cache is cleared when it grows too large; new results equal the
        old results.
        """
        if node is self.graph.root:
            return self._weighted_first(left)
        key = key_of(node, left)
        pairs = self._weighted.get(key)
        if pairs is None:
            if self.graph.make_room(MOST_HELD):
                self._weighted.clear()
            pairs = self._weighted[key] = self._pairs(node, left)
        return pairs

    def _weighted_first(self, left: int) -> list[tuple[Move, float]]:
        """Return :meth:`weighted` of the root, always cached: listing the multisets of REDUCEs takes seconds."""
        pairs = self._first.get(left)
        if pairs is None:
            root, most = self.graph.root, self.graph.spec.limits.max_primitives
            if left < most and not self.graph.is_vast(root, most):
                # The distances are bounds for ``most`` steps, so within ``left`` steps a few moves lead to no operator.
                pairs = [(move, weight) for move, weight in self._weighted_first(most) if move.cost + move.need <= left]
            else:
                pairs = self._pairs(root, left)
            self._first[left] = pairs
        return pairs

    def _pairs(self, node: SearchNode, left: int) -> list[tuple[Move, float]]:
        moves = self.graph.some_moves(node, left, random.Random(0))  # noqa: S311 - for choices, not for secrets
        pairs = [(move, self.weight(move, left)) for move in moves]
        return [(move, weight) for move, weight in pairs if weight]

    def weight(self, move: Move, left: int) -> float:
        """Return the number of operators that a move leads to; if unknown, a weight that grows towards the input.

        If the number is unknown, REDUCEs whose sums alone exceed the budget of FLOPs get small weights.
        """
        if self.is_counted:
            edges = move.edges()
            return sum(1 if e.target is None else count(self.graph, e.target, left - e.cost) for e in edges)
        return move.width * PULL ** -min(move.need, _FAR) * move.favour * self._affordable(move)


def key_of(node: SearchNode, left: int) -> int:
    """Return the key of a partial state. A node that the graph has removed from memory gets the same key later."""
    return node.name << 16 | left


#: The first state's key has this in place of the number of remaining steps: no number is chosen yet.
_CHOOSES = (1 << 16) - 1


class SynthesisState:
    """A partial or complete pGraph (:class:`syno_lab.search.protocol.State`)."""

    __slots__ = ("_chooses_most", "_distance", "_key", "_node", "_space", "left", "path")

    def __init__(
        self, space: _Space, node: SearchNode | None, left: int, path: Path, *, chooses_most: bool = False
    ) -> None:
        self._space = space
        self._node = space.graph.root if node is None and not path else node
        self.left = left
        self.path = path
        self._chooses_most = chooses_most
        self._key: Hashable = (
            name(path) if self._node is None else key_of(self._node, _CHOOSES if chooses_most else left)
        )
        self._distance: int | None = 0 if self._node is None else _UNKNOWN

    @property
    def key(self) -> Hashable:
        """See :class:`syno_lab.search.protocol.State`."""
        return self._key

    @property
    def is_complete(self) -> bool:
        """Whether the state is a complete operator."""
        return self._node is None

    @property
    def distance(self) -> int | None:
        """The shape distance, computed on first use; None if the input is out of reach."""
        if self._distance == _UNKNOWN and self._node is not None:
            self._distance = distance(self._node.state)
        return self._distance

    def children(self) -> Sequence[Child]:
        """Return the moves from which further steps may lead to the input."""
        if self._node is None:
            return ()
        if self._chooses_most:
            return list(map(Taken, self._mosts().values()))
        return [_Child(self, move, weight) for move, weight in self._space.weighted(self._node, self.left)]

    def operator(self) -> Operator | None:
        """Return the operator of a complete state; None if a budget or a rule for whole operators rejects it."""
        return self._space.operator(self.path, self._key) if self._node is None else None

    def traits(self) -> Mapping[str, int]:
        """See :class:`syno_lab.search.protocol.State`."""
        return self._space.traits(self.path) if self._node is None else {}

    def steps(self, move: Move) -> list[Step]:
        """Return the steps of a move."""
        return [self._step(edge) for edge in move.edges()]

    def towards(self, operator: Operator) -> Sequence[Step]:
        """Return the possible next steps that are steps of ``operator``, in any order.

        The operator's reductions must have the order of this space (:func:`syno_lab.synthesis.orders.arrangements`).
        """
        if self._node is None or operator.spec.output_shape != self._space.graph.spec.output_shape:
            return ()
        if self._chooses_most:
            return [step for most, step in self._mosts().items() if most >= len(operator.steps)][:1]
        places, done = self._places()
        sizes = tuple([step.parameter for step in operator.steps if step.primitive == "REDUCE"])
        return [
            self._step(edge)
            for move in self._space.graph.each_move(self._node, self.left)
            if not move.sizes or move.sizes == sizes  # only one of the root's thousands of moves passes
            for edge in move.edges()
            if self._is_of(edge, places, done, operator)
        ]

    def _mosts(self) -> dict[int, Step]:
        """Return the steps from the first state that choose a largest number of steps, by this number."""
        mosts = [most for most in range(self.left + 1) if self._space.weighted(self._space.graph.root, most)]
        states = [SynthesisState(self._space, None, most, ()) for most in mosts]
        return {state.left: Step(f"at most {state.left} steps", (), state, steps=0) for state in states}

    def _step(self, edge: Edge) -> Step:
        assert self._node is not None
        sizes = [c.size for c in self._node.places]
        actions = _actions(edge, sizes)
        text = " ".join([action.text for action in actions]) or "GIVE nothing"
        used = ",".join(map(str, edge.operands + edge.given))
        end = "" if edge.target is not None else f" -> {','.join(map(str, edge.order))}"
        state = SynthesisState(self._space, edge.target, self.left - edge.cost, (*self.path, edge))
        return Step(
            f"{text} @{used}{end}" if used else f"{text}{end}",
            tuple([action.text for action in actions]),
            state,
            steps=edge.cost,
            words=tuple([word for action in actions for word in action.words]),
        )

    def _places(self) -> tuple[tuple[Coordinate, ...], int]:
        """Return the node's coordinates in order, as this path makes them, and the number of steps of the path."""
        places = self._space.graph.root.places
        done = 0
        for edge in self.path:
            results: tuple[Coordinate, ...] = ()
            if edge.primitive == "REDUCE":
                results = tuple([reduce_coordinate(number, size) for number, size in enumerate(edge.parameter)])
            elif edge.primitive and edge.primitive not in ("SHARE", "EXPAND"):
                operands = tuple([places[i] for i in edge.operands])
                node = Node(edge.primitive, operands, edge.parameter)
                sizes = PRIMITIVES[edge.primitive].result_sizes(tuple([c.size for c in operands]), edge.parameter)
                results = tuple([Coordinate(node, i, size) for i, size in enumerate(sizes)])
            done += edge.cost
            pool = places + results
            places = tuple([pool[i] for i in edge.order])
        return places, done

    def _is_of(self, edge: Edge, places: tuple[Coordinate, ...], done: int, operator: Operator) -> bool:
        """Check whether an edge is a step of ``operator``, or the match with the input after all ``done`` steps."""
        steps = operator.steps
        if edge.primitive == "REDUCE" or (not self.path and edge.target is not None):
            return edge.parameter == tuple([step.parameter for step in steps if step.primitive == "REDUCE"])
        if not (edge.primitive or edge.given or edge.target is not None):
            return done == len(steps)
        primitive = edge.primitive or "SHARE"
        given = Counter(places[i] for i in edge.given)
        operands = tuple([places[i] for i in edge.operands])

        def is_step(step: PrimitiveStep) -> bool:
            if step.primitive != primitive or Counter(step.given) != given:
                return False
            if edge.primitive == "SHARE":
                return Counter(operands) == Counter(step.operands)
            return not edge.primitive or (operands == step.operands and edge.parameter == step.parameter)

        return any(map(is_step, steps))


@dataclass(slots=True, eq=False)
class _Child:
    """A move of a search; the edges of the move are computed on use."""

    _from: SynthesisState
    _move: Move
    weight: float

    def steps(self) -> list[Step]:
        """Return the edges of the move; no edges if a rule rejects the move."""
        return self._from.steps(self._move)


class _Action(NamedTuple):
    """An action of an edge as text, without positions of coordinates, and the words that statistics count."""

    text: str
    words: Words


_END = _Action("END", (("END", 1),))


def _counted(primitive: str, sizes: tuple[str, ...], times: int = 1) -> Words:
    """Return an action's words with their counts: the primitive alone, and the primitive with each size.

    >>> _counted("UNFOLD", ("H", "k_1"))
    (('UNFOLD', 1), ('UNFOLD H', 1), ('UNFOLD k_1', 1))
    >>> _counted("REDUCE", ("C_in",), 2)
    (('REDUCE', 2), ('REDUCE C_in', 2))
    """
    numbers = Counter(f"{primitive} {size}" for size in sizes)
    return ((primitive, times), *[(size, times * number) for size, number in numbers.items()])


@lru_cache(maxsize=1 << 14)
def _action(primitive: str, sizes: tuple[Size, ...], parameter: Any = None) -> _Action:
    texts = tuple(map(str, sizes))
    if parameter is None:
        return _Action(f"{primitive}({', '.join(texts)})", _counted(primitive, texts))
    return _Action(f"{primitive}({', '.join(texts)}; {parameter})", _counted(primitive, (*texts, str(parameter))))


@lru_cache(maxsize=1 << 14)
def _reductions(sizes: tuple[Size, ...]) -> tuple[_Action, ...]:
    return tuple(
        _Action(f"REDUCE({size})x{number}", _counted("REDUCE", (size,), number))
        for size, number in sorted(Counter(map(str, sizes)).items())
    )


def _actions(edge: Edge, sizes: Sequence[Size]) -> tuple[_Action, ...]:
    """Return the actions of an edge: the primitive and the sizes of its operands.

    An edge of REDUCEs or a contraction has an action for each size, with the number of occurrences, because other edges
    often share some of the actions.
    """
    if edge.primitive == "REDUCE":
        return _reductions(edge.parameter)
    if edge.primitive == "SHARE":
        return tuple([_action("SHARE", (size,)) for size in dict.fromkeys(sizes[i] for i in edge.operands)])
    if not edge.primitive:
        if edge.target is None:
            return (_END,)
        return tuple([_action("GIVE", (size,)) for size in dict.fromkeys(sizes[i] for i in edge.given)])
    return (_action(edge.primitive, tuple([sizes[i] for i in edge.operands]), edge.parameter),)
