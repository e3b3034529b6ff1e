"""The operator view in JupyterLab, without a kernel, and as a page that stands alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from syno_widgets import OperatorView
from syno_widgets.kernelspec import trust

from syno_lab.codegen import drawing
from syno_lab.codegen.loops import loops
from syno_lab.operators import conv2d
from tests.browser.conftest import GROUNDS, Lab, reopen_without_kernel
from tests.browser.test_stepper import open_notebook, run_cell, wait_for_kernel

pytestmark = pytest.mark.browser

SETUP = """\
import syno_lab as sl
from syno_widgets import OperatorView
view = OperatorView(sl.operators.conv2d(), name="<b>mine</b>")
view
"""
LOOK = "print('SEEN', view.selected, view.pane, view.sizes['H'], view.search)"
DRIVE = "view.selected, view.pane, view.search = 'w0', 'mixing', 'REDUCE'"
SHARED = ["c2", "c5", "c7", "s1", "s3_c5", "s4"]  # the expression i_H + r_k_1 - k_1//2


@contextmanager
def private_data(lab: Lab) -> Iterator[None]:
    """Within, this process has the data of the lab's Jupyter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(lab.data))
        yield


def lit_nodes(view: Locator) -> list[str]:
    names: list[str] = view.locator(".syno-graph .syno-lit").evaluate_all("gs => gs.map(g => g.dataset.id)")
    return sorted(name for name in names if "--" not in name)


def lit_lines(view: Locator) -> list[int]:
    lines: list[int] = view.locator(".syno-line.syno-lit").evaluate_all("ls => ls.map(l => Number(l.dataset.line))")
    return lines


def linked(page: Page, view: Locator) -> None:
    """Picture and loop nest light up each other, by pointer and by keyboard."""
    view.locator('.syno-graph [data-id="c7"]').hover()
    assert lit_nodes(view) == SHARED
    assert lit_lines(view) == [10, 12]
    text = loops(conv2d()).splitlines()
    assert text[10].strip().startswith("if 0 <= i_H + r_k_1")
    view.locator(".syno-title").hover()
    assert lit_nodes(view) == []
    view.locator('.syno-line[data-line="10"] .syno-piece').hover()
    assert lit_nodes(view) == SHARED
    view.locator(".syno-title").hover()
    first = view.locator(".syno-piece").first  # i_N
    first.focus()
    page.keyboard.press("ArrowDown")
    assert lit_nodes(view) == ["c1"]
    page.keyboard.press("Enter")
    expect(view.get_by_role("status").last).to_have_text(
        "coordinate i_C_out of size C_out. In the loop nest: line 4, 7, 13"
    )
    view.locator(".syno-graph").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(view.locator('.syno-graph [aria-pressed="true"]')).to_have_count(1)
    page.keyboard.press("Escape")
    expect(view.locator('.syno-graph [aria-pressed="true"]')).to_have_count(0)


def moved(page: Page, view: Locator) -> None:
    """The picture is enlarged, moved and shown whole again."""
    picture = view.locator(".syno-graph svg")
    whole = picture.get_attribute("viewBox")
    view.get_by_role("button", name="Enlarge").click()
    enlarged = picture.get_attribute("viewBox")
    assert float((enlarged or "").split()[2]) < float((whole or "").split()[2])
    box = view.locator(".syno-graph").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 45, box["y"] + 25, steps=4)
    page.mouse.up()
    assert picture.get_attribute("viewBox") != enlarged
    view.locator(".syno-graph").focus()
    page.keyboard.press("0")
    assert picture.get_attribute("viewBox") == whole


def saved(page: Page, view: Locator, what: str, form: str) -> bytes:
    view.get_by_label(f"Format of {what}").select_option(label=form)
    with page.expect_download() as download:
        view.get_by_role("button", name=f"Save {what}").click()
    return Path(download.value.path()).read_bytes()


