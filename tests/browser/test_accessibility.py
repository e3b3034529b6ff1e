"""Every widget can be read, light and dark.

axe-core (https://github.com/dequelabs/axe-core) has nothing serious to say. No text is cut or lies on other text, at
the widths that ``SYNO_WIDTHS`` names (1400; ``make screenshots`` takes 900, 1400 and 2000), and each tab of each view
leaves a screenshot. The comparison and the map have tests of their own for that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from html import escape
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from known_rungs import fill_rungs
from known_runs import fill_lab
from known_trees import known_search, small_spec
from pages import with_state
from playwright.sync_api import Browser, Page, expect
from syno_widgets import Explorer, OperatorView, RunsView, Stepper
from syno_widgets.course import Cards, Moved
from syno_widgets.jobs_view import JobsView

from syno_lab.alpha import Draft, Graph, Properties, Rel, operation
from syno_lab.canvas.known import squeeze_excite
from syno_lab.jobs import Lab as Jobs
from syno_lab.operators import conv2d, pixel_shuffle
from tests.browser.conftest import Lab
from tests.browser.test_lineage import individual
from tests.browser.test_stepper import open_notebook, run_cell, wait_for_kernel
from tests.browser.text_boxes import unreadable

pytestmark = pytest.mark.browser

NAMES = (
    *("stepper", "canvas", "alpha", "operator", "lineage"),
    *("runs", "rungs", "jobs", "space", "tree", "course"),
)
WIDTHS = [int(width) for width in os.environ.get("SYNO_WIDTHS", "1400").split(",")]
# The letters in pictures of operators are the drawing's, which has tests of its own: they are fitted to their boxes by
# textLength, which the boxes of the browser's ranges leave out.
DRAWN = ":is(.syno-graph, .syno-picture, .syno-edit-block) svg"
BINDING = {"N": 1, "C": 1, "H": 2, "W": 2, "s": 2}
ALL = """\
import syno_lab as sl
from syno_widgets import Explorer, OperatorView, RunsView, Stepper
stepper, view = Stepper.of("conv2d"), OperatorView(sl.operators.conv2d())
runs, explorer = RunsView({folder!r}), Explorer({folder!r}, depth=3)
for widget in (stepper, view, runs, explorer):
    display(widget)
"""


# What is folded away is looked at too.
UNFOLD = """place => {
  const found = document.querySelector(place);
  for (const one of found.querySelectorAll("details")) one.open = true;
  for (const one of found.querySelectorAll("[role=tabpanel]")) one.hidden = false;
}"""


def findings(page: Page, place: str) -> list[str]:
    """What axe-core finds serious or critical within an element: rule, what it says, and where."""
    page.evaluate(UNFOLD, place)
    found = Axe().run(page, context=place).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {node['html'][:300]} {node.get('failureSummary', '')}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each widget as a page that stands alone, by the class of its element."""
    home = tmp_path_factory.mktemp("pages")
    folder = home / "lab"
    folder.mkdir()
    fill_lab(folder, 30)
    made = {name: home / f"{name}.html" for name in NAMES}
    stepper = Stepper.of("conv2d")
    stepper.jump(4)
    stepper.to_html(made["stepper"])
    canvas = Stepper(squeeze_excite())
    canvas.jump(4)
    canvas.to_html(made["canvas"])
    shape = (2, 8, 8, 16)
    graph = Graph.chain(shape, [operation("conv", features=Rel(2)), operation("relu")])
    alpha = Stepper(Draft(Properties.of(graph), shape))
    alpha.suggest()
    alpha.to_html(made["alpha"])
    OperatorView(individual()).to_html(made["lineage"], panes=["graph", "lineage"])
    OperatorView(conv2d()).to_html(
        made["operator"], panes=["graph", "loops", "source", "equation", "cost", "mixing", "kernel", "near"]
    )
    runs = RunsView(folder)
    runs.to_html(made["runs"])
    runs.close()
    (home / "rungs").mkdir()
    fill_rungs(home / "rungs")
    rungs = RunsView(home / "rungs", pane="search")
    rungs.to_html(made["rungs"])
    rungs.close()
    with Jobs.open(folder, start=False) as opened:
        jobs = JobsView(opened)
        jobs.to_html(made["jobs"])
        jobs.close()
    space = Explorer(small_spec(), depth=2)
    assert space.wait(120)
    space.chosen = space.boxes[1]["key"]
    space.to_html(made["space"])
    space.close()
    with known_search(folder, 12):
        tree = Explorer(folder, source="search:mine", chosen="1")
        tree.to_html(made["tree"])
        tree.close()
    moved = Moved(pixel_shuffle(), BINDING)
    made["course"].write_text(
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>{escape('Course')}</title><main>{moved._repr_svg_()}{Cards()._repr_html_()}</main></html>"
    )
    return made


