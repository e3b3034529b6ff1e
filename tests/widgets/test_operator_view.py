"""The operator view without a browser: its traits, its messages, its outputs, its page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import syno_widgets
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from labs import until
from pages import page_state
from syno_widgets import OperatorView
from syno_widgets.scripts import module
from syno_widgets.standalone import page
from syno_widgets.view import View
from traitlets import TraitError
from traitlets.config import Config

from syno_lab.codegen import drawing
from syno_lab.codegen.loops import loops
from syno_lab.errors import SpecError, SynoError
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import conv1x1, conv2d, operator_1
from syno_lab.panes import NAMES
from syno_lab.pgraphs.panes import PANES
from syno_lab.systems import read_operator

WIDGETS = Path(syno_widgets.__file__).parent
SIZES = {"N": 1, "C_in": 4, "C_out": 6, "H": 8, "W": 9, "k_1": 3}
HOSTILE = '</script><img src=x onerror="alert(1)"> & "name"'
WITHIN_S = 200.0


@pytest.fixture
def view() -> Iterator[OperatorView]:
    made = OperatorView(conv2d(), binding=SIZES)
    yield made
    made.close()


def states(view: OperatorView) -> dict[str, str]:
    return {pane: getattr(view, f"pane_{pane}")["state"] for pane in PANES}


def ask(view: OperatorView, kind: str, **more: Any) -> None:
    """A message as the browser sends it."""
    number = view.answered + 1
    view.handle({"kind": kind, "request": number, **more})
    assert view.answered == number


def test_picture_and_loop_nest_at_once_and_nothing_else(view: OperatorView) -> None:
    ready = {pane for pane, state in states(view).items() if state == "ready"}
    assert ready == {"graph", "loops"}
    assert view.pane_graph["data"]["svg"] == drawing.svg(conv2d())
    assert view.pane_loops["data"]["nests"][0]["text"] == loops(conv2d())
    assert (view.name, view.sizes) == ("conv2d", SIZES)
    assert view.status == f"{conv2d()}; {conv2d().flops(SIZES):,} FLOPs, {conv2d().params(SIZES):,} parameters"


def test_a_view_loads_neither_torch_nor_tvm() -> None:
    code = (
        "import sys; from syno_widgets import OperatorView; from syno_lab.operators import conv2d;"
        "OperatorView(conv2d());"
        "print(*(name for name in ('torch', 'tvm', 'sklearn', 'pandas') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == []


def test_opening_a_pane_has_it_worked_out(view: OperatorView) -> None:
    view.pane = "cost"
    assert view.read("cost", WITHIN_S)["totals"]["flops"] == conv2d().flops(SIZES)
    assert states(view)["cost"] == "ready"
    assert states(view)["near"] == "closed"
    assert json.loads(view.export("mixing", "json")) == view.pane_mixing["data"]


def test_figures_for_papers_are_made_when_asked_for(view: OperatorView, monkeypatch: pytest.MonkeyPatch) -> None:
    caught: list[tuple[dict[str, Any], list[bytes]]] = []
    monkeypatch.setattr(view, "send", lambda content, buffers=None: caught.append((content, buffers)))
    ask(view, "export", pane="graph", form="PDF")
    until(lambda: caught or view.error)
    ask(view, "export", pane="loops", form="TeX")
    until(lambda: len(caught) == 2 or view.error)
    assert [content for content, _ in caught] == [
        {"kind": "file", "name": "conv2d-pgraph.pdf"},
        {"kind": "file", "name": "conv2d-loops-figure.tex"},
    ]
    assert caught[0][1] == [conv2d().figure().content("pdf")]
    assert caught[1][1] == [conv2d().figure("loops").content("tex")]
    view.read("equation", WITHIN_S)
    for form, staged in (("PDF", False), ("by stages, PDF", True)):
        made = conv2d().figure("equation", SIZES, staged=staged)
        assert view.export("equation", form) == made.content("pdf")
    ask(view, "export", pane="graph", form="GIF")
    until(lambda: view.error)
    assert "format: expected one of svg, " in view.error
    ask(view, "export", pane="cost", form="PDF")
    assert view.error == "pane: expected a ready pane, found cost, which is closed"
    assert len(caught) == 2


def test_other_sizes_renew_what_depends_on_them(view: OperatorView) -> None:
    view.pane = "cost"
    view.read("cost", WITHIN_S)
    view.read("mixing", WITHIN_S)
    ask(view, "bind", binding={**SIZES, "H": 20})
    assert view.error == ""
    assert view.binding["H"] == view.sizes["H"] == 20
    assert states(view)["mixing"] == "ready"
    assert view.read("cost", WITHIN_S)["binding"]["H"] == 20
    view.binding = {}
    assert view.sizes["H"] not in (8, 20)
    assert view.read("cost", WITHIN_S)["binding"] == view.sizes


def test_another_element(view: OperatorView) -> None:
    view.pane = "reach"
    assert view.read("reach", WITHIN_S)["text"].startswith("Y[0, 3, 4, 4] reads ")
    ask(view, "element", element="0, 0, 0, 0")
    assert view.read("reach", WITHIN_S)["text"].startswith("Y[0, 0, 0, 0] reads 16 of 288 elements")
    ask(view, "element", element="0, 0, 0, 77")
    assert view.error == ""
    with pytest.raises(SynoError, match="output index: expected an index for each of 4 output axes"):
        view.read("reach", WITHIN_S)
    assert view.pane_reach["state"] == "failed"
    view.element = "center"
    assert view.read("reach", WITHIN_S)["axes"][2]["extent"] == 3


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"kind": "bind", "binding": {"N": 0}}, "expected"),
        ({"kind": "bind", "binding": {**SIZES, "Q": 2}}, "Q"),
        ({"kind": "element", "element": "<b>"}, "output element: expected center, or numbers"),
        ({"kind": "open"}, "the browser sent a message that the view does not know"),
        ({"kind": "bind", "binding": "all"}, "the browser sent a message that the view does not know"),
        ("nothing", "the browser sent a message that the view does not know"),
    ],
)
def test_what_cannot_be_is_said_and_changes_nothing(view: OperatorView, message: Any, said: str) -> None:
    before = (view.binding, view.sizes, view.element, states(view))
    view.handle({**message, "request": 5} if isinstance(message, dict) else message)
    assert said in view.error
    assert "\n" not in view.error
    assert (view.binding, view.sizes, view.element, states(view)) == before
    ask(view, "element", element="center")
    assert view.error == ""


def test_traits_are_held_to_what_they_may_be(view: OperatorView) -> None:
    for trait, value in {"pane": "graph", "photo": "cat", "weights": 3, "staged": "yes", "selected": 1}.items():
        with pytest.raises(TraitError):
            setattr(view, trait, value)
    with pytest.raises(SpecError, match="photo: expected an image for 'own', found none"):
        view.photo = "own"
    with pytest.raises(SpecError, match="C_in"):
        view.binding = {"N": 1}
    with pytest.raises(TraitError, match="read-only"):
        view.sizes = {}
    view.selected = "c7"
    view.search = "UNFOLD"
    view.staged = True
    assert view.binding == SIZES


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(SpecError, match=r"expected an operator of a system that is known \(pGraphs.*\), found State"):
        OperatorView(conv2d().state)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="pane: expected one of graph, cost, source, tir, reach, found 'loops'"):
        OperatorView(nas_pte_1(), pane="loops")
    with pytest.raises(TypeError, match="OperatorView: unexpected keyword argument 'colour'; known are pane, "):
        OperatorView(conv2d(), colour="red")
    with pytest.raises(SpecError, match=r"OperatorView: .*pane.*graph"):
        OperatorView(conv2d(), pane="graph")
    with pytest.raises(SpecError, match="C_in"):
        OperatorView(conv2d(), binding={"N": 1})
    with pytest.raises(SpecError, match="image: expected numbers"):
        OperatorView(conv2d(), image=np.zeros(3))
    with pytest.raises(SpecError, match="pane: expected one of graph"):
        OperatorView(conv2d()).read("picture")


def test_another_operator_in_the_same_view(view: OperatorView) -> None:
    view.pane = "near"
    view.read("near", WITHIN_S)
    view.selected = "c7"
    view.show(operator_1(), name="mine")
    assert (view.name, view.operator, view.selected) == ("mine", operator_1(), "")
    assert view.pane_graph["data"]["svg"] == drawing.svg(operator_1())
    assert "g" in view.sizes
    assert view.read("near", WITHIN_S)["rows"][0]["name"] == "operator_1"
    with pytest.raises(SpecError, match="C_in"):
        view.show(conv1x1(), binding={"N": 1})
    assert view.operator == operator_1()
    assert view.pane_graph["data"]["svg"] == drawing.svg(operator_1())


def test_an_operator_of_another_system_has_the_panes_of_its_system() -> None:
    operator, sizes = nas_pte_1(), {"N": 1, "C_in": 8, "C_out": 16, "H": 6, "W": 5}
    view = OperatorView(operator, binding=sizes)
    try:
        assert view.choices["panes"] == [
            ["graph", "picture"],
            ["cost", "Cost"],
            ["source", "PyTorch"],
            ["tir", "TIR"],
            ["reach", "Receptive field"],
        ]
        assert (view.name, view.pane, view.sizes) == ("nas_pte_1", "cost", sizes)
        assert {pane for pane, state in states(view).items() if state == "ready"} == {"graph", "cost"}
        assert view.status == f"{operator}; {operator.flops(sizes):,} FLOPs, {operator.params(sizes):,} parameters"
        # Two halves of 8 channels, of all 8 in 2 and in 4 groups: each element sums 4 * 9 and 2 * 9 products.
        assert [row["flops"] for row in view.pane_cost["data"]["rows"]] == [
            2 * 8 * 30 * 4 * 9,
            2 * 8 * 30 * 2 * 9,
        ]
        assert view.pane_graph["data"]["description"] == str(operator)
        assert read_operator(view.export("graph", "operator file (JSON)")) == operator
        assert view.export("graph", "PNG").startswith(b"\x89PNG")
        assert str(operator) in view._bundle()["text/html"]
        with pytest.raises(SpecError, match="pane: expected one of graph, cost, source, tir, reach, found 'near'"):
            view.read("near")
        with pytest.raises(SpecError, match="pane: expected one of graph, cost, source, tir, reach, found 'loops'"):
            view.pane = "loops"
        ask(view, "work", pane="loops")
        assert "pane: expected one of graph, cost, source, tir" in view.error
        view.show(conv2d(), binding=SIZES)
        assert [name for name, _ in view.choices["panes"]] == list(PANES)
        assert {pane for pane, state in states(view).items() if state == "ready"} >= {"graph", "loops"}
        view.pane = "loops"
        view.show(operator)
        assert (view.pane, states(view)["loops"]) == ("cost", "closed")
        assert view.read("cost", WITHIN_S)["binding"]["C_in"] == 64
        assert "pane_cost" in page_state(view.to_html(panes=[]))
    finally:
        view.close()


@pytest.mark.tvm
def test_tir_of_an_operator_of_another_system() -> None:
    view = OperatorView(nas_pte_1(), binding={"N": 1, "C_in": 8, "C_out": 16, "H": 6, "W": 5}, pane="tir")
    assert "T.Buffer((1, 16, 6, 5)" in view.read("tir", WITHIN_S)["text"].replace("T.int64(", "").replace("))", ")")
    view.close()


def test_an_image_of_one_s_own() -> None:
    view = OperatorView(conv2d(), binding=SIZES, image=np.eye(32) * 255, pane="image")
    assert (view.photo, view.choices["photo"]) == ("own", ["china", "flower", "own"])
    assert view.read("image", WITHIN_S)["credit"].startswith("your own image")
    assert OperatorView(conv2d()).choices["photo"] == ["china", "flower"]


def test_outputs_that_need_no_widget() -> None:
    view = OperatorView(conv2d(), name=HOSTILE)
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    try:
        with capture_output() as captured:
            shell.display_formatter.format(view)
        live, static = (output.data for output in captured.outputs)
    finally:
        InteractiveShell.clear_instance()
    assert "application/vnd.jupyter.widget-view+json" in live
    assert live["image/svg+xml"] == drawing.svg(conv2d())
    assert static["image/svg+xml"] == drawing.svg(conv2d())
    assert static["text/plain"] == drawing.describe(conv2d())
    html = static["text/html"]
    assert f'data-syno-static="{view.static_id}"' in html
    assert "&lt;/script&gt;&lt;img src=x onerror=" in html
    assert "Y[i_N, i_C_out, i_H, i_W] += X[i_N, r_C_in" in html
    (image,) = re.findall(r"<img [^>]*>", html)
    assert drawing.describe(conv2d()) in image


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_page_that_stands_alone(tmp_path: Path) -> None:
    view = OperatorView(conv2d(), name=HOSTILE, binding=SIZES)
    text = view.to_html(tmp_path / "conv2d.html", panes=["cost", "mixing"])
    assert (tmp_path / "conv2d.html").read_text(encoding="utf-8") == text
    tags = Tags(text).found
    assert [tag for tag, _ in tags].count("script") == 2
    for tag, attributes in tags:
        assert not {name for name in attributes if name.startswith("on")}
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
    state = page_state(text)
    assert (state["live"], state["name"]) == (False, HOSTILE)
    assert state["pane_cost"]["state"] == state["pane_graph"]["state"] == "ready"
    assert state["pane_tir"]["state"] == "closed"
    assert not [name for name in state if name.startswith("_")]
    assert "default-src 'none'" in text
    with pytest.raises(SpecError, match="pane: expected one of"):
        view.to_html(panes=["all"])
    with pytest.raises(SynoError, match=r"cannot write .*: No such file"):
        view.to_html(tmp_path / "no" / "where.html", panes=[])
    with pytest.raises(ValueError, match="expected a script and a style without end tags"):
        page("t", {}, "'</SCRIPT>'", "", "")


def test_every_trait_is_documented_and_read_by_the_script() -> None:
    script = "".join(
        (WIDGETS / name).read_text()
        for name in ("shared.js", "mixing_table.js", "operator_panes.js", "operator_view.js")
    )
    read = set(re.findall(r'model\.get\("(\w+)"\)', script))
    traits = {**View.class_own_traits(sync=True), **OperatorView.class_own_traits(sync=True)}
    own = {name for name in traits if not name.startswith("_")}
    dynamic = {f"pane_{pane}" for pane in NAMES if pane != "graph"} | {"element", "photo", "weights", "binding"}
    assert read | dynamic == own
    drawn = re.findall(r"^  (\w+)[:,]", re.search(r"const DRAW = {(.*?)\n};", script, re.DOTALL)[1], re.MULTILINE)  # type: ignore[index]
    assert ("graph", *drawn) == NAMES
    source = "".join((WIDGETS / name).read_text() for name in ("view.py", "operator_view.py"))
    for name in own:
        assert re.search(rf'    {name} = (t\.|_pane\().*\n    """', source), f"{name} has no line of documentation"


