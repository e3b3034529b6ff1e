"""Drawings: what is drawn is read back from the SVG, and must be the very pGraph again."""

import random
import re
import threading
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from syno_lab.codegen.drawing import (
    card_svg,
    coordinate_ids,
    describe,
    describe_step,
    dot,
    svg,
)
from syno_lab.codegen.text import expressions
from syno_lab.drawing import render as drawing_render
from syno_lab.drawing.render import accessible_svg, layout_program, render
from syno_lab.drawing.style import PRIMITIVE_LOOKS, primitive_look
from syno_lab.drawing.text import in_lines
from syno_lab.errors import PrimitiveError, SynoError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.operators import conv2d as conv2d_of
from syno_lab.operators import operator_1
from tests.strategies import random_operator

SVG = "{http://www.w3.org/2000/svg}"


def build_conv2d(stop: int | None = None) -> Build:
    build = Build(
        "[N, C_in, H, W]",
        "[N, C_out, H, W]",
        ["N", "C_in", "C_out", "H", "W"],
        ["k_1=3"],
        fixed_io_pairs=[(0, 0)],
    )
    _, c_out, h, w = build.output
    c_in, k_h, k_w = build.reduce("C_in"), build.reduce("k_1"), build.reduce("k_1")
    build.contract([c_in, k_h, k_w], [c_out])
    build.unfold(h, k_h)
    if stop is None:
        build.unfold(w, k_w)
    return build


@pytest.fixture(scope="module")
def conv2d() -> Operator:
    return build_conv2d().state.operator()


# -- reading a picture -----------------------------------------------------------------------------------------------


class Picture:
    """What a reader of an SVG sees: groups by id with their classes and texts, and lines between them."""

    def __init__(self, text: str) -> None:
        self.root = ElementTree.fromstring(text)
        self.kinds: dict[str, list[str]] = {}
        self.texts: dict[str, list[str]] = {}
        self.lines: dict[tuple[str, str], str] = {}
        for group in self.root.iter(f"{SVG}g"):
            name, kinds = group.get("id", ""), group.get("class", "").split()
            texts = [t.get("data-text") or "".join(t.itertext()) for t in group.iter(f"{SVG}text")]
            if "edge" in kinds:
                upper, lower = name.split("--")
                self.lines[upper, lower] = "".join(texts)
            elif "node" in kinds:
                self.kinds[name] = kinds[1:]
                self.texts[name] = texts

    def below(self, upper: str) -> list[tuple[str, str]]:
        return [(low, label) for (up, low), label in self.lines.items() if up == upper]

    def tensor(self, name: str) -> list[str]:
        """The sizes in the cells of a tensor, after its heading (a bold name and a word)."""
        return self.texts[name][2:]


def coordinate_of(name: str) -> str:
    """A line ends at a coordinate, or at the SHARE it passes through."""
    return name.split("_")[-1]


