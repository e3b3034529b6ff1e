"""The search space as a graph: interned states, and for each pGraph one way to it from the root.

A state is a set, so the same pGraph can be reached in many orders. Here it is built in one: REDUCEs first, then stages
of views with contractions between them. A stage is a *sweep*: its coordinates wait in a row; the foremost either passes
or is the operand of a view whose other operand has passed already, and results go to the front. A view therefore stands
in the earliest stage that has its operands, at the moment the last of them is looked at, and nowhere else. After a
contraction only the coordinates that it shares wait anew. Reductions of one size that nothing tells apart are kept in
order by what is done with them: those that begin a view before those that pass.

Two states that rules cannot tell apart (:mod:`syno_lab.synthesis.features`) are one node, with one state to stand for
both; an edge says which coordinates it uses by their places, so it can be replayed on either.
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

    #: Steps to spare from which on the distance of a move is guessed.
    SPARE = 3
    #: How much likelier an UNFOLD is that brings what is wished; and while no weight has its window, so that one weight
    #: is for all that it reads.
    WINDOW = 40.0
    BARE_WINDOW = 2.0
    #: The same of a SPLIT that joins what would be two axes, and has to be taken apart again.
    JOIN = 0.05

    # -- edges -------------------------------------------------------------------------------------------------------

    def moves(self, node: SearchNode, left: int) -> list[Move]:
        """The moves from ``node`` after which the input may still be reached in ``left`` steps, in a fixed order.

        Raises EffortError for what exceeds the graph's effort.
        """
        moves = node.moves.get(left)
        if moves is None:
            moves = node.moves[left] = list(self._moves(node, left))
            self._holders.append(node)
            self.listed += len(moves)
        return moves

    def each_move(self, node: SearchNode, left: int) -> Iterable[Move]:
        """As :meth:`moves`, one by one and kept nowhere where there are too many to list."""
        return self._moves(node, left) if self.is_vast(node, left) else self.moves(node, left)

    def some_moves(self, node: SearchNode, left: int, rng: Random) -> list[Move]:
        """All moves from ``node``; where there are too many to list, some at random."""
        if not self.is_vast(node, left):
            return self.moves(node, left)
        if node is self.root:
            return self._drawn_roots(left, rng)
        if node.gift is not None:
            return list(self._sharings(node.gift, left, rng))
        return list(self._from(node, left, rng))

    def edges(self, node: SearchNode, left: int) -> Iterator[Edge]:
        """The edges of all moves from ``node``."""
        for move in self.each_move(node, left):
            yield from move.edges()

    def is_vast(self, node: SearchNode, left: int) -> bool:
        """Whether a node has too many moves to list."""
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
        """What the waiting coordinates may do, each after those in front of it have passed; then what ends a stage."""
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
        """Every view that may begin with the active coordinate: with itself alone, or with one that has passed."""
        node, active, left = stage.node, stage.active, stage.left
        c = node.places[active]
        item = stage.items[active]
        packed = node.packed[active]
        # The last step leaves the input's number of axes and of elements.
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
            if self._is_reduction[look]:  # of those that look alike any one will do
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
        """The move of one view; None where the distance or a budget rules it out."""
        stage, primitive, operands, _, added = view
        node, left = stage.node, stage.left
        self.effort.tick("listing views")
        self.looked += 1
        used = node.used
        which = _WHICH.get(primitive)
        if which is not None:  # primitives of the user's own have no budget of their own
            most = self._most[which]
            if most is not None and used[which] >= most:
                return None
            used = (*used[:which], used[which] + 1, *used[which + 1 :])
        if stage.near >= 0:
            # Far from the limit every view may lead to the input; the distance is a guess then, and computed when the
            # move is taken.
            need = max(0, stage.near + self._further(node, operands, added))
        else:
            # The distance comes first: most moves lead too far away.
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
            first, second = operands  # of an UNFOLD the main coordinate and the window
            if primitive == "SPLIT":
                favour = self.JOIN if self.wishes.joins(node.items[first], node.items[second]) else 1.0
            elif self.wishes.is_served(node.items[first], node.items[second]):
                favour = self.WINDOW if node.places[second] in node.state.sharing else self.BARE_WINDOW
        return Move(1, need, partial(self._view_edges, view, used, need), favour=favour)

    def _view_edges(self, view: _View, used: tuple[int, ...], need: int) -> Iterator[Edge]:
        """The edges of one view; none where Table 1 or a rule rejects it.

        ``used`` are the views of each primitive after it, ``need`` the steps that it leaves, or a guess of them.
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
        """The coordinates after a view: those that have passed, those that wait, and its results at the front."""
        node = stage.node
        number = len(node.places)
        front = [*range(node.passed, stage.active), *(number + i for i in reversed(range(results)))]
        if primitive == "STRIDE" and stage.alike:
            # Behind the reductions that look alike: then those that are STRIDEd stand side by side.
            feature = node.features[stage.active]
            front.insert(next(at for at, i in enumerate(front) if node.features[i] == feature), front.pop())
        return (*passed, *front)

    def _further(self, node: SearchNode, operands: tuple[int, ...], added: tuple[int, ...]) -> int:
        """A guess of how much further a view leads away: it undoes or makes coordinates that the input has."""
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
        """Whether a reduction may do this after what the one before it, which looks alike, has done."""
        bound = stage.node.bound
        if bound is None or bound[0] != stage.node.features[stage.active]:
            return True
        partner = [i for i in operands if i != stage.active]
        is_old = not partner or partner[0] in bound[2]
        return not is_old or label >= bound[1]


@dataclass(slots=True, eq=False)
class _Stage:
    """One coordinate at the front of a sweep.

    Attributes:
        node: where the sweep is.
        active: the place of the coordinate.
        passed: the places of the coordinates that have passed before it, by their features.
        items: all coordinates as the distance sees them.
        sorted_items: the same, sorted.
        alike: whether it is a reduction, and another that looks alike still waits.
        is_last: whether no other coordinate waits.
        near: the node's distance where it is far below the limit, else -1.
        left: the steps that are left.
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
    """A view at a stage: the places of its operands, its parameter, and the packed sizes of its results."""

    stage: _Stage
    primitive: str
    operands: tuple[int, ...]
    parameter: Size | None
    added: tuple[int, ...]
