"""Two to four operators side by side: ``Compare(a, b)``.

Pictures, steps and costs are shown at once. A thread computes receptive fields and reads the trials of a lab; their
rows are added to the table. :mod:`syno_lab.panes.compared` and :mod:`syno_lab.reports.compared` compute all facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Literal

import msgspec
import traitlets as t

from syno_lab.errors import SynoError
from syno_lab.panes.compared import (
    NumberRow,
    columns_and_rows,
    common_layers,
    common_sizes,
    cost_rows,
    reach_rows,
    side_by_side,
    subjects_of,
)
from syno_lab.reports import LabReader, TrialRow
from syno_lab.reports.compared import result_rows, trials_of
from syno_lab.store.place import lab_folder
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle, static_bundle
from syno_widgets.view import View
from syno_widgets.working import Work

_FILES = ("shared.js", "operator_graph.js", "compare.js")
_STYLES = ("shared.css", "operator_graph.css", "operator_graph_dark.css", "compare.css")


class CompareRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: ``bind`` sets the sizes.
        request: the browser's number for the message; the trait ``answered`` returns it.
        binding: a size for each variable.
    """

    kind: Literal["bind"]
    request: int
    binding: dict[str, int] = {}


class Compare(View):
    """Operators side by side: pictures, aligned steps, and one table of costs, receptive fields and results.

    Equal steps are in one row. A part that not all operators have is marked in pictures and rows: by its colour, its
    border and in words.

    Args:
        operators: two to four operators of any systems, their names (``conv2d``, or of trials ``search#12``) or files,
            or states of operators under construction.
        names: the names of the operators; None: the names of trials and of known operators.
        binding: the sizes for all operators; None: those of a trial's first layer, else the examples of one's system.
        lab: the folder of a lab whose trials of these operators are shown; None: the default lab, for names of trials.
        trials: a trial for each operator or None, instead of ``lab``.

    Raises:
        SynoError: another number of operators, a value that is no operator, sizes that do not fit all operators, or a
            missing layout program.
    """

    _esm = module(*_FILES)
    _css = joined(*_STYLES)
    _files, _styles = _FILES, _STYLES
    _noun = "comparison"
    _request = CompareRequest
    _words = "The comparison, to be used in a running notebook; beside it the pictures."

    columns = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The operators (:func:`syno_lab.panes.compared.columns_and_rows`)."""

    rows = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The operators' steps in rows (:func:`syno_lab.panes.compared.columns_and_rows`)."""

    table = t.List(t.Dict(), read_only=True).tag(sync=True)
    """Costs, receptive fields and results (:func:`syno_lab.panes.compared.table_row`)."""

    sizes = t.Dict(read_only=True).tag(sync=True)
    """The sizes of all variables; empty if no compared value is an operator."""

    example = t.Bool(True, read_only=True).tag(sync=True)
    """Whether the sizes are examples, because the user has set none."""

    places: t.List[list[Any]] = t.List(read_only=True).tag(sync=True)
    """The layers that all operators fit: a name and the sizes of each."""

    selected = t.Int(-1, help="The chosen row of steps.").tag(sync=True)
    """The chosen row of steps; its parts are highlighted in all pictures; -1: none."""

    status = t.Unicode(read_only=True).tag(sync=True)
    """The number of equal steps, in one sentence."""

    def __init__(
        self,
        *operators: Any,
        names: Sequence[str] | None = None,
        binding: Mapping[str, int] | None = None,
        lab: str | Path | None = None,
        trials: Sequence[TrialRow | None] | None = None,
    ) -> None:
        self._subjects = subjects_of(operators, names, lab)
        sizes = common_sizes(self._subjects, binding)
        columns, rows = columns_and_rows(self._subjects)
        is_of_lab = lab is None and any("#" in subject.name for subject in self._subjects)
        self._lab, self._trials = lab_folder() if is_of_lab else lab, trials
        self._later: Work | None = None
        super().__init__()
        self.set_trait("columns", columns)
        self.set_trait("rows", rows)
        self.set_trait("places", [[*layer] for layer in common_layers(self._subjects)])
        self.set_trait("status", _status(rows))
        self._show(sizes, binding is None and not any(subject.places for subject in self._subjects))
        self.on_msg(self._on_message)

    # -- from Python -------------------------------------------------------------------------------------------------

    def bind(self, binding: Mapping[str, int]) -> None:
        """Compare at other sizes. Raises SpecError if they do not fit all operators."""
        self._show(common_sizes(self._subjects, {**self.sizes, **binding}), False)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the table is complete, or for ``timeout_s`` seconds; return whether it is complete."""
        return self._later is None or self._later.wait(timeout_s)

    def to_html(self, path: str | Path | None = None) -> str:
        """Write a page with the complete comparison. The page fetches nothing and needs no kernel.

        Args:
            path: the path of the page; None: it is only returned.

        Raises:
            SynoError: the file cannot be written.
        """
        self.wait()
        return super().to_html(path)

    def _page_title(self) -> str:
        return " and ".join(column["name"] for column in self.columns)

    # -- display -----------------------------------------------------------------------------------------------------

    def _show(self, sizes: dict[str, int], is_example: bool) -> None:
        costs = cost_rows(self._subjects, sizes)
        with self._lock, self.hold_sync():
            self.set_trait("sizes", sizes)
            self.set_trait("example", is_example)
            self.set_trait("table", costs)
        description = "looking at receptive fields and trials"
        self._later = self._works.begin(description, lambda work: self._add(work, sizes, costs))
        self._later.tell()

    def _add(self, work: Work, sizes: dict[str, int], costs: list[NumberRow]) -> None:
        """Add the other rows of the table; if the lab cannot be read, set the error."""
        reads = reach_rows(self._subjects, sizes, work.should_stop)
        with work.delivering():
            self.set_trait("table", costs + reads)
        try:
            results = result_rows(self._results())
        except SynoError as error:
            with work.delivering():
                self.set_trait("error", str(error))
            return
        with work.delivering():
            self.set_trait("table", costs + reads + results)
        self._static.update_bundle(self._bundle())

    def _results(self) -> Sequence[TrialRow | None]:
        if self._trials is None and self._lab is not None:
            with LabReader(self._lab) as reader:
                self._trials = trials_of(reader.read(), self._subjects)
        return self._trials or ()

    # -- from the browser --------------------------------------------------------------------------------------------

    def _carry_out(self, request: CompareRequest) -> Work | None:
        self.bind(request.binding)
        return None

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _bundle(self) -> Bundle:
        """Return the static output for a page without a kernel: the pictures, and both tables."""
        heads = [f"{column['letter']}: {column['name']}" for column in self.columns]
        words = f"{', '.join(heads)}. {self.status}"
        bundle = static_bundle(self.static_id, side_by_side([(c["name"], c["svg"]) for c in self.columns]), words)
        lines = [[row["title"], *(cell["text"] for cell in row["cells"])] for row in self.table]
        steps = [[row["words"], *(cell["text"] if cell else "" for cell in row["cells"])] for row in self.rows]
        html = bundle["text/html"].removesuffix("</div>")
        tables = _html_table(["", *heads], lines) + _html_table(["step", *heads], steps)
        return {**bundle, "text/html": f"{html}<p>{escape(words)}</p>{tables}</div>"}

    def __repr__(self) -> str:
        return f"<Compare: {self._page_title()}; {self.status}>"


def _status(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "They have no steps that could be compared."
    same = sum(row["mark"] == "same" for row in rows)
    return f"{same} of {len(rows)} steps are the same in all."


def _html_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in HTML that needs no style and no trust."""
    if not lines:
        return ""
    top = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in line) + "</tr>" for line in lines)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
