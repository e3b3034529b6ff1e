"""The synthesis graph as a space to search: canonical partial pGraphs, within the budgets of a spec.

A state is a node of :mod:`syno_lab.synthesis.graph` with the number of steps that are left, and the path to it. Rules
and distance depend only on the node, so the next steps are the same for every path to it: the node's name is the key by
which statistics are shared. The operator at the end depends on the whole path, as do the few rules that look deeper and
the budgets of a whole operator (FLOPs, parameters, memory); they are checked when an operator is complete (Syno,
section 7.2: a hard limit).

In a space that is too large to be counted, the first choice is how many steps there may be, each number from the fewest
on being as likely as the others. Without it random descents use nearly all steps, because most operators do; but those
that people know and use have few.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate, Node, reduce_coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import Step as PrimitiveStep
from syno_lab.search.protocol import Child, Step
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.graph import Edge, Graph, Move, SearchNode
from syno_lab.synthesis.paths import Builder, Path, TooManyError, count, name
from syno_lab.synthesis.property_distance import check_wants
from syno_lab.synthesis.rules import RULES, Rule

#: How much likelier a step is that leads one step nearer to the input, where the space is too large to be counted.
#: Of 2, 4, 8, 16 and 32 chosen on ResNet-20's space, as what gave most operators within its limits a CPU-second.
PULL = 8.0
_FAR = 9  # distances above do not matter any more
_UNKNOWN = -1
#: Nodes up to which a space is counted before it is searched: a second or two.
COUNTABLE_NODES = 2_000

Words = tuple[tuple[str, int], ...]
#: The share of what a graph may hold at most that it holds for a search, beside much else: some hundred megabytes.
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
    """The first state of the space of ``spec``: the output's coordinates alone.

    A space of at most ``countable_nodes`` is counted first, so that random descents give every operator with the same
    chance. In a larger space, steps that lead nearer to the input are likelier, and so are operators in sparse parts.

    Args:
        spec: the space, its budgets among them.
        rules: they decide which operators are canonical.
        accepts: a hard limit that the spec cannot express, such as the FLOPs of a network; checked for complete
            operators.
        describe: gives the traits of an operator, from which a search may estimate its reward; called also for
            operators that ``accepts`` may refuse.
        drawn: told the key of every complete operator that is asked for, before the wishes and the budgets of a whole
            operator refuse any.
        countable_nodes: 0 to count nothing.

    Raises SpecError for rules without those of kind ``space``, and wishes that no operator can meet.
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
        maps = spec.binding_maps
        self._binding = maps[0] if maps else None
        outputs = prod(size.at(maps[0]) for size in spec.output_shape) if maps else 0
        self._weighted: dict[int, list[tuple[Move, float]]] = {}  # by the key of the state
        self._first: dict[int, list[tuple[Move, float]]] = {}  # the same of the root, by the steps left
        self._spare = None if spec.limits.max_flops is None else spec.limits.max_flops / max(1, 2 * outputs)

    def operator(self, path: Path, key: Hashable) -> Operator | None:
        """The operator at the end of a path; None if a rule, a budget or ``accepts`` refuses it."""
        operator = self.builder.complete(path)
        if operator is None:
            return None
        if self._drawn is not None:
            self._drawn(key)
        is_kept = self.builder.keeps(operator) and (self._accepts is None or self._accepts(operator))
        return operator if is_kept else None

    def traits(self, path: Path) -> Mapping[str, int]:
        """The traits of the operator at the end of a path; {} if a rule or a budget refuses it."""
        operator = None if self._describe is None else self.builder.operator(path)
        return {} if operator is None or self._describe is None else self._describe(operator)

    def weighted(self, node: SearchNode, left: int) -> list[tuple[Move, float]]:
        """The moves from ``node`` that lead to an operator, with their weights; computed once.

        Every random descent begins at the root, which may have thousands of them. Where there are too many to list,
        always the same part of them, drawn at random. What is known of nodes is dropped now and then, to bound memory;
        it is found anew where it is asked for again, and is the same then.
        """
        if node is self.graph.root:
            return self._weighted_first(left)
        key = key_of(node, left)
        found = self._weighted.get(key)
        if found is None:
            if self.graph.make_room(MOST_HELD):
                self._weighted.clear()
            found = self._weighted[key] = self._pairs(node, left)
        return found

    def _weighted_first(self, left: int) -> list[tuple[Move, float]]:
        """:meth:`weighted` of the root, which is kept: to list the multisets of REDUCEs takes seconds."""
        found = self._first.get(left)
        if found is None:
            root, most = self.graph.root, self.graph.spec.limits.max_primitives
            if left < most and not self.graph.is_vast(root, most):
                # Their distances are bounds for ``most`` steps here, so a few of these moves lead nowhere.
                found = [(move, weight) for move, weight in self._weighted_first(most) if move.cost + move.need <= left]
            else:
                found = self._pairs(root, left)
            self._first[left] = found
        return found

    def _pairs(self, node: SearchNode, left: int) -> list[tuple[Move, float]]:
        moves = self.graph.some_moves(node, left, random.Random(0))  # noqa: S311 - for choices, not for secrets
        pairs = [(move, self.weight(move, left)) for move in moves]
        return [(move, weight) for move, weight in pairs if weight]

    def weight(self, move: Move, left: int) -> float:
        """The number of operators that a move leads to; if it is unknown, a weight that is larger nearer to the input.

        REDUCEs that exceed the budget of FLOPs by themselves are unlikely then.
        """
        if self.is_counted:
            edges = move.edges()
            return sum(1 if e.target is None else count(self.graph, e.target, left - e.cost) for e in edges)
        weight = move.width * PULL ** -min(move.need, _FAR) * move.favour
        if move.sizes and self._spare is not None and self._binding is not None:
            naive = prod(size.at(self._binding) for size in move.sizes)
            if naive > self._spare:
                weight *= (self._spare / naive) ** 2
        return weight


