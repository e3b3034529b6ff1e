"""The search space around a pGraph: its next steps, canonical and pruned, and theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syno_lab.codegen.drawing import describe_step
from syno_lab.codegen.mixing import wish_verdict
from syno_lab.codegen.text import expressions
from syno_lab.common.probe import beside_convolution
from syno_lab.effort import Effort
from syno_lab.errors import SynoError
from syno_lab.inputs import count_of
from syno_lab.ir.operator import Operator
from syno_lab.ir.state import State
from syno_lab.operators import KNOWN
from syno_lab.pgraphs.probe import probe
from syno_lab.pgraphs.stepping import PGraphSession
from syno_lab.search.around import MOST_STEPS, Found, StepsAround, in_order
from syno_lab.search.branches import Branch, Kind
from syno_lab.synthesis.candidates import Candidate, candidates
from syno_lab.synthesis.distance import distance

_MEASURE = PGraphSession.labels.measure


class Around(StepsAround):
    """The places that can be reached from a pGraph.

    Args:
        state: the first place.
        pruned: whether steps that a rule rejects are places too; these are not expanded.
        rules: of the user's own, beside those of the lab (:meth:`.Session.restrict`).
    """

    def __init__(self, state: State, *, pruned: bool = True, rules: Sequence[Any] = ()) -> None:
        kind, reason = _kind(state)
        words = f"after {count_of(len(state.steps), 'step')}"
        first = Branch(self.root, words, kind, distance=distance(state), reason=reason, measure=_MEASURE)
        super().__init__(state, first, len(state.steps), pruned=pruned)
        self._own = tuple(rules)
        self._rules = self.session().rules

    def session(self, key: str = "start") -> PGraphSession:
        """A session that begins with the pGraph at a place, by the same rules.

        Raises:
            KeyError: for a place that is not there.
        """
        found = PGraphSession(self.state_at(key), KNOWN)
        found.restrict(self._own)
        return found

    def _after(self, state: State, step: Candidate) -> State:
        return state.apply(step.step)

    def look(self, key: str, effort: Effort | None = None) -> Found:
        """The next places of a place; the steps are those nearest to the input.

        Raises:
            EffortError: when the effort does not suffice.
            CodeError: a rule of the user's own fails.
        """
        state = self.state_at(key)
        names = expressions(state)
        left = state.spec.limits.max_primitives - len(state.steps) - 1
        following = candidates(state, self._rules, effort=effort)
        shown: list[tuple[Branch, Candidate]] = []
        judged = 0
        for index, one in enumerate(following):
            if len(shown) == MOST_STEPS:
                break
            judged += 1
            if one.verdict.canonical or self._has_pruned:
                text = describe_step(state, one.step, names)
                shown.append((self._child(self.child_key(key, index), text, one, left), one))
        return Found(in_order(shown), len(following) - judged)

    @staticmethod
    def _child(key: str, text: str, one: Candidate, left: int) -> Branch:
        if not one.verdict.canonical:
            return Branch(key, text, "pruned", distance=one.distance, reason=one.verdict.reason or "", measure=_MEASURE)
        if one.distance is None:
            return Branch(key, text, "dead end", reason="the input is out of reach", measure=_MEASURE)
        if one.distance > left:
            reason = f"{count_of(left, 'step')} left are too few"
            return Branch(key, text, "dead end", distance=one.distance, reason=reason, measure=_MEASURE)
        after = one.verdict.state.apply(one.step) if one.distance == 0 and one.verdict.state is not None else None
        if after is None:
            return Branch(key, text, distance=one.distance, measure=_MEASURE)
        kind, reason = _kind(after)
        score = _score(after.operator()) if kind == "operator" else None
        return Branch(key, text, kind, distance=one.distance, reason=reason, probe=score, measure=_MEASURE)


def _kind(state: State) -> tuple[Kind, str]:
    """Whether a state is an operator, and if it is complete and none of the space, why."""
    if not state.is_complete:
        return "open", ""
    operator = state.operator()
    return ("operator", "") if operator.meets() else ("open", f"complete, but it {wish_verdict(operator)}")


def _score(operator: Operator) -> float | None:
    """The score of the probe beside a convolution; None where its kernel is too large."""
    try:
        found = probe(operator)
    except SynoError:
        return None
    return found.score(beside_convolution(found)[1])
