"""Where walks begin: which REDUCEs and how many steps, how much is counted there, and how many paths are taken."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar

from syno_lab.synthesis.graph import Graph, Move

Chance = Callable[[Move], float]


@dataclass(eq=False)
class Beginnings(ABC):
    """Chooses where walks begin, and learns from what they found.

    Args:
        graph: the space.
        most: steps of a path.
        rng: the source of chance.
        affordable: how much rarer a multiset of REDUCEs is taken since it exceeds the budget of FLOPs by itself, 1 for
            one that does not.
        weight: how likely a move is taken where moves are drawn by weight.
    """

    #: Steps left at which what lies ahead is counted whatever it takes.
    SMALL: ClassVar[int]

    graph: Graph
    most: int
    rng: random.Random
    affordable: Chance
    weight: Chance

    @abstractmethod
    def deal(self) -> tuple[Move, int] | None:
        """The REDUCEs of the next walk, and the most steps of a path; None where there are none of that length."""

    @abstractmethod
    def room(self) -> tuple[int, int]:
        """The nodes that the next walk may add to the graph, and the most paths that it takes."""

    @abstractmethod
    def note(self, nodes: int, paths: int) -> None:
        """The walk that was dealt last has added so many nodes and counted so many paths."""

    @abstractmethod
    def reward(self, new: int) -> None:
        """So many paths of that walk were new."""

    @abstractmethod
    def forget(self) -> None:
        """The graph has forgotten its nodes."""


@dataclass(eq=False)
class Deck(Beginnings):
    """Every multiset of REDUCEs in turn, and few paths from one place: draws that spread.

    First how many REDUCEs, each number once before any comes again; then which of those multisets, likewise. What gave
    nothing new when it was there is passed over the more often, and so are REDUCEs that are not affordable. The length
    is drawn evenly. One walk takes at most :data:`FEW` paths, or a hundredth of what was drawn before: where many
    are asked for, no place gives more than one in a hundred of them.
    """

    SMALL = 1  # a node, and no others: at two there can be a hundred behind it
    FEW = 4
    NODES_A_PATH = 8
    MOST_NODES = 3_000
    MOST_PATHS = 4_000
    #: Multisets that are passed over before one is taken all the same.
    PASSED = 200
    #: How likely at least one is taken that gave nothing new.
    HOPE = 1 / 64

    def __post_init__(self) -> None:
        self._in_vain: Counter[Hashable] = Counter()  # by REDUCEs and by length
        self._last: tuple[Hashable, ...] = ()
        self._drawn = 0
        self.forget()

    def forget(self) -> None:
        """Begin the round anew: a card that is left would hold nodes that the graph has forgotten."""
        self._all: dict[int, list[Move]] = {}
        self._numbers: list[int] = []  # of REDUCEs, those that are still to come
        self._cards: dict[int, list[Move]] = {}  # of each number the multisets that are

    def deal(self) -> tuple[Move, int] | None:
        """See :class:`Beginnings`."""
        rng = self.rng
        for passed in range(self.PASSED + 1):
            if not self._numbers:
                self._begin_round()
                if not self._numbers:
                    return None
            number = self._numbers.pop()
            if not self._cards.get(number):
                self._cards[number] = rng.sample(self._all[number], len(self._all[number]))
            move = self._cards[number].pop()
            if passed == self.PASSED or rng.random() < self.affordable(move) * self._hope(move.sizes):
                break
        lengths = range(move.cost + move.need, self.most + 1)
        (most,) = rng.choices(lengths, [self._hope(length) for length in lengths])
        self._last = (most, move.sizes)
        return move, most

    def _begin_round(self) -> None:
        """Every number of REDUCEs comes once more; of too many multisets to list, others than before."""
        root = self.graph.root
        if not self._all or self.graph.is_vast(root, self.most):
            self._all = {}
            for move in self.graph.some_moves(root, self.most, self.rng):
                self._all.setdefault(move.cost, []).append(move)
        self._numbers = self.rng.sample(list(self._all), len(self._all))

    def room(self) -> tuple[int, int]:
        """See :class:`Beginnings`."""
        paths = min(self.MOST_PATHS, max(self.FEW, self._drawn // 100))
        return min(self.MOST_NODES, self.NODES_A_PATH * paths), paths

    def note(self, nodes: int, paths: int) -> None:
        """See :class:`Beginnings`."""
        if paths:
            self._drawn += min(paths, self.room()[1])
        else:
            self.reward(0)

    def reward(self, new: int) -> None:
        """See :class:`Beginnings`."""
        for key in self._last:
            self._in_vain[key] = 0 if new else self._in_vain[key] + 1

    def _hope(self, key: Hashable) -> float:
        return max(2.0 ** -min(self._in_vain[key], 9), self.HOPE)


@dataclass(eq=False)
class Worthwhile(Beginnings):
    """Where most was found for the time it took: the fastest way to many operators, and to many that are alike.

    One walk lists the neighbourhood of a place.
    """

    SMALL = 2
    #: Nodes that one walk may add to the graph, the first walks fewer, so that the first operators differ widely.
    MOST_NODES = 3_000
    FIRST_NODES = 60
    MOST_PATHS = 4_000
    #: What a walk that finds nothing new costs, in nodes.
    IN_VAIN = 100

    def __post_init__(self) -> None:
        # New paths, and what they cost in nodes and in paths drawn.
        self._history: dict[Hashable, tuple[int, float]] = {}
        self._last: tuple[Hashable, ...] = ()
        self._walks = 0

    def deal(self) -> tuple[Move, int] | None:
        """See :class:`Beginnings`."""
        lengths = range(self.graph.root.shortest or 0, self.most + 1)
        (most,) = self.rng.choices(lengths, [self._worth(length) for length in lengths])
        moves = self.graph.some_moves(self.graph.root, most, self.rng)
        if not moves:
            return None
        weights = [self.weight(move) * self._worth((most, move.sizes)) for move in moves]
        (move,) = self.rng.choices(moves, weights)
        self._last = (most, (most, move.sizes))
        return move, most

    def room(self) -> tuple[int, int]:
        """See :class:`Beginnings`."""
        nodes = self.FIRST_NODES << min(self._walks // 4, 20)
        self._walks += 1
        return min(self.MOST_NODES, nodes), self.MOST_PATHS

    def note(self, nodes: int, paths: int) -> None:
        """See :class:`Beginnings`."""
        for key in self._last:
            gain, cost = self._history.get(key, (0, 0.0))
            self._history[key] = (gain, cost + nodes + min(paths, self.MOST_PATHS) / 4)

    def reward(self, new: int) -> None:
        """See :class:`Beginnings`."""
        for key in self._last:
            gain, cost = self._history.get(key, (0, 0.0))
            self._history[key] = (gain + new, cost if new else cost + self.IN_VAIN)

    def forget(self) -> None:
        """See :class:`Beginnings`: no nodes are held here."""

    def _worth(self, key: Hashable) -> float:
        gain, cost = self._history.get(key, (0, 0.0))
        return (gain + 50) / (cost + 100)
