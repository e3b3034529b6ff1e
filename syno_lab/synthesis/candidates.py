"""The next steps of a state, each with its verdict and the shape distance after it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, overload

from syno_lab.common.size import Size
from syno_lab.effort import Effort, Stop
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.budgets import Excess, cost_of, excess, meter_of
from syno_lab.synthesis.distance import distances_after
from syno_lab.synthesis.property_distance import wish_verdicts
from syno_lab.synthesis.rules import RULES, Rule, Rules, rules_for
from syno_lab.synthesis.space import Contractions, proposals_in_parts, room_for_contractions

if TYPE_CHECKING:
    from syno_lab.synthesis.rewrites_parts import Rewrite


@dataclass(frozen=True)
class Verdict:
    """Whether a step is canonical; if not, the rule that rejects the step and the rewrite of the rule.

    If no rule rejects a step but all operators after it exceed a budget, ``rejected_by`` is a row of kind ``budget``.
    The row's name is the budget's name, and the row's reason has the bound and the limit. If no operator after the step
    meets the wishes, ``rejected_by`` is a row of kind ``wish``, and its reason names the wishes that cannot be met.

    Explanations are computed on access, so that search does not pay for them.

    Attributes:
        rejected_by: the rule; None for a canonical step.
        state: the state in which the step was proposed.
        step: the step.
    """

    rejected_by: Rule | None = None
    state: State | None = field(default=None, compare=False, repr=False)
    step: Step | None = field(default=None, compare=False, repr=False)

    @property
    def canonical(self) -> bool:
        """Return whether no rule rejects the step."""
        return self.rejected_by is None

    @property
    def rule(self) -> str | None:
        """Return the name of the rejecting rule."""
        return self.rejected_by.name if self.rejected_by else None

    @property
    def reason(self) -> str | None:
        """Return the reason in one sentence."""
        return self.rejected_by.reason if self.rejected_by else None

    @cached_property
    def rewrite(self) -> Rewrite | None:
        """Return the rule's rewrite over wildcards; None for a canonical step and for a rule without a formula.

        ``rewrite.sympy()`` returns the two sides as sympy expressions; the wildcards stand for ``rewrite.bottoms``.
        """
        from syno_lab.synthesis.rewrites import rewrite

        if self.rejected_by is None or self.state is None or self.step is None:
            return None
        return rewrite(self.rejected_by.name, self.state, self.step)

    @property
    def before(self) -> str | None:
        """Return the proposed expression over wildcards ``#0``, ``#1``, ...; without a rewrite, the rule's own text."""
        if self.rewrite is not None:
            return self.rewrite.texts()[0]
        return self.rejected_by.before if self.rejected_by else None

    @property
    def after(self) -> str | None:
        """Return the canonical expression for the same function, in the form of :attr:`before`."""
        if self.rewrite is not None:
            return self.rewrite.texts()[1]
        return self.rejected_by.after if self.rejected_by else None

    @property
    def latex(self) -> str | None:
        """Return the two expressions as LaTeX for display mathematics; None without a :attr:`rewrite`."""
        return None if self.rewrite is None else self.rewrite.latex()

    @cached_property
    def differing(self) -> float | None:
        """Return, for an approximate rule, the share of elements that differ between its sides (first binding).

        The result is None for other rules (an exact rule's sides are equal), without a :attr:`rewrite` and without a
        binding. Raises SynoError for too many elements; ``rewrite.differing`` accepts a smaller binding.
        """
        if self.rejected_by is None or self.rejected_by.kind != "approximate" or self.rewrite is None:
            return None
        assert self.state is not None
        bindings = self.state.spec.binding_maps
        return self.rewrite.differing(bindings[0]) if bindings else None


class Candidate:
    """A next step.

    Attributes:
        step: the step.
        distance: the distance after the step; None if the input is then out of reach.
    """

    __slots__ = ("_judge", "_verdict", "distance", "step")

    def __init__(self, step: Step, judge: Callable[[Step], Verdict], distance: int | None) -> None:
        self.step = step
        self.distance = distance
        self._judge = judge
        self._verdict: Verdict | None = None

    @property
    def verdict(self) -> Verdict:
        """Return whether the step is canonical, and why not; the first access computes the verdict."""
        if self._verdict is None:
            self._verdict = self._judge(self.step)
        return self._verdict

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Candidate):
            return NotImplemented
        return (self.step, self.distance, self.verdict) == (other.step, other.distance, other.verdict)

    def __hash__(self) -> int:
        return hash((self.step, self.distance))

    def __repr__(self) -> str:
        return f"Candidate({self.step!r}, distance={self.distance})"

    @property
    def primitive(self) -> str:
        """Return the primitive's name."""
        return self.step.primitive

    @property
    def operands(self) -> tuple[Coordinate, ...]:
        """Return the bottom coordinates; for SHARE the shared coordinates."""
        return self.step.operands

    @property
    def given(self) -> tuple[Coordinate, ...]:
        """Return the coordinates given to the new weight; empty for other primitives than SHARE."""
        return self.step.given

    @property
    def parameter(self) -> Size | None:
        """Return the size parameter if the primitive has one."""
        return self.step.parameter


