"""A network of the user's own made ready: copied although torch refuses it, with the shapes that lazy layers lack."""

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
    """A copy of a network with weights of its own: see :func:`deep_copied`.

    ``kept``: by ``id``, what the copy has in the place of parts. Raises SpecError where the network holds
    what cannot be copied, such as a lock or an open file; the line ends with ``way_out``.
    """
    found = f"expected a network that can be copied, found this {type(net).__name__}"
    with blamed(found, SpecError, lambda error: f"{said_by(error)}; {way_out}"):
        made: nn.Module = deep_copied(net, {**computed(net), **(kept or {})})
    return made


def computed(net: nn.Module) -> dict[int, Tensor]:
    """Copies of what ``copy.deepcopy`` refuses and torch itself makes, as its memo.

    These are tensors that were computed (the weight under ``weight_norm`` or pruning), by their values, and buffers of
    lazy layers.
    """
    memo: dict[int, Tensor] = {}
    for one in _tensors([vars(module) for module in net.modules()]):
        if isinstance(one, UninitializedBuffer):
            memo[id(one)] = UninitializedBuffer(device=one.device, dtype=one.dtype)  # type: ignore[call-arg]
        elif not one.is_leaf:
            memo[id(one)] = one.detach().clone().requires_grad_(one.requires_grad)
    return memo


def deep_copied(found: Any, memo: dict[int, Any]) -> Any:
    """``copy.deepcopy``; weights of TorchScript, which with gradients it takes for computed ones, can be trained."""
    with torch.no_grad():
        made = copy.deepcopy(found, memo)
    if isinstance(found, nn.Module) and any(isinstance(one, torch.jit.ScriptModule) for one in found.modules()):
        for old, new in zip(found.parameters(), made.parameters(), strict=True):
            new.requires_grad_(old.requires_grad)
    return made


@contextmanager
def modes_kept(net: nn.Module) -> Iterator[None]:
    """Each part of a network is in training or in evaluation afterwards as it was before."""
    modes = [(part, part.training) for part in net.modules()]
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def lacks_shapes(net: nn.Module) -> str | None:
    """The name of the first parameter or buffer without a shape, as lazy layers have before their first call."""
    named = (*net.named_parameters(), *net.named_buffers())
    return next((name for name, value in named if is_lazy(value)), None)


def check_shapes(net: nn.Module) -> None:
    """Refuse a network with lazy layers that were not called. Raises SpecError with the name of the first."""
    name = lacks_shapes(net)
    if name is not None:
        raise SpecError(
            f"expected a network whose weights have shapes, found {name} of a lazy layer in this {type(net).__name__}: "
            "run one example through it first; a layer that no example reaches needs its sizes"
        )


def check_values(net: nn.Module) -> None:
    """Refuse a network on the meta device: its weights have shapes and no values.

    Raises SpecError with the name of the first such weight.
    """
    named = (*net.named_parameters(), *net.named_buffers())
    name = next((name for name, value in named if value.is_meta), None)
    if name is not None:
        raise SpecError(
            f"expected weights with values, found {name} of this {type(net).__name__} on the meta device: make it on "
            "the cpu, or call net.to_empty(device='cpu') and give it weights"
        )


def uncompiled(net: nn.Module) -> nn.Module:
    """The network that ``torch.compile`` was given, of what it returned; another network as it is."""
    inner = getattr(net, "_orig_mod", None)
    return inner if type(net).__name__ == "OptimizedModule" and isinstance(inner, nn.Module) else net


def _tensors(value: Any, depth: int = 5) -> Iterator[Tensor]:
    """The tensors in attributes of modules, in lists, tuples and dictionaries too."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one, depth - 1)
