"""The meaning of αNAS's operations and graphs in PyTorch, channels last: the oracle of the tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from syno_lab.alpha import Graph, Operation, Rel, operation
from syno_lab.alpha.operations import OPERATIONS, choices
from syno_lab.errors import SpecError

Shape = tuple[int, ...]


class _Call(nn.Module):
    """A function of tensors, with the modules whose weights it uses."""

    def __init__(self, function: Callable[..., Tensor], *modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.inner = nn.ModuleList(modules)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def _first(module: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A module for channels in the second place, on tensors with channels last."""
    return lambda x: module(x.movedim(-1, 1)).movedim(1, -1)


def _padded(x: Tensor, values: dict[str, Any], width: int, value: float) -> Tensor:
    """Channels second; padded as TensorFlow does for SAME, or by a number."""
    pads: list[int] = []
    for n in reversed(x.shape[2:]):
        span = (width - 1) * values.get("dilation", 1) + 1
        if values["padding"] == "same":
            total = max((-(-n // values["stride"]) - 1) * values["stride"] + span - n, 0)
            pads += [total // 2, total - total // 2]
        else:
            pads += [values["padding"]] * 2
    return F.pad(x, pads, value=value)


def _pool(values: dict[str, Any], x: Tensor, kind: str) -> Tensor:
    spatial = tuple(range(2, x.dim()))
    if values["window"] == 0:
        return x.amax(spatial, keepdim=True) if kind == "max" else x.mean(spatial, keepdim=True)
    width, stride = values["window"], values["stride"]
    functions = {1: (F.max_pool1d, F.avg_pool1d), 2: (F.max_pool2d, F.avg_pool2d), 3: (F.max_pool3d, F.avg_pool3d)}
    largest, mean = functions[len(spatial)]
    if kind == "max":
        return largest(_padded(x, values, width, float("-inf")), width, stride)
    inside = mean(_padded(torch.ones_like(x), values, width, 0.0), width, stride)
    return mean(_padded(x, values, width, 0.0), width, stride) / inside


def _attention(channels: int, values: dict[str, Any]) -> nn.Module:
    inner = nn.MultiheadAttention(channels, values["heads"], bias=values["bias"], batch_first=True)

    def call(x: Tensor) -> Tensor:
        n = x.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool).triu(1) if values["causal"] else None
        return inner(x, x, x, need_weights=False, attn_mask=mask)[0]

    return _Call(call, inner)


def module(operation: Operation, *shapes: Shape, smooth: bool = False) -> nn.Module:
    """A module with freshly drawn weights, as in inference; ``smooth``: differentiable, with no dead units."""
    values = dict(operation.at(*shapes).attributes)
    channels = shapes[0][-1] if shapes and shapes[0] else 0
    rank = len(shapes[0]) if shapes else 0
    match operation.name:
        case "dense":
            return nn.Linear(channels, values["features"], values["bias"])
        case "conv":
            kind = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}[rank]
            inner: Any = kind(
                channels,
                values["features"],
                values["kernel"],
                values["stride"],
                groups=values["groups"],
                dilation=values["dilation"],
                bias=values["bias"],
            )
            return _Call(_first(lambda x: inner(_padded(x, values, values["kernel"], 0.0))), inner)
        case "batch_norm":
            inner = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[rank](
                channels, values["epsilon"], affine=values["affine"]
            )
            return _Call(_first(inner.eval()), inner)
        case "layer_norm":
            return nn.LayerNorm(channels, values["epsilon"], values["affine"])
        case "group_norm":
            inner = nn.GroupNorm(values["groups"], channels, values["epsilon"], values["affine"])
            # The module refuses a batch of one with one value in a group; the function does not.
            return _Call(
                _first(lambda x: torch.group_norm(x, inner.num_groups, inner.weight, inner.bias, inner.eps)), inner
            )
        case "max_pool" | "average_pool":
            kind = "max" if operation.name == "max_pool" and not smooth else "mean"
            return _Call(_first(lambda x: _pool(values, x, kind)))
        case "self_attention":
            return _attention(channels, values)
        case "parameter":
            weight = nn.Parameter(torch.randn(values["shape"]))
            holder = nn.ParameterList([weight])
            return _Call(lambda: holder[0], holder)
    activations: dict[str, Callable[..., Tensor]] = {
        "relu": F.softplus if smooth else F.relu,
        "gelu": F.gelu,
        "silu": F.silu,
        "sigmoid": torch.sigmoid,
        "softmax": lambda x: x.softmax(-1),
        "add": torch.add,
        "mul": torch.mul,
        "scalar_multiply": lambda x: x * values["constant"],
        "scalar_add": lambda x: x + values["constant"],
        "dropout": lambda x: x,
        "stochastic_depth": lambda x: x,
        "identity": lambda x: x,
        "none": lambda x: 0 * x,
        "reshape": lambda x: x.reshape(values["shape"]),
        "flatten": lambda x: x.flatten(1),
        "transpose": lambda x: x.permute(values["axes"]),
        "einsum": lambda x, y: torch.einsum(values["equation"], x, y),
        "dot": torch.matmul,
        "mean": lambda x: x.mean(values["axes"], keepdim=values["keep"]) if values["axes"] else x,
    }
    return _Call(activations[operation.name])


class InTorch(nn.Module):
    """A graph with freshly drawn weights, drawn for each node from a seed of its own."""

    def __init__(self, graph: Graph, seeds: Sequence[int] | None = None, *, smooth: bool = False) -> None:
        super().__init__()
        self.graph = graph
        self.parts = nn.ModuleList()
        for number, node in enumerate(graph.nodes):
            if seeds is not None:
                torch.manual_seed(seeds[number])
            self.parts.append(module(node.operation, *graph.input_shapes(number), smooth=smooth))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        tensors = list(inputs)
        for part, node in zip(self.parts, self.graph.nodes, strict=True):
            tensors.append(part(*(tensors[number] for number in node.inputs)))
        return tuple(tensors[number] for number in self.graph.outputs)


# -- chance ------------------------------------------------------------------------------------------------------------

_CHOSEN = choices()


def _shape(rng: random.Random, rank: int, most: int = 6) -> Shape:
    return tuple(rng.randint(1, most) for _ in range(rank))


def _factors(rng: random.Random, number: int) -> Shape:
    """Some shape of so many elements."""
    found = []
    while number > 1 and len(found) < 4:
        divisor = rng.choice([d for d in range(1, number + 1) if number % d == 0])
        found.append(divisor)
        number //= divisor
    return (*found, number) if number > 1 or not found else tuple(found)


def draw(rng: random.Random, name: str, rank: int | None = None) -> tuple[Operation, tuple[Shape, ...]]:
    """A random operation of a name, and shapes of inputs that it applies to."""
    for _ in range(10_000):
        found, shapes = _draw(rng, name, rank)
        try:
            found.shape(*shapes)
        except SpecError:
            continue
        return found, shapes
    raise AssertionError(f"no {name} applies to what is drawn")


def _draw(rng: random.Random, name: str, rank: int | None) -> tuple[Operation, tuple[Shape, ...]]:
    rank = rank or rng.choice((2, 3, 4))
    row = OPERATIONS[name]
    if row.role == "chosen":
        found = rng.choice([each for each in _CHOSEN if each.name == name])
        if "bias" in row.attributes:
            found = found.replace(bias=rng.random() < 0.5)
        if "affine" in row.attributes:
            found = found.replace(affine=rng.random() < 0.5)
        if "padding" in row.attributes and rng.random() < 0.3:
            found = found.replace(padding=rng.randint(0, 2))
        return found, ((*_shape(rng, rank - 1), rng.choice((1, 3, 4, 8))),)
    if name in ("add", "mul"):
        one = _shape(rng, rank)
        other = tuple(1 if rng.random() < 0.2 else n for n in one[rng.choice((0, 0, 1)) :])
        return operation(name), tuple(rng.sample((one, other), 2))
    shape = _shape(rng, rank)
    values: dict[str, Any] = {}
    if name == "reshape":
        shape = (*shape[:-1], rng.choice((4, 6, 8, 12)))
        size = 1
        for n in shape:
            size *= n
        target = list(_factors(rng, size))
        if rng.random() < 0.3:
            target[rng.randrange(len(target))] = -1
        elif target[0] == shape[0]:
            target[0] = Rel(axis=0)  # type: ignore[call-overload]
        values["shape"] = tuple(target)
    elif name == "transpose":
        values["axes"] = tuple(rng.sample(range(rank), rank))
    elif name == "mean":
        axes = rng.sample(range(rank), rng.randint(1, rank))
        values |= {"axes": tuple(rng.choice((axis, axis - rank)) for axis in axes), "keep": rng.random() < 0.5}
    elif name in ("einsum", "dot"):
        sizes = dict(zip("abcdef", rng.sample(range(2, 9), 6), strict=True))
        if name == "dot":
            b, i, j, k = (sizes[c] for c in "abcd")
            return operation(name), ((b, i, j), (b, j, k))
        left, right = (rng.sample("abcdef", rng.randint(1, 3)) for _ in range(2))
        both = sorted({*left, *right})
        result = rng.sample(both, rng.randint(0, min(3, len(both))))
        shapes = tuple(tuple(sizes[c] for c in term) for term in (left, right))
        return operation(name, equation=f"{''.join(left)},{''.join(right)}->{''.join(result)}"), shapes
    elif name == "parameter":
        return operation(name, shape=shape), ()
    elif name == "self_attention":
        heads = rng.choice((1, 2, 4))
        values |= {"heads": heads, "bias": rng.random() < 0.5, "causal": rng.random() < 0.5}
        shape = (*_shape(rng, 2), heads * rng.choice((2, 3)))
    return operation(name, **values), (shape,)
