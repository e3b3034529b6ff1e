"""Voilà turns the stepper into a page for a lecture; it is an extra, ``pip install -e '.[lecture]'``."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("voila", reason="an extra that CI does not install")


def _page(address: str, process: subprocess.Popen[bytes], log: Path) -> str:
    """What the server answers, once it does; the notebook is run for it."""
    deadline = time.monotonic() + 180
    while True:
        try:
            with urllib.request.urlopen(address, timeout=180) as answer:
                assert answer.status == 200
                return answer.read().decode()
        except urllib.error.URLError:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)


def test_voila_shows_the_stepper(tmp_path: Path) -> None:
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = nbformat.v4.new_notebook(metadata=metadata)
    book.cells = [nbformat.v4.new_code_cell('from syno_widgets import Stepper\nStepper.of("conv2d")')]
    nbformat.write(book, tmp_path / "lecture.ipynb")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["lecture.ipynb", "--no-browser", f"--port={port}", "--Voila.ip=127.0.0.1"]
    log = tmp_path / "voila.log"
    home = {**os.environ, "HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "voila", *words], cwd=tmp_path, env=home, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            html = _page(f"http://127.0.0.1:{port}/", process, log)
        finally:
            process.terminate()
            process.wait(60)
    assert "application/vnd.jupyter.widget-view+json" in html, "the widget that the browser draws"
    assert "syno-static" in html, "and the picture that it hides"
    assert "Traceback" not in html
