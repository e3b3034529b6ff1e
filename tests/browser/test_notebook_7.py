"""Notebook 7, dark: a few steps in the stepper, and the picture of what was built without a kernel."""

from __future__ import annotations

import io
import re

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from syno_lab.codegen import drawing
from syno_lab.operators import conv2d
from tests.browser.conftest import Lab, reopen_without_kernel, wait_for
from tests.browser.test_stepper import SETUP, at, run_cell, take

pytestmark = pytest.mark.browser

CARDS = "from syno_widgets.course import Cards\nCards('split')"
LOOK = "print('AT', stepper.session.position, stepper.state.steps[-1].primitive)"


def test_stepper_in_notebook_7(page: Page, lab: Lab) -> None:
    lab.write_notebook("seven.ipynb", SETUP, LOOK, "stepper.load('conv2d'); None", CARDS)
    with lab.themed("JupyterLab Dark"):
        page.goto(f"{lab.url}notebooks/seven.ipynb?token={lab.token}")
        expect(page.locator("body")).to_have_attribute("data-notebook", "notebooks")
        expect(page.locator("body")).to_have_attribute("data-jp-theme-name", "JupyterLab Dark")
        ask = page.locator(".jp-Dialog").get_by_role("button", name="Select Kernel")
        kernel = page.get_by_role("button", name="Python 3 (ipykernel)")
        expect(kernel).to_be_visible()
        wait_for(page, lambda: ask.is_visible() or lab.kernels())
        if ask.is_visible():  # Notebook 7 may ask although the notebook names one
            ask.click()
        # A cell that is run before the page has heard of its kernel is not run at all.
        wait_for(page, lambda: any(one["connections"] for one in lab.kernels()))
        run_cell(page, 0)
        stepper = page.locator(".syno-stepper")
        take(stepper, "REDUCE", "REDUCE C_in")
        take(stepper, "REDUCE", "REDUCE k_1")
        expect(stepper.get_by_role("status").first).to_contain_text("After 2 steps: shape distance")
        ground = stepper.evaluate("e => getComputedStyle(e).backgroundColor")
        assert max(map(int, re.findall(r"\d+", ground)[:3])) < 64, f"a dark page, and the stepper is {ground}"
        stepper.get_by_role("button", name="Undo", exact=True).press("Enter")
        at(stepper, 1)
        run_cell(page, 1)
        expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text("AT 1 REDUCE")
        run_cell(page, 2)
        expect(stepper.get_by_role("status").first).to_contain_text("this is conv2d")
        expect(page.locator("[data-syno-static]")).to_be_hidden()
        # A card is an image, and of the lab's theme, although this reader prefers light pages.
        run_cell(page, 3)
        assert page.evaluate("matchMedia('(prefers-color-scheme: light)').matches")
        card = page.locator(".syno-cards img")
        expect(card).to_be_visible()
        pixel = Image.open(io.BytesIO(card.screenshot())).convert("RGB").getpixel((2, 2))
        assert pixel == (23, 23, 26), "the ground of a dark card"
        reopen_without_kernel(page, lab, "seven.ipynb", "notebooks")
        picture = page.locator(f'.jp-OutputArea img[alt="{drawing.describe(conv2d())}"]')
        expect(picture).to_be_visible()
        assert picture.evaluate("image => image.complete && image.naturalWidth > 100")
    assert lab.call("api/kernels") == []
