"""The states around a start state, for every system: a tree of steps that is expanded state by state."""

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

#: The limit of states that are expanded.
MOST_STATES = 400
#: The limit of shown next steps of a state, the most promising first. A state may have tens of thousands of next steps.
MOST_STEPS = 200


@dataclass(eq=False, slots=True)
class _Place:
    branch: Branch
    state: Any  # the state before the step
    parent: str | None
    step: Any
    after: Any = None
    children: tuple[str, ...] | None = None
    hidden: int = 0  # the number of next steps that are not shown


class Found(NamedTuple):
    """The child nodes of a node with the steps to them, and the number of next steps that are not shown."""

    shown: list[tuple[Branch, Any]]
    hidden: int


class Around:
    """The tree of all states that can be reached from a start state (:class:`syno_lab.search.branches.Branching`).

    The key of a node lists the steps from the start by their indices among the candidates, such as ``3.17``. The key of
    the start is ``start``. :meth:`grow` expands nodes; no node is expanded before the first call.

    Args:
        start: a value that a session can begin with.
        pruned: whether steps that a rule rejects have nodes too; these nodes are not expanded.
        rules: the user's own rules, in addition to the system's rules (:meth:`.Session.restrict`).

    Raises:
        SpecError: no system recognises ``start``, or its system is not explorable, or two rules have one name.
        CodeError: an entry of ``rules`` is no rule.
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
        self._session, self._explored = session, construction
        self._has_pruned = pruned
        self.steps = session.position  # the number of steps from the session's first state to the start state
        standing = self._keyed(self.root, construction.standing(session.state))
        self._places = {self.root: _Place(standing, session.state, None, None, session.state)}
        self.looked_at = 0

    def _keyed(self, key: str, branch: Branch) -> Branch:
        return replace(branch, key=key, measure=self._session.construction.labels.measure)

    def session(self, key: str = "start") -> Session:
        """Return a session that begins with the state of a node, with the same rules.

        Raises KeyError for an unknown key.
        """
        session = Session(self.state_at(key), self._session.known, self._session.construction)
        session.restrict(self._own)
        return session

    def look(self, key: str, effort: Effort | None = None) -> Found:
        """Compute the child nodes of a node for :meth:`put`. The method changes nothing, so a thread can call it.

        Raises EffortError when the effort does not suffice, and CodeError when a rule of the user's own fails.
        """
        state, effort = self.state_at(key), effort or Effort()
        found, order = self._explored.following(state, self._session.rules, self._has_pruned, effort)
        branch = self._explored.leading(state)
        shown: list[tuple[Branch, Any]] = []
        judged = 0
        for index in order:
            if len(shown) == MOST_STEPS:
                break
            effort.tick("looking at the space")
            judged += 1
            candidate = found[index]
            reached = branch(candidate)
            if self._has_pruned or reached.kind != "pruned":
                shown.append((self._keyed(self.child_key(key, index), reached), candidate))
        rank = {"operator": 0, "open": 1, "dead end": 2, "pruned": 3}
        shown.sort(key=lambda pair: (rank[pair[0].kind], 99 if pair[0].distance is None else pair[0].distance))
        return Found(shown, len(order) - judged)

    @property
    def root(self) -> str:
        """Return the key of the start state."""
        return "start"

    def __len__(self) -> int:
        return len(self._places)

    def branch(self, key: str) -> Branch:
        """Return the facts about a node. Raises KeyError for an unknown key."""
        return self._places[key].branch

    def above(self, key: str) -> str | None:
        """Return the key of a node's parent; None for the start."""
        return self._places[key].parent

    def below(self, key: str) -> Sequence[str]:
        """Return the keys of a node's children, canonical steps near to the input first; empty before the expansion."""
        return self._places[key].children or ()

    def weight(self, key: str) -> float:
        """Return the relative width of a node's box: 1 for an operator or an open state, else 0."""
        return 1.0 if self._places[key].branch.kind in ("open", "operator") else 0.0

    def state_at(self, key: str) -> Any:
        """Return the state of a node, even after a pruned step. Raises KeyError for an unknown key."""
        place = self._places[key]
        if place.after is None:
            assert place.step is not None
            construction = self._session.construction
            place.after = construction.apply(place.state, construction.step(place.state, place.step))
        return place.after

    def child_key(self, key: str, index: int) -> str:
        """Return the key of the node after a step; ``index`` is the step's index among the candidates."""
        return str(index) if key == self.root else f"{key}.{index}"

    def grow(self, depth: int, key: str = "start") -> bool:
        """Expand the nearest unexpanded node within ``depth`` levels below a node; return whether a node was expanded.

        Raises KeyError for an unknown key.
        """
        place = self.waiting(depth, key)
        if place is not None:
            self.put(place, self.look(place))
        return place is not None

    def waiting(self, depth: int, key: str = "start") -> str | None:
        """Return the key of the node that :meth:`grow` expands next; None if no node is left."""
        if self.looked_at >= MOST_STATES:
            return None
        row = [key]
        for _ in range(depth):
            for place in row:
                if self._is_to_look_at(place, key):
                    return place
            row = [child for place in row for child in self.below(place)]
        return None

    def is_cut(self) -> bool:
        """Return whether the limit of expanded states is reached."""
        return self.looked_at >= MOST_STATES

    def summary(self) -> str:
        """Summarise the space in one line."""
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
        """Store the child nodes that :meth:`look` computed."""
        place, state = self._places[key], self.state_at(key)
        for branch, step in found.shown:
            self._places[branch.key] = _Place(branch, state, key, step)
        place.children = tuple(branch.key for branch, _ in found.shown)
        place.hidden = found.hidden
        self.looked_at += 1
        leads_on = found.hidden or any(branch.kind in ("open", "operator") for branch, _ in found.shown)
        if not leads_on and place.branch.kind == "open":
            place.branch = replace(place.branch, kind="dead end", reason="no canonical step leads on")
