"""The site of the manual: built once, read as a browser reads it, and opened in one that has no network."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
from playwright.sync_api import Page, expect

import syno_lab as sl

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]

#: What a browser fetches without being asked, by tag and attribute; ``link`` is another matter, see :func:`_fetches`.
FETCHED = {
    *((tag, "src") for tag in ("script", "img", "iframe", "source", "audio", "video", "track", "embed", "input")),
    *((tag, "srcset") for tag in ("img", "source")),
    *((tag, name) for tag in ("image", "use", "feimage", "script") for name in ("href", "xlink:href")),
    *(("object", "data"), ("video", "poster"), ("body", "background")),
}
#: Relations of a ``link`` that only name a page.
NAMES = {"next", "prev", "index", "search", "canonical", "author", "license", "help"}
CSS = re.compile(r"url\(\s*['\"]?([^'\")\s]+)|@import\s+['\"]([^'\"]+)")


class Reader(HTMLParser):
    """What a page fetches, where it leads, and the places in it that can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetches: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        self._in_style = tag == "style"
        self.fetches += [value for name, value in found.items() if (tag, name) in FETCHED]
        self.fetches += [one for pair in CSS.findall(found.get("style", "")) for one in pair if one]
        if tag == "link" and not NAMES & set(found.get("rel", "").split()):
            self.fetches.append(found["href"])
        if tag == "meta" and found.get("http-equiv", "").lower() == "refresh":
            self.links.append(found["content"].partition("url=")[2])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.fetches += [one for pair in CSS.findall(data) for one in pair if one]

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` makes it; each warning (a dead link, a page that stands nowhere) is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-c", "docs"]
    done = subprocess.run(
        [*command, "-d", str(folder / "doctrees"), ".", str(folder / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


@cache
def _page(path: Path) -> Reader:
    return Reader(path.read_text(encoding="utf-8"))


def _pages(site: Path) -> list[Path]:
    found = sorted(site.rglob("*.html"))
    assert len(found) > 40
    return found


def _is_inside(site: Path, start: Path, address: str) -> bool:
    path = unquote(re.split(r"[?#]", address)[0])
    target = (start.parent / path).resolve() if path else start
    return target.is_relative_to(site.resolve()) and target.is_file()


def test_what_would_be_fetched_is_seen() -> None:
    # The tests below would pass on a reader that finds nothing.
    seen = Reader(
        '<link rel="stylesheet" href="a.css"><link rel="next" href="n.html"><script src="https://b/c.js"></script>'
        '<img src="d.png" srcset="e.png 2x"/><p style="background: url(f.png)" id="here"><style>@import "g.css";'
        "@font-face { src: url('//h/i.woff') }</style><svg><use href='k.svg'/></svg><a href='l.html#m'>"
    )
    names = ["a.css", "https://b/c.js", "d.png", "e.png 2x", "f.png", "g.css", "//h/i.woff", "k.svg"]
    assert seen.fetches == names
    assert seen.links == ["l.html#m"]
    assert seen.ids == {"here"}


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    for path in _pages(site):
        assert _page(path).fetches or path.name == "index.html"
        for address in _page(path).fetches:
            assert address.startswith(("data:", "#")) or _is_inside(site, path, address), f"{path} fetches {address}"
    styles = sorted(site.rglob("*.css"))
    assert styles
    for path in styles:
        for pair in CSS.findall(path.read_text(encoding="utf-8")):
            address = pair[0] or pair[1]
            assert address.startswith(("data:", "#")) or _is_inside(site, path, address), f"{path} fetches {address}"


def test_every_link_leads_somewhere(site: Path) -> None:
    site = site.resolve()
    leads = 0
    for path in _pages(site):
        for address in _page(path).links:
            if "://" in address or address.startswith("mailto:"):
                continue
            assert _is_inside(site, path, address), f"{path.relative_to(site)} leads to {address}"
            name, _, place = address.partition("#")
            target = (path.parent / unquote(name)).resolve() if name else path
            if place and target.suffix == ".html":
                assert unquote(place) in _page(target).ids, f"{path.relative_to(site)} leads to {address}"
            leads += 1
    assert leads > 1000


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    ids = set().union(*(_page(path).ids for path in (site / "docs" / "api").glob("*.html")))
    rooms = {"syno_lab": sl, "syno_lab.canvas": sl.canvas, "syno_lab.alpha": sl.alpha}
    for room, values in rooms.items():
        names = dir(values) if room == "syno_lab" else [name for name in vars(values) if name[0].isupper()]
        names = [name for name in names if name not in ("TYPE_CHECKING", "Any")]  # of typing
        assert len(names) > 8
        for name in names:
            assert {f"{room}.{name}", f"module-{room}.{name}"} & ids, f"docs/api describes no {room}.{name}"
    for name in sl.operators.__all__:
        assert f"syno_lab.operators.{name}" in ids or not callable(getattr(sl.operators, name))


@pytest.mark.parametrize("value", [sl.Operator, sl.State], ids=lambda value: value.__name__)
def test_every_method_is_in_the_reference(site: Path, value: type) -> None:
    """Those that need a later room too, which are described where they stand."""
    ids = set().union(*(_page(path).ids for path in (site / "docs" / "api").glob("*.html")))
    methods = [name for name, found in vars(value).items() if inspect.isfunction(found) and not name.startswith("_")]
    assert len(methods) > 5
    for name in methods:
        assert f"syno_lab.{value.__name__}.{name}" in ids or f"{value.__module__}.{value.__name__}.{name}" in ids


def test_notebooks_show_the_outputs_that_were_saved(site: Path) -> None:
    books = sorted((ROOT / "notebooks").rglob("*.ipynb"))
    assert len(books) > 15
    for path in (path for path in books if ".ipynb_checkpoints" not in path.parts):
        page = (site / path.relative_to(ROOT)).with_suffix(".html").read_text(encoding="utf-8")
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        assert page.count('<div class="cell_input') == len([cell for cell in cells if cell.source])
        assert page.count('<div class="cell_output') == len([cell for cell in cells if cell.outputs])
        assert "widget-view" not in page


def test_formulas_are_drawn_by_the_browser_itself(site: Path) -> None:
    for name in ("09_case_study_operator_1", "12_case_study_operator_2"):
        page = (site / "notebooks" / "course" / f"{name}.html").read_text(encoding="utf-8")
        assert page.count("<math ") > 8
        assert "\\frac" not in page
        assert "<mtable" in page, "stages stand below each other"
        assert "<mi>&" not in page, "a mark of alignment that was not understood"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_found_by_its_words(site: Path, scheme: str, open_alone: Callable[..., Page]) -> None:
    page = open_alone(site / "index.html", scheme, width=1400)
    expect(page).to_have_title("Syno Lab")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 600) == (scheme == "light"), ground
    page.get_by_role("textbox", name="Search").fill("shape distance")
    page.keyboard.press("Enter")
    found = page.locator("#search-results").get_by_role("link", name="Course 6. Shape distance", exact=True)
    found.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Shape distance")


@pytest.mark.parametrize("width", [900, 1400])
@pytest.mark.parametrize("name", ["README", "docs/commands", "docs/api/index", "benchmarks/README"])
def test_no_page_is_wider_than_the_window(site: Path, name: str, width: int, open_alone: Callable[..., Page]) -> None:
    page = open_alone(site / f"{name}.html", "light", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_formula_is_drawn(site: Path, open_alone: Callable[..., Page]) -> None:
    page = open_alone(site / "notebooks" / "course" / "09_case_study_operator_1.html", "light")
    fraction = page.locator("math mfrac").first
    above, below = fraction.locator("> *").nth(0).bounding_box(), fraction.locator("> *").nth(1).bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] + above["height"] <= below["y"] + 1, "the browser knows no MathML: parts stand side by side"
