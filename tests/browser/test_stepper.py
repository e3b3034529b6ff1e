"""The stepper in JupyterLab, by mouse and by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from syno_widgets import Stepper

from syno_lab.codegen import drawing
from syno_lab.operators import KNOWN, conv2d
from syno_lab.sessions.session import Session
from tests.browser.conftest import GROUNDS, Lab

pytestmark = pytest.mark.browser

SETUP = """\
import syno_lab as sl
from syno_widgets import Stepper
stepper = Stepper(sl.Spec.parse(
    "[N, C_in, H, W]", "[N, C_out, H, W]", ["N", "C_in", "C_out", "H", "W"], ["k_1=3"], fixed_io_pairs=[(0, 0)]))
stepper
"""
COMPARE = "print('SAME', stepper.operator == sl.operators.conv2d(), stepper.session.position)"


def open_notebook(page: Page, lab: Lab, name: str) -> None:
    page.goto(f"{lab.url}lab/tree/{name}?reset&token={lab.token}")
    expect(page.locator(".jp-Notebook .jp-Cell").first).to_be_visible()


def wait_for_kernel(page: Page) -> None:
    expect(page.get_by_role("button", name=re.compile(r"\| Idle$"))).to_be_visible()


def run_cell(page: Page, number: int) -> None:
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")


def open_stepper(page: Page, lab: Lab, name: str) -> Locator:
    lab.write_notebook(name, SETUP, COMPARE)
    open_notebook(page, lab, name)
    wait_for_kernel(page)
    run_cell(page, 0)
    stepper = page.locator(".syno-stepper")
    expect(stepper).to_be_visible()
    return stepper


def drawn(stepper: Locator) -> dict[str, str]:
    """The nodes and lines of the drawing on the page: id to kinds."""
    groups = stepper.locator(".syno-graph svg g[data-id]:not(.graph)")
    found: dict[str, str] = groups.evaluate_all(
        "gs => Object.fromEntries(gs.map(g => [g.dataset.id, g.getAttribute('class')]))"
    )
    marks = {"highlight", "syno-marked", "syno-lit", "syno-found"}
    return {name: " ".join(kind for kind in kinds.split() if kind not in marks) for name, kinds in found.items()}


def expected_drawing() -> dict[str, str]:
    root = ElementTree.fromstring(drawing.svg(conv2d()))
    groups = root.iter("{http://www.w3.org/2000/svg}g")
    # A hull behind the parts of a CONTRACTION has no name.
    return {name: g.get("class", "") for g in groups if (name := g.get("id")) and g.get("class") != "graph"}


def opened(stepper: Locator, primitive: str) -> Locator:
    group = stepper.locator(f'[data-group="{primitive}"]')
    if group.get_attribute("open") is None:
        group.locator("> summary").click()
    return group


def take(stepper: Locator, primitive: str, text: str) -> None:
    """Open a group and click the canonical step with exactly this text."""
    settled(stepper)
    before = stepper.locator(".syno-place").count()
    opened(stepper, primitive).locator(f'> .syno-items [data-text="{text}"]').click()
    expect(stepper.locator(".syno-place")).to_have_count(before + 1)
    settled(stepper)


def press(stepper: Locator, name: str) -> None:
    settled(stepper)
    more(stepper, name)
    stepper.get_by_role("button", name=name, exact=True).click()
    settled(stepper)


def more(stepper: Locator, name: str) -> None:
    """Open the menu, if the button is in it."""
    inside = stepper.locator(".syno-drop:not([open])").filter(
        has=stepper.page.locator("button").get_by_text(name, exact=True)
    )
    if inside.count():
        inside.locator("summary").click()


def load(stepper: Locator, operator: str, how: str = "Load") -> None:
    """Choose a known operator in the menu, and press Load or Replay."""
    more(stepper, how)
    stepper.get_by_label("Known operator", exact=True).select_option(operator)
    press(stepper, how)


def settled(stepper: Locator) -> None:
    """The kernel has answered: the picture comes first, the lists of next steps after it."""
    expect(stepper).not_to_have_attribute("aria-busy", "true")


def go(stepper: Locator, place: int) -> None:
    settled(stepper)
    stepper.locator(f'.syno-place[data-place="{place}"]').click()
    at(stepper, place)


def at(stepper: Locator, place: int) -> None:
    settled(stepper)
    expect(stepper.locator('.syno-place[aria-current="step"]')).to_have_attribute("data-place", str(place))


def test_conv2d_by_mouse(page: Page, lab: Lab) -> None:
    stepper = open_stepper(page, lab, "clicks.ipynb")
    status = stepper.get_by_role("status").first
    expect(status).to_contain_text("After 0 steps: shape distance 2")
    take(stepper, "REDUCE", "REDUCE C_in")
    take(stepper, "REDUCE", "REDUCE k_1")
    take(stepper, "REDUCE", "REDUCE k_1")
    # The contraction is ticked by hand: three coordinates shared, one given.
    group = opened(stepper, "SHARE")
    for name in ("r_C_in of size C_in", "r_k_1 of size k_1", "r_k_1__2 of size k_1"):
        group.get_by_label(f"share {name}", exact=True).check()
    group.get_by_label("give i_C_out of size C_out", exact=True).check()
    expect(group.locator(".syno-preview")).to_contain_text("Canonical: distance 1")
    group.get_by_role("button", name="Contract with a new weight").click()
    at(stepper, 4)
    take(stepper, "UNFOLD", "UNFOLD i_H, r_k_1")
    # On the picture: a click on a coordinate leaves only what can be done with it.
    stepper.locator('.syno-graph [data-id="c3"]').click()
    expect(stepper.get_by_role("heading", name="Next steps with coordinate i_W of size W")).to_be_visible()
    others = stepper.locator('.syno-step:not([data-operands~="c3"]):not([data-given~="c3"])')
    expect(others).to_have_count(0)
    take(stepper, "UNFOLD", "UNFOLD i_W, r_k_1__2")
    expect(status).to_have_text("Complete after 6 steps: this is conv2d.")
    assert drawn(stepper) == expected_drawing()
    run_cell(page, 1)
    expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text("SAME True 6")
    # While the widget lives, the static picture beside it is hidden.
    expect(page.locator("[data-syno-static]")).to_have_count(1)
    expect(page.locator("[data-syno-static]")).to_be_hidden()

    # Back to the start and forth again; the line of distances is that of the steps.
    for place in range(5, -1, -1):
        press(stepper, "Undo")
        at(stepper, place)
    expect(stepper.get_by_role("button", name="Undo", exact=True)).to_be_disabled()
    assert not [name for name in drawn(stepper) if name.startswith("s")]
    for place in range(1, 7):
        press(stepper, "Redo")
        at(stepper, place)
    assert drawn(stepper) == expected_drawing()
    expect(stepper.get_by_role("img", name=re.compile("over the steps: 2, .*, 0; shown is place 6"))).to_be_visible()
    press(stepper, "Start over")
    expect(status).to_contain_text("After 0 steps")
    press(stepper, "Undo")
    expect(status).to_contain_text("this is conv2d")

    # Why a step is pruned, both expressions drawn; it can be taken all the same, and begins a branch.
    go(stepper, 5)
    unfold = opened(stepper, "UNFOLD")
    unfold.locator(".syno-pruned > summary").click()
    pruned = unfold.locator(".syno-pruned li").first
    pruned.locator(".syno-reason > summary").click()
    expect(pruned.locator(".syno-reason")).to_contain_text(re.compile(r"\((exact|approximate|space)"))
    expect(pruned.locator(".syno-reason")).to_contain_text("→")
    pruned.locator(".syno-step").click()
    at(stepper, 8)
    expect(stepper.locator('.syno-place[data-place="8"]')).to_contain_text("branch: UNFOLD")
    go(stepper, 6)
    expect(status).to_contain_text("this is conv2d")
    go(stepper, 8)
    expect(status).to_contain_text("After 6 steps")


def test_help_and_sessions(page: Page, lab: Lab) -> None:
    stepper = open_stepper(page, lab, "help.ipynb")
    status = stepper.get_by_role("status").first
    press(stepper, "Suggest")
    expect(status).to_contain_text("After 1 step: shape distance 1")
    press(stepper, "Suggest to the end")
    expect(status).to_contain_text("Complete after 2 steps")  # it plays by itself
    at(stepper, 2)

    # Random canonical steps to an operator, played one by one.
    go(stepper, 0)
    press(stepper, "Complete at random")
    expect(status).to_contain_text(re.compile("^Complete after"))
    settled(stepper)

    # A known operator, replayed from its start.
    load(stepper, "pixel_shuffle", "Replay")
    expect(status).to_contain_text("After 0 steps")
    press(stepper, "Play")
    expect(status).to_contain_text("this is pixel_shuffle")
    settled(stepper)

    # A hostile text is refused in place, another session is opened beside what was built.
    places = stepper.locator(".syno-place").count()
    if stepper.locator(".syno-session").get_attribute("open") is None:
        stepper.locator(".syno-session summary").click()
    text = stepper.get_by_label("A session or an operator, as text")
    text.fill('{"format": "syno-lab-operator", "version": 1, "primary": "<img src=x onerror=alert(1)>"}')
    press(stepper, "Open")
    expect(stepper.get_by_role("alert")).to_contain_text("operator file: expected JSON")
    expect(stepper.locator(".syno-place")).to_have_count(places)
    text.fill(Session(conv2d()).to_word())
    press(stepper, "Open")
    expect(status).to_have_text("Complete after 6 steps: this is conv2d.")
    expect(stepper.locator(".syno-place")).to_have_count(places + 7)
    assert drawn(stepper) == expected_drawing()

    # A kernel that is gone is said in place, and what was built stays.
    lab.stop_kernels()
    stepper.get_by_role("button", name="Undo", exact=True).click()
    expect(status).to_contain_text("The kernel does not answer")
    expect(stepper.get_by_role("button", name="Copy session")).to_be_visible()
    assert drawn(stepper) == expected_drawing()


LARGE = """\
import syno_lab as sl
from syno_widgets import Stepper
stepper = Stepper(sl.operators.operator_1().spec, seed=3)
spec = sl.Spec.parse(
    "[N, C_in, H, W]", "[N, C_out, H, W]", ["N: 0", "C_in: 3", "C_out: 4", "H: 0", "W: 0"],
    [f"k_{i}={i + 2}: 2" for i in range(12)], max_primitives=20, fixed_io_pairs=[(0, 0)])
