"""The protocol of trees that are shown: the tree of a search, or the space around a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from syno_lab.inputs import count_of

Kind = Literal["open", "operator", "dead end", "pruned", "done"]


@dataclass(frozen=True, slots=True)
class Branch:
    """The facts about one node.

    Attributes:
        key: the key of the node.
        text: the step that leads to the node.
        kind: ``open``, ``operator`` (complete), ``dead end`` (no operator can be completed), ``pruned`` (a rule rejects
            the step), ``done`` (nothing is left to try below).
        visits, outstanding, fruitless: numbers of searches through the node: rewarded, waiting, without an operator.
        reward, best: the mean and the highest reward below the node; None without rewards.
        distance: a lower bound of the number of steps to an operator; None without a bound or a reachable operator.
        reason: why the node is pruned or a dead end.
        probe: the score of the operator's probe, from 0 to about 1; None without a probe.
        measure: the name of the distance: ``distance`` in the system's Labels if the system is known.
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
        """Return the number of all searches through the node."""
        return self.visits + self.outstanding + self.fruitless

    @property
    def words(self) -> str:
        """Return all facts in one sentence, as a text alternative of the picture."""
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
    """A tree of nodes with keys; the first node is ``root``."""

    @property
    def root(self) -> str:
        """Return the key of the first node."""

    def branch(self, key: str) -> Branch:
        """Return the facts about a node. Raises KeyError for a node that does not exist."""

    def above(self, key: str) -> str | None:
        """Return the key of a node's parent; None for the first node."""

    def below(self, key: str) -> Sequence[str]:
        """Return the keys of the children, the most important first."""

    def weight(self, key: str) -> float:
        """Return the relative width of a node among its siblings in the picture."""
