"""Copies of networks for inspection, and calls with random values."""

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

#: Classes of torch that only wrap another module, with the attribute that holds the wrapped module.
_WRAPPERS = {"DataParallel": "module", "DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}


def wrapped(module: nn.Module) -> nn.Module | None:
    """Return the module inside a wrapper, such as ``nn.DataParallel`` or a result of ``torch.compile``, or None."""
    is_wrapper = type(module).__name__ in _WRAPPERS and type(module).__module__.startswith("torch.")
    return module.get_submodule(_WRAPPERS[type(module).__name__]) if is_wrapper else None


def unwrapped(net: nn.Module) -> nn.Module:
    """Return the network without wrappers around it.

    Raises SpecError for a TorchScript network, weights without shapes, and hooks that no graph can have.
    """
    while (inner := wrapped(net)) is not None:
        net = inner
    check_shapes(net)
    name = type(net).__name__
    if isinstance(net, torch.jit.ScriptModule):
        raise SpecError(f"{name}: expected the network as it was before torch.jit, found a TorchScript module")
    for path, weight in tensors_of(net):
        if weight._backward_hooks or getattr(weight, "_post_accumulate_grad_hooks", None):
            raise SpecError(f"{name}: expected weights without hooks, found a hook of {path}: remove it first")
    if net._backward_hooks or net._backward_pre_hooks:
        raise SpecError(f"{name}: expected no backward hook of the whole network, found a hook: remove it first")
    return net


def twin(net: nn.Module, change: Callable[[Tensor], Tensor] | None = None) -> nn.Module:
    """Copy a network; ``change`` returns the new value of each parameter and buffer. Raises as :func:`.copied`."""
    weights: dict[int, Tensor] = {}
    if change is not None:
        for _, weight in tensors_of(net):
            value, is_parameter = change(weight), isinstance(weight, nn.Parameter)
            weights[id(weight)] = nn.Parameter(value, weight.requires_grad) if is_parameter else value
    return copied(net, "take that out of it", kept=weights)


def has_hooks(module: nn.Module) -> bool:
    """Return whether hooks run when the module is called."""
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))


def on_meta(leaf: Any) -> Any:
    """Move a tensor to the meta device, where it has no values; return another value unchanged."""
    return leaf.to("meta") if isinstance(leaf, Tensor) and leaf.device.type != "meta" else leaf


def with_values(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Return ``function`` for tensors without values: it runs with random values, and its results have no values.

    The returned function raises SpecError if the call changes an argument in place.
    """

    def drawn(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.device.type != "meta":
            return leaf
        draws = leaf.is_floating_point() or leaf.is_complex()
        return (torch.rand if draws else torch.zeros)(leaf.shape, dtype=leaf.dtype, device=device)

    def called(*args: Any, **kwargs: Any) -> Any:
        inputs: list[Tensor] = []
        with torch._C.DisableTorchFunction(), torch.no_grad():
            full = map_aggregate((args, kwargs), drawn)
            map_aggregate(full, lambda leaf: inputs.append(leaf) if isinstance(leaf, Tensor) else None)
            versions = [x._version for x in inputs]
            if isinstance(function, nn.Module):
                weights = {name: drawn(weight) for name, weight in tensors_of(function)}
                result = torch.func.functional_call(function, weights, *full)
            else:
                result = function(*full[0], **full[1])
            if versions != [x._version for x in inputs]:
                raise SpecError("expected no change in place of an argument, found one")
        return map_aggregate(result, on_meta)

    return called


@contextmanager
def kept_chance(seed: int | None = None) -> Iterator[None]:
    """Restore the states of torch's, NumPy's and Python's random generators at the end; ``seed`` seeds them first."""
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
    """Return the parameters and buffers of a network, each with its name."""
    return [*net.named_parameters(), *net.named_buffers()]