stepper
"""
ENDLESS = """\
# However fast this machine is: the search begins again until it is stopped.
import syno_lab.pgraphs.stepping as module
from syno_lab.errors import StoppedError
once = module.random_way
def again(state, rng, rules, *, seconds, should_stop):
    while not should_stop():
        once(state, rng, rules, seconds=seconds, should_stop=should_stop)
    raise StoppedError("stopped while looking")
module.random_way = again
"""


def test_complete_at_random_is_cancelled(page: Page, lab: Lab) -> None:
    lab.write_notebook("long.ipynb", LARGE, ENDLESS, "print('FREE', 6 * 7)", "module.random_way = once")
    open_notebook(page, lab, "long.ipynb")
    wait_for_kernel(page)
    run_cell(page, 0)
    stepper = page.locator(".syno-stepper")
    expect(stepper).to_be_visible()
    run_cell(page, 1)
    random, cancel = (stepper.get_by_role("button", name=name, exact=True) for name in ("Complete at random", "Cancel"))
    said = stepper.locator(".syno-running [aria-live]")
    places = stepper.locator(".syno-place")
    before = drawn(stepper)

    def begin() -> None:
        settled(stepper)
        expect(cancel).to_be_hidden()
        more(stepper, "Complete at random")
        random.click()
        expect(cancel).to_be_visible()
        expect(said).to_have_text("Under way: looking for random steps to the input.")

    def ended() -> None:
        expect(cancel).to_be_hidden()
        expect(stepper.get_by_role("alert")).to_have_text("cancelled: looking for random steps to the input")
        expect(said).to_have_text("")
        settled(stepper)
        expect(places).to_have_count(1)
        assert drawn(stepper) == before

    begin()
    # Other cells are answered meanwhile.
    run_cell(page, 2)
    expect(page.locator(".jp-CodeCell").nth(2)).to_contain_text("FREE 42")
    expect(cancel).to_be_visible()
    cancel.click()
    ended()
    # By keyboard: Escape anywhere in the view, and the button by Tab; the focus is not lost.
    begin()
    page.keyboard.press("Escape")
    ended()
    begin()
    for _ in range(20):
        page.keyboard.press("Tab")
        if cancel.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.press("Enter")
    ended()
    expect(stepper.get_by_label("More", exact=True)).to_be_focused()
    # Another request takes its place.
    begin()
    more(stepper, "Suggest")
    stepper.get_by_role("button", name="Suggest", exact=True).click()
    expect(stepper.get_by_role("status").first).to_contain_text("After 1 step:")
    settled(stepper)
    expect(cancel).to_be_hidden()
    # The stepper goes on, and the same button works.
    run_cell(page, 3)
    press(stepper, "Complete at random")
    expect(stepper.get_by_role("status").first).to_contain_text(re.compile("^Complete after"))


def test_the_keyboard_is_enough(page: Page, lab: Lab) -> None:
    stepper = open_stepper(page, lab, "keys.ipynb")
    status = stepper.get_by_role("status").first

    def tab_to(selector: str, key: str = "Tab") -> None:
        """Press Tab until the focus is on the first element that fits."""
        settled(stepper)
        wanted = stepper.locator(selector).first
        for _ in range(80):
            if wanted.evaluate("element => element === document.activeElement"):
                return
            page.keyboard.press(key)
        raise AssertionError(f"{key} does not lead to {selector}")

    def reduce(size: str, count: str) -> None:
        tab_to(f'[data-group="REDUCE"] > .syno-items [data-text="REDUCE {size}"]')
        page.keyboard.press("Enter")
        expect(status).to_contain_text(f"After {count}")
        # The focus stays in the group.
        expect(stepper.locator('[data-group="REDUCE"] > summary')).to_be_focused()

    stepper.get_by_label("More", exact=True).focus()
    tab_to('[data-group="REDUCE"] > summary')
    page.keyboard.press("Enter")
    reduce("C_in", "1 step")
    reduce("k_1", "2 steps")
    reduce("k_1", "3 steps")
    tab_to('[data-group="SHARE"] > summary')
    page.keyboard.press("Enter")
    tab_to('[data-tick="give-c1"]')
    page.keyboard.press("Space")
    expect(stepper.locator(".syno-preview")).to_contain_text("Not possible. SHARE: expected at least one shared")
    for name in ("c4", "c5", "c6"):
        tab_to(f'[data-tick="share-{name}"]')
        page.keyboard.press("Space")
        expect(stepper.locator(f'.syno-graph [data-id="{name}"]')).to_have_class(re.compile("syno-marked"))
    expect(stepper.locator(".syno-preview")).to_contain_text("Canonical: distance 1")
    tab_to('[data-kind="contract"]')
    page.keyboard.press("Enter")
    expect(status).to_contain_text("After 4 steps")
    # On the picture: to a coordinate by arrow keys, Enter leads to what can be done with it.
    for name, text in (("c2", "UNFOLD i_H, r_k_1"), ("c3", "UNFOLD i_W, r_k_1__2")):
        tab_to('.syno-graph [role="button"][tabindex="0"]', "Shift+Tab")
        for _ in range(20):
            if page.evaluate("document.activeElement.dataset.id") == name:
                break
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(stepper.get_by_role("heading", name=re.compile("Next steps with coordinate"))).to_be_visible()
        expect(stepper.locator(".syno-menu summary").first).to_be_focused()
        tab_to(f'[data-group="UNFOLD"] > .syno-items [data-text="{text}"]')
        page.keyboard.press("Enter")
        expect(status).to_contain_text(re.compile("After 5 steps|Complete after 6 steps"))
        expect(stepper.get_by_role("heading", name="Next steps", exact=True)).to_be_visible()
    expect(status).to_have_text("Complete after 6 steps: this is conv2d.")
    assert drawn(stepper) == expected_drawing()
    page.keyboard.press("Control+z")
    expect(status).to_contain_text("After 5 steps")
    page.keyboard.press("Control+y")
    expect(status).to_contain_text("this is conv2d")
    # To any place: the tree is one stop of Tab, arrow keys lead through it.
    tab_to('.syno-place[aria-current="step"]', "Shift+Tab")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(status).to_contain_text("After 1 step:")


@pytest.fixture(scope="module")
def saved() -> Any:
    """A notebook executed without a browser, the pGraph stepped on after it was shown; with its widgets' state."""
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, "stepper.load('conv2d'); None")]
    book = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": ""}})
    NotebookClient(book, timeout=120).execute()
    return book


