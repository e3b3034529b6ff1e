"""The mixing property by its definition (αNAS, 3.1 to 3.5): whole Jacobians of graphs with random weights in float64.

Activations are smooth ones, softplus for relu, and pools are sums with random weights: at one random input their
derivatives vanish exactly where they vanish everywhere. (Plain averages can cancel by algebra, which no pairing sees:
the mean over an axis of what a norm of single channels has centred is constant.)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from alpha_in_torch import InTorch, module

from syno_lab.alpha import Graph, Node, Operation, operation
from syno_lab.alpha.operations import Shape, choices
from syno_lab.alpha.properties import pairing_of
from syno_lab.common.pairing import Pairing
from syno_lab.errors import SpecError

CHOICES = choices()
BY_NAME: dict[str, list[Operation]] = {}
for _one in CHOICES:
    BY_NAME.setdefault(_one.name, []).append(_one)
#: Elements of a tensor at most, so that a Jacobian is small.
MOST = 600


def random_graph(rng: random.Random, most: int = 5) -> Graph:
    """One or two inputs, up to ``most`` operations, branches joined by sums and products, some axes rearranged."""
    shape = rng.choice([(2, 6, 6, 4), (2, 4, 6, 3), (1, 5, 4, 4), (2, 3, 3, 8), (2, 6, 4), (2, 2, 1, 6)])
    inputs = (shape,) * rng.choice((1, 1, 2))
    shapes, nodes = list(inputs), list[Node]()
    wanted = rng.randint(1, most)
    while len(nodes) < wanted:
        taken = rng.randrange(len(shapes)) if rng.random() < 0.4 else len(shapes) - 1
        kind = rng.random()
        alike = [other for other in range(len(shapes)) if shapes[other] == shapes[taken]]
        if kind < 0.15 and len(alike) > 1:
            node = Node(operation(rng.choice(("add", "mul"))), tuple(rng.sample(alike, 2)))
        elif kind < 0.2:
            axes = [0, *rng.sample(range(1, len(shapes[taken])), len(shapes[taken]) - 1)]
            node = Node(operation("transpose", axes=tuple(axes)), (taken,))
        else:
            node = Node(rng.choice(BY_NAME[rng.choice(list(BY_NAME))]), (taken,))
        try:
            found = node.operation.shape(*(shapes[one] for one in node.inputs))
        except SpecError:
            continue
        if np.prod(found) <= MOST and is_sound(node.operation, [shapes[one] for one in node.inputs]):
            shapes.append(found)
            nodes.append(node)
    used = {taken for node in nodes for taken in node.inputs}
    return Graph(inputs, tuple(nodes), tuple(i for i in range(len(inputs), len(shapes)) if i not in used))


def is_sound(op: Operation, shapes: Sequence[Shape]) -> bool:
    """Whether Lemma 3.6 holds for what comes before and after it; ``test_where_the_lemma_fails`` has the others.

    It must read each position of its input, and no two of its results may read the same single one.
    """
    if op.row.role != "chosen":
        return True
    (own,) = op.pairings(*shapes)
    at, channels = op.at(*shapes), shapes[0][-1]
    repeats = op.name == "conv" and at["groups"] == channels < at["features"] and channels > 1
    return all(own.marks[i][i] != "x" for i in range(len(shapes[0]))) and not repeats


def exact(graph: Graph, seed: int) -> list[list[Pairing]]:
    """For each input and output the pairing by Definitions 3.4 and 3.5."""
    torch.manual_seed(seed)
    net = InTorch(graph, smooth=True)
    for number, node in enumerate(graph.nodes):
        if node.operation.name in ("average_pool", "max_pool"):
            net.parts[number] = _pool(node.operation, graph.input_shapes(number)[0])
    net = net.double()
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in graph.inputs]
    rows = []
    for number in range(len(inputs)):
        jacobians = torch.func.jacrev(net, argnums=number)(*inputs)
        rows.append(
            [
                pairing_by_definition(one.detach().numpy() != 0, len(graph.shapes[output]))
                for one, output in zip(jacobians, graph.outputs, strict=True)
            ]
        )
    return rows


class _Weighted(torch.nn.Module):
    """A sum over all of the spatial axes with random weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.axes = tuple(range(1, len(shape) - 1))
        self.weight = torch.nn.Parameter(torch.rand(*shape[1:-1], 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).sum(self.axes, keepdim=True)


def _pool(op: Operation, shape: Shape) -> torch.nn.Module:
    """A pool whose windows are summed with random weights: a convolution of each channel alone."""
    window, channels = op["window"], shape[-1]
    if window == 0:
        return _Weighted(shape)
    each = operation("conv", features=channels, groups=channels, kernel=window, stride=op["stride"])
    return module(each, shape)


def pairing_by_definition(contributes: Any, axes: int) -> Pairing:
    """The matrix of ``contributes``, which has ``axes`` axes of the output first and then those of the input."""
    columns = []
    for axis in range(axes, contributes.ndim):
        others = tuple(i for i in range(axes, contributes.ndim) if i != axis)
        reads = contributes.any(axis=others)  # (output…, position along the axis)
        most = int(reads.sum(-1).max())
        mark = "a" if most == reads.shape[-1] else "m" if most > 1 else "o"
        paired = [bool(reads.any(axis=k).all(-1).any()) for k in range(axes)]
        columns.append([mark if one else "x" for one in paired])
    return pairing_of(list(zip(*columns, strict=True)), contributes.ndim - axes)
