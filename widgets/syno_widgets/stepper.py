"""The stepper: build an operator in a notebook, one step at a time.

The browser reads only the traits below and sends small messages (:mod:`syno_widgets.stepper_request`). This file and
the session (:class:`syno_lab.sessions.session.Session`) of the operator's system interpret the messages. A step is
applied and drawn at once. A thread (:mod:`syno_widgets.working`) computes paths to the input, opened texts and the next
steps, of which there can be thousands.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import traitlets as t

from syno_lab.effort import Stop
from syno_lab.errors import SpecError, StoppedError, SynoError
from syno_lab.protocol import Operator
from syno_lab.sessions.construction import nearest
from syno_lab.sessions.player import COURSE, page_of
from syno_lab.sessions.quiz import Quiz, guessed, shown
from syno_lab.sessions.session import Session, session_of
from syno_lab.sessions.shown import plain
from syno_widgets.comparing import ComparesPlaces
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle, static_bundle
from syno_widgets.stepper_moves import MovesByHand
from syno_widgets.stepper_request import Request
from syno_widgets.stepper_start import WAYS_ON, send_now, session_to_show
from syno_widgets.view import View, validate
from syno_widgets.working import Work

_FILES = (
    *("shared.js", "operator_graph.js", "mixing_table.js", "stepper_steps.js", "stepper_history.js"),
    *("stepper_player.js", "stepper_session.js", "stepper_compare.js", "stepper.js"),
)
_STYLES = ("shared.css", "operator_graph.css", "operator_graph_dark.css", "stepper.css")
_FIRST_S = 1.0  # Seconds that the cell waits for the first list of next steps.
_PICTURE_S = 0.3  # Seconds of computing for the distance in the status; a longer computation follows later.
_LISTING = "listing the next steps"
_UNLISTED = "They are being listed."


class Stepper(MovesByHand, ComparesPlaces):
    """A pGraph, a kernel of Canvas, a chain of αNAS, or an operator of another system, under construction.

    A stepper is created by ``Stepper(spec)``, ``Stepper(state)``, ``Stepper(operator)``, ``Stepper(sampler)`` (Canvas:
    kernels for its layers, within its budget), ``Stepper(draft)`` (αNAS: a chain with the wanted properties),
    :meth:`of` or :meth:`showing`.

    In Python: :attr:`state`, :attr:`operator`, :meth:`apply`, :meth:`undo`, :meth:`redo`, :meth:`reset`, :meth:`go`,
    :meth:`jump`, :meth:`load`, :meth:`open_text`, :meth:`suggest`, :meth:`finish`, :meth:`complete_at_random`, and the
    traits ``place``, ``selected``, ``search`` and ``word``, which can be set; the page follows. A method returns when
    the page has all its data. The page, or an interrupt of the cell, can cancel long work; finished steps stay.

    Args:
        start: a spec, a state (a partial pGraph) or an operator, of a system that builds by steps.
        seed: the seed of :meth:`complete_at_random`; None: a random seed.
        rules: rules of your own, which refuse steps in addition to the system's: functions of a state and a step, or
            ``sl.Rule`` values.
        options: first values of the traits ``selected`` and ``search``.

    Raises:
        SynoError: ``start`` has another type, or the layout program is missing.
    """

    _esm = module(*_FILES)
    _css = joined(*_STYLES)
    _files, _styles = _FILES, _STYLES
    _options = ("selected", "search")
    _noun = "stepper"
    _request = Request
    _words = "The stepper, to be used in a running notebook; the picture beside it is its last."

    place = t.Int(0).tag(sync=True)
    """The shown place in :attr:`tree`; set it to show another place."""

    selected = t.Unicode().tag(sync=True)
    """The chosen node of the drawing, such as ``c3``, or empty; for a coordinate, :attr:`menu` has only its steps."""

    search = t.Unicode().tag(sync=True)
    """Parts of the pGraph whose words contain this text are marked."""

    word = t.Unicode().tag(sync=True)
    """The complete session as one word, to store or send; setting another word opens its session."""

    svg = t.Unicode(read_only=True).tag(sync=True)
    """The drawing, an ``<svg>`` element with an id for each node (:mod:`syno_lab.codegen.drawing`)."""

    description = t.Unicode(read_only=True).tag(sync=True)
    """A text that describes the drawing."""

    links = t.Dict(read_only=True).tag(sync=True)
    """The nodes of the drawing by id: ``words``, ``light`` (ids highlighted with it), ``top`` (usable by a step)."""

    menu = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The next steps: one record of :class:`syno_lab.sessions.shown.Group` for each primitive."""

    nearest = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The best steps of :attr:`menu` across its groups (:func:`syno_lab.sessions.construction.nearest`)."""

    ticks = t.List(t.Dict(), read_only=True).tag(sync=True)
    """What can be ticked, such as the coordinates that a CONTRACTION may share or give: ``id``, ``text``, ``size``."""

    preview = t.Dict(read_only=True).tag(sync=True)
    """The facts of the ticked step: ``legal``, ``canonical``, ``distance``, ``text``; empty for none.

    If the ticks fit several steps, ``choices`` lists them (:class:`syno_lab.sessions.shown.Preview`)."""

    why = t.Dict(read_only=True).tag(sync=True)
    """The last requested reason: ``index`` and :class:`syno_lab.sessions.shown.Why`; empty for none."""

    unlisted = t.Unicode(read_only=True).tag(sync=True)
    """Why the next steps are missing: the listing still runs, or was cancelled; empty if they are listed."""

    tree = t.List(t.Dict(), read_only=True).tag(sync=True)
    """All places, including undone places and all branches (:class:`syno_lab.sessions.shown.Row`)."""

    line = t.List(t.Int(), read_only=True).tag(sync=True)
    """The numbers of the places through which undo and redo move."""

    undone = t.List(t.Int(), read_only=True).tag(sync=True)
    """The numbers of the places that undo has left; other places ahead of the shown one were never undone."""

    distance = t.Dict(read_only=True).tag(sync=True)
    """The shape distance: ``number`` (None: unreachable), ``words``, and as SVG its ``groups`` and its ``course``.

    If there are wishes, ``wish`` has the ``number`` and the ``words`` of the property distance. For an operator it also
    has ``mixing``: its matrix against the wishes, see :func:`syno_lab.pgraphs.panes.reach.mixing_data`. If the wishes
    can be changed, ``aims`` lists the choices (:class:`syno_lab.sessions.shown.Wanted`)."""

    strip = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The used part of each budget, such as FLOPs: ``name``, ``text``, ``share`` or None, and ``over``."""

    labels = t.Dict(read_only=True).tag(sync=True)
    """The names of things in this system: :attr:`syno_lab.sessions.session.Session.labels`."""

    complete = t.Bool(False, read_only=True).tag(sync=True)
    """Whether the pGraph is an operator."""

    status = t.Unicode(read_only=True).tag(sync=True)
    """The shown place, in one or two sentences; screen readers read each change."""

    known = t.List(t.Unicode(), read_only=True).tag(sync=True)
    """The operators that can be loaded by name."""

    quiz = t.Dict(read_only=True).tag(sync=True)
    """The running quiz: ``said`` (the grade of the last guess) and ``score``; empty: none (:mod:`.quiz`)."""

    ways_on = t.List(t.Dict(), read_only=True).tag(sync=True)
    """Next actions with a complete operator: for each the ``title`` and the ``code`` to copy."""

    player = t.Dict(read_only=True).tag(sync=True)
    """On a standalone page, the data of each place (:func:`.played`); otherwise the kernel draws it."""

    revision = t.Int(0, read_only=True).tag(sync=True)
    """The number of shown states so far; a choice from older lists is refused."""

    def __init__(self, start: Any, *, seed: int | None = None, rules: Sequence[Any] = (), **options: Any) -> None:
        self._check_options(options)
        session = session_of(start)
        session.restrict(rules)
        self._start(session, seed, options)

    @classmethod
    def of(
        cls,
        operator: Operator | str | Path,
        *,
        at_start: bool = True,
        seed: int | None = None,
        rules: Sequence[Any] = (),
    ) -> Self:
        """Step through an operator: begin at its output, with its steps ahead.

        Args:
            operator: an operator; the name of a known operator; the text of an operator's file or of a session; or the
                path of a file with either text.
            at_start: whether to begin at the output; False: at the complete operator.
            seed: as for the class.
            rules: as for the class.

        Raises:
            SynoError: the name is unknown, the file cannot be read, or the text is neither an operator's nor a
                session's.
        """
        session = session_to_show(operator)
        is_given = session.entry.operator is not None and len(session.places) == session.place + 1
        if at_start and is_given:  # a session keeps its place
            session.jump(0)
        session.restrict(rules)
        return cls.showing(session, seed=seed)

    @classmethod
    def showing(cls, session: Session, *, seed: int | None = None) -> Self:
        """Continue a session at its place; ``seed`` and errors as for the class."""
        stepper = cls.__new__(cls)
        stepper._start(session, seed, {})
        return stepper

    def _start(self, session: Session, seed: int | None, options: dict[str, Any]) -> None:
        self.session = session
        self._random = random.Random(seed)  # noqa: S311 - for operators, not for secrets
        self._steps: Sequence[Any] = []
        self._quiz: Quiz | None = None
        self._listed = -1  # The place whose next steps are shown.
        self._whole: set[str] = set()  # The primitives whose steps are all shown there.
        self._shower: int | None = None  # The thread that shows the session.
        View.__init__(self)
        self.set_trait("known", list(session.known))
        self.set_trait("labels", session.labels)
        self._show_picture()
        work = self._list_steps()
        if not work.wait(_FIRST_S):
            work.tell()
        elif work.error is not None:
            raise work.error
        self._set_options(options)
        self.on_msg(self._on_message)

    # -- from Python -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        """The shown state, such as a pGraph."""
        return self.session.state

    @property
    def operator(self) -> Operator:
        """The shown operator.

        Raises:
            SynoError: the state is not complete.
        """
        shown_operator: Operator = self.session.operator
        return shown_operator

    @property
    def candidates(self) -> list[Any]:
        """All next steps, in the order of the ``index`` in :attr:`menu`; reading them waits until they are listed.

        Raises:
            EffortError: the steps need more memory than there is, or the listing is cancelled.
        """
        if self._listed != self.session.place:
            self._works.through(lambda: self._works.of() or self._list_steps())
        return list(self._steps)

    def suggest(self) -> Any:
        """Take the next step of a shortest path to the input, searched for at most 4 seconds of computing.

        An interrupt of the cell ends the search at once and changes nothing. The next call takes the following step.
        """
        return self._run_work(lambda: self._suggest(self.session.take_suggestion))

    def finish(self, *, at_start: bool = False) -> Any:
        """Take a shortest path to the input; ``at_start`` puts its steps ahead instead, for :meth:`redo`.

        As for :meth:`suggest`, the search takes at most 4 seconds of computing.
        """
        return self._run_work(lambda: self._suggest(lambda: self.session.finish(at_start=at_start)))

    def complete_at_random(self, *, at_start: bool = False) -> Any:
        """Take random canonical steps to an operator; ``at_start`` puts them ahead instead, for :meth:`redo`.

        As for :meth:`suggest`, the search takes at most 4 seconds of computing.
        """
        return self._run_work(lambda: self._complete(at_start))

    # -- long work ---------------------------------------------------------------------------------------------------

    def _run_work(self, begin: Callable[[], Work]) -> Any:
        self._works.through(begin)
        return self.state

    def _run_move(self, move: Callable[[], Any]) -> Any:
        return self._run_work(lambda: self._move(move))

    def _move(self, move: Callable[[], Any]) -> Work:
        with self._lock:
            move()
            self._works.drop()
            self._show_picture()
        return self._list_steps()

    def _look(self, description: str, find: Callable[[Stop], Any], take: Callable[[Any], Any]) -> Work:
        """Begin work: call ``find``, which changes nothing; ``take`` its result, draw, and list the next steps."""

        def do(work: Work) -> None:
            try:
                result = find(work.should_stop)
            except SynoError:
                if not work.should_stop() and self._listed != self.session.place:
                    self._show_steps(work)  # because this work has delayed the listing
                raise
            with work.delivering():
                take(result)
                self._show_picture()
                if work.is_told:
                    self._unlist(_UNLISTED)
            self._show_steps(work)

        return self._works.begin(description, do)

    def _open(self, text: str) -> Work:
        return self._look("opening the text", lambda _: self.session.read(text), self.session.graft)

    def _suggest(self, take: Callable[[], Any]) -> Work:
        session = self.session
        return self._look(
            session.construction.labels.way,
            lambda should_stop: session.look_ahead(should_stop=should_stop),
            lambda _: take(),
        )

    def _complete(self, at_start: bool) -> Work:
        rng = random.Random()  # noqa: S311 - for operators, not for secrets
        rng.setstate(self._random.getstate())
        session, state = self.session, self.state

        def find(should_stop: Stop) -> Sequence[Any]:
            try:
                return session.random_steps(state, rng, should_stop=should_stop)
            finally:
                if not should_stop():  # cancelled work must not change the results of a seed
                    self._random = rng

        return self._look(session.construction.labels.random_way, find, lambda steps: session.lay(steps, at_start))

    def _list_steps(self) -> Work:
        work = self._works.begin(_LISTING, self._show_steps, late=lambda: self._unlist(_UNLISTED))
        work.is_rest = True
        return work

    def _cancelled(self, work: Work) -> None:
        if self._listed != self.session.place:
            self._unlist("They were not listed, as that was cancelled.")

    # -- traits that can be set --------------------------------------------------------------------------------------

    @validate("place")
    def _valid_place(self, proposal: dict[str, Any]) -> int:
        value: int = proposal["value"]
        if not 0 <= value < len(self.session.places):
            raise SpecError(f"place: expected a number from 0 to {len(self.session.places) - 1}, found {value}")
        return value

    @validate("selected")
    def _valid_selected(self, proposal: dict[str, Any]) -> str:
        value: str = proposal["value"]
        if value and value not in self.links:
            raise SpecError(f"selected: expected a node of the drawing, {', '.join(self.links)}, found {value!r}")
        return value

    @t.observe("place")
    def _place_set(self, change: dict[str, Any]) -> None:
        if not self._is_showing():
            self.go(change["new"])

    @t.observe("selected")
    def _selected_set(self, _change: dict[str, Any]) -> None:
        if not self._is_showing():
            self._list()

    @t.observe("word")
    def _word_set(self, change: dict[str, Any]) -> None:
        if not self._is_showing():
            try:
                self.open_text(change["new"])
            except SynoError:
                with self._showing():
                    self.word = self.session.to_word()
                raise

    # -- from the browser --------------------------------------------------------------------------------------------

    def _carry_out(self, request: Any) -> Work | None:
        request.check(request.revision != self.revision or self._listed != self.session.place, len(self._steps))
        return self._begin(request)

    def _begin(self, request: Request) -> Work | None:
        session = self.session
        match request.kind:
            case "step":
                return self._take(self._steps[request.index])
            case "contract":
                return self._take(session.ticked(self.state, request.share, request.give, request.name))
            case "instead":
                pruned = self._steps[request.index]
                return self._move(lambda: session.take_instead(pruned))
            case "comment":
                self.comment(request.name)
                return None
            case "quiz":
                self._show_quiz(Quiz() if self._quiz is None else None)
                return None
            case "reveal":
                self._show_quiz(shown(session, self._quiz or Quiz()))
                return self._move(session.redo)
            case "aim":
                aimed = session.aimed(self.state, request.name)
                return self._move(lambda: session.apply(aimed))
            case "go":
                return self._move(lambda: session.go(request.index))
            case "compare":
                self.compare(request.index)
                return None
            case "load" | "replay":
                return self._move(lambda: session.load(request.name, at_start=request.kind == "replay"))
            case "undo" | "undo_to_progress" | "redo" | "reset":
                return self._move(getattr(session, request.kind))
            case "why":
                return self._works.begin("drawing the reason", lambda work: self._show_why(work, request), "reason")
            case "preview":
                description = str(session.labels["hand_work"])
                return self._works.begin(description, lambda work: self._show_preview(work, request), "preview")
            case "open":
                return self._open(request.name)
            case "suggest":
                return self._suggest(session.take_suggestion)
            case "finish":
                return self._suggest(lambda: session.finish(at_start=True))
            case "random":
                return self._complete(at_start=True)
            case "list":
                return self._list_steps()
            case "whole":
                self._whole.add(request.name)
                return self._list_steps()

    def _take(self, step: Any) -> Work | None:
        """Apply a step; in a quiz, grade it and apply it only if it is right."""
        session = self.session
        if self._quiz is None:
            return self._move(lambda: session.apply(step))
        quiz, is_right = guessed(session, self._quiz, step)
        self._show_quiz(quiz)
        return self._move(session.redo) if is_right else None

    def _show_quiz(self, quiz: Quiz | None) -> None:
        self._quiz = quiz
        self.set_trait("quiz", {} if quiz is None else {"said": quiz.said, "score": quiz.score})

    def _show_tree(self) -> None:
        """Show the comment of a place in the history and in the word."""
        with self._showing(), self.hold_sync():
            self.set_trait("tree", self.session.rows())
            self.word = self.session.to_word()

    def _show_why(self, work: Work, request: Request) -> None:
        reason = self.session.why(self.state, self._steps[request.index])
        with work.delivering():
            if request.revision == self.revision:
                self.set_trait("why", {"index": request.index, **reason})

    def _show_preview(self, work: Work, request: Request) -> None:
        facts = self.session.preview(self.state, self._steps, request.share, request.give, should_stop=work.should_stop)
        with work.delivering():
            if request.revision == self.revision:
                self.set_trait("preview", facts)

    # -- to the browser ----------------------------------------------------------------------------------------------

    @contextmanager
    def _showing(self) -> Iterator[None]:
        """Set the traits from the session in the block; these changes are no commands to the session."""
        with self._lock:
            before, self._shower = self._shower, threading.get_ident()
            try:
                yield
            finally:
                self._shower = before

    def _is_showing(self) -> bool:
        return self._shower == threading.get_ident()

    def _show_picture(self) -> None:
        """Show the first answer to a click: the picture and the status."""
        session = self.session
        picture = session.picture()
        with self._showing(), self.hold_sync():
            self.set_trait("svg", picture.svg)
            self.set_trait("description", picture.description)
            self.set_trait("links", plain(picture.nodes))
            self.set_trait("line", [entry.number for entry in session.history])
            self.set_trait("undone", session.undone)
            self.place = session.place
            self.selected = ""
            self.set_trait("complete", session.is_complete)
            self.set_trait("ways_on", list(WAYS_ON) if session.is_complete else [])
            self.set_trait("status", session.status(_PICTURE_S))
            self.set_trait("strip", session.strip(session.state))
            self.set_trait("error", "")
        send_now()

    def _show_steps(self, work: Work) -> None:
        """Show the next steps, of which there can be thousands, after the picture was sent."""
        work.say(_LISTING)
        try:
            self._show_listed(work)
        except StoppedError:
            raise
        except Exception as error:
            with work.delivering():
                self._unlist(str(error) if isinstance(error, SynoError) else "They could not be listed.")
            raise
        finally:
            if not work.should_stop() or self._works.of() is None:
                self._static.update(self.svg, self.description)

    def _show_listed(self, work: Work) -> None:
        with work.delivering():
            session, place, state, chosen = self.session, self.session.place, self.session.state, self.selected
        stop = work.should_stop
        steps = self._steps if self._listed == place else session.candidates(state, should_stop=stop)
        explanation = session.explain(state, should_stop=stop)
        rows = session.rows(should_stop=stop)
        course = session.course(COURSE)
        if self._listed != place:
            self._whole.clear()
        menu = session.menu(state, steps, chosen, self._whole)
        ticks, word = session.ticks(state), session.to_word()
        with work.delivering(), self._showing(), self.hold_sync():
            self._steps, self._listed = steps, place
            self.set_trait("unlisted", "")
            self.set_trait("tree", rows)
            same = chosen == self.selected
            self._set_menu(menu if same else session.menu(state, steps, self.selected, self._whole))
            self.set_trait("ticks", ticks)
            self.set_trait("status", session.status())
            self.set_trait("preview", {})
            self.set_trait("why", {})
            self.set_trait("distance", {**explanation, "course": course})
            self.word = word
            self.set_trait("revision", self.revision + 1)

    def _unlist(self, why: str) -> None:
        """Remove the lists of a place that is no longer shown, so that no choice from them is carried out."""
        if self._listed == self.session.place:
            return
        with self._showing(), self.hold_sync():
            self._steps = []
            for name in ("menu", "nearest", "ticks"):
                self.set_trait(name, [])
            for name in ("preview", "why"):
                self.set_trait(name, {})
            self.set_trait("unlisted", why)
            self.set_trait("revision", self.revision + 1)

    def _list(self) -> None:
        """Show the next steps of the chosen coordinate, or all next steps, if they are listed."""
        if self._listed == self.session.place:
            self._set_menu(self.session.menu(self.state, self._steps, self.selected, self._whole))

    def _set_menu(self, menu: list[dict[str, Any]]) -> None:
        self.set_trait("menu", menu)
        self.set_trait("nearest", nearest(menu))

    def __repr__(self) -> str:
        return f"<Stepper: {self.status}>"

    def _page_title(self) -> str:
        return f"Stepper: {self.status}"

    def _page_state(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {"nearest": [], "ticks": [], "preview": {}, "why": {}, "known": [], "quiz": {}}
        return {**super()._page_state(), **nothing, **page_of(self.session)}

    def _bundle(self) -> Bundle:
        return static_bundle(self.static_id, self.svg, self.description)
