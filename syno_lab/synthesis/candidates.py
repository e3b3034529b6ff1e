"""The next steps of a state, each with its verdict and the shape distance that it leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from syno_lab.effort import Effort, Stop
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.size import Size
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.budgets import Excess, cost_of, excess, meter_of
from syno_lab.synthesis.distance import distances_after
from syno_lab.synthesis.property_distance import wish_verdicts
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule, rules_for
from syno_lab.synthesis.space import proposals, room_for_contractions

if TYPE_CHECKING:
    from syno_lab.synthesis.rewrites_parts import Rewrite


@dataclass(frozen=True)
class Verdict:
    """Whether a step is canonical, and if not, the rule that rejects it and what it rewrites.

    Where no rule does, but every operator that the step leads to is beyond a budget, ``rejected_by`` is a row of kind
    ``budget``: its name is the budget's, its reason has the bound and the limit. Where none meets the wishes, it is a
    row of kind ``wish``, whose reason says what cannot be read any more.

    Explanations are made when they are asked for, so that search does not pay for them.

    Attributes:
        rejected_by: the rule; None for a canonical step.
        state: the state that the step was proposed in.
        step: the step.
    """

    rejected_by: Rule | None = None
    state: State | None = field(default=None, compare=False, repr=False)
    step: Step | None = field(default=None, compare=False, repr=False)

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

    @cached_property
    def rewrite(self) -> Rewrite | None:
        """What the rule rewrites here, over wildcards; None for a canonical step and where a rule has no formula.

        ``rewrite.sympy()`` gives both sides as sympy expressions, ``rewrite.bottoms`` what the wildcards stand for.
        """
        from syno_lab.synthesis.rewrites import rewrite

        if self.rejected_by is None or self.state is None or self.step is None:
            return None
        return rewrite(self.rejected_by.name, self.state, self.step)

    @property
    def before(self) -> str | None:
        """The expression as proposed, over wildcards ``#0``, ``#1``, ...; else the rule's own words."""
        if self.rewrite is not None:
            return self.rewrite.texts()[0]
        return self.rejected_by.before if self.rejected_by else None

    @property
    def after(self) -> str | None:
        """The canonical expression for the same function, as in :attr:`before`."""
        if self.rewrite is not None:
            return self.rewrite.texts()[1]
        return self.rejected_by.after if self.rejected_by else None

    @property
    def latex(self) -> str | None:
        """Both expressions as LaTeX for display mathematics; None where there is no :attr:`rewrite`."""
        return None if self.rewrite is None else self.rewrite.latex()

    @cached_property
    def differing(self) -> float | None:
        """For an approximate rule the share of the elements on which the two sides differ, under the first binding.

        None for other rules (the sides of an exact one are equal), without a :attr:`rewrite` and without a binding.

        Raises:
            SynoError: when there are too many elements to compare; ``rewrite.differing`` takes a smaller binding.
        """
        if self.rejected_by is None or self.rejected_by.kind != "approximate" or self.rewrite is None:
            return None
        assert self.state is not None
        bindings = self.state.spec.binding_maps
        return self.rewrite.differing(bindings[0]) if bindings else None


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


def candidates(
    state: State, rules: tuple[Rule, ...] = RULES, *, effort: Effort | None = None, should_stop: Stop | None = None
) -> list[Candidate]:
    """Every legal next step that budgets of steps allow, with its verdict and distance.

    Args:
        state: where the steps begin.
        rules: what is canonical.
        effort: what it may take; by default half of the machine's free memory, and any time.
        should_stop: asked often; once it says so there is no answer.

    Raises:
        EffortError: when it was stopped, or would take more than it may.
    """
    with (effort or Effort()).within(should_stop=should_stop) as watched:
        return _candidates(state, rules, watched)


def _candidates(state: State, rules: tuple[Rule, ...], effort: Effort) -> list[Candidate]:
    effort.make_room(*room_for_contractions(state))
    distance = distances_after(state, effort=effort)
    budget, wish = _budget_after(state), wish_verdicts(state)
    asked = {primitive: rules_for(primitive, rules) for primitive in PRIMITIVES}
    found = []
    for step in proposals(state):
        effort.tick("listing the next steps")
        rule = next((rule for rule in asked[step.primitive] if rule.match(state, step)), None)
        found.append(Candidate(step, Verdict(rule or budget(step) or wish(step), state, step), distance(step)))
    return found


def _budget_after(state: State) -> Callable[[Step], Rule | None]:
    """A function that gives the verdict of FLOPs, parameters and memory on a step from ``state``."""
    meter = meter_of(state.spec)
    if meter is None:
        return lambda step: None
    cost = cost_of(state, meter)
    if cost.excess is not None:
        over = _as_rule(cost.excess)
        return lambda step: over

    can_exceed = cost.can_exceed()

    def after(step: Step) -> Rule | None:
        found = None
        if step.primitive == "REDUCE":
            found = excess(state.apply(step))
        elif not cost.is_closed or (can_exceed and step.primitive in ("SHARE", "UNFOLD", "EXPAND")):
            # What other primitives add costs nothing by itself, but after it no REDUCE may come.
            found = cost.after(step, ()).excess
        return None if found is None else _as_rule(found)

    return after


def _as_rule(found: Excess) -> Rule:
    before, after = f"operators of {found.bound:,} and more", f"operators of at most {found.limit:,}"
    if found.name == "min_flops":
        before, after = f"operators of at most {found.bound:,}", f"operators of {found.limit:,} and more"
    return Rule(found.name, before, after, f"{found}.", "7.2", "budget", lambda state, step: True)


def canonical_successors(state: State, rules: tuple[Rule, ...] = RULES) -> Iterator[tuple[Step, State]]:
    """The canonical next steps with the states they lead to, without explanations: what search uses."""
    for step in proposals(state):
        if rejecting_rule(state, step, rules) is None:
            yield step, state.apply(step)
