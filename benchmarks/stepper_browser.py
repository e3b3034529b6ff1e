"""The stepper's clicks timed in JupyterLab and Chromium on this machine (``stepper.py --browser``).

The time begins at the click on a step in the list and ends with the animation frame after the graph with the new
state's picture has been put into the page: kernel, sockets, script and layout are all in it. A second time ends with
the frame that shows the new list of next steps. Pictures that were laid out before are not remembered here.

By itself (``python benchmarks/stepper_browser.py``) it takes 500 steps and says what the page holds on the way: the
heap of its scripts after a collection and its DOM nodes. It writes ``benchmarks/results/stepper_memory.json``. With
``--first`` it opens a notebook ten times and says how long the first picture takes after the cell is run in a fresh
kernel, the import with it; that is ``benchmarks/results/stepper_first.json``. With ``--canvas`` it times the clicks in
Canvas's stepper, for ResNet-20's places under a budget; that is ``benchmarks/results/stepper_canvas.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import about, parser, save, say, typed

WAIT_MS = 120_000
CELL = """\
from syno_lab.drawing import render as drawing_render
from syno_lab.commands.pgraphs.specs import load_spec
from syno_widgets import Stepper
drawing_render.render = drawing_render.render.__wrapped__  # each picture is laid out anew
stepper = Stepper(load_spec("conv-authors", max_primitives=12, weight_limits="{limits}")[0])
stepper
"""
CANVAS_CELL = """\
import syno_lab as sl
from syno_lab.drawing import render as drawing_render
from syno_widgets import Stepper
drawing_render.render = drawing_render.render.__wrapped__  # each picture is laid out anew
places = [sl.canvas.Place(c, c, side, side, layers=6) for c, side in ((16, 32), (32, 16), (64, 8))]
stepper = Stepper(sl.canvas.Sampler(places, max_flops=0.5))
stepper
"""
# Resolves with the milliseconds from the click to the frames that show the new graph and the new list.
CLICK = """\
(button) => new Promise((resolve) => {
  const root = button.closest(".syno-stepper");
  const start = performance.now();
  const found = {};
  const watch = (name, place) => {
    const seen = new MutationObserver(() => {
      seen.disconnect();
      requestAnimationFrame(() => setTimeout(() => {
        found[name] = performance.now() - start;
        if (found.graph_ms && found.list_ms) resolve(found);
      }, 0));
    });
    seen.observe(root.querySelector(place), { childList: true });
  };
  watch("graph_ms", ".syno-graph");
  watch("list_ms", ".syno-menu");
  button.click();
})
"""
STEPS = ".syno-step:not(.syno-off):not([disabled])"


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """A JupyterLab on loopback that serves ``folder``: its address with the token."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    env = {**os.environ, "HOME": str(folder), "JUPYTER_CONFIG_DIR": str(folder / ".config")}
    words = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    words += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}", "--LabApp.news_url="]
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *words],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={token}", timeout=5).close()
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/lab/tree/stepper0.ipynb?reset&token={token}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def held(devtools: Any) -> dict[str, Any]:
    """What the page holds once garbage is collected: MiB of the scripts' heap, and DOM nodes."""
    devtools.send("HeapProfiler.collectGarbage")
    metrics = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
    return {"heap_mib": metrics["JSHeapUsedSize"] / 2**20, "nodes": int(metrics["Nodes"])}


