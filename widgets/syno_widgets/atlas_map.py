"""Known and discovered operators on one plane: ``Map(lab)``, and an atlas of pages: ``Map(lab).write("atlas")``.

:mod:`syno_lab.reports.atlas` computes all facts. A thread compares the operators' traits, in milliseconds for each
operator. A click on a point opens its operator below the map.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from html import escape
from pathlib import Path
from typing import Any, Literal

import msgspec
import traitlets as t
from ipywidgets import widget_serialization

from syno_lab.errors import SpecError, StoreError, SynoError
from syno_lab.jobs import Lab
from syno_lab.reports import LabReader
from syno_lab.reports.atlas import Atlas, Placed, atlas, atlas_page, atlas_svg, ids_of, shown_atlas
from syno_widgets.operator_view import OperatorView
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle, static_bundle
from syno_widgets.view import View
from syno_widgets.working import Work

_FILES = ("shared.js", "operator_graph.js", "atlas_map.js")
_STYLES = ("shared.css", "operator_graph.css", "atlas_map.css")
#: The panes of an operator's page in an atlas, if its system has them; all are fast to compute.
_PANES = ("graph", "loops", "cost")


class MapRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: ``open`` opens an operator.
        request: the browser's number for the message; the trait ``answered`` returns it.
        key: the key of the operator.
    """

    kind: Literal["open"]
    request: int
    key: str


class Map(View):
    """Operators by the distance of their traits, coloured by their results.

    Args:
        lab: an open lab, or the folder (or store file) of a lab, for its trials; None: only known operators.
        source: the key or the name of a search; empty: the complete lab.
        known: whether the known operators are included.

    Raises:
        SynoError: the lab cannot be read, or has no such search.
    """

    _esm = module(*_FILES)
    _css = joined(*_STYLES)
    _files, _styles = _FILES, _STYLES
    _noun = "map"
    _request = MapRequest
    _words = "The map, to be used in a running notebook; the picture beside it is its last."

    shown = t.Dict(read_only=True).tag(sync=True)
    """The map (:func:`syno_lab.reports.atlas.shown_atlas`); empty until it is computed."""

    svg = t.Unicode(read_only=True).tag(sync=True)
    """The picture of the map (:func:`syno_lab.reports.atlas.atlas_svg`)."""

    links = t.Dict(read_only=True).tag(sync=True)
    """The points of the picture by id: ``words``, ``light`` and ``key``."""

    search = t.Unicode(help="The text searched in the map.").tag(sync=True)
    """Operators whose names, systems or results contain this text are marked."""

    opened = t.Instance(OperatorView, allow_none=True, read_only=True).tag(sync=True, **widget_serialization)
    """The operator view of the chosen operator."""

    def __init__(self, lab: Lab | str | Path | None = None, *, source: str = "", known: bool = True) -> None:
        rows: tuple[Any, ...] = ()
        if lab is not None:
            with LabReader(lab if isinstance(lab, (str, Path)) else lab.folder) as reader:
                rows = reader.read().of(source)
        self._atlas: Atlas | None = None
        super().__init__()
        self._later = self._works.begin("comparing the traits of operators", lambda work: self._look(work, rows, known))
        self._later.tell()
        self.on_msg(self._on_message)

    # -- from Python -------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the map is computed, or for ``timeout_s`` seconds; return whether it is computed."""
        return self._later.wait(timeout_s)

    @property
    def atlas(self) -> Atlas:
        """The map as values; reading it waits for the computation.

        Raises:
            SynoError: no operator fits, or the computation was cancelled.
        """
        self.wait()
        if self._atlas is None:
            error = self._later.error
            raise error if isinstance(error, SynoError) else StoreError("the map was not worked out: it was cancelled")
        return self._atlas

    def open_operator(self, key: str) -> OperatorView:
        """Open the operator with this key. Raises SynoError if there is none."""
        place = self._place(key)
        if self.opened is None:
            self.set_trait("opened", OperatorView(place.operator, name=place.name))
        else:
            self.opened.show(place.operator, name=place.name)
        assert self.opened is not None
        return self.opened

    def write(self, folder: str | Path, *, title: str = "Atlas of operators", panes: Iterable[str] = _PANES) -> Path:
        """Write an atlas: ``index.html`` with the map and a table, and in ``operators/`` a page for each operator.

        The pages link to each other, fetch nothing, and need no server; the index needs no scripts either.

        Args:
            folder: the folder of the atlas; it is created if it is missing.
            title: the title of the index.
            panes: the panes in the operators' pages, if their systems have them.

        Returns:
            The path of the index.

        Raises:
            SynoError: the map cannot be computed, or a file cannot be written.
        """
        chart, root = self.atlas, Path(folder)
        pages = {op.key: f"operators/{number:03}.html" for number, op in enumerate(chart.places)}
        try:
            (root / "operators").mkdir(parents=True, exist_ok=True)
            (root / "index.html").write_text(atlas_page(title, shown_atlas(chart, pages)), encoding="utf-8")
        except OSError as error:
            raise SynoError(f"cannot write {root}: {error.strerror or error}") from None
        names = tuple(panes)
        for op in chart.places:
            with closing(OperatorView(op.operator, name=op.name)) as view:
                shown_panes = [name for name, _ in view.choices["panes"] if name in names]
                view.to_html(root / pages[op.key], panes=shown_panes)
        return root / "index.html"

    def to_html(self, path: str | Path | None = None) -> str:
        """Write the map as one page, without the operators' pages; arguments and errors as of :meth:`View.to_html`."""
        self.wait()
        return super().to_html(path)

    def close(self) -> None:
        """Remove the map from the page."""
        if self.opened is not None:
            self.opened.close()
        super().close()

    # -- display -----------------------------------------------------------------------------------------------------

    def _look(self, work: Work, rows: tuple[Any, ...], known: bool) -> None:
        try:
            chart = atlas(rows, known=known, should_stop=work.should_stop)
        except SpecError as refused:
            with work.delivering():
                self.set_trait("error", str(refused))
            raise
        shown = shown_atlas(chart)
        svg = atlas_svg(shown)
        links = {
            name: {"words": op.text, "light": [name], "key": op.key}
            for name, op in zip(ids_of(shown), shown.places, strict=True)
        }
        with work.delivering(), self.hold_sync():
            self._atlas = chart
            self.set_trait("svg", svg)
            self.set_trait("links", links)
            self.set_trait("shown", msgspec.to_builtins(shown))
        self._static.update_bundle(self._bundle())

    def _place(self, key: str) -> Placed:
        for op in self.atlas.places:
            if op.key == key:
                return op
        raise SpecError(f"map: expected the key of an operator in it, found {key!r}")

    # -- from the browser --------------------------------------------------------------------------------------------

    def _carry_out(self, request: MapRequest) -> Work | None:
        self.open_operator(request.key)
        return None

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _page_title(self) -> str:
        return "Map of operators"

    def _page_state(self) -> dict[str, Any]:
        return {**super()._page_state(), "opened": None}

    def _bundle(self) -> Bundle:
        words = self.shown.get("words", "The map is not worked out yet.")
        if not self.svg:
            html = f'<div class="syno-static" data-syno-static="{escape(self.static_id)}"><p>{escape(words)}</p></div>'
            return {"text/html": html, "text/plain": words}
        return static_bundle(self.static_id, self.svg, words)

    def __repr__(self) -> str:
        return f"<Map: {self.shown.get('words', 'not worked out yet')}>"
