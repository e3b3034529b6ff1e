"""A session: build an operator of any system by hand.

A session uses a system through its :class:`.Construction`, and is stored as text (:mod:`.text`).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import msgspec

from syno_lab.effort import Effort, Stop
from syno_lab.errors import FormatError, SynoError
from syno_lab.inputs import quoted
from syno_lab.protocol import Stepwise
from syno_lab.sessions import text as texts
from syno_lab.sessions.construction import (
    PATIENCE_S,
    Aiming,
    ByHand,
    Construction,
    Detour,
    Detours,
    HandLabels,
    Patience,
    Place,
    State,
)
from syno_lab.sessions.history import MAX_COMMENT, MAX_PLACES, History, Known
from syno_lab.sessions.own_rule import check_names, own_rule, told
from syno_lab.sessions.shown import Picture, Row, plain
from syno_lab.systems import all_systems, find_system, format_of
from syno_lab.versioned import JSON


def session_of(start: Any) -> Session:
    """Begin a session of any system.

    Args:
        start: an operator, a spec, a state, or the text of a session or of an operator's file.

    Raises SpecError if no system recognises the value, or if operators of its system are not built by steps. Raises
    FormatError for a text that holds neither a session nor an operator.
    """
    if not isinstance(start, str):
        return Session(start)
    text = texts.text_of(start)
    name = texts.named(text)
    for system in all_systems():
        if isinstance(system, Stepwise):
            construction = system.construction
            if name in ("", construction.format) or name in construction.readers:
                return Session.reading(text, construction)
    return Session(find_system(format_of(text)).read(text))


class Session(History):
    """A history with suggestions, rules of the user's own, and plain data for a page (:mod:`.shown`).

    Methods with an argument ``state`` change nothing, so a thread may call them at any time. Methods with
    ``should_stop`` call it often and raise StoppedError when it returns True. Other methods need one caller at a time.
    """

    #: The user's own rules (:meth:`restrict`), and the names of absent rules. A session that is read from text knows
    #: only the names of the rules that it was built with.
    own: tuple[Any, ...] = ()
    absent: tuple[str, ...] = ()

    def _clear(self, construction: Construction[Any, Any, Any], known: Known | None) -> None:
        super()._clear(construction, known)
        self._ways: dict[int, tuple[Any, ...]] = {}  # for each place, the further steps of a suggestion
        self._rows: dict[int, Row] = {}

    def copy(self) -> Self:
        """Return a copy of the session with its own shown place; both sessions share the cached numbers."""
        copied = self.restored(self.construction, self._places, self.turns, self._place, self.known)
        copied.own, copied.absent = self.own, self.absent
        return copied

    # -- rules of the user's own -------------------------------------------------------------------------------------

    def restrict(self, rules: Sequence[Any]) -> None:
        """Add rules of the user's own that refuse steps, in addition to the system's rules.

        Lists show the refused steps with the reason; suggestions and random steps contain no refused step.

        Args:
            rules: functions of a state and a step (:func:`.own_rule`), or rows of the system's own type.

        Raises CodeError for a value that is no rule, and SpecError if two rules have one name.
        """
        row, rule = self.construction.row, self.construction.rule
        converted = [entry if row is not None and isinstance(entry, row) else rule(own_rule(entry)) for entry in rules]
        own = (*self.own, *(rule for rule in converted if rule not in self.rules))
        check_names(rule.name for rule in (*self.construction.rules, *own))
        self.own = own
        self._miss()

    @property
    def rules(self) -> tuple[Any, ...]:
        """Return the rules that define canonical steps: the system's rules, then the user's own."""
        return (*self.construction.rules, *self.own)

    @property
    def own_names(self) -> tuple[str, ...]:
        """Return the names of the user's own rules."""
        return tuple([rule.name for rule in self.own])

    @property
    def rule_names(self) -> list[str]:
        """Return the names of the user's own rules for the session's text, then the names of the absent rules."""
        return [*self.own_names, *self.absent]

    def _miss(self, names: Iterable[str] = ()) -> None:
        """Add names to :attr:`absent` and remove the names of present rules; long names are cut."""
        here = {name[: texts.MAX_NOTE] for name in self.own_names}
        named = dict.fromkeys(name[: texts.MAX_NOTE] for name in (*self.absent, *names))
        self.absent = tuple([name for name in named if name not in here])

    # -- suggestions -------------------------------------------------------------------------------------------------

    def look_ahead(self, seconds: float | None = PATIENCE_S, should_stop: Stop | None = None) -> None:
        """Compute the steps that :meth:`take_suggestion` and :meth:`finish` would take from here, without taking them.

        Args:
            seconds: the limit of computing time.
            should_stop: a callback; True ends the search without steps.

        Raises StoppedError when ``should_stop`` returns True, and SynoError if there is nothing to suggest.
        """
        place = self._place
        if place not in self._ways:
            self._ways[place] = self._way(seconds, should_stop)

    def take_suggestion(self, seconds: float | None = PATIENCE_S, should_stop: Stop | None = None) -> State:
        """Take the next step of a shortest way to an operator; further calls take the steps after it.

        Raises SynoError if there is nothing to suggest, as :meth:`finish` does.
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
        """Append a shortest way to an operator and go to its end; with ``at_start`` stay here for :meth:`redo`."""
        known = self._ways.get(self._place)
        return self.lay(self._way(seconds, should_stop) if known is None else known, at_start)

    def _way(self, seconds: float | None, should_stop: Stop | None) -> tuple[Any, ...]:
        return tuple(self.construction.way(self.state, self.rules, Patience(seconds, should_stop)))

    def random_steps(
        self, state: State, rng: random.Random, seconds: float | None = PATIENCE_S, *, should_stop: Stop | None = None
    ) -> tuple[Any, ...]:
        """Return random steps from a state to an operator. Raises SynoError if no such steps are found."""
        return tuple(self.construction.way(state, self.rules, Patience(seconds, should_stop), rng))

    def take_instead(self, candidate: Hashable) -> State:
        """Take canonical steps in place of a refused step, as a branch after an earlier place or the shown place.

        Raises SynoError if no replacement is known.
        """
        way = self._detour(self.state, candidate)
        if way is None:
            raise SynoError("no known canonical steps replace this step; undo, and choose a step of the list")
        self.jump(self.position - way.back)
        return self.lay(way.steps)

    def _detour(self, state: State, candidate: Hashable) -> Detour[Any] | None:
        """Find the replacement of a candidate; the path before ``state`` is known only for the shown state."""
        if not isinstance(self.construction, Detours):
            return None
        entry, path = self.entry, [state]
        while entry.state is path[0] and entry.step is not None and entry.parent is not None:
            entry = self._places[entry.parent]
            path.insert(0, entry.state)
        return self.construction.instead(path, candidate, self.rules)

    def aimed(self, state: State, choice: str) -> Hashable:
        """Return the step that changes the target to the choice of this name.

        Raises SynoError for an unknown choice, and for systems without such steps.
        """
        if not isinstance(self.construction, Aiming):
            raise SynoError(f"expected a step of the list, found the choice {quoted(choice)}")
        return self.construction.aimed(state, choice)

    # -- pictures and texts ------------------------------------------------------------------------------------------

    @property
    def labels(self) -> dict[str, str | list[str]]:
        """Return the stepper's texts: the fields of :class:`.Labels`, and of :class:`.HandLabels` after ``hand_``."""
        hand = self.construction.hand if isinstance(self.construction, ByHand) else HandLabels()
        return {**plain(self.construction.labels), **{f"hand_{name}": words for name, words in plain(hand).items()}}

    def picture(self) -> Picture:
        """Draw the shown state."""
        return self.construction.picture(self.entry)

    def status(self, seconds: float | None = None) -> str:
        """Describe the shown place in one or two sentences, without facts that take longer than ``seconds``."""
        effort = None if seconds is None else Effort(seconds)
        return told(self.construction.status(self.entry, self.name, effort), self.absent)

    def strip(self, state: State) -> list[JSON]:
        """Return how much of each limit is used: records of :class:`.Used`."""
        return [*plain(self.construction.strip(state))]

    def candidates(self, state: State, *, should_stop: Stop | None = None) -> Sequence[Any]:
        """Return all next steps, including those that rules refuse."""
        return self.construction.candidates(state, self.rules, should_stop)

    def menu(
        self, state: State, found: Sequence[Any], chosen: str = "", whole: Collection[str] = ()
    ) -> list[dict[str, Any]]:
        """Group the candidates in records of :class:`.Group`; see :meth:`.Construction.menu`."""
        return [*plain(self.construction.menu(state, found, chosen, whole))]

    def ticks(self, state: State) -> list[JSON]:
        """Return the nodes that the user can tick for a step, as records of :class:`.Tick`; [] for no nodes."""
        return [*plain(self.construction.ticks(state))] if isinstance(self.construction, ByHand) else []

    def ticked(self, state: State, share: Sequence[str], give: Sequence[str], choice: str = "") -> Hashable:
        """Return the step of the ticked nodes; ``choice`` names the step where several steps use these nodes.

        Raises SynoError for unknown nodes or choices, and for systems without steps by hand.
        """
        if not isinstance(self.construction, ByHand):
            raise SynoError("expected a step of the list, found ticks")
        return self.construction.ticked(state, share, give, choice)

    def preview(
        self,
        state: State,
        found: Sequence[Any],
        share: Sequence[str],
        give: Sequence[str],
        *,
        should_stop: Stop | None = None,
    ) -> dict[str, JSON]:
        """Describe the step of :meth:`ticked` in a record of :class:`.Preview`; {} without ticked nodes."""
        if not isinstance(self.construction, ByHand) or not (share or give):
            return {}
        return plain(self.construction.preview(state, found, share, give, self.rules, should_stop))

    def why(self, state: State, candidate: Hashable) -> dict[str, JSON]:
        """Explain a refusal in a record of :class:`.Why`. Raises SynoError for a candidate that is not refused."""
        facts: dict[str, JSON] = plain(self.construction.why(state, candidate))
        if isinstance(self.construction, Detours):
            way = self._detour(state, candidate)
            facts["instead"] = "" if way is None else way.words
        return facts

    def explain(self, state: State, *, should_stop: Stop | None = None) -> dict[str, JSON]:
        """Explain in a record of :class:`.Explanation` how far the state is from an operator."""
        return plain(self.construction.explain(state, should_stop))

    def course(self, most: int) -> str:
        """Draw the distances along :attr:`history` as SVG, for at most ``most`` places around the shown place."""
        line, here = self.history, self.position
        first = max(0, min(here - most // 2, len(line) - most))
        return self.construction.course(line[first : first + most], here - first, first)

    def rows(self, *, should_stop: Stop | None = None) -> list[JSON]:
        """List all places of the tree, the first place first, as records of :class:`.Row`.

        After a place with several children come the newer children with their subtrees, indented, and then the oldest
        child, not indented. The distances of places are cached.
        """
        effort = Effort(should_stop=should_stop)
        rows, waiting = [], [(0, 0, False)]
        while waiting:
            number, level, is_branch = waiting.pop()
            row, comment = self._row(self._places[number], effort), self._places[number].comment
            rows.append(msgspec.structs.replace(row, level=level, branch=is_branch, comment=comment))
            children = self._children[number]
            waiting += [(child, level, False) for child in children[:1]]
            waiting += [(child, level + 1, True) for child in reversed(children[1:])]
        return [*plain(rows)]

    def _row(self, entry: Place[Any, Any], effort: Effort) -> Row:
        if entry.number not in self._rows:
            effort.tick("listing the history")
            text = entry.note if entry.step is None else self.construction.describe(entry.state, entry.step)
            far, is_start = entry.measured(effort), entry.step is None
            self._rows[entry.number] = Row(entry.number, entry.parent, text, is_start, far, entry.is_complete)
        return self._rows[entry.number]

    # -- as text -----------------------------------------------------------------------------------------------------

    @classmethod
    def reading(cls, text: str, construction: Construction[Any, Any, Any], known: Known | None = None) -> Self:
        """Read a session from its JSON, its word, or the text of a file that can begin it, such as an operator's.

        Raises FormatError with one line: the expected value, the found value and the position.
        """
        text = texts.text_of(text)
        try:
            if read := construction.readers.get(texts.named(text)):
                return cls(read(text), known, construction)
            record = texts.read(text, construction)
            places = texts.replayed(record.places, construction.reader(record), MAX_PLACES, MAX_COMMENT)
            session = cls.restored(construction, places, record.turns, record.place, known)
        except FormatError:
            raise
        except SynoError as error:
            raise FormatError(f"session: {error}") from None
        session._miss(record.rules)
        return session

    def to_json(self) -> str:
        """Write the session as JSON, with all branches and the number of the shown place."""
        return texts.to_json(self)

    def to_word(self) -> str:
        """Write :meth:`to_json` as one word of letters and digits, for a chat or an address: ``syno-session:…``."""
        return texts.word_of(self.to_json())

    def read(self, text: str) -> Self:
        """Read a session of the same system from a text, as :meth:`reading` does; this session does not change."""
        return self.reading(text, self.construction, self.known)

    def graft(self, other: Self) -> State:
        """Append all places of another session after the shown place, and go to the place that ``other`` shows."""
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
