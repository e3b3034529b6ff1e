"""A real JupyterLab on loopback and a real Chromium that can reach nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

TIMEOUT_MS = 60_000
GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 23, 26)"}
"""The colours behind a widget on a page that stands alone, by what the reader prefers."""


@dataclass
class Lab:
    """A running JupyterLab (and Notebook 7): its address, its token, the folder that it serves, and Jupyter's own."""

    url: str
    token: str
    folder: Path
    data: Path
    settings: Path

    @contextlib.contextmanager
    def themed(self, theme: str) -> Iterator[None]:
        """Pages that are opened meanwhile have this theme."""
        file = self.settings / "@jupyterlab" / "apputils-extension" / "themes.jupyterlab-settings"
        file.write_text(json.dumps({"theme": theme}))
        try:
            yield
        finally:
            file.unlink()

    def write_notebook(self, name: str, *cells: str, kernel: bool = True) -> Path:
        """A notebook of code cells, with or without a kernel named."""
        import nbformat

        metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        book = nbformat.v4.new_notebook(metadata=metadata if kernel else {})
        book.cells = [nbformat.v4.new_code_cell(source) for source in cells]
        path = self.folder / name
        nbformat.write(book, path)
        return path

    def call(self, path: str, method: str = "GET") -> Any:
        """The server's own interface."""
        request = urllib.request.Request(f"{self.url}{path}", method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def kernels(self) -> list[dict[str, Any]]:
        """The kernels that run; none while the server starts one, of which it answers with a fault of its own."""
        try:
            found: list[dict[str, Any]] = self.call("api/kernels")
        except urllib.error.HTTPError as error:
            if error.code != 500:
                raise
            return []
        return found

    def stop_kernels(self) -> None:
        """End every kernel and forget its session."""
        for session in self.call("api/sessions"):
            self.call(f"api/sessions/{session['id']}", "DELETE")


@contextlib.contextmanager
def running(home: Path, folder: Path, words: list[str], more: dict[str, str] | None = None) -> Iterator[Lab]:
    """A JupyterLab started by ``words``, with settings and state in ``home``; ended afterwards.

    The words are followed by its options, and ``more`` is added to its environment.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    env = {
        **os.environ,
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
        "OMP_NUM_THREADS": "1",
        **(more or {}),
    }
    settings = home / "settings" / "@jupyterlab"
    for plugin, content in {
        "apputils-extension/notification.jupyterlab-settings": {"fetchNews": "false", "checkForUpdates": False},
        "docmanager-extension/plugin.jupyterlab-settings": {"autosave": False},
    }.items():
        (settings / plugin).parent.mkdir(parents=True, exist_ok=True)
        (settings / plugin).write_text(json.dumps(content))
    log = (home / "lab.log").open("w")
    options = [
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.news_url=",
        "--LabApp.extension_manager=readonly",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", *words, *options], env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    served = Lab(f"http://127.0.0.1:{port}/", token, folder, home / "data", home / "settings")
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                served.call("api/status")
                break
            except OSError:
                assert process.poll() is None, (home / "lab.log").read_text()[-2000:]
                assert time.monotonic() < deadline, "JupyterLab did not answer within two minutes"
                time.sleep(0.2)
        yield served
    finally:
        with contextlib.suppress(OSError):
            served.stop_kernels()
            served.call("api/shutdown", "POST")
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One JupyterLab for all tests, with settings and state in temporary folders; ended afterwards."""
    home, folder = tmp_path_factory.mktemp("lab-home"), tmp_path_factory.mktemp("lab")
    with running(home, folder, ["jupyterlab", "--no-browser"]) as served:
        yield served


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a context of its own; a request to any host but 127.0.0.1 is stopped and fails the test."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    strangers: list[str] = []

    def guard(route: Route) -> None:
        address = route.request.url
        if address.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "file:")):
            route.continue_()
        else:
            strangers.append(address)
            route.abort()

    context.route("**/*", guard)
    context.set_default_timeout(TIMEOUT_MS)
    expect.set_options(timeout=TIMEOUT_MS)
    page = context.new_page()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    yield page
    context.close()
    assert not strangers, f"requests beyond this machine: {strangers}"
    assert not [text for text in failures if "stepper" in text.lower()], failures


@pytest.fixture
def open_alone(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page that stands alone: without network, ``scheme`` light or dark; an error in its scripts fails."""
    contexts = []
    wrong: list[str] = []

    def open_file(path: Path, scheme: str, width: int = 1300, height: int = 1000) -> Page:
        size: Any = {"width": width, "height": height}
        context = browser.new_context(offline=True, color_scheme=scheme, viewport=size)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        expect.set_options(timeout=TIMEOUT_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.goto(path.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert not wrong


def wait_for(page: Page, holds: Callable[[], Any]) -> None:
    """Until something is so, for at most a minute; what the page asks for goes on meanwhile."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not holds():
        assert time.monotonic() < deadline, "it does not come to be"
        page.wait_for_timeout(100)


def reopen_without_kernel(page: Page, lab: Lab, name: str, view: str = "lab/tree") -> None:
    """Save the notebook that is open, end its kernel, and open it again as one that names none.

    ``view`` is where: in JupyterLab, or ``notebooks`` for Notebook 7.
    """
    path = lab.folder / name
    before = path.stat().st_mtime_ns
    page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".cm-content").click()
    page.keyboard.press("Control+s")
    wait_for(page, lambda: path.stat().st_mtime_ns != before)
    expect(page.locator(".jp-mod-dirty")).to_have_count(0)
    book = json.loads(path.read_text())
    book["metadata"] = {}
    path.write_text(json.dumps(book))
    lab.stop_kernels()
    page.goto(f"{lab.url}{view}/{name}?reset&token={lab.token}")
    page.locator(".jp-Dialog").get_by_role("button", name=re.compile("No Kernel")).click()
