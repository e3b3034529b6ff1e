"""A session: building an operator of any system by hand, once for all systems.

What a session needs of a system is its :class:`.Construction`. A session is kept as text (:mod:`.text`).
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
    """A session of whatever system.

    Args:
        start: an operator, a spec, a state, or the text of a session or of an operator's file.

    Raises SpecError where no system knows it, or operators of its system are not built by steps; FormatError for
    a text that holds neither.
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
    """A state to step on from, all that led to it, and what a page shows of it as plain data (:mod:`.shown`).

    Methods with a ``state`` change nothing and may be called in a thread, while the session moves on; those with
    ``should_stop`` ask it often, and raise StoppedError once it says so. All others are called one at a time.
    """

    #: The rules of the user's own that are here (:meth:`restrict`), and the names of those that the session was built
    #: with before it was a text, and that are not here.
    own: tuple[Any, ...] = ()
    absent: tuple[str, ...] = ()

    def _clear(self, construction: Construction[Any, Any, Any], known: Known | None) -> None:
        super()._clear(construction, known)
        self._ways: dict[int, tuple[Any, ...]] = {}  # of places the rest of a way that was suggested
        self._rows: dict[int, Row] = {}

    def copy(self) -> Self:
        """The same places and rules, to move on by themselves; what is worked out of a place is shared."""
        found = self.restored(self.construction, self._places, self.turns, self._place, self.known)
        found.own, found.absent = self.own, self.absent
        return found

    # -- rules of the user's own -------------------------------------------------------------------------------------

    def restrict(self, rules: Sequence[Any]) -> None:
        """Have rules of the user's own refuse steps, beside those of the system.

        Lists show the steps that they refuse with the reason; suggestions and random ways have none of them.

        Args:
            rules: functions of a state and a step (:func:`.own_rule`), or rows of the system's own.

        Raises CodeError for what is no rule; SpecError where two rules have one name.
        """
        row, rule = self.construction.row, self.construction.rule
        found = [one if row is not None and isinstance(one, row) else rule(own_rule(one)) for one in rules]
        own = (*self.own, *(rule for rule in found if rule not in self.rules))
        check_names(rule.name for rule in (*self.construction.rules, *own))
        self.own = own
        self._miss()

    @property
    def rules(self) -> tuple[Any, ...]:
        """What is canonical: the system's rules, and those of the user's own behind them."""
        return (*self.construction.rules, *self.own)

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names of the user's rules."""
        return tuple([rule.name for rule in self.own])

    @property
    def rule_names(self) -> list[str]:
        """What a text of this session says of rules: the names of those that are here, and of those that were."""
        return [*self.own_names, *self.absent]

    def _miss(self, names: Iterable[str] = ()) -> None:
        """Bring :attr:`absent` up to date, with more names; those of a text are cut to a sensible length."""
        here = {name[: texts.MAX_NOTE] for name in self.own_names}
        named = dict.fromkeys(name[: texts.MAX_NOTE] for name in (*self.absent, *names))
        self.absent = tuple([name for name in named if name not in here])

    # -- being helped ------------------------------------------------------------------------------------------------

    def look_ahead(self, seconds: float | None = PATIENCE_S, should_stop: Stop | None = None) -> None:
        """Find the way that :meth:`take_suggestion` and :meth:`finish` take from here, at once then; nothing moves.

        Args:
            seconds: of computing.
            should_stop: asked often; once it says so nothing is found.

        Raises StoppedError when ``should_stop`` said so; SynoError where there is nothing to suggest.
        """
        place = self._place
        if place not in self._ways:
            self._ways[place] = self._way(seconds, should_stop)

    def take_suggestion(self, seconds: float | None = PATIENCE_S, should_stop: Stop | None = None) -> State:
        """The next step of a shortest way to an operator; asked again, the step after that, up to its end.

        Raises SynoError where there is nothing to suggest; so does :meth:`finish`.
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
        """Append a shortest way to an operator, and go to its end; ``at_start`` stays, to play it by :meth:`redo`."""
        known = self._ways.get(self._place)
        return self.lay(self._way(seconds, should_stop) if known is None else known, at_start)

    def _way(self, seconds: float | None, should_stop: Stop | None) -> tuple[Any, ...]:
        return tuple(self.construction.way(self.state, self.rules, Patience(seconds, should_stop)))

    def random_steps(
        self,
        state: State,
        rng: random.Random,
        seconds: float | None = PATIENCE_S,
        *,
        should_stop: Stop | None = None,
    ) -> tuple[Any, ...]:
        """Random steps from a state to an operator. Raises SynoError where none is found."""
        return tuple(self.construction.way(state, self.rules, Patience(seconds, should_stop), rng))

    def take_instead(self, candidate: Hashable) -> State:
        """Take canonical steps in place of a refused one, as a branch behind the place where they begin.

        Raises SynoError where none are known.
        """
        way = self._detour(self.state, candidate)
        if way is None:
            raise SynoError("no canonical steps are known in place of this one; undo, and choose one of the lists")
        self.jump(self.position - way.back)
        return self.lay(way.steps)

    def _detour(self, state: State, candidate: Hashable) -> Detour[Any] | None:
        """The canonical steps in place of a candidate of the shown state, whose way is known, or of another one."""
        if not isinstance(self.construction, Detours):
            return None
        entry, path = self.entry, [state]
        while entry.state is path[0] and entry.step is not None and entry.parent is not None:
            entry = self._places[entry.parent]
            path.insert(0, entry.state)
        return self.construction.instead(path, candidate, self.rules)

    def aimed(self, state: State, choice: str) -> Hashable:
        """The step that changes what is wanted, by the name of its choice.

        Raises SynoError for an unknown one, and where nothing is wanted that can be changed.
        """
        if not isinstance(self.construction, Aiming):
            raise SynoError(f"nothing is wanted here that can be changed, found {quoted(choice)}")
        return self.construction.aimed(state, choice)

    # -- as a page shows it ------------------------------------------------------------------------------------------

    @property
    def labels(self) -> dict[str, str | list[str]]:
        """What the stepper calls things of this system: :class:`.Labels`, and ``hand_`` with :class:`.HandLabels`."""
        hand = self.construction.hand if isinstance(self.construction, ByHand) else HandLabels()
        return {**plain(self.construction.labels), **{f"hand_{name}": words for name, words in plain(hand).items()}}

    def picture(self) -> Picture:
        """The shown state, drawn."""
        return self.construction.picture(self.entry)

    def status(self, seconds: float | None = None) -> str:
        """Where the session is, in one or two sentences, without facts that take longer than ``seconds``."""
        effort = None if seconds is None else Effort(seconds)
        return told(self.construction.status(self.entry, self.name, effort), self.absent)

    def strip(self, state: State) -> list[JSON]:
        """What is used of what there is, cheap to count: records of :class:`.Used`."""
        return [*plain(self.construction.strip(state))]

    def candidates(self, state: State, *, should_stop: Stop | None = None) -> Sequence[Any]:
        """All steps that may be taken next, those that are refused among them."""
        return self.construction.candidates(state, self.rules, should_stop)

    def menu(
        self, state: State, found: Sequence[Any], chosen: str = "", whole: Collection[str] = ()
    ) -> list[dict[str, Any]]:
        """The candidates in records of :class:`.Group`; see :meth:`.Construction.menu`."""
        return [*plain(self.construction.menu(state, found, chosen, whole))]

    def ticks(self, state: State) -> list[JSON]:
        """What the user can combine into a step: records of :class:`.Tick`; [] for nothing."""
        return [*plain(self.construction.ticks(state))] if isinstance(self.construction, ByHand) else []

    def ticked(self, state: State, share: Sequence[str], give: Sequence[str], choice: str = "") -> Hashable:
        """The step of ticked nodes; ``choice`` is the name of one where the preview has several.

        Raises SynoError for unknown ones, and where no steps are put together by hand.
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
        """The facts of :meth:`ticked`: a record of :class:`.Preview`; {} where nothing is ticked, or can be."""
        if not isinstance(self.construction, ByHand) or not (share or give):
            return {}
        facts: dict[str, JSON] = plain(self.construction.preview(state, found, share, give, self.rules, should_stop))
        return facts

    def why(self, state: State, candidate: Hashable) -> dict[str, JSON]:
        """Why a candidate is refused: a record of :class:`.Why`. Raises SynoError for one that may be taken."""
        found: dict[str, JSON] = plain(self.construction.why(state, candidate))
        if isinstance(self.construction, Detours):
            way = self._detour(state, candidate)
            found["instead"] = "" if way is None else way.words
        return found

    def explain(self, state: State, *, should_stop: Stop | None = None) -> dict[str, JSON]:
        """How far the state is from an operator: a record of :class:`.Explanation`."""
        found: dict[str, JSON] = plain(self.construction.explain(state, should_stop))
        return found

    def course(self, most: int) -> str:
        """The distances along :attr:`history` around the place that is shown, at most so many, as SVG."""
        line, here = self.history, self.position
        first = max(0, min(here - most // 2, len(line) - most))
        return self.construction.course(line[first : first + most], here - first, first)

    def rows(self, *, should_stop: Stop | None = None) -> list[JSON]:
        """The tree of all places from the first on: records of :class:`.Row`.

        A place that goes on in several ways is followed by its branches, each indented, and then by the way that is
        oldest, which is not. What was worked out for a place is kept.
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
        """The session of a text: of :meth:`to_json`, of :meth:`to_word`, or of a file that a session can begin with.

        Raises FormatError: one line: what was expected, what was found and where.
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
        """The whole session as JSON, with all branches and the place that is shown."""
        return texts.to_json(self)

    def to_word(self) -> str:
        """:meth:`to_json` in one word of letters and digits, for a chat or an address: ``syno-session:…``."""
        return texts.word_of(self.to_json())

    def read(self, text: str) -> Self:
        """Read a session of the same system from a text, as :meth:`reading` does; this session stays."""
        return self.reading(text, self.construction, self.known)

    def graft(self, other: Self) -> State:
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
