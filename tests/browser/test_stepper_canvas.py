"""The stepper grows kernels of Canvas, by clicks and by ticks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from syno_widgets import Stepper

from syno_lab.canvas import known
from syno_lab.sessions.session import Session
from tests.browser.conftest import GROUNDS, Lab
from tests.browser.test_stepper import drawn, open_notebook, opened, press, run_cell, settled, take, wait_for_kernel

pytestmark = pytest.mark.browser

SETUP = """\
import syno_lab as sl
from syno_widgets import Stepper
places = [sl.canvas.Place(16, 16, 32, 32, layers=6), sl.canvas.Place(32, 32, 16, 16, layers=5)]
stepper = Stepper(sl.canvas.Sampler(places, max_flops=0.3, must_mix=False, normalise=False))
stepper
"""
COMPARE = """\
print("SAME", stepper.operator.kernel.key == sl.canvas.known.squeeze_excite().key, stepper.operator.spent)
"""
EXCITED = (
    ("fold_avg", "fold_avg H(t0)"),
    ("fold_avg", "fold_avg W(t1)"),
    ("fc", "fc x0(t2)"),
    ("relu", "relu(t3)"),
    ("fc", "fc C(t4)"),
    ("sigmoid", "sigmoid(t5)"),
)


def used(stepper: Locator, name: str) -> str:
    return stepper.locator(f'.syno-strip [data-strip="{name}"]').inner_text()


def tick(stepper: Locator, side: str, tensor: str) -> Locator:
    group = opened(stepper, "")
    box = group.get_by_label(re.compile(f"^{side} {tensor} ="))
    box.check()
    return group


def test_squeeze_and_excitation_by_clicks_and_a_broadcast_by_its_size(page: Page, lab: Lab) -> None:
    lab.write_notebook("canvas-clicks.ipynb", SETUP, COMPARE)
    open_notebook(page, lab, "canvas-clicks.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    stepper = page.locator(".syno-stepper")
    expect(stepper).to_be_visible()
    expect(stepper.get_by_label("Search the micro-DAG")).to_have_count(1)
    status = stepper.get_by_role("status").first
    expect(status).to_contain_text("After 0 primitives: at least 3 more needed, 12 left")
    before = used(stepper, "parameters")
    assert "0, 0 % of the convolution's" in before
    for primitive, text in EXCITED:
        take(stepper, primitive, text)
    expect(status).to_contain_text("After 6 primitives: at least 1 more needed, 6 left")
    assert used(stepper, "parameters") != before
    flops = used(stepper, "FLOPs")
    assert "of the budget of" in flops
    # Two tensors are ticked, and what can be done with them is offered.
    group = tick(stepper, "LHS", "t6")
    tick(stepper, "RHS", "t0")
    expect(group.locator(".syno-preview")).to_contain_text("[C] onto [C, H, W]")
    settled(stepper)
    group.locator('[data-choice="mul H..W(t6, t0)"]').click()
    expect(status).to_contain_text("Complete after 7 primitives: this is squeeze_excite.")
    settled(stepper)
    assert used(stepper, "FLOPs") != flops
    parts = drawn(stepper)
    assert {f"t{number}" for number in range(8)} <= set(parts)
    assert "output" in parts["t7"]
    run_cell(page, 1)
    expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text("SAME True")

    # A broadcast whose size is chosen: every tensor that changes is shown before and after.
    press(stepper, "Start over")
    take(stepper, "fc", "fc x0(t0)")
    tick(stepper, "LHS", "t1")
    group = tick(stepper, "RHS", "t0")
    choice = group.locator('[data-choice="mul C(t1, t0) with x0 := C/G"]')
    expect(choice).to_contain_text("t1: [x0, H, W] → [C/G, H, W]")
    settled(stepper)
    before = used(stepper, "FLOPs")
    choice.click()
    expect(status).to_contain_text("After 2 primitives")
    settled(stepper)
    assert used(stepper, "FLOPs") != before
    # The choices of a tensor of the picture: only what uses it.
    stepper.locator('.syno-graph [data-id="t2"]').click()
    expect(stepper.get_by_role("heading", name=re.compile("Next steps with tensor t2, leaf"))).to_be_visible()
    expect(stepper.locator('.syno-step[data-index]:not([data-operands~="t2"])')).to_have_count(0)
    press(stepper, "Suggest to the end")
    expect(status).to_contain_text("Complete after")


@pytest.mark.parametrize("scheme", list(GROUNDS))
def test_the_page_that_stands_alone(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    session: Any = Session(known.squeeze_excite())
    session.undo()
    stepper = Stepper.showing(session)
    stepper.to_html(tmp_path / "page.html")
    page = open_alone(tmp_path / "page.html", scheme)
    shown = page.locator(".syno-stepper")
    expect(shown.get_by_role("status").first).to_contain_text("After 6 primitives")
    assert page.evaluate("getComputedStyle(document.querySelector('.syno-stepper')).backgroundColor") == GROUNDS[scheme]
    leaf = shown.locator('.syno-graph [data-id="t6"] path').first
    assert leaf.get_attribute("fill") != shown.locator('.syno-graph [data-id="t5"] path').first.get_attribute("fill")
    expect(shown.locator(".syno-strip li")).to_have_count(3)
