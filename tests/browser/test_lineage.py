"""An individual of αNAS is opened in the runs view, and its lineage read there, by mouse and by keyboard."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from known_runs import fill_lab
from playwright.sync_api import Page, expect
from syno_widgets import OperatorView

from syno_lab.alpha import NetworkOperator, Variant, find_blocks, mutate, trace
from syno_lab.alpha.edits import Deletion, Replacement
from syno_lab.models.registry import BACKBONES
from tests.browser.conftest import GROUNDS, Lab
from tests.browser.test_runs import LOOK
from tests.browser.test_stepper import open_notebook, run_cell, wait_for_kernel

pytestmark = pytest.mark.browser


def individual() -> NetworkOperator:
    """Of a CNN: a replaced subgraph, another one, and a block less."""
    net = BACKBONES["cnn"].build(device="meta", options={"width": 4})
    variant, rng = Variant(find_blocks(trace(net, (3, 32, 32)))), random.Random(2)
    while len(variant.edits) < 2:
        edit = mutate(variant.network, rng)
        if isinstance(edit, Replacement):
            variant = variant.edited(edit)
    return NetworkOperator(variant.edited(Deletion(1)))


def test_an_individuals_lineage_is_opened(page: Page, lab: Lab, tmp_path: Path) -> None:
    operator = individual()
    fill_lab(tmp_path, 3, texts=[operator.to_json()])
    lab.write_notebook("lineage.ipynb", LOOK.format(folder=str(tmp_path)))
    open_notebook(page, lab, "lineage.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    view = page.locator(".syno-runs")
    rows = view.locator(".syno-table tbody tr")
    view.get_by_label("Filter", exact=True).fill("system=αNAS")
    expect(rows).to_have_count(3)
    rows.first.get_by_role("button").click()
    opened = view.locator(".syno-opened .syno-operator")
    expect(opened.locator(".syno-graph svg")).to_be_visible()
    opened.get_by_role("tab", name="Lineage").click()
    steps = opened.get_by_role("list", name="Lineage").locator("> li")
    expect(steps).to_have_count(4)
    for step, said in zip(steps.all(), ["the seed", *map(str, operator.variant.edits)], strict=True):
        expect(step).to_contain_text(said)
    # The last edit is open; another one is opened by keyboard, and shows its block before and after.
    expect(steps.nth(3).locator("svg")).to_have_count(1)
    expect(steps.nth(3).locator("svg")).to_be_visible()
    expect(steps.nth(1).locator("svg").first).to_be_hidden()
    steps.nth(1).locator("summary").focus()
    page.keyboard.press("Enter")
    expect(steps.nth(1).locator("svg")).to_have_count(2)
    for picture in steps.nth(1).locator("svg").all():
        expect(picture).to_be_visible()
    expect(steps.nth(1).locator("h4").last).to_have_text(f"Block {operator.variant.edits[0].blocks[0]} after")
    table = opened.get_by_role("tabpanel").locator("table tbody tr")
    expect(table).to_have_count(len(operator.variant.network.blocks) + 2)
    expect(view.get_by_role("alert").first).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_that_stands_alone(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "individual.html"
    OperatorView(individual(), pane="lineage").to_html(file, panes=["lineage"])
    page = open_alone(file, scheme)
    view = page.locator(".syno-operator")
    expect(view.get_by_role("list", name="Lineage").locator("> li")).to_have_count(4)
    assert view.evaluate("e => getComputedStyle(e).backgroundColor") == GROUNDS[scheme]
    page.screenshot(path=tmp_path / f"lineage-{scheme}.png", full_page=True)
