"""The panes of the operator view as data, each held against something that knows the answer otherwise."""

from __future__ import annotations

import base64
import csv
import io
import json
import random
import re
from collections.abc import Callable, Iterator
from math import prod
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import uniform_filter
from strategies import random_operator

from syno_lab.codegen import drawing
from syno_lab.codegen.loops import loops
from syno_lab.codegen.mixing import mixing
from syno_lab.codegen.nest import generic_binding, layer_binding
from syno_lab.codegen.text import expressions
from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.operators import (
    KNOWN,
    conv2d,
    grouped,
    half_step_shift,
    matmul,
    operator_1,
    sum_pool,
    unfold,
)
from syno_lab.panes import NAMES, Asked, export, exports, read_pane
from syno_lab.pgraphs.panes import PANES
from syno_lab.pgraphs.panes.image import as_input, picture_binding
from syno_lab.pgraphs.probe import probe

SVG = "{http://www.w3.org/2000/svg}"
SIZES = (("N", 1), ("C_in", 8), ("C_out", 16), ("H", 12), ("W", 14), ("k_1", 3))


@pytest.fixture
def operators(rng: random.Random) -> list[Operator]:
    """All known ones, and some that nobody has seen."""
    return [make() for make in KNOWN.values()] + [random_operator(rng)[0] for _ in range(12)]


def drawn_ids(svg: str) -> set[str]:
    return {g.get("id", "") for g in ElementTree.fromstring(svg).iter(f"{SVG}g")}


# -- picture and loop nest ---------------------------------------------------------------------------------------------


def pieces(nest: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(nest["lines"]):
        for piece in line:
            yield number, piece


def test_pieces_are_the_loop_nest_and_say_what_they_are(operators: list[Operator]) -> None:
    for operator in operators:
        asked = Asked(operator)
        whole, staged = read_pane(asked, "loops")["nests"]
        assert whole["text"] == loops(operator)
        assert staged["text"] == loops(operator, asked.bound(), staged=True)
        for nest in (whole, staged):
            assert nest["text"] == "".join("".join(p["text"] for p in line) + "\n" for line in nest["lines"])
        # Of the one nest every piece of a coordinate is its expression over the iterators, or a condition on it.
        names = expressions(operator)
        coordinates = drawing.coordinate_ids(operator)
        for _, piece in pieces(whole):
            first = piece.get("ids", ["x"])[0]
            if first in coordinates:
                inside = re.fullmatch(r"0 <= (.*) < .*", piece["text"])
                assert (inside[1] if inside else piece["text"]) == names[coordinates[first]]


def test_a_coordinate_lights_its_whole_expression_and_its_lines(operators: list[Operator]) -> None:
    for operator in operators:
        data = read_pane(Asked(operator), "graph")
        ids = drawn_ids(data["svg"])
        coordinates = drawing.coordinate_ids(operator)
        called = {coordinate: name for name, coordinate in coordinates.items()}
        lines = loops(operator).splitlines()
        assert set(data["links"]) == {name for name in ids if name not in ("graph0", "") and "--" not in name}
        for name, link in data["links"].items():
            assert set(link["light"]) <= ids
            assert name in link["light"]
            assert link["lines"], (operator, name)
        for name, coordinate in coordinates.items():
            link = data["links"][name]
            below = {coordinate}
            waiting = [coordinate]
            while waiting:
                operands = waiting.pop().node.operands
                below.update(operands)
                waiting.extend(operands)
            assert {one for one in link["light"] if one in coordinates} == {called[c] for c in below}
            if coordinate.is_leaf:
                assert f"for {expressions(operator)[coordinate]} in" in lines[link["lines"][0]]


def test_links_of_conv2d() -> None:
    links = read_pane(Asked(conv2d()), "graph")["links"]
    assert links["c7"] == {
        "words": "coordinate i_H + r_k_1 - k_1//2 of size H",
        "kind": "coordinate",
        "light": ["c2", "c5", "c5--s1", "c7", "c7--s4", "s1", "s3_c5", "s3_c5--c5", "s4", "s4--c2", "s4--s3_c5"],
        "marks": ["c7"],
        "lines": [10, 12],
    }
    assert links["s4"]["marks"] == ["s4", "c7"]
    assert links["w0"]["kind"] == "tensor"
    assert links["w0"]["lines"] == [12]


# -- cost, receptive field, mixing -------------------------------------------------------------------------------------


def test_costs_add_up() -> None:
    for make in KNOWN.values():
        asked = Asked(make())
        data = read_pane(asked, "cost")
        bound = layer_binding(asked.operator)
        assert data["binding"] == bound
        assert sum(row["flops"] for row in data["rows"]) == data["totals"]["flops"] == asked.operator.flops(bound)
        assert sum(row["share"] for row in data["rows"]) == pytest.approx(1.0 if data["totals"]["flops"] else 0.0)
        assert sum(row["weight_bytes"] for row in data["rows"]) == 4 * asked.operator.params(bound)
        assert data["rows"][-1]["out_bytes"] == 4 * prod(asked.operator.output_sizes(bound))
        assert data["totals"]["naive_flops"] >= data["totals"]["flops"]


def test_the_receptive_field_is_drawn_where_it_is() -> None:
    operator = conv2d()
    data = read_pane(Asked(operator, binding=SIZES, element="0, 3, 0, 5"), "reach")
    titles = [title.text or "" for title in ElementTree.fromstring(data["svg"]).iter(f"{SVG}title")][1:]
    # Row 0 has no row above it; each position is read once from each of 8 channels.
    assert titles == [f"[{h}, {w}]: read by 8 terms" for h in (0, 1) for w in (4, 5, 6)]
    assert [axis["cover"] for axis in data["axes"]] == ["whole", "whole", "part", "part"]
    whole = read_pane(Asked(operator, binding=SIZES, element=":,0,:,:"), "reach")
    assert whole["svg"].count("read by") == 12 * 14
    large = (*SIZES[:3], ("H", 300), ("W", 14), ("k_1", 3))
    window = read_pane(Asked(operator, binding=large), "reach")["svg"]
    assert "H 118..181 of 300 down" in window
    assert "[150, 7]" in window


@pytest.mark.parametrize("text", ["middle", "1,2", "1;2;3;4", "0,0,0,99", "1,,2,3", "²,0,0,0", "-1,0,0,0", None, 2.5])
def test_an_element_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"output (element|index): expected "):
        read_pane(Asked(conv2d(), binding=SIZES, element=text), "reach")


