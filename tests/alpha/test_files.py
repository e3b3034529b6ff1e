"""Graphs and networks come back from their files; files of others are refused in one line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from alpha_in_torch import draw, grow
from alpha_networks import resnet, vit

from syno_lab.alpha import OPERATIONS, Graph, Network, Node, Operation, Rel, operation
from syno_lab.alpha.blocks import find_blocks
from syno_lab.alpha.files import from_json, network_from_json, network_to_json, to_json
from syno_lab.alpha.operations import choices
from syno_lab.errors import FormatError


def single(found: Operation, shapes: tuple[tuple[int, ...], ...]) -> Graph:
    return Graph(shapes, (Node(found, tuple(range(len(shapes))), "a.b"),), (len(shapes),))


# An operation of another system is held against its own system: test_operator_node.
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ("opaque", "operator")])
def test_every_operation_comes_back(name: str, rng: random.Random) -> None:
    for _ in range(10):
        graph = single(*draw(rng, name))
        found = from_json(to_json(graph))
        assert found == graph
        assert found.key == graph.key
        assert found.nodes[0].source == "a.b"


def test_all_choices_and_opaque_nodes_come_back() -> None:
    shape = (2, 16, 16, 64)
    for each in choices():
        try:
            graph = single(each, (shape,))
        except ValueError:
            continue
        assert from_json(to_json(graph)) == graph
    graph = single(operation("opaque", what="theirs.LSTM", shape=(Rel(axis=0), 5), params=7, flops=0), (shape, (3,)))
    assert from_json(to_json(graph)) == graph


def test_graphs_and_networks_have_their_files_as_methods() -> None:
    found = find_blocks(*resnet())
    assert Graph.from_json(found.graph.to_json()) == found.graph
    assert Network.from_json(found.to_json()) == found


def test_graphs_come_back(rng: random.Random) -> None:
    for _ in range(20):
        graph = grow(rng, rng.randint(1, 12), rng.randint(1, 3), rng.randint(1, 3))
        assert from_json(to_json(graph)) == graph


@pytest.mark.parametrize("network", [resnet, vit])
def test_networks_come_back(network: Callable[[], tuple[Graph, dict[str, str]]]) -> None:
    found = find_blocks(*network())
    assert network_from_json(network_to_json(found)) == found


# -- files of others ---------------------------------------------------------------------------------------------------


def file(**changes: Any) -> str:
    """A file of one dense layer, changed."""
    node = {"operation": "dense", "attributes": {"features": {"mul": 2}}, "inputs": [0]}
    graph = {"inputs": [[2, 4]], "nodes": [node], "outputs": [1]}
    for name, value in changes.items():
        part = graph if name in ("nodes", "outputs") else node
        part[name] = value
    return json.dumps({"format": "syno-lab-graph", "version": 1, "graph": graph})


def test_the_file_of_these_tests_is_one() -> None:
    assert from_json(file()).output_shapes == ((2, 8),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ("{}", "expected format 'syno-lab-graph', found ''"),
        (file().replace("syno-lab-graph", "other"), "expected format 'syno-lab-graph', found 'other'"),
        (file().replace('"version": 1', '"version": 2'), "expected version 1, found 2"),
        (" " * ((1 << 22) + 1), "expected at most 4194304 bytes"),
        (file(extra=1), "expected JSON .*unknown field `extra`"),
        (file(operation="__import__"), "node 0: expected an operation .*, found '__import__'"),
        (file(attributes={}), "node 0: dense: features: expected a positive integer or a Rel, found None"),
        (file(attributes={"features": 1e3}), "node 0: dense: features: expected"),
        (file(attributes={"features": 10**40}), "expected JSON|features: expected"),
        (file(attributes={"features": {"mul": 0}}), r"expected positive integers, found 0 / 1 - at .*nodes\[0\]"),
        (file(attributes={"features": {"mul": 1, "code": "x"}}), "expected JSON .*unknown field `code`"),
        (file(attributes={"features": [[1]]}), "expected JSON"),
        (file(attributes={"features": 4, "\x1b[2J": 4}), "node 0: dense: expected attributes among these"),
        (file(inputs=[1]), r"node 0 \(dense\): expected tensors that come before, 0 to 0, found 1"),
        (file(inputs=[0, 0]), "node 0: dense.*: expected 1 inputs, found 2"),
        (file(inputs=[10**18]), "expected tensors that come before"),
        (file(source="x" * 1_000), "node 0: source: expected at most 400 characters"),
        (file(outputs=[]), "expected at least one output, found none"),
        (file(outputs=[1] * 10_000), "expected at most 8192 outputs, found 10000"),
        (file(nodes=[{"operation": "relu", "inputs": [0]}] * 10_000), "expected at most 8192 nodes, found 10000"),
        (file(nodes=[{"operation": "relu", "inputs": [0]}]), None),
    ],
)
def test_hostile_files_are_refused_in_one_line(text: str, message: str | None) -> None:
    if message is None:
        assert from_json(text).nodes[0].operation == operation("relu")
        return
    with pytest.raises(FormatError, match=f"graph file: .*{message}") as found:
        from_json(text)
    assert str(found.value).isprintable()


def test_any_change_of_a_file_is_read_or_refused(rng: random.Random) -> None:
    # Characters of a true file exchanged, doubled or left out: FormatError or a graph, never another error.
    text = network_to_json(find_blocks(*vit(1), names=["Layer"]))
    graph_text = to_json(vit(1)[0])
    signs = '0123456789-"[]{},.eE truefalsn'
    for _ in range(400):
        true, read = rng.choice(((text, network_from_json), (graph_text, from_json)))
        place = rng.randrange(len(true))
        kind = rng.randrange(3)
        broken = true[:place] + (rng.choice(signs) if kind else "") + true[place + (kind < 2) :]
        with suppress(FormatError):
            read(broken)


def test_blocks_of_files_are_checked() -> None:
    data = json.loads(network_to_json(find_blocks(*resnet())))
    cases: list[tuple[Callable[[Any], Any], str]] = [
        (lambda d: d["blocks"][0].update(mutable=[99]), "expected nodes from 0 to 6"),
        (lambda d: d["blocks"][0]["graph"].update(inputs=[[2, 16, 16, 8]]), "block 0: .*add of|block 0: expected"),
        (lambda d: d["blocks"][0]["graph"].update(outputs=[7, 7]), "expected a block of one input and one output"),
        (lambda d: d["head"].update(inputs=[[2, 4, 4, 32]]), "head: expected one input of shape"),
        (lambda d: d["stem"]["nodes"].pop(), "stem: outputs: expected tensors"),
    ]
    for change, message in cases:
        broken = json.loads(json.dumps(data))
        change(broken)
        with pytest.raises(FormatError, match=f"network file: .*({message})"):
            network_from_json(json.dumps(broken))
