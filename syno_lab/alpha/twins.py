"""Copies of networks to look at in their place, and what is called with values that are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx.node import map_aggregate

from syno_lab.copies import check_shapes, copied
from syno_lab.errors import SpecError

#: Modules of torch that call another one and add nothing to it: where they have it.
_WRAPPERS = {"DataParallel": "module", "DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}


def wrapped(module: nn.Module) -> nn.Module | None:
    """The module that another only calls, such as ``nn.DataParallel``, or what ``torch.compile`` gave; None: none."""
    is_wrapper = type(module).__name__ in _WRAPPERS and type(module).__module__.startswith("torch.")
    return module.get_submodule(_WRAPPERS[type(module).__name__]) if is_wrapper else None


def unwrapped(net: nn.Module) -> nn.Module:
    """The network inside of wrappers.

    Raises SpecError for one that Python cannot look into, weights without shapes, and hooks that no graph can have.
    """
    while (inner := wrapped(net)) is not None:
        net = inner
    check_shapes(net)
    name = type(net).__name__
    if isinstance(net, torch.jit.ScriptModule):
        raise SpecError(f"{name}: expected the network as it was before torch.jit, found a TorchScript module")
    for path, weight in tensors_of(net):
        if weight._backward_hooks or getattr(weight, "_post_accumulate_grad_hooks", None):
            raise SpecError(f"{name}: expected weights without hooks, found one of {path}: remove it before")
    if net._backward_hooks or net._backward_pre_hooks:
        raise SpecError(f"{name}: expected no backward hook of the whole network, found one: remove it before")
    return net


def twin(net: nn.Module, change: Callable[[Tensor], Tensor] | None = None) -> nn.Module:
    """A copy of a network; ``change`` says what it has for each parameter and buffer. Raises as :func:`.copied`."""
    weights: dict[int, Tensor] = {}
    if change is not None:
        for _, weight in tensors_of(net):
            made, is_parameter = change(weight), isinstance(weight, nn.Parameter)
            weights[id(weight)] = nn.Parameter(made, weight.requires_grad) if is_parameter else made
    return copied(net, "take that out of it", kept=weights)


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of the module does more than its forward."""
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))


def on_meta(leaf: Any) -> Any:
    """A tensor without its values; anything else as it is."""
    return leaf.to("meta") if isinstance(leaf, Tensor) and leaf.device.type != "meta" else leaf


def with_values(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """A function called with values drawn where there are none.

    Raises SpecError where it changes an argument in place.
    """

    def drawn(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.device.type != "meta":
            return leaf
        draws = leaf.is_floating_point() or leaf.is_complex()
        return (torch.rand if draws else torch.zeros)(leaf.shape, dtype=leaf.dtype, device=device)

    def called(*args: Any, **kwargs: Any) -> Any:
        inputs: list[Tensor] = []
        with torch._C.DisableTorchFunction(), torch.no_grad():
            given = map_aggregate((args, kwargs), drawn)
            map_aggregate(given, lambda leaf: inputs.append(leaf) if isinstance(leaf, Tensor) else None)
            versions = [each._version for each in inputs]
            if isinstance(function, nn.Module):
                weights = {name: drawn(weight) for name, weight in tensors_of(function)}
                found = torch.func.functional_call(function, weights, *given)
            else:
                found = function(*given[0], **given[1])
            if versions != [each._version for each in inputs]:
                raise SpecError("expected no change in place of an argument, found one")
        return map_aggregate(found, on_meta)

    return called


@contextmanager
def kept_chance(seed: int | None = None) -> Iterator[None]:
    """The generators of torch, NumPy and Python are as before afterwards, and begin with a seed where one is given."""
    plain, array = random.getstate(), np.random.get_state()  # noqa: NPY002 - networks draw from it
    with torch.random.fork_rng():
        if seed is not None:
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(array)  # noqa: NPY002


def tensors_of(net: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers by their names."""
    return [*net.named_parameters(), *net.named_buffers()]
