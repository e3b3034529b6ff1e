"""Nodes of the search graph: facts about a state that rules, budgets and distance need; equal states share a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import blake2b
from operator import add
from typing import Any, NamedTuple

from syno_lab.common.size import Size
from syno_lab.effort import Effort
from syno_lab.errors import SpecError
from syno_lab.inputs import plural
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import PRIMITIVES, own_primitives
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.budgets import Cost, meter_of
from syno_lab.synthesis.features import Digit, Look, Viewed, digit_below, feature
from syno_lab.synthesis.reach import DEMANDS, EXPANDABLE, FLAG_BITS, GIVABLE, MERGEABLE, STRIDED, WAITING, Reach, pack
from syno_lab.synthesis.rules import RULES, Rule, rules_for
from syno_lab.synthesis.space import coefficient_products, merge_blocks, step_cost
from syno_lab.synthesis.wishes import Wishes

LIMITED = ("SPLIT", "MERGE", "SHIFT", "EXPAND", "UNFOLD", "STRIDE")
STAYS = ~WAITING  # all flags but WAITING, which a coordinate loses when it passes


class Edge(NamedTuple):
    """An edge: a step, the REDUCEs at the root, a contraction with chosen given coordinates, or the end of an operator.

    A contraction takes two edges: the first chooses the given coordinates at cost 0, the second the shared coordinates.

    Attributes:
        cost: the number of steps.
        primitive: the primitive of the step; empty without a step.
        operands: the indices of the operands among the node's coordinates.
        given: the indices of the coordinates given to a new weight.
        parameter: the parameter of the step; at the root the sizes of all REDUCEs.
        order: the sources of the target's coordinates: indices among the node's coordinates, followed by the step's
            results. For a complete operator: the coordinate of each input axis that is not fixed.
        target: the next node; None if the operator is complete.
        need: a lower bound of the steps after the target.
    """

    cost: int
    primitive: str
    operands: tuple[int, ...]
    given: tuple[int, ...]
    parameter: Any
    order: tuple[int, ...]
    target: SearchNode | None
    need: int


@dataclass(slots=True, eq=False, repr=False)
class Move:
    """A step that may be taken from a node: distance and budgets allow the step, but rules may reject it.

    Attributes:
        cost: the number of steps.
        need: a lower bound of the steps after the move.
        width: the estimated number of edges of the move.
        sizes: the sizes of REDUCEs; empty for other moves.
        favour: the factor on the probability of the move, because of the wishes.
    """

    cost: int
    need: int
    _make: Callable[[], Iterator[Edge]] | None
    width: int = 1
    sizes: tuple[Size, ...] = ()
    favour: float = 1.0
    _edges: tuple[Edge, ...] | None = None

    def edges(self) -> tuple[Edge, ...]:
        """Return the move's edges: usually one, none if a rule rejects the step."""
        if self._edges is None:
            assert self._make is not None
            self._edges = tuple(self._make())
            self._make = None  # the function's arguments take most of a node's memory
        return self._edges


