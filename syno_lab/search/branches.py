"""Trees seen from one place: the tree of a search, or the space around a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from syno_lab.inputs import count_of

Kind = Literal["open", "operator", "dead end", "pruned", "done"]


@dataclass(frozen=True, slots=True)
class Branch:
    """The facts about one place.

    Attributes:
        key: names it.
        text: the step that leads to it.
        kind: ``open``, ``operator`` (complete), ``dead end`` (no operator can be completed), ``pruned`` (a rule rejects
            the step), ``done`` (nothing is left to be tried below).
        visits, outstanding, fruitless: searches through it that ended with a reward, wait for one, found no operator.
        reward, best: the mean and the highest of the rewards below; None where there is none.
        distance: how far an operator is at least; None where it is out of reach, or that is not known.
        reason: why it is pruned or a dead end.
        probe: of an operator the score of its probe, from 0 to about 1; None where it was not probed.
        measure: what the distance is called; the ``distance`` of the system's Labels where one system is known.
    """

    key: str
    text: str
    kind: Kind = "open"
    visits: int = 0
    outstanding: int = 0
    fruitless: int = 0
    reward: float | None = None
    best: float | None = None
    distance: int | None = None
    reason: str = ""
    probe: float | None = None
    measure: str = "distance"

    @property
    def searches(self) -> int:
        """All searches through it."""
        return self.visits + self.outstanding + self.fruitless

    @property
    def words(self) -> str:
        """All of it in one sentence, for people who do not see the picture."""
        parts: list[str] = [self.kind] if self.kind != "open" else []
        if self.searches:
            parts.append(count_of(self.searches, "search", "searches"))
        if self.outstanding:
            parts.append(f"{self.outstanding} under way")
        if self.fruitless:
            parts.append(f"{self.fruitless} without an operator")
        if self.reward is not None and self.best is not None:
            parts.append(f"mean reward {self.reward:.4g}, best {self.best:.4g}")
        if self.distance is not None:
            parts.append(f"{self.measure} {self.distance}")
        if self.probe is not None:
            parts.append(f"probe {self.probe:.2f}")
        if self.reason:
            parts.append(self.reason)
        return f"{self.text}: {', '.join(parts)}" if parts else self.text


class Branching(Protocol):
    """What branches: places by keys, the first of them ``root``."""

    @property
    def root(self) -> str:
        """Where it begins."""

    def branch(self, key: str) -> Branch:
        """The facts about a place. Raises KeyError for a place that does not exist."""

    def above(self, key: str) -> str | None:
        """The place before; None for the first."""

    def below(self, key: str) -> Sequence[str]:
        """The places right behind it, what matters most first."""

    def weight(self, key: str) -> float:
        """How wide it is beside its siblings."""
