"""The stepper: build a pGraph in a notebook, one step at a time.

The browser sees nothing but the traits below and answers with small messages (:class:`Request`); what they mean is
decided here and in :mod:`syno_lab.synthesis.session`.
"""

from __future__ import annotations

import logging
import uuid
from itertools import islice
from typing import Any, Literal

import anywidget
import msgspec
import traitlets as t

from syno_lab.codegen import drawing, drawing_menu
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.operators import KNOWN
from syno_lab.synthesis.candidates import Candidate, Verdict, candidates
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.session import Entry, Session
from syno_widgets.scripts import joined, module
from syno_widgets.static import StaticOutput

_LOG = logging.getLogger(__name__)
_MAX_COORDINATES = 256
_MAX_WAYS = 24


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: what to do.
        request: the browser's number for it, given back in the trait ``answered``.
        revision: the ``revision`` of the lists that the user saw; a choice from older lists is not carried out.
        index: for ``step`` the item's index, for ``jump`` the place in the history.
        name: for ``load`` and ``replay`` the operator.
        share: for ``contract`` and ``preview`` the names of the shared coordinates.
        give: the same for the given ones.
    """

    kind: Literal["step", "contract", "preview", "undo", "redo", "reset", "jump", "load", "replay"]
    request: int
    revision: int
    index: int = -1
    name: str = ""
    share: list[str] = []
    give: list[str] = []


class Stepper(anywidget.AnyWidget):
    """A pGraph under construction: ``Stepper(spec)``, ``Stepper(state)`` or ``Stepper(operator)``.

    From Python: :attr:`state`, :attr:`operator`, :meth:`apply`, :meth:`undo`, :meth:`redo`, :meth:`reset`,
    :meth:`jump`, :meth:`load`; the picture on the page follows.

    Raises:
        SynoError: when ``start`` is none of the three, or the layout program is missing.
    """

    _esm = module("shared.js", "stepper.js")
    _css = joined("shared.css", "stepper.css")

    svg = t.Unicode(read_only=True).tag(sync=True)
    """The drawing, an ``<svg>`` element with the ids of :mod:`syno_lab.codegen.drawing`."""

    description = t.Unicode(read_only=True).tag(sync=True)
    """The drawing in words."""

    menu = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The next steps: one record of :class:`syno_lab.codegen.drawing_menu.Group` for each primitive."""

    ticks = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The coordinates that a CONTRACTION may share or give: ``id``, ``text``, ``size``."""

    preview = t.Dict(read_only=True).tag(sync=True)
    """What is known of the ticked CONTRACTION: ``legal``, ``canonical``, ``distance``, ``text``; empty for none."""

    history = t.List(t.Dict(), read_only=True).tag(sync=True)
    """All places, those undone included: ``text`` and whether it is a ``start`` of something."""

    position = t.Int(0, read_only=True).tag(sync=True)
    """The place in the history that is shown, from 0."""

    complete = t.Bool(False, read_only=True).tag(sync=True)
    """Whether the pGraph is an operator."""

    status = t.Unicode(read_only=True).tag(sync=True)
    """Where we are, in one or two sentences; read out by screen readers whenever it changes."""

    error = t.Unicode(read_only=True).tag(sync=True)
    """Why the last request was not carried out, one line; empty when it was."""

    known = t.List(t.Unicode(), read_only=True).tag(sync=True)
    """The operators that can be loaded by name."""

    revision = t.Int(0, read_only=True).tag(sync=True)
    """Counts the states shown; a choice made from older lists is refused."""

    answered = t.Int(0, read_only=True).tag(sync=True)
    """The number of the last request carried out or refused, so that the browser notices a kernel that is gone."""

    static_id = t.Unicode(read_only=True).tag(sync=True)
    """Marks the output with the static picture, which the live widget hides."""

    def __init__(self, start: Spec | State | Operator, **options: Any) -> None:
        if options:
            raise TypeError(
                f"Stepper: unexpected keyword argument {next(iter(options))!r}; it takes a spec, state or operator"
            )
        self.session = Session(start, KNOWN)
        self._found: list[Candidate] = []
        super().__init__()
        self.set_trait("static_id", uuid.uuid4().hex)
        self.set_trait("known", list(KNOWN))
        self._static = StaticOutput(self.static_id)
        self._refresh()
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
        """To any place of the history."""
        return self._moved(self.session.jump(position))

    def load(self, operator: str | Operator, *, at_start: bool = False) -> State:
        """Append an operator step by step; ``at_start`` stays at its first place, to be replayed by :meth:`redo`."""
        return self._moved(self.session.load(operator, at_start=at_start))

    # -- from the browser --------------------------------------------------------------------------------------------

    def handle(self, content: Any) -> None:
        """Carry out one message; whatever goes wrong becomes one line in :attr:`error`."""
        number = content.get("request", 0) if isinstance(content, dict) else 0
        error = ""
        try:
            self._carry_out(msgspec.convert(content, Request))
        except SynoError as refused:
            error = str(refused)
        except msgspec.ValidationError as wrong:
            error = f"the browser sent a message that is none of the stepper's: {wrong}"
        except Exception as unforeseen:  # noqa: BLE001 the widget must live on; the log has the whole story
            _LOG.exception("stepper: %r", content)
            error = f"{type(unforeseen).__name__}: {unforeseen}".splitlines()[0]
        with self.hold_sync():
            self.set_trait("error", error)
            self.set_trait("answered", number if isinstance(number, int) else 0)

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        self.handle(content)

    def _carry_out(self, request: Request) -> None:
        if len(request.share) + len(request.give) > _MAX_COORDINATES:
            raise SynoError(f"a contraction of more than {_MAX_COORDINATES} coordinates")
        if request.kind in ("step", "contract", "preview") and request.revision != self.revision:
            raise SynoError("the list has changed since that choice; choose again")
        if request.kind == "step":
            if not 0 <= request.index < len(self._found):
                raise SynoError(f"no step {request.index}: expected a number from 0 to {len(self._found) - 1}")
            self.apply(self._found[request.index])
        elif request.kind == "contract":
            self.apply(self._ticked(request))
        elif request.kind == "preview":
            self.set_trait("preview", self._preview(request))
        elif request.kind == "jump":
            self.jump(request.index)
        elif request.kind in ("load", "replay"):
            self.load(request.name, at_start=request.kind == "replay")
        else:
            {"undo": self.undo, "redo": self.redo, "reset": self.reset}[request.kind]()

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

    def _moved(self, state: State) -> State:
        self._refresh()
        self._static.update(self.svg, self.description)
        return state

    def _refresh(self) -> None:
        session, state = self.session, self.session.state
        shown: State | Operator = session.operator if session.is_complete else state
        latest = [len(state.steps) - 1] if state.steps else []
        with self.hold_sync():
            self.set_trait("svg", drawing.svg(shown, highlight=latest))
            self.set_trait("description", drawing.describe(shown))
            self.set_trait("history", [_place(entry) for entry in session.history])
            self.set_trait("position", session.position)
            self.set_trait("complete", session.is_complete)
            self.set_trait("status", _status(session))
            self.set_trait("error", "")
        # The picture is on its way to the page while the next steps, of which there can be hundreds, are found.
        self._found = candidates(state)
        with self.hold_sync():
            self.set_trait("menu", [msgspec.to_builtins(group) for group in drawing_menu.menu(state, self._found)])
            self.set_trait("ticks", drawing_menu.ticks(state))
            self.set_trait("preview", {})
            self.set_trait("revision", self.revision + 1)

    def __repr__(self) -> str:
        return f"<Stepper: {self.status}>"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The widget, with its picture and its words for pages that know no widgets."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, "image/svg+xml": self.svg, "text/plain": self.description}, metadata

    def _ipython_display_(self) -> None:
        """Two outputs: the widget, and the picture that it hides while it lives."""
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        words = "The stepper, to be used in a running notebook; the picture beside it is its last."
        display({**data, "text/plain": words}, metadata=metadata, raw=True)
        self._static.show(self.svg, self.description)


def _sides(candidate: Candidate) -> tuple[frozenset[Any], frozenset[Any]]:
    return frozenset(candidate.operands), frozenset(candidate.given)


def _place(entry: Entry) -> dict[str, Any]:
    if entry.step is None:
        return {"text": entry.note, "start": True}
    return {"text": drawing.describe_step(entry.state, entry.step), "start": False}


def _status(session: Session) -> str:
    state = session.state
    count = f"{len(state.steps)} {'step' if len(state.steps) == 1 else 'steps'}"
    if session.is_complete:
        name = session.name
        ways = sum(1 for _ in islice(state.matches(), _MAX_WAYS + 1))
        this = f"this is {name}" if name else "an operator that has no name here"
        number = f"{ways}" if ways <= _MAX_WAYS else f"more than {_MAX_WAYS}"
        many = f"; one of {number} ways to match the input is shown" if ways > 1 else ""
        return f"Complete after {count}: {this}{many}."
    far = distance(state)
    if far is None:
        return f"After {count}: the input is out of reach within the budgets."
    left = drawing_menu.steps_left(state)
    return f"After {count}: shape distance {far}, {left} left in the budget."
