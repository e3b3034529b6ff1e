"""The runs view in JupyterLab and as a page: a search watched and cancelled, lasso, operator, table by keyboard."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from known_rungs import fill_rungs
from known_runs import fill_lab
from playwright.sync_api import Locator, Page, expect
from syno_widgets import RunsView

from syno_lab import jobs
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import conv2d
from syno_lab.reports import LabReader
from syno_lab.systems import read_operator
from tests.browser.conftest import GROUNDS, Lab, reopen_without_kernel, wait_for
from tests.browser.test_stepper import open_notebook, run_cell, wait_for_kernel

pytestmark = pytest.mark.browser

WATCH = """\
from syno_lab.jobs import Lab
from syno_widgets import RunsView
lab = Lab.open({folder!r}, slots=1)
training = dict(backbone="resnet20", data="digits", options=dict(width=4, blocks=1), epochs=1, train_images=200)
job = lab.submit("search", dict(training=training, name="live", method="random", trials=500, seeds=[],
                                limits=dict(max_primitives=4), coefficients=["s=2: 1"]), name="live")
view = RunsView(lab, pane="jobs")
view
"""
LOOK = """\
from syno_widgets import RunsView
view = RunsView({folder!r})
view
"""
SEEN = "print('SEEN', len(view.selected), view.chosen, view.sort, view.filter)"
DRIVE = "view.x, view.relative, view.published, view.z = 'flops', True, True, ''"


def test_a_search_is_watched_and_cancelled(page: Page, lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    lab.write_notebook("watch.ipynb", WATCH.format(folder=str(folder)))
    try:
        open_notebook(page, lab, "watch.ipynb")
        wait_for_kernel(page)
        run_cell(page, 0)
        view = page.locator(".syno-runs")
        expect(view.locator('tr[data-job="1"]')).to_have_attribute("data-state", "running", timeout=120_000)
        # Trials come in by themselves, and so does the curve of each.
        headline = view.get_by_role("status").first
        expect(headline).to_contain_text(re.compile(r"\d+ trials?: .*[1-9]\d* finished"), timeout=180_000)
        expect(view.get_by_label(re.compile(r"^Accuracy of trainings\. .*trial"))).to_be_visible()
        view.get_by_role("button", name="Cancel job 1", exact=True).click()
        expect(view.locator('tr[data-job="1"]')).to_have_attribute("data-state", "cancelled", timeout=120_000)
        view.get_by_role("tab", name="Jobs and curves").press("ArrowLeft")
        expect(view.get_by_role("tabpanel", name="Results")).to_be_visible()
        expect(view.locator(".syno-front [data-key]").first).to_be_attached()
        expect(view.get_by_role("alert").first).to_be_hidden()
    finally:
        lab.stop_kernels()
        with jobs.Lab.open(folder, start=False) as ended:
            ended.shutdown()


def centres(view: Locator) -> dict[str, tuple[float, float]]:
    """Where each point is on the page, by its key."""
    found: list[tuple[str, float, float]] = view.locator(".syno-front [data-key]").evaluate_all(
        "cs => cs.map(c => { const b = c.getBoundingClientRect();"
        " return [c.dataset.key, b.x + b.width / 2, b.y + b.height / 2]; })"
    )
    return {key: (x, y) for key, x, y in found}


def drag(page: Page, *places: tuple[float, float]) -> None:
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=3)
    page.mouse.up()


def around(points: dict[str, tuple[float, float]], key: str, room: float) -> list[tuple[float, float]]:
    x, y = points[key]
    return [
        (x - room, y - room),
        (x + room, y - room),
        (x + room, y + room),
        (x - room, y + room),
        (x - room, y - room),
    ]


def saved(page: Page, view: Locator, form: str) -> bytes:
    view.get_by_label("Format of the file").select_option(form)
    with page.expect_download() as download:
        view.get_by_role("button", name="Save", exact=True).click()
    return Path(download.value.path()).read_bytes()


def test_lasso_and_click_lead_to_the_operator(page: Page, lab: Lab, tmp_path: Path) -> None:
    fill_lab(tmp_path, 60)
    lab.write_notebook("runs.ipynb", LOOK.format(folder=str(tmp_path)), SEEN, DRIVE)
    open_notebook(page, lab, "runs.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    view = page.locator(".syno-runs")
    expect(view.locator(".syno-front .syno-best").first).to_be_attached()
    expect(page.locator("[data-syno-static]")).to_be_hidden()
    view.locator(".syno-front").scroll_into_view_if_needed()

    # A lasso around the first point of the front: the table shows what is inside, and Python knows it.
    points = centres(view)
    best = view.locator(".syno-front .syno-best").first.get_attribute("data-key") or ""
    line = around(points, best, 14)
    inside = {k for k, (x, y) in points.items() if line[0][0] < x < line[1][0] and line[0][1] < y < line[2][1]}
    drag(page, *line)
    rows = view.locator(".syno-table tbody tr")
    expect(rows).to_have_count(len(inside))
    assert {row.get_attribute("data-key") for row in rows.all()} == inside
    exported = pd.read_csv(io.BytesIO(saved(page, view, "CSV")))
    assert set(exported["source"] + "#" + exported["number"].astype(str)) == inside
    assert saved(page, view, "PDF").startswith(b"%PDF")
    view.get_by_role("button", name="Clear selection").click()
    expect(view.locator(".syno-count")).to_have_text("61 of 61 shown, page 1 of 2")
    with LabReader(tmp_path) as reader:
        written = [row.operator for row in reader.read().rows]
    assert pd.read_parquet(io.BytesIO(saved(page, view, "Parquet")))["operator"].tolist() == written

    # Under the pointer the pGraph, at a click the operator view.
    view.locator(".syno-front").scroll_into_view_if_needed()
    there = centres(view)[best]  # the buttons may have scrolled the page
    page.mouse.move(*there)
    expect(view.locator(".syno-card svg")).to_be_visible()
    page.mouse.click(*there)
    operator = view.locator(".syno-opened .syno-operator")
    expect(operator.locator(".syno-graph svg")).to_be_visible()
    number = best.partition("#")[2]
    expect(operator.locator(".syno-title")).to_have_text(f"trial {number} of search:known")
    run_cell(page, 1)
    expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text(f"SEEN 0 {best} number")

    # From Python: against the baseline, with what the paper states marked as the paper's.
    run_cell(page, 2)
    expect(view.locator(".syno-paper rect")).to_have_count(3)
    expect(view.locator(".syno-paper title").first).to_have_text(re.compile("^The paper: Syno, ResNet-34"))
    expect(view.get_by_label("x axis")).to_have_value("flops")

    # Saved and opened again without a kernel, the picture and the tables are there.
    reopen_without_kernel(page, lab, "runs.ipynb")
    expect(page.locator('.jp-OutputArea img[alt^="All trials: "]')).to_be_visible()
    expect(page.locator(".jp-OutputArea table").last).to_contain_text("trial ")


def test_a_trial_of_another_system_is_shown_opened_and_saved(page: Page, lab: Lab, tmp_path: Path) -> None:
    operator = nas_pte_1()
    fill_lab(tmp_path, 6, texts=[conv2d().to_json(), operator.to_json()])
    lab.write_notebook("systems.ipynb", LOOK.format(folder=str(tmp_path)))
    open_notebook(page, lab, "systems.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    view = page.locator(".syno-runs")
    rows = view.locator(".syno-table tbody tr")
    expect(rows).to_have_count(7)

    # Only its system's trials; the baseline is of none.
    view.get_by_label("Filter", exact=True).fill("system=NAS-PTE")
    expect(rows).to_have_count(3)
    view.get_by_label("y axis").select_option("params")
    view.get_by_label("x axis").select_option("flops")

    # From point to point by keyboard: the first of them that is one, its picture, and the operator view.
    keys = {row.get_attribute("data-key") for row in rows.all()}

    def order() -> list[str]:
        return view.locator(".syno-front [data-key]").evaluate_all(
            "cs => cs.map(c => [c.transform.baseVal[0].matrix.e, c.dataset.key])"
            ".sort((a, b) => a[0] - b[0]).map(c => c[1])"
        )

    wait_for(page, lambda: keys & set(order()))  # the axes come from Python, and the points with them
    plot = view.get_by_role("application")
    plot.focus()
    page.keyboard.press("Home")
    for _ in range(next(place for place, key in enumerate(order()) if key in keys)):
        page.keyboard.press("ArrowRight")
    expect(view.locator(".syno-card svg")).to_have_attribute("aria-label", str(operator))
    page.keyboard.press("Enter")
    opened = view.locator(".syno-opened .syno-operator")
    expect(opened.locator(".syno-graph svg")).to_be_visible()
    expect(opened.locator(".syno-status").first).to_contain_text(str(operator))
    assert opened.get_by_role("tab").all_inner_texts() == ["Cost", "PyTorch", "TIR", "Receptive field"]
    expect(opened.get_by_role("tabpanel")).to_contain_text("3x3 convolution of channels 0 to 63 in 2 groups")
    expect(opened.get_by_label("Search the", exact=False)).to_be_hidden()

    # Its file is read again.
    opened.get_by_label("Format of the picture").select_option(label="operator file (JSON)")
    with page.expect_download() as download:
        opened.get_by_role("button", name="Save the picture").click()
    assert read_operator(Path(download.value.path()).read_bytes()) == operator

    # A pGraph in the same view has all its panes again.
    view.get_by_label("Filter", exact=True).fill("system=pGraphs")
    rows.first.get_by_role("button").click()
    expect(opened.get_by_role("tab", name="Similar operators")).to_be_visible()
    expect(opened.get_by_label("Search the pGraph")).to_be_visible()
    expect(view.get_by_role("alert").first).to_be_hidden()


def test_a_search_in_rungs_by_keyboard(page: Page, lab: Lab, tmp_path: Path) -> None:
    """Plan and funnel are there; a "why" page opens, and the focus returns to where it was asked for."""
    fill_rungs(tmp_path)
    lab.write_notebook("rungs.ipynb", LOOK.format(folder=str(tmp_path)))
    open_notebook(page, lab, "rungs.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    view = page.locator(".syno-runs")
    # A cloud of all trials on the rung that all have, the known operator hollow; over it the finals, with bars, and the
    # baseline's line and band.
    expect(view.locator(".syno-front [data-key]")).to_have_count(6)
    expect(view.locator(".syno-front [data-key].syno-known")).to_have_attribute("data-key", "search:rungs#1")
    expect(view.locator(".syno-front .syno-final")).to_have_count(2)
    expect(view.locator(".syno-interval.syno-strong").first).to_have_attribute("d", re.compile(r"^M.*V.*M"))
    expect(view.locator(".syno-band rect")).to_have_count(1)
    expect(view.locator(".syno-front .syno-axes")).to_contain_text("accuracy (small marks: 40 steps; large: finals)")
    view.get_by_role("application").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(view.locator(".syno-said")).to_contain_text(re.compile(r"^trial 1 .*in the finals 0.453 \(0.435 to 0.471\)"))

    view.get_by_role("tab", name="Results").press("ArrowLeft")
    panel = view.get_by_role("tabpanel", name="Plan and funnel")
    expect(panel.get_by_role("img", name=re.compile("^Funnel of rungs: 1,204 drawn, 640 wished, "))).to_be_visible()
    expect(panel.get_by_role("table", name="The plan: 26 minutes, 2 workers")).to_contain_text("156 steps")
    expect(panel.get_by_role("table", name="The funnel")).to_contain_text("drawn: reached the input")
    ask = panel.get_by_role("button", name="Why trial 1?")
    ask.focus()
    page.keyboard.press("Enter")
    why = panel.get_by_role("region", name="Why this one")
    expect(why.get_by_role("heading")).to_have_text(re.compile("^Why trial 1 of rungs: .*, which is separable$"))
    expect(why.get_by_role("heading")).to_be_focused()
    expect(why.get_by_role("table", name="Rungs")).to_contain_text("finals")
    expect(why.get_by_role("img", name=re.compile("^The kernel beside a convolution's"))).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(why).to_be_hidden()
    expect(ask).to_be_focused()

    # The curves of the network and of the finals are two figures; another trial is asked for from the table.
    view.get_by_role("tab", name="Plan and funnel").press("ArrowLeft")
    expect(view.get_by_label(re.compile("^Accuracy of trainings on the rung network, held-out images"))).to_be_visible()
    expect(view.get_by_label(re.compile("^Accuracy of trainings in the finals, test images"))).to_be_visible()
    view.get_by_role("tab", name="Jobs and curves").press("ArrowLeft")
    view.get_by_role("button", name="Open trial 2").press("Enter")
    view.get_by_role("button", name="Why this one?").press("Enter")
    expect(why.get_by_role("heading")).to_have_text(re.compile("^Why trial 2 of rungs"))
    expect(view.get_by_role("alert").first).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_by_keyboard(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    (tmp_path / "lab").mkdir()
    fill_lab(tmp_path / "lab", 60)
    view_here = RunsView(tmp_path / "lab")
    try:
        view_here.to_html(tmp_path / "runs.html")
        accuracies = view_here.frame().set_index("label")["accuracy"].dropna()
        keys, front = view_here.front["keys"], view_here.front["front"]
    finally:
        view_here.close()
    page = open_alone(tmp_path / "runs.html", scheme)
    view = page.locator(".syno-runs")
    first = view.locator(".syno-table tbody tr").first

    # Sorted by the head of a column, twice for the other way round.
    head = view.locator('th[data-name="accuracy"]')
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(first.get_by_role("button")).to_have_text(accuracies.idxmin())
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(first.get_by_role("button")).to_have_text(accuracies.idxmax())

    # Filtered by words and by comparisons.
    view.get_by_label("Filter", exact=True).focus()
    page.keyboard.type("unfold accuracy>0.55")
    kept = int((accuracies > 0.55).sum())
    count = view.locator(".syno-count")
    expect(count).to_have_text(re.compile(r"^\d+ of 61 shown$"))
    assert 0 < int(count.inner_text().split()[0]) <= kept
    for row in view.locator(".syno-table tbody tr").all():
        assert "UNFOLD" in row.inner_text()
        assert accuracies[row.get_by_role("button").inner_text()] > 0.55
    view.get_by_label("Filter", exact=True).fill("state=diverged")
    expect(count).to_have_text("6 of 61 shown")
    view.get_by_label("Filter", exact=True).fill("")

    # What colours mean; trials are counted in whole numbers.
    legend = view.get_by_label("Legend").get_by_role("listitem")
    expect(legend.filter(has_text="on the front")).to_be_visible()
    expect(legend.filter(has_text="another trial")).to_be_visible()
    view.get_by_text("Hypervolume over the trials").click()
    volume = view.get_by_role("figure").filter(has_text="Hypervolume")
    ticks = volume.locator('.syno-axes text[text-anchor="middle"]:not([transform])').all_text_contents()
    assert ticks[-1] == "trials"
    assert all(text.isdecimal() for text in ticks[:-1])

    # From point to point, told in words; Space selects, Enter opens.
    plot = view.get_by_role("application")
    plot.focus()
    page.keyboard.press("Home")
    said = view.locator(".syno-said")
    expect(said).to_contain_text("FLOPs")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(count).to_have_text("2 selected, 2 of 61 shown")
    page.keyboard.press("Escape")
    expect(count).to_contain_text("61 of 61 shown")
    order = sorted(range(len(keys)), key=lambda place: view_here.front["values"][0][place])
    page.keyboard.press("Home")
    for _ in range(order.index(front[-1])):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(view.locator(".syno-opened > svg")).to_be_visible()
    picture = view.locator(".syno-opened").inner_html()
    page.reload()  # the address ends in the trial, and leads there again
    expect(view.locator(".syno-opened > svg")).to_be_visible()
    assert view.locator(".syno-opened").inner_html() == picture
    assert saved(page, view, "SVG").startswith(b"<?xml")
    assert saved(page, view, "CSV").startswith(b"source,number,label")

    tab = view.get_by_role("tab", name="Results")
    tab.focus()
    page.keyboard.press("ArrowRight")
    expect(view.get_by_label(re.compile(r"^Best latency of tunings\. known: trial 0"))).to_be_visible()
    assert view.evaluate("e => getComputedStyle(e).backgroundColor") == GROUNDS[scheme]
    page.screenshot(path=tmp_path / f"runs-view-{scheme}.png")
