"""The operator view of a Canvas kernel: the menu of the network's places, and what changes with the place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from syno_widgets import OperatorView

from syno_lab.canvas import known
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.places import Budget, Place
from tests.browser.conftest import GROUNDS, Lab
from tests.browser.test_operator_view import saved
from tests.browser.test_stepper import open_notebook, run_cell, wait_for_kernel

pytestmark = pytest.mark.browser

PLACES = (Place(16, 16, 32, 32, layers=6), Place(16, 32, 16, 16, stride=2), Place(32, 32, 16, 16, layers=5))
SHARE = 0.04
SETUP = f"""\
import syno_lab as sl
from syno_lab.canvas import Budget, Place
from syno_widgets import OperatorView
places = {PLACES!r}
kernel = sl.canvas.known.squeeze_excite().fit(places, Budget.of_shares(places, max_flops={SHARE}))
view = OperatorView(kernel)
view
"""
LOOK = "print('SEEN', view.sizes['C_in'], view.sizes['x0'], view.binding['s'])"


def fitted() -> Fitted:
    return known.squeeze_excite().fit(PLACES, Budget.of_shares(PLACES, max_flops=SHARE))


def sizes(number: int) -> dict[str, int]:
    place = PLACES[number]
    return {"C_in": place.c_in, "C_out": place.c_out, "H": place.h, "W": place.w, "s": place.stride}


def test_the_place_is_chosen_in_a_menu(page: Page, lab: Lab) -> None:
    kernel = fitted()
    assert len(set(kernel.solutions)) == 3, "so that a change can be seen"
    lab.write_notebook("canvas.ipynb", SETUP, LOOK)
    open_notebook(page, lab, "canvas.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    view = page.locator(".syno-operator")
    expect(view.locator(".syno-graph svg")).to_be_visible()
    menu = view.get_by_label("Layer of a network")
    expect(menu.locator("option")).to_have_count(3)
    expect(menu.locator("option").first).to_have_text("16 to 16 channels, 32x32, window 3x3")

    view.get_by_role("tab", name="PyTorch").click()
    source = view.locator("[data-panel=source] pre")
    expect(source).to_have_text(kernel.to_torch_source(sizes(0)))
    for number in (2, 1):
        menu.select_option(str(number))
        expect(source).to_have_text(kernel.to_torch_source(sizes(number)))
        expect(menu).to_have_value(str(number))
        expect(view.locator(".syno-sizes summary")).to_contain_text(f"x0={kernel.solutions[number][0]}")
        expect(view.locator(".syno-status")).to_contain_text(f"{kernel.params(sizes(number)):,} param")

    # The table has the solutions of all places, and marks the one that is shown.
    view.get_by_role("tab", name="Solutions").click()
    rows = view.get_by_role("tabpanel").locator("tbody tr")
    expect(rows).to_have_count(3)
    for row, (value,) in zip(rows.all(), kernel.solutions, strict=True):
        expect(row.locator("td").last).to_have_text(f"{value:,}")
    expect(view.locator(".syno-shown")).to_have_count(1)
    expect(rows.nth(1)).to_contain_text("(shown)")
    menu.select_option(label="32 to 32 channels, 16x16, window 3x3")
    expect(rows.nth(2)).to_contain_text("(shown)")
    assert saved(page, view, "Solutions", "CSV").decode().count("\n") == 4

    # A mean over the whole image is read whole.
    view.get_by_role("tab", name="Receptive field").click()
    expect(view.get_by_role("tabpanel")).to_contain_text("reads 8,192 of 8,192 elements of X")

    # Sizes that are no place's are said to be others; a place brings its own back.
    view.locator(".syno-sizes summary").click()
    view.get_by_label("H", exact=True).fill("20")
    view.get_by_role("button", name="Use these sizes").click()
    expect(menu.locator("option:checked")).to_have_text("other sizes")
    menu.select_option(label="16 to 32 channels, 16x16, window 3x3, stride 2")
    expect(menu.locator("option")).to_have_count(3)
    run_cell(page, 1)
    expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text(f"SEEN 16 {kernel.solutions[1][0]} 2")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_that_stands_alone(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "kernel.html"
    OperatorView(fitted(), pane="solutions").to_html(file, panes=["solutions", "source", "reach"])
    page = open_alone(file, scheme)
    view = page.locator(".syno-operator")
    expect(view.get_by_label("Layer of a network")).to_be_hidden()  # without a kernel nothing is worked out anew
    expect(view.get_by_role("tabpanel").locator("tbody tr")).to_have_count(3)
    assert view.evaluate("e => getComputedStyle(e).backgroundColor") == GROUNDS[scheme]
    page.screenshot(path=tmp_path / f"canvas-operator-view-{scheme}.png")
