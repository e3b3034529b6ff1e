"""The protocol of a search space and its operators: everything that search algorithms use of a space.

The first :class:`State` of a space represents the space. A search asks a state for its children and never looks inside
the state, so any type with this protocol can be searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from syno_lab.protocol import SearchStep


class State(Protocol):
    """A partial or complete operator."""

    @property
    def key(self) -> Hashable:
        """Identify the state. Equal keys mean equal children and shared statistics, or (if complete) one operator."""

    @property
    def is_complete(self) -> bool:
        """Return whether the state is complete; a complete state has no children."""

    def children(self) -> Sequence[Child]:
        """Return the children in a fixed order; none at a dead end."""

    def operator(self) -> Any | None:
        """Return the (hashable) operator of a complete state; None if a hard limit puts it outside the space."""

    def traits(self) -> Mapping[str, int]:
        """Describe a complete state by words with counts; operators that behave alike have equal traits. May be {}."""

    def towards(self, operator: Any) -> Sequence[Step]:
        """Return the steps from this state that may lead to ``operator``; none if the space lacks the operator."""


@dataclass(frozen=True)
class Step(SearchStep):
    """One step with the state that it leads to.

    Attributes:
        state: the state after the step.
    """

    state: State

    @property
    def record(self) -> SearchStep:
        """Return the step without its state."""
        return SearchStep(self.name, self.actions, steps=self.steps, words=self.words)


#: Consecutive steps.
Steps = tuple[Step, ...]


#: The number of occurrences of each word.
Bag = Counter[str]


def bag(steps: Iterable[SearchStep]) -> Bag:
    """Count each word of the steps."""
    counts: Bag = Counter()
    for step in steps:
        for word, number in step.counted:
            counts[word] += number
    return counts


class Child(Protocol):
    """A possible step of a state; its expansion takes time, and may yield no step, one step or several steps."""

    @property
    def weight(self) -> float:
        """Return the relative probability of the child before anything is learned; positive."""

    def steps(self) -> Sequence[Step]:
        """Expand the child to its steps; the result is always the same."""


@dataclass(frozen=True)
class Taken:
    """A child with exactly one step."""

    step: Step
    weight: float = 1.0

    def steps(self) -> Sequence[Step]:
        """Return the step."""
        return (self.step,)


@dataclass(frozen=True)
class Candidate:
    """An operator to evaluate.

    Attributes:
        number: the number of the candidate in its search, from 0 on.
        operator: the operator from the space.
        taken: the steps that lead to the operator.
    """

    number: int
    operator: Any
    taken: tuple[SearchStep, ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """Return the names of the steps."""
        return tuple(step.name for step in self.taken)


@dataclass(frozen=True)
class Trail:
    """The steps from the root to a complete state."""

    steps: Steps

    @property
    def end(self) -> State:
        """Return the complete state."""
        return self.steps[-1].state

    @property
    def records(self) -> tuple[SearchStep, ...]:
        """Return the steps without their states."""
        return tuple(step.record for step in self.steps)
