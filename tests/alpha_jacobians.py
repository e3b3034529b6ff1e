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
from torch.nn import functional as F

from syno_lab.alpha.graph import Graph, Node
from syno_lab.alpha.operations import Operation, Shape, choices, operation
from syno_lab.alpha.properties import pairing_of
from syno_lab.errors import SpecError
from syno_lab.ir.pairing import Pairing

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


def run(graph: Graph, inputs: Sequence[torch.Tensor], weights: Sequence[list[torch.Tensor]]) -> list[torch.Tensor]:
    """The outputs of a graph."""
    found = list(inputs)
    for node, own in zip(graph.nodes, weights, strict=True):
        found.append(apply(node.operation, [found[one] for one in node.inputs], own))
    return [found[one] for one in graph.outputs]


def weights_of(graph: Graph, generator: torch.Generator) -> list[list[torch.Tensor]]:
    """Random weights for each node."""
    return [_weights(node.operation, graph.input_shapes(number), generator) for number, node in enumerate(graph.nodes)]


def _weights(op: Operation, shapes: Sequence[Shape], generator: torch.Generator) -> list[torch.Tensor]:
    def normal(*size: int) -> torch.Tensor:
        fan = int(np.prod(size[1:])) or 1
        return torch.randn(*size, dtype=torch.float64, generator=generator) / fan**0.5

    if op.name == "dense":
        return [normal(op.at(*shapes)["features"], shapes[0][-1])]
    if op.name == "conv":
        at = op.at(*shapes)
        return [normal(at["features"], shapes[0][-1] // at["groups"], *[at["kernel"]] * (len(shapes[0]) - 2))]
    if op.name in ("average_pool", "max_pool"):
        window = op["window"]
        axes = list(shapes[0][1:-1]) if window == 0 else [window] * (len(shapes[0]) - 2)
        return [normal(shapes[0][-1], 1, *axes).abs()]
    return [normal(shapes[0][-1])] if op.name == "batch_norm" else []


def apply(op: Operation, xs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """One operation, channels last."""
    x, shapes = xs[0], [tuple(one.shape) for one in xs]
    at = op.at(*shapes)
    match op.name:
        case "dense":
            return x @ weights[0].T
        case "conv":
            first = _padded(x.movedim(-1, 1), at["kernel"], at["stride"], at["dilation"])
            conv = {3: F.conv1d, 4: F.conv2d}[x.ndim]
            return conv(first, weights[0], stride=at["stride"], dilation=at["dilation"], groups=at["groups"]).movedim(
                1, -1
            )
        case "average_pool" | "max_pool":
            first, stride = x.movedim(-1, 1), at["stride"]
            if at["window"] == 0:
                stride = 1
            else:
                first = _padded(first, at["window"], stride)
            pool = {3: F.conv1d, 4: F.conv2d}[x.ndim]
            return pool(first, weights[0], stride=stride, groups=x.shape[-1]).movedim(1, -1)
        case "relu":
            return F.softplus(x)
        case "gelu" | "silu" | "sigmoid":
            return getattr(F, op.name)(x)
        case "softmax":
            return x.softmax(-1)
        case "batch_norm":
            return x * weights[0]
        case "layer_norm":
            return F.layer_norm(x, (x.shape[-1],))
        case "group_norm":
            first = x.movedim(-1, 1)
            groups = first.reshape(x.shape[0], at["groups"], -1)
            return F.layer_norm(groups, groups.shape[-1:]).reshape(first.shape).movedim(1, -1)
        case "dropout" | "scalar_multiply":
            return 0.5 * x
        case "add":
            return xs[0] + xs[1]
        case "mul":
            return xs[0] * xs[1]
        case "transpose":
            return x.permute(at["axes"])
        case "flatten":
            return x.flatten(1)
    raise NotImplementedError(op.name)


def _padded(x: torch.Tensor, window: int, stride: int, dilation: int = 1) -> torch.Tensor:
    """Zeros on both sides as SAME has them, the odd one at the far end."""
    sides = []
    for size in reversed(x.shape[2:]):
        missing = max((-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size, 0)
        sides += [missing // 2, missing - missing // 2]
    return F.pad(x, sides)


def exact(graph: Graph, generator: torch.Generator) -> list[list[Pairing]]:
    """For each input and output the pairing by Definitions 3.4 and 3.5."""
    weights = weights_of(graph, generator)
    inputs = [torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in graph.inputs]
    rows = []
    for number in range(len(inputs)):
        jacobians = torch.func.jacfwd(lambda *given: tuple(run(graph, given, weights)), argnums=number)(*inputs)
        rows.append(
            [
                pairing_by_definition(one.numpy() != 0, len(graph.shapes[output]))
                for one, output in zip(jacobians, graph.outputs, strict=True)
            ]
        )
    return rows


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