def test_a_saved_notebook_holds_the_latest_picture(saved: Any) -> None:
    live, static = saved.cells[0].outputs
    assert "application/vnd.jupyter.widget-view+json" in live["data"]
    assert live["data"]["image/svg+xml"].startswith("<svg")
    assert static["data"]["text/plain"] == drawing.describe(conv2d())
    assert static["data"]["image/svg+xml"] == drawing.svg(conv2d(), highlight=[5], is_steady=True)


@pytest.mark.parametrize("kind", ["untrusted", "trusted", "trusted, with the state of its widgets"])
def test_without_a_kernel_the_picture_is_there(page: Page, lab: Lab, saved: Any, kind: str) -> None:
    import nbformat
    from nbformat.sign import NotebookNotary

    book = nbformat.from_dict(saved)
    widgets = saved.metadata["widgets"]
    # Lab starts no kernel by itself for a notebook that names none: it asks.
    book.metadata = nbformat.NotebookNode({"widgets": widgets} if "state" in kind else {})
    if kind != "untrusted":
        notary = NotebookNotary(data_dir=str(lab.data))
        notary.sign(book)
        notary.store.close()
    lab.stop_kernels()
    path = lab.folder / f"{kind.replace(', ', '_').replace(' ', '_')}.ipynb"
    nbformat.write(book, path)
    page.goto(f"{lab.url}lab/tree/{path.name}?reset&token={lab.token}")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Select Kernel")
    dialog.get_by_role("button", name=re.compile("No Kernel")).click()
    words = drawing.describe(conv2d())
    # JupyterLab restores widgets from a file only once there is a kernel: the picture beside the widget is what shows.
    picture = page.locator(f'.jp-OutputArea img[alt="{words}"]')
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.complete && image.naturalWidth > 100")
    assert lab.call("api/kernels") == []


