"""What a look at the views found, at 900 pixels on a dark ground."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from known_rungs import fill_rungs
from known_trees import small_spec
from playwright.sync_api import Page, expect
from syno_widgets import Explorer, OperatorView, RunsView, Stepper

from syno_lab.canvas.system import CANVAS
from syno_lab.drawing.style import DARK_GROUND, DARK_INK, DARK_LOOKS
from syno_lab.operators import operator_1
from tests.browser.test_lineage import individual

pytestmark = pytest.mark.browser

OpenAlone = Callable[..., Page]
COLOUR = "(one) => getComputedStyle(one).fill"


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_explorers_picture_is_of_its_ground(open_alone: OpenAlone, tmp_path: Path, scheme: str) -> None:
    explorer = Explorer(small_spec(), depth=2)
    assert explorer.wait(120)
    explorer.chosen = next(box["key"] for box in explorer.boxes if box["text"] == "REDUCE C_in")
    explorer.to_html(tmp_path / "space.html")
    explorer.close()
    page = open_alone(tmp_path / "space.html", scheme, width=900)
    picture = page.locator(".syno-explorer .syno-picture")
    expect(picture.locator("svg")).to_be_visible()
    assert picture.evaluate("(one) => getComputedStyle(one).backgroundColor") == "rgba(0, 0, 0, 0)"
    reduce = picture.locator(".REDUCE ellipse")
    assert (reduce.evaluate(COLOUR) == rgb(DARK_LOOKS["REDUCE"][0])) == (scheme == "dark")
    # Steps are set as in the picture, and read and copied as they are written.
    step = page.locator(".syno-table tbody button").first
    assert step.evaluate("(one) => getComputedStyle(one).opacity") == "1", "no button here, and to be read"
    expect(page.locator('.syno-box:has-text("REDUCE C_in") .syno-low').first).to_be_visible()
    expect(step.locator(".syno-low").first).to_be_visible()


def fills(page: Page, boxes: str) -> set[str]:
    """The colours of the boxes of a picture."""
    found: list[str] = page.locator(f"{boxes} > :is(polygon, path, ellipse)").evaluate_all(
        f"(all) => all.map({COLOUR})"
    )
    return set(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_lineage_is_of_its_ground(open_alone: OpenAlone, tmp_path: Path, scheme: str) -> None:
    OperatorView(individual(), pane="lineage").to_html(tmp_path / "lineage.html", panes=["lineage"])
    page = open_alone(tmp_path / "lineage.html", scheme, width=900)
    label = page.locator(".syno-edit-block:visible .edge text").first
    box = page.locator(".syno-edit-block:visible .operation text").first
    for text in (label, box):
        assert (text.evaluate(COLOUR) == rgb(DARK_INK)) == (scheme == "dark")
    shown = fills(page, ".syno-edit-block:visible .operation")
    assert len(shown) > 2
    dark = {rgb(fill) for fill, _ in DARK_LOOKS.values()}
    assert shown <= dark if scheme == "dark" else not shown & dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_signs_of_the_lists_are_of_their_ground(open_alone: OpenAlone, tmp_path: Path, scheme: str) -> None:
    """Their plates are white; on a dark ground the plate and the sign are turned over."""
    Stepper(small_spec()).to_html(tmp_path / "stepper.html")
    page = open_alone(tmp_path / "stepper.html", scheme, width=900)
    sign = page.locator(".syno-stepper .syno-menu .syno-sign").first
    expect(sign).to_be_visible()
    page.locator(".syno-menu").screenshot(path=tmp_path / f"signs-{scheme}.png")
    turned = sign.evaluate("(one) => getComputedStyle(one).filter")
    assert turned == ("invert(0.9) hue-rotate(180deg)" if scheme == "dark" else "none")


def test_the_tensors_of_canvas_are_of_their_ground(open_alone: OpenAlone, tmp_path: Path) -> None:
    kernel = next(make() for make in CANVAS.known.values() if any(len(node.inputs) > 1 for node in make().kernel.nodes))
    OperatorView(kernel).to_html(tmp_path / "kernel.html", panes=["graph"])
    page = open_alone(tmp_path / "kernel.html", "dark", width=900)
    shown = fills(page, ".syno-graph .node")
    assert len(shown) > 2
    assert shown <= {rgb(fill) for fill, _ in DARK_LOOKS.values()}
    # The names of primitives stand on plates of their family's colour.
    plates = page.locator(".syno-graph .edge > polygon[stroke='none']").evaluate_all(f"(all) => all.map({COLOUR})")
    assert len(set(plates)) > 1
    assert set(plates) <= {rgb(DARK_GROUND), *(rgb(fill) for fill, _ in DARK_LOOKS.values())}
    caption = page.locator(".syno-graph .graph > polygon[fill='#ffffff']")
    assert caption.count() == 0 or caption.first.evaluate(COLOUR) == rgb(DARK_GROUND)


def test_all_columns_of_the_costs_are_seen_and_no_line_of_code_is_broken(open_alone: OpenAlone, tmp_path: Path) -> None:
    file = tmp_path / "operator.html"
    OperatorView(operator_1()).to_html(file, panes=["graph", "source", "cost", "mixing", "equation"])
    page = open_alone(file, "dark", width=900)
    page.get_by_role("tab", name="Cost").click()
    frame = page.locator(".syno-costs")
    heads = frame.get_by_role("columnheader")
    expect(heads).to_have_count(8)
    for width in (2000, 1400, 900):
        page.set_viewport_size({"width": width, "height": 1000})
        around = frame.bounding_box()
        assert around is not None
        for cell in [*heads.all(), *frame.get_by_role("cell").all()]:
            box = cell.bounding_box()
            assert box is not None
            assert around["x"] - 1 <= box["x"]
            assert box["x"] + box["width"] <= around["x"] + around["width"] + 1, f"at {width}"
    # Neither the caption of the matrix nor an equation goes on beyond the edge of its pane.
    for tab in ("Mixing", "Equation"):
        page.get_by_role("tab", name=tab).click()
        inside = page.locator("[role=tabpanel]:visible :is(caption, svg)")
        expect(inside.first).to_be_visible()
        pane = page.locator("[role=tabpanel]:visible").bounding_box()
        assert pane is not None
        for one in inside.all():
            box = one.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= pane["x"] + pane["width"] + 1
    page.get_by_role("tab", name="PyTorch").click()
    lines = page.locator("[data-panel=source] .syno-line")
    # No line is broken: what is wider than the pane is reached by scrolling, and can be copied in one piece.
    rows = lines.evaluate_all("(lines) => lines.map((line) => line.getClientRects().length)")
    assert set(rows) == {1}
    heights = lines.evaluate_all("(lines) => lines.map((line) => Math.round(line.getBoundingClientRect().height))")
    assert max(heights) < 2 * min(height for height in heights if height)
    block = page.locator("[data-panel=source] .syno-code").first
    assert block.evaluate("(one) => one.scrollWidth > one.clientWidth")
    expect(page.get_by_role("button", name="Copy PyTorch")).to_be_visible()


@pytest.mark.parametrize("width", [900, 2000])
def test_letters_of_charts_are_as_large_at_every_width(open_alone: OpenAlone, tmp_path: Path, width: int) -> None:
    fill_rungs(tmp_path)
    runs = RunsView(tmp_path)
    runs.to_html(tmp_path / "runs.html")
    runs.close()
    page = open_alone(tmp_path / "runs.html", "dark", width=width)
    page.locator(".syno-runs summary", has_text="Hypervolume").click()
    for chart in (".syno-front", ".syno-chart"):
        one = page.locator(f".syno-runs {chart}").first
        expect(one).to_be_visible()
        assert one.evaluate("(svg) => svg.getScreenCTM().a") == pytest.approx(1, abs=0.02)
    # The menu of formats and its button stand in one line.
    form = page.get_by_label("Format of the file").bounding_box()
    save = page.get_by_role("button", name="Save").bounding_box()
    assert form is not None
    assert save is not None
    assert abs(form["y"] - save["y"]) < 4
    drag = page.get_by_label("Drag:").bounding_box()
    assert drag is not None
    assert abs(form["y"] - drag["y"]) < 4, "they stand beside what else the bar has, at its end"
    assert form["x"] > drag["x"] + drag["width"]
    assert "e+" not in (page.get_by_role("status").first.text_content() or "")
