"""The stepper in JupyterLab, by mouse and by keyboard."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Locator, Page, expect

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
    status = page.locator(".jp-NotebookPanel .jp-Notebook-ExecutionIndicator")
    expect(status).to_have_attribute("data-status", "idle")


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
    found: dict[str, str] = groups.evaluate_all("gs => Object.fromEntries(gs.map(g => [g.id, g.getAttribute('class')]))")
    return {name: kinds.replace(" highlight", "").replace(" syno-marked", "") for name, kinds in found.items()}


def expected_drawing() -> dict[str, str]:
    root = ElementTree.fromstring(drawing.svg(conv2d()))
    return {g.get("id", ""): g.get("class", "") for g in root.iter("{http://www.w3.org/2000/svg}g")}


def take(stepper: Locator, primitive: str, text: str) -> None:
    """Open a group and click the canonical step with exactly this text."""
    group = stepper.locator(f'[data-group="{primitive}"]')
    if group.get_attribute("open") is None:
        group.locator("> summary").click()
    before = stepper.locator(".syno-place").count()
    group.locator(f'> .syno-items [data-text="{text}"]').click()
    expect(stepper.locator(".syno-place")).to_have_count(before + 1)


def at(stepper: Locator, place: int) -> None:
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
    # The focus stays in the group, and the marked coordinate follows it.
    expect(stepper.locator('[data-group="REDUCE"] > summary')).to_be_focused()
    tab_to('[data-group="SHARE"] > summary')
    page.keyboard.press("Enter")
    tab_to('[data-tick="share-c4"]')
    page.keyboard.press("Space")
    expect(stepper.locator(".syno-picture #c4")).to_have_class(re.compile("syno-marked"))
    tab_to('[data-tick="give-c1"]')
    page.keyboard.press("Space")
    expect(stepper.locator(".syno-preview")).to_contain_text("Canonical: complete")
    tab_to('[data-kind="contract"]')
    page.keyboard.press("Enter")
    expect(status).to_have_text("Complete after 2 steps: this is conv1x1.")
    page.keyboard.press("Control+z")
    expect(status).to_contain_text("After 1 step")
    page.keyboard.press("Control+y")
    expect(status).to_contain_text("this is conv1x1")


def test_a_saved_notebook_shows_its_picture_without_a_kernel(page: Page, lab: Lab) -> None:
    """Executed and saved elsewhere, opened here with no kernel at all, with and without the widget's saved state."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    path = lab.write_notebook("saved.ipynb", SETUP, "stepper.load('conv2d'); None")
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=120, store_widget_state=False).execute()
    del book.metadata["kernelspec"]  # Lab starts no kernel by itself for a notebook that names none
    assert "widgets" not in book.metadata
    nbformat.write(book, path)

    # On disk: the widget's own bundle has a picture, and the picture beside it shows the latest pGraph.
    live, static = book.cells[0].outputs
    assert "application/vnd.jupyter.widget-view+json" in live["data"]
    assert live["data"]["image/svg+xml"].startswith("<svg")
    assert drawing.describe(conv2d()) == static["data"]["text/plain"]

    page.goto(f"{lab.url}lab/tree/saved.ipynb?reset&token={lab.token}")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Select Kernel")
    dialog.get_by_role("button", name=re.compile("No Kernel")).click()
    picture = page.locator(".jp-OutputArea .syno-static img, .jp-OutputArea img[alt^='Complete pGraph']").first
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.complete && image.naturalWidth > 100")
    assert picture.get_attribute("alt") == drawing.describe(conv2d())
    assert lab.call("api/kernels") == [] or not lab.call("api/sessions")

    # The exported page, whose own widget scripts are out of reach.
    html, _ = HTMLExporter(embed_images=True).from_notebook_node(book)
    page.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), lambda route: route.abort())
    export = lab.folder / "saved.html"
    export.write_text(html)
    page.goto(f"file://{export}")
    expect(page.locator(".syno-static img")).to_be_visible()
    assert page.locator(".syno-static img").evaluate("image => image.naturalWidth > 100")
