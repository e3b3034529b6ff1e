"""The search space as a graph: interned states, and for each pGraph one way to it from the root.

A state is a set, so the same pGraph can be reached in many orders. Here it is built in one: REDUCEs first, then stages
of views with contractions between them. A stage is a *sweep*: its coordinates wait in a row; the foremost either passes
or is the operand of a view whose other operand has passed already, and results go to the front. A view therefore stands
in the earliest stage that has its operands, at the moment the last of them is looked at, and nowhere else. After a
contraction only the coordinates that it shares wait anew. Reductions of one size that nothing tells apart are kept in
order by what is done with them: those that take part in a view before those that pass.

Two states that rules cannot tell apart (:mod:`syno_lab.synthesis.features`) are one node, with one state to stand for
both; an edge says which coordinates it uses by their places, so it can be replayed on either.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from syno_lab.ir.coordinate import Coordinate, Node, reduce_coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.size import Size
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step, Weight
from syno_lab.synthesis.digits import Digit
from syno_lab.synthesis.features import digit_below, feature
from syno_lab.synthesis.parameters import coefficient_products, merge_sides, reduce_sizes
from syno_lab.synthesis.reach import NEVER, Reach, pack
from syno_lab.synthesis.rules import RULES, Rule, rules_for
from syno_lab.synthesis.space import step_cost

REDUCING, VIEWING, BETWEEN, CONTRACTED = range(4)
_LIMITED = ("SPLIT", "MERGE", "SHIFT", "EXPAND", "UNFOLD", "STRIDE")
_PASSES = "pass"


class Edge(NamedTuple):
    """One move: a step, or a coordinate that passes.

    Attributes:
        cost: steps it takes: 0 for a move that is none, else 1; at the root as many as there are REDUCEs.
        primitive: of the step; empty where there is none.
        operands: places of the operands among the node's coordinates.
        given: places of the coordinates given to a new weight.
        parameter: of the step.
        order: where the target's coordinates come from: places of the node's, and behind these the step's results.
        target: the node it leads to; None where the operator is complete.
        need: steps that are needed from there at least.
    """

    cost: int
    primitive: str
    operands: tuple[int, ...]
    given: tuple[int, ...]
    parameter: Any
    order: tuple[int, ...]
    target: SearchNode | None
    need: int


class SearchNode:
    """A node of the graph; ``state`` is one of the states that look like this.

    The first ``passed`` of its coordinates have passed, the others wait, the last of them foremost.
    """

    __slots__ = (
        "bound",
        "counts",
        "edges",
        "edges_left",
        "features",
        "fresh",
        "packed",
        "passed",
        "phase",
        "places",
        "roots",
        "spent",
        "state",
        "used",
    )

    def __init__(self, phase: int, state: State, places: tuple[Coordinate, ...], passed: int) -> None:
        self.phase = phase
        self.state = state
        self.places = places
        self.passed = passed
        self.features: tuple[int, ...] = ()
        self.packed: tuple[int, ...] = ()
        self.roots: tuple[Digit | None, ...] = ()
        self.fresh: tuple[bool, ...] = ()
        self.used: tuple[int, ...] = (0,) * len(_LIMITED)
        self.spent: tuple[int, ...] = ()
        self.bound: Any = None
        self.edges: list[Edge] = []
        self.edges_left = -1
        self.counts: dict[int, int] = {}


class Graph:
    """The search space of one spec under one table of rules."""

    def __init__(self, spec: Spec, rules: tuple[Rule, ...] = RULES) -> None:
        self.spec = spec
        self.rules = rules
        self.reach = Reach(spec)
        self.limits = spec.limits
        self.most_weights = spec.limits.of("SHARE") or 0
        self._most = tuple(spec.limits.of(primitive) for primitive in _LIMITED)
        self._most_expands = 99 if spec.limits.max_expands is None else spec.limits.max_expands
        shallow = {p: tuple(r for r in rules_for(p, rules) if not r.is_deep) for p in PRIMITIVES}
        self._matches = {p: tuple(r.match for r in found) for p, found in shallow.items()}
        self.deep = {p: tuple(r for r in rules_for(p, rules) if r.is_deep) for p in PRIMITIVES}
        self._features: dict[Any, int] = {}
        self._packs: dict[Size, int] = {}
        self._nodes: dict[Any, SearchNode] = {}
        self._strict = spec.weight_limits == "strict"
        self._limit_of = tuple(spec.occurrence_limits.values())
        root = State.root(spec)
        self._fixed = tuple(c for c in root.data if c in root.fixed)
        self._is_reduction: dict[int, bool] = {}
        self._merge_blocks: dict[Size, list[tuple[Size, tuple[int, ...]]]] = {}
        free = tuple(c for c in root.data if c not in root.fixed)
        self.root = SearchNode(REDUCING, root, free, 0)
        self.root.packed = tuple(self._pack(c.size) for c in free)
        self.root.spent = (0,) * len(spec.symbols.names)

    def __len__(self) -> int:
        return len(self._nodes)

    # -- edges -------------------------------------------------------------------------------------------------------

    def edges(self, node: SearchNode, left: int) -> list[Edge]:
        """The moves from ``node`` after which the input may still be reached in ``left`` steps, in a fixed order."""
        if node.edges_left < left:
            maker = (self._from_root, self._views, self._contractions, self._after_contraction)[node.phase]
            node.edges = list(maker(node, left))
            node.edges_left = left
        if node.edges_left == left:
            return node.edges
        return [edge for edge in node.edges if edge.cost + edge.need <= left]

    def _from_root(self, node: SearchNode, left: int) -> Iterator[Edge]:
        """Every multiset of REDUCEs, as one edge each."""
        sizes = reduce_sizes(self.spec)
        packs = [self._pack(size) for size in sizes]
        costs = [self._cost(Step("REDUCE", (), size)) for size in sizes]
        most = min(self.limits.max_reduces, left)

        def choose(start: int, chosen: tuple[int, ...], spent: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
            yield chosen, spent
            if len(chosen) < most:
                for i in range(start, len(sizes)):
                    more = self._add(spent, costs[i])
                    if more is not None:
                        yield from choose(i, (*chosen, i), more)

        for chosen, spent in choose(0, (), node.spent):
            shape = tuple(sorted((*node.packed, *(packs[i] for i in chosen))))
            need = self.reach.steps(shape, 0, self.most_weights, self._most_expands)
            if len(chosen) + need > left:
                continue
            added = tuple(reduce_coordinate(number, sizes[i]) for number, i in enumerate(chosen))
            steps = tuple(Step("REDUCE", (), sizes[i]) for i in chosen)
            state = State(self.spec, self._fixed + node.places + added, added, (), (), steps)
            places = node.places + added
            order = tuple(sorted(range(len(places)), key=lambda i: (i < len(node.places), -i)))
            target = self._child(VIEWING, state, tuple(places[i] for i in order), 0, node.used, spent, None)
            target = self._interned(target)
            yield Edge(
                len(chosen), "REDUCE", (), (), tuple(sizes[i] for i in chosen), order, target, need
            )

    def _views(self, node: SearchNode, left: int) -> Iterator[Edge]:
        """What the foremost waiting coordinate may do: pass, or take part in a view."""
        active = len(node.places) - 1
        bound = node.bound
        mine = node.features[active]
        is_reduction = self._is_reduction[mine]
        alike = sum(f == mine for f in node.features[node.passed : active]) if is_reduction else 0
        if not (bound and bound[0] == mine and bound[1] == _PASSES) and left:
            yield from self._views_of(node, active, left, alike)
        yield from self._pass(node, active, left, (mine, _PASSES) if alike else None)

    def _pass(self, node: SearchNode, active: int, left: int, bound: Any) -> Iterator[Edge]:
        mine = node.features[active]
        place = node.passed
        while place and node.features[place - 1] > mine:
            place -= 1
        order = (*range(place), active, *range(place, active))
        if bound is None and node.bound and node.bound[0] in node.features[node.passed : active]:
            bound = self._carried(node.bound, order)
        phase = VIEWING if node.passed + 1 < len(node.places) else BETWEEN
        target = SearchNode(phase, node.state, tuple(node.places[i] for i in order), node.passed + 1)
        target.features = tuple(node.features[i] for i in order)
        target.packed = tuple(node.packed[i] for i in order)
        target.roots = tuple(node.roots[i] for i in order)
        target.fresh = tuple(node.fresh[i] for i in order) if node.fresh else ()
        target.used, target.spent, target.bound = node.used, node.spent, bound
        need = self._need(target)
        if need > left or (phase == BETWEEN and not self._may_go_on(target, left)):
            return
        yield Edge(0, "", (), (), None, order, self._interned(target), need)

    def _may_go_on(self, node: SearchNode, left: int) -> bool:
        """Whether a stage may end here: the operator is complete, or a contraction is still to come."""
        if left and len(node.state.weights) < self.most_weights:
            return True
        return tuple(sorted(node.packed)) == self.reach.want

    def _views_of(self, node: SearchNode, active: int, left: int, alike: int) -> Iterator[Edge]:
        c = node.places[active]
        primitive = c.node.primitive
        if primitive != "STRIDE":
            yield from self._merges(node, active, left)
            yield from self._unary(node, active, left, "SHIFT")
        yield from self._unary(node, active, left, "EXPAND")
        if primitive != "STRIDE" and not c.is_output and not c.size.has_primary:
            for size in coefficient_products(self.spec):
                if not size.is_one and min(size.exponents) >= 0:
                    yield from self._view(node, left, "STRIDE", (active,), size, alike)
        for partner in range(node.passed):
            yield from self._view(node, left, "SPLIT", (active, partner), None, alike)
            yield from self._view(node, left, "SPLIT", (partner, active), None, alike)
            yield from self._view(node, left, "UNFOLD", (active, partner), None, alike)
            yield from self._view(node, left, "UNFOLD", (partner, active), None, alike)

    def _unary(self, node: SearchNode, active: int, left: int, primitive: str) -> Iterator[Edge]:
        yield from self._view(node, left, primitive, (active,), None, 0)

    def _merges(self, node: SearchNode, active: int, left: int) -> Iterator[Edge]:
        size = node.places[active].size
        blocks = self._merge_blocks.get(size)
        if blocks is None:
            spec = self.spec
            blocks, seen = [], set()
            for block in (b for side in merge_sides(spec, size) for b in (side, size / side)):
                if block in seen or block.is_one or block == size:
                    continue
                seen.add(block)
                if spec.is_legal(block) and spec.is_legal(size / block):
                    blocks.append((block, self._cost(Step("MERGE", (node.places[active],), block))))
            self._merge_blocks[size] = blocks
        for block, cost in blocks:
            if self._add(node.spent, cost) is not None:
                yield from self._view(node, left, "MERGE", (active,), block, 0)

    def _view(
        self,
        node: SearchNode,
        left: int,
        primitive: str,
        operands: tuple[int, ...],
        parameter: Size | None,
        alike: int,
    ) -> Iterator[Edge]:
        """The edge of one view, where the budgets, Table 1, the rules and the distance have nothing against it."""
        which = _LIMITED.index(primitive)
        most = self._most[which]
        if most is not None and node.used[which] >= most:
            return
        spec = self.spec
        packed = node.packed
        # The shape comes first: most moves lead too far away.
        if primitive == "UNFOLD":
            if node.places[operands[1]].size.has_primary:
                return
            added: tuple[int, ...] = (packed[operands[0]],)
        elif primitive == "SPLIT":
            added = (packed[operands[0]] + packed[operands[1]],)
        elif primitive == "MERGE":
            assert parameter is not None
            block = self._pack(parameter)
            added = (packed[operands[0]] - block, block)
        elif primitive == "EXPAND":
            added = ()
        elif primitive == "STRIDE":
            assert parameter is not None
            added = (packed[operands[0]] + self._pack(parameter),)
        else:
            added = (packed[operands[0]],)
        kept = [i for i in range(len(packed)) if i not in operands]
        shape = tuple(sorted([*(packed[i] for i in kept), *added]))
        used = (*node.used[:which], node.used[which] + 1, *node.used[which + 1 :])
        state = node.state
        strided = sum(node.places[i].node.primitive == "STRIDE" for i in kept) + (primitive == "STRIDE")
        contractions = self.most_weights - len(state.weights)
        need = self.reach.steps(shape, strided, contractions, self._most_expands - used[3])
        lacking = self.limits.min_weights - len(state.weights)
        need = max(need, lacking)
        if need > left - 1:
            return
        coordinates = tuple(node.places[i] for i in operands)
        if "STRIDE" in (c.node.primitive for c in coordinates) and primitive not in ("UNFOLD", "EXPAND"):
            return
        step = Step(primitive, coordinates, parameter)
        spent = node.spent
        if parameter is not None:
            found = self._add(spent, self._cost(step))
            if found is None:
                return
            spent = found
        if primitive == "SPLIT" and not spec.is_legal(coordinates[0].size * coordinates[1].size):
            return
        if primitive == "STRIDE" and not spec.is_legal(coordinates[0].size * parameter):  # type: ignore[operator]
            return
        bound = None
        if alike:
            label = self._label(node, step.primitive, operands, parameter)
            if not self._keeps_order(node, label, operands):
                return
            bound = (node.features[operands[0] if len(operands) == 1 else max(operands)], label)
        if any(match(state, step) for match in self._matches[primitive]):
            return
        sizes = PRIMITIVES[primitive].result_sizes(tuple(c.size for c in coordinates), parameter)
        made = Node(primitive, coordinates, parameter)
        results = tuple(Coordinate(made, i, size) for i, size in enumerate(sizes))
        number = len(node.places)
        front = tuple(number + i for i in reversed(range(len(results))))
        passed = [i for i in kept if i < node.passed]
        waiting = [i for i in kept if i >= node.passed]
        order = (*passed, *waiting, *front)
        pool = node.places + results
        places = tuple(pool[i] for i in order)
        after = State(
            spec,
            self._fixed + places,
            state.reductions,
            state.weights,
            state.expanded if results else state.expanded + coordinates,
            (*state.steps, step),
        )
        if bound is not None:
            old = tuple(i for i in range(len(passed)))
            bound = (*bound, old)
        elif node.bound and node.bound[0] in (node.features[i] for i in waiting):
            bound = self._carried(node.bound, order)
        phase = VIEWING if len(places) > len(passed) else BETWEEN
        target = self._child(phase, after, places, len(passed), used, spent, node, order)
        target.bound = bound
        if phase == BETWEEN and not self._may_go_on(target, left - 1):
            return
        yield Edge(1, primitive, operands, (), parameter, order, self._interned(target), need)

    def _label(self, node: SearchNode, primitive: str, operands: tuple[int, ...], parameter: Any) -> tuple[Any, ...]:
        if len(operands) == 1:
            return (primitive, 0, 0, parameter.exponents)
        active = len(node.places) - 1
        role = operands.index(active)
        return (primitive, role, node.features[operands[1 - role]], ())

    def _keeps_order(self, node: SearchNode, label: tuple[Any, ...], operands: tuple[int, ...]) -> bool:
        """Whether a reduction may do this after what the one before it, which looks alike, has done."""
        bound = node.bound
        if not bound or bound[0] != node.features[-1] or bound[1] == _PASSES:
            return True
        partner = [i for i in operands if i != len(node.places) - 1]
        is_old = not partner or partner[0] in bound[2]
        return not is_old or label >= bound[1]

    @staticmethod
    def _carried(bound: Any, order: tuple[int, ...]) -> Any:
        if bound[1] == _PASSES:
            return bound
        return (bound[0], bound[1], tuple(place for place, source in enumerate(order) if source in bound[2]))

    # -- contractions ------------------------------------------------------------------------------------------------

    def _contractions(self, node: SearchNode, left: int) -> Iterator[Edge]:
        """After a stage: the operator if it is complete, and every contraction that takes something new."""
        state = node.state
        if tuple(sorted(node.packed)) == self.reach.want and len(state.weights) >= self.limits.min_weights:
            for order in self._arrangements(node):
                yield Edge(0, "", (), (), None, order, None, 0)
        if left and len(state.weights) < self.most_weights:
            yield from self._shares(node, left)

    def _after_contraction(self, node: SearchNode, left: int) -> Iterator[Edge]:
        """Right after a contraction: another one that does not depend on it, or the next stage."""
        order = tuple(range(len(node.places)))
        target = self._copy(node, VIEWING)
        yield Edge(0, "", (), (), None, order, self._interned(target), self._need(target))
        if left and len(node.state.weights) < self.most_weights:
            yield from self._shares(node, left)

    def _shares(self, node: SearchNode, left: int) -> Iterator[Edge]:
        """Every contraction; reductions that look alike are taken by their number."""
        state = node.state
        groups: list[list[int]] = []
        for place, c in enumerate(node.places):
            if c.node.primitive == "STRIDE":
                continue
            mine = node.features[place]
            if groups and self._is_reduction[mine] and node.features[groups[-1][0]] == mine:
                groups[-1].append(place)
            else:
                groups.append([place])
        groups = self._joined(node, groups)
        is_new_needed = bool(node.fresh) and node.phase == BETWEEN
        contractions = self.most_weights - len(state.weights) - 1
        expands = self._most_expands - node.used[3]
        strided = sum(c.node.primitive == "STRIDE" for c in node.places)
        lacking = self.limits.min_weights - len(state.weights) - 1
        before = None
        if node.phase == CONTRACTED:
            last = state.weights[-1]
            before = (sorted(c.size.exponents for c in last.coordinates), last.shared)
        for gifts in product(*(range(len(group) + 1) for group in groups)):
            given = tuple(place for group, count in zip(groups, gifts, strict=True) for place in group[:count])
            gone = set(given)
            shape = tuple(sorted(p for i, p in enumerate(node.packed) if i not in gone))
            need = max(self.reach.steps(shape, strided, contractions, expands), lacking)
            if need > left - 1:
                continue
            spent = node.spent
            if self._strict:
                found = self._taken(spent, node, given)
                if found is None:
                    continue
                spent = found
            rest = [group[count:] for group, count in zip(groups, gifts, strict=True)]
            for counts in product(*(range(len(group) + 1) for group in rest)):
                shared = tuple(place for group, count in zip(rest, counts, strict=True) for place in group[:count])
                if not shared:
                    continue
                if is_new_needed and not any(node.fresh[i] for i in (*given, *shared)):
                    continue
                yield from self._share(node, shared, given, spent, need, before)

    def _joined(self, node: SearchNode, groups: list[list[int]]) -> list[list[int]]:
        """Groups of reductions that look alike, wherever they stand."""
        found: dict[int, list[int]] = {}
        result = []
        for group in groups:
            mine = node.features[group[0]]
            if not self._is_reduction[mine]:
                result.append(group)
            elif mine in found:
                found[mine] += group
            else:
                found[mine] = group
                result.append(group)
        return result

    def _taken(self, spent: tuple[int, ...], node: SearchNode, places: tuple[int, ...]) -> tuple[int, ...] | None:
        for place in places:
            found = self._add(spent, tuple(map(abs, node.places[place].size.exponents)))
            if found is None:
                return None
            spent = found
        return spent

    def _share(
        self,
        node: SearchNode,
        shared: tuple[int, ...],
        given: tuple[int, ...],
        spent: tuple[int, ...],
        need: int,
        before: Any,
    ) -> Iterator[Edge]:
        state = node.state
        if self._strict:
            found = self._taken(spent, node, shared)
            if found is None:
                return
            spent = found
        operands = tuple(node.places[i] for i in shared)
        gifts = tuple(node.places[i] for i in given)
        if before is not None:
            sizes = sorted(c.size.exponents for c in operands + gifts)
            if sizes < before[0] and any(c not in gifts for c in before[1]):
                return
        step = Step("SHARE", operands, given=gifts)
        if any(match(state, step) for match in self._matches["SHARE"]):
            return
        weights = (*state.weights, Weight(operands, gifts))
        touched = set(shared)
        if node.phase == CONTRACTED:
            touched.update(range(node.passed, len(node.places)))
        gone = set(given)
        untouched = [i for i in range(len(node.places)) if i not in touched and i not in gone]
        rest = [i for i in range(len(node.places)) if i in touched and i not in gone]
        pool = node.places
        order = (*untouched, *rest)
        places = tuple(pool[i] for i in order)
        after = State(
            self.spec, self._fixed + places, state.reductions, weights, state.expanded, (*state.steps, step)
        )
        phase = CONTRACTED if len(weights) < self.most_weights else VIEWING
        target = self._child(phase, after, places, len(untouched), node.used, spent, None)
        # Both parts in the order of their features, so that nodes that look alike are one.
        key = target.features
        first = sorted(range(len(untouched)), key=lambda i: key[i])
        second = sorted(range(len(untouched), len(order)), key=lambda i: (self._is_reduction[key[i]], key[i]))
        again = (*first, *reversed(second))
        order = tuple(order[i] for i in again)
        target.places = tuple(target.places[i] for i in again)
        target.features = tuple(target.features[i] for i in again)
        target.packed = tuple(target.packed[i] for i in again)
        target.roots = tuple(target.roots[i] for i in again)
        if len(weights) < self.most_weights:
            target.fresh = (False,) * len(places)
        yield Edge(1, "SHARE", shared, given, None, order, self._interned(target), need)

    def _arrangements(self, node: SearchNode) -> Iterator[tuple[int, ...]]:
        """The ways to match the coordinates with the input axes that take part: places, one for each axis."""
        fixed = {inp for inp, _ in self.spec.fixed_io_pairs}
        axes = [pack(s) for axis, s in enumerate(self.spec.input_shape) if axis not in fixed]
        count = len(axes)

        def fill(axis: int, taken: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if axis == count:
                yield taken
                return
            tried = set()
            for place in range(count):
                mine = node.features[place]
                if place in taken or node.packed[place] != axes[axis]:
                    continue
                if self._is_reduction[mine]:
                    if mine in tried:
                        continue
                    tried.add(mine)
                yield from fill(axis + 1, (*taken, place))

        yield from fill(0, ())

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _copy(self, node: SearchNode, phase: int) -> SearchNode:
        target = SearchNode(phase, node.state, node.places, node.passed)
        target.features, target.packed, target.roots = node.features, node.packed, node.roots
        target.fresh, target.used, target.spent, target.bound = node.fresh, node.used, node.spent, node.bound
        return target

    def _child(
        self,
        phase: int,
        state: State,
        places: tuple[Coordinate, ...],
        passed: int,
        used: tuple[int, ...],
        spent: tuple[int, ...],
        parent: SearchNode | None,
        order: tuple[int, ...] = (),
    ) -> SearchNode:
        """A node for ``state``; of its ``parent`` by a view it keeps what the view has not changed."""
        target = SearchNode(phase, state, places, passed)
        target.used, target.spent = used, spent
        if parent is None or len(state.expanded) != len(parent.state.expanded):
            target.features = tuple(self._feature(state, c) for c in places)
            target.roots = tuple(digit_below(state, c) for c in places)
            target.packed = tuple(self._pack(c.size) for c in places)
            if parent is not None and parent.fresh:
                target.fresh = tuple(parent.fresh[i] for i in order)
            return target
        number = len(parent.places)
        target.features = tuple(
            parent.features[i] if i < number else self._feature(state, c) for i, c in zip(order, places, strict=True)
        )
        target.roots = tuple(
            parent.roots[i] if i < number else digit_below(state, c) for i, c in zip(order, places, strict=True)
        )
        target.packed = tuple(
            parent.packed[i] if i < number else self._pack(c.size) for i, c in zip(order, places, strict=True)
        )
        if parent.fresh:
            target.fresh = tuple(parent.fresh[i] if i < number else True for i in order)
        return target

    def _interned(self, node: SearchNode) -> SearchNode:
        roots: tuple[Any, ...] = ()
        if any(node.roots):
            holders: dict[Coordinate, list[int]] = {}
            for place, found in enumerate(node.roots):
                if found is not None:
                    holders.setdefault(found.root, []).append(place)
            roots = tuple(
                (tuple(places), tuple(self._linked(node, i) for i in places))
                for places in holders.values()
                if len(places) > 1
            )
        state = node.state
        on_top = set(node.places)
        whole = tuple(all(c in on_top for c in weight.coordinates) for weight in state.weights)
        last: Any = None
        if node.phase == CONTRACTED:
            weight = state.weights[-1]
            last = tuple(sorted(self._features_of_weight(weight)))
        key = (
            node.phase,
            node.passed,
            node.features,
            roots,
            node.used,
            node.spent,
            node.fresh,
            node.bound,
            whole,
            last,
            len(state.reductions) < self.limits.max_reduces,
        )
        found_node = self._nodes.get(key)
        if found_node is None:
            self._nodes[key] = found_node = node
        return found_node

    def _linked(self, node: SearchNode, place: int) -> tuple[Any, ...]:
        found = node.roots[place]
        assert found is not None
        return (found.low.exponents, found.high.exponents, found.root.size.exponents)

    def _features_of_weight(self, weight: Weight) -> Iterator[tuple[Any, ...]]:
        for c in weight.coordinates:
            yield c.size.exponents

    def _feature(self, state: State, coordinate: Coordinate) -> int:
        found = feature(state, coordinate)
        number = self._features.get(found)
        if number is None:
            number = self._features[found] = len(self._features)
            self._is_reduction[number] = found.leaf == 1
        return number

    def _need(self, node: SearchNode) -> int:
        state = node.state
        strided = sum(c.node.primitive == "STRIDE" for c in node.places)
        steps = self.reach.steps(
            tuple(sorted(node.packed)),
            strided,
            self.most_weights - len(state.weights),
            self._most_expands - node.used[3],
        )
        return max(steps, self.limits.min_weights - len(state.weights))

    def _pack(self, size: Size) -> int:
        packed = self._packs.get(size)
        if packed is None:
            packed = self._packs[size] = pack(size)
        return packed

    def _cost(self, step: Step) -> tuple[int, ...]:
        return step_cost(step)

    def _add(self, spent: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...] | None:
        """What is spent after ``more``; None where a limit of occurrences is exceeded."""
        if not more:
            return spent
        total = tuple(a + b for a, b in zip(spent, more, strict=True))
        for number, limit in zip(total, self._limit_of, strict=True):
            if limit is not None and number > limit:
                return None
        return total


__all__ = ["NEVER", "Edge", "Graph", "SearchNode"]
