"""The stepper: build a pGraph in a notebook, one step at a time.

The browser sees nothing but the traits below and answers with small messages (:class:`Request`); what they mean is
decided here and in :mod:`syno_lab.synthesis.session`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import traitlets as t

from syno_lab.codegen import drawing, drawing_menu
from syno_lab.codegen.drawing_distance import course_svg, explanation_words, groups_svg
from syno_lab.codegen.drawing_links import links
from syno_lab.codegen.drawing_session import Tree, session_status
from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.operators import KNOWN
from syno_lab.synthesis.candidates import Candidate, Verdict, candidates
from syno_lab.synthesis.distance import distance, explain_distance
from syno_lab.synthesis.session import Session
from syno_lab.synthesis.session_text import MAX_BYTES, read_session, to_json, to_word
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle, static_bundle
from syno_widgets.view import View

_FILES = ("shared.js", "operator_graph.js", "stepper_steps.js", "stepper_history.js", "stepper.js")
_STYLES = ("shared.css", "operator_graph.css", "stepper.css")
_MAX_COORDINATES = 256
_COURSE = 48  # places of the line of distances that are drawn, those around the one shown


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: what to do.
        request: the browser's number for it, given back in the trait ``answered``.
        revision: the ``revision`` of the lists that the user saw; a choice from older lists is not carried out.
        index: for ``step`` and ``why`` the item's index, for ``go`` the place.
        name: for ``load`` and ``replay`` the operator, for ``open`` the text.
        share: for ``contract`` and ``preview`` the names of the shared coordinates.
        give: the same for the given ones.
    """

    kind: Literal[
        "step",
        "contract",
        "preview",
        "why",
        "undo",
        "redo",
        "reset",
        "go",
        "load",
        "replay",
        "open",
        "suggest",
        "finish",
        "random",
    ]
    request: int
    revision: int
    index: int = -1
    name: str = ""
    share: list[str] = []
    give: list[str] = []


