"""An operator in all its forms: ``OperatorView(operator)``.

The picture and the first pane beside it (for a pGraph the loop nest) are computed at once. Every other pane is computed
when it is opened, in a thread (TIR in a child process). The operator's system defines the panes
(:meth:`syno_lab.protocol.System.panes`), and all of them are plain data.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import traitlets as t

from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import quoted
from syno_lab.panes import (
    CENTER,
    MOST_NAME,
    NAMES,
    PHOTOS,
    WEIGHTS,
    Asked,
    export,
    exports,
    panes_of,
    read_element,
    read_image,
    read_pane,
)
from syno_lab.panes.layers import Places, layers_of
from syno_lab.protocol import Operator, Pane
from syno_lab.systems import Named, all_systems, named, operator_of, system_of
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle, static_bundle
from syno_widgets.view import View, validate
from syno_widgets.working import Work

if TYPE_CHECKING:
    from syno_lab.models.sites import Site

_FILES = ("shared.js", "operator_graph.js", "mixing_table.js", "operator_panes.js", "operator_view.js")
_STYLES = ("shared.css", "operator_graph.css", "operator_graph_dark.css", "operator_view.css")
_GRAPH = "graph"
_FORMS = tuple(name for name in NAMES if name != _GRAPH)
_CLOSED: dict[str, Any] = {"state": "closed", "error": "", "data": {}, "exports": []}


class ViewRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: the action; ``work`` computes a cancelled pane again; ``export`` requests a file from the kernel.
        request: the browser's number for the message; the trait ``answered`` returns it.
        binding: for ``bind`` a size for each variable.
        element: for ``element`` the output element.
        pane: for ``work`` and ``export`` the name of the pane.
        form: for ``export`` the format.
    """

    kind: Literal["bind", "element", "work", "export"]
    request: int
    binding: dict[str, int] = {}
    element: str = ""
    pane: str = ""
    form: str = ""


def _pane(subject: str) -> t.Dict[str, Any]:
    text = f"{subject}: ``state`` (closed, working, ready, failed), ``error``, ``data``, ``exports``."
    return t.Dict(_CLOSED, read_only=True, help=text).tag(sync=True)


