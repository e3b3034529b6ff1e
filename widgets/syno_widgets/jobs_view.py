"""The jobs of a lab as a table that keeps itself up to date, with buttons for what can be done about each.

It reads the store in a thread of its own, so it moves while a cell runs. All facts come from the lab; what can be done
about a job is said by :func:`syno_lab.commands.jobs.possible_actions`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any, Literal

import msgspec
import traitlets as t

from syno_lab.commands.jobs import job_row, possible_actions
from syno_lab.errors import SynoError
from syno_lab.evaluate.jobs import JobRecord, Lab
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle
from syno_widgets.view import View

_COLUMNS = ("job", "kind", "name", "state", "done", "attempt", "wall_s", "message")
_HEADS = {"wall_s": "seconds"}
_BUSY_S, _QUIET_S = 1.0, 3.0  # between two looks at the store, with and without jobs under way
_SHARE = 20  # looking takes at most one part in so many of the time
_TAIL = 200


class JobRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: what to do; ``log`` shows the job's log.
        job: the job's number.
        request: the browser's number for it, given back in the trait ``answered``.
    """

    kind: Literal["cancel", "pause", "resume", "retry", "log"]
    job: int
    request: int


class JobsView(View):
    """The newest jobs of a lab, the last submitted first.

    Args:
        lab: an open lab; close the view before it.
        newest: how many jobs are shown at most; the status line counts all.

    Raises:
        SynoError: when the store cannot be read.
    """

    _esm = module("shared.js", "jobs_view.js", "jobs_page.js")
    _css = joined("shared.css", "jobs_view.css")
    _noun = "table"
    _request = JobRequest
    _words = "The table of jobs, to be used in a running notebook; beside it the jobs as they were last."

    rows = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The jobs: the fields of :func:`syno_lab.commands.jobs.job_row` with ``job`` as a number, and ``actions``."""

    status = t.Unicode(read_only=True).tag(sync=True)
    """How many jobs are in which state, in words; read out by screen readers whenever it changes."""

    error = t.Unicode(read_only=True).tag(sync=True)
    """Why the last request was not carried out or the store not read, one line; else empty."""

    log = t.Dict(read_only=True).tag(sync=True)
    """The log asked for last: ``job`` and ``text``, its last lines; empty while none was."""

    def __init__(self, lab: Lab, *, newest: int = 50) -> None:
        self._lab = lab
        self._newest = newest
        self._closed = threading.Event()
        self._unread = ""
        super().__init__()
        self._states: list[tuple[int, str]] = []
        self.refresh()
        self.on_msg(self._on_message)
        threading.Thread(target=self._look, name="syno-lab jobs table", daemon=True).start()

    def refresh(self) -> None:
        """Read the store now."""
        with self._lock:
            records = self._lab.jobs()
            shown = [_row(record) for record in reversed(records[-self._newest :])]
            with self.hold_sync():
                self.set_trait("rows", shown)
                self.set_trait("status", jobs_status(records, self._newest))
            states = [(row["job"], row["state"]) for row in shown]
            if states != self._states:  # not at each per cent: every update changes the notebook
                self._states = states
                self._static.update_bundle(self._bundle())

    def close(self) -> None:
        """Stop looking, and take the widget off the page. The jobs go on."""
        self._closed.set()
        with self._lock:  # a look under way comes to its end
            super().close()

    def _look(self) -> None:
        wait = _BUSY_S
        while not self._closed.wait(wait):
            begun = time.monotonic()
            try:
                with self._lock:
                    if self._closed.is_set():
                        return
                    self.refresh()
                    self._say_unread("")
            except SynoError as error:
                self._say_unread(str(error))
            except Exception as unforeseen:  # noqa: BLE001 the table must live on; the log has the whole story
                self._say_unread(self._unforeseen(unforeseen, "looking at the store"))
            is_busy = any(row["state"].startswith(("waiting", "running")) for row in self.rows)
            wait = max(_BUSY_S if is_busy else _QUIET_S, _SHARE * (time.monotonic() - begun))

    def _say_unread(self, text: str) -> None:
        """That the store could not be read, and that it can again; other errors stay until the next request."""
        with self._lock:
            if text or self._unread:
                self.set_trait("error", text)
            self._unread = text

    # -- from the browser --------------------------------------------------------------------------------------------

    def handle(self, content: Any) -> None:
        """Carry out one message, as :meth:`View.handle` does; the table is not read meanwhile."""
        with self._lock:
            super().handle(content)

    def _carry_out(self, request: JobRequest) -> None:
        job = self._lab.job(request.job)
        if request.kind == "log":
            text = "\n".join(job.log().splitlines()[-_TAIL:])
            self.set_trait("log", {"job": request.job, "text": text})
        else:
            record = job.record()
            if request.kind not in possible_actions(record):
                raise SynoError(f"job {record.id} is {record.state} and cannot be asked to {request.kind}")
            getattr(job, request.kind)()
        self.refresh()

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _bundle(self) -> Bundle:
        html = f'<div class="syno-static" data-syno-static="{escape(self.static_id)}">{html_table(self.rows)}</div>'
        return {"text/html": html, "text/plain": f"{self.status}\n{text_table(self.rows)}".strip()}

    def __repr__(self) -> str:
        return f"<JobsView: {self.status}>"


def _row(record: JobRecord) -> dict[str, Any]:
    return {**job_row(record), "job": record.id, "actions": [*possible_actions(record), "log"]}


def jobs_status(records: Sequence[JobRecord], newest: int) -> str:
    """How many jobs are in which state, in words; ``newest`` of them are shown."""
    if not records:
        return "No jobs yet."
    counts = Counter(record.state for record in records)
    words = ", ".join(f"{number} {state}" for state, number in counts.items())
    rest = f"; the newest {newest} are shown" if len(records) > newest else ""
    return f"{len(records)} {'job' if len(records) == 1 else 'jobs'}: {words}{rest}."


def html_table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of :attr:`JobsView.rows` as HTML that needs no widget, no style and no trust."""
    if not rows:
        return "<p>No jobs yet.</p>"
    head = "".join(f'<th scope="col">{_HEADS.get(name, name)}</th>' for name in _COLUMNS)
    lines = ("".join(f"<td>{escape(str(row[name]))}</td>" for name in _COLUMNS) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text_table(rows: Sequence[dict[str, Any]]) -> str:
    """The same in plain text, columns in line."""
    if not rows:
        return ""
    lines = [[_HEADS.get(name, name) for name in _COLUMNS], *([str(row[name]) for name in _COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
