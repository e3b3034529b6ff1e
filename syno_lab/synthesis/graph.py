"""The search space as a graph: interned states, and exactly one path from the root to each pGraph.

A state is a set, so a pGraph can be reached in many orders. The graph has one order: REDUCEs first, then stages of
views with contractions between them. A stage is a *sweep*: its coordinates wait in a row. The foremost coordinate
either passes (waits no longer), or begins a view, alone or with a passed coordinate; a view's results go to the front.
A view has exactly one position: the earliest stage with its operands, when the last of them is at the front. After a
contraction, only the coordinates that it shares wait again. Equal reductions of one size are ordered by their use:
reductions that begin a view come before reductions that wait no longer.

Two states that rules cannot distinguish (:mod:`syno_lab.synthesis.features`) are one node with one representative
state. An edge names the coordinates it uses by their indices, so it can be replayed on each state of the node.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from random import Random
from typing import Any, NamedTuple

from syno_lab.common.size import Size
from syno_lab.ir.state import State
from syno_lab.synthesis.gifts import MOST_CONTRACTIONS, Gifts
from syno_lab.synthesis.nodes import LIMITED, STAYS, Edge, Move, SearchNode
from syno_lab.synthesis.reach import DEMANDS, EXPANDABLE, FLAG_BITS, GIVABLE, MERGEABLE, NEVER, STRIDED, WAITING

__all__ = ["NEVER", "Edge", "Graph", "Move", "SearchNode"]

_WHICH = {primitive: which for which, primitive in enumerate(LIMITED)}


class Graph(Gifts):
    """The search space of one spec under one table of rules."""

    #: With this number of spare steps or more, a move's distance is guessed.
    SPARE = 3
    #: The factors on the probability of an UNFOLD that serves a wish: with a window that a weight shares, and with a
    #: window that no weight shares.
    WINDOW = 40.0
    BARE_WINDOW = 2.0
    #: The factor on the probability of a SPLIT that joins parts of two axes, which must be separated again.
    JOIN = 0.05

    # -- edges -------------------------------------------------------------------------------------------------------

    def moves(self, node: SearchNode, left: int) -> list[Move]:
        """Return the moves from ``node`` after which ``left`` steps may reach the input, in a fixed order.

        Raises EffortError when the graph's effort is exceeded.
        """
        moves = node.moves.get(left)
        if moves is None:
            moves = node.moves[left] = list(self._moves(node, left))
            self._holders.append(node)
            self.listed += len(moves)
        return moves

    def each_move(self, node: SearchNode, left: int) -> Iterable[Move]:
        """Iterate over :meth:`moves`; if there are too many to list, generate them without a cache."""
        return self._moves(node, left) if self.is_vast(node, left) else self.moves(node, left)

    def some_moves(self, node: SearchNode, left: int, rng: Random) -> list[Move]:
        """Return all moves from ``node``, or some random moves if there are too many to list."""
        if not self.is_vast(node, left):
            return self.moves(node, left)
        if node is self.root:
            return self._drawn_roots(left, rng)
        if node.gift is not None:
            return list(self._sharings(node.gift, left, rng))
        return list(self._from(node, left, rng))

    def edges(self, node: SearchNode, left: int) -> Iterator[Edge]:
        """Yield the edges of all moves from ``node``."""
        for move in self.each_move(node, left):
            yield from move.edges()

    def is_vast(self, node: SearchNode, left: int) -> bool:
        """Return whether a node has too many moves to list."""
        if left in node.moves:
            return False
        if node is self.root:
            return self._are_roots_vast(left)
        if node.gift is not None:
            return prod(len(group) + 1 for group in node.gift.rest) > MOST_CONTRACTIONS
        if not left or len(node.state.weights) >= self.most_weights:
            return False
        groups = self._gift_groups(node, range(len(node.places)))
        return prod(most - least + 1 for _, least, most in self._gift_room(node, groups, left)) > MOST_CONTRACTIONS

    def _moves(self, node: SearchNode, left: int) -> Iterator[Move]:
        if node is self.root:
            return self._from_root(left)
        if node.gift is not None:
            return self._sharings(node.gift, left)
        return self._from(node, left)

    def _from(self, node: SearchNode, left: int, rng: Random | None = None) -> Iterator[Move]:
        """Yield each waiting coordinate's views, once all coordinates before it have passed; then the stage's ends."""
        number = len(node.places)
        items = list(node.items)
        weights = len(node.state.weights)
        near = self._steps(sorted(items), left, weights, node.used, node.spent)
        if near > left:
            return
        is_far = left - near >= self.SPARE
        passed_reductions = set()
        passed = list(range(node.passed))
        for active in range(number - 1, node.passed - 1, -1):
            feature = node.features[active]
            if left:
                is_reduction = self._is_reduction[feature]
                if not (is_reduction and feature in passed_reductions):
                    alike = is_reduction and feature in node.features[node.passed : active]
                    far, is_last = near if is_far else -1, active == node.passed
                    stage = _Stage(node, active, tuple(passed), items, sorted(items), alike, is_last, far, left)
                    for view in self._views(stage):
                        move = self._view_move(view)
                        if move is not None:
                            yield move
                if is_reduction:
                    passed_reductions.add(feature)
            items[active] &= STAYS
            keys = [node.features[i] for i in passed]
            passed.insert(bisect_right(keys, feature), active)
            is_over = active == node.passed
            if not is_far and self._steps(sorted(items), left, weights, node.used, node.spent, is_over) > left:
                return
        if number == len(self._axes) and tuple(sorted(node.packed)) == self.reach.want:
            yield Move(0, 0, partial(self._ends, node, tuple(range(number)), (), "", (), None, 0))
        if left and weights < self.most_weights:
            yield from self._gifts(node, passed, left, near if is_far else -1, rng)

    # -- views -------------------------------------------------------------------------------------------------------

    def _views(self, stage: _Stage) -> Iterator[_View]:
        """Yield every view that may begin with the active coordinate, alone or with a passed coordinate."""
        node, active, left = stage.node, stage.active, stage.left
        c = node.places[active]
        item = stage.items[active]
        packed = node.packed[active]
        # The last step must reach the input's number of axes and of elements.
        more = sum(node.packed) - self._total
        axes = len(node.packed) - len(self._axes)
        is_taking_apart, is_joining = left > 1 or (not more and axes == -1), left > 1 or (not more and axes == 1)
        if left > 1 or more == packed:
            yield _View(stage, "EXPAND", (active,), None, ())
        if not item & STRIDED and (left > 1 or (not more and not axes)):
            yield _View(stage, "SHIFT", (active,), None, (packed,))
            for name in self._users:
                yield _View(stage, name, (active,), None, (packed,))
        if not item & STRIDED and left > 1 and self._most[5] != 0 and not c.is_output and not c.size.has_primary:
            for size, size_packed in self._strides:
                yield _View(stage, "STRIDE", (active,), size, (packed + size_packed,))
        if not item & STRIDED and is_taking_apart:
            for block, block_packed, cost in self._merge_blocks(c):
                if self._add(node.spent, cost) is not None:
                    yield _View(stage, "MERGE", (active,), block, (packed - block_packed, block_packed))
        is_window = not c.size.has_primary
        tried = set()
        for partner in stage.passed:
            look = node.features[partner]
            if self._is_reduction[look]:  # one of several equal reductions suffices
                if look in tried:
                    continue
                tried.add(look)
            other = node.packed[partner]
            if is_joining and not (item | stage.items[partner]) & STRIDED:
                yield _View(stage, "SPLIT", (active, partner), None, (packed + other,))
                yield _View(stage, "SPLIT", (partner, active), None, (packed + other,))
            if left == 1 and more not in (packed, other):
                continue
            if not node.places[partner].size.has_primary:
                yield _View(stage, "UNFOLD", (active, partner), None, (packed,))
            if is_window:
                yield _View(stage, "UNFOLD", (partner, active), None, (other,))

    def _view_move(self, view: _View) -> Move | None:
        """Return the move of a view; None if the distance or a budget excludes it."""
        stage, primitive, operands, _, added = view
        node, left = stage.node, stage.left
        self.effort.tick("listing views")
        self.looked += 1
        used = node.used
        which = _WHICH.get(primitive)
        if which is not None:  # primitives of the user's own have no separate budget
            most = self._most[which]
            if most is not None and used[which] >= most:
                return None
            used = (*used[:which], used[which] + 1, *used[which + 1 :])
        if stage.near >= 0:
            # Far from the limit, every view may lead to the input. The distance after a view is guessed first, and
            # computed when the move is taken.
            need = max(0, stage.near + self._further(node, operands, added))
        else:
            # Check the distance first, because most moves lead too far away.
            items = list(stage.sorted_items)
            for place in operands:
                items.remove(stage.items[place])
            flag = WAITING | (STRIDED if primitive == "STRIDE" else MERGEABLE | GIVABLE)
            if primitive == "MERGE":
                flag |= EXPANDABLE
            if self.wishes is not None:
                for place in operands:
                    flag |= stage.items[place] & DEMANDS
            for size in added:
                insort(items, size << FLAG_BITS | flag)
            is_over = not added and stage.is_last
            need = self._steps(items, left - 1, len(node.state.weights), used, node.spent, is_over)
            if need >= left:
                return None
        if primitive in ("SPLIT", "STRIDE") and not self.reach.is_legal(added[0]):
            return None
        favour = 1.0
        if self.wishes is not None and len(operands) == 2:
            first, second = operands  # of an UNFOLD: the main coordinate and the window
            if primitive == "SPLIT":
                favour = self.JOIN if self.wishes.joins(node.items[first], node.items[second]) else 1.0
            elif self.wishes.is_served(node.items[first], node.items[second]):
                favour = self.WINDOW if node.places[second] in node.state.sharing else self.BARE_WINDOW
        return Move(1, need, partial(self._view_edges, view, used, need), favour=favour)

    def _view_edges(self, view: _View, used: tuple[int, ...], need: int) -> Iterator[Edge]:
        """Yield the edges of a view; none if Table 1 or a rule rejects it.

        ``used`` counts views by primitive, with this view; ``need`` is the exact or guessed number of later steps.
        """
        stage, primitive, operands, parameter, added = view
        node, left = stage.node, stage.left
        state = node.state
        label: tuple[Any, ...] = ()
        if stage.alike or node.bound is not None:
            label = self._label(stage, primitive, operands, parameter)
            if not self._keeps_order(stage, label, operands):
                return
        viewed = self._viewed(node, primitive, operands, parameter, added)
        if viewed is None:
            return
        step = viewed.step
        spent = self._add(node.spent, viewed.spent)
        if spent is None:
            return
        passed = [i for i in stage.passed if i not in operands]
        waiting = range(node.passed, stage.active)
        cost = node.cost
        if cost is not None:
            cost = cost.after(step, viewed.results)
            if cost is not node.cost and cost.excess is not None:
                return
        if left == 1:
            yield from self._ends(node, (*passed, *waiting), added, primitive, operands, parameter, 1)
            return
        results = self._results(viewed, state)
        order = self._order_after(stage, primitive, passed, len(results))
        pool = node.looks + results
        looks = tuple([pool[i] for i in order])
        places = tuple([look.coordinate for look in looks])
        after = State(
            self.spec,
            self.fixed + places,
            state.reductions,
            state.weights,
            state.expanded if results else state.expanded + step.operands,
            (*state.steps, step),
        )
        target = SearchNode(after, places, len(passed), used, spent, cost)
        if stage.alike:
            target.bound = (node.features[stage.active], label, tuple(range(len(passed))))
        elif node.bound is not None and any(node.features[i] == node.bound[0] for i in waiting):
            old = node.bound[2]
            target.bound = (*node.bound[:2], tuple([place for place, i in enumerate(order) if i in old]))
        if node.fresh:
            number = len(node.places)
            target.fresh = tuple([i >= number or node.fresh[i] for i in order])
        if primitive == "EXPAND":
            (gone,) = step.operands
            looks = tuple([self._changed(x, after, -1) if x.coordinate.node == gone.node else x for x in looks])
        self._show(target, looks)
        if stage.near >= 0:
            need = self._steps(sorted(target.items), left - 1, len(state.weights), used, spent)
            if need >= left:
                return
        yield Edge(1, primitive, operands, (), parameter, order, self._interned(target), need)

    def _order_after(self, stage: _Stage, primitive: str, passed: list[int], results: int) -> tuple[int, ...]:
        """Return the order of coordinates after a view: passed, waiting, and its results at the front."""
        node = stage.node
        number = len(node.places)
        front = [*range(node.passed, stage.active), *(number + i for i in reversed(range(results)))]
        if primitive == "STRIDE" and stage.alike:
            # STRIDEd coordinates go behind equal reductions, so that equal reductions are side by side.
            feature = node.features[stage.active]
            front.insert(next(at for at, i in enumerate(front) if node.features[i] == feature), front.pop())
        return (*passed, *front)

    def _further(self, node: SearchNode, operands: tuple[int, ...], added: tuple[int, ...]) -> int:
        """Guess by how many steps a view increases the distance, from the input's sizes that it removes or adds."""
        want = self.reach.want
        change = len(added) - len(operands)
        change += 2 * sum([node.packed[i] in want for i in operands]) - 2 * sum([size in want for size in added])
        return max(-1, min(2, change))

    def _label(self, stage: _Stage, primitive: str, operands: tuple[int, ...], parameter: Any) -> tuple[Any, ...]:
        if len(operands) == 1:
            return (primitive, 0, 0, () if parameter is None else parameter.exponents)
        role = operands.index(stage.active)
        return (primitive, role, stage.node.features[operands[1 - role]], ())

    def _keeps_order(self, stage: _Stage, label: tuple[Any, ...], operands: tuple[int, ...]) -> bool:
        """Return whether a reduction's step is not less than the step of the equal reduction before it."""
        bound = stage.node.bound
        if bound is None or bound[0] != stage.node.features[stage.active]:
            return True
        partner = [i for i in operands if i != stage.active]
        is_old = not partner or partner[0] in bound[2]
        return not is_old or label >= bound[1]


@dataclass(slots=True, eq=False)
class _Stage:
    """The foremost waiting coordinate of a stage.

    Attributes:
        node: the node of the sweep.
        active: the index of the coordinate.
        passed: the indices of the coordinates that have passed before the coordinate, sorted by feature.
        items: all coordinates in the form for the distance.
        sorted_items: ``items``, sorted.
        alike: whether the coordinate is a reduction and an equal reduction still waits.
        is_last: whether no other coordinate waits.
        near: the node's distance if it is far below the limit, else -1.
        left: the number of remaining steps.
    """

    node: SearchNode
    active: int
    passed: tuple[int, ...]
    items: list[int]
    sorted_items: list[int]
    alike: bool
    is_last: bool
    near: int
    left: int


class _View(NamedTuple):
    """A view at a stage: the indices of its operands, its parameter, and the packed sizes of its results."""

    stage: _Stage
    primitive: str
    operands: tuple[int, ...]
    parameter: Size | None
    added: tuple[int, ...]
