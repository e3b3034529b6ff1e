"""The stepper's picture fills its box in letters that can be read, pans with a small map, and answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from syno_widgets import Stepper

from syno_lab.ir.operator import Operator
from syno_lab.operators import conv2d

pytestmark = pytest.mark.browser

OpenAlone = Callable[..., Page]
LARGE = Path(__file__).parents[1] / "golden" / "drawing" / "large.json"
#: The smallest and the largest letter in pixels, whether all nodes are seen, and the filled part of the box.
SEEN = """() => {
  const frame = document.querySelector(".syno-graph").getBoundingClientRect();
  const svg = document.querySelector(".syno-graph svg");
  const letters = [...svg.querySelectorAll("text")].map(
    (one) => Number.parseFloat(one.getAttribute("font-size")) * svg.getScreenCTM().a);
  const boxes = [...svg.querySelectorAll("g.node")].map((one) => one.getBoundingClientRect());
  const [left, top, right, bottom] = [Math.min(...boxes.map((b) => b.left)), Math.min(...boxes.map((b) => b.top)),
    Math.max(...boxes.map((b) => b.right)), Math.max(...boxes.map((b) => b.bottom))];
  const whole = left >= frame.left && top >= frame.top && right <= frame.right && bottom <= frame.bottom;
  return [Math.min(...letters), Math.max(...letters), whole,
    Math.max((right - left) / frame.width, (bottom - top) / frame.height)];
}"""


@pytest.mark.parametrize("name", ["matmul", "conv2d", "pixel_unshuffle", "stacked_grouped_convolution"])
def test_a_complete_operator_fills_its_box(open_alone: OpenAlone, tmp_path: Path, name: str) -> None:
    Stepper.of(name, at_start=False).to_html(tmp_path / "page.html")
    for width, height in ((900, 1000), (1440, 900)):
        page = open_alone(tmp_path / "page.html", "light", width, height)
        expect(page.locator(".syno-graph svg")).to_be_visible()
        least, most, whole, filled = page.evaluate(SEEN)
        assert whole, width
        assert least > 10.99, width
        assert most < 18.01, width
        assert filled > 0.7, width
        expect(page.locator(".syno-map")).to_be_hidden()


def test_what_does_not_fit_pans_with_a_map(open_alone: OpenAlone, tmp_path: Path) -> None:
    operator = Operator.from_json(json.dumps(json.loads(LARGE.read_text())[3]))
    Stepper.of(operator, at_start=False).to_html(tmp_path / "page.html")
    page = open_alone(tmp_path / "page.html", "dark", 900, 900)
    shown = page.locator(".syno-map")
    expect(shown).to_be_visible()
    least, _, whole, _ = page.evaluate(SEEN)
    assert not whole
    assert least > 10.99
    expect(page.locator(".syno-graph .highlight").first).to_be_in_viewport()  # the last step
    before = page.locator('[data-id="y"]').bounding_box()
    shown.click(position={"x": 100, "y": 10})
    assert page.locator('[data-id="y"]').bounding_box() != before
    page.get_by_role("button", name="Show all", exact=True).click()
    assert page.evaluate(SEEN)[2]
    expect(shown).to_be_hidden()


def test_a_step_is_shown_before_it_is_taken(open_alone: OpenAlone, tmp_path: Path) -> None:
    stepper = Stepper.of(conv2d(), at_start=False)
    stepper.jump(4)
    stepper.to_html(tmp_path / "page.html")
    page = open_alone(tmp_path / "page.html", "light", 1440)
    page.locator('[data-group="UNFOLD"] > summary').click()
    step = page.locator('[data-group="UNFOLD"] .syno-step:enabled')
    expect(step.locator(".syno-notes")).to_contain_text("H, k")
    step.hover()
    ghost = page.locator(".syno-ghost")
    expect(ghost).to_contain_text("UNFOLD i_H, r_k_1")
    expect(page.locator(".syno-graph .syno-marked")).to_have_count(2)
    page.locator(".syno-graph").hover(position={"x": 5, "y": 5})
    expect(ghost).to_have_count(0)
    expect(page.locator(".syno-graph .syno-marked")).to_have_count(0)


def test_a_narrow_column_loses_nothing(open_alone: OpenAlone, tmp_path: Path) -> None:
    Stepper.of("operator_1", at_start=False).to_html(tmp_path / "page.html")
    page = open_alone(tmp_path / "page.html", "light", 360)
    expect(page.locator(".syno-graph svg")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(SEEN)[0] > 10.99
    for part in (".syno-graph", ".syno-map", ".syno-right", ".syno-history"):
        box = page.locator(part).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360


def test_a_picture_that_is_folded_away_comes_back(open_alone: OpenAlone, tmp_path: Path) -> None:
    Stepper.of("conv2d", at_start=False).to_html(tmp_path / "page.html")
    page = open_alone(tmp_path / "page.html", "light", 900)
    graph = page.locator(".syno-graph")
    expect(graph.locator("> svg").first).to_be_visible()
    for display in ("none", ""):
        graph.evaluate("(element, display) => { element.style.display = display; }", display)
        page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))"
        )
    # Without a size there is no scale. `open_alone` reports a view box without numbers: it is an error of the page.
    assert page.evaluate(SEEN)[0] > 10.99
