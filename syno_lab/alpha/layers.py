"""Operations as modules of PyTorch with freshly drawn weights.

The tensors of a module have the channels last. Only modules of the operations :data:`SECOND` have the channels as the
second axis, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional

from syno_lab.alpha import operator_node
from syno_lab.alpha.operations import Operation, Shape
from syno_lab.alpha.row import Applied
from syno_lab.alpha.table import pads
from syno_lab.errors import SpecError
from syno_lab.models.efficientnet import StochasticDepth
from syno_lab.models.gpt import Attention

#: Operations whose modules have the channels as the second axis.
SECOND = frozenset({"conv", "batch_norm", "group_norm", "max_pool", "average_pool", operator_node.NAME})
_CONVS = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}
_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
_POOLS: dict[int, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    3: (functional.max_pool1d, functional.avg_pool1d),
    4: (functional.max_pool2d, functional.avg_pool2d),
    5: (functional.max_pool3d, functional.avg_pool3d),
}


def _padded(x: Tensor, at: Applied, value: float = 0.0) -> Tensor:
    """Pad a tensor of shape [B, C, spatial axes…] as the operation's attributes say."""
    widths = pads(at, x.shape[2:])
    return functional.pad(x, widths, value=value) if any(widths) else x


class Conv(nn.Module):
    """A convolution."""

    def __init__(self, at: Applied) -> None:
        super().__init__()
        self.at = at
        options = {name: at[name] for name in ("groups", "dilation", "bias")}
        self.inner = _CONVS[len(at.shape)](at.channels, at["features"], at["kernel"], at["stride"], **options)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, C, …] to [B, features, …]."""
        return self.inner(_padded(x, self.at))


class Pool(nn.Module):
    """A pool: the largest value or the mean of each window, without the padding."""

    def __init__(self, at: Applied, is_max: bool) -> None:
        super().__init__()
        self.at, self.is_max = at, is_max

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, C, …] to [B, C, …]."""
        size = (self.at["window"], self.at["stride"])
        if size[0] == 0:
            spatial = tuple(range(2, x.ndim))
            return x.amax(spatial, keepdim=True) if self.is_max else x.mean(spatial, keepdim=True)
        largest, mean = _POOLS[x.ndim]
        padded = _padded(x, self.at, float("-inf") if self.is_max else 0.0)
        if self.is_max:
            return largest(padded, *size)
        means = mean(padded, *size)
        return means if padded is x else means / mean(_padded(torch.ones_like(x[:1, :1]), self.at), *size)


class GroupNorm(nn.GroupNorm):
    """PyTorch's GroupNorm, except that a group may have a single value."""

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, C, …] to a tensor of the same shape."""
        return torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


#: Operations without weights as functions of their attributes and inputs.
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "add": lambda values, x, y: x + y,
    "mul": lambda values, x, y: x * y,
    "scalar_multiply": lambda values, x: x * values["constant"],
    "scalar_add": lambda values, x: x + values["constant"],
    "relu": lambda values, x: functional.relu(x),
    "gelu": lambda values, x: functional.gelu(x, approximate="tanh" if values["tanh"] else "none"),
    "silu": lambda values, x: functional.silu(x),
    "sigmoid": lambda values, x: x.sigmoid(),
    "softmax": lambda values, x: x.softmax(-1),
    "flatten": lambda values, x: x.flatten(1),
    "transpose": lambda values, x: x.permute(values["axes"]),
    "einsum": lambda values, x, y: torch.einsum(values["equation"], x, y),
    "dot": lambda values, x, y: x @ y,
    "mean": lambda values, x: x.mean(values["axes"], keepdim=values["keep"]),
    "identity": lambda values, x: x,
    "none": lambda values, x: torch.zeros_like(x),
}


class Function(nn.Module):
    """An operation without weights."""

    def __init__(self, made: Operation) -> None:
        super().__init__()
        self.operation = made
        self.values = dict(made.attributes)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Apply the operation to tensors with the channels last."""
        if self.operation.name == "reshape":
            return inputs[0].reshape(self.operation.on(tuple(inputs[0].shape))["shape"])
        return _FUNCTIONS[self.operation.name](self.values, *inputs)

    def extra_repr(self) -> str:
        """Return the operation as text."""
        return str(self.operation)


def module(made: Operation, *shapes: Shape) -> nn.Module:
    """Return a module of an operation for inputs of these shapes; torch's global generator draws the weights.

    Raises SpecError for an operation that has no module: `parameter`, and an opaque operation.
    """
    at = made.on(*shapes)
    channels, rank = (at.channels, len(at.shape)) if shapes and shapes[0] else (0, 0)
    match made.name:
        case "dense":
            return nn.Linear(channels, at["features"], at["bias"])
        case "conv":
            if rank not in _CONVS:
                raise SpecError(f"expected a convolution along 1 to 3 spatial axes, found {rank - 2}")
            return Conv(at)
        case "max_pool" | "average_pool":
            if rank not in _POOLS and at["window"]:
                raise SpecError(f"expected a pooling along 1 to 3 spatial axes, found {rank - 2}")
            return Pool(at, made.name == "max_pool")
        case "batch_norm":
            if rank not in _NORMS:
                raise SpecError(f"expected a batch norm of at most 3 spatial axes, found {rank - 2}")
            return _NORMS[rank](channels, at["epsilon"], affine=at["affine"])
        case "layer_norm":
            return nn.LayerNorm(channels, at["epsilon"], at["affine"])
        case "group_norm":
            return GroupNorm(at["groups"], channels, at["epsilon"], at["affine"])
        case "dropout":
            return nn.Dropout(at["rate"])
        case "stochastic_depth":
            return StochasticDepth(at["rate"])
        case "self_attention":
            return Attention(channels, at["heads"], 0.0, at["causal"], at["bias"])
        case operator_node.NAME:
            operator, bound = operator_node.placed(at)
            return operator.to_torch(bound)
        case "parameter" | "opaque":
            raise SpecError(f"expected an operation that a module can be made of, found {made}")
    return Function(made)


def parameter(made: Operation) -> nn.Parameter:
    """Return a random weight for a `parameter`, as for a dense layer with the last axis' size as number of inputs."""
    shape = made.on()["shape"]
    bound = shape[-1] ** -0.5 if prod(shape) else 0.0
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
