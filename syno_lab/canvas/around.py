"""The space around a draft: the primitives that it may get next, taken and refused, and theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syno_lab.canvas.aim import AimedDraft
from syno_lab.canvas.growth import SUBSTITUTION, Candidate, candidates
from syno_lab.canvas.session import CanvasSession
from syno_lab.effort import Effort
from syno_lab.inputs import count_of
from syno_lab.search.around import MOST_STEPS, Found, StepsAround, in_order
from syno_lab.search.branches import Branch

_MEASURE = CanvasSession.labels.measure


class DraftsAround(StepsAround):
    """The places that can be reached from a draft.

    Args:
        state: the first place.
        known: operators that a session at a place loads by name.
        pruned: whether primitives that a rule or limit refuses are places too; these are not expanded.
        rules: functions of the user's own that refuse primitives (:func:`syno_lab.own_rule.own_rule`).
    """

    def __init__(
        self,
        state: AimedDraft,
        known: Mapping[str, Callable[[], Any]],
        *,
        pruned: bool = True,
        rules: Sequence[Any] = (),
    ) -> None:
        self._known = known
        self._own = tuple(rules)
        done = len(state.draft.nodes)
        words = f"after {count_of(done, 'primitive')}"
        super().__init__(state, _branch(self.root, words, state), done, pruned=pruned)
        self._judged = self.session().judged

    def session(self, key: str = "start") -> CanvasSession:
        """A session that begins with the draft at a place, by the same rules.

        Raises:
            KeyError: for a place that is not there.
        """
        found = CanvasSession(self.state_at(key), self._known)
        found.restrict(self._own)
        return found

    def _after(self, state: AimedDraft, step: Candidate) -> AimedDraft:
        return state.apply(step)

    def look(self, key: str, effort: Effort | None = None) -> Found:
        """The next places of a place, those first that nothing refuses.

        Raises:
            EffortError: when the effort does not suffice.
            CodeError: a rule of the user's own fails.
        """
        state = self.state_at(key)
        effort = effort or Effort()
        all_next = candidates(state.draft, state.aim.room, look=lambda: effort.tick("looking at the space"))
        following = [self._judged(state, one) for one in all_next]
        # A size that makes another tensor illegal leads nowhere: there is no draft behind it.
        listed = [(index, one) for index, one in enumerate(following) if one.verdict is not SUBSTITUTION]
        listed.sort(key=lambda each: not each[1].may_be_taken)
        shown = []
        for index, one in [each for each in listed if each[1].may_be_taken or self._has_pruned][:MOST_STEPS]:
            effort.tick("looking at the space")
            name = self.child_key(key, index)
            if one.verdict is None:
                shown.append((_branch(name, str(one), state.apply(one)), one))
            else:
                shown.append((Branch(name, str(one), "pruned", reason=str(one.verdict), measure=_MEASURE), one))
        taken = sum(one.may_be_taken for _, one in listed)
        return Found(in_order(shown), max(0, (len(listed) if self._has_pruned else taken) - len(shown)))


def _branch(key: str, text: str, state: AimedDraft) -> Branch:
    """What a draft is: an operator, a dead end, or one that may go on; its distance is the primitives it needs."""
    if state.is_complete:
        return Branch(key, text, "operator", distance=0, measure=_MEASURE)
    if state.needed is None:
        why = state.too_much or "there is no room for the primitives that it needs"
        return Branch(key, text, "dead end", reason=why, measure=_MEASURE)
    return Branch(key, text, distance=state.needed, measure=_MEASURE)
