"""The operators that a search has evaluated as a space of their own: every reward in it is known.

Searches are compared on it, and simulated, with what real trainings gave.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from syno_lab.search.protocol import Child, Step

#: An action in the name of a step of :mod:`.space`: a primitive with its sizes, and how often.
_ACTION = re.compile(r"[A-Z]+\([^()]*\)(?:x\d+)?|END")

Steps = tuple[str, ...]


def recorded_space(trials: Iterable[Sequence[str]]) -> RecordedState:
    """The first state of the space of the ``trials``, each the names of its steps; its operators are those tuples."""
    return RecordedState((), tuple(sorted({tuple(steps) for steps in trials})))


def actions_of(name: str) -> tuple[str, ...]:
    """What a step does, from its name: as :mod:`.space` had it when the step was taken."""
    return tuple(_ACTION.findall(name.partition(" @")[0]))


@dataclass(frozen=True)
class RecordedState:
    """The first steps of some recorded operators (:class:`syno_lab.search.protocol.State`)."""

    before: Steps
    below: tuple[Steps, ...]

    @property
    def key(self) -> Hashable:
        """The steps taken."""
        return self.before

    @property
    def is_complete(self) -> bool:
        """Whether a recorded operator ends here; none goes on from the end of another."""
        return self.below == (self.before,)

    def children(self) -> Sequence[Child]:
        """The steps that recorded operators took next."""
        if self.is_complete:
            return ()
        depth = len(self.before)
        names = sorted({steps[depth] for steps in self.below if len(steps) > depth})
        return [_Child(self._step(name)) for name in names]

    def operator(self) -> Steps | None:
        """The steps themselves."""
        return self.before if self.is_complete else None

    def traits(self) -> Mapping[str, int]:
        """Nothing: what is recorded are the steps."""
        return {}

    def towards(self, operator: Steps) -> Sequence[Step]:
        """The next step of ``operator``, where it is one of the recorded."""
        depth = len(self.before)
        if operator not in self.below or self.is_complete:
            return ()
        return [self._step(operator[depth])]

    def _step(self, name: str) -> Step:
        depth = len(self.before)
        below = tuple([steps for steps in self.below if len(steps) > depth and steps[depth] == name])
        return Step(name, actions_of(name), RecordedState((*self.before, name), below))


@dataclass(frozen=True)
class _Child:
    """A step, as likely as operators lie behind it."""

    step: Step

    @property
    def weight(self) -> float:
        state = self.step.state
        assert isinstance(state, RecordedState)
        return float(len(state.below))

    def steps(self) -> Sequence[Step]:
        return [self.step]
