"""The stepper in JupyterLab, by mouse and by keyboard."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from syno_lab.codegen import drawing
from syno_lab.operators import conv2d
from tests.browser.conftest import Lab

pytestmark = pytest.mark.browser

SETUP = """\
import syno_lab as sl
from syno_widgets import Stepper
stepper = Stepper(sl.Spec.parse(
    "[N, C_in, H, W]", "[N, C_out, H, W]", ["N", "C_in", "C_out", "H", "W"], ["k_1=3"], fixed_io_pairs=[(0, 0)]))
stepper
"""
COMPARE = "print('SAME', stepper.operator == sl.operators.conv2d(), stepper.session.position)"


def open_notebook(page: Page, lab: Lab, name: str) -> None:
    page.goto(f"{lab.url}lab/tree/{name}?reset&token={lab.token}")
    expect(page.locator(".jp-Notebook .jp-Cell").first).to_be_visible()


def wait_for_kernel(page: Page) -> None:
    expect(page.get_by_role("button", name=re.compile(r"\| Idle$"))).to_be_visible()


def run_cell(page: Page, number: int) -> None:
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")


def open_stepper(page: Page, lab: Lab, name: str) -> Locator:
    lab.write_notebook(name, SETUP, COMPARE)
    open_notebook(page, lab, name)
    wait_for_kernel(page)
    run_cell(page, 0)
    stepper = page.locator(".syno-stepper")
    expect(stepper).to_be_visible()
    return stepper


def drawn(stepper: Locator) -> dict[str, str]:
    """The nodes and lines of the drawing on the page: id to kinds."""
    groups = stepper.locator(".syno-picture svg g[id]")
    found: dict[str, str] = groups.evaluate_all(
        "gs => Object.fromEntries(gs.map(g => [g.id, g.getAttribute('class')]))"
    )
    return {name: kinds.replace(" highlight", "").replace(" syno-marked", "") for name, kinds in found.items()}


def expected_drawing() -> dict[str, str]:
    root = ElementTree.fromstring(drawing.svg(conv2d()))
    return {g.get("id", ""): g.get("class", "") for g in root.iter("{http://www.w3.org/2000/svg}g")}


def take(stepper: Locator, primitive: str, text: str) -> None:
    """Open a group and click the canonical step with exactly this text."""
    group = stepper.locator(f'[data-group="{primitive}"]')
    if group.get_attribute("open") is None:
        group.locator("> summary").click()
    settled(stepper)
    before = stepper.locator(".syno-place").count()
    group.locator(f'> .syno-items [data-text="{text}"]').click()
    expect(stepper.locator(".syno-place")).to_have_count(before + 1)


def settled(stepper: Locator) -> None:
    """The kernel has answered: the picture comes first, the lists of next steps after it."""
    expect(stepper).not_to_have_attribute("aria-busy", "true")


def at(stepper: Locator, place: int) -> None:
    settled(stepper)
    expect(stepper.locator('.syno-place[aria-current="step"]')).to_have_attribute("data-place", str(place))


def test_conv2d_by_clicks_alone(page: Page, lab: Lab) -> None:
    stepper = open_stepper(page, lab, "clicks.ipynb")
    status = stepper.get_by_role("status")
    expect(status).to_contain_text("After 0 steps: shape distance 2")
    take(stepper, "REDUCE", "REDUCE C_in")
    take(stepper, "REDUCE", "REDUCE k_1")
    take(stepper, "REDUCE", "REDUCE k_1")
    # The contraction is ticked by hand: three coordinates shared, one given.
    group = stepper.locator('[data-group="SHARE"]')
    group.locator("> summary").click()
    for name in ("r_C_in of size C_in", "r_k_1 of size k_1", "r_k_1__2 of size k_1"):
        group.get_by_label(f"share {name}", exact=True).check()
    group.get_by_label("give i_C_out of size C_out", exact=True).check()
    expect(group.locator(".syno-preview")).to_contain_text("Canonical: distance 1")
    group.get_by_role("button", name="Contract with a new weight").click()
    at(stepper, 4)
    take(stepper, "UNFOLD", "UNFOLD i_H, r_k_1")
    take(stepper, "UNFOLD", "UNFOLD i_W, r_k_1__2")
    expect(status).to_have_text("Complete after 6 steps: this is conv2d.")
    assert drawn(stepper) == expected_drawing()
    run_cell(page, 1)
    expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text("SAME True 6")
    # While the widget lives, the static picture beside it is hidden.
    expect(page.locator("[data-syno-static]")).to_have_count(1)
    expect(page.locator("[data-syno-static]")).to_be_hidden()

    # Undo, redo and jump, by clicks, from here.
    stepper.get_by_role("button", name="Undo", exact=True).click()
    at(stepper, 5)
    expect(status).to_contain_text("After 5 steps: shape distance 1")
    assert "s5" not in drawn(stepper)
    stepper.get_by_role("button", name="Redo", exact=True).click()
    at(stepper, 6)
    assert drawn(stepper) == expected_drawing()
    stepper.locator('.syno-place[data-place="2"]').click()
    at(stepper, 2)
    expect(stepper.get_by_role("button", name="Redo", exact=True)).to_be_enabled()
    assert {n for n in drawn(stepper) if re.fullmatch(r"s\d", n)} == {"s0", "s1"}
    stepper.locator('.syno-place[data-place="6"]').click()
    expect(status).to_contain_text("this is conv2d")

    # Start over, and have it back.
    stepper.get_by_role("button", name="Start over").click()
    at(stepper, 7)
    expect(status).to_contain_text("After 0 steps")
    stepper.get_by_role("button", name="Undo", exact=True).click()
    expect(status).to_contain_text("this is conv2d")

    # A pruned step can be taken all the same, with its reason beside it.
    stepper.locator('.syno-place[data-place="4"]').click()
    at(stepper, 4)
    reduce = stepper.locator('[data-group="REDUCE"]')
    if reduce.get_attribute("open") is None:
        reduce.locator("> summary").click()
    reduce.locator(".syno-pruned > summary").click()
    late = reduce.locator('.syno-pruned [data-text="REDUCE k_1"]')
    expect(late).to_contain_text(re.compile("REDUCE", re.IGNORECASE))
    late.click()
    at(stepper, 5)
    expect(status).to_contain_text("After 5 steps")

    # A known operator, replayed from its start.
    stepper.get_by_label("Known operator").select_option("pixel_shuffle")
    stepper.get_by_role("button", name="Replay").click()
    expect(status).to_contain_text("After 0 steps")
    redo = stepper.get_by_role("button", name="Redo", exact=True)
    while redo.is_enabled():
        place = int(stepper.locator('.syno-place[aria-current="step"]').get_attribute("data-place") or 0)
        redo.click()
        at(stepper, place + 1)
    expect(status).to_contain_text("this is pixel_shuffle")


def test_the_keyboard_is_enough(page: Page, lab: Lab) -> None:
    stepper = open_stepper(page, lab, "keys.ipynb")
    status = stepper.get_by_role("status")

    def tab_to(selector: str) -> None:
        """Press Tab until the focus is on the first element that fits."""
        wanted = stepper.locator(selector).first
        for _ in range(80):
            if wanted.evaluate("element => element === document.activeElement"):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not lead to {selector}")

    stepper.locator("select").focus()
    tab_to('[data-group="REDUCE"] > summary')
    page.keyboard.press("Enter")
    tab_to('[data-group="REDUCE"] > .syno-items [data-text="REDUCE C_in"]')
    page.keyboard.press("Enter")
    expect(status).to_contain_text("After 1 step")
    settled(stepper)
    # The focus stays in the group, and the marked coordinate follows it.
    expect(stepper.locator('[data-group="REDUCE"] > summary')).to_be_focused()
    tab_to('[data-group="SHARE"] > summary')
    page.keyboard.press("Enter")
    tab_to('[data-tick="give-c1"]')
    page.keyboard.press("Space")
    expect(stepper.locator(".syno-preview")).to_contain_text("Not possible. SHARE: expected at least one shared")
    tab_to('[data-tick="share-c4"]')
    page.keyboard.press("Space")
    expect(stepper.locator(".syno-picture #c4")).to_have_class(re.compile("syno-marked"))
    expect(stepper.locator(".syno-preview")).to_contain_text("Canonical: complete")
    tab_to('[data-kind="contract"]')
    page.keyboard.press("Enter")
    expect(status).to_have_text("Complete after 2 steps: this is conv1x1.")
    page.keyboard.press("Control+z")
    expect(status).to_contain_text("After 1 step")
    page.keyboard.press("Control+y")
    expect(status).to_contain_text("this is conv1x1")


@pytest.fixture(scope="module")
def saved() -> Any:
    """A notebook executed without a browser, the pGraph stepped on after it was shown; with its widgets' state."""
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, "stepper.load('conv2d'); None")]
    book = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": ""}})
    NotebookClient(book, timeout=120).execute()
    return book