def test_mixing_is_the_matrix() -> None:
    data = read_pane(Asked(operator_1()), "mixing")
    found = mixing(operator_1())
    assert (tuple(data["rows"]), tuple(data["columns"])) == (found.rows, found.columns)
    assert tuple(map(tuple, data["marks"])) == found.locality


def test_neighbours_are_told() -> None:
    data = read_pane(Asked(operator_1()), "near")
    assert [row["name"] for row in data["rows"]][:2] == ["operator_1", "operator_2"]
    assert [row["same"] for row in data["rows"]][:2] == [True, False]
    assert data["rows"][1]["differences"][0].endswith("(0.25)")


# -- equation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [conv2d, grouped, unfold, half_step_shift, operator_1])
def test_equations_are_drawn(make: Callable[[], Operator]) -> None:
    for form in read_pane(Asked(make()), "equation")["forms"]:
        root = ElementTree.fromstring(form["svg"])
        assert {element.tag.removeprefix(SVG) for element in root.iter()} == {"svg", "title", "path"}
        assert root.get("aria-label", "").split() == form["text"].split()
        x, y, width, height = map(float, root.get("viewBox", "").split())
        for path in root.iter(f"{SVG}path"):
            assert path.get("fill") == "currentColor"
            numbers = [float(n) for n in re.findall(r"-?\d+\.\d+", path.get("d", ""))]
            assert len(numbers) > 40
            assert min(numbers[::2]) >= x
            assert max(numbers[::2]) <= x + width
            assert min(numbers[1::2]) >= y
            assert max(numbers[1::2]) <= y + height


# -- source and TIR ----------------------------------------------------------------------------------------------------


def test_the_source_is_a_module() -> None:
    text = read_pane(Asked(conv2d(), binding=SIZES), "source")["text"]
    assert "class SynoOperator(nn.Module):" in text
    assert "[batch, 8, 12, 14] -> [batch, 16, 12, 14]" in text


