"""The table of jobs without a browser: it follows the store by itself, and asks of jobs what its buttons say."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import syno_widgets
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from labs import until
from syno_widgets.jobs_view import JobsView, html_table, text_table
from syno_widgets.view import View
from traitlets.config import Config

from syno_lab.errors import StoreError
from syno_lab.jobs import Lab

WIDGETS = Path(syno_widgets.__file__).parent
WITHIN_S = 200.0


@pytest.fixture
def view(lab: Lab) -> Iterator[JobsView]:
    made = JobsView(lab)
    yield made
    made.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def row(view: JobsView, job: int) -> dict[str, Any]:
    return next((row for row in view.rows if row["job"] == job), {"state": "not there"})


def ask(view: JobsView, kind: str, job: int) -> None:
    """A message as the browser sends it."""
    number = view.answered + 1
    view.handle({"kind": kind, "job": job, "request": number})
    assert view.answered == number


def test_follows_the_store_by_itself_and_steers(lab: Lab, view: JobsView, gate: Path) -> None:
    job = lab.submit("gate", {"gate": str(gate)}, name="mine")
    # Nothing but the view's own thread looks from here on, as while a cell runs.
    until(lambda: row(view, job.id).get("message") == "<b>waiting</b>")
    until(lambda: "cores" in row(view, job.id)["use"])  # at the second look
    assert re.fullmatch(r"\d+\.\d cores, [\d,]+ MiB(, GPU .*)?", row(view, job.id)["use"])
    assert re.fullmatch(r"This machine: processor \d+ % of \d+ cores?, memory [\d.]+ of [\d.]+ GiB.*\.", view.machine)
    assert re.fullmatch("about .*", row(view, job.id)["left"])  # of a half that is done
    assert row(view, job.id) | {"wall_s": "", "left": "", "use": ""} == {
        "job": job.id,
        "kind": "gate",
        "name": "mine",
        "state": "running",
        "done": "50 %",
        "attempt": "1",
        "wall_s": "",
        "left": "",
        "use": "",
        "message": "<b>waiting</b>",
        "actions": ["pause", "cancel", "log"],
    }
    ask(view, "pause", job.id)
    until(lambda: row(view, job.id)["state"] == "paused")
    ask(view, "resume", job.id)
    until(lambda: row(view, job.id)["state"] == "running")
    ask(view, "log", job.id)
    assert view.log["job"] == job.id
    until(lambda: "waiting for gate" in job.log())
    ask(view, "log", job.id)
    assert view.log["text"].endswith("waiting for gate")
    ask(view, "cancel", job.id)
    until(lambda: row(view, job.id)["state"] == "cancelled")
    assert row(view, job.id)["actions"] == ["retry", "log"]
    gate.write_text("open")
    ask(view, "retry", job.id)
    until(lambda: row(view, job.id)["state"] == "finished")
    assert job.record().attempt == 3
    assert (view.error, row(view, job.id)["done"], row(view, job.id)["left"]) == ("", "100 %", "")
    until(lambda: (row(view, job.id)["use"], view.machine) == ("", ""))


def test_newest_first_and_all_counted(lab: Lab) -> None:
    jobs = [lab.submit("nothing", {}).id for _ in range(3)]
    lab.wait(jobs, WITHIN_S)
    view = JobsView(lab, newest=2)
    assert [row["job"] for row in view.rows] == [jobs[2], jobs[1]]
    assert view.status.startswith(f"{len(lab.jobs())} jobs: ")
    finished = sum(job.state == "finished" for job in lab.jobs())
    assert f" {finished} finished" in view.status
    assert view.status.endswith("; the newest 2 are shown.")
    view.close()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"kind": "cancel", "job": 1}, "job 1 is finished and cannot be asked to cancel"),
        ({"kind": "pause", "job": 7777}, "no job 7777 in "),
        ({"kind": "stop", "job": 1}, "the browser sent a message that the table does not know"),
        ({"kind": "cancel", "job": "1"}, "the browser sent a message that the table does not know"),
        ({"kind": "cancel", "job": 1, "more": 1}, "the browser sent a message that the table does not know"),
    ],
)
def test_bad_messages_are_one_line(lab: Lab, view: JobsView, message: dict[str, Any], said: str) -> None:
    lab.submit("nothing", {}).wait(WITHIN_S)
    assert lab.job(1).wait(WITHIN_S).state == "finished"
    before = lab.jobs()
    view.handle({"request": 5, **message})
    assert said in view.error
    assert "\n" not in view.error
    assert view.answered == 5
    assert lab.jobs() == before


@pytest.mark.parametrize("junk", [None, 3, "cancel", [], {}])
def test_junk_from_the_browser(view: JobsView, junk: Any) -> None:
    view.handle(junk)
    assert "a message that the table does not know" in view.error


def test_a_store_that_cannot_be_read_is_said_and_forgotten(
    lab: Lab, view: JobsView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> list[Any]:
        raise StoreError("the disk is away")

    monkeypatch.setattr(lab, "jobs", fail)
    until(lambda: view.error == "the disk is away")
    monkeypatch.undo()
    until(lambda: view.error == "")


def test_closing_ends_the_thread(lab: Lab) -> None:
    before = set(threading.enumerate())
    view = JobsView(lab)
    (mine,) = (thread for thread in threading.enumerate() if thread not in before and "jobs table" in thread.name)
    view.close()
    until(lambda: not mine.is_alive())
    lab.sweep()  # the lab is open still


# -- what is shown where no kernel is ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    """A shell as a kernel has one, gone afterwards; without its history file."""
    yield InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    InteractiveShell.clear_instance()


def test_display_gives_the_widget_and_the_table_it_hides(lab: Lab, view: JobsView, shell: Any, gate: Path) -> None:
    with capture_output() as captured:
        view._ipython_display_()
    live, static = (output.data for output in captured.outputs)
    assert "application/vnd.jupyter.widget-view+json" in live
    assert f'data-syno-static="{view.static_id}"' in static["text/html"]
    assert view.status in static["text/plain"]
    gate.write_text("open")
    job = lab.submit("gate", {"gate": str(gate)}, name="<i>shown</i>")
    job.wait(WITHIN_S)
    with capture_output() as captured:
        view._states = []  # the view's own thread may have been faster
        view.refresh()
    newest = captured.outputs[-1].data["text/html"]
    assert "&lt;i&gt;shown&lt;/i&gt;" in newest
    assert "<i>" not in newest


class _Cells(HTMLParser):
    """The texts of a table's cells, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def test_static_table_holds_what_the_rows_hold() -> None:
    names = ["job", "kind", "name", "state", "done", "left", "attempt", "wall_s", "use", "message"]
    rows = [
        dict(
            zip(
                names,
                [
                    3,
                    "train",
                    '"><script>x</script>',
                    "failed",
                    "5 %",
                    "about 2 min",
                    "1",
                    "2.5",
                    "1.0 cores, 2 MiB",
                    "<b>&amp;",
                ],
                strict=True,
            )
        )
    ]
    read = _Cells()
    read.feed(html_table(rows))
    assert read.cells[10:] == [str(value) for value in rows[0].values()]
    assert read.tags == {"table", "thead", "tbody", "tr", "th", "td"}
    assert text_table(rows).splitlines()[1].split() == " ".join(str(value) for value in rows[0].values()).split()
    assert html_table([]) == "<p>No jobs yet.</p>"
    assert text_table([]) == ""


