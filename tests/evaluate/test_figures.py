"""The Pareto figure as plotly figure, page, SVG, PNG and widget; the page also in a real browser."""

from __future__ import annotations

import functools
import http.server
import itertools
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from syno_lab.errors import FormatError, SynoError
from syno_lab.evaluate.figures import draw, groups, pareto_figure, summary, svg_text, write_html
from syno_lab.evaluate.pareto import ParetoFacts, pareto_facts
from syno_lab.evaluate.store import Trial

ATTACK = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
EVIL_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40" onload="parent.document.title=\'owned\'">'
    "<script>parent.document.title='owned'; fetch('http://127.0.0.1:9/x')</script>"
    '<image href="http://127.0.0.1:9/y.png" width="9" height="9"/><text y="20">pGraph</text></svg>'
)


def trial(label: str, accuracy: float | None, latency: float | None, *, baseline: bool = False) -> Trial:
    return Trial(f"fp-{label}", label, baseline, accuracy, latency, 123_456, 789, "{}", "done")


def elements(page: str) -> list[tuple[str, list[tuple[str, str | None]]]]:
    """The tags of a page with their attributes, as a parser of HTML sees them."""
    found: list[tuple[str, list[tuple[str, str | None]]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, attrs))

    Reader().feed(page)
    return found


@pytest.fixture
def facts() -> ParetoFacts:
    return pareto_facts(
        [
            trial("conv2d", 0.5, 4.0, baseline=True),
            trial("fast", 0.5, 1.0),
            trial("good", 0.75, 3.0),
            trial("bad", 0.25, 3.5),
            trial("untuned", 0.9, None),
        ],
        title="CIFAR-10, small ResNet",
    )


@pytest.fixture
def hostile() -> ParetoFacts:
    return pareto_facts([trial(ATTACK, 0.5, 1.0), trial("$x_1$ & \x00\x1b\udc80 %{y}", 0.75, 2.0)], title=ATTACK)


class TestPlotly:
    def test_every_point_is_there_with_its_fingerprint(self, facts: ParetoFacts) -> None:
        figure = pareto_figure(facts)
        seen = {
            custom[0]: (x, y)
            for trace in figure.data
            if trace.customdata is not None
            for custom, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
        }
        assert seen == {point.fingerprint: (point.x, point.y) for point in facts.points}
        line = next(trace for trace in figure.data if trace.mode == "lines")
        assert list(zip(line.x, line.y, strict=True)) == [(1.0, 0.5), (3.0, 0.75)]
        assert {group.name: [p.label for p in group.points] for group in groups(facts)} == {
            "baseline": ["conv2d"],
            "on the front": ["fast", "good"],
            "operators": ["bad"],
        }

    def test_it_is_readable_on_any_ground(self, facts: ParetoFacts) -> None:
        layout = pareto_figure(facts).layout
        assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)"
        assert layout.title.text == "CIFAR-10, small ResNet"
        assert layout.xaxis.title.text == "latency [ms]"

    def test_names_are_no_markup(self, hostile: ParetoFacts) -> None:
        shown = [
            c[1] for trace in pareto_figure(hostile).data if trace.customdata is not None for c in trace.customdata
        ]
        assert any("&lt;img src=x" in label for label in shown)
        assert not any("<" in label for label in shown)

    def test_of_nothing(self) -> None:
        figure = pareto_figure(pareto_facts([]))
        assert figure.layout.annotations[0].text == "no operator has both values yet"
        assert summary(pareto_facts([])).endswith("no operator has both values yet.")