@pytest.mark.parametrize("name", NAMES)
def test_pages(open_alone: Callable[..., Page], pages: dict[str, Path], name: str) -> None:
    page = open_alone(pages[name], "light")
    expect(page.locator("main > *").first).to_be_visible()
    assert findings(page, "main") == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert findings(page, "main") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_text_is_whole(
    open_alone: Callable[..., Page], pages: dict[str, Path], tmp_path: Path, name: str, scheme: str
) -> None:
    page = open_alone(pages[name], scheme)
    expect(page.locator("main > *").first).to_be_visible()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 1000})
        for tab in page.get_by_role("tab").all() or [None]:
            part = ""
            if tab is not None:
                if not tab.is_visible():
                    continue
                tab.click()
                part = f"-{(tab.text_content() or '').lower().replace(' ', '-')}"
            assert unreadable(page, "main", skip=DRAWN) == [], f"{name}{part} at {width}"
            page.screenshot(path=tmp_path / f"{name}{part}-{scheme}-{width}.png", full_page=True)


@pytest.mark.parametrize(
    ("name", "what"),
    [("stepper", "stepper"), ("operator", "operator"), ("runs", "runs"), ("jobs", "jobs"), ("tree", "explorer")],
)
def test_what_cannot_be_shown_says_so(
    open_alone: Callable[..., Page], pages: dict[str, Path], tmp_path: Path, name: str, what: str
) -> None:
    (tmp_path / "broken.html").write_text(with_state(pages[name].read_text(), {}))
    page = open_alone(tmp_path / "broken.html", "dark")
    expect(page.get_by_role("alert").filter(has_text=f"The {what} cannot be shown: ")).to_be_visible()
    assert findings(page, "main") == []


@pytest.mark.parametrize("name", ["stepper", "operator", "runs", "jobs", "tree"])
def test_a_page_without_scripts_or_data_says_so_above_its_picture(
    browser: Browser, open_alone: Callable[..., Page], pages: dict[str, Path], tmp_path: Path, name: str
) -> None:
    kept = f"[data-syno-static] {'table' if name == 'jobs' else 'img'}"
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(pages[name].as_uri())
    assert "This page needs JavaScript" in page.locator("noscript").inner_text()
    assert page.locator(kept).first.is_visible()
    context.close()

    cut = re.sub('(id="state">[^<]{40})[^<]*', r"\1", pages[name].read_text())
    (tmp_path / "cut.html").write_text(cut)
    page = open_alone(tmp_path / "cut.html", "dark")
    expect(page.get_by_role("alert")).to_contain_text("This page is damaged, or the browser is too old for it")
    expect(page.locator(kept).first).to_be_visible()
    assert findings(page, "main") == []


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_in_the_lab(page: Page, lab: Lab, tmp_path: Path, theme: str) -> None:
    fill_lab(tmp_path, 10)
    with known_search(tmp_path, 8), lab.themed(theme):
        lab.write_notebook("accessible.ipynb", ALL.format(folder=str(tmp_path)))
        open_notebook(page, lab, "accessible.ipynb")
        expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
        wait_for_kernel(page)
        run_cell(page, 0)
        for name, drawn in (
            ("stepper", ".syno-graph svg"),
            ("operator", ".syno-graph svg"),
            ("runs", ".syno-front [data-key]"),
            ("explorer", ".syno-box"),
        ):
            view = page.locator(f".syno-{name}").first
            expect(view.locator(drawn).first).to_be_attached()
            assert findings(page, f".syno-{name}") == []
            view.screenshot(path=tmp_path / f"{name}.png")
