"""The map as a page that stands alone, by keyboard, and the atlas, whose links lead to the operators' pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from known_runs import fill_lab
from playwright.sync_api import Page, expect
from syno_widgets import Map

from tests.browser.conftest import GROUNDS
from tests.browser.test_accessibility import findings
from tests.browser.text_boxes import unreadable

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_map_and_its_atlas(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    fill_lab(tmp_path, 3)
    view = Map(tmp_path, known=scheme == "dark")  # with the known operators once: there are many
    view.to_html(tmp_path / "map.html")
    shown = view.shown
    index = view.write(tmp_path / "atlas", panes=["graph"]) if scheme == "light" else None
    view.close()
    assert (tmp_path / "map.html").stat().st_size < 2_000_000
    page = open_alone(tmp_path / "map.html", scheme)
    drawn = page.locator(".syno-map")
    expect(drawn.locator(".syno-graph [role=button]")).to_have_count(len(shown["places"]))
    assert drawn.evaluate("e => getComputedStyle(e).backgroundColor") == GROUNDS[scheme]

    # By keyboard from place to place; what it is is said.
    drawn.locator(".syno-graph [role=button]").first.focus()
    expect(drawn.locator(".syno-said")).to_have_text(shown["places"][0]["text"])
    page.keyboard.press("ArrowRight")
    expect(drawn.locator(".syno-said")).to_have_text(shown["places"][1]["text"])
    drawn.get_by_label("Search the map").fill("trial 1")
    expect(drawn.locator(".syno-found-count")).to_have_text("1 found")
    drawn.locator("tbody tr").last.hover()
    expect(drawn.locator(".syno-said")).to_have_text(shown["places"][-1]["text"])
    for width in (900, 1400, 2000):
        page.set_viewport_size({"width": width, "height": 1000})
        assert unreadable(page, "main") == []
        page.screenshot(path=tmp_path / f"map-{scheme}-{width}.png")
    assert findings(page, "main") == []
    if index is None:
        return
    page = open_alone(index, scheme)
    for width in (900, 1400, 2000):
        page.set_viewport_size({"width": width, "height": 1000})
        assert unreadable(page, "main") == []
    assert findings(page, "main") == []
    place = shown["places"][0]
    page.keyboard.press("Tab")  # to the first place of the map
    page.keyboard.press("Enter")
    expect(page.locator(".syno-operator .syno-title")).to_have_text(place["name"])
    expect(page.locator(".syno-operator .syno-graph svg")).to_be_visible()
