"""A module that replaces a layer: it has the layer's attributes, but not the values of the layer's weight.

The file of a network with an operator (:mod:`syno_lab.experiments.own_file`) has a copy of this text, so this file
needs torch alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

#: Attributes of a tensor that do not depend on its values. Dynamo needs these names in plain tuples.
_SIZES = ("shape", "ndim", "size", "dim", "numel", "nelement", "stride", "storage_offset", "nbytes", "__len__")
_TYPES = ("dtype", "layout", "itemsize", "element_size", "names", "is_floating_point", "is_complex", "is_signed")
_STATES = ("is_contiguous", "is_sparse", "is_quantized", "is_nested", "is_inference", "is_conj", "_version")
_DEVICES = ("is_cpu", "is_cuda", "is_meta", "is_mps", "is_xpu")
#: Functions that read a tensor's shape, dtype and device, but no values.
_LIKE = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "type_as")
_NEW = ("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor")
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_PLAIN = (bool, int, float, complex, str, bytes, tuple, list, dict, type(None), torch.dtype, torch.device)


class StandIn(nn.Parameter):
    """A tensor with the shape, dtype and device of a missing weight; an access to its values raises an error.

    PyTorch's fused layers would otherwise compute with the weight of the replaced layer.
    """

    @staticmethod
    def of(weight: Tensor, place: InPlaceOf, name: str) -> Tensor:
        """Return the stand-in for ``weight``, the attribute ``name`` of the layer that ``place`` replaces."""
        is_trained = any(parameter.requires_grad for parameter in place.parameters())
        if torch.compiler.is_dynamo_compiling():
            stand_in = torch.empty(weight.shape, dtype=weight.dtype, device="meta").as_subclass(StandIn)
        else:
            with _disable_current_modes():  # Export's fake tensors cannot become a stand-in.
                weight = weight.data  # torch.jit.trace can make a constant of .data.
                stand_in = torch.empty(weight.shape, dtype=weight.dtype, device="meta").as_subclass(StandIn)
        stand_in._answers = (weight.device, is_trained, f"{place._whose}.{name}", place.refusal)  # type: ignore[attr-defined]
        return stand_in

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if name == "__get__":
            name = func.__self__.__name__
        if args and isinstance(args[0], StandIn):
            device, is_trained, _, _ = args[0]._answers  # type: ignore[attr-defined]
            if name == "device":
                return device
            if name in _DEVICES:
                return name == f"is_{device.type}"
            if name == "get_device":
                return -1 if device.index is None else device.index
            if name == "requires_grad":
                return is_trained
            if name in ("data", "detach"):
                return args[0]
            if name == "grad":
                return None
            if name in _SIZES or name in _TYPES or name in _STATES:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **(kwargs or {}))
        if name in _LIKE or name in _NEW or (name == "to" and not isinstance(args[0], StandIn)):
            return func(*tree_map(_without_values, args), **tree_map(_without_values, kwargs or {}))
        stand_in = next(leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, StandIn))
        _, _, layer, refusal = stand_in._answers  # type: ignore[attr-defined]
        raise refusal(
            f"expected a network that calls its layer {layer.rpartition('.')[0]}, found {name} of {layer}: an operator "
            "replaces it, so call the layer, or do not replace it"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"StandIn({self._answers[2]}, {list(self.shape)}, {self.dtype})"  # type: ignore[attr-defined]


def _without_values(value: Any) -> Any:
    if not isinstance(value, StandIn):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device=value._answers[0])  # type: ignore[attr-defined]


def is_of_torch(hook: Any) -> bool:
    """Check whether torch itself computes a layer's weight by this hook: weight_norm, spectral_norm or pruning."""
    return type(hook).__module__.startswith("torch.nn.utils")


