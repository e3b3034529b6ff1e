"""From one picture of a stepper to the next: the output stays where it is, and what moves is soon there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from syno_widgets import Stepper

from tests.browser.conftest import wait_for

pytestmark = pytest.mark.browser

_MOVING = "document.getAnimations().map((one) => one.effect.getTiming().duration)"


def _place(page: Page, name: str) -> tuple[float, float]:
    """The middle of a node, and how low it reaches, on the screen."""
    box = page.locator(f'.syno-graph [data-id="{name}"]').bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"]


def test_the_output_stays_and_moves_are_short(open_alone: Callable[..., Page], tmp_path: Path) -> None:
    file = tmp_path / "player.html"
    Stepper.of("operator_1").to_html(file)
    page = open_alone(file, "light", width=1300, height=1100)
    redo = page.get_by_role("button", name="Redo", exact=True)
    at = page.locator('.syno-place[aria-current="step"]')
    page.emulate_media(reduced_motion="reduce")  # nothing moves for a reader who does not want it
    start = _place(page, "y")
    scales = set()
    for place in range(1, 11):
        redo.click()
        expect(at).to_have_attribute("data-place", str(place))
        assert page.evaluate(_MOVING) == []
        x, y = _place(page, "y")
        assert abs(y - start[1]) < 1.5, place
        assert abs(x - start[0]) < 1.5, place
        frame = page.locator(".syno-graph").bounding_box()
        whole = page.locator(".syno-graph svg > g").first.bounding_box()
        assert frame is not None
        assert whole is not None
        assert whole["x"] >= frame["x"] - 1
        assert whole["x"] + whole["width"] <= frame["x"] + frame["width"] + 1
        assert whole["y"] >= frame["y"] - 1
        scales.add(round(page.locator(".syno-graph svg").evaluate("(svg) => svg.getScreenCTM().a"), 3))
    assert 1 < len(scales) < 6, "it shrinks now and then, not at each step"

    page.emulate_media(reduced_motion="no-preference")
    # In one evaluation: a move is over in less time than the answer to a click may take.
    moving = page.get_by_role("button", name="Undo", exact=True).evaluate(
        f"(button) => {{ button.click(); return new Promise((done) => requestAnimationFrame(() => done({_MOVING}))); }}"
    )
    assert moving
    assert max(moving) < 200


def test_a_picture_that_the_reader_has_moved_fits_again(open_alone: Callable[..., Page], tmp_path: Path) -> None:
    """Smaller, larger and Fit work in a frame that is much larger than its picture; another width is fitted too."""
    file = tmp_path / "player.html"
    Stepper.of("matmul").to_html(file)
    page = open_alone(file, "light")
    before = _place(page, "y")
    page.get_by_role("button", name="Make smaller").click()
    smaller = _place(page, "y")
    assert smaller[1] < before[1]
    page.get_by_role("button", name="Show all", exact=True).click()
    assert _place(page, "y") == pytest.approx(before, abs=1)
    page.set_viewport_size({"width": 600, "height": 900})
    frame = page.locator(".syno-graph")
    wait_for(page, lambda: frame.evaluate("(frame) => frame.clientWidth < 600"))
    box = frame.bounding_box()
    assert box is not None
    x, y = _place(page, "y")
    assert box["x"] < x < box["x"] + box["width"]
    assert y <= box["y"] + box["height"] + 1
