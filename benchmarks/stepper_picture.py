"""The stepper's picture measured in Chromium: size of letters, panning, what lies on what, and how far nodes move.

``python benchmarks/stepper_picture.py`` opens the page of every known operator and of the 20 largest of 1,000 sampled
ones (``large_pictures.py``), complete, at pages of 900 and 1,440 pixels, and writes
``benchmarks/results/stepper_picture.json``. Indices of mathematics are smaller than letters and are not counted. A line
passes through a box where one of its points is more than 2 pixels within the box of a node that it does not connect.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

from common import about, parser, save, say, typed
from large_pictures import KEPT
from playwright.sync_api import Page, sync_playwright
from syno_widgets import Stepper

from syno_lab.doctor import find_chromium
from syno_lab.ir.operator import Operator
from syno_lab.operators import KNOWN

SIZES = ((900, 1000), (1440, 900))
PICTURE = """() => {
  const frame = document.querySelector(".syno-graph").getBoundingClientRect();
  const svg = document.querySelector(".syno-graph svg");
  const scale = svg.getScreenCTM().a;
  const box = (one) => { const b = one.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  const nodes = [...svg.querySelectorAll("g.node")].map((one) => [one.dataset.id, box(one)]);
  const ends = nodes.reduce((sum, [, b]) => [Math.min(sum[0], b[0]), Math.min(sum[1], b[1]), Math.max(sum[2], b[2]),
    Math.max(sum[3], b[3])], [Infinity, Infinity, -Infinity, -Infinity]);
  const texts = [...svg.querySelectorAll("text")].filter((one) => one.textContent.trim());
  const letters = texts.map((one) => Number.parseFloat(one.getAttribute("font-size")) * scale);
  const rects = texts.map(box);
  let onText = 0;
  for (let a = 0; a < rects.length; a += 1) for (let b = 0; b < a; b += 1) {
    const across = Math.min(rects[a][2], rects[b][2]) - Math.max(rects[a][0], rects[b][0]);
    const down = Math.min(rects[a][3], rects[b][3]) - Math.max(rects[a][1], rects[b][1]);
    onText += across > 1.5 && down > 3.5;
  }
  let through = 0;
  let loose = 0;
  let labels = 0;
  for (const edge of svg.querySelectorAll("g.edge")) {
    const path = edge.querySelector("path");
    const matrix = path.getScreenCTM();
    const length = path.getTotalLength();
    const at = (step) => path.getPointAtLength((step / 80) * length).matrixTransform(matrix);
    const points = Array.from({ length: 81 }, (_, step) => at(step));
    const own = edge.dataset.id.split("--").map((end) => end.replace(/_[ad]\\d+$/, ""));
    through += nodes.some(([id, b]) => !own.includes(id) &&
      points.some((p) => p.x > b[0] + 2 && p.x < b[2] - 2 && p.y > b[1] + 2 && p.y < b[3] - 2));
    const label = edge.querySelector("text");
    if (!label) continue;
    labels += 1;
    const [left, top, right, bottom] = box(label);
    loose += !points.some((p) => p.x > left - 2 && p.x < right + 2 && p.y > top - 2 && p.y < bottom + 2);
  }
  const isBeyond = ends[0] < frame.left - 1 || ends[1] < frame.top - 1;
  const whole = !isBeyond && ends[2] < frame.right + 1 && ends[3] < frame.bottom + 1;
  const fill = Math.max((ends[2] - ends[0]) / frame.width, (ends[3] - ends[1]) / frame.height);
  return { letter: Math.min(...letters), largest: Math.max(...letters), whole, fill, onText, through, labels, loose };
}"""
# The middles of the nodes in the picture's own numbers, from the middle of the output.
PLACES = """() => {
  const svg = document.querySelector(".syno-graph svg");
  const scale = svg.getScreenCTM().a;
  const middles = [...svg.querySelectorAll("g.node")].map((one) => {
    const b = one.getBoundingClientRect();
    return [one.dataset.id, (b.left + b.right) / 2 / scale, (b.top + b.bottom) / 2 / scale];
  });
  const [, x, y] = middles.find(([id]) => id === "y");
  return middles.map(([id, a, b]) => [id, a - x, b - y]);
}"""


def moves(page: Page, address: str, steps: int) -> list[float]:
    """How far each node that stays moves in each step, relative to the output; the input is not counted."""
    found: list[float] = []
    before: dict[str, list[float]] = {}
    for place in range(steps + 1):
        page.goto(f"{address}#{place}")
        page.locator(f'.syno-place[aria-current="step"][data-place="{place}"]').wait_for()
        now = {name: middle for name, *middle in page.evaluate(PLACES)}
        stay = (before.keys() & now.keys()) - {"x", "y"}
        found += [math.dist(before[name], now[name]) for name in stay]
        before = now
    return found


def measure() -> dict[str, Any]:
    """Measure every picture at both sizes."""
    known = {name: make() for name, make in KNOWN.items()}
    large = [Operator.from_json(json.dumps(one)) for one in json.loads(KEPT.read_text(encoding="utf-8"))]
    groups = {"known": known, "largest": {str(number): one for number, one in enumerate(large, 1)}}
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        for kind, operators in groups.items():
            rows, ways = [], []
            for name, operator in operators.items():
                file = Path(folder) / f"{kind}-{name}.html"
                Stepper.of(operator, at_start=False).to_html(file)
                for wide, high in SIZES:
                    page = browser.new_page(viewport={"width": wide, "height": high}, reduced_motion="reduce")
                    page.goto(file.as_uri())
                    page.locator(".syno-graph svg g.node").first.wait_for()
                    page.wait_for_timeout(100)
                    rows.append({"operator": name, "width": wide, **page.evaluate(PICTURE)})
                    if wide == SIZES[-1][0]:
                        ways += moves(page, file.as_uri(), len(operator.state.steps))
                    page.close()
                say(f"{kind} {name}: {rows[-1]}")
            result[kind] = {**summary(rows), "moved": spread(ways), "pictures": rows}
        browser.close()
    return result


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst and the sums over pictures."""
    return {
        "pictures_panned": {wide: sum(not row["whole"] for row in rows if row["width"] == wide) for wide, _ in SIZES},
        "smallest_letter_px": min(row["letter"] for row in rows),
        "largest_letter_px": max(row["largest"] for row in rows),
        "least_fill": min(row["fill"] for row in rows),
        **{name: sum(row[name] for row in rows) for name in ("onText", "through", "labels", "loose")},
    }


def spread(ways: list[float]) -> dict[str, float]:
    """Median, mean and 90th percentile."""
    return {
        "median": statistics.median(ways),
        "mean": statistics.mean(ways),
        "p90": statistics.quantiles(ways, n=10)[-1],
    }


if __name__ == "__main__":
    chosen = parser(__doc__ or "").parse_args()
    found = measure()
    for kind in ("known", "largest"):
        say(f"{kind}: { {name: value for name, value in found[kind].items() if name != 'pictures'} }")
    save("stepper_picture", {**found, "about": about(typed(), chosen.core)})
