"""A session: a synthesis by hand with its history. The stepper shows it; nothing here needs a notebook.

The history is a tree of places and never forgets one. A step from a place that has been stepped on from before begins a
branch; taking the same step again goes to the place that is there. Undo goes to the place before, redo to the one that
was visited last of those behind, so that both run along a *line* through the tree; any place can be gone to.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from syno_lab.effort import Effort, Stop
from syno_lab.errors import PrimitiveError, SpecError, SynoError
from syno_lab.inputs import quoted
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.ir.wants import wants_text
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.property_distance import property_distance
from syno_lab.synthesis.recognise import recognise
from syno_lab.synthesis.ways import PATIENCE_S, Way, random_way, shortest_way

Known = Mapping[str, Callable[[], Operator]]
#: Places that a session may have: far more than are stepped by hand.
MAX_PLACES = 20_000


@dataclass(frozen=True)
class Entry:
    """One place in the history.

    Attributes:
        state: the pGraph there.
        step: the step that led to it, None for a beginning.
        note: why it begins here: ``start``, ``reset``, ``open`` or ``load conv2d``; empty after a step.
        operator: the operator that was given, where it was; it says how a complete state matches the input.
        number: of the place, in order of creation.
        parent: the number of the place before; None for the first.
    """

    state: State
    step: Step | None = None
    note: str = ""
    operator: Operator | None = None
    number: int = 0
    parent: int | None = None

    @property
    def distance(self) -> int | None:
        """The shape distance there; None where the input is out of reach."""
        return self.measured()

    def measured(self, effort: Effort | None = None) -> int | None:
        """As :attr:`distance`, and kept; within an effort.

        Raises:
            EffortError: when that does not suffice; another time it may.
        """
        if "distance" not in self.__dict__:
            self.__dict__["distance"] = distance(self.state, effort=effort)
        found: int | None = self.__dict__["distance"]
        return found

    def wished(self, effort: Effort | None = None) -> int | None:
        """The property distance there, kept; as :meth:`measured`."""
        if "_wished" not in self.__dict__:
            self.__dict__["_wished"] = property_distance(self.state, effort)
        found: int | None = self.__dict__["_wished"]
        return found


class Session:
    """A state to step on from, and all that led to it.

    Args:
        start: a spec (begin with its output), a partial pGraph, or an operator (begin with its last step).
        known: operators that :meth:`load` finds by name and :attr:`name` recognises.
    """

    def __init__(self, start: Spec | State | Operator, known: Known | None = None) -> None:
        self.known: Known = dict(known or {})
        self._places: list[Entry] = []
        self._children: list[list[int]] = []
        self._ahead: list[int | None] = []  # of each place the one behind it that redo goes to
        self._ways: dict[int, tuple[Step, ...]] = {}  # of places the rest of a way that was suggested
        self._place = self._grow(None, _line(start, "start"))

    @classmethod
    def restored(cls, places: Iterable[Entry], turns: Iterable[int], place: int, known: Known | None = None) -> Self:
        """A session of places that were kept, each behind one before it.

        Args:
            places: all of them, numbered from 0.
            turns: those that redo goes to although there are newer ones beside them.
            place: the one that is shown.
            known: as for the class.

        Raises:
            SynoError: for a turn or a place that does not exist.
        """
        session = cls.__new__(cls)
        session.known = dict(known or {})
        session._places, session._children, session._ahead, session._ways = [], [], [], {}
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
    def places(self) -> tuple[Entry, ...]:
        """All places there are, by their numbers."""
        return tuple(self._places)

    @property
    def place(self) -> int:
        """The number of the place that is shown."""
        return self._place

    @property
    def entry(self) -> Entry:
        """The place that is shown."""
        return self._places[self._place]

    def children(self, place: int) -> tuple[int, ...]:
        """The numbers of the places right behind a place, the oldest first."""
        return tuple(self._children[place])

    def ahead(self, place: int) -> int | None:
        """The place behind a place that redo goes to; None where there is none."""
        return self._ahead[place]

    @property
    def history(self) -> tuple[Entry, ...]:
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
    def state(self) -> State:
        """The pGraph that is shown."""
        return self.entry.state

    @property
    def can_undo(self) -> bool:
        """Whether there is a place before."""
        return self.entry.parent is not None

    @property
    def can_redo(self) -> bool:
        """Whether there is a place behind."""
        return self._ahead[self._place] is not None

    @property
    def is_complete(self) -> bool:
        """Whether the pGraph that is shown is an operator."""
        return self.state.is_complete

    @property
    def operator(self) -> Operator:
        """The operator that is shown: the one that was loaded, or the state's first match with the input.

        Raises:
            PrimitiveError: when the state is not complete.
        """
        return self.entry.operator or self.state.operator()

    @property
    def name(self) -> str | None:
        """The known operator that this is, up to the names of variables; None for another or an incomplete one."""
        return recognise(self.operator, self.known) if self.is_complete else None

    # -- moving ------------------------------------------------------------------------------------------------------

    def apply(self, step: Any) -> State:
        """Take a step (a :class:`Step` or a candidate), canonical or not.

        Raises:
            PrimitiveError: when Table 1 does not allow it; nothing has changed then.
        """
        step = getattr(step, "step", step)
        return self.go(self._behind(self._place, step))

    def undo(self) -> State:
        """Back by one place.

        Raises:
            SynoError: at the beginning.
        """
        if self.entry.parent is None:
            raise SynoError("nothing to undo: this is the beginning of the history")
        return self.go(self.entry.parent)

    def redo(self) -> State:
        """Forth by one place, along the branch that was visited last.

        Raises:
            SynoError: at the end.
        """
        ahead = self._ahead[self._place]
        if ahead is None:
            raise SynoError("nothing to redo: this is the end of the history")
        return self.go(ahead)

    def jump(self, position: int) -> State:
        """To any place of :attr:`history`, which stays as it is.

        Raises:
            SynoError: for a place that does not exist.
        """
        line = self.history
        if not _is_number(position) or not 0 <= position < len(line):
            raise SynoError(f"no place {quoted(position)} in the history: expected a number from 0 to {len(line) - 1}")
        return self.go(line[position].number)

    def go(self, place: int) -> State:
        """To any place of the tree, by its number; :attr:`history` runs through it then.

        Raises:
            SynoError: for a place that does not exist.
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
        """Begin again with the output of the spec at this place; what was before can be had back by :meth:`undo`."""
        return self.go(self._grow(self._place, (Entry(State.root(self.state.spec), note="reset"),)))

    def load(self, operator: str | Operator, *, at_start: bool = False) -> State:
        """Append an operator step by step, and go to its end, or to its start in order to replay it by :meth:`redo`.

        Without wishes of its own it has those that the session began with, if it has their axes.

        Args:
            operator: an operator, or the name of a known one.
            at_start: whether to go to the operator's first place.

        Raises:
            SynoError: for an unknown name.
        """
        note = "load"
        if isinstance(operator, str):
            if operator not in self.known:
                names = ", ".join(sorted(self.known)) or "none"
                raise SynoError(f"unknown operator {quoted(operator)}; known are {names}")
            note = f"load {operator}"
            operator = self.known[operator]()
        line = _line(_wishing(operator, self._places[0].state.spec), note)
        start = len(self._places)
        end = self._grow(self._place, line)
        self.go(end)
        return self.go(start) if at_start else self.state

    def graft(self, other: Session) -> State:
        """Append everything of another session, which begins here then, and go to where it was."""
        offset = len(self._places)
        self._check_room(len(other._places))
        for entry in other._places:
            parent = self._place if entry.parent is None else entry.parent + offset
            note = "open" if entry.parent is None else entry.note
            self._place_down(Entry(entry.state, entry.step, note, entry.operator, len(self._places), parent))
        for number, ahead in enumerate(other._ahead):
            self._ahead[offset + number] = None if ahead is None else ahead + offset
        return self.go(offset + other._place)

    # -- being helped ------------------------------------------------------------------------------------------------

    def suggest(self, seconds: float | None = PATIENCE_S, should_stop: Stop | None = None) -> Way:
        """A shortest way from here to the input (:func:`syno_lab.synthesis.ways.shortest_way`); nothing moves.

        ``should_stop`` is asked often, here and in what follows; once it says so nothing is found.

        Raises:
            StoppedError: when ``should_stop`` said so.
            SynoError: where there is nothing to suggest.
        """
        return shortest_way(self.state, seconds=seconds, should_stop=should_stop)

    def look_ahead(self, seconds: float | None = PATIENCE_S, should_stop: Stop | None = None) -> None:
        """Find the way that :meth:`take_suggestion` and :meth:`finish` take from here, at once then; nothing moves.

        Raises:
            StoppedError: when ``should_stop`` said so.
            SynoError: where there is nothing to suggest.
        """
        place = self._place
        if place not in self._ways:
            self._ways[place] = self.suggest(seconds, should_stop).steps

    def take_suggestion(self, seconds: float | None = PATIENCE_S, should_stop: Stop | None = None) -> State:
        """The next step of a shortest way to the input; asked again, the step after that, up to its end.

        Raises:
            SynoError: where there is nothing to suggest.
        """
        self.look_ahead(seconds, should_stop)
        step, *rest = self._ways[self._place]
        state = self.apply(step)
        if rest:
            self._ways.setdefault(self._place, tuple(rest))
        return state

    def finish(
        self, seconds: float | None = PATIENCE_S, *, at_start: bool = False, should_stop: Stop | None = None
    ) -> State:
        """Append a shortest way to the input, and go to its end; ``at_start`` stays, to play it by :meth:`redo`.

        Raises:
            SynoError: where there is nothing to suggest.
        """
        known = self._ways.get(self._place)
        return self.lay(self.suggest(seconds, should_stop).steps if known is None else known, at_start)

    def complete(
        self,
        rng: random.Random,
        seconds: float | None = PATIENCE_S,
        *,
        at_start: bool = False,
        should_stop: Stop | None = None,
    ) -> State:
        """Append random canonical steps to an operator, and go to its end; ``at_start`` stays, as in :meth:`finish`.

        Raises:
            SynoError: where no operator is found (:func:`syno_lab.synthesis.ways.random_way`).
        """
        return self.lay(random_way(self.state, rng, seconds=seconds, should_stop=should_stop).steps, at_start)

    def lay(self, steps: Iterable[Step], at_start: bool = False) -> State:
        """Append steps, and go to their end; ``at_start`` stays, to play them by :meth:`redo`.

        Raises:
            PrimitiveError: when Table 1 does not allow one.
        """
        here = place = self._place
        for step in steps:
            place = self._behind(place, step)
        self.go(place)
        return self.go(here) if at_start else self.state

    # -- growing -----------------------------------------------------------------------------------------------------

    def _behind(self, place: int, step: Step) -> int:
        """The place behind ``place`` by this step: the one that is there, else a new one."""
        for child in self._children[place]:
            if self._places[child].step == step:
                return child
        return self._grow(place, (Entry(self._places[place].state.apply(step), step),))

    def _grow(self, parent: int | None, entries: tuple[Entry, ...]) -> int:
        """New places, one behind the other; the number of the last."""
        self._check_room(len(entries))
        for entry in entries:
            number = len(self._places)
            self._place_down(Entry(entry.state, entry.step, entry.note, entry.operator, number, parent))
            parent = number
        return len(self._places) - 1

    def _place_down(self, entry: Entry) -> None:
        self._places.append(entry)
        self._children.append([])
        self._ahead.append(None)
        if entry.parent is not None:
            self._children[entry.parent].append(entry.number)
            self._ahead[entry.parent] = entry.number

    def _check_room(self, more: int) -> None:
        if len(self._places) + more > MAX_PLACES:
            raise SynoError(f"a session holds at most {MAX_PLACES} places; begin a new one")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wishing(operator: Operator, spec: Spec) -> Operator:
    """The operator with the wishes of ``spec`` where it has none of its own, if it has their axes."""
    if operator.spec.wants or not spec.wants:
        return operator
    try:
        own = operator.spec.with_wants(wants_text(spec.wants, spec.input_shape, spec.output_shape))
    except SpecError:
        return operator
    return replace(operator, state=replace(operator.state, spec=own))


def _line(start: Spec | State | Operator, note: str) -> tuple[Entry, ...]:
    """The places on the way to ``start``, from the output of its spec."""
    if isinstance(start, Spec):
        return (Entry(State.root(start), note=note),)
    if not isinstance(start, State | Operator):
        raise PrimitiveError(f"expected a Spec, a State or an Operator to start from, found {type(start).__name__}")
    state = State.root(start.spec)
    entries = [Entry(state, note=note)]
    for step in start.steps:
        state = state.apply(step)
        entries.append(Entry(state, step))
    if isinstance(start, Operator):
        last = entries[-1]
        entries[-1] = Entry(last.state, last.step, last.note, start)
    return tuple(entries)
