"""The meaning of operations and graphs in NumPy, plainly.

Tensors have channels last; norms and dropout are as in inference.

Weights are those of PyTorch's layers, in their order: of a dense layer [features, channels] and [features]; of a
convolution [features, channels of a group, windows…] and [features]; of a norm its scale and its offset, both
[channels]; of self-attention the layer to queries, keys and values, [3 channels, channels] and [3 channels], then that
of the result. A norm over a batch has mean 0 and variance 1, as a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import erf, prod
from typing import Any

import numpy as np

from syno_lab.alpha import operator_node
from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import OPAQUE, Operation, Shape
from syno_lab.alpha.table import SAME
from syno_lab.errors import SpecError

Array = np.ndarray[Any, Any]


def weight_shapes(operation: Operation, *shapes: Shape) -> tuple[Shape, ...]:
    """The shapes of an operation's weights for inputs of these shapes.

    Raises:
        SpecError: for an opaque operation with weights.
    """
    values = dict(operation.at(*shapes).attributes)
    channels = shapes[0][-1] if shapes and shapes[0] else 0
    match operation.name:
        case "dense":
            return _with_bias((values["features"], channels), values)
        case "conv":
            windows = (values["kernel"],) * (len(shapes[0]) - 2)
            return _with_bias((values["features"], channels // values["groups"], *windows), values)
        case "batch_norm" | "layer_norm" | "group_norm":
            return ((channels,), (channels,)) if values["affine"] else ()
        case "self_attention":
            return (*_with_bias((3 * channels, channels), values), *_with_bias((channels, channels), values))
        case "parameter":
            return (values["shape"],)
        case operator_node.NAME:
            operator, bound = operator_node.sizes(values["file"], values["features"], shapes[0])
            return operator.weight_sizes(bound)
        case name if name == OPAQUE and values["params"]:
            raise SpecError(_opaque(operation))
    return ()


def weight_order(graph: Graph) -> list[int]:
    """The nodes in the order of their weights; operators of other systems, modules of their own, come last."""
    return sorted(range(len(graph.nodes)), key=lambda number: graph.nodes[number].operation.name == operator_node.NAME)


def _with_bias(shape: Shape, values: dict[str, Any]) -> tuple[Shape, ...]:
    return (shape, shape[:1]) if values["bias"] else (shape,)


def _opaque(operation: Operation) -> str:
    return f"expected operations of the table, found {operation['what']}, which is known by its shape alone"


def run(graph: Graph, inputs: Sequence[Array], weights: Sequence[Array]) -> list[Array]:
    """The outputs of a graph.

    Args:
        graph: of which.
        inputs: of its shapes.
        weights: of all nodes, in the order of :func:`weight_order`.

    Raises:
        SpecError: for an opaque node.
    """
    left, tensors, mine = list(weights), list(inputs), dict[int, list[Array]]()
    for number in weight_order(graph):
        count = len(weight_shapes(graph.nodes[number].operation, *graph.input_shapes(number)))
        mine[number], left = left[:count], left[count:]
    for number, node in enumerate(graph.nodes):
        tensors.append(apply(node.operation, [tensors[tensor] for tensor in node.inputs], mine[number]))
    return [tensors[tensor] for tensor in graph.outputs]


def apply(operation: Operation, inputs: Sequence[Array], weights: Sequence[Array] = ()) -> Array:
    """The result of an operation.

    Raises:
        SpecError: for an opaque one.
    """
    values = dict(operation.at(*[tuple(x.shape) for x in inputs]).attributes)
    if operation.name in _ELEMENTWISE:
        return _ELEMENTWISE[operation.name](inputs[0], values)
    if operation.name == operator_node.NAME:
        operator, bound = operator_node.sizes(values["file"], values["features"], inputs[0].shape)
        return np.moveaxis(operator.reference(np.moveaxis(inputs[0], -1, 1), *weights, binding=bound), 1, -1)
    if operation.name in _OTHERS:
        return _OTHERS[operation.name](inputs, weights, values)
    raise SpecError(_opaque(operation) if operation.name == OPAQUE else f"{operation}: expected one with a meaning")


def _gelu(x: Array, values: dict[str, Any]) -> Array:
    if values["tanh"]:
        return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(erf, otypes=[x.dtype])(x / 2**0.5))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    found: Array = raised / raised.sum(-1, keepdims=True)
    return found


_ELEMENTWISE: dict[str, Callable[[Array, dict[str, Any]], Array]] = {
    "relu": lambda x, values: np.maximum(x, 0),
    "gelu": _gelu,
    "silu": lambda x, values: x * _sigmoid(x),
    "sigmoid": lambda x, values: _sigmoid(x),
    "softmax": lambda x, values: _softmax(x),
    "scalar_multiply": lambda x, values: x * values["constant"],
    "scalar_add": lambda x, values: x + values["constant"],
    "dropout": lambda x, values: x,
    "stochastic_depth": lambda x, values: x,
    "identity": lambda x, values: x,
    "none": lambda x, values: np.zeros_like(x),
    "reshape": lambda x, values: x.reshape(values["shape"]),
    "flatten": lambda x, values: x.reshape(len(x), -1),
    "transpose": lambda x, values: x.transpose(values["axes"]),
    "mean": lambda x, values: x.mean(values["axes"], keepdims=values["keep"]),
}


def _dense(x: Array, weights: Sequence[Array]) -> Array:
    found: Array = x @ weights[0].T
    return found + weights[1] if len(weights) > 1 else found


def _windows(x: Array, width: int, values: dict[str, Any], fill: float) -> Array:
    """The windows at each position: [B, positions…, C, windows…]; ``fill`` beyond the tensor."""
    stride, apart, padding = values["stride"], values.get("dilation", 1), values["padding"]
    span = (width - 1) * apart + 1
    pads = []
    for size in x.shape[1:-1]:
        total = max((-(-size // stride) - 1) * stride + span - size, 0) if padding == SAME else 2 * padding
        pads.append((total // 2, total - total // 2))
    padded = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill)
    axes = tuple(range(1, x.ndim - 1))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (span,) * len(axes), axes)
    positions = (slice(None), *[slice(None, None, stride)] * len(axes), slice(None))
    found: Array = seen[(*positions, *[slice(None, None, apart)] * len(axes))]
    return found


def _conv(x: Array, weights: Sequence[Array], values: dict[str, Any]) -> Array:
    kernel, groups = weights[0], values["groups"]
    seen = _windows(x, values["kernel"], values, 0.0)
    spatial = x.ndim - 2
    parts = []
    for number in range(groups):
        channels, features = x.shape[-1] // groups, len(kernel) // groups
        mine = seen[(*[slice(None)] * (spatial + 1), slice(number * channels, (number + 1) * channels))]
        rows = kernel[number * features : (number + 1) * features]
        parts.append(np.tensordot(mine, rows, (tuple(range(spatial + 1, mine.ndim)), tuple(range(1, rows.ndim)))))
    found = np.concatenate(parts, -1)
    return found + weights[1] if len(weights) > 1 else found


def _pool(x: Array, values: dict[str, Any], *, is_max: bool) -> Array:
    spatial = tuple(range(1, x.ndim - 1))
    if values["window"] == 0:
        return x.max(spatial, keepdims=True) if is_max else x.mean(spatial, keepdims=True)
    seen = _windows(x, values["window"], values, -np.inf if is_max else np.nan)
    axes = tuple(range(x.ndim, seen.ndim))
    found: Array = seen.max(axes) if is_max else np.nanmean(seen, axes)
    return found


def _normalised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    found: Array = (x - mean) / np.sqrt(variance + epsilon)
    return found


def _scaled(x: Array, weights: Sequence[Array]) -> Array:
    return x * weights[0] + weights[1] if weights else x


def _group_norm(x: Array, weights: Sequence[Array], values: dict[str, Any]) -> Array:
    split = x.reshape(*x.shape[:-1], values["groups"], -1)
    axes = (*range(1, x.ndim - 1), x.ndim)
    return _scaled(_normalised(split, axes, values["epsilon"]).reshape(x.shape), weights)


def _attention(x: Array, weights: Sequence[Array], values: dict[str, Any]) -> Array:
    each = len(weights) // 2
    batch, positions, channels = x.shape
    heads = (batch, positions, 3, values["heads"], channels // values["heads"])
    queries, keys, found = _dense(x, weights[:each]).reshape(heads).transpose(2, 0, 3, 1, 4)
    scores = queries @ keys.swapaxes(-1, -2) / heads[-1] ** 0.5
    if values["causal"]:
        scores = np.where(np.tri(positions, dtype=bool), scores, -np.inf)
    return _dense((_softmax(scores) @ found).transpose(0, 2, 1, 3).reshape(x.shape), weights[each:])


_OTHERS: dict[str, Callable[[Sequence[Array], Sequence[Array], dict[str, Any]], Array]] = {
    "add": lambda xs, weights, values: xs[0] + xs[1],
    "mul": lambda xs, weights, values: xs[0] * xs[1],
    "dot": lambda xs, weights, values: xs[0] @ xs[1],
    "einsum": lambda xs, weights, values: np.einsum(values["equation"], *xs),
    "dense": lambda xs, weights, values: _dense(xs[0], weights),
    "conv": lambda xs, weights, values: _conv(xs[0], weights, values),
    "max_pool": lambda xs, weights, values: _pool(xs[0], values, is_max=True),
    "average_pool": lambda xs, weights, values: _pool(xs[0], values, is_max=False),
    "batch_norm": lambda xs, weights, values: _scaled(xs[0] / (1 + values["epsilon"]) ** 0.5, weights),
    "layer_norm": lambda xs, weights, values: _scaled(_normalised(xs[0], (-1,), values["epsilon"]), weights),
    "group_norm": lambda xs, weights, values: _group_norm(xs[0], weights, values),
    "self_attention": lambda xs, weights, values: _attention(xs[0], weights, values),
    "parameter": lambda xs, weights, values: weights[0],
}


def live_elements(graph: Graph) -> int:
    """The most elements of tensors that are kept at a time while a graph runs, its inputs and outputs among them."""
    last = {tensor: number for number, node in enumerate(graph.nodes) for tensor in node.inputs}
    kept = {*range(len(graph.inputs)), *graph.outputs}
    alive = {tensor: prod(graph.shapes[tensor]) for tensor in kept}
    most = sum(alive.values())
    for number in range(len(graph.nodes)):
        made = graph.tensor(number)
        alive[made] = prod(graph.shapes[made])
        most = max(most, sum(alive.values()))
        for tensor in set(graph.nodes[number].inputs):
            if last[tensor] == number and tensor not in kept:
                del alive[tensor]
    return most
