"""The runs view without a browser: what it shows is what the store holds, and it lives on whatever becomes of that."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import syno_widgets
from figures import pdf_inches, pdf_texts
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from known_rungs import FIRST, SECOND, fill_rungs
from known_runs import curve, end_job, fill_lab
from labs import until
from pages import page_state
from syno_widgets import RunsView
from syno_widgets.jobs_view import JobsView
from traitlets.config import Config

from syno_lab.drawing.figure import WIDTHS
from syno_lab.errors import SpecError, SynoError
from syno_lab.jobs.context import job_folder
from syno_lab.jobs.ledger import Ledger
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import conv2d
from syno_lab.reports import front_of
from syno_lab.store import Store
from syno_lab.store.courses import CURVE_FILE, write_course
from syno_lab.store.pareto import pareto_front

WIDGETS = Path(syno_widgets.__file__).parent
SCRIPTS = ("runs_chart.js", "runs_front.js", "runs_table.js", "runs_search.js", "runs_view.js")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill_lab(tmp_path, 30)
    return tmp_path


@pytest.fixture
def view(folder: Path) -> Iterator[RunsView]:
    made = RunsView(folder)
    yield made
    made.close()


def ask(view: RunsView, **message: Any) -> None:
    """A message as the browser sends it."""
    number = view.answered + 1
    view.handle({"request": number, **message})
    assert view.answered == number


def sent(view: RunsView, monkeypatch: pytest.MonkeyPatch, **message: Any) -> list[tuple[dict[str, Any], Any]]:
    """What it sends to the browser for a message."""
    caught: list[tuple[dict[str, Any], Any]] = []
    monkeypatch.setattr(view, "send", lambda content, buffers=None: caught.append((content, buffers)))
    ask(view, **message)
    return caught


def column(view: RunsView, name: str) -> list[Any]:
    (found,) = (one["values"] for one in view.trials["columns"] if one["name"] == name)
    return found


def test_it_shows_what_the_store_holds(view: RunsView) -> None:
    assert view.x == "flops", "which all trials have"
    view.x = "latency_ms@cpu"
    assert view.trials["keys"] == ["search:known#baseline", *(f"search:known#{n}" for n in range(30))]
    points = [{"x": x, "y": y} for x, y in zip(*view.front["values"], strict=True)]
    assert set(view.front["front"]) == set(pareto_front(points, maximise=["y"], minimise=["x"]))
    measured = {
        key for key, ms in zip(view.trials["keys"], column(view, "latency_ms@cpu"), strict=True) if ms is not None
    }
    finished = {key for key, a in zip(view.trials["keys"], column(view, "state"), strict=True) if a == "finished"}
    assert set(view.front["keys"]) == measured & finished
    assert view.front["unplaced"] == 31 - len(view.front["keys"])
    assert view.headline == (
        f"30 trials: 27 finished, 3 diverged; {len(view.front['front'])} on the front. "
        "On cpu: sum over the replaced layers, not the whole network."
    )
    assert view.status == "2 jobs: 2 finished."
    assert [(one["kind"], len(one["points"])) for one in view.courses] == [("train", 4), ("tune", 2)]
    json.dumps([view.trials, view.front, view.courses, view.rows], allow_nan=False)


def test_axes_and_sources_are_traits(view: RunsView, folder: Path) -> None:
    view.x, view.z = "flops", "params"
    assert [axis["name"] for axis in view.front["axes"]] == ["flops", "accuracy", "params"]
    assert view.front["hypervolume"] == front_of(view._rows(), ("flops", "accuracy", "params")).hypervolume
    view.z = ""
    view.relative = view.published = True
    assert view.front["axes"][1]["text"] == "accuracy against the baseline [percentage points]"
    assert next(one["label"] for one in view.front["paper"]) == "Syno, ResNet-34"
    base = view.front["values"][1][view.front["baselines"][0]]
    assert base == 0.0
    view.relative = False
    assert view.front["paper"] == [], "the paper gives no absolute values"
    view.y = "flops"
    assert view.front == {"text": "a Pareto front needs two or three different axes, found flops, flops"}
    with pytest.raises(SynoError, match="no axis 'speed': expected one of accuracy"):
        view.x = "speed"
    fill_lab(folder, 3, seed=1, name="other")
    view.refresh()
    assert [one["key"] for one in view.sources] == ["search:known", "search:other"]
    view.source = "search:other"
    assert len(view.trials["keys"]) == 4
    view.source = "search:not there"
    assert view.headline == "No trials yet."


def test_it_follows_by_itself_what_another_writes(view: RunsView, folder: Path) -> None:
    with Store.open(folder) as store:
        log = store.search("known")
        number = log.add("new", log.trial(0).operator, [], 5, 5)
        log.record(number, {"state": "finished", "accuracy": 0.95})
        log.record_latency(number, "cpu", {"latency_ms": 0.01})
        until(lambda: f"search:known#{number}" in view.front.get("keys", []))
        assert [view.front["keys"][place] for place in view.front["front"]] == [f"search:known#{number}"]
        job = Ledger(store.database).submit("train", {}, resources={}, name="going")
        place = job_folder(folder, job)
        place.mkdir(parents=True)
        until(lambda: bool(view.rows) and view.rows[0]["name"] == "going")
        write_course(place / CURVE_FILE, curve(2))
        until(lambda: "going" in [one["name"] for one in view.courses])
        write_course(place / CURVE_FILE, curve(3))
        until(lambda: [len(one["points"]) for one in view.courses if one["name"] == "going"] == [3])


def test_a_store_that_is_not_there_is_said_until_it_is(tmp_path: Path) -> None:
    view = RunsView(tmp_path / "lab")
    try:
        assert re.search("the results store .* is not there", view.error)
        assert not (tmp_path / "lab").exists()
        (tmp_path / "lab").mkdir()
        fill_lab(tmp_path / "lab", 3)
        until(lambda: view.error == "" and len(view.trials.get("keys", [])) == 4)
        file = tmp_path / "lab" / "results.sqlite"
        file.rename(tmp_path / "away")
        until(lambda: "is not there" in view.error)
        assert len(view.trials["keys"]) == 4, "what was read stays"
        (tmp_path / "away").rename(file)
        until(lambda: view.error == "")
    finally:
        view.close()


def test_choosing_opens_the_operator(view: RunsView) -> None:
    view.chosen = "search:known#0"
    assert view.opened is not None
    assert (view.opened.name, view.error) == ("trial 0 of search:known", "")
    first = view.opened
    view.chosen = "search:known#1"
    assert view.opened is first
    assert view.opened.name == "trial 1 of search:known"
    view.chosen = "search:known#baseline"
    assert view.error == "baseline is the network as it is: there is no operator to show"
    view.chosen = "search:known#77"
    assert "no trial 'search:known#77' in " in view.error


def test_operators_of_several_systems_are_shown_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_lab(tmp_path, 6, texts=[nas_pte_1().to_json(), conv2d().to_json(), '{"format": "of nobody"}'])
    view = RunsView(tmp_path)
    try:
        assert column(view, "system") == ["", *["NAS-PTE", "pGraphs", ""] * 2]
        ((picture, _),) = sent(view, monkeypatch, kind="picture", key="search:known#0")
        assert (picture["svg"], picture["text"]) == (nas_pte_1().svg(), str(nas_pte_1()))
        view.chosen = "search:known#0"
        assert view.error == ""
        assert view.opened is not None
        assert (view.opened.operator, view.opened.pane) == (nas_pte_1(), "cost")
        view.chosen = "search:known#1"
        assert (view.opened.operator, [name for name, _ in view.opened.choices["panes"]][-1]) == (conv2d(), "near")
        view.chosen = "search:known#2"
        assert re.search("operator file: expected a format among .*found 'of nobody'", view.error)
        assert view.opened.operator == conv2d()
        page = view.to_html()
        state = page_state(page)
        known = {f"search:known#{number}" for number in (0, 1, 3, 4)}
        assert set(state["pictures"]) == known, "the page has no picture of an operator of nobody"
    finally:
        view.close()


def test_pictures_and_files_are_sent_when_asked_for(
    view: RunsView, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((picture, _),) = sent(view, monkeypatch, kind="picture", key="search:known#0")
    assert (picture["kind"], picture["key"]) == ("picture", "search:known#0")
    assert picture["svg"].startswith("<svg")
    assert picture["text"].startswith("Complete pGraph")
    assert sent(view, monkeypatch, kind="picture", key="search:known#baseline") == []
    view.selected = ["search:known#2", "search:known#4"]
    ((file, (content,)),) = sent(view, monkeypatch, kind="export", form="CSV")
    assert file == {"kind": "file", "name": "trials.csv"}
    assert pd.read_csv(io.BytesIO(content))["label"].tolist() == ["trial 2", "trial 4"]
    assert pd.read_parquet(io.BytesIO(view.export("Parquet")))["number"].tolist() == [2, 4]
    assert view.frame(selected=True)["label"].tolist() == ["trial 2", "trial 4"]
    assert len(view.frame()) == 31
    assert view.export("PNG").startswith(b"\x89PNG")
    assert b"hypervolume" in view.export("SVG")
    ((file, (content,)),) = sent(view, monkeypatch, kind="export", form="PDF")
    assert file["name"].endswith(".pdf")
    assert content == view.save(folder / "front.pdf").read_bytes()
    keys = {key for trace in view.figure().data for key in trace.customdata or ()}
    assert keys == set(view.front["keys"])
    assert pdf_inches(content)[0] == pytest.approx(WIDTHS["column"], abs=1e-3)
    assert "on the front" in pdf_texts(content)
    assert view.export("TeX") == view.save(folder / "front.tex").read_bytes()
    ask(view, kind="export", form="GIF")
    assert view.error == "export: expected one of CSV, Parquet, SVG, PNG, PDF, TeX, found 'GIF'"


def test_a_job_of_a_folder_is_steered(view: RunsView, folder: Path) -> None:
    with Store.open(folder) as store:
        ledger = Ledger(store.database)
        job = ledger.submit("train", {}, resources={}, name="mine")
        ask(view, kind="pause", job=job)
        assert (ledger.state(job), view.error) == ("paused", "")
        assert view.rows[0]["actions"] == ["resume", "cancel", "log"]
        ask(view, kind="cancel", job=job)
        assert ledger.state(job) == "cancelled"
        ask(view, kind="cancel", job=job)
        assert view.error == f"job {job} is cancelled and cannot be asked to cancel"
        ask(view, kind="log", job=job)
        assert view.log == {"job": job, "text": ""}
        ask(view, kind="log", job=77)
        assert "no job 77 in " in view.error


@pytest.mark.parametrize(
    "junk", [None, 3, "cancel", [], {}, {"kind": "stop", "request": 1}, {"kind": "log", "job": "1"}]
)
def test_junk_from_the_browser(view: RunsView, junk: Any) -> None:
    view.handle(junk)
    assert "a message that the view does not know" in view.error


@pytest.mark.parametrize(
    "name", ["\x1b[2J\u202e" + "x" * 100_000, "a\nb" * 1000, "<img src=x onerror=alert(1)> " * 500]
)
def test_names_of_fields_from_the_browser_are_said_shortly_and_printable(view: RunsView, name: str) -> None:
    view.handle({"kind": "log", "job": 1, "request": 1, name: 1})
    assert "a message that the view does not know" in view.error
    assert len(view.error) < 400
    assert view.error.isprintable()


def test_options_are_checked(folder: Path) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'colour'; known are pane, source, x"):
        RunsView(folder, colour="red")
    with pytest.raises(SpecError, match="RunsView: The 'pane' trait"):
        RunsView(folder, pane="x")


def test_closing_ends_the_thread(folder: Path) -> None:
    before = set(threading.enumerate())
    view = RunsView(folder)
    (mine,) = (one for one in threading.enumerate() if one not in before and "runs view" in one.name)
    view.close()
    until(lambda: not mine.is_alive())


def test_a_search_in_rungs_is_followed_to_its_finals(tmp_path: Path) -> None:
    (tmp_path / "under way").mkdir()
    fill_rungs(tmp_path / "under way", is_done=False)
    view = RunsView(tmp_path / "under way")
    try:
        # Trials are compared on the last rung that all have, and with the baseline there.
        assert view.front["axes"][1]["name"] == f"accuracy@{FIRST}"
        assert len(view.front["keys"]) == 6
        assert view.progress["headline"] == f"rungs: {SECOND}, 15.2 of 26 minutes."
        assert [table["title"] for table in view.progress["tables"]] == [
            "The plan: 26 minutes, 2 workers",
            "The funnel",
        ]
        assert view.progress["finalists"] == []
        view.y = f"accuracy@{SECOND}"
        assert view.front["keys"] == ["search:rungs#baseline"]
    finally:
        view.close()
    fill_rungs(tmp_path)
    view = RunsView(tmp_path)
    try:
        assert view.front["axes"][1]["name"] == f"accuracy@{FIRST}"
        places = [place for place, *_ in view.front["finals"]]
        assert [view.front["keys"][place] for place in places] == ["search:rungs#0", "search:rungs#1"]
        assert view.front["baseline"] == pytest.approx([0.49, 0.485, 0.495])
        view.y = "accuracy"
        assert view.front["axes"][1]["text"] == "accuracy of the finals, test images"
        assert view.front["finals"] == []
        assert [one["key"] for one in view.progress["finalists"]] == ["search:rungs#0", "search:rungs#1"]
        assert "Funnel of rungs: 1,204 drawn" in view._bundle()["text/html"]
        ask(view, kind="why", key="search:rungs#2")
        until(lambda: view.why.get("key") == "search:rungs#2")
        assert view.why["title"].startswith("Why trial 2 of rungs: ")
        assert "Rungs" in [table["title"] for table in view.why["tables"]]
        ask(view, kind="why", key="search:rungs#baseline")
        until(lambda: "is the network as it is: expected a trial with an operator" in view.error)
        state = page_state(view.to_html())
        assert list(state["whys"]) == ["search:rungs#0", "search:rungs#1"]
        assert state["progress"]["text"].startswith("Funnel of rungs")
    finally:
        view.close()


# -- where no kernel is ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    """A shell as a kernel has one, gone afterwards; without its history file."""
    yield InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    InteractiveShell.clear_instance()


def test_display_gives_the_widget_and_the_picture_it_hides(view: RunsView, shell: Any) -> None:
    with capture_output() as captured:
        view._ipython_display_()
    live, static = (output.data for output in captured.outputs)
    assert "application/vnd.jupyter.widget-view+json" in live
    assert f'data-syno-static="{view.static_id}"' in static["text/html"]
    assert static["image/svg+xml"].startswith("<svg")
    assert view.headline in static["text/plain"]
    assert static["text/html"].count("<tr>") == 1 + 2 + 1 + len(view.front["front"])


def test_the_page_holds_everything_and_no_text_becomes_markup(folder: Path, tmp_path: Path) -> None:
    hostile = '</script><img src=x onerror="1">'
    with Store.open(folder) as store:
        end_job(Ledger(store.database), "train", hostile, {"curve": curve(2)})
    view = RunsView(folder)
    try:
        text = view.to_html(tmp_path / "runs.html")
        assert (tmp_path / "runs.html").read_text() == text
        assert "<img src=x" not in text
        state = page_state(text)
        assert state["courses"][0]["name"] == hostile
        best = [k for p in state["front"]["front"] if (k := state["front"]["keys"][p])[-1] != "e"]
        assert list(state["pictures"])[: len(best)] == best, "the front comes first"
        frame = view.frame()
        assert len(state["pictures"]) == min(100, (frame["operator"] != "").sum())
        assert set(state["files"]) == {"CSV", "SVG"}
        with pytest.raises(SynoError, match="cannot write "):
            view.to_html(tmp_path / "no" / "x.html")
    finally:
        view.close()


# -- the script --------------------------------------------------------------------------------------------------------


def script() -> str:
    return "".join((WIDGETS / name).read_text() for name in SCRIPTS)


def test_traits_are_what_the_scripts_read() -> None:
    """Each synchronised trait is used by a script, and the scripts read no other; each is documented."""
    shared = "".join((WIDGETS / name).read_text() for name in ("shared.js", "jobs_view.js"))
    jobs = set(re.findall(r'model\.get\("(\w+)"\)', shared))
    read = set(re.findall(r'model\.get\("(\w+)"\)', script()))
    named = {name for names in re.findall(r"listen\(\[(.*?)\]", script()) for name in re.findall(r'"(\w+)"', names)}
    own = {
        name
        for kind in (RunsView, JobsView)
        for name in kind.class_traits(sync=True)
        if not name.startswith("_") and name not in ("layout", "tabbable", "tooltip", "comm", "keys")
    }
    assert read | named | jobs == own & set(RunsView.class_traits(sync=True))
    source = "".join(
        (WIDGETS / name).read_text()
        for name in ("view.py", "comparing.py", "runs_view.py")
        if (WIDGETS / name).is_file()
    )
    for name in own:
        assert re.search(rf'    {name} = t\..*\n    """', source), f"{name} has no line of documentation"


@pytest.mark.parametrize("name", [*SCRIPTS, "runs_view.css", "jobs_page.js"])
def test_no_address_stands_in_what_is_shipped(name: str) -> None:
    text = (WIDGETS / name).read_text()
    assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|import\s*\(|url\(|fetch\(|eval\(|innerHTML", text)
