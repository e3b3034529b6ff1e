"""The reference of operations and graphs: their computation in NumPy, as plain code.

Tensors have channels last; norms and dropout compute as in inference.

The weights are those of PyTorch's layers, in their order. A dense layer has [features, channels] and [features]. A
convolution has [features, channels of a group, windows…] and [features]. A norm has scale and offset, each [channels].
Self-attention has a dense layer of queries, keys and values, [3 channels, channels] and [3 channels], then a dense
layer of the result. A batch norm uses mean 0 and variance 1, as a new module does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import erf, prod
from typing import Any

import numpy as np

from syno_lab.alpha import operator_node
from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import Operation
from syno_lab.alpha.row import Applied
from syno_lab.alpha.table import pads
from syno_lab.errors import SpecError

Array = np.ndarray[Any, Any]


def weight_order(graph: Graph) -> list[int]:
    """Return the nodes in the order of their weights; operators of other systems come last."""
    return sorted(range(len(graph.nodes)), key=lambda number: graph.nodes[number].operation.name == operator_node.NAME)


def run(graph: Graph, inputs: Sequence[Array], weights: Sequence[Array]) -> list[Array]:
    """Return the outputs of a graph; ``weights`` are in the order of :func:`weight_order`.

    Raises SpecError for an opaque node.
    """
    rest, tensors, by_node = list(weights), list(inputs), dict[int, list[Array]]()
    for number in weight_order(graph):
        count = len(graph.nodes[number].operation.weights(*graph.input_shapes(number)))
        by_node[number], rest = rest[:count], rest[count:]
    for number, node in enumerate(graph.nodes):
        tensors.append(apply(node.operation, [tensors[tensor] for tensor in node.inputs], by_node[number]))
    return [tensors[tensor] for tensor in graph.outputs]


def apply(operation: Operation, inputs: Sequence[Array], weights: Sequence[Array] = ()) -> Array:
    """Return the result of an operation. Raises SpecError for an opaque operation."""
    at = operation.on(*[tuple(x.shape) for x in inputs])
    if operation.name == operator_node.NAME:
        operator, bound = operator_node.placed(at)
        return np.moveaxis(operator.reference(np.moveaxis(inputs[0], -1, 1), *weights, binding=bound), 1, -1)
    if operation.name not in _MEANINGS:
        name = f"{operation['what']}, which is known by its shape alone"
        raise SpecError(f"expected operations of the table, found {name}")
    return _MEANINGS[operation.name](at, weights, *inputs)


def _gelu(x: Array, at: Applied) -> Array:
    if at["tanh"]:
        return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(erf, otypes=[x.dtype])(x / 2**0.5))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _softmax(x: Array) -> Array:
    raised: Array = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def _dense(x: Array, weights: Sequence[Array]) -> Array:
    product: Array = x @ weights[0].T
    return product + weights[1] if len(weights) > 1 else product


def _windows(x: Array, width: int, at: Applied, fill: float) -> Array:
    """Return the window at each position, as an array [B, positions…, C, window…], padded with ``fill``."""
    stride, apart, flat = at["stride"], at.values.get("dilation", 1), pads(at, x.shape[1:-1])
    span = (width - 1) * apart + 1
    around = list(zip(flat[::2], flat[1::2], strict=True))[::-1]
    padded = np.pad(x, [(0, 0), *around, (0, 0)], constant_values=fill)
    axes = tuple(range(1, x.ndim - 1))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (span,) * len(axes), axes)
    positions = (slice(None), *[slice(None, None, stride)] * len(axes), slice(None))
    return seen[(*positions, *[slice(None, None, apart)] * len(axes))]


def _conv(x: Array, weights: Sequence[Array], at: Applied) -> Array:
    kernel, groups = weights[0], at["groups"]
    seen = _windows(x, at["kernel"], at, 0.0)
    spatial = x.ndim - 2
    parts = []
    for number in range(groups):
        channels, features = x.shape[-1] // groups, len(kernel) // groups
        group = seen[(*[slice(None)] * (spatial + 1), slice(number * channels, (number + 1) * channels))]
        rows = kernel[number * features : (number + 1) * features]
        parts.append(np.tensordot(group, rows, (tuple(range(spatial + 1, group.ndim)), tuple(range(1, rows.ndim)))))
    result = np.concatenate(parts, -1)
    return result + weights[1] if len(weights) > 1 else result


def _pool(x: Array, at: Applied, *, is_max: bool) -> Array:
    spatial = tuple(range(1, x.ndim - 1))
    if at["window"] == 0:
        return x.max(spatial, keepdims=True) if is_max else x.mean(spatial, keepdims=True)
    seen = _windows(x, at["window"], at, -np.inf if is_max else np.nan)
    axes = tuple(range(x.ndim, seen.ndim))
    return seen.max(axes) if is_max else np.nanmean(seen, axes)


def _normalised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


def _scaled(x: Array, weights: Sequence[Array]) -> Array:
    return x * weights[0] + weights[1] if weights else x


def _group_norm(x: Array, weights: Sequence[Array], at: Applied) -> Array:
    split = x.reshape(*x.shape[:-1], at["groups"], -1)
    axes = (*range(1, x.ndim - 1), x.ndim)
    return _scaled(_normalised(split, axes, at["epsilon"]).reshape(x.shape), weights)


def _attention(x: Array, weights: Sequence[Array], at: Applied) -> Array:
    half = len(weights) // 2
    batch, positions, channels = x.shape
    heads = (batch, positions, 3, at["heads"], channels // at["heads"])
    queries, keys, values = _dense(x, weights[:half]).reshape(heads).transpose(2, 0, 3, 1, 4)
    scores = queries @ keys.swapaxes(-1, -2) / heads[-1] ** 0.5
    if at["causal"]:
        scores = np.where(np.tri(positions, dtype=bool), scores, -np.inf)
    return _dense((_softmax(scores) @ values).transpose(0, 2, 1, 3).reshape(x.shape), weights[half:])


#: Operations as functions of their attributes, weights and inputs.
_MEANINGS: dict[str, Callable[..., Array]] = {
    "relu": lambda at, weights, x: np.maximum(x, 0),
    "gelu": lambda at, weights, x: _gelu(x, at),
    "silu": lambda at, weights, x: x * _sigmoid(x),
    "sigmoid": lambda at, weights, x: _sigmoid(x),
    "softmax": lambda at, weights, x: _softmax(x),
    "scalar_multiply": lambda at, weights, x: x * at["constant"],
    "scalar_add": lambda at, weights, x: x + at["constant"],
    "dropout": lambda at, weights, x: x,
    "stochastic_depth": lambda at, weights, x: x,
    "identity": lambda at, weights, x: x,
    "none": lambda at, weights, x: np.zeros_like(x),
    "reshape": lambda at, weights, x: x.reshape(at["shape"]),
    "flatten": lambda at, weights, x: x.reshape(len(x), -1),
    "transpose": lambda at, weights, x: x.transpose(at["axes"]),
    "mean": lambda at, weights, x: x.mean(at["axes"], keepdims=at["keep"]),
    "add": lambda at, weights, x, y: x + y,
    "mul": lambda at, weights, x, y: x * y,
    "dot": lambda at, weights, x, y: x @ y,
    "einsum": lambda at, weights, x, y: np.einsum(at["equation"], x, y),
    "dense": lambda at, weights, x: _dense(x, weights),
    "conv": lambda at, weights, x: _conv(x, weights, at),
    "max_pool": lambda at, weights, x: _pool(x, at, is_max=True),
    "average_pool": lambda at, weights, x: _pool(x, at, is_max=False),
    "batch_norm": lambda at, weights, x: _scaled(x / (1 + at["epsilon"]) ** 0.5, weights),
    "layer_norm": lambda at, weights, x: _scaled(_normalised(x, (-1,), at["epsilon"]), weights),
    "group_norm": lambda at, weights, x: _group_norm(x, weights, at),
    "self_attention": lambda at, weights, x: _attention(x, weights, at),
    "parameter": lambda at, weights: weights[0],
}


def live_elements(graph: Graph) -> int:
    """Return the largest number of elements of tensors, with inputs and outputs, in memory at one time."""
    alive = {tensor: prod(graph.shapes[tensor]) for tensor in (*range(len(graph.inputs)), *graph.outputs)}
    most = sum(alive.values())
    for number in range(len(graph.nodes)):
        tensor_made = graph.tensor(number)
        alive[tensor_made] = prod(graph.shapes[tensor_made])
        most = max(most, sum(alive.values()))
        for tensor in graph.done[number]:
            if graph.maker(tensor) is not None:
                del alive[tensor]
    return most
