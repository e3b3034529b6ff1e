"""The meaning in NumPy is what PyTorch computes, operation by operation."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest
import torch
from alpha_in_torch import draw, grow

from syno_lab.alpha import Graph, Node, operation
from syno_lab.alpha.layers import SECOND, module
from syno_lab.alpha.operations import OPERATIONS
from syno_lab.alpha.reference import apply, live_elements, run
from syno_lab.errors import SpecError

# An operation of another system is held against its own system: test_operator_node.
NAMES = [name for name in OPERATIONS if name not in ("opaque", "operator", "parameter")]


@pytest.mark.parametrize("name", NAMES)
def test_each_operation_is_its_layer(name: str, rng: random.Random) -> None:
    for _ in range(12):
        made, shapes = draw(rng, name)
        layer = module(made, *shapes).double().eval()
        parameters = list(layer.parameters())
        assert [tuple(one.shape) for one in parameters] == list(made.weights(*shapes))
        assert sum(one.numel() for one in parameters) == made.params(*shapes)
        inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
        with torch.no_grad():
            for one in parameters:
                one.normal_()
            moved = [x.movedim(-1, 1) for x in inputs] if name in SECOND else inputs
            wanted = layer(*moved)
            wanted = wanted.movedim(1, -1) if name in SECOND else wanted
        found = apply(made, [x.numpy() for x in inputs], [one.detach().numpy() for one in parameters])
        assert found.shape == made.shape(*shapes)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-9, atol=1e-9)


def test_graphs_run_node_by_node(rng: random.Random) -> None:
    for _ in range(8):
        graph = grow(rng, 6, inputs=2, outputs=2)
        made = graph.to_torch().double().eval()
        inputs = [torch.randn(shape, dtype=torch.float64) for shape in graph.inputs]
        shapes = [
            shape
            for number, node in enumerate(graph.nodes)
            for shape in node.operation.weights(*graph.input_shapes(number))
        ]
        parameters = list(made.parameters())
        assert sorted(shapes) == sorted(tuple(one.shape) for one in parameters)
        with torch.no_grad():
            wanted = made(*inputs)
        found = run(graph, [x.numpy() for x in inputs], [one.detach().numpy() for one in parameters])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-9, atol=1e-9)


def test_live_elements_of_a_branch() -> None:
    """Input, one branch, the other and their sum: all are needed when they are added."""
    shape = (1, 2, 2, 4)
    nodes = (Node(operation("relu"), (0,)), Node(operation("silu"), (0,)), Node(operation("add"), (1, 2)))
    assert live_elements(Graph((shape,), nodes, (3,))) == 4 * prod(shape)
    chain = Graph.chain(shape, [operation("relu")] * 5)
    assert live_elements(chain) == 4 * prod(shape)  # input and output are kept, and two between them


def test_what_is_known_by_its_shape_alone_has_no_meaning() -> None:
    made = operation("opaque", what="a call", shape=(1, 2), params=3)
    with pytest.raises(SpecError, match="expected operations of the table, found a call"):
        made.weights((1, 2))
    with pytest.raises(SpecError, match="found a call"):
        apply(made, [np.zeros((1, 2))])
