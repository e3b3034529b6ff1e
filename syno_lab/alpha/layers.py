"""Operations as modules of PyTorch with freshly drawn weights.

A module takes tensors with channels last; those of :data:`SECOND` take them with the channels in the second place, as
PyTorch's own do.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from syno_lab.alpha import operator_node
from syno_lab.alpha.operations import Operation, Shape, operation
from syno_lab.alpha.table import pads
from syno_lab.errors import SpecError
from syno_lab.models.efficientnet import StochasticDepth
from syno_lab.models.gpt import Attention

#: Their modules have the channels in the second place.
SECOND = frozenset({"conv", "batch_norm", "group_norm", "max_pool", "average_pool", operator_node.NAME})
_CONVS = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}
_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
_POOLS: dict[int, tuple[Any, Any]] = {
    3: (functional.max_pool1d, functional.avg_pool1d),
    4: (functional.max_pool2d, functional.avg_pool2d),
    5: (functional.max_pool3d, functional.avg_pool3d),
}


class _Padded(nn.Module):
    """Windows over a tensor [B, C, spatial axes…] that is padded as the operation says."""

    def __init__(self, made: Operation) -> None:
        super().__init__()
        self.values = dict(made.attributes)
        self.width: int = self.values["kernel" if made.name == "conv" else "window"]

    def padded(self, x: Tensor, value: float = 0.0) -> Tensor:
        """[B, C, …] with more positions."""
        found = pads(self.values, x.shape[2:])
        return functional.pad(x, found, value=value) if any(found) else x


class Conv(_Padded):
    """A convolution."""

    def __init__(self, made: Operation, channels: int, rank: int) -> None:
        super().__init__(made)
        values = self.values
        self.inner = _CONVS[rank](
            channels,
            values["features"],
            values["kernel"],
            values["stride"],
            groups=values["groups"],
            dilation=values["dilation"],
            bias=values["bias"],
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, …] to [B, features, …]."""
        return self.inner(self.padded(x))


class Pool(_Padded):
    """The largest or the mean of each window; what is padded does not count."""

    def __init__(self, made: Operation) -> None:
        super().__init__(made)
        self.is_max = made.name == "max_pool"

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, …] to [B, C, …]."""
        if self.width == 0:
            spatial = tuple(range(2, x.ndim))
            return x.amax(spatial, keepdim=True) if self.is_max else x.mean(spatial, keepdim=True)
        largest, mean = _POOLS[x.ndim]
        size = (self.width, self.values["stride"])
        if self.is_max:
            return largest(self.padded(x, float("-inf")), *size)
        padded = self.padded(x)
        if padded is x:
            return mean(x, *size)
        return mean(padded, *size) / mean(self.padded(torch.ones_like(x[:1, :1])), *size)


class GroupNorm(nn.GroupNorm):
    """PyTorch's own, for a single value in a group too."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, …] to the same."""
        return torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class Function(nn.Module):
    """An operation without weights."""

    def __init__(self, made: Operation) -> None:
        super().__init__()
        self.operation = made
        self.values = dict(made.attributes)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Channels last."""
        values, x = self.values, inputs[0]
        match self.operation.name:
            case "add":
                return x + inputs[1]
            case "mul":
                return x * inputs[1]
            case "scalar_multiply":
                return x * values["constant"]
            case "scalar_add":
                return x + values["constant"]
            case "relu":
                return functional.relu(x)
            case "gelu":
                return functional.gelu(x, approximate="tanh" if values["tanh"] else "none")
            case "silu":
                return functional.silu(x)
            case "sigmoid":
                return x.sigmoid()
            case "softmax":
                return x.softmax(-1)
            case "reshape":
                return x.reshape(self.operation.at(tuple(x.shape))["shape"])
            case "flatten":
                return x.flatten(1)
            case "transpose":
                return x.permute(values["axes"])
            case "einsum":
                return torch.einsum(values["equation"], *inputs)
            case "dot":
                return x @ inputs[1]
            case "mean":
                return x.mean(values["axes"], keepdim=values["keep"])
            case "identity":
                return x
            case "none":
                return torch.zeros_like(x)
        raise SpecError(f"expected an operation that a module can be made of, found {self.operation}")

    def extra_repr(self) -> str:
        """The operation."""
        return str(self.operation)


def module(made: Operation, *shapes: Shape) -> nn.Module:
    """A module of an operation for inputs of these shapes; weights are drawn from torch's global generator.

    Raises:
        SpecError: for what no module can be made of: `parameter`, and what is opaque.
    """
    values = dict(made.at(*shapes).attributes)
    numbers = operation(made.name, **values)
    channels, rank = (shapes[0][-1], len(shapes[0])) if shapes and shapes[0] else (0, 0)
    match made.name:
        case "dense":
            return nn.Linear(channels, values["features"], values["bias"])
        case "conv":
            if rank not in _CONVS:
                raise SpecError(f"expected a convolution along 1 to 3 spatial axes, found {rank - 2}")
            return Conv(numbers, channels, rank)
        case "max_pool" | "average_pool":
            if rank not in _POOLS and values["window"]:
                raise SpecError(f"expected a pooling along 1 to 3 spatial axes, found {rank - 2}")
            return Pool(numbers)
        case "batch_norm":
            if rank not in _NORMS:
                raise SpecError(f"expected a batch norm of at most 3 spatial axes, found {rank - 2}")
            return _NORMS[rank](channels, values["epsilon"], affine=values["affine"])
        case "layer_norm":
            return nn.LayerNorm(channels, values["epsilon"], values["affine"])
        case "group_norm":
            return GroupNorm(values["groups"], channels, values["epsilon"], values["affine"])
        case "dropout":
            return nn.Dropout(values["rate"])
        case "stochastic_depth":
            return StochasticDepth(values["rate"])
        case "self_attention":
            return Attention(channels, values["heads"], 0.0, values["causal"], values["bias"])
        case operator_node.NAME:
            operator, bound = operator_node.sizes(values["file"], values["features"], shapes[0])
            return operator.to_torch(bound)
        case "parameter" | "opaque":
            raise SpecError(f"expected an operation that a module can be made of, found {made}")
    return Function(made)


def parameter(made: Operation) -> nn.Parameter:
    """The weight of a `parameter`, drawn as those of a layer with as many inputs as its last axis is long."""
    shape = made["shape"]
    bound = shape[-1] ** -0.5 if prod(shape) else 0.0
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