def read_back(picture: Picture, like: Operator) -> Operator:
    """Build the operator again from nothing but the picture (and the meaning of the texts of sizes)."""
    spec = like.spec
    sizes = {step.parameter.pretty: step.parameter for step in like.steps if step.parameter is not None}
    state = State.root(spec)
    named = {f"c{axis}": coordinate for axis, coordinate in enumerate(state.output)}
    numbers = sorted({int(re.match(r"s(\d+)", name)[1]) for name in picture.kinds if name[0] == "s"})
    assert numbers == list(range(len(numbers)))
    for number in numbers:
        shares = [name for name in picture.kinds if name.startswith(f"s{number}_")]
        if shares:
            weights = {
                up.split("_")[0]
                for (up, low), label in picture.lines.items()
                if low in shares and up[0] == "w" and label != "give"
            }
            (weight,) = weights
            dimensions = len(picture.tensor(weight))
            shared, given = [], []
            for place in range(dimensions):
                ((low, label),) = picture.below(f"{weight}_d{place}")
                (given if label == "give" else shared).append(named[coordinate_of(low)])
            step = Step("SHARE", tuple(shared), given=tuple(given))
        else:
            name = f"s{number}"
            (primitive,) = picture.kinds[name][1:]
            below = picture.below(name)
            roles = PRIMITIVES[primitive].operands
            if len(roles) > 1:
                below.sort(key=lambda end: roles.index(end[1]))
            operands = tuple(named[coordinate_of(low)] for low, _ in below)
            words = picture.texts[name]
            assert primitive in words[0], "the primitive's name is written on it"
            parameter = None
            if primitive == "REDUCE":
                ((result, _),) = [(up, low) for up, low in picture.lines if low == name]
                parameter = sizes[picture.texts[result][1].removeprefix(": ")]
            elif len(words) > 1:
                parameter = sizes[words[1].split(" = ")[1]]
            step = Step(primitive, operands, parameter)
        results = state.results(step)
        above = [up for up, low in picture.lines if low == f"s{number}"]
        named.update(zip(sorted(above, key=lambda c: int(c[1:])), results, strict=True))
        state = state.apply(step)
    inputs = []
    for axis in range(len(picture.tensor("x"))):
        ((low, _),) = picture.below(f"x_a{axis}")
        inputs.append(named[coordinate_of(low)])
    assert set(named) == {name for name, kinds in picture.kinds.items() if "coordinate" in kinds}
    return Operator(state, tuple(inputs))


def check_picture(operator: Operator) -> None:
    picture = Picture(svg(operator))
    assert read_back(picture, operator) == operator
    texts = expressions(operator)
    for name, coordinate in coordinate_ids(operator).items():
        assert picture.texts[name] == [*in_lines(texts[coordinate]), f": {coordinate.size.pretty}"]
        assert ("reduction" in picture.kinds[name]) == coordinate.is_reduction
    tensors = {name for name, kinds in picture.kinds.items() if "tensor" in kinds}
    assert tensors == {"x", "y", *(f"w{i}" for i in range(len(operator.weights)))}
    assert picture.tensor("x") == [c.size.pretty for c in operator.inputs]
    assert picture.tensor("y") == [c.size.pretty for c in operator.output]
    for i, weight in enumerate(operator.weights):
        assert picture.tensor(f"w{i}") == [size.pretty for size in weight.shape]
    drawn = sorted(kinds[1] for kinds in picture.kinds.values() if "primitive" in kinds)
    used = [s.primitive for s in operator.steps for _ in range(len(s.operands) if s.primitive == "SHARE" else 1)]
    assert drawn == sorted(used)


def test_conv2d_is_read_back_from_its_picture(conv2d: Operator) -> None:
    check_picture(conv2d)


@pytest.mark.parametrize("seed", range(25))
def test_random_operators_are_read_back_from_their_pictures(seed: int) -> None:
    operator, _ = random_operator(random.Random(seed))
    check_picture(operator)


def test_a_transposed_match_is_another_picture() -> None:
    build = Build("[H, H]", "[H, H]", ["H"])
    i, j = build.output
    build.shift(i)
    moved = next(c for c in build.state.data if c != j)
    straight, crossed = build.finish(moved, j), build.finish(j, moved)
    assert straight != crossed
    check_picture(straight)
    check_picture(crossed)


# -- text ------------------------------------------------------------------------------------------------------------


def test_golden_dot_of_conv2d(conv2d: Operator, golden: Callable[[str, str], None]) -> None:
    golden("drawing/conv2d.dot", dot(conv2d))


def test_partial_state_shows_the_data_so_far_and_its_top() -> None:
    state = build_conv2d(stop=5).state
    picture = Picture(svg(state))
    assert picture.texts["x"][:2] == ["data", " so far"]
    assert sorted(picture.tensor("x")) == sorted(c.size.pretty for c in state.data)
    top = {name for name, kinds in picture.kinds.items() if "top" in kinds}
    assert {coordinate_ids(state)[name] for name in top} == set(state.data)
    assert {name for name, kinds in picture.kinds.items() if "fixed" in kinds} == {"c0"}