class Candidates(Sequence[Candidate]):
    """All next steps of a state, the nearest to the input first; a step is created when it is accessed.

    The number of steps and the distances are computed at the start. Steps of equal distance are sorted by primitive,
    with contractions last; contractions that give away few coordinates come first.
    """

    def __init__(self, state: State, rules: tuple[Rule, ...], effort: Effort) -> None:
        self.state = state
        self._effort = effort
        distance = distances_after(state, effort=effort)
        self._parts: list[tuple[int | None, Sequence[Step]]] = []  # all steps of a part have one distance
        for part in proposals_in_parts(state):
            effort.tick("listing the next steps")
            if isinstance(part, Step):
                self._parts.append((distance(part), (part,)))
            elif len(part):
                self._parts.append((distance(Step("SHARE", (), None, part.given)), part))
        self._parts.sort(key=_nearness)
        self._ends = list(accumulate(len(part) for _, part in self._parts))
        self._judge = _Judge(state, rules, effort)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, at: int) -> Candidate: ...
    @overload
    def __getitem__(self, at: slice) -> list[Candidate]: ...
    def __getitem__(self, at: int | slice) -> Candidate | list[Candidate]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        place = range(len(self))[at]
        number = bisect_right(self._ends, place)
        far, part = self._parts[number]
        return Candidate(part[place - self._ends[number] + len(part)], self._judge, far)

    def __iter__(self) -> Iterator[Candidate]:
        judge = self._judge
        for far, part in self._parts:
            for step in part:
                yield Candidate(step, judge, far)

    def places(self) -> dict[str, list[range]]:
        """Return the index ranges of each primitive's candidates, the nearest to the input first."""
        ranges: dict[str, list[range]] = {}
        for (_, part), end in zip(self._parts, self._ends, strict=True):
            primitive = part[0].primitive if len(part) == 1 else "SHARE"
            ranges.setdefault(primitive, []).append(range(end - len(part), end))
        return ranges

    def of_contraction(self, shared: Iterable[Coordinate], given: Iterable[Coordinate]) -> Candidate | None:
        """Return the CONTRACTION of these coordinates; None if the space has none."""
        wanted = set(shared), set(given)
        for far, part in self._parts:
            if isinstance(part, Contractions) and set(part.given) == wanted[1]:
                return next((Candidate(s, self._judge, far) for s in part if set(s.operands) == wanted[0]), None)
        return None


def _nearness(part: tuple[int | None, Sequence[Step]]) -> tuple[bool, int, bool]:
    far, steps = part
    return far is None, far or 0, isinstance(steps, Contractions)


def candidates(
    state: State, rules: Rules | None = None, *, effort: Effort | None = None, should_stop: Stop | None = None
) -> Candidates:
    """Compute :meth:`.State.candidates`."""
    with (effort or Effort()).within(should_stop=should_stop) as watched:
        watched.make_room(*room_for_contractions(state))
        return Candidates(state, RULES if rules is None else rules, watched)


class _Judge:
    """Computes the verdicts on steps from one state."""

    def __init__(self, state: State, rules: tuple[Rule, ...], effort: Effort) -> None:
        self._state = state
        self._effort = effort
        self._rules = {primitive: rules_for(primitive, rules) for primitive in PRIMITIVES}
        self._of_given: dict[tuple[Coordinate, ...], tuple[int, Rule | None]] = {}

    @cached_property
    def _budget(self) -> Callable[[Step], Rule | None]:
        return _budget_after(self._state)

    @cached_property
    def _wish(self) -> Callable[[Step], Rule | None]:
        return wish_verdicts(self._state)

    def __call__(self, step: Step) -> Verdict:
        state = self._state
        self._effort.tick("judging the next steps")
        rules = self._rules[step.primitive]
        last = None
        if step.primitive == "SHARE":
            number, last = self._rejecting_given(step.given)
            rules = rules[:number]
        for rule in rules:
            if rule.match(state, step):
                return Verdict(rule, state, step)
        return Verdict(last or self._budget(step) or self._wish(step), state, step)

    def _rejecting_given(self, given: tuple[Coordinate, ...]) -> tuple[int, Rule | None]:
        """Return (index, rule) of the first rule that rejects all steps with these given coordinates, or (count, None).

        Only rules with :attr:`.Rule.is_of_given` are checked here, once for all sets of shared coordinates.
        """
        if given not in self._of_given:
            rules, bare = enumerate(self._rules["SHARE"]), Step("SHARE", (), None, given)
            found = ((number, rule) for number, rule in rules if rule.is_of_given and rule.match(self._state, bare))
            self._of_given[given] = next(found, (len(self._rules["SHARE"]), None))
        return self._of_given[given]


def _budget_after(state: State) -> Callable[[Step], Rule | None]:
    """Return a function that judges steps from ``state`` by the budgets of FLOPs, parameters and memory."""
    meter = meter_of(state.spec)
    if meter is None:
        return lambda step: None
    cost = cost_of(state, meter)
    if cost.excess is not None:
        over = _as_rule(cost.excess)
        return lambda step: over

    can_exceed = cost.can_exceed()

    def after(step: Step) -> Rule | None:
        exceeded = None
        if step.primitive == "REDUCE":
            exceeded = excess(state.apply(step))
        elif not cost.is_closed or (can_exceed and step.primitive in ("SHARE", "UNFOLD", "EXPAND")):
            # A step of another primitive than REDUCE adds no cost itself, but ends the REDUCEs.
            exceeded = cost.after(step, ()).excess
        return None if exceeded is None else _as_rule(exceeded)

    return after


def _as_rule(over: Excess) -> Rule:
    before, after = f"operators of {over.bound:,} and more", f"operators of at most {over.limit:,}"
    if over.name == "min_flops":
        before, after = f"operators of at most {over.bound:,}", f"operators of {over.limit:,} and more"
    return Rule(over.name, before, after, f"{over}.", "7.2", "budget", lambda state, step: True)