# -- the script --------------------------------------------------------------------------------------------------------


def test_traits_are_what_the_script_reads() -> None:
    """Each synchronised trait is used by the script, and the script reads no other; each is documented."""
    script = "".join((WIDGETS / name).read_text() for name in ("shared.js", "jobs_view.js"))
    read = set(re.findall(r'model\.get\("(\w+)"\)', script))
    traits = {**View.class_own_traits(sync=True), **JobsView.class_own_traits(sync=True)}
    own = {name for name in traits if not name.startswith("_")}
    assert read == own
    source = "".join((WIDGETS / name).read_text() for name in ("view.py", "jobs_view.py"))
    for name in own:
        assert re.search(rf'    {name} = t\..*\n    """', source), f"{name} has no line of documentation"


def test_the_script_speaks_the_language_of_requests() -> None:
    script = (WIDGETS / "jobs_view.js").read_text()
    kinds = set(re.findall(r'"(\w+)"', re.search(r"kind: Literal\[(.*?)\]", (WIDGETS / "jobs_view.py").read_text())[1]))
    assert set(re.findall(r"(\w+):", re.search(r"VERBS = \{(.*?)\}", script)[1])) == kinds


@pytest.mark.parametrize("name", ["jobs_view.js", "jobs_view.css"])
def test_no_address_stands_in_what_is_shipped(name: str) -> None:
    text = (WIDGETS / name).read_text()
    assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|import\s*\(|url\(|fetch\(|eval\(|innerHTML", text)