@dataclass(slots=True, eq=False, repr=False)
class SearchNode:
    """A node of the graph, where a sweep begins: some of its coordinates have passed, the others wait.

    Tuples with an entry for each coordinate have the order of ``places``.

    Attributes:
        state: one of the states of the node.
        places: the coordinates that are not fixed: first the passed coordinates; the foremost waiting one comes last.
        passed: the number of coordinates that have passed.
        used: the number of views of each primitive in :data:`LIMITED`.
        spent: the occurrences of each variable so far.
        cost: bounds of FLOPs, parameters and memory; None if no budget can be exceeded any more.
        is_contracted: whether the last step was a CONTRACTION.
        fresh: which coordinates are new since the last CONTRACTION; empty if no CONTRACTION may follow.
        bound: for equal reductions, the last reduction's feature, the label of its step, and the indices of the
            coordinates before this step. The next equal reduction takes no lesser step. None without equal reductions.
        gift: the given coordinates of a started CONTRACTION; else None.
        looks: the cache entry of each coordinate; :class:`Nodes` fills in this field and all later fields.
        features: the number of each coordinate's feature (:mod:`syno_lab.synthesis.features`).
        packed: the packed size of each coordinate.
        items: each coordinate in the form for the distance: packed size and flags.
        roots: the MERGE of which each coordinate is a digit, or None.
        moves: the cached moves, by the number of remaining steps.
        counts: the cached numbers of paths to operators, by the number of remaining steps.
        shortest: the fewest steps to an operator; None if unknown.
        dead: a number of remaining steps with which no operator can be reached.
        key: the key of the node; :class:`Nodes` fills it in.
    """

    state: State
    places: tuple[Coordinate, ...]
    passed: int
    used: tuple[int, ...]
    spent: tuple[int, ...]
    cost: Cost | None
    is_contracted: bool = False
    fresh: tuple[bool, ...] = ()
    bound: tuple[int, Any, tuple[int, ...]] | None = None
    gift: Gift | None = None
    looks: tuple[Look, ...] = ()
    features: tuple[int, ...] = ()
    packed: tuple[int, ...] = ()
    items: tuple[int, ...] = ()
    roots: tuple[Digit | None, ...] = ()
    moves: dict[int, list[Move]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    shortest: int | None = None
    dead: int = -1
    key: tuple[Any, ...] = ()
    _name: int | None = None

    @property
    def name(self) -> int:
        """Return a number of 128 bits for the key, the same after the node is dropped and made again."""
        if self._name is None:
            gift = self.gift
            key = self.key if gift is None else (gift.node.name, gift.passed, gift.given)
            # Hash the text, because Python's hash does not distinguish -1 from -2, and exponents have these values.
            self._name = int.from_bytes(blake2b(repr(key).encode(), digest_size=16).digest())
        return self._name


class Gift(NamedTuple):
    """A started contraction: the passed coordinates, the given coordinates, and groups of sharable coordinates."""

    node: SearchNode
    passed: tuple[int, ...]
    given: tuple[int, ...]
    rest: list[list[int]]
    spent: tuple[int, ...]


class Nodes:
    """The cache of nodes for one spec and one table of rules."""

    #: The limit of remaining steps for a search of the distance to the wishes; above it, a count of steps is the bound.
    NEAR = 3
    #: The limits of cached nodes, of their moves, and of known distances: about a gigabyte.
    MOST_NODES = 100_000
    MOST_MOVES = 1_000_000
    MOST_BOUNDS = 1_500_000

    def __init__(self, spec: Spec, rules: tuple[Rule, ...] = RULES, effort: Effort | None = None) -> None:
        names = {rule.name for rule in rules}
        lacking = [rule.name for rule in RULES if rule.kind == "space" and rule.name not in names]
        if lacking:
            raise SpecError(
                f"rules: expected every row of kind 'space', since the search knows only this space; "
                f"{', '.join(lacking)} {plural(len(lacking), 'is', 'are')} missing; add to sl.RULES, or leave out "
                "rows of the other kinds"
            )
        self.spec = spec
        self.rules = rules
        self.effort = effort or Effort()
        self.reach = Reach(spec, self.effort)
        self.wishes = Wishes(self.reach) if spec.wants else None
        self.limits = spec.limits
        self.meter = meter_of(spec)
        self.most_weights = spec.limits.of("SHARE") or 0
        self._users = tuple([own.name for own in own_primitives()])
        self._most = tuple(spec.limits.of(primitive) for primitive in LIMITED)
        self._most_expands = 99 if spec.limits.max_expands is None else spec.limits.max_expands
        shallow = {p: tuple(r for r in rules_for(p, rules) if not r.is_deep) for p in PRIMITIVES}
        self._matches = {p: tuple(r.match for r in rows) for p, rows in shallow.items()}
        self._given = tuple(r.match for r in shallow["SHARE"] if r.is_of_given)
        # Limits for weights concern the primary variables only, which come first among the occurrences.
        self._binding_weights = 0 if spec.weight_limits == "free" else len(spec.symbols.primary)
        self._limit_of = tuple(spec.occurrence_limits.values())
        self._features: dict[Any, int] = {}
        self._is_reduction: list[bool] = []
        self._flags: list[int] = []
        self._pack = cache(pack)
        self._sums: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...] | None] = {}
        self._nodes: dict[Any, SearchNode] = {}
        self._leaves: dict[Coordinate, Look] = {}
        self._known_views: dict[Any, Viewed | None] = {}
        self._known_shares: dict[Any, bool] = {}
        self._holders: list[SearchNode] = []  # The nodes with cached moves.
        self._vast: dict[int, bool] = {}  # For each limit of REDUCEs: whether there are too many multisets to list.
        self.listed = self.looked = 0  # The numbers of cached moves and of examined views.
        self._blocks: dict[Size, list[tuple[Size, int, tuple[int, ...]]]] = {}
        root = State.root(spec)
        self.fixed = tuple(c for c in root.data if c in root.fixed)
        free = tuple(c for c in root.data if c not in root.fixed)
        unspent = (0,) * len(spec.symbols.names)
        self.root = SearchNode(root, free, 0, (0,) * len(LIMITED), unspent, None)
        self.root.packed = tuple(self._pack(c.size) for c in free)
        self._total = sum(self.reach.want)
        self._own = spec.matched
        self._axes = [pack(spec.input_shape[axis]) for axis in self._own]
        self._is_free = [axis in spec.free_axes for axis in self._own]

    def __len__(self) -> int:
        return len(self._nodes)

    def make_room(self, share: float = 1.0) -> bool:
        """Drop caches that exceed ``share`` of their limits (see :meth:`forget`); return whether nodes were dropped."""
        if len(self.reach) > share * self.MOST_BOUNDS:
            self._forget_bounds()
        is_full = len(self._nodes) > share * self.MOST_NODES or self.listed > share * self.MOST_MOVES
        if is_full:
            self._forget_nodes()
        return is_full

    def forget(self) -> None:
        """Drop all nodes except the root, and all bounds; they are computed again when needed, with equal results.

        Nodes that a caller still holds lose their caches, which can be computed again.
        """
        self._forget_nodes()
        self._forget_bounds()

    def _forget_nodes(self) -> None:
        self._nodes.clear()
        self._leaves.clear()
        self._known_views.clear()
        self._known_shares.clear()
        for node in self._holders:  # cyclic references: a node's moves refer to the node
            node.moves.clear()
            node.counts.clear()
        self._holders.clear()
        self.listed = 0

    def _forget_bounds(self) -> None:
        self.reach.forget()
        if self.wishes is not None:
            self.wishes.forget()

    @cached_property
    def _strides(self) -> list[tuple[Size, int]]:
        """Return the sizes for STRIDE with their packed forms."""
        products = coefficient_products(self.spec, effort=self.effort)
        return [(size, self._pack(size)) for size in products if not size.is_one and min(size.exponents) >= 0]

    def _merge_blocks(self, c: Coordinate) -> list[tuple[Size, int, tuple[int, ...]]]:
        """Return the blocks that a coordinate of this size may be MERGEd into, with their costs."""
        blocks = self._blocks.get(c.size)
        if blocks is None:
            blocks = self._blocks[c.size] = [
                (block, self._pack(block), step_cost(Step("MERGE", (c,), block)))
                for block in merge_blocks(self.spec, c.size, effort=self.effort)
            ]
        return blocks

    def _show(self, target: SearchNode, looks: tuple[Look, ...]) -> None:
        """Fill in the node's fields for rules and the distance."""
        target.looks = looks
        target.features = features = tuple([look.feature for look in looks])
        target.packed = tuple([look.packed for look in looks])
        target.roots = tuple([look.root for look in looks])
        flags, passed = self._flags, target.passed
        target.items = tuple(
            [
                look.packed << FLAG_BITS | (flags[number] if place >= passed else flags[number] & STAYS)
                for place, (look, number) in enumerate(zip(looks, features, strict=True))
            ]
        )

    def _look(self, state: State, coordinate: Coordinate) -> Look:
        """Compute the entry of a coordinate of ``state`` (or of a view on the state) without a cache."""
        feature, packed = self._feature(state, coordinate), self._pack(coordinate.size)
        return Look(coordinate, feature, packed, digit_below(state, coordinate))

    def _leaf(self, state: State, coordinate: Coordinate) -> Look:
        """Return the cache entry of an iterator that no weight shares."""
        look = self._leaves.get(coordinate)
        if look is None:
            look = self._leaves[coordinate] = self._look(state, coordinate)
        return look

    def _changed(self, look: Look, state: State, how: int) -> Look:
        """Return the cache entry after a change in ``state``; ``how`` is the key in :attr:`Look.changed`."""
        changed = look.changed.get(how)
        if changed is None:
            changed = look.changed[how] = self._look(state, look.coordinate)
        return changed

    def _viewed(
        self, node: SearchNode, primitive: str, operands: tuple[int, ...], parameter: Any, added: tuple[int, ...]
    ) -> Viewed | None:
        """Return the view of a node's coordinates; None if a rule rejects it.

        Rules read little more than the operands' cache entries, so these entries make the key. ``added``, the packed
        sizes of the results, distinguishes parameters.
        """
        state = node.state
        looks = tuple([node.looks[i] for i in operands])
        key = (primitive, added, looks, len(state.reductions), node.used[5] > 0)
        if key not in self._known_views:
            step = Step(primitive, tuple([look.coordinate for look in looks]), parameter)
            is_rejected = any(match(state, step) for match in self._matches[primitive])
            self._known_views[key] = None if is_rejected else Viewed(step, step_cost(step), state.results(step))
        return self._known_views[key]

    def _results(self, viewed: Viewed, state: State) -> tuple[Look, ...]:
        """Return the cache entries of a view's results."""
        if viewed.looks is None:
            # Start with the last result, in the order of the next node, so that features are numbered in that order.
            viewed.looks = tuple([self._look(state, result) for result in reversed(viewed.results)])[::-1]
        return viewed.looks

    def _interned(self, node: SearchNode) -> SearchNode:
        """Return the cached node that equals this node."""
        roots: tuple[Any, ...] = ()
        holders: dict[Coordinate, list[int]] = {}
        for place, digit in enumerate(node.roots):
            if digit is not None:
                holders.setdefault(digit.root, []).append(place)
        if holders:
            roots = tuple(
                [
                    (tuple(places), tuple([_boundaries(node.roots[i]) for i in places]))
                    for places in holders.values()
                    if len(places) > 1
                ]
            )
        state = node.state
        are_whole: tuple[bool, ...] = ()
        last: Any = None
        if state.weights and len(state.weights) < self.most_weights:
            on_top = set(node.places)
            are_whole = tuple([all(c in on_top for c in weight.coordinates) for weight in state.weights])
            if node.is_contracted:
                last = tuple(sorted(c.size.exponents for c in state.weights[-1].coordinates))
        key = (
            node.passed,
            node.features,
            roots,
            node.used,
            node.spent,
            len(state.weights),
            node.fresh,
            node.bound,
            are_whole,
            last,
            len(state.reductions) < self.limits.max_reduces,
            None if node.cost is None else node.cost.key(node.places),
        )
        node.key = key
        return self._nodes.setdefault(key, node)

    def _may_share(self, node: SearchNode, shared: tuple[int, ...], given: tuple[int, ...]) -> bool:
        """Return whether no rule rejects a CONTRACTION of a node's coordinates (or of given coordinates alone).

        Rules only check which coordinates of an existing weight the CONTRACTION takes, and whether these are all of the
        weight's coordinates. Cache entries have a coordinate's weights.
        """
        looks, state = node.looks, node.state
        key = (
            tuple([looks[i] for i in shared]),
            tuple([looks[i] for i in given]),
            tuple([len(weight.coordinates) for weight in state.weights]),
        )
        known = self._known_shares.get(key)
        if known is None:
            places = node.places
            step = Step("SHARE", tuple([places[i] for i in shared]), None, tuple([places[i] for i in given]))
            matches = self._matches["SHARE"] if shared else self._given
            known = self._known_shares[key] = not any(match(state, step) for match in matches)
        return known

    def _feature(self, state: State, coordinate: Coordinate) -> int:
        facts = feature(state, coordinate)
        has = 0 if self.wishes is None else self.wishes.has(coordinate)
        number = self._features.get((facts, has))
        if number is None:
            number = self._features[facts, has] = len(self._features)
            # Reductions that differ only in their names: the iterator itself, or STRIDEd.
            self._is_reduction.append(facts.leaf == 1 or (facts.primitive == "STRIDE" and facts.only_reductions))
            flags = WAITING | has
            if facts.primitive == "STRIDE":
                flags |= STRIDED
            elif facts.leaf != 1 or facts.sharers:
                flags |= GIVABLE
            is_view = facts.primitive not in ("OUTPUT", "MERGE", "REDUCE") or facts.is_sibling_gone
            is_bare = facts.leaf == 1 and not facts.sharers
            if not (is_view or is_bare or facts.sharers):
                flags |= EXPANDABLE
            if facts.primitive != "STRIDE" and self._is_mergeable(state, coordinate):
                flags |= MERGEABLE
            self._flags.append(flags)
        return number

    def _is_mergeable(self, state: State, coordinate: Coordinate) -> bool:
        """Return whether rules allow any MERGE of a coordinate."""
        for block, _, _ in self._merge_blocks(coordinate):
            step = Step("MERGE", (coordinate,), block)
            if not any(match(state, step) for match in self._matches["MERGE"]):
                return True
        return False

    def _steps(
        self,
        items: list[int],
        limit: int,
        weights: int,
        used: tuple[int, ...],
        spent: tuple[int, ...],
        must_contract: bool = False,
    ) -> int:
        """Return a lower bound of the steps from the sorted ``items`` to an operator; above ``limit`` it is inexact.

        With wishes, the operator must also meet the wishes.
        """
        wishes, wished = self.wishes, items
        if wishes is not None:
            items = sorted([item & ~DEMANDS for item in items])
        left = self.most_weights - weights
        lacking = self.limits.min_weights - weights
        must = lacking if lacking > must_contract else int(must_contract)
        spent = spent[: self._binding_weights]
        steps = self.reach.steps(tuple(items), limit, left, self._most_expands - used[3], spent, must)
        if wishes is not None and steps <= limit:
            most_unfolds = self._most[4]
            unfolds = 99 if most_unfolds is None else most_unfolds - used[4]
            steps = max(steps, wishes.few(wished))
            if steps <= limit <= self.NEAR:
                steps = wishes.steps(tuple(wished), limit, left, unfolds, self._most_expands - used[3], least=steps)
        return max(steps, lacking)

    def _add(self, spent: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the sum of the occurrences and ``more``; None if a limit of occurrences is exceeded."""
        if not more:
            return spent
        key = (spent, more)
        if key not in self._sums:
            total = tuple(map(add, spent, more))
            is_over = any(
                limit is not None and number > limit for number, limit in zip(total, self._limit_of, strict=True)
            )
            self._sums[key] = None if is_over else total
        return self._sums[key]


def _boundaries(digit: Digit | None) -> tuple[Any, ...]:
    assert digit is not None
    return (digit.low.exponents, digit.high.exponents, digit.root.size.exponents)
