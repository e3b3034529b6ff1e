"""The operators that a search has evaluated as a space of their own: every reward in it is known.

Searches are compared on it, and simulated, with what real trainings gave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from syno_lab.protocol import SearchStep
from syno_lab.search.protocol import Child, Step, Taken

#: The names of the steps that lead to an operator: they stand for it.
Steps = tuple[str, ...]


def recorded_space(
    trials: Iterable[Sequence[SearchStep]], traits: Mapping[Steps, Mapping[str, int]] | None = None
) -> RecordedState:
    """The first state of the space of the ``trials``, each the steps taken; its operators are the steps' names.

    ``traits``: those of the operators, where they were recorded.
    """
    known = {_names(taken): tuple(taken) for taken in trials}
    return RecordedState((), tuple([known[names] for names in sorted(known)]), traits or {})


def _names(taken: Iterable[SearchStep]) -> Steps:
    return tuple([step.name for step in taken])


@dataclass(frozen=True)
class RecordedState:
    """The first steps of some recorded operators (:class:`syno_lab.search.protocol.State`).

    Attributes:
        before: the names of the steps taken.
        below: all steps of each operator that began with them, in the order of their names.
        known_traits: traits by operator.
    """

    before: Steps
    below: tuple[tuple[SearchStep, ...], ...]
    known_traits: Mapping[Steps, Mapping[str, int]] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> Hashable:
        """The steps taken."""
        return self.before

    @property
    def is_complete(self) -> bool:
        """Whether a recorded operator ends here; none goes on from the end of another."""
        return len(self.below) == 1 and len(self.below[0]) == len(self.before)

    def children(self) -> Sequence[Child]:
        """The steps that recorded operators took next."""
        if self.is_complete:
            return ()
        depth = len(self.before)
        found = {taken[depth].name: taken[depth] for taken in self.below if len(taken) > depth}
        likely = Counter(taken[depth].name for taken in self.below if len(taken) > depth)
        return [Taken(self._step(found[name]), float(likely[name])) for name in sorted(found)]

    def operator(self) -> Steps | None:
        """The steps themselves."""
        return self.before if self.is_complete else None

    def traits(self) -> Mapping[str, int]:
        """Those that were recorded."""
        return self.known_traits.get(self.before, {})

    def towards(self, operator: Steps) -> Sequence[Step]:
        """The next step of ``operator``, where it is one of the recorded."""
        if self.is_complete:
            return ()
        depth = len(self.before)
        return [self._step(taken[depth]) for taken in self.below if _names(taken) == operator]

    def _step(self, step: SearchStep) -> Step:
        depth, before = len(self.before), (*self.before, step.name)
        below = tuple([taken for taken in self.below if len(taken) > depth and taken[depth].name == step.name])
        return Step(
            step.name, step.actions, RecordedState(before, below, self.known_traits), steps=step.steps, words=step.words
        )
