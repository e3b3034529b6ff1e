"""The comparison as a page that stands alone, and opened from the runs view and the stepper in JupyterLab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from known_runs import fill_lab
from playwright.sync_api import Locator, Page, expect
from syno_widgets import Compare

from syno_lab.operators import conv2d, operator_1, separable
from tests.browser.conftest import GROUNDS, Lab
from tests.browser.test_accessibility import findings
from tests.browser.test_stepper import open_notebook, run_cell, wait_for_kernel
from tests.browser.text_boxes import unreadable

pytestmark = pytest.mark.browser

WIDTHS = (900, 1400, 2000)
OPEN = """\
from syno_widgets import RunsView, Stepper
stepper, runs = Stepper.of("conv2d", at_start=False), RunsView({folder!r})
display(stepper)
display(runs)
"""
#: Counts who follows the scheme of colours: each picture that is on the page, and none that is not.
WATCHED = """
window.watching = 0;
const {addEventListener: add, removeEventListener: remove} = MediaQueryList.prototype;
MediaQueryList.prototype.addEventListener = function (...args) { window.watching += 1; add.apply(this, args); };
MediaQueryList.prototype.removeEventListener = function (...args) { window.watching -= 1; remove.apply(this, args); };
"""
SEEN = "print('SEEN', runs.selected, stepper.compared.status)"


def lit(view: Locator, number: int) -> list[str]:
    """The nodes that are lit in one picture."""
    names: list[str] = (
        view.locator(".syno-graph").nth(number).locator(".syno-lit").evaluate_all("gs => gs.map(g => g.dataset.id)")
    )
    return sorted(names)


def walk(page: Page, view: Locator) -> None:
    """Rows light their parts in all pictures, by pointer and by keyboard; a part leads to its row."""
    rows = view.locator(".syno-steps tbody tr")
    rows.filter(has_text="UNFOLD i_H").hover()
    assert lit(view, 0) == ["c7", "s4"]
    assert lit(view, 1) == ["c7", "s5"]  # behind one CONTRACTION more
    view.locator(".syno-title").hover()
    assert lit(view, 0) == []
    button = rows.filter(has_text="REDUCE k_1").first.get_by_role("button")
    button.focus()
    page.keyboard.press("ArrowDown")  # to the second of them
    assert lit(view, 0) == lit(view, 1) == ["c6", "s2"]
    page.keyboard.press("Enter")
    expect(view.locator('.syno-steps [aria-pressed="true"]')).to_have_text("= same")
    page.keyboard.press("Escape")
    expect(view.locator('.syno-steps [aria-pressed="true"]')).to_have_count(0)
    view.locator(".syno-graph").first.locator('[data-id="w0"]').click()
    expect(view.locator(".syno-steps .syno-chosen")).to_contain_text("differs")
    expect(view.locator('.syno-graph [aria-label$="; differs"]').first).to_be_attached()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_that_stands_alone(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "compare.html"
    view = Compare(conv2d(), separable(), operator_1())
    view.to_html(file)
    view.close()
    assert file.stat().st_size < 2_000_000
    page = open_alone(file, scheme)
    shown = page.locator(".syno-compare")
    assert shown.evaluate("e => getComputedStyle(e).backgroundColor") == GROUNDS[scheme]
    expect(shown.locator(".syno-graph.syno-dark")).to_have_count(3 if scheme == "dark" else 0)
    walk(page, shown)
    expect(shown.locator(".syno-facts tbody")).to_have_count(2)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 1000})
        # The letters in the pictures are the drawing's.
        assert unreadable(page, "main", skip=".syno-graph svg") == []
        page.screenshot(path=tmp_path / f"compare-{scheme}-{width}.png", full_page=True)
    assert findings(page, "main") == []


def test_from_the_runs_view_and_the_stepper(page: Page, lab: Lab, tmp_path: Path) -> None:
    page.add_init_script(WATCHED)
    fill_lab(tmp_path, 12)
    lab.write_notebook("compared.ipynb", OPEN.format(folder=str(tmp_path)), SEEN)
    open_notebook(page, lab, "compared.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    runs, stepper = page.locator(".syno-runs"), page.locator(".syno-stepper")

    # By keyboard: two points of the front, then the button.
    expect(runs.locator(".syno-front .syno-best").first).to_be_attached()
    button = runs.get_by_role("button", name="Compare")
    expect(button).to_be_hidden()
    runs.locator(".syno-plot").focus()
    for key in ("Home", "Space", "ArrowRight"):
        page.keyboard.press(key)
    expect(button).to_be_disabled()
    page.keyboard.press("Space")
    button.click()
    view = runs.locator(".syno-compare")
    expect(view.locator(".syno-graph svg")).to_have_count(2)
    expect(view.locator(".syno-facts tbody").last).to_contain_text("accuracy")

    # The sizes of a layer that both fit.
    view.get_by_label("Layer of a network").select_option(label="ResNet-34 layer3")
    expect(view.locator(".syno-sizes summary")).to_contain_text("H=14")
    expect(view.locator(".syno-facts tbody").first).to_contain_text("1 x 256 x 14 x 14")

    # From the history of the stepper; a place that is not there is refused in place.
    number = stepper.get_by_label("The other place")
    number.fill("4")
    number.press("Enter")
    view = stepper.locator(".syno-compare")
    expect(view.locator(".syno-status")).to_have_text("4 of 6 steps are the same in all.")
    expect(view.locator("figcaption").last).to_contain_text("After 4 steps")

    # Pictures that give way to others watch the page no more.
    watching = page.evaluate("watching")
    assert watching >= 5  # two of the runs view, the stepper's own, and two
    for place in ("3", "4"):
        number.fill(place)
        number.press("Enter")
        expect(view.locator("figcaption").last).to_contain_text(f"After {place} steps")
    assert page.evaluate("watching") == watching
    run_cell(page, 1)
    expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text("4 of 6 steps are the same in all.")
    page.screenshot(path=tmp_path / "compared.png")
