"""Voilà turns the stepper and the runs view into a page for a lecture; it is an extra, which ``dev`` brings."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from known_runs import fill_lab
from playwright.sync_api import Browser, Route, expect

from syno_lab.commands.lab import notebooks_folder
from tests.browser.conftest import TIMEOUT_MS

pytest.importorskip("voila", reason="the extra lecture is not installed")
pytestmark = pytest.mark.browser

NOTEBOOK = notebooks_folder().parent / "docs" / "lecture.ipynb"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where Voilà serves the notebook, with a lab of thirty trials."""
    fill_lab(tmp_path, 30)
    shutil.copyfile(NOTEBOOK, tmp_path / NOTEBOOK.name)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "voila.log"
    own = {"HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython"), "SYNO_LAB_FOLDER": str(tmp_path)}
    words = [sys.executable, "-m", "voila", NOTEBOOK.name, "--no-browser", f"--port={port}", "--Voila.ip=127.0.0.1"]
    with log.open("wb") as output:
        server = subprocess.Popen(
            words, cwd=tmp_path, env={**os.environ, **own}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + 120
            while True:
                try:  # what is static is there at once; the notebook is run for whoever opens its page
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/voila/static/voila.js", timeout=60).close()
                    break
                except urllib.error.HTTPError:
                    break
                except OSError:
                    assert server.poll() is None, log.read_text()[-2000:]
                    assert time.monotonic() < deadline, log.read_text()[-2000:]
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            server.wait(60)


def test_voila_shows_the_stepper_and_the_runs(browser: Browser, address: str, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 1000})

    def only_here(route: Route) -> None:
        """Voilà's own template asks a content network for an icon font, and does without."""
        route.continue_() if route.request.url.startswith(address) else route.abort()

    context.route("**/*", only_here)
    context.set_default_timeout(TIMEOUT_MS)
    expect.set_options(timeout=TIMEOUT_MS)
    page = context.new_page()
    try:
        page.goto(address, timeout=3 * TIMEOUT_MS)
        stepper, runs = page.locator(".syno-stepper"), page.locator(".syno-runs")
        expect(stepper.locator(".syno-graph svg")).to_be_visible()
        expect(runs.locator(".syno-front [data-key]").first).to_be_attached()
        for static in page.locator("[data-syno-static]").all():
            expect(static).to_be_hidden()
        expect(page.locator("body")).not_to_contain_text("from syno_widgets")

        status = stepper.get_by_role("status").first
        expect(status).to_contain_text("After 0 steps: shape distance")
        stepper.get_by_role("button", name="Redo", exact=True).click()
        expect(status).to_contain_text("After 1 step: shape distance")

        expect(runs.locator(".syno-count")).to_have_text("31 of 31 shown")
        runs.get_by_label("Filter").fill("baseline")
        expect(runs.locator(".syno-count")).not_to_have_text("31 of 31 shown")
        best = runs.locator(".syno-front .syno-best").first
        best.scroll_into_view_if_needed()
        best.click()
        expect(page.locator(".syno-operator .syno-graph svg")).to_be_visible()
        page.screenshot(path=tmp_path / "lecture.png", full_page=True)
    finally:
        context.close()
