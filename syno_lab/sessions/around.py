"""The space around a state, for every system: its next steps and theirs, one state expanded at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from syno_lab.effort import Effort
from syno_lab.errors import SpecError
from syno_lab.inputs import count_of
from syno_lab.search.branches import Branch
from syno_lab.sessions.construction import Explorable
from syno_lab.sessions.session import Session
from syno_lab.systems import system_for

#: States whose next steps are looked at.
MOST_STATES = 400
#: Next steps of a state that are judged and shown, what leads on first. There may be tens of thousands.
MOST_STEPS = 200


@dataclass(eq=False, slots=True)
class _Place:
    branch: Branch
    state: Any  # before the step
    parent: str | None
    step: Any
    after: Any = None
    children: tuple[str, ...] | None = None
    hidden: int = 0  # next steps that are not shown


class Found(NamedTuple):
    """The next places of a place with the steps to them, and how many more there are."""

    shown: list[tuple[Branch, Any]]
    hidden: int


class Around:
    """The places that can be reached from a state (:class:`syno_lab.search.branches.Branching`).

    A key is the way from the state, by the indices among the candidates, such as ``3.17``; the state's own is
    ``start``. No state is expanded before :meth:`grow`.

    Args:
        start: what a session begins with.
        pruned: whether steps that a rule rejects are places too; these are not expanded.
        rules: of the user's own, beside those of the system (:meth:`.Session.restrict`).

    Raises:
        SpecError: no system knows ``start``, or the explorer shows no space of its system; two rules have one name.
        CodeError: for what is no rule.
    """

    def __init__(self, start: Any, *, pruned: bool = True, rules: Sequence[Any] = ()) -> None:
        session = Session(start)
        construction = session.construction
        if not isinstance(construction, Explorable):
            raise SpecError(
                f"{system_for(start).title} has no space that the explorer shows; step through it by Stepper(…)"
            )
        self._own = tuple(rules)
        session.restrict(self._own)
        self._begun, self._explored = session, construction
        self._has_pruned = pruned
        self.steps = session.position  # that lead to the state
        standing = self._named(self.root, construction.standing(session.state))
        self._places = {self.root: _Place(standing, session.state, None, None, session.state)}
        self.looked_at = 0

    def _named(self, key: str, branch: Branch) -> Branch:
        return replace(branch, key=key, measure=self._begun.construction.labels.measure)

    def session(self, key: str = "start") -> Session:
        """A session that begins with the state at a place, by the same rules.

        Raises KeyError for a place that is not there.
        """
        found = Session(self.state_at(key), self._begun.known, self._begun.construction)
        found.restrict(self._own)
        return found

    def look(self, key: str, effort: Effort | None = None) -> Found:
        """The next places of a place, for :meth:`put`. It changes nothing, so a thread can do it.

        Raises EffortError when the effort does not suffice; CodeError where a rule of the user's own fails.
        """
        state, effort = self.state_at(key), effort or Effort()
        following = self._explored.following(state, self._begun.rules, self._has_pruned, effort)
        branch = self._explored.leading(state)
        shown: list[tuple[Branch, Any]] = []
        judged = 0
        for index, one in following:
            if len(shown) == MOST_STEPS:
                break
            effort.tick("looking at the space")
            judged += 1
            found = branch(one)
            if self._has_pruned or found.kind != "pruned":
                shown.append((self._named(self.child_key(key, index), found), one))
        rank = {"operator": 0, "open": 1, "dead end": 2, "pruned": 3}
        shown.sort(key=lambda each: (rank[each[0].kind], 99 if each[0].distance is None else each[0].distance))
        return Found(shown, len(following) - judged)

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

    def state_at(self, key: str) -> Any:
        """The state at a place, behind a pruned step too. Raises KeyError for a place that is not there."""
        place = self._places[key]
        if place.after is None:
            assert place.step is not None
            construction = self._begun.construction
            place.after = construction.apply(place.state, construction.step(place.state, place.step))
        return place.after

    def child_key(self, key: str, index: int) -> str:
        """The key of the place behind a step, by its index among the candidates."""
        return str(index) if key == self.root else f"{key}.{index}"

    def grow(self, depth: int, key: str = "start") -> bool:
        """Look at one more state within ``depth`` levels below a place, the nearest to it first; whether there was one.

        Raises KeyError for a place that is not there.
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
        text = f"{len(kinds) - 1} steps from {count_of(self.looked_at, 'state')}: {kinds.count('pruned')} pruned"
        text += f", {kinds.count('dead end')} dead ends, {kinds.count('operator')} operators"
        hidden = sum(place.hidden for place in self._places.values())
        text += f"; {hidden:,} more steps, none of them nearer to the input, are not shown" if hidden else ""
        return text + ("; no more are looked at." if self.is_cut() else ".")

    def _is_to_look_at(self, key: str, first: str) -> bool:
        place = self._places[key]
        return place.children is None and (key == first or place.branch.kind == "open")

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
            place.branch = replace(place.branch, kind="dead end", reason="no canonical step leads on")
