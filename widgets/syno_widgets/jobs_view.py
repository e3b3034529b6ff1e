"""The jobs of a lab as a table that updates itself, with buttons for the actions on each job.

The lab provides all facts; :func:`syno_lab.commands.jobs.possible_actions` decides which buttons a job has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any, Literal

import msgspec
import traitlets as t

from syno_lab.commands.jobs import job_row, possible_actions
from syno_lab.errors import SynoError
from syno_lab.inputs import count_of
from syno_lab.jobs import JobRecord, Lab
from syno_lab.jobs.usage import Usage, UsageMeter
from syno_widgets.looking import LookingView
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle

_FILES = ("shared.js", "jobs_view.js", "jobs_page.js")
_STYLES = ("shared.css", "jobs_view.css")
_COLUMNS = ("job", "kind", "name", "state", "done", "left", "attempt", "wall_s", "use", "message")
_HEADS = {"wall_s": "seconds"}
_TAIL = 200


class JobRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: the action; ``log`` shows the job's log.
        job: the job's number.
        request: the browser's number for the message; the trait ``answered`` returns it.
    """

    kind: Literal["cancel", "pause", "resume", "retry", "log"]
    job: int
    request: int


class JobsView(LookingView):
    """The newest jobs of a lab; the last submitted job is first.

    Args:
        lab: an open lab; close the view before the lab.
        newest: the most jobs that are shown; the status line counts all jobs.

    Raises:
        SynoError: the store cannot be read.
    """

    _esm = module(*_FILES)
    _css = joined(*_STYLES)
    _files, _styles = _FILES, _STYLES
    _noun = "table"
    _request = JobRequest
    _words = "The table of jobs, to be used in a running notebook; beside it the jobs as they were last."

    rows = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The jobs: the fields of :func:`syno_lab.commands.jobs.job_row` with ``job`` as a number, and ``actions``.

    ``use`` is the use of processor, memory and GPU by a job that runs on this machine."""

    machine = t.Unicode(read_only=True).tag(sync=True)
    """The use of this machine in words, while a job runs here."""

    status = t.Unicode(read_only=True).tag(sync=True)
    """The number of jobs in each state, as a sentence; screen readers read each change."""

    log = t.Dict(read_only=True).tag(sync=True)
    """The last requested log: ``job`` and ``text``, its last lines; empty before the first request."""

    def __init__(self, lab: Lab, *, newest: int = 50) -> None:
        self._lab = lab
        self._newest = newest
        self._meter = UsageMeter()
        super().__init__()
        self._states: list[tuple[int, str]] = []
        self.refresh()
        self.on_msg(self._on_message)
        self._start_looking("jobs table")

    def refresh(self) -> None:
        """Read the store now."""
        with self._lock:
            records = self._lab.jobs()
            used = self._meter.look(self._lab.ledger.leases())
            shown = [job_line(record, used.get(record.id)) for record in reversed(records[-self._newest :])]
            with self.hold_sync():
                self.set_trait("machine", f"This machine: {self._meter.machine()}." if used else "")
                self.set_trait("rows", shown)
                self.set_trait("status", jobs_status(records, self._newest))
            states = [(row["job"], row["state"]) for row in shown]
            if states != self._states:  # not for each per cent of progress: every update changes the notebook
                self._states = states
                self._static.update_bundle(self._bundle())

    def _is_busy(self) -> bool:
        return has_work(self.rows)

    # -- from the browser --------------------------------------------------------------------------------------------

    def handle(self, content: Any) -> None:
        """Carry out one message, as :meth:`.View.handle` does; the table is not refreshed meanwhile."""
        with self._lock:
            super().handle(content)

    def _carry_out(self, request: JobRequest) -> None:
        log = steer(self._lab, request.kind, request.job)
        if log:
            self.set_trait("log", log)
        self.refresh()

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _bundle(self) -> Bundle:
        rows = without_buttons(self.rows)
        html = f'<div class="syno-static" data-syno-static="{escape(self.static_id)}">{html_table(rows)}</div>'
        return {"text/html": html, "text/plain": f"{self.status}\n{text_table(rows)}".strip()}

    def _page_title(self) -> str:
        return "Jobs"

    def _page_state(self) -> dict[str, Any]:
        return {**super()._page_state(), "rows": without_buttons(self.rows), "machine": ""}

    def __repr__(self) -> str:
        return f"<JobsView: {self.status}>"


def job_line(record: JobRecord, used: Usage | None = None) -> dict[str, Any]:
    """Return a job as a row of :attr:`JobsView.rows`."""
    use = str(used) if used is not None and record.state == "running" else ""
    return {**job_row(record), "job": record.id, "use": use, "actions": [*possible_actions(record), "log"]}


def without_buttons(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove the buttons and the momentary fields from rows, for a page without a kernel."""
    return [{**row, "actions": [], "left": "", "use": ""} for row in rows]


def has_work(rows: Sequence[dict[str, Any]]) -> bool:
    """Tell whether a job waits or runs."""
    return any(row["state"].startswith(("waiting", "running")) for row in rows)


def steer(lab: Lab, kind: str, number: int) -> dict[str, Any]:
    """Perform the action ``kind`` on a job; for ``log`` return its ``job`` and the ``text`` of its last lines, else {}.

    Raises:
        SynoError: there is no such job, or its state does not allow the action.
    """
    job = lab.job(number)
    if kind == "log":
        return {"job": number, "text": "\n".join(job.log().splitlines()[-_TAIL:])}
    record = job.record()
    if kind not in possible_actions(record):
        raise SynoError(f"job {number} is {record.state} and cannot be asked to {kind}")
    getattr(job, kind)()
    return {}


def jobs_status(records: Sequence[JobRecord], newest: int) -> str:
    """Describe the number of jobs in each state in a sentence; ``newest`` jobs are shown."""
    if not records:
        return "No jobs yet."
    counts = Counter(record.state for record in records)
    words = ", ".join(f"{number} {state}" for state, number in counts.items())
    rest = f"; the newest {newest} are shown" if len(records) > newest else ""
    return f"{count_of(len(records), 'job')}: {words}{rest}."


def html_table(rows: Sequence[dict[str, Any]]) -> str:
    """Format rows of :attr:`JobsView.rows` as HTML that needs no widget, no style and no trust."""
    if not rows:
        return "<p>No jobs yet.</p>"
    head = "".join(f'<th scope="col">{_HEADS.get(name, name)}</th>' for name in _COLUMNS)
    lines = ("".join(f"<td>{escape(str(row[name]))}</td>" for name in _COLUMNS) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text_table(rows: Sequence[dict[str, Any]]) -> str:
    """Format the rows as plain text with aligned columns."""
    if not rows:
        return ""
    lines = [[_HEADS.get(name, name) for name in _COLUMNS], *([str(row[name]) for name in _COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
