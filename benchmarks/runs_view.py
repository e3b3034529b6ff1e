"""How fluid the runs view is with a thousand trials on its front, in a real Chromium.

``python benchmarks/runs_view.py`` makes a store with so many trials, all with an accuracy and a latency, reads it, and
opens the view's page without a network: what a lasso, pointing, an update and sorting the table cost. Times of the page
are processor time of its main thread (Chromium's thread ticks), which other work on the machine does not change; frame
times are those of the clock. It prints JSON and writes it to ``benchmarks/results/runs_view.json``.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import about, parser, save, say
from playwright.sync_api import CDPSession, Page, sync_playwright
from syno_widgets import RunsView

from syno_lab import operators
from syno_lab.reports import LabReader
from syno_lab.store import Store

TRIALS = 1000
MOVES = 120
WAIT_MS = 120_000
CALL = "render({ model, el: document"
FRAMES = """
window.frames_ms = []; window.is_recording = true; let last = performance.now();
const look = (now) => {
  window.frames_ms.push(now - last);
  last = now;
  if (window.is_recording) requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


def fill(folder: Path, trials: int, seed: int) -> None:
    """A search of so many finished trials; accuracy and latency by chance."""
    rng = random.Random(seed)
    text = operators.conv2d().to_json()
    with Store.open(folder) as store:
        log = store.search("many", {})
        for number in range(trials):
            cost = rng.random()
            log.add(f"fp{number}", text, [], int(1e6 * cost) + 1, int(1e4 * rng.random()) + 1)
            log.record(number, {"state": "finished", "accuracy": cost**0.3 * rng.random(), "wall_s": 1.0})
            log.record_latency(number, "cpu", {"latency_ms": 0.01 + cost})


def spent_ms(devtools: CDPSession) -> float:
    """Processor milliseconds of the page's main thread in tasks so far."""
    metrics = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
    return 1e3 * float(metrics["TaskDuration"])


def frames(page: Page) -> dict[str, float]:
    """Frame times since :data:`FRAMES`, by the clock."""
    found: list[float] = page.evaluate("() => { window.is_recording = false; return window.frames_ms; }")
    if len(found) < 2:
        return {"frames": len(found)}
    return {
        "frames": len(found),
        "median_ms": statistics.median(found),
        "p95_ms": statistics.quantiles(found, n=20, method="inclusive")[-1],
    }


def measure(page: Page, devtools: CDPSession, front: dict[str, Any], repeats: int) -> dict[str, Any]:
    """What each thing that a reader does costs."""
    box = page.locator(".syno-front").bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def ring(turn: int) -> tuple[float, float]:
        angle = 2 * math.pi * turn / MOVES
        return middle[0] + 0.35 * box["width"] * math.cos(angle), middle[1] + 0.35 * box["height"] * math.sin(angle)

    result: dict[str, Any] = {}
    lassos, hovers, updates, sorts = [], [], [], []
    for _ in range(repeats):
        page.evaluate(FRAMES)
        start = spent_ms(devtools)
        page.mouse.move(*ring(0))
        page.mouse.down()
        for turn in range(1, MOVES):
            page.mouse.move(*ring(turn))
        page.mouse.up()
        lassos.append((spent_ms(devtools) - start) / MOVES)
        result["lasso_frames"] = frames(page)
        result["selected"] = int(page.locator(".syno-count").inner_text().split()[0])
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Clear selection").wait_for(state="hidden")
        start = spent_ms(devtools)
        for turn in range(MOVES):
            page.mouse.move(*ring(turn))
        hovers.append((spent_ms(devtools) - start) / MOVES)
        page.mouse.move(2, 2)
        start = spent_ms(devtools)
        for turn in range(5):
            changed = dict(front, hypervolume=turn)
            page.evaluate("(front) => window.model.set('front', front)", changed)
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        updates.append((spent_ms(devtools) - start) / 5)
        start = spent_ms(devtools)
        for _ in range(4):
            page.locator('th[data-name="accuracy"] button').click()
        sorts.append((spent_ms(devtools) - start) / 4)
    for name, values in (("lasso_move", lassos), ("pointing", hovers), ("update", updates), ("sort", sorts)):
        result[f"{name}_cpu_ms"] = statistics.median(values)
    return result


def main() -> None:
    """Make the store and the page, and measure."""
    options = parser(__doc__ or "")
    options.add_argument("--trials", type=int, default=TRIALS)
    options.add_argument("--repeats", type=int, default=5)
    chosen = options.parse_args()
    chromium = os.environ.get("SYNO_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        fill(folder, chosen.trials, chosen.seed)
        say("reading")
        reads = []
        for _ in range(chosen.repeats):
            with LabReader(folder) as reader:
                start = time.process_time()
                reader.read()
                reads.append(1e3 * (time.process_time() - start))
        start = time.process_time()
        view = RunsView(folder)
        constructed = 1e3 * (time.process_time() - start)
        text = view.to_html().replace(CALL, f"window.model = model; {CALL}")
        front, sent = dict(view.front), len(json.dumps([view.front, view.trials]))
        view.close()
        (folder / "page.html").write_text(text)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(offline=True, viewport={"width": 1300, "height": 1000}).new_page()
        page.set_default_timeout(WAIT_MS)
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto((folder / "page.html").as_uri())
        page.locator(".syno-front [data-key]").first.wait_for(state="attached")
        loaded = spent_ms(devtools)
        say("in the page")
        result = measure(page, devtools, front, chosen.repeats)
        browser.close()
    result = {
        "about": about("python benchmarks/runs_view.py", chosen.core),
        "trials": chosen.trials,
        "on_front": len(front["front"]),
        "read_cpu_ms": statistics.median(reads),
        "construct_cpu_ms": constructed,
        "bytes_sent": sent,
        "page_cpu_ms": loaded,
        **result,
    }
    save("runs_view", result)


if __name__ == "__main__":
    main()