def test_highlight_marks_coordinates_and_steps(conv2d: Operator) -> None:
    ids = coordinate_ids(conv2d)
    picture = Picture(svg(conv2d, highlight=[ids["c7"], 3]))
    marked = {name for name, kinds in picture.kinds.items() if "highlight" in kinds}
    assert marked == {"c7", "s3_c4", "s3_c5", "s3_c6"}


def test_texts_from_outside_are_escaped(conv2d: Operator) -> None:
    evil = '"]; x -> y [label="</TD>&<script>alert(1)</script>'
    text = svg(conv2d, title=evil)
    root = ElementTree.fromstring(text)
    assert not list(root.iter(f"{SVG}script"))
    assert evil in "".join(root.itertext())
    assert Picture(text).lines.keys() == Picture(svg(conv2d)).lines.keys()


def test_an_svg_says_what_it_shows_and_refers_to_nothing(conv2d: Operator) -> None:
    text = svg(conv2d, title="conv2d")
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    assert root.get("aria-label") == f"conv2d. {describe(conv2d)}"
    first = next(iter(root))
    assert first.tag == f"{SVG}title"
    assert first.text == root.get("aria-label")
    allowed = {"svg", "g", "title", "path", "polygon", "polyline", "ellipse", "text", "tspan"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= allowed
    assert "href" not in text
    colours = set(re.findall(r"#[0-9a-fA-F]+\b", dot(conv2d)))
    assert all(len(colour) == 7 for colour in colours)


def test_every_node_says_what_it_is(conv2d: Operator) -> None:
    titles = {}
    for group in ElementTree.fromstring(svg(conv2d)).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None:
            titles[group.get("id")] = title.text
    texts = expressions(conv2d)
    ids = coordinate_ids(conv2d)
    assert titles["c4"] == f"coordinate {texts[ids['c4']]} of size C_in"
    assert titles["w0"] == "weight W1 of shape [C_in, k_1, k_1, C_out]"
    assert titles["c0"].endswith("fixed, takes part in nothing")


def test_describe_names_every_step(conv2d: Operator) -> None:
    words = describe(conv2d)
    texts = expressions(conv2d)
    assert words.startswith("Complete pGraph from input [N, C_in, H, W] to output [N, C_out, H, W]; 6 steps")
    for step in conv2d.steps:
        assert describe_step(conv2d.state, step, texts) in words
    assert describe_step(conv2d.state, conv2d.steps[0]) == "REDUCE C_in"
    assert describe(State.root(conv2d.spec)).endswith("no steps yet.")
    assert describe(build_conv2d(stop=5).state).startswith("Partial pGraph from data")


def test_same_steps_same_text(conv2d: Operator) -> None:
    assert dot(build_conv2d().state.operator()) == dot(conv2d)


# -- cards -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(PRIMITIVES))
def test_card_shows_the_primitive_between_its_coordinates(name: str) -> None:
    picture = Picture(card_svg(name))
    drawn = [kinds for kinds in picture.kinds.values() if "primitive" in kinds]
    assert [kinds[1] for kinds in drawn] == [name]
    operands, _ = PRIMITIVES[name].example
    bottom = [n for n in picture.kinds if picture.kinds[n][0] == "coordinate" and not picture.below(n)]
    assert [picture.texts[n][1] for n in bottom] == [f": {size}" for size in operands]
    assert PRIMITIVES[name].card.before in ElementTree.fromstring(card_svg(name)).get("aria-label")


def test_card_of_an_unknown_primitive() -> None:
    with pytest.raises(PrimitiveError, match=r"unknown primitive 'POOL'; known are SPLIT"):
        card_svg("POOL")


def test_every_primitive_has_a_look_of_its_own() -> None:
    assert set(PRIMITIVE_LOOKS) == set(PRIMITIVES)
    for part in ("shape", "fill", "border", "sign"):
        assert len({getattr(look, part) for look in PRIMITIVE_LOOKS.values()}) == len(PRIMITIVES)
    assert primitive_look("SOMETHING_NEW").shape == "box"


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_texts_and_lines_can_be_read_on_light_and_dark_grounds() -> None:
    from syno_lab.drawing import style

    looks = [*PRIMITIVE_LOOKS.values(), style.COORDINATE, style.INPUT, style.OUTPUT, style.WEIGHT]
    assert min(_contrast(style.INK, look.fill) for look in looks) >= 7
    for ground in ("#ffffff", "#111111"):
        assert _contrast(style.LINE, ground) >= 3


# -- the layout program ----------------------------------------------------------------------------------------------


def test_the_users_own_graphviz_is_left_alone(conv2d: Operator) -> None:
    import graphviz

    before = graphviz.backend.dot_command.DOT_BINARY
    svg(conv2d)
    after = graphviz.backend.dot_command.DOT_BINARY
    assert before == after
    assert layout_program().name.startswith("graphviz-pure")


def test_drawing_from_many_threads(conv2d: Operator) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(svg(conv2d))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [svg(conv2d)] * 4


def test_png_comes_from_the_same_program(conv2d: Operator) -> None:
    assert render(dot(conv2d), "png").startswith(b"\x89PNG")


def test_what_was_laid_out_is_kept(conv2d: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    before = svg(conv2d)
    monkeypatch.setattr(drawing_render.subprocess, "run", None)
    assert svg(conv2d) == before
    with pytest.raises(TypeError):
        svg(conv2d, highlight=[0])


def test_a_missing_layout_program_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing_render, "PROGRAM", "graphviz-gone")
    with pytest.raises(SynoError, match=r"drawing needs the program 'graphviz-gone'.*pip install graphviz-gone"):
        layout_program()


def test_a_refused_text_is_one_line() -> None:
    with pytest.raises(SynoError, match=r"graphviz-pure refused the DOT text: .*syntax error") as caught:
        accessible_svg("digraph {{{", "nothing", {})
    assert "\n" not in str(caught.value)


def test_an_unknown_format() -> None:
    with pytest.raises(ValueError, match="unknown format"):
        render("digraph {}", "jpeg-of-the-future")


def test_scalar_and_empty_shapes_are_drawn() -> None:
    check_picture(State.root(Spec.parse("[]", "[]", ["H"])).operator())


# -- one CONTRACTION as one thing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [conv2d_of, operator_1])
def test_a_hull_holds_each_contraction_together(make: Callable[[], Operator]) -> None:
    operator = make()
    picture = ElementTree.fromstring(operator.svg())
    (graph,) = [group for group in picture.iter(f"{SVG}g") if group.get("id") == "graph0"]
    hulls = [group for group in graph if group.get("class") == "hull"]
    assert len(hulls) == len(operator.weights)
    assert list(graph).index(hulls[-1]) < min(at for at, one in enumerate(graph) if "node" in one.get("class", ""))
    shares = [len(step.operands) for step in operator.steps if step.primitive == "SHARE"]
    for hull, number in zip(hulls, shares, strict=True):  # a band for each SHARE, and an area for it and for the weight
        assert len(hull.findall(f"{SVG}path")) == number
        assert len(hull.findall(f"{SVG}polygon")) == number + 1
    # It is where they are: each area is the outline of its node.
    drawn = {polygon.get("points") for node in graph if node.get("id") for polygon in node.iter(f"{SVG}polygon")}
    assert {polygon.get("points") for hull in hulls for polygon in hull.iter(f"{SVG}polygon")} <= drawn
    assert "hull" not in card_svg("UNFOLD")