def test_operator_view_in_the_lab(page: Page, lab: Lab) -> None:
    lab.write_notebook("operator.ipynb", SETUP, LOOK, DRIVE)
    open_notebook(page, lab, "operator.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    view = page.locator(".syno-operator")
    expect(view.locator(".syno-graph svg")).to_be_visible()
    expect(view.locator(".syno-title")).to_have_text("<b>mine</b>")
    expect(page.locator("[data-syno-static]")).to_be_hidden()
    linked(page, view)
    moved(page, view)

    # What the reader does is seen from Python.
    view.get_by_label("Search the pGraph").fill("unfold")
    expect(view.locator(".syno-found-count")).to_have_text("2 found")
    view.locator('.syno-graph [data-id="c8"]').click()
    view.get_by_role("tab", name="Cost").click()
    expect(view.get_by_role("tabpanel")).to_contain_text("as one loop nest")
    view.locator(".syno-sizes summary").click()
    view.get_by_label("H", exact=True).fill("20")
    view.get_by_role("button", name="Use these sizes").click()
    expect(view.locator(".syno-sizes summary")).to_contain_text("H=20")
    run_cell(page, 1)
    expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text("SEEN c8 cost 20 unfold")

    # And the other way round.
    run_cell(page, 2)
    expect(view.get_by_role("tab", name="Mixing")).to_have_attribute("aria-selected", "true")
    expect(view.get_by_role("tabpanel").locator("abbr").first).to_be_visible()
    expect(view.locator('.syno-graph [data-id="w0"]')).to_have_attribute("aria-pressed", "true")
    expect(view.locator(".syno-found-count")).to_have_text("3 found")

    # Panes are worked out when they are opened, and can be taken away.
    view.get_by_role("tab", name="On an image").click()
    expect(view.get_by_role("tabpanel").locator("img")).to_have_count(9)
    assert saved(page, view, "On an image", "PNG").startswith(b"\x89PNG")
    view.get_by_role("tab", name="TIR").click()
    expect(view.get_by_role("tabpanel")).to_contain_text("T.Buffer", timeout=60_000)
    assert saved(page, view, "the pGraph", "PNG").startswith(b"\x89PNG")
    assert saved(page, view, "the pGraph", "DOT").decode() == drawing.dot(conv2d())
    assert saved(page, view, "the pGraph", "PDF") == conv2d().figure().content("pdf")
    expect(view.locator(".syno-live")).to_have_text(re.compile(r"^Saved: .*mine.*-pgraph\.pdf$"))
    view.get_by_role("button", name="Copy the pGraph").click()
    expect(view.get_by_role("alert").first).to_contain_text("figures for papers are saved")
    view.get_by_role("tab", name="Receptive field").click()
    # What is typed and not sent yet stays while the panes are worked out anew.
    view.get_by_label("Output element").fill("0,0,0,0")
    view.get_by_label("H", exact=True).fill("18")
    view.get_by_label("H", exact=True).press("Enter")
    expect(view.locator(".syno-sizes summary")).to_contain_text("H=18")
    expect(view.get_by_label("H", exact=True)).to_be_focused()
    expect(view.get_by_role("tabpanel")).to_contain_text(re.compile(r"Y\[.*\] reads "), timeout=60_000)
    expect(view.get_by_label("Output element")).to_have_value("0,0,0,0")
    view.get_by_role("button", name="Show", exact=True).click()
    expect(view.get_by_role("tabpanel")).to_contain_text("Y[0, 0, 0, 0] reads ", timeout=60_000)
    view.get_by_label("Output element").fill("<b>")
    view.get_by_role("button", name="Show", exact=True).click()
    expect(view.get_by_role("alert").first).to_contain_text("output element: expected center, or numbers")

    # Saved and opened again without a kernel, the picture and the loop nest are there.
    reopen_without_kernel(page, lab, "operator.ipynb")
    expect(page.locator(f'.jp-OutputArea img[alt="{drawing.describe(conv2d())}"]')).to_be_visible()
    expect(page.locator(".jp-OutputArea pre", has_text="for r_k_1__2 in range(k_1):").first).to_be_visible()
    # In a notebook that Jupyter trusts, as the user's own, the message of the lost widget is not above the picture.
    with private_data(lab):
        trust([str(lab.folder / "operator.ipynb")])
    page.reload()
    page.locator(".jp-Dialog").get_by_role("button", name=re.compile("No Kernel")).click()
    expect(page.locator(f'.jp-OutputArea img[alt="{drawing.describe(conv2d())}"]')).to_be_visible()
    lost = page.locator(".jp-OutputArea-output", has_text=re.compile("^(Loading widget|Error displaying widget)"))
    expect(lost).to_have_count(1)
    expect(lost).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_that_stands_alone(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "conv2d.html"
    OperatorView(conv2d()).to_html(file, panes=["graph", "loops", "cost", "equation", "near"])
    page = open_alone(file, scheme)
    view = page.locator(".syno-operator")
    linked(page, view)
    moved(page, view)
    view.get_by_role("tab", name="Equation").click()
    expect(view.get_by_role("tabpanel").locator("svg path").first).to_be_visible()
    view.get_by_role("tab", name="TIR").click()
    expect(view.get_by_role("tabpanel")).to_contain_text("Not computed yet.")
    assert saved(page, view, "the pGraph", "SVG").decode() == drawing.svg(conv2d())
    forms = view.get_by_label("Format of the pGraph").locator("option").all_text_contents()
    assert "DOT" in forms
    assert not {"PDF", "TeX"} & set(forms), "there is no kernel to draw them"
    assert view.evaluate("e => getComputedStyle(e).backgroundColor") == GROUNDS[scheme]
    page.screenshot(path=tmp_path / f"operator-view-{scheme}.png")
