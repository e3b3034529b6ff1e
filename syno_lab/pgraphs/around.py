"""The search space around a state: its next steps, canonical and pruned, and theirs, one state expanded at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from syno_lab.codegen.drawing import describe_step
from syno_lab.codegen.mixing import wish_verdict
from syno_lab.codegen.text import expressions
from syno_lab.effort import Effort
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.probe import beside_convolution
from syno_lab.ir.state import State
from syno_lab.operators import KNOWN
from syno_lab.pgraphs.probe import probe
from syno_lab.pgraphs.stepping import PGraphSession
from syno_lab.search.branches import Branch, Kind
from syno_lab.synthesis.candidates import Candidate, candidates
from syno_lab.synthesis.distance import distance

#: States whose next steps are looked at.
MOST_STATES = 400
#: Next steps of a state that are judged and shown: the nearest to the input. There may be tens of thousands.
MOST_STEPS = 200


@dataclass(eq=False, slots=True)
class _Place:
    branch: Branch
    state: State
    parent: str | None
    step: Candidate | None
    after: State | None = None
    children: tuple[str, ...] | None = None
    hidden: int = 0  # next steps that are not shown


class Found(NamedTuple):
    """The next places of a place, and how many more there are."""

    shown: list[tuple[Branch, Candidate]]
    hidden: int


class Around:
    """The places that can be reached from a state (:class:`syno_lab.search.branches.Surroundings`).

    A key is the way from the state, by the indices among the candidates, such as ``3.17``; the state's own is
    ``start``. No state is expanded before :meth:`grow`.

    Args:
        state: the first place.
        pruned: whether steps that a rule rejects are places too; these are not expanded.
    """

    def __init__(self, state: State, *, pruned: bool = True) -> None:
        self.state = state
        self._has_pruned = pruned
        kind, reason = _kind(state)
        words = f"after {len(state.steps)} {'step' if len(state.steps) == 1 else 'steps'}"
        first = Branch(self.root, words, kind, distance=distance(state), reason=reason)
        self._places = {self.root: _Place(first, state, None, None, state)}
        self.looked_at = 0

    @property
    def root(self) -> str:
        """The key of the state."""
        return "start"

    def __len__(self) -> int:
        return len(self._places)

    def branch(self, key: str) -> Branch:
        """The facts of a place. Raises KeyError for an unknown key."""
        return self._places[key].branch

    def above(self, key: str) -> str | None:
        """The place before; None for the first."""
        return self._places[key].parent

    def below(self, key: str) -> Sequence[str]:
        """The places one step after it, canonical and near to the input first; empty until it is expanded."""
        return self._places[key].children or ()

    def weight(self, key: str) -> float:
        """The width of the place's box: wide if it has next places, else narrow."""
        return 1.0 if self._places[key].branch.kind in ("open", "operator") else 0.0

    @property
    def steps(self) -> int:
        """How many steps lead to the state."""
        return len(self.state.steps)

    def session(self, key: str = "start") -> PGraphSession:
        """A session that begins with the pGraph at a place. Raises KeyError for a place that is not there."""
        return PGraphSession(self.state_at(key), KNOWN)

    def state_at(self, key: str) -> State:
        """The pGraph at a place, behind a pruned step too. Raises KeyError for a place that is not there."""
        place = self._places[key]
        if place.after is None:
            assert place.step is not None
            place.after = place.state.apply(place.step.step)
        return place.after

    def grow(self, depth: int, key: str = "start") -> bool:
        """Look at one more state within ``depth`` levels below a place, the nearest to it first.

        Returns:
            Whether there may be more to look at.

        Raises:
            KeyError: for a place that is not there.
        """
        place = self.waiting(depth, key)
        if place is not None:
            self.put(place, self.look(place))
        return place is not None

    def waiting(self, depth: int, key: str = "start") -> str | None:
        """The place that :meth:`grow` expands next; None if there is none."""
        if self.looked_at >= MOST_STATES:
            return None
        row = [key]
        for _ in range(depth):
            for one in row:
                if self._is_to_look_at(one, key):
                    return one
            row = [child for one in row for child in self.below(one)]
        return None

    def is_cut(self) -> bool:
        """Whether the limit is reached, so that no further state is expanded."""
        return self.looked_at >= MOST_STATES

    def summary(self) -> str:
        """A summary in one line."""
        kinds = [place.branch.kind for place in self._places.values()]
        states = "state" if self.looked_at == 1 else "states"
        text = f"{len(kinds) - 1} steps from {self.looked_at} {states}: {kinds.count('pruned')} pruned"
        text += f", {kinds.count('dead end')} dead ends, {kinds.count('operator')} operators"
        hidden = sum(place.hidden for place in self._places.values())
        text += f"; {hidden:,} more steps, none of them nearer to the input, are not shown" if hidden else ""
        return text + ("; no more are looked at." if self.is_cut() else ".")

    def _is_to_look_at(self, key: str, first: str) -> bool:
        place = self._places[key]
        return place.children is None and (key == first or place.branch.kind == "open")

    def look(self, key: str, effort: Effort | None = None) -> Found:
        """The next places of a place, for :meth:`put`. It changes nothing, so a thread can do it.

        Raises:
            EffortError: when the effort does not suffice.
        """
        state = self.state_at(key)
        names = expressions(state)
        left = state.spec.limits.max_primitives - len(state.steps) - 1
        following = candidates(state, effort=effort)
        shown: list[tuple[Branch, Candidate]] = []
        judged = 0
        for index, one in enumerate(following):
            if len(shown) == MOST_STEPS:
                break
            judged += 1
            if one.verdict.canonical or self._has_pruned:
                child = str(index) if key == self.root else f"{key}.{index}"
                text = describe_step(state, one.step, names)
                shown.append((self._child(child, text, one, left), one))
        shown.sort(key=lambda each: _order(each[0]))
        return Found(shown, len(following) - judged)

    def put(self, key: str, found: Found) -> None:
        """Keep what :meth:`look` found."""
        place, state = self._places[key], self.state_at(key)
        for branch, one in found.shown:
            self._places[branch.key] = _Place(branch, state, key, one)
        place.children = tuple(branch.key for branch, _ in found.shown)
        place.hidden = found.hidden
        self.looked_at += 1
        leads_on = found.hidden or any(branch.kind in ("open", "operator") for branch, _ in found.shown)
        if not leads_on and place.branch.kind == "open":
            place.branch = _dead(place.branch, "no canonical step leads on")

    @staticmethod
    def _child(key: str, text: str, one: Candidate, left: int) -> Branch:
        if not one.verdict.canonical:
            return Branch(key, text, "pruned", distance=one.distance, reason=one.verdict.reason or "")
        if one.distance is None:
            return Branch(key, text, "dead end", reason="the input is out of reach")
        if one.distance > left:
            steps = "step" if left == 1 else "steps"
            reason = f"{left} {steps} left are too few"
            return Branch(key, text, "dead end", distance=one.distance, reason=reason)
        after = one.verdict.state.apply(one.step) if one.distance == 0 and one.verdict.state is not None else None
        if after is None:
            return Branch(key, text, distance=one.distance)
        kind, reason = _kind(after)
        score = _score(after.operator()) if kind == "operator" else None
        return Branch(key, text, kind, distance=one.distance, reason=reason, probe=score)


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


def _dead(branch: Branch, reason: str) -> Branch:
    return Branch(branch.key, branch.text, "dead end", distance=branch.distance, reason=reason)


def _order(branch: Branch) -> tuple[int, int]:
    rank = {"operator": 0, "open": 1, "dead end": 2, "pruned": 3}
    return rank[branch.kind], 99 if branch.distance is None else branch.distance
