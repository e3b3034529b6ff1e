"""The explorer in JupyterLab and as a page: a search that grows, by keyboard, and into the stepper."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from known_trees import known_search, small_spec
from playwright.sync_api import Locator, Page, expect
from syno_widgets import Explorer

from syno_lab.canvas.kernel import Draft
from tests.browser.conftest import GROUNDS, Lab, reopen_without_kernel
from tests.browser.test_stepper import open_notebook, run_cell, wait_for_kernel
from tests.browser.text_boxes import unreadable

pytestmark = pytest.mark.browser

LOOK = """\
from syno_widgets import Explorer
view = Explorer({folder!r})
view
"""
SEEN = "print('SEEN', view.chosen, view.depth, view.filter, len(view.state.steps), view.opened.state == view.state)"


def box(view: Locator, key: str) -> Locator:
    return view.locator(f'.syno-box[data-key="{key}"]')


def test_a_search_grows_and_a_place_opens_in_the_stepper(page: Page, lab: Lab, tmp_path: Path) -> None:
    with known_search(tmp_path, 3) as search:
        lab.write_notebook("explorer.ipynb", LOOK.format(folder=str(tmp_path)), SEEN)
        open_notebook(page, lab, "explorer.ipynb")
        wait_for_kernel(page)
        run_cell(page, 0)
        view = page.locator(".syno-explorer")
        tree = search.search.tree
        headline = view.get_by_role("status").first
        expect(headline).to_contain_text(f"{tree.root.searches} searches, {len(tree)} places")
        expect(page.locator("[data-syno-static]")).to_be_hidden()
        search.go_on(9)  # the tree grows by itself, and the focus stays
        box(view, "0").focus()
        expect(headline).to_contain_text(f"{tree.root.searches} searches, {len(tree)} places")
        expect(box(view, "0")).to_be_focused()
        expect(box(view, "0")).to_have_attribute("aria-label", re.compile(f"^output: {tree.root.searches} searches"))

        # By keyboard to the most searched step of the most searched number of steps: it is chosen.
        place = tree.root
        for _ in range(2):
            step = max(place.children, key=lambda number: (tree.places[number].searches, -number))
            page.keyboard.press("ArrowDown")
            expect(box(view, str(step))).to_be_focused()
            place = tree.places[step]
        page.keyboard.press("Enter")
        expect(box(view, str(step))).to_have_attribute("aria-selected", "true")
        expect(view.locator(".syno-facts")).to_contain_text("the best below it")
        expect(view.locator(".syno-picture svg")).to_be_visible()
        expect(view.locator(".syno-table tbody tr")).to_have_count(len(tree.places[step].children))

        # Into the stepper, with the rest of the operator ahead.
        view.get_by_role("button", name="Open in the stepper").click()
        stepper = view.locator(".syno-stepper")
        expect(stepper.locator(".syno-graph svg")).to_be_visible()
        expect(stepper.get_by_role("button", name="Redo", exact=True)).to_be_enabled()
        view.get_by_label("Levels").select_option("6")
        view.get_by_label("Filter").fill("searches>=2")
        expect(headline).to_contain_text("fit the filter")
        for number in [*tree.root.children]:
            expect(box(view, str(number))).to_have_count(int(tree.places[number].searches >= 2))
        # The trials again, one after the other, by keyboard; then back to the search as it is.
        slider = view.get_by_label("Replay of the trials")
        slider.focus()
        page.keyboard.press("Home")
        told = view.locator(".syno-replay").get_by_role("status")
        expect(told).to_contain_text("After trial 1 of 12: ")
        page.keyboard.press("ArrowRight")
        expect(told).to_contain_text("After trial 2 of 12: ")
        view.get_by_label("Filter").fill("")
        expect(view.locator('.syno-box[data-best="true"]').nth(3)).to_contain_text("\u2605")
        expect(box(view, "0")).to_have_attribute("aria-label", re.compile("^output: 2 searches"))
        view.locator(".syno-replay").get_by_role("button", name="Play").click()
        expect(told).to_contain_text("After trial 12 of 12: ")
        view.get_by_role("button", name="As it is now").click()
        expect(told).to_have_text("")
        view.get_by_label("Filter").fill("searches>=2")
        expect(headline).to_contain_text("fit the filter")  # it is sent when no more is typed for a moment
        box(view, str(step)).click()
        run_cell(page, 1)
        expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text(
            re.compile(rf"SEEN {step} 6 searches>=2 [1-9]\d* True")
        )
        expect(view.get_by_role("alert").first).to_be_hidden()
    reopen_without_kernel(page, lab, "explorer.ipynb")
    expect(page.locator('.jp-OutputArea img[alt*=" searches, "]')).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_by_keyboard(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    explorer = Explorer(small_spec(), depth=2)
    assert explorer.wait(120)
    explorer.to_html(tmp_path / "space.html")
    boxes, table = explorer.boxes, explorer.table
    explorer.close()
    page = open_alone(tmp_path / "space.html", scheme)
    view = page.locator(".syno-explorer")
    expect(view.locator(".syno-box")).to_have_count(len(boxes))
    expect(view.locator(".syno-table tbody tr")).to_have_count(len(table))
    for _ in range(40):
        if view.locator(".syno-box:focus").count():
            break
        page.keyboard.press("Tab")
    expect(box(view, "start")).to_be_focused()
    row = sorted((one for one in boxes if one["level"] == 1), key=lambda one: one["left"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(box(view, row[1]["key"])).to_be_focused()
    expect(view.locator(".syno-said")).to_have_text(row[1]["words"])
    page.keyboard.press("Enter")
    expect(view.locator(".syno-facts")).to_have_text(row[1]["words"])
    page.keyboard.press("ArrowUp")
    expect(box(view, "start")).to_be_focused()
    expect(view.get_by_role("button", name="Open in the stepper")).to_be_disabled()
    assert view.evaluate("e => getComputedStyle(e).backgroundColor") == GROUNDS[scheme]
    page.screenshot(path=tmp_path / f"explorer-{scheme}.png")
    for width in (900, 1400, 2000):
        page.set_viewport_size({"width": width, "height": 1000})
        # A box that is too narrow for its step has the sign of its primitive.
        expect(view.locator(".syno-box").last).not_to_have_text("")
        assert unreadable(page, "main") == []
        page.screenshot(path=tmp_path / f"explorer-{scheme}-{width}.png")


@pytest.mark.parametrize(
    ("start", "measure"),
    [(small_spec(), "shape distance"), (Draft(), "primitives still needed")],
    ids=("pGraphs", "Canvas"),
)
def test_menu_and_table_call_the_distance_as_its_system_does(
    open_alone: Callable[..., Page], tmp_path: Path, start: object, measure: str
) -> None:
    explorer = Explorer(start, depth=1)
    assert explorer.wait(120)
    explorer.to_html(tmp_path / "space.html")
    explorer.close()
    view = open_alone(tmp_path / "space.html", "light").locator(".syno-explorer")
    expect(view.get_by_label("Colour").locator("option:checked")).to_have_text(measure)
    expect(view.get_by_role("columnheader", name=measure, exact=True)).to_have_count(1)
