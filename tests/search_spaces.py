"""Spaces that are no pGraphs, with everything about them known: search knows a state by its protocol alone."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import combinations, product

from syno_lab.ir.spec import Spec
from syno_lab.search.protocol import Step, Taken


@dataclass(frozen=True)
class Words:
    """Words of ``length`` letters: no way on from those in ``dead``, and those in ``refused`` are no operators."""

    letters: str = "abc"
    length: int = 3
    dead: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    word: str = ""

    @property
    def key(self) -> Hashable:
        return self.word

    @property
    def is_complete(self) -> bool:
        return len(self.word) == self.length

    def children(self) -> list[Taken]:
        if self.is_complete or self.word in self.dead:
            return []
        return [Taken(self._step(letter)) for letter in self.letters]

    def _step(self, letter: str) -> Step:
        state = Words(self.letters, self.length, self.dead, self.refused, self.word + letter)
        return Step(letter, (f"{letter}{len(self.word)}",), state)

    def operator(self) -> str | None:
        return None if self.word in self.refused else self.word

    def traits(self) -> dict[str, int]:
        return {}

    def towards(self, operator: str) -> list[Step]:
        if self.is_complete or not operator.startswith(self.word) or len(operator) != self.length:
            return []
        return [self._step(operator[len(self.word)])] if operator[len(self.word)] in self.letters else []

    def all(self) -> set[str]:
        words = {"".join(word) for word in product(self.letters, repeat=self.length)}
        return {w for w in words - self.refused if not any(w.startswith(dead) for dead in self.dead)}


@dataclass(frozen=True)
class Sets:
    """Sets of ``length`` letters, chosen one by one in any order: many ways to each state."""

    letters: str = "abcde"
    length: int = 3
    chosen: frozenset[str] = field(default_factory=frozenset)

    @property
    def key(self) -> Hashable:
        return self.chosen

    @property
    def is_complete(self) -> bool:
        return len(self.chosen) == self.length

    def children(self) -> list[Taken]:
        return (
            []
            if self.is_complete
            else [Taken(self._step(letter)) for letter in self.letters if letter not in self.chosen]
        )

    def _step(self, letter: str) -> Step:
        return Step(letter, (letter,), Sets(self.letters, self.length, self.chosen | {letter}))

    def operator(self) -> frozenset[str]:
        return self.chosen

    def traits(self) -> dict[str, int]:
        return {}

    def towards(self, operator: frozenset[str]) -> list[Step]:
        return [self._step(letter) for letter in self.letters if letter in operator - self.chosen]

    def all(self) -> set[frozenset[str]]:
        return {frozenset(found) for found in combinations(self.letters, self.length)}


#: Small specs that are searched whole: with a contraction, views alone, and budgets that refuse some.
SPECS = {
    "two weights": Spec.parse(
        "[C, H]",
        "[D, H]",
        ["C=12: 1", "D=21: 0", "H=5: 0"],
        ["k=3: 1"],
        max_primitives=4,
        max_tensors=3,
        max_reduces=2,
        max_expands=0,
        max_shifts=1,
        max_strides=0,
    ),
    "views": Spec.parse(
        "[s*H]", "[H]", ["H=63: 0"], ["s=3: 2"], max_primitives=4, max_tensors=2, max_reduces=2, min_weights=0
    ),
    "few FLOPs": Spec.parse(
        "[C, H]",
        "[D, H]",
        ["C=12: 1", "D=21: 0", "H=5: 0"],
        ["k=3: 1"],
        max_primitives=4,
        max_tensors=3,
        max_reduces=2,
        max_flops=3000,
    ),
}
