"""The source of a graph computes what the graph means, alone with torch."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from alpha_in_torch import draw, grow

from syno_lab.alpha import Graph, Node, operation
from syno_lab.alpha.operations import OPERATIONS
from syno_lab.alpha.reference import run
from syno_lab.alpha.torch_source import to_torch_source
from syno_lab.errors import SpecError
from syno_lab.generated import class_of

# An operation of another system is held against its own system: test_operator_node.
ONE = [name for name, row in OPERATIONS.items() if row.inputs == 1 and name != "operator"]


def check(graph: Graph) -> None:
    module = class_of(to_torch_source(graph))().double().eval()
    weights = list(module.parameters())
    with torch.no_grad():
        for number, one in enumerate(weights, 1):
            assert one is getattr(module, f"weight_{number}")
            one.normal_()
    (shape,) = graph.inputs
    x = torch.randn(shape, dtype=torch.float64)
    (wanted,) = run(graph, [x.numpy()], [one.detach().numpy() for one in weights])
    with torch.no_grad():
        found = module(x)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match=r"expected an input of shape \[N"):
        module(torch.zeros(*shape[:-1], shape[-1] + 1))


@pytest.mark.parametrize("name", ONE)
def test_each_operation(name: str, rng: random.Random) -> None:
    for _ in range(6):
        made, (shape,) = draw(rng, name)
        if len(shape) > 1:
            check(Graph.chain(shape, [made]))


def test_two_tensors_and_weights(rng: random.Random) -> None:
    shape = (2, 3, 4)
    made = (
        Node(operation("parameter", shape=(3, 1))),
        Node(operation("mul"), (0, 1)),
        Node(operation("einsum", equation="bij,bik->bjk"), (0, 2)),
        Node(operation("dot"), (0, 3)),
        Node(operation("add"), (4, 0)),
    )
    check(Graph((shape,), made, (5,)))
    for _ in range(8):
        grown = grow(rng, 7)
        check(Graph.live(grown.inputs, grown.nodes, grown.outputs[:1]))


def test_training_normalises_by_the_batch_and_drops() -> None:
    graph = Graph.chain((4, 5, 3), [operation("batch_norm"), operation("dropout", rate=0.5), operation("relu")])
    module = class_of(to_torch_source(graph))().train()
    x = torch.randn(64, 5, 3) + 7
    y = module(x)
    assert abs(float(module.mean_1.mean()) - 0.7) < 0.1  # a tenth of the batch's mean, which is 7 within 0.1
    assert 0.5 < float((y == 0).float().mean()) < 0.9  # half is dropped, and half of the rest is below 0
    assert torch.equal(module.eval()(x), module(x))


def test_what_has_no_source() -> None:
    opaque = operation("opaque", what="a call", shape=(1, 2))
    with pytest.raises(SpecError, match="found a call, which has no source"):
        to_torch_source(Graph.chain((1, 2), [opaque]))
    with pytest.raises(SpecError, match="expected a graph of one input and one output, found 2 and 1"):
        to_torch_source(Graph(((1, 2), (1, 2)), (Node(operation("add"), (0, 1)),), (2,)))
