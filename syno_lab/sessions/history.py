"""The history of building step by step: a tree of places, for the sessions of every system.

A history never forgets a place. A step from a place that has been stepped on from before begins a branch; taking the
same step again goes to the place that is there. Undo goes to the place before, redo to the one that was visited last of
those behind, so that both run along a *line* through the tree; any place can be gone to.
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

#: Places that a history may have: far more than are stepped by hand.
MAX_PLACES = 20_000
#: Letters of a comment.
MAX_COMMENT = 1000

Known = Mapping[str, Callable[[], Any]]


def construction_for(start: Any) -> Construction[Any, Any, Any]:
    """The construction of the system whose steps lead on from a value: an operator, a spec, a state.

    Raises SpecError where no system knows the value, or operators of its system are not built by steps.
    """
    system = system_for(start)
    if not isinstance(system, Stepwise):
        raise SpecError(f"{system.title}: its operators are not built by steps; choose one of another system")
    return system.construction


class History:
    """A state to step on from, and all that led to it.

    Args:
        start: what the system begins with: a spec (begin with its output), a state, or an operator (its last step).
        known: operators that :meth:`load` finds by name; by default those of the system.
        construction: of the system; by default of the one that knows ``start``.
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
        self._ahead: list[int | None] = []  # of each place the one behind it that redo goes to

    @classmethod
    def restored(
        cls,
        construction: Construction[Any, Any, Any],
        places: Iterable[Place[Any, Any]],
        turns: Iterable[int],
        place: int,
        known: Known | None = None,
    ) -> Self:
        """A session of places that were kept, each behind one before it.

        Args:
            construction: of the system.
            places: all of them, numbered from 0.
            turns: those that redo goes to although there are newer ones beside them.
            place: the one that is shown.
            known: as for the class.

        Raises SynoError for a turn or a place that does not exist.
        """
        session = cls.__new__(cls)
        session._clear(construction, known)
        for entry in places:
            session._place_down(entry)
        for turn in turns:
            parent = session._places[turn].parent if 0 <= turn < len(session._places) else None
            if parent is None:
                raise SynoError(f"turns: expected a place behind another one, found {turn}")
            session._ahead[parent] = turn
        session.go(place)
        return session

    # -- where we are ------------------------------------------------------------------------------------------------

    @property
    def places(self) -> tuple[Place[Any, Any], ...]:
        """All places there are, by their numbers."""
        return tuple(self._places)

    @property
    def place(self) -> int:
        """The number of the place that is shown."""
        return self._place

    @property
    def entry(self) -> Place[Any, Any]:
        """The place that is shown."""
        return self._places[self._place]

    def children(self, place: int) -> tuple[int, ...]:
        """The numbers of the places right behind a place, the oldest first."""
        return tuple(self._children[place])

    def ahead(self, place: int) -> int | None:
        """The place behind a place that redo goes to; None where there is none."""
        return self._ahead[place]

    def behind(self, step: Hashable) -> int | None:
        """The place behind the shown one that a step or a candidate has led to; None where it was not taken."""
        try:
            taken = self.construction.step(self.state, step)
        except SynoError:  # it cannot be taken
            return None
        return next((child for child in self._children[self._place] if self._places[child].step == taken), None)

    @property
    def turns(self) -> list[int]:
        """The places that redo goes to although their parents have newer ones."""
        found = zip(self._ahead, self._children, strict=True)
        return [ahead for ahead, children in found if ahead is not None and ahead != children[-1]]

    @property
    def history(self) -> tuple[Place[Any, Any], ...]:
        """The line through the place that is shown: what undo goes back to, and what redo goes on to."""
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
        """How many places of :attr:`history` are before the one that is shown."""
        number, found = self.entry.parent, 0
        while number is not None:
            number, found = self._places[number].parent, found + 1
        return found

    @property
    def state(self) -> Any:
        """The state that is shown."""
        return self.entry.state

    @property
    def operator(self) -> Any:
        """The operator that is shown: the one that was given, or the state's. Raises SynoError where it is none."""
        return self.entry.built

    @property
    def name(self) -> str | None:
        """The known operator that this is; None for another or an incomplete one."""
        return self.construction.name(self.operator, self.known) if self.is_complete else None

    @property
    def is_complete(self) -> bool:
        """Whether the state that is shown is an operator."""
        return self.entry.is_complete

    # -- moving ------------------------------------------------------------------------------------------------------

    def apply(self, step: Hashable) -> State:
        """Take a step or a candidate, canonical or not.

        Raises PrimitiveError for an illegal one; nothing has changed then.
        """
        return self.go(self._behind(self._place, step))

    def undo(self) -> State:
        """Back by one place. Raises SynoError at the beginning."""
        if self.entry.parent is None:
            raise SynoError("nothing to undo: this is the beginning of the history")
        return self.go(self.entry.parent)

    def undo_to_progress(self) -> State:
        """Back to the last place that is nearer than the one before it, or to a beginning or a change of an aim.

        Raises SynoError where that is the shown one.
        """
        entry = self.entry
        while not self._stays(entry):
            entry = self._places[entry.parent or 0]
        if entry is self.entry:
            raise SynoError("nothing to undo: the last step was progress, or a beginning")
        return self.go(entry.number)

    def _stays(self, entry: Place[Any, Any]) -> bool:
        if entry.step is None or entry.parent is None:
            return True
        if isinstance(self.construction, Aiming) and self.construction.is_aim(entry.step):
            return True
        before, after = self._places[entry.parent].distance, entry.distance
        return after is not None and (before is None or after < before)

    def redo(self) -> State:
        """Forth by one place, along the branch that was visited last. Raises SynoError at the end."""
        ahead = self._ahead[self._place]
        if ahead is None:
            raise SynoError("nothing to redo: this is the end of the history")
        return self.go(ahead)

    def jump(self, position: int) -> State:
        """To any place of :attr:`history`, which stays as it is. Raises SynoError for a place that does not exist."""
        line = self.history
        if not _is_number(position) or not 0 <= position < len(line):
            raise SynoError(f"no place {quoted(position)} in the history: expected a number from 0 to {len(line) - 1}")
        return self.go(line[position].number)

    def go(self, place: int) -> State:
        """To any place of the tree, by its number; :attr:`history` runs through it then.

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
        """Begin again where the way to this place begins; what was before can be had back by :meth:`undo`."""
        first = self.construction.begin(self.state).state
        return self.go(self._grow(self._place, (Place(self.construction, first, note="reset"),)))

    def comment(self, text: str) -> None:
        """Write about the shown place; an empty text removes what was written.

        Raises SynoError for a text that is too long.
        """
        if len(text) > MAX_COMMENT:
            raise SynoError(f"comment: expected at most {MAX_COMMENT} letters, found {len(text)}; shorten it")
        self._places[self._place] = replace(self.entry, comment=text.strip())

    def load(self, operator: Any, *, at_start: bool = False) -> State:
        """Append an operator step by step, and go to its end, or to its start in order to replay it by :meth:`redo`.

        Args:
            operator: an operator, or the name of a known one.
            at_start: whether to go to the operator's first place.

        Raises SynoError for an unknown name; SpecError for what does not belong to the system of the session.
        """
        note = "load"
        if isinstance(operator, str):
            if operator not in self.known:
                names = ", ".join(sorted(self.known)) or "none"
                raise SynoError(f"unknown operator {quoted(operator)}; known are {names}")
            note = f"load {operator}"
            operator = self.known[operator]()
        if construction_for(operator) is not self.construction:
            mine, other = system_for(self.state).title, system_for(operator).title
            raise SpecError(f"expected an operator of {mine}, found one of {other}; begin a session of its own with it")
        line = self._line(self.construction.loaded(operator, self._places[0].state, self.state), note)
        start = len(self._places)
        end = self._grow(self._place, line)
        self.go(end)
        return self.go(start) if at_start else self.state

    def lay(self, steps: Iterable[Any], at_start: bool = False) -> State:
        """Append steps, and go to their end; ``at_start`` stays, to play them by :meth:`redo`.

        Raises PrimitiveError for an illegal one.
        """
        here = place = self._place
        for step in steps:
            place = self._behind(place, step)
        self.go(place)
        return self.go(here) if at_start else self.state

    # -- growing -----------------------------------------------------------------------------------------------------

    def _line(self, start: Any, note: str) -> tuple[Place[Any, Any], ...]:
        """The places on the way to what a session begins with, from its beginning."""
        begun = self.construction.begin(start)
        found = [Place(self.construction, begun.state, note=note)]
        for step in begun.steps:
            found.append(self._after(found[-1].state, self.construction.step(found[-1].state, step)))
        found[-1] = replace(found[-1], operator=begun.operator)
        return tuple(found)

    def _after(self, state: State, step: Hashable) -> Place[Any, Any]:
        return Place(self.construction, self.construction.apply(state, step), step)

    def _behind(self, place: int, given: Hashable) -> int:
        """The place behind ``place`` by this step: the one that is there, else a new one."""
        state = self._places[place].state
        step = self.construction.step(state, given)
        for child in self._children[place]:
            if self._places[child].step == step:
                return child
        return self._grow(place, (self._after(state, step),))

    def _grow(self, parent: int | None, entries: tuple[Place[Any, Any], ...]) -> int:
        """New places, one behind the other; the number of the last."""
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
