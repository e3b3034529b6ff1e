"""Operators of other systems as operations of αNAS: what they do is what their own systems say of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from syno_lab import operators
from syno_lab.alpha import (
    Draft,
    Graph,
    Mutations,
    NetworkOperator,
    Properties,
    Rel,
    Variant,
    find_blocks,
    mutate,
    operation,
    operation_of,
    trace,
)
from syno_lab.alpha.operator import from_json
from syno_lab.alpha.operator_node import NAME
from syno_lab.canvas import Fitted, known
from syno_lab.errors import FormatError, SpecError
from syno_lab.models.registry import BACKBONES
from syno_lab.protocol import Operator
from syno_lab.systems import binding_for

SHAPE = (2, 6, 5, 8)
LENT: dict[str, Operator] = {
    "conv2d": operators.conv2d(),
    "grouped": operators.grouped(),
    "depthwise": operators.depthwise(),
    "residual": Fitted(known.residual()),
    "canvas convolution": Fitted(known.KNOWN["convolution"]()),
}


def moved(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, -1, 1)


@pytest.mark.parametrize("name", LENT)
def test_an_operator_does_in_a_graph_what_it_does_alone(name: str) -> None:
    operator = LENT[name]
    made = operation_of(operator)
    graph = Graph.chain(SHAPE, [made, operation("relu"), operation("dense", features=3)])
    batch, rows, columns, channels = SHAPE
    named = {"N": batch, "C_in": channels, "C_out": channels, "H": rows, "W": columns, "s": 1}
    sizes = (batch, channels, rows, columns)
    bound = binding_for(operator, {**named, "window_h": 3, "window_w": 3}, sizes, sizes)
    assert made.shape(SHAPE) == SHAPE
    assert (made.flops(SHAPE), made.params(SHAPE)) == (operator.flops(bound), operator.params(bound))
    network = NetworkOperator.of_graph(graph)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(SHAPE)
    weights = [rng.standard_normal(shape) for shape in network.weight_sizes({"N": batch})]
    count = len(operator.weight_sizes(bound))
    own, lent = weights[: len(weights) - count], weights[len(weights) - count :]
    alone = np.moveaxis(operator.reference(moved(x), *lent, binding=bound), 1, -1)
    expected = np.maximum(alone, 0) @ own[0].T + own[1]
    assert np.allclose(network.reference(x, *weights, binding={"N": batch}), expected)
    module = network.to_torch({"N": batch}).double()
    with torch.no_grad():
        for parameter, weight in zip(module.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
    assert np.allclose(module(torch.from_numpy(x)).detach().numpy(), expected, atol=1e-9)
    # The module of the graph takes any batch.
    traced = graph.to_torch()
    assert traced(torch.randn(5, rows, columns, channels)).shape == (5, rows, columns, 3)
    again = from_json(network.to_json())
    assert again == network
    assert Graph.from_json(graph.to_json()) == graph


def test_what_it_pairs_is_what_the_convolution_pairs() -> None:
    pairs = {
        "conv2d": operation("conv", features=Rel()),
        "depthwise": operation("conv", features=Rel(), groups=Rel()),
        "grouped": operation("conv", features=Rel(), groups=4),
        "canvas convolution": operation("conv", features=Rel()),
    }
    for name, like in pairs.items():
        assert operation_of(LENT[name]).pairings(SHAPE) == like.pairings(SHAPE), name
    assert operation_of(LENT["conv2d"]).linear is True
    assert operation_of(LENT["residual"]).linear is False


def test_the_second_pass_takes_operators_of_the_same_class(rng: random.Random) -> None:
    lent = [operation_of(operator) for operator in LENT.values()]
    wanted = Properties.of(Graph.chain(SHAPE, [operation("conv", features=Rel(2)), operation("relu")]))
    draft = Draft(wanted, SHAPE, (operation("conv", features=Rel(2)), operation("relu")))
    found = [draft.exchanged(rng, lent) for _ in range(60)]
    assert all(wanted.satisfied_by(one.graph()) for one in found)
    # Half of all draws take one, so 60 without fail by chance once in 2^60. Only conv2d fits: the kernels are not
    # linear, the others pair less.
    taken = [one.chain[0] for one in found if one.chain[0].name == NAME]
    assert taken
    assert set(taken) == {operation_of(LENT["conv2d"]).replace(features=Rel(2))}


def test_a_network_with_operators_is_a_file_and_trains(rng: random.Random) -> None:
    net = BACKBONES["cnn"].build(options={"width": 4})
    seed = Variant(find_blocks(trace(net, (3, 32, 32))))
    rules = Mutations(duplicate=0.0, delete=0.0, relax="paper", operators=(operation_of(operators.conv2d()),))
    found = None
    for _ in range(300):
        edit = mutate(seed.network, rng, rules)
        if edit is not None and any(node.operation.name == NAME for node in edit.new.nodes):
            found = seed.edited(edit)
            break
    assert found is not None
    assert "pGraphs conv2d" in str(found)
    operator = NetworkOperator(found)
    assert from_json(operator.to_json()) == operator
    module = operator.variant.network.graph.to_torch()
    module(torch.randn(4, 3, 32, 32)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    assert sum(parameter.numel() for parameter in module.parameters()) == operator.params()


def test_bad_files_are_refused_in_one_line() -> None:
    whole = NetworkOperator.of_graph(Graph.chain(SHAPE, [operation("relu")]))
    for text in ("", "{}", '{"format": "syno-lab-operator"}', whole.to_json(), 7):
        with pytest.raises(
            SpecError, match=r"^operator: file: expected the text of an operator file for layers, found"
        ):
            operation("operator", file=text)
    with pytest.raises(SpecError, match="expected 4 axes: batch, rows, columns and channels"):
        operation_of(operators.conv2d()).shape((2, 8))
    with pytest.raises(SpecError, match=r"Mutations: operators: expected operations of sl\.alpha\.operation_of, found"):
        Mutations(operators=(operation("relu"),))
    text = Graph.chain(SHAPE, [operation_of(operators.conv2d())]).to_json().replace("syno-lab-operator", "syno-lab-x")
    with pytest.raises(FormatError, match="node 0: operator: file: expected the text of an operator file"):
        Graph.from_json(text)