def test_the_exported_page_shows_the_picture(browser: Browser, tmp_path: Path, saved: Any) -> None:
    """nbconvert's page asks for widget scripts on the network; without them the picture must be there all the same."""
    import nbformat
    from nbconvert import HTMLExporter

    book = nbformat.from_dict(saved)
    book.metadata = nbformat.NotebookNode({})
    html, _ = HTMLExporter().from_notebook_node(book)
    export = tmp_path / "saved.html"
    export.write_text(html, encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(export.as_uri())
    picture = page.locator(".syno-static img")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth > 100")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_that_stands_alone(open_alone: Callable[..., Page], tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "stepper.html"
    Stepper.of("conv2d", at_start=False).to_html(file)
    page = open_alone(file, scheme)
    view = page.locator(".syno-stepper")
    expect(view.get_by_role("status").first).to_have_text("Complete after 6 steps: this is conv2d.")
    assert drawn(view) == expected_drawing()
    expect(view.locator(".syno-place")).to_have_count(7)
    view.get_by_label("Search the pGraph").fill("unfold")
    expect(view.locator(".syno-found-count")).to_have_text("2 found")
    view.locator(".syno-groups summary").click()
    expect(view.get_by_role("img", name="Reshape groups")).to_be_visible()
    assert view.evaluate("e => getComputedStyle(e).backgroundColor") == GROUNDS[scheme]
    page.screenshot(path=tmp_path / f"stepper-{scheme}.png", full_page=True)


def test_every_place_of_a_long_history_can_be_reached(open_alone: Callable[..., Page], tmp_path: Path) -> None:
    session = Session(conv2d(), KNOWN)
    for _ in range(30):
        session.load("conv2d")
    session.go(100)
    file = tmp_path / "stepper.html"
    Stepper.of(session.to_word()).to_html(file)
    page = open_alone(file, "light")
    history = page.locator(".syno-history")
    places = history.locator(".syno-place")

    def shown() -> list[int]:
        found: list[int] = places.evaluate_all("all => all.map(one => Number(one.dataset.place))")
        return found

    expect(places).to_have_count(60)
    expect(history.locator('[aria-current="step"]')).to_have_attribute("data-place", "100")
    expect(history.locator('[aria-current="step"]')).to_be_in_viewport()
    expect(history.locator("li:has([aria-current])")).to_have_attribute("aria-posinset", "101")
    seen = set(shown())
    for words in ("before", "behind"):
        more = history.get_by_role("button", name=re.compile(f"{words} these"))
        while more.count():
            was = shown()
            more.click()
            assert set(was) & set(shown()), "nothing is passed over"
            assert len(shown()) == 60
            seen |= set(shown())
    assert seen == set(range(217))
    places.first.focus()
    page.keyboard.press("Home")
    expect(places.first).to_have_attribute("data-place", "0")
    expect(places.first).to_be_in_viewport()
    page.keyboard.press("End")
    expect(places.last).to_have_attribute("data-place", "216")
    expect(places.last).to_be_in_viewport()


@pytest.mark.parametrize("width", [700, 1200])
def test_a_flat_picture_stays_in_its_column(open_alone: Callable[..., Page], tmp_path: Path, width: int) -> None:
    file = tmp_path / "stepper.html"
    stepper = Stepper.of("conv2d", at_start=False)
    stepper.jump(3)  # coordinates side by side: four times as wide as high
    stepper.to_html(file)
    page = open_alone(file, "light")
    page.set_viewport_size({"width": width, "height": 900})
    expect(page.locator(".syno-graph svg")).to_be_visible()
    picture, steps = (page.locator(part).bounding_box() for part in (".syno-graph", ".syno-right"))
    assert picture is not None
    assert steps is not None
    assert picture["x"] + picture["width"] <= steps["x"] or picture["y"] + picture["height"] <= steps["y"]