def test_scripts_fetch_nothing() -> None:
    for name in ("shared.js", "operator_graph.js", "mixing_table.js", "operator_panes.js", "operator_view.js"):
        text = (WIDGETS / name).read_text(encoding="utf-8")
        addresses = set(re.findall(r"\w+://[\w./]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name
        assert not re.search(r"\bimport\b|fetch\(|XMLHttpRequest|innerHTML|insertAdjacent|\beval\b", text), name
    assert module("shared.js").endswith("export default { render };\n")


def test_the_layers_of_a_network_of_one_s_own() -> None:
    from torch import nn

    from syno_lab.models import survey

    net = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1))
    sites = survey(net, (8, 10, 12)).sites
    view = OperatorView(conv2d(), places=sites)
    sizes = {"N": 1, "C_in": 8, "C_out": 16, "H": 10, "W": 12, "k_1": 3}
    assert view.sizes == sizes
    assert view.choices["places"] == [["0", sizes], ["1", {**sizes, "C_in": 16, "C_out": 32}]]
    assert view.status.endswith(" in 0")
    view.show(conv2d())
    assert view.example
    assert {view.sizes["C_in"], view.choices["places"][0][1]["C_in"]} == {64}
    with pytest.raises(SpecError, match=r"^places: expected a layer that this operator fits, found none: "):
        view.show(operator_1(), places=survey(nn.Conv2d(3, 5, 3), (3, 9, 9)).sites)
    for wrong in (survey(net, (8, 10, 12)), net, iter(sites), [1, 2], {"layer": {"N": 1}}, [("layer",)], "layer"):
        with pytest.raises(SpecError, match=r"^places: expected names with sizes, or the sites of a network .*found"):
            view.show(conv2d(), places=wrong)
    view.close()
