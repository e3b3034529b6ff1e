"""The stepper synthesises chains of αNAS by clicks, and the target is changed by clicking its entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from syno_widgets import Stepper

from syno_lab.alpha import Draft, Graph, Properties, Rel, operation
from tests.browser.conftest import GROUNDS, Lab
from tests.browser.test_stepper import at, open_notebook, opened, press, run_cell, settled, take, wait_for_kernel

pytestmark = pytest.mark.browser

SETUP = """\
import syno_lab as sl
from syno_widgets import Stepper
shape = (2, 8, 8, 16)
original = sl.alpha.Graph.chain(shape, [
    sl.alpha.operation("conv", features=sl.alpha.Rel(2)), sl.alpha.operation("relu"),
    sl.alpha.operation("average_pool", window=2, stride=2)])
wanted = sl.alpha.Properties.of(original)
stepper = Stepper(sl.alpha.Draft(wanted, shape))
stepper
"""
COMPARE = "print('DONE', wanted.satisfied_by(stepper.operator.graph), wanted.distances(stepper.operator.graph))"
NAMES = ("shape", "depth", "mixing")


def distances(stepper: Locator) -> list[int]:
    """Those of the three properties as the bars say them."""
    texts = [stepper.locator(f'.syno-strip [data-strip="{name}"]').inner_text() for name in NAMES]
    return [int(re.findall(r"distance (\d+)", text)[0]) for text in texts]


def bar(stepper: Locator, name: str) -> str:
    found: str = stepper.locator(f'.syno-strip [data-strip="{name}"] .syno-used > span').evaluate("e => e.style.width")
    return found


def test_a_subgraph_is_synthesised_by_clicks(page: Page, lab: Lab) -> None:
    lab.write_notebook("alpha-clicks.ipynb", SETUP, COMPARE)
    open_notebook(page, lab, "alpha-clicks.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    stepper = page.locator(".syno-stepper")
    expect(stepper).to_be_visible()
    status = stepper.get_by_role("status").first
    expect(status).to_contain_text("After 0 operations: distance 12 (shape 3, depth 3, mixing 6).")
    settled(stepper)
    assert distances(stepper) == [3, 3, 6]
    assert bar(stepper, "sum") == "100%"
    expect(stepper.get_by_role("table", name=re.compile("^Wanted mixing"))).to_contain_text("m!")
    lacking = stepper.locator(".syno-aims td.syno-lacks")
    expect(lacking).to_have_count(2 + 6)

    take(stepper, "conv", "conv(features=2*C)")
    assert distances(stepper) == [2, 2, 0]
    # A step without progress, and back from it.
    group = opened(stepper, "conv")
    step = group.locator('> .syno-items [data-text="conv(features=C)"]')
    expect(step).to_contain_text("no progress")
    expect(step).to_contain_text("Δ shape 0, Δ depth 0, Δ mixing 0")
    take(stepper, "conv", "conv(features=C)")
    assert distances(stepper) == [2, 2, 0]
    press(stepper, "Undo to last progress")
    at(stepper, 1)
    # What is represented says by what.
    group = opened(stepper, "average_pool")
    group.locator(".syno-pruned > summary").click()
    expect(group.locator(".syno-pruned")).to_contain_text("same properties as average_pool")
    take(stepper, "relu", "relu")
    assert distances(stepper) == [2, 1, 0]
    press(stepper, "Suggest")
    expect(status).to_contain_text("Complete after 3 operations: all that is wanted is satisfied.")
    assert distances(stepper) == [0, 0, 0]
    assert bar(stepper, "sum") == "0%"
    expect(lacking).to_have_count(0)
    course = stepper.locator('svg[aria-label^="Distances over the steps"]')
    expect(course).to_have_attribute(
        "aria-label", re.compile("shape: 3, 2, 2, 0. depth: 3, 2, 1, 0. mixing: 6, 0, 0, 0.")
    )
    run_cell(page, 1)
    expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text("DONE True {'shape': 0.0, 'depth': 0.0, 'mixing': 0.0}")

    # The target is changed by its entries, here by the keyboard: H->W from x to m, which is still feasible.
    entry = stepper.locator('.syno-aim[data-aim="1-2-1"]')
    expect(entry).to_have_accessible_name("W, H: not paired wanted; change it")
    entry.focus()
    page.keyboard.press("Enter")
    choices = stepper.locator(".syno-aim-choices [data-choice]")
    expect(choices).to_have_count(3)
    expect(choices.nth(0)).to_be_focused()
    expect(choices.nth(1)).to_contain_text("stricter, feasible: distance of mixing 0 → 1")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(status).to_contain_text("After 3 operations: distance 1 (shape 0, depth 0, mixing 1).")
    expect(entry).to_have_accessible_name("W, H: many-to-one wanted, missing; change it")
    expect(entry).to_be_focused()
    # Nothing pairs another example: a stricter target says so, and a weaker one is satisfied again.
    stepper.locator('.syno-aim[data-aim="1-1-0"]').click()
    expect(choices.nth(0)).to_contain_text("stricter, infeasible: nothing leads to this mixing from here")
    entry.click()
    expect(choices.nth(0)).to_contain_text("weaker, feasible: distance of mixing 1 → 0")
    choices.nth(0).click()
    expect(status).to_contain_text("Complete after 3 operations")


@pytest.mark.parametrize("scheme", list(GROUNDS))
def test_the_page_that_stands_alone(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    shape = (2, 8, 8, 16)
    graph = Graph.chain(shape, [operation("conv", features=Rel(2)), operation("relu")])
    stepper = Stepper(Draft(Properties.of(graph), shape))
    stepper.suggest()
    stepper.to_html(tmp_path / "page.html")
    page = open_alone(tmp_path / "page.html", scheme)
    shown = page.locator(".syno-stepper")
    expect(shown.get_by_role("status").first).to_contain_text("After 1 operation")
    assert page.evaluate("getComputedStyle(document.querySelector('.syno-stepper')).backgroundColor") == GROUNDS[scheme]
    expect(shown.locator(".syno-strip li")).to_have_count(4)
    expect(shown.get_by_role("table", name="Wanted mixing")).to_be_visible()
    expect(shown.get_by_role("table", name="Wanted shape and depth; ! marks what is missing")).to_contain_text("2!")
    expect(shown.locator("button.syno-aim")).to_have_count(0)
