"""The runs view as a page that stands alone: the table and the front by keyboard."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from known_runs import fill_lab
from playwright.sync_api import Browser, Locator, Page, expect
from syno_widgets import RunsView

from tests.browser.conftest import TIMEOUT_MS

pytestmark = pytest.mark.browser


def saved(page: Page, view: Locator, form: str) -> bytes:
    view.get_by_label("Format of the file").select_option(form)
    with page.expect_download() as download:
        view.get_by_role("button", name="Save", exact=True).click()
    return Path(download.value.path()).read_bytes()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_by_keyboard(browser: Browser, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "lab").mkdir()
    fill_lab(tmp_path / "lab", 60)
    view_here = RunsView(tmp_path / "lab")
    try:
        view_here.to_html(tmp_path / "runs.html")
        accuracies = view_here.frame().set_index("label")["accuracy"].dropna()
        keys, front = view_here.front["keys"], view_here.front["front"]
    finally:
        view_here.close()
    context = browser.new_context(offline=True, color_scheme=scheme, viewport={"width": 1300, "height": 1000})  # type: ignore[arg-type]
    context.set_default_timeout(TIMEOUT_MS)
    expect.set_options(timeout=TIMEOUT_MS)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.goto((tmp_path / "runs.html").as_uri())
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

    # From point to point, told in words; Space selects, Enter opens.
    plot = view.get_by_role("application")
    plot.focus()
    page.keyboard.press("Home")
    said = view.locator(".syno-said")
    expect(said).to_contain_text("latency on cpu [ms]")
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
    assert saved(page, view, "SVG").startswith(b"<?xml")
    assert saved(page, view, "CSV").startswith(b"source,number,label")

    tab = view.get_by_role("tab", name="Results")
    tab.focus()
    page.keyboard.press("ArrowRight")
    expect(view.get_by_label(re.compile(r"^Best latency of tunings\. known: trial 0"))).to_be_visible()
    colour = view.evaluate("e => getComputedStyle(e).backgroundColor")
    assert colour == {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 23, 26)"}[scheme]
    page.screenshot(path=tmp_path / f"runs-view-{scheme}.png")
    context.close()
    assert not wrong