class Stepper(View):
    """A pGraph under construction: ``Stepper(spec)``, ``Stepper(state)``, ``Stepper(operator)`` or :meth:`of`.

    From Python: :attr:`state`, :attr:`operator`, :meth:`apply`, :meth:`undo`, :meth:`redo`, :meth:`reset`, :meth:`go`,
    :meth:`jump`, :meth:`load`, :meth:`open_text`, :meth:`suggest`, :meth:`finish`, :meth:`complete_at_random`, and the
    traits ``place``, ``selected``, ``search`` and ``word``, which can be set; the page follows.

    Args:
        start: a spec, a partial pGraph or an operator.
        seed: of :meth:`complete_at_random`; None draws one.
        options: first values of the traits ``selected`` and ``search``.

    Raises:
        SynoError: when ``start`` is none of the three, or the layout program is missing.
    """

    _esm = module(*_FILES)
    _css = joined(*_STYLES)
    _files, _styles = _FILES, _STYLES
    _options = ("selected", "search")
    _noun = "stepper"
    _request = Request
    _words = "The stepper, to be used in a running notebook; the picture beside it is its last."

    place = t.Int(0).tag(sync=True)
    """The place in :attr:`tree` that is shown; set it to go there."""

    selected = t.Unicode().tag(sync=True)
    """The node of the drawing that is chosen, ``c3`` say, or empty; of a coordinate :attr:`menu` has only its steps."""

    search = t.Unicode().tag(sync=True)
    """Parts of the pGraph whose words contain this text are marked."""

    word = t.Unicode().tag(sync=True)
    """The whole session as one word to keep or send; set it to another one, and that session is opened."""

    svg = t.Unicode(read_only=True).tag(sync=True)
    """The drawing, an ``<svg>`` element with the ids of :mod:`syno_lab.codegen.drawing`."""

    description = t.Unicode(read_only=True).tag(sync=True)
    """The drawing in words."""

    links = t.Dict(read_only=True).tag(sync=True)
    """The nodes of the drawing by id: ``words``, ``light`` (what is lit with it), ``top`` (whether it can be used)."""

    menu = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The next steps: one record of :class:`syno_lab.codegen.drawing_menu.Group` for each primitive."""

    ticks = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The coordinates that a CONTRACTION may share or give: ``id``, ``text``, ``size``."""

    preview = t.Dict(read_only=True).tag(sync=True)
    """What is known of the ticked CONTRACTION: ``legal``, ``canonical``, ``distance``, ``text``; empty for none."""

    why = t.Dict(read_only=True).tag(sync=True)
    """The reason asked for last: ``index`` and :class:`syno_lab.codegen.drawing_menu.Why`; empty for none."""

    tree = t.List(t.Dict(), read_only=True).tag(sync=True)
    """All places, those undone and all branches included (:class:`syno_lab.codegen.drawing_session.Tree`)."""

    line = t.List(t.Int(), read_only=True).tag(sync=True)
    """The numbers of the places that undo and redo run along."""

    distance = t.Dict(read_only=True).tag(sync=True)
    """The shape distance: ``number`` (None: out of reach), ``words``, and as SVG its ``groups`` and its ``course``."""

    complete = t.Bool(False, read_only=True).tag(sync=True)
    """Whether the pGraph is an operator."""

    status = t.Unicode(read_only=True).tag(sync=True)
    """Where we are, in one or two sentences; read out by screen readers whenever it changes."""

    known = t.List(t.Unicode(), read_only=True).tag(sync=True)
    """The operators that can be loaded by name."""

    revision = t.Int(0, read_only=True).tag(sync=True)
    """Counts the states shown; a choice made from older lists is refused."""

    def __init__(self, start: Spec | State | Operator, *, seed: int | None = None, **options: Any) -> None:
        self._check_options(options)
        self._start(Session(start, KNOWN), seed, options)

    @classmethod
    def of(cls, operator: Operator | str | Path, *, at_start: bool = True, seed: int | None = None) -> Self:
        """Step through an operator: at its output, with its steps ahead.

        Args:
            operator: an operator; the name of a known one; the text of an operator file or of a session; or a path to
                a file with either.
            at_start: False for its end.
            seed: as for the class.

        Raises:
            SynoError: for an unknown name, a file that cannot be read, or one that holds neither.
        """
        session = _session(operator)
        stepper = cls.__new__(cls)
        is_given = session.entry.operator is not None and len(session.places) == session.place + 1
        if at_start and is_given:  # a session stays where it was
            session.jump(0)
        stepper._start(session, seed, {})
        return stepper

    def _start(self, session: Session, seed: int | None, options: dict[str, Any]) -> None:
        self.session = session
        self._random = random.Random(seed)  # noqa: S311 - for operators, not for secrets
        self._found: list[Candidate] = []
        self._tree = Tree()
        self._is_showing = True
        View.__init__(self)
        self.set_trait("known", list(KNOWN))
        self._show()
        self._set_options(options)
        self.on_msg(self._on_message)

    # -- from Python -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The pGraph shown."""
        return self.session.state

    @property
    def operator(self) -> Operator:
        """The operator shown.

        Raises:
            PrimitiveError: when the pGraph is not complete.
        """
        return self.session.operator

    @property
    def candidates(self) -> list[Candidate]:
        """The next steps, all of them, in the order of the ``index`` in :attr:`menu`."""
        return list(self._found)

    def apply(self, step: Any) -> State:
        """Take a step or a candidate; see :meth:`Session.apply`."""
        return self._moved(self.session.apply(step))

    def undo(self) -> State:
        """Back by one place."""
        return self._moved(self.session.undo())

    def redo(self) -> State:
        """Forth by one place."""
        return self._moved(self.session.redo())

    def reset(self) -> State:
        """Begin again with the output; undo brings back what was."""
        return self._moved(self.session.reset())

    def jump(self, position: int) -> State:
        """To any place of the line that undo and redo run along, by its position."""
        return self._moved(self.session.jump(position))

    def go(self, place: int) -> State:
        """To any place of the tree, by its number."""
        return self._moved(self.session.go(place))

    def load(self, operator: str | Operator, *, at_start: bool = False) -> State:
        """Append an operator step by step; ``at_start`` stays at its first place, to be replayed by :meth:`redo`."""
        return self._moved(self.session.load(operator, at_start=at_start))

    def open_text(self, text: str) -> State:
        """Append the session or the operator of a text (:func:`read_session`); what was built stays.

        Raises:
            FormatError: for a text that holds neither; nothing has changed then.
        """
        return self._moved(self.session.graft(read_session(text, KNOWN)))

    def to_json(self) -> str:
        """The whole session as JSON, for :meth:`open_text` and :meth:`of`; :attr:`word` is the same in one word."""
        return to_json(self.session)

    def suggest(self) -> State:
        """The next step of a shortest way to the input; see :meth:`Session.take_suggestion`."""
        return self._moved(self.session.take_suggestion())

    def finish(self, *, at_start: bool = False) -> State:
        """A shortest way to the input, to its end; ``at_start`` lays it ahead, to be played by :meth:`redo`."""
        return self._moved(self.session.finish(at_start=at_start))

    def complete_at_random(self, *, at_start: bool = False) -> State:
        """Random canonical steps to an operator; ``at_start`` lays them ahead, to be played by :meth:`redo`."""
        return self._moved(self.session.complete(self._random, at_start=at_start))

    # -- traits that can be set --------------------------------------------------------------------------------------

    @t.validate("place")
    def _valid_place(self, proposal: dict[str, Any]) -> int:
        value: int = proposal["value"]
        if not 0 <= value < len(self.session.places):
            raise SpecError(f"place: expected a number from 0 to {len(self.session.places) - 1}, found {value}")
        return value

    @t.validate("selected")
    def _valid_selected(self, proposal: dict[str, Any]) -> str:
        value: str = proposal["value"]
        if value and value not in self.links:
            raise SpecError(f"selected: expected a node of the drawing, {', '.join(self.links)}, found {value!r}")
        return value

    @t.observe("place")
    def _place_set(self, change: dict[str, Any]) -> None:
        if not self._is_showing:
            self.go(change["new"])

    @t.observe("selected")
    def _selected_set(self, _change: dict[str, Any]) -> None:
        if not self._is_showing:
            self._list()

    @t.observe("word")
    def _word_set(self, change: dict[str, Any]) -> None:
        if not self._is_showing:
            try:
                self.open_text(change["new"])
            except SynoError:
                with self._showing():
                    self.word = to_word(self.session)
                raise

    # -- from the browser --------------------------------------------------------------------------------------------

    def _carry_out(self, request: Any) -> None:
        if len(request.share) + len(request.give) > _MAX_COORDINATES:
            raise SynoError(f"a contraction of more than {_MAX_COORDINATES} coordinates")
        if len(request.name) > MAX_BYTES:
            raise SynoError(f"expected a text of at most {MAX_BYTES} characters, found {len(request.name)}")
        if request.kind in ("step", "contract", "preview", "why") and request.revision != self.revision:
            raise SynoError("the list has changed since that choice; choose again")
        if request.kind in ("step", "why") and not 0 <= request.index < len(self._found):
            raise SynoError(f"no step {request.index}: expected a number from 0 to {len(self._found) - 1}")
        if request.kind == "step":
            self.apply(self._found[request.index])
        elif request.kind == "why":
            found = drawing_menu.why(self.state, self._found[request.index])
            self.set_trait("why", {"index": request.index, **msgspec.to_builtins(found)})
        elif request.kind == "contract":
            self.apply(self._ticked(request))
        elif request.kind == "preview":
            self.set_trait("preview", self._preview(request))
        elif request.kind == "go":
            self.go(request.index)
        elif request.kind in ("load", "replay"):
            self.load(request.name, at_start=request.kind == "replay")
        elif request.kind == "open":
            self.open_text(request.name)
        elif request.kind == "finish":
            self.finish(at_start=True)
        elif request.kind == "random":
            self.complete_at_random(at_start=True)
        else:
            {"undo": self.undo, "redo": self.redo, "reset": self.reset, "suggest": self.suggest}[request.kind]()

    def _ticked(self, request: Request) -> Any:
        try:
            return drawing_menu.contraction(self.state, request.share, request.give)
        except KeyError as missing:
            raise SynoError(f"no coordinate {missing} in this pGraph") from None

    def _preview(self, request: Request) -> dict[str, Any]:
        if not request.share and not request.give:
            return {}
        step = self._ticked(request)
        try:
            after = self.state.apply(step)
        except SynoError as refused:
            return {"legal": False, "canonical": False, "distance": None, "text": str(refused)}
        ticked = (frozenset(step.operands), frozenset(step.given))
        listed = [c for c in self._found if c.primitive == "SHARE" and _sides(c) == ticked]
        far = listed[0].distance if listed else distance(after)
        verdict = listed[0].verdict if listed else Verdict()
        text = verdict.reason or ("canonical" if listed else "legal, but outside the space of this spec's budgets")
        return {"legal": True, "canonical": bool(listed) and verdict.canonical, "distance": far, "text": text}

    # -- to the browser ----------------------------------------------------------------------------------------------

    @contextmanager
    def _showing(self) -> Iterator[None]:
        """Traits that can be set follow the session, instead of leading it."""
        before, self._is_showing = self._is_showing, True
        try:
            yield
        finally:
            self._is_showing = before

    def _moved(self, state: State) -> State:
        self._show()
        self._static.update(self.svg, self.description)
        return state

    def _show(self) -> None:
        self._show_picture()
        self._show_steps()
        self._is_showing = False

    def _show_picture(self) -> None:
        """What a click is answered with: the picture and where we are."""
        session, state = self.session, self.session.state
        shown: State | Operator = session.operator if session.is_complete else state
        latest = [len(state.steps) - 1] if state.steps else []
        svg = drawing.svg(shown, highlight=latest)
        free = {name for name, c in drawing.coordinate_ids(shown).items() if c in state.data and c not in state.fixed}
        nodes = {
            name: {"words": link.words, "light": list(link.light), "top": name in free}
            for name, link in links(shown, svg).items()
        }
        with self._showing(), self.hold_sync():
            self.set_trait("svg", svg)
            self.set_trait("description", drawing.describe(shown))
            self.set_trait("links", nodes)
            self.set_trait("line", [entry.number for entry in session.history])
            self.place = session.place
            self.selected = ""
            self.set_trait("complete", session.is_complete)
            self.set_trait("status", session_status(session))
            self.set_trait("error", "")
        _send()

    def _show_steps(self) -> None:
        """The rest, while the picture is on its way: the next steps, of which there can be hundreds."""
        session, state = self.session, self.session.state
        self._found = candidates(state)
        explanation = explain_distance(state)
        line, here = session.history, session.position
        first = max(0, min(here - _COURSE // 2, len(line) - _COURSE))
        course = course_svg([entry.distance for entry in line[first : first + _COURSE]], here - first, first)
        with self._showing(), self.hold_sync():
            self.set_trait("tree", self._tree.rows(session))
            self.set_trait("menu", [msgspec.to_builtins(one) for one in drawing_menu.menu(state, self._found)])
            self.set_trait("ticks", drawing_menu.ticks(state))
            self.set_trait("preview", {})
            self.set_trait("why", {})
            self.set_trait(
                "distance",
                {
                    "number": explanation.steps,
                    "words": explanation_words(explanation),
                    "groups": groups_svg(explanation) if explanation.groups else "",
                    "course": course,
                },
            )
            self.word = to_word(session)
            self.set_trait("revision", self.revision + 1)

    def _list(self) -> None:
        """The next steps of the chosen coordinate, or all."""
        chosen = drawing.coordinate_ids(self.state).get(self.selected)
        only = None if chosen is None else drawing_menu.touching(self._found, chosen)
        groups = drawing_menu.menu(self.state, self._found, only=only)
        self.set_trait("menu", [msgspec.to_builtins(group) for group in groups])

    def __repr__(self) -> str:
        return f"<Stepper: {self.status}>"

    def _page_title(self) -> str:
        return f"Stepper: {self.status}"

    def _bundle(self) -> Bundle:
        return static_bundle(self.static_id, self.svg, self.description)


def _session(operator: Operator | str | Path) -> Session:
    if isinstance(operator, Operator):
        return Session(operator, KNOWN)
    if isinstance(operator, str) and operator in KNOWN:
        return Session(KNOWN[operator](), KNOWN)
    text = str(operator)
    if isinstance(operator, Path) or not text.lstrip().startswith(("{", "syno-session:")):
        try:
            text = Path(operator).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            names = ", ".join(KNOWN)
            raise SpecError(
                f"expected an operator, a file of one, or one of {names}; found {text!r}, which cannot be read: {error}"
            ) from None
    return read_session(text, KNOWN)


def _send() -> None:
    """Wait until what was said is on its way: a kernel sends from a thread, which what comes next would hold up."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):  # nobody listens any more
            sys.stdout.flush()


def _sides(candidate: Candidate) -> tuple[frozenset[Any], frozenset[Any]]:
    return frozenset(candidate.operands), frozenset(candidate.given)
