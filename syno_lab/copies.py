"""Copy and check a user's own network: parts that torch cannot copy, lazy layers, the meta device."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, is_lazy

from syno_lab.blame import blamed, said_by
from syno_lab.errors import SpecError


def copied(
    net: nn.Module, way_out: str = "give a function that makes it", *, kept: Mapping[int, Any] | None = None
) -> nn.Module:
    """Copy a network with its weights; see :func:`deep_copied`.

    ``kept`` maps the ``id`` of an object in the network to the object that replaces it in the copy. Raises SpecError if
    the network contains an object that cannot be copied, such as a lock or an open file; ``way_out`` ends the message.
    """
    expected = f"expected a network that can be copied, found this {type(net).__name__}"
    with blamed(expected, SpecError, lambda error: f"{said_by(error)}; {way_out}"):
        copied_net: nn.Module = deep_copied(net, {**computed(net), **(kept or {})})
    return copied_net


def computed(net: nn.Module) -> dict[int, Tensor]:
    """Copy the tensors of a network that ``copy.deepcopy`` refuses; return the copies as its ``memo`` argument.

    The refused tensors are buffers of lazy layers, and computed tensors (such as the weight under ``weight_norm`` or
    pruning), which are copied by value.
    """
    memo: dict[int, Tensor] = {}
    for tensor in _tensors([vars(module) for module in net.modules()]):
        if isinstance(tensor, UninitializedBuffer):
            memo[id(tensor)] = UninitializedBuffer(device=tensor.device, dtype=tensor.dtype)  # type: ignore[call-arg]
        elif not tensor.is_leaf:
            memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return memo


def deep_copied(found: Any, memo: dict[int, Any]) -> Any:
    """Call ``copy.deepcopy`` without gradients, because TorchScript weights need that; restore ``requires_grad``."""
    with torch.no_grad():
        result = copy.deepcopy(found, memo)
    if isinstance(found, nn.Module) and any(isinstance(part, torch.jit.ScriptModule) for part in found.modules()):
        for old, new in zip(found.parameters(), result.parameters(), strict=True):
            new.requires_grad_(old.requires_grad)
    return result


@contextmanager
def modes_kept(net: nn.Module) -> Iterator[None]:
    """Restore the training mode of each submodule of a network after the block."""
    modes = [(part, part.training) for part in net.modules()]
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def lacks_shapes(net: nn.Module) -> str | None:
    """Return the name of the first parameter or buffer without a shape, in a lazy layer that was not called yet."""
    named = (*net.named_parameters(), *net.named_buffers())
    return next((name for name, value in named if is_lazy(value)), None)


def check_shapes(net: nn.Module) -> None:
    """Refuse a network with an uninitialised lazy layer. Raises SpecError with the name of a tensor in the layer."""
    name = lacks_shapes(net)
    if name is not None:
        raise SpecError(
            f"expected a network whose weights have shapes, found {name} of a lazy layer in this {type(net).__name__}: "
            "run one example through it first; a layer that no example reaches needs its sizes"
        )


def check_values(net: nn.Module) -> None:
    """Refuse a network on the meta device, whose weights have shapes but no values.

    Raises SpecError with the name of the first weight without values.
    """
    named = (*net.named_parameters(), *net.named_buffers())
    name = next((name for name, value in named if value.is_meta), None)
    if name is not None:
        raise SpecError(
            f"expected weights with values, found {name} of this {type(net).__name__} on the meta device: make it on "
            "the cpu, or call net.to_empty(device='cpu') and give it weights"
        )


def uncompiled(net: nn.Module) -> nn.Module:
    """Return the original network for a result of ``torch.compile``; return any other network unchanged."""
    inner = getattr(net, "_orig_mod", None)
    return inner if type(net).__name__ == "OptimizedModule" and isinstance(inner, nn.Module) else net


def _tensors(value: Any, depth: int = 5) -> Iterator[Tensor]:
    """Yield the tensors in a value, also those in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item, depth - 1)
