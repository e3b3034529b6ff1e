"""The protocol of a search space and its operators: all that search algorithms know of them.

A space is its first :class:`State`. Search asks a state for its children and never looks inside, so whatever has states
can be searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from syno_lab.protocol import SearchStep


class State(Protocol):
    """A partial operator, or a complete one."""

    @property
    def key(self) -> Hashable:
        """Partial states with one key have the same future and share statistics; complete ones are one operator."""

    @property
    def is_complete(self) -> bool:
        """Whether an operator ends here; a complete state has no children."""

    def children(self) -> Sequence[Child]:
        """What may be done next, in a fixed order; none at a dead end."""

    def operator(self) -> Any | None:
        """The (hashable) operator of a complete state; None where it is outside the space after all: a hard limit."""

    def traits(self) -> Mapping[str, int]:
        """What a complete state is: words with numbers of 0 or more, alike for what does alike. May be {}."""

    def towards(self, operator: Any) -> Sequence[Step]:
        """The steps from here that may lead to ``operator``; none where it is not in this space."""


@dataclass(frozen=True)
class Step(SearchStep):
    """One step that has been looked at.

    Attributes:
        state: where it leads.
    """

    state: State

    @property
    def record(self) -> SearchStep:
        """The step without its state."""
        return SearchStep(self.name, self.actions, steps=self.steps, words=self.words)


#: Steps that follow one another.
Steps = tuple[Step, ...]


#: How often each word occurs.
Bag = Counter[str]


def bag(steps: Iterable[SearchStep]) -> Bag:
    """How often each word occurs in the steps taken."""
    found: Bag = Counter()
    for step in steps:
        for word, number in step.counted:
            found[word] += number
    return found


class Child(Protocol):
    """A step that may be taken; looking closer may take time and turn out none, or several."""

    @property
    def weight(self) -> float:
        """How likely it is taken when nothing else is known; positive."""

    def steps(self) -> Sequence[Step]:
        """What it turns out to be; the same each time."""


@dataclass(frozen=True)
class Taken:
    """A child that is just one step."""

    step: Step
    weight: float = 1.0

    def steps(self) -> Sequence[Step]:
        """The step."""
        return (self.step,)


@dataclass(frozen=True)
class Candidate:
    """An operator to be evaluated.

    Attributes:
        number: of the question, from 0 on.
        operator: what the space gave.
        taken: the steps that lead to it.
    """

    number: int
    operator: Any
    taken: tuple[SearchStep, ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps."""
        return tuple(step.name for step in self.taken)


@dataclass(frozen=True)
class Trail:
    """The steps from the root to a complete state."""

    steps: Steps

    @property
    def end(self) -> State:
        """The complete state."""
        return self.steps[-1].state

    @property
    def records(self) -> tuple[SearchStep, ...]:
        """The steps without their states."""
        return tuple(step.record for step in self.steps)