def key_of(node: SearchNode, left: int) -> int:
    """The key of a partial state: it stays the same where the graph has forgotten the node."""
    return node.name << 16 | left


#: What stands for the steps that are left in the key of the first state, which chooses them.
_CHOOSES = (1 << 16) - 1


class SynthesisState:
    """A partial pGraph, or a complete one (:class:`syno_lab.search.protocol.State`)."""

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
        """Whether an operator ends here."""
        return self._node is None

    @property
    def distance(self) -> int | None:
        """The shape distance, computed on the first use; None if the input is out of reach."""
        if self._distance == _UNKNOWN and self._node is not None:
            self._distance = distance(self._node.state)
        return self._distance

    def children(self) -> Sequence[Child]:
        """The moves after which the input may still be reached."""
        if self._node is None:
            return ()
        if self._chooses_most:
            return self._mosts()
        return [_Child(self, move, weight) for move, weight in self._space.weighted(self._node, self.left)]

    def operator(self) -> Operator | None:
        """The operator of a complete state; None where a deep rule or a budget rejects it."""
        return self._space.operator(self.path, self._key) if self._node is None else None

    def traits(self) -> Mapping[str, int]:
        """See :class:`syno_lab.search.protocol.State`."""
        return self._space.traits(self.path) if self._node is None else {}

    def steps(self, move: Move) -> list[Step]:
        """The child that a move leads to."""
        return [self._step(edge) for edge in move.edges()]

    def towards(self, operator: Operator) -> Sequence[Step]:
        """The steps of ``operator`` that may be taken from here, in any order.

        Its reductions must have the order of this space (:func:`syno_lab.synthesis.orders.arrangements`).
        """
        if self._node is None or operator.spec.output_shape != self._space.graph.spec.output_shape:
            return ()
        if self._chooses_most:
            enough = [child for child in self._mosts() if child.most >= len(operator.steps)]
            return enough[0].steps() if enough else ()
        places, done = self._places()
        sizes = tuple([step.parameter for step in operator.steps if step.primitive == "REDUCE"])
        return [
            self._step(edge)
            for move in self._space.graph.each_move(self._node, self.left)
            if not move.sizes or move.sizes == sizes  # of the thousands at the root one is looked at
            for edge in move.edges()
            if self._is_of(edge, places, done, operator)
        ]

    def _mosts(self) -> list[_Most]:
        root = self._space.graph.root
        return [_Most(self, most) for most in range(self.left + 1) if self._space.weighted(root, most)]

    def within(self, most: int) -> Step:
        """The choice of at most so many steps, from the first state."""
        return Step(f"at most {most} steps", (), SynthesisState(self._space, None, most, ()), steps=0)

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
        """The coordinates in the order of the node, on this way to it, and how many steps it took."""
        places = self._space.graph.root.places
        done = 0
        for edge in self.path:
            results: tuple[Coordinate, ...] = ()
            if edge.primitive == "REDUCE":
                results = tuple([reduce_coordinate(number, size) for number, size in enumerate(edge.parameter)])
            elif edge.primitive and edge.primitive not in ("SHARE", "EXPAND"):
                operands = tuple([places[i] for i in edge.operands])
                made = Node(edge.primitive, operands, edge.parameter)
                sizes = PRIMITIVES[edge.primitive].result_sizes(tuple([c.size for c in operands]), edge.parameter)
                results = tuple([Coordinate(made, i, size) for i, size in enumerate(sizes)])
            done += edge.cost
            pool = places + results
            places = tuple([pool[i] for i in edge.order])
        return places, done

    def _is_of(self, edge: Edge, places: tuple[Coordinate, ...], done: int, operator: Operator) -> bool:
        """Whether an edge is one of the steps of ``operator``, or its end after so many steps."""
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


class _Most:
    """The choice of how many steps there may be."""

    __slots__ = ("_from", "most", "weight")

    def __init__(self, root: SynthesisState, most: int) -> None:
        self._from = root
        self.most = most
        self.weight = 1.0

    def steps(self) -> list[Step]:
        """The space of the operators of at most so many steps."""
        return [self._from.within(self.most)]


class _Child:
    """A move, looked at when it is asked for."""

    __slots__ = ("_from", "_move", "weight")

    def __init__(self, state: SynthesisState, move: Move, weight: float) -> None:
        self._from = state
        self._move = move
        self.weight = weight

    def steps(self) -> list[Step]:
        """The edges of the move; none where a rule rejects it."""
        return self._from.steps(self._move)


class _Action(NamedTuple):
    """The actions of edges as words without coordinates' places, and the words that are counted of them."""

    text: str
    words: Words


_END = _Action("END", (("END", 1),))


def _counted(primitive: str, sizes: tuple[str, ...], times: int = 1) -> Words:
    """The words counted of an action: its primitive, and its primitive with each size.

    >>> _counted("UNFOLD", ("H", "k_1"))
    (('UNFOLD', 1), ('UNFOLD H', 1), ('UNFOLD k_1', 1))
    >>> _counted("REDUCE", ("C_in",), 2)
    (('REDUCE', 2), ('REDUCE C_in', 2))
    """
    each = Counter(f"{primitive} {size}" for size in sizes)
    return ((primitive, times), *[(size, times * number) for size, number in each.items()])


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
    """The action of an edge: the primitive and the sizes of its operands.

    REDUCEs and contractions are several actions, one for each size and how often it occurs: most of what they have in
    common with others is a part of them.
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
