"""The jobs, curves, trials and Pareto fronts of a lab, in a view that updates itself: ``RunsView(lab)``.

A thread reads the store through a connection that cannot write. So a cell returns at once, the view updates while
another cell runs, and a process that writes the store is not disturbed. :mod:`syno_lab.reports` computes all facts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from contextlib import closing, nullcontext, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import traitlets as t
from ipywidgets import widget_serialization

from syno_lab.errors import FormatError, SpecError, StoreError, SynoError
from syno_lab.jobs import Lab
from syno_lab.jobs.usage import UsageMeter
from syno_lab.panes.generic import described
from syno_lab.protocol import Operator
from syno_lab.reports import (
    Front,
    FrontFigure,
    LabReader,
    Reading,
    TrialRow,
    find_axis,
    front_of,
    front_picture,
    front_sketch,
    published_on,
    read_courses,
    rung_courses,
    trials_csv,
    trials_frame,
    trials_parquet,
)
from syno_lab.reports.figures import front_figure
from syno_lab.reports.pictures import describe_front
from syno_lab.reports.published import Stated
from syno_lab.reports.shown import (
    find_progress,
    shown_axes,
    shown_courses,
    shown_finals,
    shown_front,
    shown_network,
    shown_progress,
    shown_sources,
    shown_trials,
    summary,
    usual_measure,
)
from syno_lab.reports.why import read_why, shown_why
from syno_lab.systems import Named, read_operator
from syno_widgets.compare import Compare
from syno_widgets.comparing import Comparing
from syno_widgets.jobs_view import has_work, html_table, job_line, jobs_status, steer, text_table, without_buttons
from syno_widgets.looking import LookingView
from syno_widgets.operator_view import OperatorView
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle, static_bundle
from syno_widgets.view import validate
from syno_widgets.working import Work

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

_FILES = (
    *("shared.js", "jobs_view.js", "runs_chart.js", "runs_front.js", "runs_table.js", "runs_search.js"),
    "runs_view.js",
)
_STYLES = ("shared.css", "jobs_view.css", "runs_view.css")
_NEWEST = 50
_NO_FRONT = "there is no front to draw: choose two or three different axes"
_MOST_PICTURES = 200
FORMS = {"CSV": "csv", "Parquet": "parquet", "SVG": "svg", "PNG": "png", "PDF": "pdf", "TeX": "tex"}


class RunsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: the action on a job; ``picture`` requests the picture of a trial's operator, ``why`` why it was chosen;
            ``export`` requests a file; ``compare`` compares the selected trials.
        request: the browser's number for the message; the trait ``answered`` returns it.
        job: the job's number.
        key: the key of the trial.
        form: a key of :data:`FORMS`.
    """

    kind: Literal["cancel", "pause", "resume", "retry", "log", "picture", "why", "export", "compare"]
    request: int
    job: int = 0
    key: str = ""
    form: str = ""


