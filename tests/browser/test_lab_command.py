"""``syno-lab lab`` as its user sees it: the browser that it opens, the tour, its kernel, and the launcher's tile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Lab, running, wait_for

pytestmark = pytest.mark.browser

NOTES_WHAT_IT_IS_GIVEN = """\
import pathlib, sys
pathlib.Path({file!r}).write_text(sys.argv[1])
"""


def kernel_of(lab: Lab, path: str) -> str | None:
    """The name of the kernel that a notebook runs on."""
    return next((one["kernel"]["name"] for one in lab.call("api/sessions") if one["path"] == path), None)


def test_syno_lab_lab(page: Page, tmp_path: Path) -> None:
    folder, opened, browser = tmp_path / "mine", tmp_path / "opened", tmp_path / "browser.py"
    browser.write_text(NOTES_WHAT_IT_IS_GIVEN.format(file=str(opened)))
    words = ["syno_lab.cli", "lab", "--folder", str(folder), "--"]
    with running(tmp_path / "home", folder, words, {"BROWSER": f"{sys.executable} {browser} %s"}) as lab:
        wait_for(page, opened.is_file)
        wait_for(page, opened.read_text)
        page.goto(opened.read_text())
        page.wait_for_url("**/lab/tree/01_tour.ipynb**")
        expect(page.locator(".jp-Notebook").get_by_role("heading", name="1. A tour of the lab")).to_be_visible()
        wait_for(page, lambda: kernel_of(lab, "01_tour.ipynb") == "syno-lab")
        # What is copied is trusted: Jupyter shows the stored pictures, each without a message of a lost widget.
        for name in ("01_tour.ipynb", "course/02_building_conv2d.ipynb"):
            cells = lab.call(f"api/contents/{name}")["content"]["cells"]
            assert all(cell["metadata"]["trusted"] for cell in cells if cell["cell_type"] == "code")
        expect(page.locator(".jp-OutputArea img").first).to_be_attached()
        expect(page.locator(".jp-OutputArea", has_text="model not found")).to_have_count(0)
        chosen = page.get_by_role("button", name="Syno Lab", exact=True)
        expect(chosen.first).to_be_visible()

        page.keyboard.press("Control+Shift+l")
        tile = page.locator(".jp-LauncherCard[data-category=Notebook]", has_text="Syno Lab")
        expect(tile).to_be_visible()
        logo = tile.locator("img")
        expect(logo).to_be_visible()
        wait_for(page, lambda: logo.evaluate("image => image.complete && image.naturalWidth > 0"))
        tile.screenshot(path=tmp_path / "tile.png")
        tile.click()
        wait_for(page, lambda: kernel_of(lab, "Untitled.ipynb") == "syno-lab")
        notebook = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        notebook.locator(".jp-CodeCell .cm-content").click()
        page.keyboard.type("lab")
        page.keyboard.press("Shift+Enter")
        expect(notebook.locator(".jp-OutputArea-output").first).to_contain_text(f"<the lab in {folder / '.syno-lab'}>")