class TestFiles:
    def test_svg_has_texts_marks_and_a_description(self, facts: ParetoFacts, tmp_path: Path) -> None:
        path = draw(facts, tmp_path / "deep" / "figure.svg")
        root = ET.fromstring(path.read_text())
        assert root.get("aria-label") == summary(facts)
        texts = " ".join("".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text"))
        for wanted in ("CIFAR-10", "latency [ms]", "accuracy", "conv2d", "fast", "good", "hypervolume"):
            assert wanted in texts
        assert path.read_text() == svg_text(facts), "the same facts must give the same file"
        assert [p.name for p in path.parent.iterdir()] == ["figure.svg"]

    def test_png_is_drawn_on_white(self, facts: ParetoFacts, tmp_path: Path) -> None:
        from matplotlib.image import imread

        pixels = imread(draw(facts, tmp_path / "figure.PNG"))
        assert pixels[0, 0].tolist() == [1.0, 1.0, 1.0, 1.0]
        blue = (abs(pixels[..., :3] - [0x2A / 255, 0x7F / 255, 0xD4 / 255]) < 0.02).all(axis=-1)
        assert blue.sum() > 100

    @pytest.mark.parametrize("kind", ["svg", "png"])
    def test_hostile_and_missing_texts_are_drawn_as_they_are(
        self, hostile: ParetoFacts, tmp_path: Path, kind: str
    ) -> None:
        assert draw(hostile, tmp_path / f"hostile.{kind}").stat().st_size > 1000
        draw(pareto_facts([]), tmp_path / f"empty.{kind}")
        root = ET.fromstring(svg_text(hostile))
        assert not [node for node in root.iter() if node.tag.endswith(("}script", "}img"))]
        assert any("$x_1$ &" in "".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text"))

    def test_other_suffixes(self, facts: ParetoFacts, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match=r"expected a name that ends in \.svg or \.png"):
            draw(facts, tmp_path / "figure.gif")

    def test_what_cannot_be_written_leaves_the_old_file(self, facts: ParetoFacts, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("old")
        with pytest.raises(SynoError, match="cannot be written"):
            draw(facts, tmp_path / "file" / "figure.svg")
        (tmp_path / "folder.svg").mkdir()
        with pytest.raises(SynoError, match=r"folder\.svg cannot be written"):
            draw(facts, tmp_path / "folder.svg")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.svg"]

    def test_no_global_figure_and_nothing_heavy_on_import(self) -> None:
        code = (
            "import sys, syno_lab.evaluate.figures, syno_lab.evaluate.frame as f;"
            "from syno_lab.evaluate.pareto import pareto_facts;"
            "print(sorted({'torch', 'tvm', 'pandas', 'plotly', 'matplotlib'} & set(sys.modules)));"
            "syno_lab.evaluate.figures.svg_text(pareto_facts([]));"
            "print('matplotlib.pyplot' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.split("\n")[:2] == ["[]", "False"]


class TestPage:
    def test_it_holds_all_operators_and_asks_nobody(self, facts: ParetoFacts, tmp_path: Path) -> None:
        page = write_html(facts, tmp_path / "page.html", {"fp-fast": "<svg/>"}).read_text()
        for label in ("conv2d", "fast", "good", "bad", "untuned"):
            assert f'data-fingerprint="fp-{label}"' in page
        assert page.count('class="show"') == 1
        assert "not measured" in page
        addresses = [value for _, attributes in elements(page) for key, value in attributes if key in ("src", "href")]
        assert addresses
        assert all(value is not None and value.startswith("data:") for value in addresses)
        assert "default-src &#x27;none&#x27;" in page

    def test_names_stay_text(self, hostile: ParetoFacts, tmp_path: Path) -> None:
        page = write_html(hostile, tmp_path / "page.html", {f"fp-{ATTACK}": EVIL_SVG}).read_text()
        assert "<img src=x" not in page
        tags = [tag for tag, _ in elements(page)]
        assert (tags.count("script"), tags.count("img")) == (3, 1)  # data, library, ours; the still for no script
        assert not [key for _, attributes in elements(page) for key, _ in attributes if key.startswith("on")]
        assert "parent.document" not in page


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_a_click_shows_the_picture_and_nothing_else_happens(
    tmp_path: Path, server: str, scheme: str, browser: Any
) -> None:
    from playwright.sync_api import expect

    facts = pareto_facts(
        [trial("conv2d", 0.5, 4.0, baseline=True), trial(ATTACK, 0.75, 1.0), trial("untuned", 0.9, None)], title=ATTACK
    )
    write_html(facts, tmp_path / "page.html", {f"fp-{ATTACK}": EVIL_SVG, "fp-untuned": EVIL_SVG})
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1000, "height": 900})
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{server}/page.html")
    page.wait_for_selector("html[data-ready=true]")
    title = page.title()
    assert page.locator(".modebar-btn[data-title='Zoom']").count() == 1
    assert page.locator(".modebar-btn[data-title*='hare']").count() == 0, "plotly offers to upload the chart"

    mark = page.locator("#plot .scatterlayer .trace path.point").nth(0)  # the first group drawn: on the front
    box = mark.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    image = page.locator("#picture img")
    expect(image).to_have_attribute("alt", f"pGraph of {ATTACK}")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 90
    assert page.locator("tr.chosen").get_attribute("data-fingerprint") == f"fp-{ATTACK}"
    address = page.url

    page.get_by_role("button", name="untuned").press("Enter")  # by keyboard, and not in the figure
    expect(image).to_have_attribute("alt", "pGraph of untuned")

    page.get_by_role("button", name="accuracy").click()
    order = [row.get_attribute("data-fingerprint") for row in page.locator("tbody tr").all()]
    assert order == ["fp-conv2d", f"fp-{ATTACK}", "fp-untuned"]
    page.get_by_role("button", name="accuracy").click()
    assert page.locator("tbody tr").first.get_attribute("data-fingerprint") == "fp-untuned"
    page.get_by_role("button", name="latency [ms]").click()
    assert page.locator("tbody tr").last.get_attribute("data-fingerprint") == "fp-untuned"

    page.goto("about:blank")
    page.goto(address)  # the address leads back to the operator
    expect(image).to_have_attribute("alt", f"pGraph of {ATTACK}")
    assert page.title() == title
    asked = [url for url in requests if not url.startswith(("data:", "blob:", "about:"))]
    assert set(asked) <= {f"{server}/page.html", address, f"{server}/favicon.ico"}
    assert not [text for text in problems if "favicon" not in text and "404" not in text], problems
    page.close()


class TestWidget:
    def click(self, view, trace_index: int, point_index: int) -> None:
        """What the front end sends on a click."""
        view.figure._js2py_pointsCallback = {
            "event_type": "plotly_click",
            "points": {
                "trace_indexes": [trace_index],
                "point_indexes": [point_index],
                "xs": [0],
                "ys": [0],
            },
            "device_state": None,
            "selector": None,
        }

    def test_a_click_gives_the_fingerprint(self, facts: ParetoFacts) -> None:
        from syno_widgets.pareto import pareto_widget

        heard: list[str] = []
        view = pareto_widget(facts, heard.append)
        seen: list[str] = []
        view.observe(lambda change: seen.append(change["new"]), "selected")
        expected = []
        for trace_index, trace in enumerate(view.figure.data):
            for point_index, custom in enumerate(trace.customdata or ()):
                self.click(view, trace_index, point_index)
                expected.append(custom[0])
        assert sorted(expected) == sorted(point.fingerprint for point in facts.points)
        assert heard == seen == expected
        assert heard[-1] in view._status.value
        self.click(view, trace_index, point_index)
        assert heard == [*expected, expected[-1]], "a second click on the same point counts"

    def test_it_shows_itself_without_a_kernel(self, facts: ParetoFacts) -> None:
        from syno_widgets.pareto import ParetoView

        bundle = ParetoView(facts)._repr_mimebundle_()
        assert bundle["image/svg+xml"] == svg_text(facts)
        assert bundle["text/plain"] == summary(facts)
        assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]

    def test_only_operators_of_the_figure_can_be_chosen(self, facts: ParetoFacts, hostile: ParetoFacts) -> None:
        from syno_widgets.pareto import ParetoView
        from traitlets import TraitError

        view = ParetoView(facts)
        view.selected = "fp-good"
        with pytest.raises(TraitError, match="no operator 'fp-x' in this figure"):
            view.selected = "fp-x"
        view, heard = ParetoView(hostile), set()
        for (trace_index, trace), point_index in itertools.product(enumerate(view.figure.data), range(2)):
            if trace.customdata is not None and point_index < len(trace.customdata):
                self.click(view, trace_index, point_index)
                assert "<img" not in view._status.value
                heard.add(view.selected)
        assert heard == {point.fingerprint for point in hostile.points}, "a fingerprint comes back as it was given"
