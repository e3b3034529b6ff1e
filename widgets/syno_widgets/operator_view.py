"""An operator in all its forms: ``OperatorView(operator)``.

The pGraph and the loop nest are there at once; every other pane is worked out when it is opened, outside the cell, in a
thread (TIR in a process of its own). All of it is plain data from :mod:`syno_lab.evaluate.panes`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any, Literal

import msgspec
import traitlets as t

from syno_lab.codegen.equation import equation
from syno_lab.codegen.receptive_field import CENTER
from syno_lab.errors import SpecError, SynoError
from syno_lab.evaluate.panes import DEPENDS, PANES, PHOTOS, WEIGHTS, Asked, read_pane
from syno_lab.evaluate.panes.asked import MOST_NAME, read_element
from syno_lab.evaluate.panes.exports import export, exports
from syno_lab.evaluate.panes.image import read_image
from syno_lab.ir.operator import Operator
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle, static_bundle
from syno_widgets.view import View

_FILES = ("shared.js", "operator_graph.js", "operator_panes.js", "operator_view.js")
_STYLES = ("shared.css", "operator_graph.css", "operator_view.css")
_GRAPH = "graph"
_FORMS = tuple(name for name in PANES if name != _GRAPH)
_AT_ONCE = (_GRAPH, "loops")
_CLOSED: dict[str, Any] = {"state": "closed", "error": "", "data": {}, "exports": []}


class ViewRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: what to set.
        request: the browser's number for it, given back in the trait ``answered``.
        binding: for ``bind`` a size for each variable.
        element: for ``element`` the output element.
    """

    kind: Literal["bind", "element"]
    request: int
    binding: dict[str, int] = {}
    element: str = ""


def _pane(what: str) -> t.Dict[str, Any]:
    text = f"{what}: ``state`` (closed, working, ready, failed), ``error``, ``data``, ``exports``."
    return t.Dict(_CLOSED, read_only=True, help=text).tag(sync=True)