class RunsView(Comparing, LookingView):
    """The jobs, curves, trials and fronts of one lab.

    Args:
        lab: an open lab, or the folder (or store file) of a lab, which may not exist yet. For a folder, dead jobs keep
            their last state, because the view writes nothing there unless a button is pressed.
        options: first values of the traits ``pane``, ``source``, ``x``, ``y``, ``z``, ``relative``, ``published``,
            ``sort``, ``descending``, ``filter``, ``tool``.

    Raises:
        SynoError: an option has an invalid value.
    """

    _esm = module(*_FILES)
    _css = joined(*_STYLES)
    _files, _styles = _FILES, _STYLES
    _options = ("pane", "source", "x", "y", "z", "relative", "published", "sort", "descending", "filter", "tool")
    _noun = "view"
    _request = RunsRequest
    _words = "The runs view, to be used in a running notebook; beside it the front and the jobs as they were last."

    pane = t.Enum(("results", "jobs", "search"), "results", help="The open tab.").tag(sync=True)
    """The open tab: ``results`` (front and table), ``jobs`` (jobs and curves) or ``search`` (plan, funnel, finals)."""

    source = t.Unicode(help="The search that is shown.").tag(sync=True)
    """The key of the shown search, such as ``search:mine``; empty: all searches."""

    x = t.Unicode(help="First axis of the front.").tag(sync=True)
    """The first axis: ``accuracy``, ``accuracy@RUNG``, ``flops``, ``params``, ``memory_mib``, ``probe``,
    ``latency_ms@TARGET``; empty: the default."""

    y = t.Unicode(help="Second axis of the front.").tag(sync=True)
    """The second axis; empty: :func:`syno_lab.reports.shown.usual_measure`, which changes as a search advances."""

    z = t.Unicode(help="Third axis of the front, as colour.").tag(sync=True)
    """The third axis, shown as colour; empty: the front has two axes."""

    relative = t.Bool(False, help="Whether values are against the baseline.").tag(sync=True)
    """Whether values are relative to the baseline: percentage points of accuracy, ratios of all other measures."""

    published = t.Bool(False, help="Whether the paper's statements are drawn.").tag(sync=True)
    """Whether the paper's numbers are drawn too, marked as the paper's; only relative to the baseline."""

    sort = t.Unicode("number", help="The column that the table is sorted by.").tag(sync=True)
    """The column by which the table is sorted."""

    descending = t.Bool(False, help="Whether the largest comes first.").tag(sync=True)
    """Whether the largest value is first."""

    filter = t.Unicode(help="The filter of the table.").tag(sync=True)
    """Words that a row must contain, and comparisons such as ``accuracy>0.9`` or ``flops<1e6``."""

    tool = t.Enum(("lasso", "box"), "lasso", help="How a drag selects.").tag(sync=True)
    """How a drag on the front selects: ``lasso`` or ``box``."""

    selected = t.List(t.Unicode(), help="Keys of the selected trials.").tag(sync=True)
    """The keys of the selected trials; the table shows only them, or all trials if none is selected."""

    chosen = t.Unicode(help="Key of the trial whose operator is open.").tag(sync=True)
    """The key of the trial whose operator is open below; empty: none."""

    rows = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The newest jobs, as in :class:`~syno_widgets.jobs_view.JobsView`."""

    machine = t.Unicode(read_only=True).tag(sync=True)
    """The use of this machine in words, while a job runs here."""

    status = t.Unicode(read_only=True).tag(sync=True)
    """The number of jobs in each state, as a sentence."""

    log = t.Dict(read_only=True).tag(sync=True)
    """The last requested log: ``job`` and ``text``; empty before the first request."""

    headline = t.Unicode(read_only=True).tag(sync=True)
    """A summary of the trials in one line; screen readers read each change."""

    sources = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The available searches and runs (:func:`syno_lab.reports.shown.shown_sources`)."""

    axes = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The available axes: ``name`` and ``title``."""

    trials = t.Dict(read_only=True).tag(sync=True)
    """The trials by columns (:func:`syno_lab.reports.shown.shown_trials`)."""

    front = t.Dict(read_only=True).tag(sync=True)
    """The front with all points (:func:`syno_lab.reports.shown.shown_front`), and the finals over it
    (:func:`syno_lab.reports.shown.shown_finals`)."""

    courses = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The curves of trainings and tunings; running ones are first."""

    progress = t.Dict(read_only=True).tag(sync=True)
    """The chosen search, or the newest: its plan, funnel and finals (:func:`syno_lab.reports.shown.shown_progress`)."""

    why = t.Dict(read_only=True).tag(sync=True)
    """The last requested reason of a choice: the trial's ``key``, :func:`syno_lab.reports.why.shown_why`, and the
    number of the ``answer``."""

    opened = t.Instance(OperatorView, allow_none=True, read_only=True).tag(sync=True, **widget_serialization)
    """The operator view of the chosen trial."""

    pictures = t.Dict(read_only=True).tag(sync=True)
    """On a standalone page, the pictures of the front's operators by key; a kernel sends each on request."""

    whys = t.Dict(read_only=True).tag(sync=True)
    """On a standalone page, why each finalist was chosen, by key; a kernel computes each on request."""

    files = t.Dict(read_only=True).tag(sync=True)
    """On a standalone page, the texts of the files to save, by form."""

    def __init__(self, lab: Lab | str | Path, **options: Any) -> None:
        self._check_options(options)
        self._lab = None if isinstance(lab, (str, Path)) else lab
        self._reader = LabReader(lab if isinstance(lab, (str, Path)) else lab.folder)
        self._reading: Reading | None = None
        self._front: Front | None = None
        self._progress: tuple[Any, ...] | None = None
        self._drawn: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._is_ready = False
        self._meter = UsageMeter()
        super().__init__()
        self._set_options(options)
        self._is_ready = True
        self._try_to_refresh()
        self.on_msg(self._on_message)
        self._start_looking("runs view")

    # -- from Python -------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The lab's folder."""
        return self._reader.folder

    def refresh(self) -> None:
        """Read the lab now.

        Raises:
            SynoError: the lab cannot be read.
        """
        if self._lab is not None:
            self._lab.sweep()
        reading = self._reader.read()
        with self._lock:
            old, self._reading = self._reading, reading
            # Jobs report progress twice a second; the trials change seldom.
            is_new = old is None or (old.rows, old.sources) != (reading.rows, reading.sources)
            with self.hold_sync():
                self._show_jobs(reading)
                if is_new:
                    if not self.x:
                        self.x = "flops"
                    self.set_trait("sources", shown_sources(reading))
                    self.set_trait("axes", shown_axes(reading.targets, reading.rungs))
                    self._show_trials()
                self._show_progress()

    def frame(self, *, selected: bool = False) -> pd.DataFrame:
        """Return the trials as a table (:func:`syno_lab.reports.trials_frame`), all or only the ``selected`` trials.

        Raises:
            SynoError: the lab cannot be read.
        """
        self.refresh()
        with self._lock:
            assert self._reading is not None
            return trials_frame(self._chosen_rows(selected), self._reading.targets, self._on_front())

    def export(self, form: str) -> bytes:
        """Return the results as a file: ``CSV`` or ``Parquet`` (selected trials, else all), or the front.

        The front is an ``SVG`` or ``PNG`` for a page, a ``PDF`` or ``TeX`` for a paper's column (:meth:`save`).

        Raises:
            SynoError: the form is unknown, or the lab cannot be read.
        """
        if form not in FORMS:
            raise SpecError(f"export: expected one of {', '.join(FORMS)}, found {form!r}")
        with self._lock:
            if self._reading is None:
                self.refresh()
            assert self._reading is not None
            rows, targets, best = self._chosen_rows(bool(self.selected)), self._reading.targets, self._on_front()
        if form in ("CSV", "Parquet"):
            return (trials_csv if form == "CSV" else trials_parquet)(rows, targets, best)
        front, title, paper = self._shown_front()
        if form in ("PDF", "TeX"):
            return FrontFigure(front, title=title, published=paper).content(FORMS[form])
        return front_picture(front, FORMS[form], title=title, published=paper)

    def figure(self) -> Figure:
        """Return the shown front as a figure of plotly. Raises SynoError as :meth:`save`, without its file."""
        front, title, paper = self._shown_front()
        return front_figure(front, title, paper)

    def save(self, path: str | Path, **page: Any) -> Path:
        """Write the shown front for a paper: ``view.save("front.pdf", width="column")`` (:meth:`.Figure.save`).

        Raises:
            SynoError: the lab cannot be read, the front or an option is invalid, or the file cannot be written.
        """
        front, title, paper = self._shown_front()
        front.check()
        return FrontFigure(front, title=title, published=paper).save(path, **page)

    def _shown_front(self) -> tuple[Front, str, list[Stated]]:
        with self._lock:
            if self._reading is None:
                self.refresh()
            if self._front is None:
                raise StoreError(_NO_FRONT)
            return self._front, self._title(), self._paper()

    def compare(self, *keys: str) -> Compare:
        """Compare the operators of two to four trials below the view; without keys, those of the selected trials.

        Raises:
            SynoError: the lab cannot be read, has no such trial, or a trial has no operator.
        """
        with self._lock:
            if self._reading is None:
                self.refresh()
            assert self._reading is not None
            rows = [self._reading.row(key) for key in keys or self.selected]
        names = [f"{row.label} of {row.source}" for row in rows]
        operators = [Named(name, _operator_of(row), row.places) for name, row in zip(names, rows, strict=True)]
        return self._open_comparison(*operators, names=names, trials=rows)

    def to_html(self, path: str | Path | None = None, *, most_pictures: int = 100) -> str:
        """Write a page with all results. The page fetches nothing and needs no kernel.

        Args:
            path: the path of the page; None: it is only returned.
            most_pictures: the most pictures of operators on the page; the front's pictures are first.

        Raises:
            SynoError: the lab cannot be read, or the file cannot be written.
        """
        self._most_pictures = most_pictures
        self.refresh()
        return super().to_html(path)

    def _page_title(self) -> str:
        return self._title()

    def _page_state(self) -> dict[str, Any]:
        front = self._front
        keys = [] if front is None else [front.points[place].key for place in front.front]
        keys = list(dict.fromkeys((*keys, *(row.key for row in self._rows() if row.operator))))
        drawn: dict[str, dict[str, str]] = {}
        for key in keys[: self._most_pictures]:
            with suppress(FormatError):  # an unknown system: the page has all other data
                picture = self._picture(key)
                drawn |= {} if picture is None else {key: picture}
        files = {"CSV": self.export("CSV").decode()}
        if front is not None:
            files["SVG"] = self.export("SVG").decode()
        state = super()._page_state()
        whys: dict[str, Any] = {}
        for finalist in self.progress.get("finalists", ()):
            with suppress(SynoError):  # the page leaves out a finalist without a reason
                whys[finalist["key"]] = self._explained(finalist["key"])
        more = {"pictures": drawn, "files": files, "whys": whys}
        return {**state, "opened": None, "rows": without_buttons(self.rows), "machine": "", **more}

    def close(self) -> None:
        """Stop reading, and remove the view from the page. The jobs continue."""
        super().close()
        with self._lock:
            if self.opened is not None:
                self.opened.close()
            if hasattr(self, "_reader"):  # absent if the constructor refused the arguments
                self._reader.close()

    # -- display -----------------------------------------------------------------------------------------------------

    def _show_jobs(self, reading: Reading) -> None:
        used = self._meter.look(self._reader.leases())
        shown = [job_line(record, used.get(record.id)) for record in reversed(reading.jobs[-_NEWEST:])]
        self.set_trait("rows", shown)
        self.set_trait("machine", f"This machine: {self._meter.machine()}." if used else "")
        self.set_trait("status", jobs_status(reading.jobs, _NEWEST))
        courses = (*read_courses(reading.jobs, reading.folder), *rung_courses(reading.sources))
        self.set_trait("courses", shown_courses(courses))

    def _show_progress(self) -> None:
        """Show the plan, funnel and finals of the chosen search, or of the newest search."""
        if self._reading is None:
            return
        progress = find_progress(self._reading, self.source)
        if self._progress != (progress, self._reading.rows):
            self._progress = (progress, self._reading.rows)
            self.set_trait("progress", {} if progress is None else shown_progress(self._reading, *progress))

    def _show_trials(self) -> None:
        """Show the trials and the front of the chosen source and axes."""
        reading = self._reading
        if reading is None:
            return
        rows = self._rows()
        self._front, refused = None, ""
        try:
            baselines = {s.key: s.baseline for s in reading.sources if s.baseline is not None}
            names = [name for name in (self.x, self._measure(), self.z) if name]
            against = baselines if self.relative else None
            self._front = front_of(rows, names, baselines=against)
        except SynoError as error:
            refused = str(error)
        with self.hold_sync():
            self.set_trait("trials", shown_trials(rows, self._targets()))
            front = self._front
            shown = {"text": refused} if front is None else shown_front(front, self._title(), self._paper())
            shown |= {} if front is None else shown_finals(front, rows, reading.sources, against)
            self.set_trait("front", shown)
            self.set_trait("headline", summary(reading, rows, front))

    def _rows(self) -> tuple[TrialRow, ...]:
        if self._reading is None:
            return ()
        try:
            return self._reading.of(self.source)
        except StoreError:  # the chosen search does not exist (yet, or any more)
            return ()

    def _measure(self) -> str:
        """Return the second axis: the user's, or the default."""
        return self.y or usual_measure(self._rows())

    def _targets(self) -> list[str]:
        return [] if self._reading is None else list(self._reading.targets)

    def _chosen_rows(self, selected: bool) -> list[TrialRow]:
        wanted = set(self.selected)
        return [row for row in self._rows() if not selected or row.key in wanted]

    def _on_front(self) -> Collection[str]:
        return set() if self._front is None else {self._front.points[place].key for place in self._front.front}

    def _paper(self) -> list[Stated]:
        names = [name for name in (self.x, self._measure(), self.z) if name]
        return published_on(names) if self.relative and self.published else []

    def _title(self) -> str:
        if self._reading is not None:
            for searched in self._reading.sources:
                if self.source in (searched.key, searched.name):
                    return f"search {searched.name}".capitalize()
        return "All trials"

    @validate("x", "y", "z")
    def _valid_axis(self, proposal: dict[str, Any]) -> str:
        value: str = proposal["value"]
        if value:
            find_axis(value)
        return value

    @t.observe("source", "x", "y", "z", "relative", "published")
    def _changed(self, _change: dict[str, Any]) -> None:
        if self._is_ready:
            with self._lock:
                self._show_trials()
                self._show_progress()

    @t.observe("chosen")
    def _choose(self, change: dict[str, Any]) -> None:
        key: str = change["new"]
        if not key:
            return
        try:
            with self._lock:
                if self._reading is None:
                    raise StoreError(f"no trial {key!r}: the lab cannot be read")
                row, reading = self._reading.row(key), self._reading
            operator = _operator_of(row)
            name = f"{row.label} of {row.source}"
            places, about = row.places, shown_network(row, reading)
            with self._lock:
                if self.opened is None:
                    self.set_trait("opened", OperatorView(operator, name=name, places=places, about=about))
                else:
                    self.opened.show(operator, name=name, places=places, about=about)
                self.set_trait("error", "")
        except SynoError as error:
            self.set_trait("error", str(error))

    # -- the thread --------------------------------------------------------------------------------------------------

    def _is_busy(self) -> bool:
        return has_work(self.rows)

    def _pictured(self) -> object:
        return self._front

    # -- from the browser --------------------------------------------------------------------------------------------

    def _carry_out(self, request: RunsRequest) -> Work | None:
        if request.kind == "picture":
            with self._lock:
                picture = self._picture(request.key)
            if picture is not None:
                self.send({"kind": "picture", "key": request.key, **picture})
        elif request.kind == "compare":
            self.compare()
        elif request.kind == "why":
            return self._works.begin("looking why it was chosen", lambda work: self._show_why(work, request.key))
        elif request.kind == "export":
            return self._works.begin("making the file", lambda work: self._send_file(work, request.form))
        else:
            self._steer(request.kind, request.job)
        return None

    def _show_why(self, work: Work, key: str) -> None:
        explanation = self._explained(key)
        with work.delivering():
            self.set_trait("why", {**explanation, "answer": self.why.get("answer", 0) + 1})

    def _explained(self, key: str) -> dict[str, Any]:
        return {"key": key, **shown_why(read_why(self._reader.folder, key))}

    def _send_file(self, work: Work, form: str) -> None:
        content = self.export(form)
        with work.delivering():
            self.send({"kind": "file", "name": f"trials.{FORMS[form]}"}, [content])

    def _steer(self, kind: str, number: int) -> None:
        lab = nullcontext(self._lab) if self._lab is not None else closing(_opened(self._reader.folder))
        with lab as steered:
            log = steer(steered, kind, number)
        if log:
            self.set_trait("log", log)
        else:
            self.refresh()

    def _picture(self, key: str) -> dict[str, str] | None:
        """Return the picture of a trial's operator as ``svg``, and described in ``text``; None for the baseline."""
        if key in self._drawn:
            self._drawn.move_to_end(key)
            return self._drawn[key]
        row = None if self._reading is None else self._reading.row(key)
        if row is None or not row.operator:
            return None
        operator = read_operator(row.operator)
        svg = operator.svg()
        self._drawn[key] = {"svg": svg, "text": described(operator, svg)}
        if len(self._drawn) > _MOST_PICTURES:
            self._drawn.popitem(last=False)
        return self._drawn[key]

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _bundle(self) -> Bundle:
        """Return the static output for a page without a kernel: the figure, the trials of the front, the jobs."""
        rows = without_buttons(self.rows)
        words = f"{self.headline}\n{self.status}\n{text_table(rows)}".strip()
        funnel = self.progress.get("text", "")
        about = "".join(f"<p>{escape(text)}</p>" for text in (self.headline, funnel, self.status, self.error) if text)
        tables = f"{html_table(rows)}{_front_table(self._front)}"
        if self._front is None:
            opened = f'<div class="syno-static" data-syno-static="{escape(self.static_id)}">'
            return {"text/html": f"{opened}{about}{tables}</div>", "text/plain": words}
        picture = front_sketch(self._front, self._title(), self._paper())
        bundle = static_bundle(self.static_id, picture, describe_front(self._front, self._title()))
        html = bundle["text/html"].removesuffix("</div>")
        return {**bundle, "text/html": f"{html}{about}{tables}</div>", "text/plain": words}

    def __repr__(self) -> str:
        return f"<RunsView of {self._reader.folder}: {self.headline}>"


def _operator_of(row: TrialRow) -> Operator:
    """Return the operator of a trial. Raises SynoError if it has none."""
    if not row.operator:
        raise StoreError(f"{row.label} is the network as it is: there is no operator to show")
    return read_operator(row.operator)


def _opened(folder: Path) -> Lab:
    """Open the lab of a folder to control one job; no worker is started."""
    return Lab.open(folder, start=False, is_thorough=False)


def _front_table(front: Front | None) -> str:
    """Return the trials on the front as HTML that needs no widget, no style and no trust."""
    if front is None or not front.front:
        return ""
    names = ("trial", "system") if len(front.systems) > 1 else ("trial",)
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in (*names, *(axis.text for axis in front.axes)))
    lines = []
    for place in front.front[:_NEWEST]:
        point = front.points[place]
        cells = "".join(f"<td>{value:.6g}</td>" for value in point.values)
        texts = "".join(f"<td>{escape(text)}</td>" for text in (point.label, point.system)[: len(names)])
        lines.append(f"<tr>{texts}{cells}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