def test_a_saved_notebook_holds_the_latest_picture(saved: Any) -> None:
    live, static = saved.cells[0].outputs
    assert "application/vnd.jupyter.widget-view+json" in live["data"]
    assert live["data"]["image/svg+xml"].startswith("<svg")
    assert static["data"]["text/plain"] == drawing.describe(conv2d())
    assert static["data"]["image/svg+xml"] == drawing.svg(conv2d(), highlight=[5])


@pytest.mark.parametrize("kind", ["untrusted", "trusted", "trusted, with the state of its widgets"])
def test_without_a_kernel_the_picture_is_there(page: Page, lab: Lab, saved: Any, kind: str) -> None:
    import nbformat
    from nbformat.sign import NotebookNotary

    book = nbformat.from_dict(saved)
    widgets = saved.metadata["widgets"]
    # Lab starts no kernel by itself for a notebook that names none: it asks.
    book.metadata = nbformat.NotebookNode({"widgets": widgets} if "state" in kind else {})
    if kind != "untrusted":
        notary = NotebookNotary(data_dir=str(lab.data))
        notary.sign(book)
        notary.store.close()
    lab.stop_kernels()
    path = lab.folder / f"{kind.replace(', ', '_').replace(' ', '_')}.ipynb"
    nbformat.write(book, path)
    page.goto(f"{lab.url}lab/tree/{path.name}?reset&token={lab.token}")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Select Kernel")
    dialog.get_by_role("button", name=re.compile("No Kernel")).click()
    words = drawing.describe(conv2d())
    # JupyterLab restores widgets from a file only once there is a kernel: the picture beside the widget is what shows.
    picture = page.locator(f'.jp-OutputArea img[alt="{words}"]')
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.complete && image.naturalWidth > 100")
    assert lab.call("api/kernels") == []


def test_the_exported_page_shows_the_picture(browser: Browser, tmp_path: Path, saved: Any) -> None:
    """nbconvert's page asks for widget scripts on the network; without them the picture must be there all the same."""
    import nbformat
    from nbconvert import HTMLExporter

    book = nbformat.from_dict(saved)
    book.metadata = nbformat.NotebookNode({})
    html, _ = HTMLExporter().from_notebook_node(book)
    export = tmp_path / "saved.html"
    export.write_text(html, encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(export.as_uri())
    picture = page.locator(".syno-static img")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth > 100")
    context.close()
