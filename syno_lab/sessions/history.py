"""The history of a session of any system: a tree of places.

No place is ever removed. A second step from a place begins a branch; a repeated step goes to the existing place. Undo
goes to the parent, and redo goes to the child that was visited last. Undo and redo move along a *line* through the
tree. The session can go to any place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import quoted
from syno_lab.protocol import Stepwise
from syno_lab.sessions.construction import Aiming, Construction, Place, State
from syno_lab.systems import system_for

#: The limit of places in a history; a user takes far fewer steps by hand.
MAX_PLACES = 20_000
#: The limit of letters in a comment.
MAX_COMMENT = 1000

Known = Mapping[str, Callable[[], Any]]


def construction_for(start: Any) -> Construction[Any, Any, Any]:
    """Return the construction of the system that a value (an operator, a spec, a state) belongs to.

    Raises SpecError if no system recognises the value, or if the system's operators are not built by steps.
    """
    system = system_for(start)
    if not isinstance(system, Stepwise):
        raise SpecError(f"{system.title}: its operators are not built by steps; choose one of another system")
    return system.construction


class History:
    """A tree of places with one shown place.

    Args:
        start: the value to begin with: a spec (shows its output), a state, or an operator (shows its last step).
        known: the operators that :meth:`load` finds by name; by default the system's known operators.
        construction: the system's construction; by default from the system that recognises ``start``.
    """

    def __init__(
        self, start: Any, known: Known | None = None, construction: Construction[Any, Any, Any] | None = None
    ) -> None:
        self._clear(construction or construction_for(start), known)
        self._place = self._grow(None, self._line(start, "start"))

    def _clear(self, construction: Construction[Any, Any, Any], known: Known | None) -> None:
        self.construction = construction
        self.known: Known = dict(construction.known if known is None else known)
        self._places: list[Place[Any, Any]] = []
        self._children: list[list[int]] = []
        self._ahead: list[int | None] = []  # for each place, the child that redo goes to
        self._undone: set[int] = set()

    @classmethod
    def restored(
        cls,
        construction: Construction[Any, Any, Any],
        places: Iterable[Place[Any, Any]],
        turns: Iterable[int],
        place: int,
        known: Known | None = None,
    ) -> Self:
        """Restore a session from stored places; each place comes after its parent.

        Args:
            construction: the construction of the session's system.
            places: all places, numbered from 0.
            turns: the places that redo goes to although the parent has a newer child.
            place: the number of the shown place.
            known: the known operators, as for the class.

        Raises SynoError for a turn or a place that does not exist.
        """
        session = cls.__new__(cls)
        session._clear(construction, known)
        for entry in places:
            session._place_down(entry)
        for turn in turns:
            parent = session._places[turn].parent if 0 <= turn < len(session._places) else None
            if parent is None:
                raise SynoError(f"turns: expected a place with a parent, found {turn}")
            session._ahead[parent] = turn
        session.go(place)
        return session

    # -- the shown place ---------------------------------------------------------------------------------------------

    @property
    def places(self) -> tuple[Place[Any, Any], ...]:
        """Return all places in the order of their numbers."""
        return tuple(self._places)

    @property
    def place(self) -> int:
        """Return the number of the shown place."""
        return self._place

    @property
    def entry(self) -> Place[Any, Any]:
        """Return the shown place."""
        return self._places[self._place]

    def children(self, place: int) -> tuple[int, ...]:
        """Return the numbers of a place's children, the oldest first."""
        return tuple(self._children[place])

    def ahead(self, place: int) -> int | None:
        """Return the child that redo goes to from a place; None for a place without children."""
        return self._ahead[place]

    def behind(self, step: Hashable) -> int | None:
        """Return the child of the shown place after a step or candidate; None if this step was not taken."""
        try:
            wanted = self.construction.step(self.state, step)
        except SynoError:  # no step has this value
            return None
        return next((child for child in self._children[self._place] if self._places[child].step == wanted), None)

    @property
    def turns(self) -> list[int]:
        """Return the places that redo goes to although the parent has a newer child."""
        pairs = zip(self._ahead, self._children, strict=True)
        return [ahead for ahead, children in pairs if ahead is not None and ahead != children[-1]]

    @property
    def undone(self) -> list[int]:
        """Return the places that undo has left in this process, not those added ahead without a visit."""
        return sorted(self._undone)

    @property
    def history(self) -> tuple[Place[Any, Any], ...]:
        """Return the line through the shown place: first the targets of undo, then the targets of redo."""
        before = []
        number: int | None = self._place
        while number is not None:
            before.append(self._places[number])
            number = self._places[number].parent
        line = before[::-1]
        number = self._ahead[self._place]
        while number is not None:
            line.append(self._places[number])
            number = self._ahead[number]
        return tuple(line)

    @property
    def position(self) -> int:
        """Return the number of places in :attr:`history` before the shown place."""
        number, count = self.entry.parent, 0
        while number is not None:
            number, count = self._places[number].parent, count + 1
        return count

    @property
    def state(self) -> Any:
        """Return the shown state."""
        return self.entry.state

    @property
    def operator(self) -> Any:
        """Return the operator of the shown place (:attr:`.Place.built`). Raises SynoError for an incomplete state."""
        return self.entry.built

    @property
    def name(self) -> str | None:
        """Return the name of the shown operator; None for an unknown operator or an incomplete state."""
        return self.construction.name(self.operator, self.known) if self.is_complete else None

    @property
    def is_complete(self) -> bool:
        """Return whether the shown state is an operator."""
        return self.entry.is_complete

    # -- moving ------------------------------------------------------------------------------------------------------

    def apply(self, step: Hashable) -> State:
        """Take a step or a candidate, canonical or not.

        Raises PrimitiveError for an illegal step; then the history is unchanged.
        """
        return self.go(self._behind(self._place, step))

    def undo(self) -> State:
        """Go to the parent of the shown place. Raises SynoError at the first place."""
        if self.entry.parent is None:
            raise SynoError("nothing to undo: this is the beginning of the history")
        self._undone.add(self._place)
        return self.go(self.entry.parent)

    def undo_to_progress(self) -> State:
        """Go back to the last place that is a beginning, a change of target, or nearer to an operator than its parent.

        Raises SynoError if the shown place is itself the last place with progress.
        """
        entry, left = self.entry, set()
        while not self._stays(entry):
            left.add(entry.number)
            entry = self._places[entry.parent or 0]
        if entry is self.entry:
            raise SynoError("nothing to undo: the last step was progress, or a beginning")
        self._undone |= left
        return self.go(entry.number)

    def _stays(self, entry: Place[Any, Any]) -> bool:
        if entry.step is None or entry.parent is None:
            return True
        if isinstance(self.construction, Aiming) and self.construction.is_aim(entry.step):
            return True
        before, after = self._places[entry.parent].distance, entry.distance
        return after is not None and (before is None or after < before)

    def redo(self) -> State:
        """Go to the last visited child of the shown place. Raises SynoError for a place without children."""
        ahead = self._ahead[self._place]
        if ahead is None:
            raise SynoError("nothing to redo: this is the end of the history")
        return self.go(ahead)

    def jump(self, position: int) -> State:
        """Go to a position of :attr:`history`; the history stays. Raises SynoError for an unknown position."""
        line = self.history
        if not _is_number(position) or not 0 <= position < len(line):
            raise SynoError(f"no place {quoted(position)} in the history: expected a number from 0 to {len(line) - 1}")
        return self.go(line[position].number)

    def go(self, place: int) -> State:
        """Go to any place of the tree by its number; :attr:`history` then runs through the place.

        Raises SynoError for a place that does not exist.
        """
        if not _is_number(place) or not 0 <= place < len(self._places):
            raise SynoError(f"no place {quoted(place)}: expected a number from 0 to {len(self._places) - 1}")
        self._place = place
        number, parent = place, self._places[place].parent
        while parent is not None:
            self._ahead[parent] = number
            number, parent = parent, self._places[parent].parent
        return self.state

    def reset(self) -> State:
        """Append a place with the first state of the shown place's path; :meth:`undo` goes back."""
        first = self.construction.begin(self.state).state
        return self.go(self._grow(self._place, (Place(self.construction, first, note="reset"),)))

    def comment(self, text: str) -> None:
        """Set the comment of the shown place; an empty text removes the comment.

        Raises SynoError for a comment that is too long.
        """
        if len(text) > MAX_COMMENT:
            raise SynoError(f"comment: expected at most {MAX_COMMENT} letters, found {len(text)}; shorten it")
        self._places[self._place] = replace(self.entry, comment=text.strip())

    def load(self, operator: Any, *, at_start: bool = False) -> State:
        """Append the steps of an operator; go to its last place, or to its first place to replay it by :meth:`redo`.

        Args:
            operator: an operator, or the name of a known operator.
            at_start: whether to go to the operator's first place rather than its last.

        Raises SynoError for an unknown name, and SpecError for an operator of another system.
        """
        note = "load"
        if isinstance(operator, str):
            if operator not in self.known:
                names = ", ".join(sorted(self.known)) or "none"
                raise SynoError(f"unknown operator {quoted(operator)}; known are {names}")
            note = f"load {operator}"
            operator = self.known[operator]()
        if construction_for(operator) is not self.construction:
            own, other = system_for(self.state).title, system_for(operator).title
            raise SpecError(f"expected an operator of {own}, found one of {other}; begin a session of its own with it")
        line = self._line(self.construction.loaded(operator, self._places[0].state, self.state), note)
        start = len(self._places)
        end = self._grow(self._place, line)
        self.go(end)
        return self.go(start) if at_start else self.state

    def lay(self, steps: Iterable[Any], at_start: bool = False) -> State:
        """Append steps and go to the last; with ``at_start`` stay here, so that :meth:`redo` replays them.

        Raises PrimitiveError for an illegal step.
        """
        here = place = self._place
        for step in steps:
            place = self._behind(place, step)
        self.go(place)
        return self.go(here) if at_start else self.state

    # -- growing -----------------------------------------------------------------------------------------------------

    def _line(self, start: Any, note: str) -> tuple[Place[Any, Any], ...]:
        """Return the places from a first state to ``start``, the value that a session begins with."""
        beginning = self.construction.begin(start)
        line = [Place(self.construction, beginning.state, note=note)]
        for step in beginning.steps:
            line.append(self._after(line[-1].state, self.construction.step(line[-1].state, step)))
        line[-1] = replace(line[-1], operator=beginning.operator)
        return tuple(line)

    def _after(self, state: State, step: Hashable) -> Place[Any, Any]:
        return Place(self.construction, self.construction.apply(state, step), step)

    def _behind(self, place: int, choice: Hashable) -> int:
        """Return the number of a place's child after this step; add the child if it does not exist."""
        state = self._places[place].state
        step = self.construction.step(state, choice)
        for child in self._children[place]:
            if self._places[child].step == step:
                return child
        return self._grow(place, (self._after(state, step),))

    def _grow(self, parent: int | None, entries: tuple[Place[Any, Any], ...]) -> int:
        """Add places, each as the child of the place before; return the number of the last place."""
        self._check_room(len(entries))
        for entry in entries:
            number = len(self._places)
            self._place_down(replace(entry, number=number, parent=parent))
            parent = number
        return len(self._places) - 1

    def _place_down(self, entry: Place[Any, Any]) -> None:
        self._places.append(entry)
        self._children.append([])
        self._ahead.append(None)
        if entry.parent is not None:
            self._children[entry.parent].append(entry.number)
            self._ahead[entry.parent] = entry.number

    def _check_room(self, more: int) -> None:
        if len(self._places) + more > MAX_PLACES:
            raise SynoError(f"a session holds at most {MAX_PLACES} places; begin a new one")


def _is_number(value: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
