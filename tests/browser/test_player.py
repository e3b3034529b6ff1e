"""The page of a stepper plays its session without a kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect
from syno_widgets import Stepper

from syno_lab.ir.state import Step
from syno_lab.operators import conv2d
from syno_lab.sessions.session import session_of
from tests.browser.conftest import GROUNDS
from tests.browser.test_stepper import drawn

pytestmark = pytest.mark.browser


def branched() -> Any:
    session = session_of(conv2d())
    session.jump(4)
    session.apply(Step("SHIFT", (session.state.data[-1],)))
    session.jump(0)
    return session


def expected(session: Any, place: int) -> dict[str, str]:
    session.go(place)
    groups = ElementTree.fromstring(session.picture().svg).iter("{http://www.w3.org/2000/svg}g")
    found = {name: g.get("class", "") for g in groups if (name := g.get("id")) and g.get("class") != "graph"}
    return {name: kinds.replace(" highlight", "") for name, kinds in found.items()}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_a_player(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    file, session = tmp_path / "player.html", branched()
    Stepper.showing(branched()).to_html(file)
    page = open_alone(file, scheme)
    view = page.locator(".syno-stepper")
    status = view.get_by_role("status").first
    undo, redo = (view.get_by_role("button", name=name, exact=True) for name in ("Undo", "Redo"))

    def at(place: int) -> None:
        expect(view.locator('.syno-place[aria-current="step"]')).to_have_attribute("data-place", str(place))
        assert drawn(view) == expected(session, place)
        session.go(place)
        expect(status).to_have_text(session.status())
        assert page.url.endswith(f"#{place}")

    # Redo, Undo, and the choice of branches; what is written goes with the picture.
    expect(undo).to_be_disabled()
    expect(view).not_to_contain_text("false")
    for place in range(1, 5):
        redo.click()
        at(place)
    undo.click()
    at(3)
    expect(view.locator(".syno-branches")).to_be_hidden()
    redo.click()
    branches = view.get_by_role("group", name="Branches").get_by_role("button")
    expect(branches).to_have_count(2)
    branches.filter(has_text="UNFOLD").click()
    at(5)
    undo.click()
    redo.click()
    at(5)

    # Play takes the rest, and stops at the end.
    view.locator('.syno-place[data-place="2"]').click()
    at(2)
    view.get_by_role("button", name="Play", exact=True).click()
    expect(view.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    at(6)
    expect(status).to_have_text("Complete after 6 steps: this is conv2d.")
    expect(redo).to_be_disabled()
    expect(view.get_by_role("button", name="Play", exact=True)).to_be_disabled()

    # By keyboard; a step of the lists that the session has taken leads on, the others are to be read.
    view.locator(".syno-graph").focus()
    for _ in range(2):
        page.keyboard.press("Control+z")
    at(4)
    view.locator('[data-group="UNFOLD"] > summary').click()
    steps = view.locator('[data-group="UNFOLD"] > .syno-items .syno-step:enabled')
    expect(steps).to_have_count(1)
    steps.click()
    at(5)
    undo.click()
    at(4)
    # A coordinate leaves only the steps that use it.
    view.locator('.syno-graph [data-id="c3"]').click()
    expect(view.get_by_role("heading", name="Next steps with coordinate i_W of size W")).to_be_visible()
    expect(view.locator('.syno-step:not([data-operands~="c3"]):not([data-given~="c3"])')).to_have_count(0)
    for name in ("Suggest", "Complete at random", "Start over", "Load", "Open", "Compare"):
        expect(view.get_by_role("button", name=name, exact=True)).to_have_count(0)

    # The address leads back to the place, and to another one by hand.
    page.reload()
    at(4)
    page.evaluate("location.hash = '7'")
    at(7)
    page.evaluate("location.hash = 'syno'")
    at_end = view.locator('.syno-place[aria-current="step"]')
    expect(at_end).to_have_attribute("data-place", "7")
    assert view.evaluate("e => getComputedStyle(e).backgroundColor") == GROUNDS[scheme]
    page.screenshot(path=tmp_path / f"player-{scheme}.png", full_page=True)
