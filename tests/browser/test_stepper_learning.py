"""The stepper as a teacher: the canonical way, a quiz, comments, links, and the picture that stays in sight."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from syno_lab.operators import conv2d
from syno_lab.sessions.session import session_of
from tests.browser.conftest import Lab
from tests.browser.test_stepper import at, go, load, open_notebook, open_stepper, opened, press, run_cell, settled, take
from tests.browser.test_stepper import wait_for_kernel as idle

pytestmark = pytest.mark.browser

#: The text as it is seen, where that is not what is read and copied.
SHOWN = """element => {
  const copy = element.cloneNode(true);
  for (const sign of copy.querySelectorAll(".syno-hidden-sign"))
    sign.parentElement.replaceWith(sign.parentElement.dataset.shown ?? "");
  return copy.textContent;
}"""


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_taught_step_by_step(page: Page, lab: Lab, tmp_path: Path, theme: str) -> None:
    with lab.themed(theme):
        stepper = open_stepper(page, lab, "learning.ipynb")
    # Ticks do not stay when a step is taken.
    take(stepper, "REDUCE", "REDUCE C_in")
    group = opened(stepper, "SHARE")
    group.get_by_label("share r_C_in of size C_in", exact=True).check()
    expect(group.locator(".syno-preview")).not_to_have_text("Nothing is ticked.")
    take(stepper, "REDUCE", "REDUCE k_1")
    expect(opened(stepper, "SHARE").get_by_label("share r_C_in of size C_in", exact=True)).not_to_be_checked()

    # A pruned step says its canonical way with the names that stand here, and takes it.
    take(stepper, "SPLIT", "SPLIT i_C_out, r_k_1")
    group = opened(stepper, "SPLIT")
    group.locator(".syno-pruned > summary").click()
    reason = group.locator("li", has=page.locator('[data-text="SPLIT i_H, k_1*i_C_out + r_k_1"]')).locator(
        ".syno-reason"
    )
    reason.locator("summary").click()
    expect(reason).to_contain_text("Here: [C_out*k_1*i_H + k_1*i_C_out + r_k_1] → [k_1*(C_out*i_H + i_C_out) + r_k_1]")
    expect(reason.locator(".syno-instead code")).to_have_text(
        "undo 1 step; SPLIT i_H, i_C_out; SPLIT C_out*i_H + i_C_out, r_k_1"
    )
    stepper.screenshot(path=tmp_path / "why.png")
    reason.get_by_role("button", name="Take that instead").click()
    at(stepper, 5)
    expect(stepper.locator('.syno-place[data-place="4"]')).to_contain_text("branch: SPLIT i_H, i_C_out")
    expect(stepper.locator('.syno-place[data-place="3"]')).to_contain_text("SPLIT i_C_out, r_k_1")

    # The picture stays in sight while all lists are open.
    for summary in stepper.locator(".syno-group > summary").all():
        summary.click()
    stepper.locator(".syno-right").evaluate("list => { list.scrollTop = list.scrollHeight; }")
    expect(stepper.locator(".syno-graph")).to_be_in_viewport(ratio=0.5)

    # The best steps of all primitives in one list, by keyboard; it stays open from step to step.
    go(stepper, 2)
    settled(stepper)
    ranked = stepper.locator(".syno-nearest")
    ranked.locator("summary").focus()
    expect(ranked.get_by_role("listitem")).to_have_count(8)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(ranked).to_have_attribute("open", "")
    settled(stepper)
    expect(ranked.locator("summary")).to_be_focused()
    # A step behind which there is no operator is called as the explorer calls it.
    go(stepper, 0)
    expect(opened(stepper, "EXPAND").locator(".syno-distance").first).to_have_text("dead end: out of reach")
    go(stepper, 2)

    # Lists and headings set names as the picture does: indices lowered and small; what is read and copied stays.
    text = opened(stepper, "UNFOLD").locator("> .syno-items .syno-text").first
    expect(text).to_contain_text(re.compile(r"^UNFOLD i_"))
    seen = text.evaluate(
        """text => {
          const range = document.createRange();
          const box = (one) => { range.selectNodeContents(one); return range.getBoundingClientRect(); };
          const low = text.querySelector(".syno-low");
          return {drop: box(low.lastChild).bottom - box(low.parentElement.firstChild).bottom,
                  hidden: box(low.querySelector(".syno-hidden-sign").firstChild).width,
                  ratio: box(low.lastChild).height / box(low.parentElement.firstChild).height};
        }"""
    )
    assert seen["drop"] > 1
    assert seen["hidden"] == 0
    assert 0.6 < seen["ratio"] < 0.85

    # A comment goes into the history and into the word.
    go(stepper, 1)
    stepper.get_by_label("Comment on this place").fill("Channels <i>first</i>.")
    stepper.get_by_role("button", name="Keep the comment").click()
    expect(stepper.locator("li:has([aria-current]) .syno-comment")).to_have_text("Channels <i>first</i>.")

    # A quiz on conv2d: what lies ahead is hidden, a guess is graded, the right one is taken.
    load(stepper, "conv2d", "Replay")
    # What lies ahead was not undone.
    expect(stepper.locator(".syno-history")).to_contain_text("(ahead)")
    expect(stepper.locator(".syno-history")).not_to_contain_text("(undone)")
    press(stepper, "Redo")
    press(stepper, "Undo")
    expect(stepper.locator(".syno-ahead", has_text="(undone)")).to_have_count(1)
    start = int(stepper.locator('.syno-place[aria-current="step"]').get_attribute("data-place") or 0)
    press(stepper, "Quiz")
    expect(stepper.get_by_role("button", name="Redo", exact=True)).to_be_hidden()
    expect(stepper.locator(f'.syno-place[data-place="{start + 1}"]')).to_have_count(0)
    grade = stepper.locator(".syno-grade")
    expect(grade).to_contain_text("Guess the next step")
    expect(ranked).to_have_count(0)
    expect(stepper.get_by_role("group", name="Shape distance over the steps")).to_be_hidden()
    opened(stepper, "REDUCE").locator('> .syno-items [data-text="REDUCE H"]').click()
    expect(grade).to_have_text(re.compile(r"^Not this one: .* Guess again\. 0 of 1 right at the first guess\.$"))
    at(stepper, start)
    opened(stepper, "REDUCE").locator('> .syno-items [data-text="REDUCE k_1"]').click()
    at(stepper, start + 1)
    expect(grade).to_have_text(
        "Right: it leads to the same operator. Here another of its steps came first. 0 of 1 right at the first guess."
    )
    opened(stepper, "REDUCE").locator('> .syno-items [data-text="REDUCE k_1"]').first.click()
    at(stepper, start + 2)
    expect(grade).to_have_text("Right. 1 of 2 right at the first guess.")
    stepper.screenshot(path=tmp_path / "quiz.png")
    press(stepper, "Show the step")
    at(stepper, start + 3)
    expect(grade).to_have_text("This was the step. 1 of 3 right at the first guess.")
    press(stepper, "End the quiz")
    go(stepper, start + 6)
    stepper.locator("summary", has_text="What to do next").click()
    ways = stepper.get_by_role("region", name="What to do next")
    expect(ways.get_by_role("listitem")).to_have_count(6)
    expect(ways).to_contain_text("syno-lab train operator.json")
    stepper.screenshot(path=tmp_path / "complete.png")

    # Indices are set as in the picture, and stay what they were in the text.
    load(stepper, "operator_1")
    row = stepper.locator(".syno-place", has_text="give r_C_out_by_g_s")
    assert "give rCout/(g·s)" in row.evaluate(SHOWN)


def test_a_link_opens_its_session(page: Page, lab: Lab) -> None:
    session = session_of(conv2d())
    session.jump(3)
    session.comment("Here.")
    stepper = open_stepper(page, lab, "link.ipynb")
    expect(stepper.get_by_role("status").first).to_contain_text("After 0 steps")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    stepper.locator(".syno-session > summary").click()
    stepper.get_by_role("button", name="Copy link").click()
    page.wait_for_function("window.copied")
    address = page.evaluate("window.copied")
    assert re.search(r"/lab/tree/link\.ipynb\??(reset=?)?#syno-session:[\w-]+$", address), address
    assert lab.token not in address

    for word, said in (
        (session.to_word(), ""),
        (session.to_word()[:-40], "session: the text"),
    ):
        lab.stop_kernels()
        open_notebook(page, lab, "link.ipynb")
        idle(page)
        page.evaluate("word => { location.hash = word; }", word)
        run_cell(page, 0)
        if said:
            expect(stepper.get_by_role("alert")).to_contain_text(said)
            expect(stepper.get_by_role("status").first).to_contain_text("After 0 steps")
        else:
            expect(stepper.get_by_role("status").first).to_contain_text("After 3 steps")
            expect(stepper.locator(".syno-comment")).to_have_text("Here.")