class InPlaceOf(nn.Module):
    """A module that replaces the layer ``original``, named ``whose``, and has the layer's attributes.

    Plain attributes (channels, kernel size, stride, attributes of its class) are the layer's. The layer's tensors are
    :class:`StandIn`. The bias is a copy that is trained. The input is positional or named. The module has the layer's
    hooks for calls and gradients, except the hooks by which torch computes the layer's weight. ``original`` is no
    submodule: it is not trained, counted or saved, but follows the device and dtype.
    """

    refusal: type[Exception] = RuntimeError
    is_linear: bool
    placeholder: nn.Module
    pool: nn.AvgPool2d | None
    bias: nn.Parameter | None

    def __init__(self, original: nn.Module, whose: str) -> None:
        super().__init__()
        for kind in _HOOKS:
            hooks = getattr(original, kind)
            own_hooks = OrderedDict((key, hook) for key, hook in hooks.items() if not is_of_torch(hook))
            setattr(self, kind, hooks if len(own_hooks) == len(hooks) else own_hooks)
        self._is_full_backward_hook = original._is_full_backward_hook
        bias = getattr(original, "bias", None)
        # A bias that pruning computes may have no gradient, although its source parameter has a gradient.
        is_trained = any(parameter.requires_grad for name, parameter in original.named_parameters() if "bias" in name)
        self.bias = nn.Parameter(bias.detach().clone(), is_trained) if isinstance(bias, Tensor) else None
        self._whose = whose
        self._original = (original,)  # a tuple, so that nn.Module does not register the layer

    @property
    def original(self) -> nn.Module:
        """The replaced layer with its weights."""
        return self._original[0]

    def operate(self, x: Tensor) -> Tensor:
        """Apply the operator alone."""
        raise NotImplementedError

    def forward(self, *given: Any, **named: Any) -> Tensor:
        """Apply the operator, then the pooling, then the bias."""
        values = [value for value in (*given, *named.values()) if value is not None]
        if len(values) != 1:
            raise self.refusal(f"expected one input for {self._whose}, which an operator replaces, found {len(values)}")
        x = values[0]
        if x.is_nested is not True:  # is_nested of a torch.fx proxy is a proxy
            return self._applied(x)
        if not self.is_linear:
            raise self.refusal(f"expected a plain tensor for {self._whose}, found a nested one: pad it")
        if x.layout == torch.jagged:
            return torch.nested.nested_tensor_from_jagged(self._applied(x.values()), x.offsets())
        rows = x.unbind()
        y = self._applied(torch.cat([row.reshape(-1, row.shape[-1]) for row in rows]))
        parts = y.split([row.shape[:-1].numel() for row in rows])
        shaped = [part.reshape(*row.shape[:-1], -1) for part, row in zip(parts, rows, strict=True)]
        return torch.nested.as_nested_tensor(shaped)

    def _applied(self, x: Tensor) -> Tensor:
        if self.is_linear:
            y = self.operate(x.reshape(-1, x.shape[-1]))
            y = y.reshape(*x.shape[:-1], y.shape[-1])
            return y if self.bias is None else y + self.bias
        kernel = self.placeholder.kernel
        if self.pool is None:
            y = self.operate(x)
        elif getattr(kernel, "pool", None) == self.pool.kernel_size:
            y = kernel.pooled(x)  # type: ignore[union-attr, operator]  # operator and pooling in fewer operations
        else:
            y = self.pool(self.operate(x))
        return y if self.bias is None else y + self.bias[:, None, None]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_original" not in self.__dict__ or name.startswith("__") or not hasattr(self.original, name):
                raise
        value = getattr(self.original, name)
        if isinstance(value, Tensor):
            return StandIn.of(value, self, name)
        if isinstance(value, _PLAIN):
            return value
        raise AttributeError(f"{self._whose}, which an operator replaces, has no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        original = self.__dict__.get("_original")
        if original and name not in self._parameters and isinstance(getattr(original[0], name, None), Tensor):
            raise self.refusal(
                f"expected no other {name} for {self._whose}, found one: an operator replaces it, take it out first"
            )
        super().__setattr__(name, value)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> InPlaceOf:
        if recurse:
            self.original._apply(fn)
        super()._apply(fn, recurse)
        return self


def keep_padding(net: nn.Module) -> None:
    """Let each encoder of torch that contains a replaced layer leave padded inputs unchanged.

    An encoder's fused path converts padded inputs to nested tensors for all layers if the first layer is torch's.
    """
    for module in net.modules():
        holds = isinstance(module, nn.TransformerEncoder) and any(
            isinstance(part, InPlaceOf) for part in module.modules()
        )
        if holds and module.__dict__.get("use_nested_tensor"):
            module.__dict__.update(use_nested_tensor=False, _nests=True)
        elif not holds and module.__dict__.pop("_nests", False):
            module.__dict__["use_nested_tensor"] = True