class OperatorView(View):
    """One operator: its pGraph beside its loop nest, PyTorch source, TIR, equation, cost, and what it does.

    Args:
        operator: the operator; :meth:`show` shows another one.
        name: what to call it; any text.
        binding: sizes; None takes the spec's first binding, else small generic sizes.
        image: an image of yours, [rows, columns] or [rows, columns, 3] from 0 to 255: the operator is applied to it.
        options: first values of the traits ``pane``, ``selected``, ``search``, ``element``, ``photo``, ``weights``,
            ``staged``.

    Raises:
        SynoError: when ``operator`` is no pGraph, a size or an option does not fit, or the layout program is missing.
    """

    _esm = module(*_FILES)
    _css = joined(*_STYLES)
    _files, _styles = _FILES, _STYLES
    _options = ("pane", "selected", "search", "element", "photo", "weights", "staged")
    _noun = "view"
    _request = ViewRequest
    _words = "The operator view, to be used in a running notebook; beside it the pGraph and the loop nest."

    pane = t.Enum(_FORMS, "loops", help="The form that is open beside the pGraph.").tag(sync=True)
    """The form that is open beside the pGraph; opening one has it worked out."""

    selected = t.Unicode(help="The chosen node of the drawing.").tag(sync=True)
    """The node of the drawing that is chosen, such as ``c7``, ``s2`` or ``w0`` (:mod:`syno_lab.codegen.drawing`)."""

    search = t.Unicode(help="What is searched in the pGraph.").tag(sync=True)
    """Parts of the pGraph whose words contain this text are marked."""

    staged = t.Bool(False, help="Whether the loop nest is shown by stages.").tag(sync=True)
    """Whether the loop nest is shown by stages of the lowering plan."""

    photo = t.Enum(PHOTOS, PHOTOS[0], help="The image that the operator is applied to.").tag(sync=True)
    """The image that the operator is applied to: ``china`` and ``flower`` come with scikit-learn, ``own`` is yours."""

    weights = t.Enum(WEIGHTS, WEIGHTS[0], help="The weights with which it is applied.").tag(sync=True)
    """The weights with which it is applied to the image: ``random`` or ``mean``."""

    element = t.Unicode(CENTER, help="The output element of the receptive field.").tag(sync=True)
    """The output element whose receptive field is shown: ``center`` or an index such as ``0, 3, :, 5``."""

    binding = t.Dict(help="Sizes.", value_trait=t.Int(), key_trait=t.Unicode()).tag(sync=True)
    """The sizes that were asked for, a number for each variable; empty: by default. :attr:`sizes` has all."""

    name = t.Unicode("operator", read_only=True).tag(sync=True)
    """What it is called."""

    sizes = t.Dict(read_only=True).tag(sync=True)
    """The sizes that are used, of all variables."""

    status = t.Unicode(read_only=True).tag(sync=True)
    """Its shape and cost in one line."""

    choices = t.Dict(read_only=True).tag(sync=True)
    """What ``photo`` and ``weights`` may be."""

    pane_graph = _pane("The pGraph")
    """The drawing and its links (:func:`syno_lab.evaluate.panes.graph.graph_pane`)."""

    pane_loops = _pane("The loop nest")
    """The loop nests in pieces (:func:`syno_lab.evaluate.panes.program.loop_pane`)."""

    pane_source = _pane("The PyTorch source")
    """The module as a file that needs torch alone."""

    pane_tir = _pane("TVM's TIR")
    """TIR, written by a process of its own."""

    pane_equation = _pane("The equation")
    """The equation, whole and by stages, as text, LaTeX and SVG."""

    pane_cost = _pane("FLOPs and memory by stage")
    """What each stage does and costs (:func:`syno_lab.evaluate.panes.costs.cost_pane`)."""

    pane_reach = _pane("The receptive field")
    """What the output element reads, as text, records and SVG."""

    pane_mixing = _pane("The mixing matrix")
    """The pairing and locality of axes, after alphaNAS."""

    pane_image = _pane("The operator applied to an image")
    """Pictures before and after, with the credit (:mod:`syno_lab.evaluate.panes.image`)."""

    pane_near = _pane("The nearest known operators")
    """The nearest known operators (:mod:`syno_lab.operators.neighbours`)."""

    def __init__(
        self,
        operator: Operator,
        *,
        name: str | None = None,
        binding: Mapping[str, int] | None = None,
        image: Any = None,
        **options: Any,
    ) -> None:
        self._closed = False
        self._is_ready = False
        self._check_options(options)
        self._image = None
        if image is not None:
            read_image(image)
            self._image = image
            options.setdefault("photo", "own")
        self._operator = _checked(operator)
        self._check(Asked(operator, binding=_items(binding), element=options.get("element", CENTER)))
        super().__init__()
        self._settled = threading.Condition(self._lock)
        self.set_trait(
            "choices", {"photo": list(PHOTOS if image is not None else PHOTOS[:-1]), "weights": list(WEIGHTS)}
        )
        self.set_trait("name", _name(name, operator))
        self._first(dict(binding or {}), options)
        self.on_msg(self._on_message)

    def _first(self, binding: dict[str, int], options: dict[str, Any]) -> None:
        self.binding = binding
        self._set_options(options)
        self._is_ready = True
        self._describe()
        for pane in _AT_ONCE:
            self._work(pane, self._asked())
        self._open(self.pane)

    # -- from Python -------------------------------------------------------------------------------------------------

    @property
    def operator(self) -> Operator:
        """The operator that is shown."""
        return self._operator

    def show(self, operator: Operator, *, name: str | None = None, binding: Mapping[str, int] | None = None) -> None:
        """Another operator in the same view; the arguments and errors are those of the class."""
        self._check(Asked(_checked(operator), binding=_items(binding)))
        with self._lock:
            self._operator = operator
            self._is_ready = False
            try:
                with self.hold_sync():
                    self.set_trait("name", _name(name, operator))
                    self.selected = ""
                    self.element = CENTER
                    self.binding = dict(binding or {})
            finally:
                self._is_ready = True
            self._renew(_FORMS)
            for pane in _AT_ONCE:
                self._work(pane, self._asked())
            self._describe()
            self._open(self.pane)
        self._static.update_bundle(self._bundle())

    def read(self, pane: str, timeout_s: float | None = None) -> dict[str, Any]:
        """The data of a pane, worked out now if it is not yet; see :data:`syno_lab.evaluate.panes.PANES`.

        Raises:
            SynoError: for an unknown pane, when it cannot be worked out, or after ``timeout_s`` seconds.
        """
        if pane not in PANES:
            raise SpecError(f"pane: expected one of {', '.join(PANES)}, found {pane!r}")

        def is_settled() -> bool:
            self._open(pane)  # again, where something else was asked meanwhile
            return self._state(pane) in ("ready", "failed")

        with self._lock:
            if not self._settled.wait_for(is_settled, timeout_s):
                raise SynoError(f"{pane}: not worked out after {timeout_s} s")
            found: dict[str, Any] = getattr(self, f"pane_{pane}")
        if found["state"] == "failed":
            raise SynoError(found["error"])
        data: dict[str, Any] = found["data"]
        return data

    def export(self, pane: str, form: str) -> bytes:
        """A pane as the content of a file.

        Args:
            pane: its name, ``graph`` for the pGraph.
            form: the ``format`` of one of its ``exports``: ``SVG``, ``PNG``, ``DOT``, ``JSON``, ``CSV``, ….

        Raises:
            SynoError: for a format that it does not have, and as :meth:`read`.
        """
        return export(self._asked(), pane, self.read(pane), form)

    def to_html(self, path: str | Path | None = None, *, panes: Iterable[str] = tuple(PANES)) -> str:
        """A page that stands alone: everything is worked out and in it, nothing is fetched, no kernel is needed.

        Args:
            path: where to write it; None only returns it.
            panes: which panes to work out; the others say that they were not.

        Raises:
            SynoError: for an unknown pane, or a file that cannot be written.
        """
        for pane in (*_AT_ONCE, *panes):
            try:
                self.read(pane)
            except SynoError:
                if pane not in PANES:
                    raise
        return super().to_html(path)

    def _page_title(self) -> str:
        return self.name

    def close(self) -> None:
        """Take the view off the page; what is still being worked out is dropped."""
        with self._lock:
            self._closed = True
            super().close()

    # -- what is asked -----------------------------------------------------------------------------------------------

    def _asked(self) -> Asked:
        return Asked(
            self._operator, self.name, _items(self.binding), self.element, self.photo, self.weights, self._image
        )

    @staticmethod
    def _check(asked: Asked) -> dict[str, int]:
        """The complete sizes; raises SynoError where they do not fit, or the element is none."""
        bound = asked.bound()
        asked.operator.input_sizes(bound)
        asked.operator.params(bound)
        read_element(asked.element)
        return bound

    @t.validate("binding")
    def _valid_binding(self, proposal: dict[str, Any]) -> dict[str, int]:
        value: dict[str, int] = proposal["value"]
        self._check(Asked(self._operator, binding=_items(value)))
        return value

    @t.validate("element")
    def _valid_element(self, proposal: dict[str, Any]) -> str:
        value: str = proposal["value"]
        read_element(value)
        return value

    @t.validate("photo")
    def _valid_photo(self, proposal: dict[str, Any]) -> str:
        value: str = proposal["value"]
        if value == "own" and self._image is None:
            raise SpecError("photo: expected an image for 'own', found none; give image=array")
        return value

    @t.observe("binding", "element", "photo", "weights")
    def _changed(self, change: dict[str, Any]) -> None:
        if not self._is_ready:
            return
        with self._lock:
            name = change["name"]
            self._renew(pane for pane, fields in DEPENDS.items() if name in fields)
            if name == "binding":
                self._describe()
            self._open("loops")
            self._open(self.pane)

    @t.observe("pane")
    def _opened(self, change: dict[str, Any]) -> None:
        if self._is_ready:
            self._open(change["new"])

    def _describe(self) -> None:
        operator, bound = self._operator, self._check(self._asked())
        self.set_trait("sizes", bound)
        cost = f"{operator.flops(bound):,} FLOPs, {operator.params(bound):,} parameters"
        self.set_trait("status", f"{operator}; {cost}")

    # -- working out -------------------------------------------------------------------------------------------------

    def _state(self, pane: str) -> str:
        return str(getattr(self, f"pane_{pane}")["state"])

    def _renew(self, panes: Iterable[str]) -> None:
        for pane in panes:
            self.set_trait(f"pane_{pane}", dict(_CLOSED))
        self._settled.notify_all()

    def _open(self, pane: str) -> None:
        with self._lock:
            if self._state(pane) != "closed":
                return
            self.set_trait(f"pane_{pane}", {**_CLOSED, "state": "working"})
            name = f"syno-lab {pane}"
            threading.Thread(target=self._work, args=(pane, self._asked()), name=name, daemon=True).start()

    def _work(self, pane: str, asked: Asked) -> None:
        """Work out one pane, and show it unless something else has been asked meanwhile."""
        try:
            data = read_pane(asked, pane)
            found = {"state": "ready", "error": "", "data": data, "exports": exports(asked, pane, data)}
        except SynoError as refused:
            found = {**_CLOSED, "state": "failed", "error": str(refused)}
        except Exception as unforeseen:  # noqa: BLE001 the view must live on; the log has the whole story
            found = {**_CLOSED, "state": "failed", "error": self._unforeseen(unforeseen, pane)}
        with self._lock:
            if not self._closed and self._is_current(asked, pane):
                self.set_trait(f"pane_{pane}", found)
                self._settled.notify_all()

    def _is_current(self, asked: Asked, pane: str) -> bool:
        now = self._asked()
        # Equal operators can have their steps in another order, and so another drawing.
        same = now.operator is asked.operator and now.image is asked.image
        return same and all(getattr(now, field) == getattr(asked, field) for field in DEPENDS[pane] if field != "image")

    # -- from the browser --------------------------------------------------------------------------------------------

    def _carry_out(self, request: ViewRequest) -> None:
        if request.kind == "bind":
            self.binding = request.binding
        else:
            self.element = request.element

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _bundle(self) -> Bundle:
        """What stays on the page without a kernel: the picture, the equation and the loop nest."""
        graph, loops = self.pane_graph["data"], self.pane_loops["data"]
        if not graph or not loops:
            return {"text/plain": self.status, "text/html": f"<p>{escape(self.status)}</p>"}
        bundle = static_bundle(self.static_id, graph["svg"], graph["description"])
        head = f"<p><b>{escape(self.name)}</b>: {escape(self.status)}</p>"
        text = str(equation(self._operator))
        tail = f"<pre>{escape(text)}</pre><pre>{escape(loops['nests'][0]['text'])}</pre>"
        opened, picture = bundle["text/html"].split(">", 1)
        inner = picture.removesuffix("</div>")
        return {**bundle, "text/html": f"{opened}>{head}{inner}{tail}</div>"}

    def __repr__(self) -> str:
        return f"<OperatorView: {self.name}, {self.status}>"


def _checked(operator: Any) -> Operator:
    if not isinstance(operator, Operator):
        raise SpecError(f"OperatorView: expected an Operator (a complete pGraph), found {type(operator).__name__}")
    return operator


def _items(binding: Mapping[str, int] | None) -> tuple[tuple[str, int], ...] | None:
    return tuple(binding.items()) if binding else None


def _name(name: str | None, operator: Operator) -> str:
    """The given name, else that of the known operator that it is."""
    if name is None:
        from syno_lab.operators import KNOWN
        from syno_lab.synthesis.recognise import recognise

        return recognise(operator, KNOWN) or "operator"
    return str(name)[:MOST_NAME]
