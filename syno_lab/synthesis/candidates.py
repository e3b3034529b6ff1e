"""The next steps of a state, each with its verdict and the shape distance that it leads to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.size import Size
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule
from syno_lab.synthesis.space import proposals


@dataclass(frozen=True)
class Verdict:
    """Whether a step is canonical, and if not, the rule that rejects it."""

    rejected_by: Rule | None = None

    @property
    def canonical(self) -> bool:
        """Whether no rule rejects the step."""
        return self.rejected_by is None

    @property
    def rule(self) -> str | None:
        """The name of the rejecting rule."""
        return self.rejected_by.name if self.rejected_by else None

    @property
    def reason(self) -> str | None:
        """Why, in one sentence."""
        return self.rejected_by.reason if self.rejected_by else None

    @property
    def before(self) -> str | None:
        """The expression as proposed."""
        return self.rejected_by.before if self.rejected_by else None

    @property
    def after(self) -> str | None:
        """The canonical expression for the same function."""
        return self.rejected_by.after if self.rejected_by else None


@dataclass(frozen=True)
class Candidate:
    """A next step: ``distance`` is that of the state it leads to, None where the input is then out of reach."""

    step: Step
    verdict: Verdict
    distance: int | None

    @property
    def primitive(self) -> str:
        """The primitive's name."""
        return self.step.primitive

    @property
    def operands(self) -> tuple[Coordinate, ...]:
        """The bottom coordinates; for SHARE the shared ones."""
        return self.step.operands

    @property
    def given(self) -> tuple[Coordinate, ...]:
        """The coordinates given to the new weight; empty but for SHARE."""
        return self.step.given

    @property
    def parameter(self) -> Size | None:
        """The size parameter, where the primitive has one."""
        return self.step.parameter


def candidates(state: State, rules: tuple[Rule, ...] = RULES) -> list[Candidate]:
    """Every legal next step within the budgets, with its verdict and distance."""
    return [
        Candidate(step, Verdict(rejecting_rule(state, step, rules)), distance(state.apply(step)))
        for step in proposals(state)
    ]


def canonical_successors(state: State, rules: tuple[Rule, ...] = RULES) -> Iterator[tuple[Step, State]]:
    """The canonical next steps with the states they lead to, without explanations: what search uses."""
    for step in proposals(state):
        if rejecting_rule(state, step, rules) is None:
            yield step, state.apply(step)
