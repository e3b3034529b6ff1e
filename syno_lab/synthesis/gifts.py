"""The moves of a stage of the search graph that are no views: contractions, and ends of pGraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from math import prod
from random import Random
from typing import Any

from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.state import State, Step, Weight
from syno_lab.synthesis.nodes import Edge, Gift, Move, SearchNode
from syno_lab.synthesis.reach import EXPANDABLE, GIVABLE, MERGEABLE, STRIDED, WAITING
from syno_lab.synthesis.roots import Roots

#: The limit of listed choices of a CONTRACTION at one node; more choices are generated one by one, or drawn.
MOST_CONTRACTIONS = 4_096
_DRAWN = 128  # the number of choices that a walk draws instead of a list of all


class Gifts(Roots):
    """The search graph with its contractions."""

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
        """Yield the complete operators with the coordinates at ``places`` and results of sizes ``added``.

        There is one operator for each match with the input's axes (section 7.1: transposition).
        """
        axes = self._axes
        count = len(places) + len(added)
        if count != len(axes):
            return
        if (len(node.state.weights) if weights is None else weights) < self.limits.min_weights:
            return
        number = len(node.packed)
        have = [(node.packed[i], i) for i in places] + [(p, number + i) for i, p in enumerate(added)]
        wishes, bits = self.wishes, 0
        if wishes is not None:
            for place in operands:
                bits |= node.items[place]

        def fill(axis: int, chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            self.effort.tick("matching axes of the input")
            if axis == count:
                yield chosen
                return
            tried = set()
            for size, place in have:
                if size != axes[axis] or place in chosen:
                    continue
                if place < number and self._is_reduction[node.features[place]]:
                    if node.features[place] in tried:
                        continue
                    tried.add(node.features[place])
                if place < number and node.items[place] & STRIDED:
                    return
                if wishes is not None and wishes.unmet(self._own[axis], node.items[place] if place < number else bits):
                    continue
                made_by = node.places[place].node.primitive if place < number else primitive
                if self._is_free[axis] and made_by == "SHIFT":
                    continue  # see syno_lab.synthesis.orders
                yield from fill(axis + 1, (*chosen, place))

        for order in fill(0, ()):
            yield Edge(cost, primitive, operands, given, parameter, order, None, 0)

    def _gift_groups(self, node: SearchNode, places: Iterable[int]) -> list[list[int]]:
        """Group the coordinates that a contraction may take; a group is a coordinate, or all equal reductions."""
        groups: list[list[int]] = []
        alike: dict[int, list[int]] = {}
        for place in places:
            feature = node.features[place]
            if node.items[place] & STRIDED:
                continue
            if not self._is_reduction[feature]:
                groups.append([place])
            elif feature in alike:
                alike[feature].append(place)
            else:
                groups.append(alike.setdefault(feature, [place]))
        return groups

    def _gift_room(self, node: SearchNode, groups: list[list[int]], left: int) -> list[tuple[list[int], int, int]]:
        """Return for each group the least and largest number of given coordinates; empty if no choice can work."""
        if left != 1:
            return [(group, 0, len(group)) for group in groups]
        extra = list(node.packed)  # in the last step, exactly the surplus over the input is given
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
        """Yield each choice of given coordinates for a contraction after a stage; of equal reductions, choose a number.

        With ``rng``, yield some choices at random if there are too many to list.
        """
        room = self._gift_room(node, self._gift_groups(node, passed), left)
        if not room:
            return
        groups = [group for group, _, _ in room]
        weights = len(node.state.weights) + 1
        total = sum(node.packed) - self._total
        number_given = len(node.packed) - len(self.reach.want)
        message = f"listing CONTRACTIONs of {len(passed)} coordinates"
        for gifts in _counts([(least, most) for _, least, most in room], rng):
            self.effort.tick(message)
            given = tuple([place for group, number in zip(groups, gifts, strict=True) for place in group[:number]])
            if left == 1 and len(given) != number_given:
                continue
            # The data must keep enough elements for the input.
            rest_of_total = total - sum([node.packed[i] for i in given])
            if rest_of_total and not self.reach.is_legal(rest_of_total):
                continue
            if near >= 0:
                need = max(0, near - len(given))
            else:
                # The shared coordinates, which wait again, are not chosen yet.
                items = sorted([_after_share(item) for i, item in enumerate(node.items) if i not in given])
                need = self._steps(items, left - 1, weights, node.used, node.spent)
                if need >= left:
                    continue
            spent = self._spent_after(node.spent, node, given)
            if spent is None:
                continue
            if given:
                if not self._may_share(node, (), given):
                    continue
                if node.cost is not None:
                    step = Step("SHARE", (), None, tuple([node.places[i] for i in given]))
                    if node.cost.after(step, ()).excess is not None:
                        continue
            rest = [group[number:] for group, number in zip(groups, gifts, strict=True)]
            width = prod(len(group) + 1 for group in rest)
            if width > 1:
                gift = Gift(node, tuple(passed), given, [group for group in rest if group], spent)
                yield Move(0, need + 1, partial(self._give, gift), width - 1)

    def _give(self, gift: Gift) -> Iterator[Edge]:
        """Yield the edge to a node where the given coordinates of a contraction are chosen."""
        node = gift.node
        target = SearchNode(node.state, node.places, node.passed, node.used, node.spent, node.cost)
        target.looks, target.features, target.packed = node.looks, node.features, node.packed
        target.items, target.roots = node.items, node.roots
        target.gift = gift
        yield Edge(0, "", (), gift.given, None, tuple(range(len(node.places))), target, 1)

    def _sharings(self, gift: Gift, left: int, rng: Random | None = None) -> Iterator[Move]:
        """Yield the choices of shared coordinates after the choice of given coordinates; with ``rng`` some at random.

        A contraction after a contraction is not less than it; any other takes a coordinate newer than the last weight.
        """
        node = gift.node
        state = node.state
        is_new_needed = bool(state.weights) and not node.is_contracted
        before: tuple[list[Any], tuple[Coordinate, ...]] | None = None
        if node.is_contracted:
            last = state.weights[-1]
            before = (sorted(c.size.exponents for c in last.coordinates), last.shared)
        has_new = is_new_needed and any(node.fresh[i] for i in gift.given)
        message = f"listing CONTRACTIONs of {len(node.places)} coordinates"
        for counts in _counts([(0, len(group)) for group in gift.rest], rng):
            self.effort.tick(message)
            shared = tuple([i for group, number in zip(gift.rest, counts, strict=True) for i in group[:number]])
            if shared and (not is_new_needed or has_new or any(node.fresh[i] for i in shared)):
                yield Move(1, 0, partial(self._share, gift, shared, left, before))

    def _spent_after(self, spent: tuple[int, ...], node: SearchNode, places: tuple[int, ...]) -> tuple[int, ...] | None:
        """Add a weight's coordinates to the occurrences if limits bind weights; return None if over a limit."""
        if not self._binding_weights:
            return spent
        for place in places:
            total = self._add(spent, self.spec.weight_cost(node.places[place].size))
            if total is None:
                return None
            spent = total
        return spent

    def _share(
        self, gift: Gift, shared: tuple[int, ...], left: int, before: tuple[list[Any], tuple[Coordinate, ...]] | None
    ) -> Iterator[Edge]:
        node, passed, given, spent = gift.node, gift.passed, gift.given, gift.spent
        state = node.state
        after_spent = self._spent_after(spent, node, shared)
        if after_spent is None:
            return
        operands = tuple([node.places[i] for i in shared])
        gifts = tuple([node.places[i] for i in given])
        if before is not None:
            sizes = sorted([c.size.exponents for c in operands + gifts])
            if sizes < before[0] and any(c not in gifts for c in before[1]):
                return
        if not self._may_share(node, shared, given):
            return
        step = Step("SHARE", operands, None, gifts)
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
        # The order of coordinates that wait again: reductions last, equal reductions side by side.
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
        number = len(state.weights)
        self._show(
            target,
            tuple([self._changed(node.looks[i], after, number) if i in shared else node.looks[i] for i in order]),
        )
        if weights < self.most_weights:
            target.is_contracted = True
            target.fresh = (False,) * len(places)
        need = self._steps(sorted(target.items), left - 1, weights, node.used, after_spent)
        if need < left:
            yield Edge(1, "SHARE", shared, given, None, order, self._interned(target), need)


def _counts(room: list[tuple[int, int]], rng: Random | None) -> Iterator[tuple[int, ...]]:
    """Yield how many coordinates to take of each group: all choices, or random choices with a random share of all."""
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
    """Return an item for a coordinate that the contraction may or may not share."""
    return item if item & STRIDED else (item & ~(EXPANDABLE | MERGEABLE)) | GIVABLE | WAITING