@contextlib.contextmanager
def browsed(code: str, notebooks: int = 1) -> Iterator[tuple[Any, str]]:
    """A browser, and the address of the first of so many notebooks with the one cell, ``stepper0.ipynb`` and on."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("SYNO_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("expected Chromium on PATH, or its path in SYNO_CHROMIUM; found neither")
    cell = {
        "cell_type": "code",
        "id": "one",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": code,
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    # The server still writes its settings while it ends.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, sync_playwright() as play:
        for number in range(notebooks):
            (Path(name) / f"stepper{number}.ipynb").write_text(book, encoding="utf-8")
        with served(Path(name)) as address:
            browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
            yield browser, address
            browser.close()


def opened(browser: Any, address: str) -> Any:
    """A notebook in a page of its own, its kernel started and its cell ready to be run."""
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(address)
    page.get_by_role("button", name=re.compile(r"\| Idle$")).wait_for()  # the kernel
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
    return page


def first_pictures(runs: int) -> dict[str, Any]:
    """Seconds from running the cell in a fresh kernel to the first picture, in so many notebooks."""
    taken = []
    with browsed(CELL.format(limits="primary"), runs) as (browser, address):
        for number in range(runs):
            page = opened(browser, address.replace("stepper0", f"stepper{number}"))
            start = time.perf_counter()
            page.keyboard.press("Control+Enter")
            page.locator(".syno-stepper .syno-graph svg").wait_for()
            taken.append(time.perf_counter() - start)
            say(f"first picture: {taken[-1]:.2f} s")
            page.close()
    return {"runs": runs, "median_s": statistics.median(taken), "longest_s": max(taken), "seconds": taken}


def measure(steps: int, seed: int, limits: str | None = "primary", every: int | None = None) -> dict[str, Any]:
    """So many clicks on random canonical steps; where none is left, or twelve are taken, it starts over.

    ``limits`` are those of weights; None steps through Canvas's kernels. ``every`` so many steps :func:`held` is asked.
    """
    code = CELL.format(limits=limits) if limits else CANVAS_CELL
    rng = random.Random(seed)
    times: list[dict[str, float]] = []
    with browsed(code) as (browser, address):
        page = opened(browser, address)
        page.keyboard.press("Control+Enter")
        stepper = page.locator(".syno-stepper")
        stepper.wait_for()
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")
        memory: list[dict[str, Any]] = []
        while len(times) < steps or (every and len(memory) <= steps // every):
            page.wait_for_selector('.syno-stepper:not([aria-busy="true"])')
            if every and len(times) == every * len(memory):
                memory.append({"steps": len(times), **held(devtools)})
                say(str(memory[-1]))
                continue
            groups = stepper.locator(f".syno-group:has({STEPS})")
            if not groups.count() or depth_of(page) >= 12:
                stepper.get_by_label("More", exact=True).click()
                stepper.get_by_role("button", name="Start over").click()
                continue
            buttons = groups.nth(rng.randrange(groups.count())).locator(STEPS)
            taken = buttons.nth(rng.randrange(buttons.count())).evaluate(CLICK)
            times.append({"depth": depth_of(page), **taken})
    found: dict[str, Any] = {"all": figures(times)}
    by_depth = {depth: [one for one in times if one["depth"] == depth] for depth in range(1, 13)}
    found["depths"] = [{"depth": depth} | figures(taken) for depth, taken in by_depth.items()]
    if every:
        found["memory"] = memory
    say(f"browser, {limits or 'Canvas'}: {found['all']}")
    return found


def depth_of(page: Any) -> int:
    """The steps of the pGraph that is shown: of a CONTRACTION each SHARE is drawn."""
    names: list[str] = page.evaluate(
        "[...document.querySelectorAll('.syno-graph g.primitive')].map((one) => one.dataset.id)"
    )
    return len({name.partition("_")[0] for name in names})


def figures(times: list[dict[str, float]]) -> dict[str, Any]:
    """Median, 95th percentile and worst of both times."""
    found: dict[str, Any] = {"steps": len(times)}
    for name in ("graph_ms", "list_ms"):
        taken = [one[name] for one in times]
        if len(taken) > 1:
            ordered = statistics.quantiles(taken, n=20, method="inclusive")
            found[name] = {"median": statistics.median(taken), "p95": ordered[-1], "worst": max(taken)}
    return found


def main() -> None:
    """What the page holds over so many steps, how long the first picture takes, or Canvas's clicks."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--steps", type=int, default=500)
    arguments.add_argument("--canvas", action="store_true", help="clicks in Canvas's stepper instead")
    arguments.add_argument("--first", action="store_true", help="the first picture in a fresh kernel instead")
    chosen = arguments.parse_args()
    load = os.getloadavg()[0]
    if chosen.canvas:
        clicks = measure(chosen.steps, chosen.seed, limits=None)
        save("stepper_canvas", clicks | {"load": [load, os.getloadavg()[0]], "about": about(typed(), chosen.core)})
        return
    if chosen.first:
        pictures = first_pictures(10) | {"load": [load, os.getloadavg()[0]]}
        save("stepper_first", pictures | {"about": about(typed(), chosen.core)})
        return
    found = measure(chosen.steps, chosen.seed, every=chosen.steps // 5)
    kept = {"steps": chosen.steps, "memory": found["memory"]}  # how fast, stepper.py says
    save("stepper_memory", kept | {"about": about(typed(), chosen.core)})


if __name__ == "__main__":
    main()
