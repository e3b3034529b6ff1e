"""The moves from the root of the search graph: multisets of REDUCEs, which may be too many to list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import islice
from random import Random

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import reduce_coordinate
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.nodes import Edge, Move, Nodes, SearchNode
from syno_lab.synthesis.reach import EXPANDABLE, FLAG_BITS, GIVABLE, MERGEABLE, WAITING
from syno_lab.synthesis.rules import RULES, rules_for
from syno_lab.synthesis.space import reduce_sizes, step_cost

#: The limit of listed multisets of REDUCEs; more multisets are generated one by one, or drawn.
MOST_MULTISETS = 20_000
_DRAWN = 48  # the number of multisets that a walk draws instead of a list of all
_TRIALS = 6 * _DRAWN

_Chosen = tuple[tuple[int, ...], tuple[int, ...]]  # the indices of the chosen sizes, and the used occurrences


class Roots(Nodes):
    """The search graph at its root: every multiset of REDUCEs is one move."""

    #: With wishes, `LONG_WAY` divides a multiset's probability for each additional step of its shortest way.
    #: `NO_WINDOW` multiplies the probability for each wished window that no REDUCE of the multiset can be.
    LONG_WAY = 6.0
    NO_WINDOW = 0.02

    @cached_property
    def _reduces(self) -> list[tuple[Size, int, tuple[int, ...]]]:
        """Return the sizes for REDUCE, each with its packed form and its cost."""
        sizes = reduce_sizes(self.spec, effort=self.effort)
        return [(size, self._pack(size), step_cost(Step("REDUCE", (), size))) for size in sizes]

    @cached_property
    def _root_items(self) -> list[int]:
        """Return the output's coordinates in the form for the distance."""
        flags = WAITING | MERGEABLE | EXPANDABLE | GIVABLE
        has = [0 if self.wishes is None else self.wishes.has(c) for c in self.root.places]
        return [packed << FLAG_BITS | bits | flags for packed, bits in zip(self.root.packed, has, strict=True)]

    @cached_property
    def _reduce_items(self) -> list[int]:
        """Return the coordinate of a REDUCE of each size in the form for the distance."""
        wishes = self.wishes
        has = [0 if wishes is None else wishes.has(reduce_coordinate(0, size)) for size, _, _ in self._reduces]
        return [
            packed << FLAG_BITS | bits | WAITING | MERGEABLE
            for (_, packed, _), bits in zip(self._reduces, has, strict=True)
        ]

    @cached_property
    def _own_reduce_rules(self) -> tuple[Callable[[State, Step], bool], ...]:
        """Return the user's own rules for REDUCE. Multisets obey the built-in rules by construction."""
        return tuple([rule.match for rule in rules_for("REDUCE", self.rules) if rule not in RULES])

    @cached_property
    def _lacking(self) -> dict[int, int]:
        """Map the index of each missing primary variable to its missing occurrences, which only REDUCEs can add."""
        number = len(self.spec.symbols.primary)
        have = [sum(c.size.exponents[i] for c in self.root.places) for i in range(number)]
        want = [sum(self.spec.input_shape[axis].exponents[i] for axis in self._own) for i in range(number)]
        return {i: want[i] - have[i] for i in range(number) if want[i] > have[i]}

    @cached_property
    def _last_with(self) -> dict[int, int]:
        """Return for each missing primary variable the index of the last size for REDUCE with the variable."""
        last = dict.fromkeys(self._lacking, -1)
        for at, (size, _, _) in enumerate(self._reduces):
            for i in last:
                if size.exponents[i]:
                    last[i] = at
        return last

    def _are_roots_vast(self, left: int) -> bool:
        """Return whether there are too many multisets of at most ``left`` REDUCEs to list."""
        most = min(self.limits.max_reduces, left)
        is_vast = self._vast.get(most)
        if is_vast is None:
            number = sum(1 for _ in islice(self._multisets(0, most), MOST_MULTISETS + 1))
            is_vast = self._vast[most] = number > MOST_MULTISETS
        return is_vast

    def _from_root(self, left: int) -> Iterator[Move]:
        """Yield one move for every multiset of REDUCEs; if there are too many to list, small multisets first."""
        most = min(self.limits.max_reduces, left)
        ranges = [(number, number) for number in range(most + 1)] if self._are_roots_vast(left) else [(0, most)]
        for least, number in ranges:
            for chosen, spent in self._multisets(least, number):
                move = self._root_move(chosen, spent, left)
                if move is not None:
                    yield move

    def _multisets(self, least: int, most: int) -> Iterator[_Chosen]:
        """Yield multisets of ``least`` to ``most`` REDUCEs within the limits that bring all missing variables."""
        reduces, last_with, effort = self._reduces, self._last_with, self.effort
        message = f"choosing REDUCEs among {len(reduces)} sizes"

        def choose(
            start: int, chosen: tuple[int, ...], spent: tuple[int, ...], lacking: dict[int, int]
        ) -> Iterator[_Chosen]:
            effort.tick(message)
            if len(chosen) >= least and not lacking:
                yield chosen, spent
            room = most - len(chosen)
            if not room or sum(lacking.values()) > room:
                return
            end = min((last_with[i] + 1 for i in lacking), default=len(reduces))
            for at in range(start, end):
                size, _, cost = reduces[at]
                more = self._add(spent, cost)
                if more is not None:
                    rest = lacking
                    for i in lacking:
                        if size.exponents[i]:
                            rest = {j: n - (i == j) for j, n in rest.items() if n > (i == j)}
                    yield from choose(at, (*chosen, at), more, rest)

        yield from choose(0, (), self.root.spent, self._lacking)

    def _drawn_roots(self, left: int, rng: Random) -> list[Move]:
        """Draw some multisets with a uniform number of REDUCEs: first sizes with missing variables, then any sizes."""
        reduces, lacking = self._reduces, self._lacking
        with_it = {i: [at for at, (size, _, _) in enumerate(reduces) if size.exponents[i]] for i in lacking}
        least, most = sum(lacking.values()), min(self.limits.max_reduces, left)
        moves: dict[tuple[int, ...], Move] = {}
        for _ in range(_TRIALS if least <= most and all(with_it.values()) else 0):
            self.effort.tick(f"drawing REDUCEs among {len(reduces)} sizes")
            chosen = [rng.choice(with_it[i]) for i, number in lacking.items() for _ in range(number)]
            chosen += [rng.randrange(len(reduces)) for _ in range(rng.randint(least, most) - least)]
            spent: tuple[int, ...] | None = self.root.spent
            for at in chosen:
                spent = None if spent is None else self._add(spent, reduces[at][2])
            key = tuple(sorted(chosen))
            if spent is not None and key not in moves:
                move = self._root_move(key, spent, left)
                if move is not None:
                    moves[key] = move
                    if len(moves) == _DRAWN:
                        break
        return list(moves.values())

    def _root_move(self, chosen: tuple[int, ...], spent: tuple[int, ...], left: int) -> Move | None:
        """Return the move of a multiset; None if the distance, a budget or a rule excludes it."""
        node = self.root
        items = list(self._root_items)
        items += [self._reduce_items[at] for at in chosen]
        need = self._steps(sorted(items), left - len(chosen), 0, node.used, spent)
        if len(chosen) + need > left:
            return None
        sizes = tuple([self._reduces[at][0] for at in chosen])
        if self.meter is not None and self.meter.start(sizes).excess is not None:
            return None
        if self._refuses(sizes):
            return None
        favour = 1.0
        if self.wishes is not None:
            favour = self.LONG_WAY ** -(len(chosen) + need) * self.NO_WINDOW ** self.wishes.short(items)
        return Move(len(chosen), need, partial(self._reduce, node, sizes, spent, need), 1, sizes, favour)

    def _refuses(self, sizes: tuple[Size, ...]) -> bool:
        """Return whether a user's rule refuses one of the REDUCEs when they are taken in order."""
        if not self._own_reduce_rules:
            return False
        added = tuple([reduce_coordinate(number, size) for number, size in enumerate(sizes)])
        steps = tuple([Step("REDUCE", (), size) for size in sizes])
        for number, step in enumerate(steps):
            places = self.fixed + self.root.places + added[:number]
            state = State(self.spec, places, added[:number], (), (), steps[:number])
            if any(refuses(state, step) for refuses in self._own_reduce_rules):
                return True
        return False

    def _reduce(self, node: SearchNode, sizes: tuple[Size, ...], spent: tuple[int, ...], need: int) -> Iterator[Edge]:
        added = tuple([reduce_coordinate(number, size) for number, size in enumerate(sizes)])
        steps = tuple([Step("REDUCE", (), size) for size in sizes])
        places = node.places + added
        # Reductions wait behind the outputs; reductions of one size are side by side.
        order = tuple(sorted(range(len(places)), key=lambda i: (i < len(node.places), -i)))
        state = State(self.spec, self.fixed + places, added, (), (), steps)
        cost = None if self.meter is None else self.meter.start(sizes)
        if cost is not None and not cost.can_exceed():
            cost = None
        target = SearchNode(state, tuple([places[i] for i in order]), 0, node.used, spent, cost)
        self._show(target, tuple([self._leaf(state, place) for place in target.places]))
        yield Edge(len(sizes), "REDUCE", (), (), sizes, order, self._interned(target), need)
