"""The history of building step by step, for the sessions of every system (:class:`syno_lab.session_protocol.Session`).

The history is a tree of places and never forgets one. A step from a place that has been stepped on from before begins a
branch; taking the same step again goes to the place that is there. Undo goes to the place before, redo to the one that
was visited last of those behind, so that both run along a *line* through the tree; any place can be gone to.

A history is kept as JSON, or as the same JSON in one word to paste and reopen. Reading one replays each step through
the checks that steps by hand go through.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

from syno_lab.effort import Effort, Stop
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.inputs import quoted

#: Places that a history may have: far more than are stepped by hand.
MAX_PLACES = 20_000
#: Bytes of the JSON of a history.
MAX_BYTES = 1 << 22
MAX_NOTE = 80
#: Letters of a comment.
MAX_COMMENT = 1000
PREFIX = "syno-session:"
#: Seconds of computing for a suggestion or a completion, unless told.
PATIENCE_S = 4.0

_State = TypeVar("_State")
_Step = TypeVar("_Step")
_Entry = TypeVar("_Entry", bound="Entry")


@dataclass(frozen=True)
class Entry:
    """One place in the history.

    Attributes:
        state: the state there.
        step: the step that led to it, None for a beginning.
        note: why it begins here: ``start``, ``reset``, ``open`` or ``load conv2d``; empty after a step.
        operator: the operator that was given, where it was.
        number: of the place, in order of creation.
        parent: the number of the place before; None for the first.
        comment: what the user wrote about it.
    """

    state: Any
    step: Any = None
    note: str = ""
    operator: Any = None
    number: int = 0
    parent: int | None = None
    comment: str = ""

    @property
    def distance(self) -> float | None:
        """How far it is from there to an operator, in steps say; None where none can be reached."""
        return self.measured()

    @property
    def is_complete(self) -> bool:
        """Whether the state is an operator."""
        return self.operator is not None or bool(self.state.is_complete)

    def measured(self, effort: Effort | None = None) -> float | None:
        """As :attr:`distance`, and kept; within an effort.

        Raises:
            EffortError: when that does not suffice; another time it may.
        """
        if "distance" not in self.__dict__:
            self.__dict__["distance"] = self._measure(effort)
        found: float | None = self.__dict__["distance"]
        return found

    def _measure(self, effort: Effort | None) -> float | None:
        raise NotImplementedError


class History(ABC, Generic[_State, _Step, _Entry]):
    """A state to step on from, and all that led to it.

    Args:
        start: what the system begins with.
        known: operators that :meth:`load` finds by name.
    """

    #: The names of rules of somebody's own that the session was built with before it was a text, and that are not here.
    absent: tuple[str, ...] = ()

    def __init__(self, start: Any, known: Mapping[str, Callable[[], Any]] | None = None) -> None:
        self._clear(known)
        self._place = self._grow(None, self._line(start, "start"))

    def _clear(self, known: Mapping[str, Callable[[], Any]] | None) -> None:
        self.known: Mapping[str, Callable[[], Any]] = dict(known or {})
        self._places: list[_Entry] = []
        self._children: list[list[int]] = []
        self._ahead: list[int | None] = []  # of each place the one behind it that redo goes to
        self._ways: dict[int, tuple[_Step, ...]] = {}  # of places the rest of a way that was suggested

    @classmethod
    def restored(
        cls,
        places: Iterable[_Entry],
        turns: Iterable[int],
        place: int,
        known: Mapping[str, Callable[[], Any]] | None = None,
        rules: Iterable[str] = (),
    ) -> Self:
        """A history of places that were kept, each behind one before it.

        Args:
            places: all of them, numbered from 0.
            turns: those that redo goes to although there are newer ones beside them.
            place: the one that is shown.
            known: as for the class.
            rules: the names of the rules of somebody's own that it was built with, for :attr:`absent`.

        Raises:
            SynoError: for a turn or a place that does not exist.
        """
        session = cls.__new__(cls)
        session._clear(known)
        for entry in places:
            session._place_down(entry)
        for turn in turns:
            parent = session._places[turn].parent if 0 <= turn < len(session._places) else None
            if parent is None:
                raise SynoError(f"turns: expected a place behind another one, found {turn}")
            session._ahead[parent] = turn
        session.go(place)
        session._miss(rules)
        return session

    def copy(self) -> Self:
        """The same places, to move on by themselves; what is worked out of a place is shared."""
        return type(self).restored(self._places, self.turns, self._place, self.known, self.absent)

    # -- what a system says ------------------------------------------------------------------------------------------

    @abstractmethod
    def _line(self, start: Any, note: str) -> tuple[_Entry, ...]:
        """The places on the way to what a session begins with, from its beginning."""

    @abstractmethod
    def _beginning(self, state: _State) -> _Entry:
        """Where the way to a state begins."""

    @abstractmethod
    def _step(self, step: Any) -> _Step:
        """A step, or the step of a candidate, as it is kept."""

    @abstractmethod
    def _after(self, state: _State, step: _Step) -> _Entry:
        """What a step leads to. Raises PrimitiveError for an illegal one."""

    @abstractmethod
    def _way(self, seconds: float | None, should_stop: Stop | None) -> tuple[_Step, ...]:
        """The steps of a shortest way from the shown place to an operator. Raises SynoError where there is none."""

    def _loaded(self, operator: Any) -> Any:
        """An operator as :meth:`load` appends it."""
        return operator

    def restrict(self, rules: Sequence[Any]) -> None:
        """See :meth:`syno_lab.session_protocol.Session.restrict`."""
        if rules:
            raise SpecError("rules: the sessions of this system take no rules of one's own")

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names of the rules of the user's own that are here (:meth:`restrict`)."""
        return ()

    @property
    def rule_names(self) -> list[str]:
        """What a text of this session says of rules: the names of those that are here, and of those that were."""
        return [*self.own_names, *self.absent]

    def _miss(self, names: Iterable[str] = ()) -> None:
        """Bring :attr:`absent` up to date, with more names; those of a text are cut to a sensible length."""
        here = {name[:MAX_NOTE] for name in self.own_names}
        named = dict.fromkeys(name[:MAX_NOTE] for name in (*self.absent, *names))
        self.absent = tuple([name for name in named if name not in here])

    def _stays(self, entry: _Entry) -> bool:
        """Whether :meth:`undo_to_progress` goes no further back: it is nearer, or a beginning."""
        if entry.step is None or entry.parent is None:
            return True
        before, after = self._places[entry.parent].distance, entry.distance
        return after is not None and (before is None or after < before)

    def take_instead(self, candidate: Any) -> _State:
        """Take the canonical steps in place of a pruned one. Raises SynoError where none are known."""
        raise SynoError("no canonical steps are known in place of this one; undo, and choose one of the lists")

    def aimed(self, state: _State, choice: str) -> _Step:
        """The step that changes what is wanted. Raises SynoError where nothing is that can be changed."""
        raise SynoError(f"nothing is wanted here that can be changed, found {quoted(choice)}")

    # -- where we are ------------------------------------------------------------------------------------------------

    @property
    def places(self) -> tuple[_Entry, ...]:
        """All places there are, by their numbers."""
        return tuple(self._places)

    @property
    def place(self) -> int:
        """The number of the place that is shown."""
        return self._place

    @property
    def entry(self) -> _Entry:
        """The place that is shown."""
        return self._places[self._place]

    def children(self, place: int) -> tuple[int, ...]:
        """The numbers of the places right behind a place, the oldest first."""
        return tuple(self._children[place])

    def ahead(self, place: int) -> int | None:
        """The place behind a place that redo goes to; None where there is none."""
        return self._ahead[place]

    def behind(self, step: Any) -> int | None:
        """The place behind the shown one that a step or a candidate has led to; None where it was not taken."""
        try:
            taken = self._step(step)
        except SynoError:  # it cannot be taken
            return None
        return next((child for child in self._children[self._place] if self._places[child].step == taken), None)

    @property
    def turns(self) -> list[int]:
        """The places that redo goes to although their parents have newer ones."""
        found = zip(self._ahead, self._children, strict=True)
        return [ahead for ahead, children in found if ahead is not None and ahead != children[-1]]

    @property
    def history(self) -> tuple[_Entry, ...]:
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

    def around_here(self, most: int) -> tuple[tuple[_Entry, ...], int, int]:
        """The places of :attr:`history` around the shown one, at most so many.

        Returns:
            The places, the position of the shown one among them, and how many are before the first of them.
        """
        line, here = self.history, self.position
        first = max(0, min(here - most // 2, len(line) - most))
        return line[first : first + most], here - first, first

    @property
    def state(self) -> _State:
        """The state that is shown."""
        found: _State = self.entry.state
        return found

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
        """Whether the state that is shown is an operator."""
        return self.entry.is_complete

    # -- moving ------------------------------------------------------------------------------------------------------

    def apply(self, step: Any) -> _State:
        """Take a step or a candidate, canonical or not.

        Raises:
            PrimitiveError: when it is illegal; nothing has changed then.
        """
        return self.go(self._behind(self._place, self._step(step)))

    def undo(self) -> _State:
        """Back by one place.

        Raises:
            SynoError: at the beginning.
        """
        if self.entry.parent is None:
            raise SynoError("nothing to undo: this is the beginning of the history")
        return self.go(self.entry.parent)

    def undo_to_progress(self) -> _State:
        """Back to the last place that is nearer than the one before it, or to one that must stay.

        Raises:
            SynoError: where that is the shown one.
        """
        entry = self.entry
        while entry.parent is not None and not self._stays(entry):
            entry = self._places[entry.parent]
        if entry is self.entry:
            raise SynoError("nothing to undo: the last step was progress, or a beginning")
        return self.go(entry.number)

    def redo(self) -> _State:
        """Forth by one place, along the branch that was visited last.

        Raises:
            SynoError: at the end.
        """
        ahead = self._ahead[self._place]
        if ahead is None:
            raise SynoError("nothing to redo: this is the end of the history")
        return self.go(ahead)

    def jump(self, position: int) -> _State:
        """To any place of :attr:`history`, which stays as it is.

        Raises:
            SynoError: for a place that does not exist.
        """
        line = self.history
        if not _is_number(position) or not 0 <= position < len(line):
            raise SynoError(f"no place {quoted(position)} in the history: expected a number from 0 to {len(line) - 1}")
        return self.go(line[position].number)

    def go(self, place: int) -> _State:
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

    def reset(self) -> _State:
        """Begin again where the way to this place begins; what was before can be had back by :meth:`undo`."""
        return self.go(self._grow(self._place, (replace(self._beginning(self.state), note="reset"),)))

    def comment(self, text: str) -> None:
        """Write about the place that is shown; an empty text removes what was written.

        Raises:
            SynoError: for a text that is too long.
        """
        if len(text) > MAX_COMMENT:
            raise SynoError(f"comment: expected at most {MAX_COMMENT} letters, found {len(text)}; shorten it")
        self._places[self._place] = replace(self.entry, comment=text.strip())

    def load(self, operator: Any, *, at_start: bool = False) -> _State:
        """Append an operator step by step, and go to its end, or to its start in order to replay it by :meth:`redo`.

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
        line = self._line(self._loaded(operator), note)
        start = len(self._places)
        end = self._grow(self._place, line)
        self.go(end)
        return self.go(start) if at_start else self.state

    def graft(self, other: Self) -> _State:
        """Append everything of another session, which begins here then, and go to where it was."""
        offset = len(self._places)
        self._check_room(len(other._places))
        for entry in other._places:
            parent = self._place if entry.parent is None else entry.parent + offset
            note = "open" if entry.parent is None else entry.note
            self._place_down(replace(entry, note=note, number=len(self._places), parent=parent))
        for number, ahead in enumerate(other._ahead):
            self._ahead[offset + number] = None if ahead is None else ahead + offset
        self._miss(other.rule_names)
        return self.go(offset + other._place)

    # -- being helped ------------------------------------------------------------------------------------------------

    def look_ahead(self, seconds: float | None = PATIENCE_S, should_stop: Stop | None = None) -> None:
        """Find the way that :meth:`take_suggestion` and :meth:`finish` take from here, at once then; nothing moves.

        Args:
            seconds: of computing.
            should_stop: asked often; once it says so nothing is found.

        Raises:
            StoppedError: when ``should_stop`` said so.
            SynoError: where there is nothing to suggest.
        """
        place = self._place
        if place not in self._ways:
            self._ways[place] = self._way(seconds, should_stop)

    def take_suggestion(self, seconds: float | None = PATIENCE_S, should_stop: Stop | None = None) -> _State:
        """The next step of a shortest way to an operator; asked again, the step after that, up to its end.

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
    ) -> _State:
        """Append a shortest way to an operator, and go to its end; ``at_start`` stays, to play it by :meth:`redo`.

        Raises:
            SynoError: where there is nothing to suggest.
        """
        known = self._ways.get(self._place)
        return self.lay(self._way(seconds, should_stop) if known is None else known, at_start)

    def lay(self, steps: Iterable[_Step], at_start: bool = False) -> _State:
        """Append steps, and go to their end; ``at_start`` stays, to play them by :meth:`redo`.

        Raises:
            PrimitiveError: where one is illegal.
        """
        here = place = self._place
        for step in steps:
            place = self._behind(place, self._step(step))
        self.go(place)
        return self.go(here) if at_start else self.state

    # -- growing -----------------------------------------------------------------------------------------------------

    def _behind(self, place: int, step: _Step) -> int:
        """The place behind ``place`` by this step: the one that is there, else a new one."""
        for child in self._children[place]:
            if self._places[child].step == step:
                return child
        return self._grow(place, (self._after(self._places[place].state, step),))

    def _grow(self, parent: int | None, entries: tuple[_Entry, ...]) -> int:
        """New places, one behind the other; the number of the last."""
        self._check_room(len(entries))
        for entry in entries:
            number = len(self._places)
            self._place_down(replace(entry, number=number, parent=parent))
            parent = number
        return len(self._places) - 1

    def _place_down(self, entry: _Entry) -> None:
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


# -- as text -----------------------------------------------------------------------------------------------------------


def word_of(text: str) -> str:
    """The JSON of a history in one word of letters and digits, for a chat or an address: ``syno-session:…``."""
    packed = zlib.compress(text.encode(), 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def text_of(text: str) -> str:
    """The JSON of a word, or of a text that is JSON.

    Raises:
        FormatError: one line: what was expected and found.
    """
    text = text.strip()
    if text.startswith(PREFIX):
        return _unpacked(text.removeprefix(PREFIX))
    if not text.startswith("{"):
        found = repr(text[:20]) if text else "nothing"
        raise FormatError(f"session: expected {PREFIX}…, or JSON of a session or an operator, found {found}")
    return text


def _unpacked(word: str) -> str:
    try:
        packed = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(packed, MAX_BYTES)
        if unpacking.unconsumed_tail:
            raise FormatError(f"session: expected at most {MAX_BYTES} bytes, found more")
        if not unpacking.eof:
            raise FormatError("session: the text breaks off; copy all of it")
        return text.decode()
    except (binascii.Error, zlib.error, ValueError) as error:
        raise FormatError(f"session: the text behind {PREFIX} is damaged: {error}") from None


class _Record(Protocol):
    """What the record of a place says of every system."""

    parent: int | None
    comment: str


_AnyRecord = TypeVar("_AnyRecord", bound=_Record)


def replayed(records: Sequence[_AnyRecord], place: Callable[[_AnyRecord, list[_Entry], str], _Entry]) -> list[_Entry]:
    """The places of their records, in order.

    Args:
        records: each with the number of a place before it as its ``parent``; the first without one.
        place: makes a place of its record, the places before it, and the name of the place for messages.

    Raises:
        FormatError: one line: what was expected, what was found and where.
    """
    if not 0 < len(records) <= MAX_PLACES:
        raise FormatError(f"session: places: expected from 1 to {MAX_PLACES}, found {len(records)}")
    entries: list[_Entry] = []
    for number, record in enumerate(records):
        where = f"place {number}"
        if (record.parent is None) != (number == 0) or not 0 <= (record.parent or 0) < max(1, number):
            raise FormatError(
                f"session: {where}: expected a place before it as its parent, found {quoted(record.parent)}"
            )
        try:
            entry = place(record, entries, where)
            comment = record.comment[:MAX_COMMENT]
            entries.append(replace(entry, number=number, parent=record.parent, comment=comment))
        except FormatError:
            raise
        except SynoError as error:
            raise FormatError(f"session: {where}: {error}") from None
    return entries
