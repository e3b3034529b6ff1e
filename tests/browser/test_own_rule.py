"""A rule of the user's own in the stepper: its step stands among the pruned ones, with the reason."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Lab
from tests.browser.test_stepper import at, open_notebook, opened, press, run_cell, wait_for_kernel

pytestmark = pytest.mark.browser

SETUP = """\
import syno_lab as sl
from syno_widgets import Stepper

def no_small_sums(state, step):
    \"\"\"Windows are not summed in this lesson.\"\"\"
    return step.primitive == "REDUCE" and step.parameter == state.spec.symbols.size("k_1")

stepper = Stepper(sl.operators.conv2d().spec, rules=[no_small_sums])
stepper
"""


def test_a_rule_of_ones_own_in_the_stepper(page: Page, lab: Lab) -> None:
    lab.write_notebook("own_rule.ipynb", SETUP)
    open_notebook(page, lab, "own_rule.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    stepper = page.locator(".syno-stepper")
    expect(stepper).to_be_visible()
    group = opened(stepper, "REDUCE")
    expect(group.locator('> .syno-items [data-text="REDUCE C_in"]')).to_be_visible()
    expect(group.locator('> .syno-items [data-text="REDUCE k_1"]')).to_have_count(0)
    group.locator(".syno-pruned > summary").click()
    refused = group.locator(".syno-pruned li", has=page.locator('[data-text="REDUCE k_1"]'))
    expect(refused.locator(".syno-why")).to_have_text("pruned by no-small-sums")
    refused.locator(".syno-reason > summary").click()
    reason = refused.locator(".syno-reason-body")
    expect(reason).to_have_text("no-small-sums (your own rule). Windows are not summed in this lesson.")
    # A way to an operator is looked for without it.
    press(stepper, "Complete at random")
    expect(stepper.get_by_role("status").first).to_contain_text(re.compile("^Complete after"))
    taken = stepper.locator(".syno-place").all_inner_texts()
    # Its square may be summed: the rule speaks of one size.
    assert any(text.startswith("REDUCE ") for text in taken), taken
    assert not [text for text in taken if text.startswith("REDUCE k_1 ")], taken
    # All the same it can be taken by hand.
    stepper.locator('.syno-place[data-place="0"]').click()
    at(stepper, 0)
    places = stepper.locator(".syno-place")
    before = places.count()
    group = opened(stepper, "REDUCE")
    group.locator(".syno-pruned > summary").click()
    refused.locator(".syno-reason > summary").click()
    group.locator('.syno-pruned [data-text="REDUCE k_1"]').click()
    expect(places).to_have_count(before + 1)
    expect(stepper.get_by_role("alert").first).to_be_hidden()
