"""Pictures of graphs are read back from the DOT text and must be the very graph again; the SVG says what it shows."""

from __future__ import annotations

import random
import re
from html import unescape
from xml.etree import ElementTree

from alpha_in_torch import grow
from alpha_networks import resnet

from syno_lab.alpha import Graph, Node, operation
from syno_lab.alpha.drawing import describe, dot, svg

SVG = "{http://www.w3.org/2000/svg}"
_EDGE = re.compile(r'^  (\w+) -> (\w+) \[id="\w+-in(\d+)".*?<TD[^>]*>(.*?)</TD>', re.MULTILINE)
_BOX = re.compile(r'^  (\w+) \[id="(\w+)", class="([^"]*)", label="(.*?)", style', re.MULTILINE)


def read_back(text: str) -> tuple[list[tuple[str, list[str]]], list[str], dict[str, str]]:
    """Of a drawing: names of nodes with their inputs in order, outputs, and the shape on each arrow by its start."""
    takes: dict[str, dict[int, str]] = {}
    shapes = {}
    for above, below, side, shape in _EDGE.findall(text):
        takes.setdefault(below, {})[int(side)] = above
        assert shapes.setdefault(above, shape) == shape, "a tensor has one shape"
    boxes = {name: label.partition("\\n")[0] for name, _, _, label in _BOX.findall(text)}
    ordered = [name for name in boxes if name.startswith("n")]
    nodes = [(boxes[name], [takes[name][side] for side in sorted(takes.get(name, {}))]) for name in ordered]
    return nodes, [takes[name][0] for name in boxes if name.startswith("out")], shapes


def test_graphs_are_read_back_from_their_pictures(rng: random.Random) -> None:
    for graph in [
        resnet()[0],
        *(grow(rng, rng.randint(1, 12), rng.randint(1, 3), rng.randint(1, 3)) for _ in range(20)),
    ]:

        def name(tensor: int, graph: Graph = graph) -> str:
            maker = graph.maker(tensor)
            return f"t{tensor}" if maker is None else f"n{maker}"

        nodes, outputs, shapes = read_back(dot(graph))
        assert nodes == [(node.operation.name, [name(tensor) for tensor in node.inputs]) for node in graph.nodes]
        assert outputs == [name(tensor) for tensor in graph.outputs]
        for tensor, shape in enumerate(graph.shapes):
            assert shapes.get(name(tensor), str(list(shape))) == str(list(shape))


def test_the_svg_names_every_part() -> None:
    graph, _ = resnet()
    picture = svg(graph, title="ResNet", highlight=[3, 4], notes={1: ["depth 1"]})
    root = ElementTree.fromstring(picture)
    groups = {group.get("id"): group for group in root.iter(f"{SVG}g")}
    for number, node in enumerate(graph.nodes):
        group = groups[f"n{number}"]
        title = group.find(f"{SVG}title")
        assert title is not None
        assert title.text is not None
        assert title.text.startswith(f"node {number}: {node}")
        assert ("highlight" in (group.get("class") or "").split()) == (number in (3, 4))
        for side in range(len(node.inputs)):
            assert f"n{number}-in{side}" in groups
    texts = [text.get("data-text") or "".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert {"ResNet", "depth 1", "input 0", "output 0", "batch_norm", "[2, 16, 16, 16]"} <= set(texts)
    assert root.get("role") == "img"
    assert root.get("aria-label") == f"ResNet. {describe(graph)}"


def test_the_text_alternative_has_every_operation_and_shape() -> None:
    nodes = (Node(operation("conv", features=8, groups=2), (0,)), Node(operation("add"), (1, 1)))
    said = describe(Graph(((2, 8, 8, 4),), nodes, (2, 1)))
    assert said == (
        "Graph of 2 operations, top to bottom: t0 = input of shape [2, 8, 8, 4]; "
        "t1 = conv(features=8, groups=2) of t0, of shape [2, 8, 8, 8]; "
        "t2 = add of t1, t1, of shape [2, 8, 8, 8]; outputs: t2, t1."
    )


def test_any_text_in_a_picture_stays_text() -> None:
    evil = '</title><script>"\\n&'
    node = Node(operation("opaque", what=evil, shape=(2, 4)), (0,), evil)
    picture = svg(Graph(((2, 4),), (node,), (1,)), title=evil)
    assert "<script" not in picture
    assert any(evil in unescape(text) for text in re.findall(r"<title>(.*?)</title>", picture))


def test_every_text_stands_on_a_light_ground() -> None:
    # One drawing serves light and dark pages: boxes are filled, and what stands beside them has a plate of its own.
    text = dot(resnet()[0], title="a title")
    assert 'bgcolor="transparent"' in text
    fills = re.findall(r'fillcolor="#(\w{6})"', text)
    assert len(fills) == len(_BOX.findall(text))
    grounds = [*fills, *re.findall(r'BGCOLOR="#(\w{6})"', text)]
    assert len(grounds) == len(fills) + len(_EDGE.findall(text)) + 1
    for ground in grounds:
        assert min(int(ground[i : i + 2], 16) for i in (0, 2, 4)) >= 0xA0