class OperatorView(View):
    """One operator of any system: its picture beside the panes of its system.

    The panes of a pGraph are loop nest, PyTorch source, TIR, equation, cost, receptive field, mixing and others.

    Args:
        operator: an operator, its name (``conv2d``, or of a trial ``search#12``) or file, or a value that represents
            one, such as a Canvas kernel; :meth:`show` shows another.
        name: the name of the operator; any text.
        binding: the sizes; None: the example sizes of the operator's system.
        image: your image, [rows, columns] or [rows, columns, 3] from 0 to 255, to which the operator is applied.
        places: the layers that the operator replaces in a network: their names and sizes, or the sites of
            ``sl.models.survey``. Without ``binding``, the first layer's sizes are shown. None: the layers that the
            operator was made for; if there are none, the layers of ResNets that it fits.
        about: a sentence about the operator in its network, shown after its costs.
        lab: the folder of the lab in which the names of trials are found; None: the default lab.
        options: first values of the traits ``pane``, ``selected``, ``search``, ``element``, ``photo``, ``weights``,
            ``staged``.

    Raises:
        SynoError: ``operator`` is no operator, a size or an option is invalid, or the layout program is missing.
    """

    _esm = module(*_FILES)
    _css = joined(*_STYLES)
    _files, _styles = _FILES, _STYLES
    _options = ("pane", "selected", "search", "element", "photo", "weights", "staged")
    _noun = "view"
    _request = ViewRequest
    _words = "The operator view, to be used in a running notebook; beside it the picture."

    pane = t.Enum(_FORMS, "loops", help="The pane that is open beside the picture.").tag(sync=True)
    """The open pane beside the picture, one of its system's; opening a pane computes it."""

    selected = t.Unicode(help="The chosen node of the drawing.").tag(sync=True)
    """The chosen node of the drawing, such as ``c7``, ``s2`` or ``w0`` (:mod:`syno_lab.codegen.drawing`)."""

    search = t.Unicode(help="The text searched in the picture.").tag(sync=True)
    """Parts of the pGraph whose words contain this text are marked."""

    staged = t.Bool(False, help="Whether the loop nest is shown by stages.").tag(sync=True)
    """Whether the loop nest is shown by stages of the lowering plan."""

    photo = t.Enum(PHOTOS, PHOTOS[0], help="The image that the operator is applied to.").tag(sync=True)
    """The image to which the operator is applied: ``china`` and ``flower`` of scikit-learn, or ``own``."""

    weights = t.Enum(WEIGHTS, WEIGHTS[0], help="The weights with which it is applied.").tag(sync=True)
    """The weights for the image: ``random`` or ``mean``."""

    element = t.Unicode(CENTER, help="The output element of the receptive field.").tag(sync=True)
    """The output element whose receptive field is shown: ``center`` or an index such as ``0, 3, :, 5``."""

    binding = t.Dict(help="Sizes.", value_trait=t.Int(), key_trait=t.Unicode()).tag(sync=True)
    """The sizes that the user has set, a number for each variable; empty: the default. :attr:`sizes` has all sizes."""

    name = t.Unicode("operator", read_only=True).tag(sync=True)
    """The operator's name."""

    sizes = t.Dict(read_only=True).tag(sync=True)
    """The used sizes of all variables."""

    example = t.Bool(False, read_only=True).tag(sync=True)
    """Whether the sizes are examples: the user has set none, and the operator has no default sizes."""

    status = t.Unicode(read_only=True).tag(sync=True)
    """Its shape and cost in one line, with the layer or the note on example sizes, and the text ``about``."""

    choices = t.Dict(read_only=True).tag(sync=True)
    """The values of ``photo`` and ``weights``; ``panes``: the name and title of each pane of its system; ``places``:
    the name and sizes of each layer that the operator replaces (for example, of a fitted Canvas kernel)."""

    pane_graph = _pane("The picture")
    """The drawing and its links (for a pGraph :func:`syno_lab.pgraphs.panes.program.graph_pane`)."""

    pane_lineage = _pane("The lineage")
    """The edits of a network of αNAS with their pictures, and its blocks (:mod:`syno_lab.alpha.panes`)."""

    pane_loops = _pane("The loop nest")
    """The loop nests in parts (:func:`syno_lab.pgraphs.panes.program.loop_pane`)."""

    pane_source = _pane("The PyTorch source")
    """The module as a file that only imports torch."""

    pane_tir = _pane("TVM's TIR")
    """TIR, written by a child process."""

    pane_equation = _pane("The equation")
    """The complete equation and the equation by stages, as text, LaTeX and SVG."""

    pane_cost = _pane("FLOPs and memory by stage")
    """The total cost and the cost of each stage (:func:`syno_lab.pgraphs.panes.costs.cost_pane`)."""

    pane_solutions = _pane("The numbers by place")
    """The dynamic variables of a Canvas kernel in each layer (:func:`syno_lab.canvas.panes.solution_pane`)."""

    pane_reach = _pane("The receptive field")
    """The input elements that the output element reads, as text, records and SVG."""

    pane_mixing = _pane("The mixing matrix")
    """The pairing and locality of axes, after alphaNAS."""

    pane_kernel = _pane("The kernel beside a convolution's")
    """The kernel for random weights as SVG, and its effective ranks (:mod:`syno_lab.pgraphs.panes.kernel`)."""

    pane_image = _pane("The operator applied to an image")
    """Images before and after, with the credit (:mod:`syno_lab.pgraphs.panes.image`)."""

    pane_near = _pane("Similar operators")
    """Similar known operators (:mod:`syno_lab.operators.neighbours`)."""

    def __init__(
        self,
        operator: Operator | str | Path,
        *,
        name: str | None = None,
        binding: Mapping[str, int] | None = None,
        image: Any = None,
        places: Places | Sequence[Site] | None = None,
        about: str = "",
        lab: str | Path | None = None,
        **options: Any,
    ) -> None:
        self._closed = False
        self._is_ready = False
        self._cancels = 0
        self._check_options(options)
        self._image = None
        if image is not None:
            read_image(image)
            self._image = image
            options.setdefault("photo", "own")
        name, operator, places = _named(operator, name, places, lab)
        self._panes = _panes(operator)
        self._operator = operator
        self._layers, self._about = places, about
        binding = _first_of(binding, places)
        self._check(Asked(operator, binding=_items(binding), element=options.get("element", CENTER)))
        super().__init__()
        self._settled = threading.Condition(self._lock)
        self.set_trait("name", name)
        self._first(dict(binding or {}), options)
        self.on_msg(self._on_message)

    def _first(self, binding: dict[str, int], options: dict[str, Any]) -> None:
        self._offer()
        self.binding = binding
        self._set_options(options)
        self._is_ready = True
        self._describe()
        self._work_at_once()

    # -- from Python -------------------------------------------------------------------------------------------------

    @property
    def operator(self) -> Operator:
        """The shown operator."""
        return self._operator

    def show(
        self,
        operator: Operator | str | Path,
        *,
        name: str | None = None,
        binding: Mapping[str, int] | None = None,
        places: Places | Sequence[Site] | None = None,
        about: str = "",
        lab: str | Path | None = None,
    ) -> None:
        """Show another operator in this view; arguments and errors as of the class."""
        name, operator, places = _named(operator, name, places, lab)
        panes = _panes(operator)
        binding = _first_of(binding, places)
        self._check(Asked(operator, binding=_items(binding)))
        with self._lock:
            self._operator, self._panes = operator, panes
            self._layers, self._about = places, about
            self._is_ready = False
            try:
                with self.hold_sync():
                    self._offer()
                    self.set_trait("name", name)
                    self.selected = ""
                    self.element = CENTER
                    self.binding = dict(binding or {})
            finally:
                self._is_ready = True
            self._renew(_FORMS)
            self._work_at_once()
            self._describe()
        self._static.update_bundle(self._bundle())

    def read(self, pane: str, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the data of a pane, computed now if necessary, as its system's pane defines them.

        Raises:
            SynoError: the pane is unknown, cannot be computed, is cancelled, or is not ready after ``timeout_s`` s.
        """
        self._check_pane(pane)
        before = self._cancels

        def is_settled() -> bool:
            if self._cancels != before:
                return True
            self._open(pane)  # again, if another request has dropped the work
            return self._state(pane) in ("ready", "failed")

        with self._lock:
            if not self._settled.wait_for(is_settled, timeout_s):
                raise SynoError(f"{pane}: not computed after {timeout_s} s")
            shown = self._shown(pane)
        if shown["state"] == "failed":
            raise SynoError(shown["error"])
        if shown["state"] != "ready":
            raise SynoError(f"{pane}: cancelled")
        data: dict[str, Any] = shown["data"]
        return data

    def export(self, pane: str, form: str) -> bytes:
        """Return a pane as the content of a file.

        Args:
            pane: the name of the pane, ``graph`` for the picture.
            form: the ``format`` of one of its ``exports``: ``SVG``, ``PNG``, ``DOT``, ``JSON``, ``CSV``, ….

        Raises:
            SynoError: the pane does not have the format, or :meth:`read` fails.
        """
        return export(self._asked(), pane, self.read(pane), form)

    def to_html(self, path: str | Path | None = None, *, panes: Iterable[str] | None = None) -> str:
        """Write a page with all panes. The page fetches nothing and needs no kernel.

        Args:
            path: the path of the page; None: it is only returned.
            panes: the panes to compute, None for all; the page says of the other panes that they were not computed.

        Raises:
            SynoError: a pane is unknown, or the file cannot be written.
        """
        for pane in (*self._at_once, *(self._panes if panes is None else panes)):
            try:
                self.read(pane)
            except SynoError:
                if pane not in self._panes:
                    raise
        return super().to_html(path)

    def _page_title(self) -> str:
        return self.name

    def close(self) -> None:
        """Remove the view from the page and cancel its work."""
        with self._lock:
            self._closed = True
            super().close()

    # -- requests ----------------------------------------------------------------------------------------------------

    @property
    def _at_once(self) -> tuple[str, ...]:
        """The panes that are shown at once: the picture, and the first pane beside it."""
        return tuple(self._panes)[:2]

    def _offer(self) -> None:
        """Set the panes of the operator's system; if the open pane is not among them, open another."""
        photos = PHOTOS if self._image is not None else PHOTOS[:-1]
        titles = [[name, pane.title or name] for name, pane in self._panes.items()]
        places = [[name, bound] for name, bound in layers_of(self._operator, self._layers)]
        choices = {"photo": list(photos), "weights": list(WEIGHTS), "panes": titles, "places": places}
        self.set_trait("choices", choices)
        if self.pane not in self._panes:
            self.pane = self._at_once[-1]

    def _check_pane(self, pane: str) -> None:
        if pane not in self._panes:
            raise SpecError(f"pane: expected one of {', '.join(self._panes)}, found {quoted(pane)}")

    def _asked(self) -> Asked:
        return Asked(
            self._operator, self.name, _items(self.binding), self.element, self.photo, self.weights, self._image
        )

    @staticmethod
    def _check(request: Asked) -> dict[str, int]:
        """Return the complete sizes. Raises SynoError if they do not fit, or if the output has no such element."""
        bound = request.bound()
        request.operator.input_sizes(bound)
        request.operator.params(bound)
        read_element(request.element)
        return bound

    @validate("binding")
    def _valid_binding(self, proposal: dict[str, Any]) -> dict[str, int]:
        value: dict[str, int] = proposal["value"]
        self._check(Asked(self._operator, binding=_items(value)))
        return value

    @validate("element")
    def _valid_element(self, proposal: dict[str, Any]) -> str:
        value: str = proposal["value"]
        read_element(value)
        return value

    @validate("pane")
    def _valid_pane(self, proposal: dict[str, Any]) -> str:
        value: str = proposal["value"]
        self._check_pane(value)
        return value

    @validate("photo")
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
            self._renew(pane for pane, how in self._panes.items() if name in how.depends)
            if name == "binding":
                self._describe()
            for pane in (*self._at_once, self.pane):
                self._open(pane)

    @t.observe("pane")
    def _opened(self, change: dict[str, Any]) -> None:
        if self._is_ready:
            self._open(change["new"])

    def _describe(self) -> None:
        operator, bound = self._operator, self._check(self._asked())
        self.set_trait("sizes", bound)
        self.set_trait("example", not self.binding and not _has_sizes(operator))
        cost = f"{operator.flops(bound):,} FLOPs, {operator.params(bound):,} parameters"
        place = next((name for name, sizes in self.choices["places"] if sizes == bound), None)
        where = " at example sizes" if self.example else "" if place is None else f" in {place}"
        self.set_trait("status", f"{operator}; {cost}{where}" + (f". {self._about}" if self._about else ""))

    # -- computing ---------------------------------------------------------------------------------------------------

    def _work_at_once(self) -> None:
        for pane in self._at_once:
            self._work(pane, self._asked())
        self._open(self.pane)

    def _shown(self, pane: str) -> dict[str, Any]:
        pane_state: dict[str, Any] = getattr(self, f"pane_{pane}")
        return pane_state

    def _state(self, pane: str) -> str:
        return str(self._shown(pane)["state"])

    def _renew(self, panes: Iterable[str]) -> None:
        for pane in panes:
            self._works.drop(pane)
            self.set_trait(f"pane_{pane}", dict(_CLOSED))
        self._settled.notify_all()

    def _open(self, pane: str) -> None:
        with self._lock:
            if self._state(pane) != "closed":
                return
            self.set_trait(f"pane_{pane}", {**_CLOSED, "state": "working"})
            request = self._asked()
            work = self._works.begin(f"working out {pane}", lambda work: self._work(pane, request, work), pane)
            work.tell()

    def _cancelled(self, work: Work) -> None:
        self._cancels += 1
        if work.slot in self._panes:  # the export of a file has no pane
            self.set_trait(f"pane_{work.slot}", dict(_CLOSED))
        self._settled.notify_all()

    def _work(self, pane: str, request: Asked, work: Work | None = None) -> None:
        """Compute one pane, and show it unless the request has changed meanwhile."""
        if work is not None:
            request = replace(request, should_stop=work.should_stop)
        try:
            data = read_pane(request, pane)
            pane_state = {"state": "ready", "error": "", "data": data, "exports": exports(request, pane, data)}
        except SynoError as refused:
            pane_state = {**_CLOSED, "state": "failed", "error": str(refused)}
        except Exception as unforeseen:  # noqa: BLE001 the view must stay usable; the log has the traceback
            pane_state = {**_CLOSED, "state": "failed", "error": self._unforeseen(unforeseen, pane)}
        with self._lock:
            is_wanted = work is None or not work.should_stop()
            if is_wanted and not self._closed and self._is_current(request, pane):
                self.set_trait(f"pane_{pane}", pane_state)
                self._settled.notify_all()

    def _is_current(self, request: Asked, pane: str) -> bool:
        now = self._asked()
        # Equal operators may have another order of steps, and so another drawing.
        if now.operator is not request.operator or now.image is not request.image:
            return False
        depends = self._panes[pane].depends
        return all(getattr(now, field) == getattr(request, field) for field in depends if field != "image")

    # -- from the browser --------------------------------------------------------------------------------------------

    def _carry_out(self, request: ViewRequest) -> Work | None:
        if request.kind == "bind":
            self.binding = request.binding
        elif request.kind == "element":
            self.element = request.element
        else:
            self._check_pane(request.pane)
            if request.kind == "export":
                if self._state(request.pane) != "ready":
                    raise SpecError(
                        f"pane: expected a ready pane, found {request.pane}, which is {self._state(request.pane)}"
                    )
                return self._works.begin("making the file", lambda work: self._send_file(work, request), "file")
            self._open(request.pane)
        return None

    def _send_file(self, work: Work, request: ViewRequest) -> None:
        with self._lock:
            request_, shown = self._asked(), self._shown(request.pane)
        content = export(request_, request.pane, shown["data"], request.form)
        name = next(entry["file"] for entry in shown["exports"] if entry["format"].lower() == request.form.lower())
        with work.delivering():
            self.send({"kind": "file", "name": name}, [content])

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _bundle(self) -> Bundle:
        """Return the static output for a page without a kernel: the picture, and the texts of the panes beside it."""
        request, panes = self._asked(), [(name, self._shown(name)["data"]) for name in self._at_once]
        if not all(data for _, data in panes):
            return {"text/plain": self.status, "text/html": f"<p>{escape(self.status)}</p>"}
        graph = panes[0][1]
        bundle = static_bundle(self.static_id, graph["svg"], graph["description"])
        head = f"<p><b>{escape(self.name)}</b>: {escape(self.status)}</p>"
        texts = (text for name, data in panes for text in self._panes[name].texts(request, data))
        tail = "".join(f"<pre>{escape(text)}</pre>" for text in texts)
        opened, picture = bundle["text/html"].split(">", 1)
        inner = picture.removesuffix("</div>")
        return {**bundle, "text/html": f"{opened}>{head}{inner}{tail}</div>"}

    def __repr__(self) -> str:
        return f"<OperatorView: {self.name}, {self.status}>"


def _named(value: Any, name: str | None, places: Places | Sequence[Site] | None, lab: str | Path | None) -> Named:
    """Return the operator that a value names, is or represents, its name and its layers: the given ones come first.

    Raises SpecError if there is no operator.
    """
    if isinstance(value, str | Path):
        label, value, known_places = named(value, lab)
        name = label if name is None and "#" in label else name
        places = known_places or None if places is None else places
    operator = operator_of(value)
    if operator is None:
        known = ", ".join(system.title for system in all_systems())
        raise SpecError(
            f"OperatorView: expected an operator of a system that is known ({known}), found {type(value).__name__}"
        )
    recognised = (system_of(operator).recognise(operator) or "operator") if name is None else str(name)[:MOST_NAME]
    return Named(recognised, operator, _places(operator, places) or ())


def _panes(operator: Operator) -> dict[str, Pane]:
    """Return the panes of an operator that the browser can draw."""
    return {name: pane for name, pane in panes_of(operator).items() if name in NAMES}


def _places(operator: Operator, places: Places | Sequence[Site] | None) -> Places | None:
    """Return the layers with the operator's sizes. Raises SpecError for no layers, or none that the operator fits."""
    try:
        return None if places is None else [(name, dict(sizes)) for name, sizes in cast("Places", places)]
    except (TypeError, ValueError):
        from syno_lab.models.sites import Site
        from syno_lab.models.slot import costs
    if not isinstance(places, Sequence) or not all(isinstance(one, Site) for one in places):
        wanted = "names with sizes, or the sites of a network as survey(net, example).sites"
        raise SpecError(f"places: expected {wanted}, found {quoted(places)}")
    found = costs(operator, cast("Sequence[Site]", places))
    fitting = [(place.name, place.binding) for place in found if place.binding is not None]
    if not fitting:
        raise SpecError(f"places: expected a layer that this operator fits, found none: {found[0].reason}")
    return fitting


def _first_of(binding: Mapping[str, int] | None, places: Places | None) -> Mapping[str, int] | None:
    """Return ``binding``, or else the sizes of the first layer."""
    return places[0][1] if binding is None and places else binding


def _has_sizes(operator: Operator) -> bool:
    """Tell whether the operator has default sizes for all variables."""
    try:
        operator.complete_binding()
    except SpecError:
        return False
    return True


def _items(binding: Mapping[str, int] | None) -> tuple[tuple[str, int], ...] | None:
    return tuple(binding.items()) if binding else None
