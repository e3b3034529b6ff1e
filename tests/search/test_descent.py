"""Descents from the root: an end is found where there is none more, and a place without any is left."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable
from dataclasses import dataclass

import pytest
from search_spaces import Taken, Words

from syno_lab.search import descent
from syno_lab.search.descent import Facts, draw
from syno_lab.search.protocol import Step


@dataclass(frozen=True)
class Trap:
    """One place in fifty has the operator; the others are the beginnings of trees of 2^60 dead ends."""

    place: str = ""

    @property
    def key(self) -> Hashable:
        return self.place

    @property
    def is_complete(self) -> bool:
        return self.place == "49,"

    def children(self) -> list[Taken]:
        below = ["l", "r"] if len(self.place) < 60 else []
        names = below if self.place else [f"{number}," for number in range(50)]
        return [Taken(Step(name, (name,), Trap(self.place + name))) for name in names]

    def operator(self) -> str:
        return "the operator"

    def traits(self) -> dict[str, int]:
        return {}

    def towards(self, operator: str) -> list[Step]:
        return []


def test_a_place_without_operators_is_left(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    monkeypatch.setattr(descent, "ATTEMPTS", 0)
    met = itertools.count()
    # Some 1,000 beginnings: all of them are in vain by chance once in 10^8 times.
    found = draw(Trap(), rng, Facts(), set(), lambda: next(met) > 150_000)
    assert found is not None
    assert found[1] == "the operator"


@pytest.mark.parametrize("attempts", [0, 200])
def test_a_space_without_more_ends(attempts: int, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    monkeypatch.setattr(descent, "ATTEMPTS", attempts)
    words, facts = Words("abc", 5, dead=frozenset({"ab", "c"})), Facts()
    known: set[int] = set()
    found = set()
    while (one := draw(words, rng, facts, known)) is not None:
        found.add(one[1])
        known.add(hash(one[1]))
    assert found == words.all()
