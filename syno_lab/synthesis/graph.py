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
from functools import partial
from itertools import product
from math import prod
from random import Random
from typing import Any, NamedTuple

from syno_lab.ir.coordinate import Coordinate, Node
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.size import Size
from syno_lab.ir.state import State, Step, Weight
from syno_lab.synthesis.nodes import LIMITED, STAYS, Edge, Gift, Move, SearchNode
from syno_lab.synthesis.reach import DEMANDS, EXPANDABLE, FLAG_BITS, GIVABLE, MERGEABLE, NEVER, STRIDED, WAITING
from syno_lab.synthesis.roots import Roots
from syno_lab.synthesis.space import step_cost

__all__ = ["NEVER", "Edge", "Graph", "Move", "SearchNode"]

#: Choices of a CONTRACTION that are listed at one node; where there are more they are met one by one, or drawn.
MOST_CONTRACTIONS = 4_096
_DRAWN = 128  # choices that stand for all of them, when a walk takes one
_WHICH = {primitive: which for which, primitive in enumerate(LIMITED)}


class Graph(Roots):
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

        Raises:
            EffortError: for what exceeds the graph's effort.
        """
        found = node.moves.get(left)
        if found is None:
            found = node.moves[left] = list(self._moves(node, left))
            self.listed += len(found)
        return found

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
            mine = node.features[active]
            if left:
                is_reduction = self._is_reduction[mine]
                if not (is_reduction and mine in passed_reductions):
                    alike = is_reduction and mine in node.features[node.passed : active]
                    stage = _Stage(node, active, passed, items, alike, near if is_far else -1, left)
                    for view in self._views(stage):
                        move = self._view_move(view)
                        if move is not None:
                            yield move
                if is_reduction:
                    passed_reductions.add(mine)
            items[active] &= STAYS
            keys = [node.features[i] for i in passed]
            passed.insert(bisect_right(keys, mine), active)
            is_over = active == node.passed
            if not is_far and self._steps(sorted(items), left, weights, node.used, node.spent, is_over) > left:
                return
        if number == len(self._axes) and tuple(sorted(node.packed)) == self.reach.want:
            yield Move(0, 0, partial(self._ends, node, tuple(range(number)), (), "", (), None, 0))
        if left and weights < self.most_weights:
            yield from self._gifts(node, passed, left, near if is_far else -1, rng)

    def _ends(
        self,
        node: SearchNode,
        places: tuple[int, ...],
        added: tuple[int, ...],
        primitive: str,
        operands: tuple[int, ...],
        parameter: Any,
        cost: int,
        given: tuple[int, ...] = (),
        weights: int | None = None,
    ) -> Iterator[Edge]:
        """The operators that are complete with the coordinates at ``places`` and results of sizes ``added``.

        One for each way to match them with the input's axes (section 7.1: transposition).
        """
        axes = self._axes
        count = len(places) + len(added)
        if count != len(axes):
            return
        if (len(node.state.weights) if weights is None else weights) < self.limits.min_weights:
            return
        number = len(node.packed)
        have = [(node.packed[i], i) for i in places] + [(p, number + i) for i, p in enumerate(added)]
        wishes, made = self.wishes, 0
        if wishes is not None:
            for place in operands:
                made |= node.items[place]

        def fill(axis: int, taken: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            self.effort.tick("matching axes of the input")
            if axis == count:
                yield taken
                return
            tried = set()
            for size, place in have:
                if size != axes[axis] or place in taken:
                    continue
                if place < number and self._is_reduction[node.features[place]]:
                    if node.features[place] in tried:
                        continue
                    tried.add(node.features[place])
                if place < number and node.items[place] & STRIDED:
                    return
                if wishes is not None and wishes.unmet(self._own[axis], node.items[place] if place < number else made):
                    continue
                made_by = node.places[place].node.primitive if place < number else primitive
                if self._is_free[axis] and made_by == "SHIFT":
                    continue  # see syno_lab.synthesis.unordered
                yield from fill(axis + 1, (*taken, place))

        for order in fill(0, ()):
            yield Edge(cost, primitive, operands, given, parameter, order, None, 0)

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
        which = _WHICH[primitive]
        most = self._most[which]
        used = node.used
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
        if not self._is_legal(primitive, added):
            return None
        favour = 1.0
        if self.wishes is not None and len(operands) == 2:
            one, other = operands  # of an UNFOLD the main coordinate and the window
            if primitive == "SPLIT":
                favour = self.JOIN if self.wishes.joins(node.items[one], node.items[other]) else 1.0
            elif self.wishes.is_served(node.items[one], node.items[other]):
                favour = self.WINDOW if node.places[other] in node.state.sharing else self.BARE_WINDOW
        return Move(1, need, partial(self._view_edges, view, used, need), favour=favour)

    def _view_edges(self, view: _View, used: tuple[int, ...], need: int) -> Iterator[Edge]:
        """The edges of one view; none where Table 1 or a rule rejects it.

        ``used`` are the views of each primitive after it, ``need`` the steps that it leaves, or a guess of them.
        """
        stage, primitive, operands, parameter, added = view
        node, left = stage.node, stage.left
        state = node.state
        step = Step(primitive, tuple([node.places[i] for i in operands]), parameter)
        spent = node.spent
        if parameter is not None:
            found = self._add(spent, step_cost(step))
            if found is None:
                return
            spent = found
        label: tuple[Any, ...] = ()
        if stage.alike or node.bound is not None:
            label = self._label(stage, primitive, operands, parameter)
            if not self._keeps_order(stage, label, operands):
                return
        for match in self._matches[primitive]:
            if match(state, step):
                return
        passed = [i for i in stage.passed if i not in operands]
        waiting = range(node.passed, stage.active)
        results: tuple[Coordinate, ...] = ()
        if left > 1:
            sizes = PRIMITIVES[primitive].result_sizes(tuple(c.size for c in step.operands), parameter)
            made = Node(primitive, step.operands, parameter)
            results = tuple([Coordinate(made, i, size) for i, size in enumerate(sizes)])
        cost = node.cost
        if cost is not None:
            cost = cost.after(step, results)
            if cost is not node.cost and cost.excess is not None:
                return
        if left == 1:
            yield from self._ends(node, (*passed, *waiting), added, primitive, operands, parameter, 1)
            return
        order = self._order_after(stage, primitive, passed, len(results))
        pool = node.places + results
        places = tuple([pool[i] for i in order])
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
        self._look(target, node, order)
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
            mine = node.features[stage.active]
            front.insert(next(at for at, i in enumerate(front) if node.features[i] == mine), front.pop())
        return (*passed, *front)

    def _further(self, node: SearchNode, operands: tuple[int, ...], added: tuple[int, ...]) -> int:
        """A guess of how much further a view leads away: it undoes or makes coordinates that the input has."""
        want = self.reach.want
        change = len(added) - len(operands)
        change += 2 * sum([node.packed[i] in want for i in operands]) - 2 * sum([size in want for size in added])
        return max(-1, min(2, change))

    def _is_legal(self, primitive: str, added: tuple[int, ...]) -> bool:
        return primitive not in ("SPLIT", "STRIDE") or self.reach.is_legal(added[0])

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

    # -- contractions ------------------------------------------------------------------------------------------------

    def _gift_groups(self, node: SearchNode, places: Iterable[int]) -> list[list[int]]:
        """Which coordinates a contraction may take, those together of which any one will do: reductions alike."""
        groups: list[list[int]] = []
        alike: dict[int, list[int]] = {}
        for place in places:
            mine = node.features[place]
            if node.items[place] & STRIDED:
                continue
            if not self._is_reduction[mine]:
                groups.append([place])
            elif mine in alike:
                alike[mine].append(place)
            else:
                groups.append(alike.setdefault(mine, [place]))
        return groups

    def _gift_room(self, node: SearchNode, groups: list[list[int]], left: int) -> list[tuple[list[int], int, int]]:
        """Of each group how many are given at least and at most; none of any where no gift will do."""
        if left != 1:
            return [(group, 0, len(group)) for group in groups]
        extra = list(node.packed)  # then just what the input lacks is given
        for size in self.reach.want:
            if size not in extra:
                return []
            extra.remove(size)
        room = []
        for group in groups:
            size = node.packed[group[0]]
            is_all = extra.count(size) == node.packed.count(size)
            room.append((group, len(group) if is_all else 0, len(group) if size in extra else 0))
        return room

    def _gifts(self, node: SearchNode, passed: list[int], left: int, near: int, rng: Random | None) -> Iterator[Move]:
        """Every contraction at the end of a stage, begun: what it gives away. Reductions alike go by their number.

        With ``rng`` some of them at random, where there are too many to list.
        """
        room = self._gift_room(node, self._gift_groups(node, passed), left)
        if not room:
            return
        groups = [group for group, _, _ in room]
        weights = len(node.state.weights) + 1
        total = sum(node.packed) - self._total
        number_given = len(node.packed) - len(self.reach.want)
        what = f"listing CONTRACTIONs of {len(passed)} coordinates"
        for gifts in _counts([(least, most) for _, least, most in room], rng):
            self.effort.tick(what)
            given = tuple([place for group, number in zip(groups, gifts, strict=True) for place in group[:number]])
            if left == 1 and len(given) != number_given:
                continue
            # Enough elements must stay for the input.
            rest_of_total = total - sum([node.packed[i] for i in given])
            if rest_of_total and not self.reach.is_legal(rest_of_total):
                continue
            if near >= 0:
                need = max(0, near - len(given))
            else:
                # Which of the rest are shared, and so wait anew, is not chosen yet.
                items = sorted([_after_share(item) for i, item in enumerate(node.items) if i not in given])
                need = self._steps(items, left - 1, weights, node.used, node.spent)
                if need >= left:
                    continue
            spent = self._taken(node.spent, node, given)
            if spent is None:
                continue
            if given:
                step = Step("SHARE", (), None, tuple([node.places[i] for i in given]))
                if node.cost is not None and node.cost.after(step, ()).excess is not None:
                    continue
                if any(match(node.state, step) for match in self._given):
                    continue
            rest = [group[number:] for group, number in zip(groups, gifts, strict=True)]
            width = 1
            for group in rest:
                width *= len(group) + 1
            if width > 1:
                gift = Gift(node, tuple(passed), given, [group for group in rest if group], spent)
                yield Move(0, need + 1, partial(self._give, gift), width - 1)

    def _give(self, gift: Gift) -> Iterator[Edge]:
        """A contraction begun, as a node of its own."""
        node = gift.node
        target = SearchNode(node.state, node.places, node.passed, node.used, node.spent, node.cost)
        target.features, target.packed, target.items, target.roots = (
            node.features,
            node.packed,
            node.items,
            node.roots,
        )
        target.gift = gift
        yield Edge(0, "", (), gift.given, None, tuple(range(len(node.places))), target, 1)

    def _sharings(self, gift: Gift, left: int, rng: Random | None = None) -> Iterator[Move]:
        """What the contraction that has been begun shares; with ``rng`` some of it at random.

        It takes something new since the last contraction; or it follows that at once, and is not less.
        """
        node = gift.node
        state = node.state
        is_new_needed = bool(state.weights) and not node.is_contracted
        before: tuple[list[Any], tuple[Coordinate, ...]] | None = None
        if node.is_contracted:
            last = state.weights[-1]
            before = (sorted(c.size.exponents for c in last.coordinates), last.shared)
        has_new = is_new_needed and any(node.fresh[i] for i in gift.given)
        what = f"listing CONTRACTIONs of {len(node.places)} coordinates"
        for counts in _counts([(0, len(group)) for group in gift.rest], rng):
            self.effort.tick(what)
            shared = tuple([i for group, number in zip(gift.rest, counts, strict=True) for i in group[:number]])
            if shared and (not is_new_needed or has_new or any(node.fresh[i] for i in shared)):
                yield Move(1, 0, partial(self._share, gift, shared, left, before))

    def _taken(self, spent: tuple[int, ...], node: SearchNode, places: tuple[int, ...]) -> tuple[int, ...] | None:
        """Occurrences after a weight has taken these; where limits do not bind weights, as before."""
        if not self._binding_weights:
            return spent
        for place in places:
            found = self._add(spent, self.spec.weight_cost(node.places[place].size))
            if found is None:
                return None
            spent = found
        return spent

    def _share(
        self,
        gift: Gift,
        shared: tuple[int, ...],
        left: int,
        before: tuple[list[Any], tuple[Coordinate, ...]] | None,
    ) -> Iterator[Edge]:
        node, passed, given, spent = gift.node, gift.passed, gift.given, gift.spent
        state = node.state
        after_spent = self._taken(spent, node, shared)
        if after_spent is None:
            return
        operands = tuple([node.places[i] for i in shared])
        gifts = tuple([node.places[i] for i in given])
        if before is not None:
            sizes = sorted(c.size.exponents for c in operands + gifts)
            if sizes < before[0] and any(c not in gifts for c in before[1]):
                return
        step = Step("SHARE", operands, None, gifts)
        for match in self._matches["SHARE"]:
            if match(state, step):
                return
        cost = node.cost
        if cost is not None:
            cost = cost.after(step, ())
            if cost.excess is not None:
                return
        weights = len(state.weights) + 1
        if left == 1:
            stay = tuple([i for i in passed if i not in given])
            yield from self._ends(node, stay, (), "SHARE", shared, None, 1, given, weights)
            return
        touched = set(shared)
        if node.is_contracted:
            touched.update(range(node.passed, len(node.places)))
        untouched = [i for i in passed if i not in touched and i not in given]
        # Those that wait anew: reductions behind the others, those that look alike side by side.
        waiting = [i for i in passed if i in touched and i not in given]
        waiting.sort(key=lambda i: (not self._is_reduction[node.features[i]], node.features[i], i in shared))
        order = (*untouched, *waiting)
        places = tuple([node.places[i] for i in order])
        after = State(
            self.spec,
            self.fixed + places,
            state.reductions,
            (*state.weights, Weight(operands, gifts)),
            state.expanded,
            (*state.steps, step),
        )
        target = SearchNode(after, places, len(untouched), node.used, after_spent, cost)
        self._look(target)
        if weights < self.most_weights:
            target.is_contracted = True
            target.fresh = (False,) * len(places)
        need = self._steps(sorted(target.items), left - 1, weights, node.used, after_spent)
        if need < left:
            yield Edge(1, "SHARE", shared, given, None, order, self._interned(target), need)


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

    __slots__ = ("active", "alike", "is_last", "items", "left", "near", "node", "passed", "sorted_items")

    def __init__(
        self, node: SearchNode, active: int, passed: list[int], items: list[int], alike: bool, near: int, left: int
    ) -> None:
        self.node = node
        self.active = active
        self.passed = tuple(passed)
        self.items = items
        self.sorted_items = sorted(items)
        self.alike = alike
        self.is_last = active == node.passed
        self.near = near
        self.left = left


class _View(NamedTuple):
    """A view at a stage: the places of its operands, its parameter, and the packed sizes of its results."""

    stage: _Stage
    primitive: str
    operands: tuple[int, ...]
    parameter: Size | None
    added: tuple[int, ...]


def _counts(room: list[tuple[int, int]], rng: Random | None) -> Iterator[tuple[int, ...]]:
    """How many of each group: every choice, or some at random, each time with another share of them all."""
    if rng is None or prod(most - least + 1 for least, most in room) <= MOST_CONTRACTIONS:
        yield from product(*(range(least, most + 1) for least, most in room))
        return
    seen = set()
    for _ in range(_DRAWN):
        share = rng.random()
        counts = tuple([least + sum([rng.random() < share for _ in range(most - least)]) for least, most in room])
        if counts not in seen:
            seen.add(counts)
            yield counts


def _after_share(item: int) -> int:
    """An item of which is not known yet whether the contraction shares it."""
    return item if item & STRIDED else (item & ~(EXPANDABLE | MERGEABLE)) | GIVABLE | WAITING