@pytest.mark.tvm
def test_tir_comes_from_another_process() -> None:
    import sys

    before = set(sys.modules)
    text = read_pane(Asked(conv2d(), binding=SIZES), "tir")["text"]
    assert 'X: T.Buffer((1, 8, 12, 14), "float32")' in text
    assert text.endswith("]\n"), "a file of it ends with its last line"
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] == "tvm"}


def test_a_process_that_dies_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(SynoError, match=r"^TIR: the process ended with exit status 1$"):
        read_pane(Asked(conv2d(), binding=SIZES), "tir")


# -- image -------------------------------------------------------------------------------------------------------------


def levels(picture: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(picture["png"])))).astype(int)


def scaled(plane: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 255 * (plane - plane.min()) / (plane.max() - plane.min())


def test_the_mean_of_a_photograph_is_its_blur() -> None:
    from sklearn.datasets import load_sample_image

    data = read_pane(Asked(conv2d(), "mine", photo="flower", weights="mean"), "image")
    assert "danielbuechele" in data["credit"]
    assert "vultilion" in data["credit"]
    photo = load_sample_image("flower.jpg")[:, 106:533] / 255.0  # the square in the middle of 427 x 640
    x = as_input(photo, (1, 8, 96, 96))
    blurred = uniform_filter(x[0].mean(axis=0, dtype=np.float64), 3, mode="constant")
    operator, convolution = data["outputs"]
    assert [out["title"] for out in data["outputs"]] == ["mine", "conv2d, 3 x 3"]
    for out in (operator, convolution):
        assert len(out["pictures"]) == 4
        for picture in out["pictures"]:
            assert np.abs(levels(picture) - scaled(blurred)).max() <= 1.01


def test_an_image_of_the_user_s_is_pooled() -> None:
    image = np.arange(96 * 96, dtype=np.float64).reshape(96, 96) % 251
    data = read_pane(Asked(sum_pool(), photo="own", image=image), "image")
    x = as_input(np.repeat(image[:, :, None], 3, axis=2) / 255, (1, 8, 96, 96))
    pooled = x[0, 0].reshape(48, 2, 48, 2).sum(axis=(1, 3))
    assert np.abs(levels(data["outputs"][0]["pictures"][0]) - scaled(pooled)).max() <= 1.01
    assert data["credit"] == "your own image; scaled"


def test_any_known_operator_has_sizes_of_a_picture() -> None:
    for name, make in KNOWN.items():
        operator = make()
        bound = picture_binding(operator, generic_binding(operator))
        assert min(operator.input_sizes(bound)[-2:]) >= 60, name
        assert max(operator.input_sizes(bound)[-2:]) <= 128, name


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"photo": "cat"}, "photo: expected china, flower, own, found 'cat'"),
        ({"photo": "own"}, "photo: expected an image for 'own', found none"),
        (
            {"photo": "own", "image": np.zeros((3, 4, 7))},
            r"image: expected numbers .* found float64 of shape \[3, 4, 7\]",
        ),
        (
            {"photo": "own", "image": np.full((8, 8), 300.0)},
            "image: expected numbers from 0 to 255, found some outside",
        ),
        ({"photo": "own", "image": np.full((8, 8), np.nan)}, "found some outside"),
        ({"photo": "own", "image": np.array([["a"]])}, "image: expected numbers"),
        ({"weights": "heavy"}, "weights: expected random or mean, found 'heavy'"),
    ],
)
def test_images_and_weights_that_are_none_are_refused(other: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        read_pane(Asked(conv2d(), **other), "image")


def test_an_input_of_one_axis_is_no_picture() -> None:
    build = Build("[H]", "[H]", ["H"])
    (h,) = build.output
    with pytest.raises(SpecError, match="the input has 1 axes: expected at least two"):
        read_pane(Asked(build.finish(h)), "image")


# -- what can be taken away --------------------------------------------------------------------------------------------


def test_every_form_of_every_pane_is_a_file() -> None:
    asked = Asked(matmul(), "=<my> ../operator")
    kinds = set()
    for pane in PANES:
        if pane == "tir":
            continue
        data = read_pane(asked, pane)
        forms = exports(asked, pane, data)
        assert len({form["format"] for form in forms}) == len(forms)
        for form in forms:
            assert re.fullmatch(r"my-----operator-[\w.-]+", form["file"]), form["file"]
            kinds.add(form["file"].rpartition(".")[2])
            if "svg_path" in form and pane != "graph":
                with pytest.raises(SpecError, match=f"{pane}: its PNG is made by the browser"):
                    export(asked, pane, data, form["format"])
                continue
            content = export(asked, pane, data, form["format"].upper())
            if form["file"].endswith(".png"):
                assert content.startswith(b"\x89PNG")
            elif form["file"].endswith(".pdf"):
                assert content.startswith(b"%PDF")
            elif form["file"].endswith(".json"):
                json.loads(content)
            elif form["file"].endswith(".svg"):
                ElementTree.fromstring(content)
            else:
                assert content.strip()
    assert kinds == {"svg", "png", "dot", "json", "txt", "py", "tex", "csv", "pdf"}


def test_the_operator_file_reads_back() -> None:
    asked = Asked(operator_1())
    data = read_pane(asked, "graph")
    assert Operator.from_json(export(asked, "graph", data, "operator file (JSON)").decode()) == operator_1()


def test_no_cell_of_a_table_is_a_formula() -> None:
    asked = Asked(operator_1())
    data = {"rows": [{"name": "=1+1", "differences": ["+a", "b"], "distance": -1.5}]}
    (row,) = csv.DictReader(io.StringIO(export(asked, "near", data, "csv").decode()))
    assert row == {"name": "'=1+1", "differences": "'+a | b", "distance": "-1.5"}


def test_what_is_asked_is_checked() -> None:
    with pytest.raises(SpecError, match=r"pane: expected one of graph, loops, .* found 'grpah'"):
        read_pane(Asked(conv2d()), "grpah")
    with pytest.raises(SpecError, match="C_out"):
        read_pane(Asked(conv2d(), binding=(("N", 1), ("C_in", 2), ("H", 3), ("W", 3))), "cost")
    data = read_pane(Asked(conv2d()), "mixing")
    with pytest.raises(SpecError, match="format: expected one of text, csv, json for the pane mixing, found 'SVG'"):
        export(Asked(conv2d()), "mixing", data, "SVG")
    assert tuple(PANES) == tuple(name for name in NAMES if name not in ("lineage", "solutions"))  # of other systems


# -- the kernel --------------------------------------------------------------------------------------------------------


def test_the_kernel_is_drawn_beside_a_convolution() -> None:
    data = read_pane(Asked(conv2d(), "mine", binding=SIZES), "kernel")
    found = probe(conv2d(), data["binding"])
    assert data["binding"] == {"N": 1, "C_in": 32, "C_out": 32, "H": 8, "W": 8, "k_1": 3}
    mine, other = data["rows"]
    assert (mine["name"], other["name"]) == ("mine", "conv2d, 3 x 3")
    assert (mine["space"], mine["outputs"], mine["inputs"]) == (found.e_space, found.e_out, found.e_in)
    assert data["shares"]["score"] == pytest.approx(1, abs=0.05)
    assert "over the offsets: 9.0, conv2d, 3 x 3 9.0: 100%" in data["text"]
    picture = ElementTree.fromstring(data["svg"])
    maps = [group for group in picture if group.tag == f"{SVG}g"]
    assert [group.findtext(f"{SVG}title", "").split(":")[0] for group in maps] == ["mine"] * 2 + ["conv2d, 3 x 3"] * 2
    cells = ["".join(path.get("d", "") for path in group.findall(f"{SVG}path")).count("M") for group in maps]
    assert cells == [9, 32 * 32] * 2
    assert json.loads(export(Asked(conv2d()), "kernel", data, "json")) == json.loads(json.dumps(data))
    assert export(Asked(conv2d()), "kernel", data, "svg").decode() == data["svg"]


def test_of_a_product_of_matrices_there_is_no_map_of_offsets() -> None:
    assert read_pane(Asked(matmul()), "kernel")["rows"][1]["name"] == "linear layer"


def test_the_kernel_of_any_operator_is_drawn(operators: list[Operator]) -> None:
    drawn = 0
    for operator in operators:
        try:
            data = read_pane(Asked(operator, "<a & b>"), "kernel")
        except SynoError:  # too large
            continue
        drawn += 1
        assert ElementTree.fromstring(data["svg"]).tag == f"{SVG}svg"
        assert len(data["svg"]) < 120_000
    assert drawn > 15
