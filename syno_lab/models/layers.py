"""All convolutions and linear layers of a network, with shapes, FLOPs and the reasons why a layer cannot be replaced.

One forward pass over an example shows the layers, so any ``nn.Module`` works. The module may be a backbone of
:mod:`.registry`, a model that ``transformers`` builds from a configuration, or a user's network. On the meta device, a
survey needs no memory and no time. On other devices a survey runs the network once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from syno_lab.blame import is_theirs, said_by
from syno_lab.copies import check_shapes, modes_kept
from syno_lab.errors import SpecError
from syno_lab.models.sites import Kind, Predicate, Selection, Site
from syno_lab.models.stand_in import is_of_torch

if TYPE_CHECKING:
    import pandas as pd

Example = tuple[int, int, int] | Tensor | Mapping[str, Tensor]
#: The shapes of a layer's input and output in one call, or the reason why an operator cannot replace the layer.
Call = tuple[torch.Size, torch.Size] | str

# Linear layers that are no nn.Linear, by their class's name; their weights are [C_in, C_out].
_TRANSPOSED = {"transformers.pytorch_utils.Conv1D"}
_NAMES = ("name", "kind", "input", "output", "kernel", "stride", "groups", "bias", "calls", "flops", "share", "params")


@dataclass(frozen=True)
class Survey:
    """The layers of a network on one example: ``sites`` in the order of their calls, then layers that are never called.

    ``flops``: 2 for each multiply-add of convolutions and matrix products, as torch counts them. ``params``: all
    parameters; shared parameters count once. ``others``: the kinds of other layers with weights, by the layers' names.
    """

    network: str
    sites: tuple[Site, ...]
    flops: int
    params: int
    modules: Mapping[str, nn.Module] = field(repr=False)
    others: Mapping[str, str] = field(default_factory=dict)

    def reasons(self, selection: Selection | None = None) -> dict[str, str | None]:
        """Return for each layer's name why the layer is not replaced; None for a layer that ``selection`` replaces."""
        chosen = selection or Selection()
        reason_of = {site.name: chosen.reason_against(site, self.modules[site.name]) for site in self.sites}
        other = "its kind is {} (conv2d and linear layers can be replaced)"
        return reason_of | {name: other.format(kind) for name, kind in self.others.items()}

    def select(self, selection: Selection | None = None) -> list[Site]:
        """Return the layers that ``selection`` replaces (by default: dense convolutions larger than 1x1).

        Raises SpecError with the reasons when no layer is replaced.
        """
        reasons = self.reasons(selection)
        replaceable = [site for site in self.sites if reasons[site.name] is None]
        if not replaceable:
            raise nothing_to_replace(self.network, reasons)
        return replaceable

    def rows(self, selection: Selection | None = None) -> list[dict[str, Any]]:
        """Return a row per layer: name, kind, shapes, FLOPs, share, parameters, whether it is replaced, and why not."""
        reasons = self.reasons(selection)
        rows: list[dict[str, Any]] = [
            {
                "name": site.name,
                "kind": site.kind,
                "input": _shape(site, site.in_channels, (site.height, site.width)),
                "output": _shape(site, site.out_channels, _output_pixels(site)),
                "kernel": None if site.kind == "linear" else _times(site.kernel_size),
                "stride": None if site.kind == "linear" else max(site.stride),
                "groups": None if site.kind == "linear" else site.groups,
                "bias": site.bias,
                "calls": site.calls,
                "flops": site.flops,
                "share": site.flops / self.flops if self.flops else 0.0,
                "params": site.params,
            }
            for site in self.sites
        ]
        rows += [{**dict.fromkeys(_NAMES), "name": name, "kind": kind} for name, kind in self.others.items()]
        return [{**row, "replaced": reasons[row["name"]] is None, "reason": reasons[row["name"]]} for row in rows]

    def to_frame(self, selection: Selection | None = None) -> pd.DataFrame:
        """Return :meth:`rows` as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.rows(selection))


def survey(net: nn.Module, example: Example) -> Survey:
    """Run ``net`` on ``example`` and return its layers. The network is unchanged, but its lazy layers get shapes.

    ``example``: the shape [C, H, W] of one image, a tensor (tokens, a batch), or a mapping of arguments to tensors as
    for models of ``transformers``. Floating-point values get the network's dtype. FLOPs and shapes count for the whole
    example, so use a batch of one. Raises SpecError when the network cannot run the example.
    """
    positional, named = arguments(net, example)
    names = {module: name for name, module in net.named_modules() if _kind(module) is not None}
    seen: dict[nn.Module, list[Call]] = {}
    running: list[nn.Module] = []

    def watch(module: nn.Module) -> Callable[..., Any]:
        forward = module.forward

        def watched(*inputs: Any, **named: Any) -> Any:
            running.append(module)
            try:
                output = forward(*inputs, **named)
            finally:
                running.pop()
            seen.setdefault(module, []).append(_call([*inputs, *named.values()], output))
            return output

        return watched

    reads = _Taken(names, running)
    with (
        _watched(net, {module: watch(module) for module in names}),
        torch.no_grad(),
        FlopCounterMode(display=False) as counter,
        reads,
    ):
        try:
            # torch counts the FLOPs of attention only when attention is written as matrix products.
            with sdpa_kernel(SDPBackend.MATH):
                net(*positional, **named)
        except BaseException as error:
            if not is_theirs(error):
                raise
            accepted = _taken_type(net, positional) if isinstance(error, Exception) else None
            if accepted is not None:
                raise SpecError(
                    f"expected examples of {accepted}, which this {type(net).__name__} takes, found "
                    f"{positional[0].dtype} {list(positional[0].shape)}: convert them in the data set"
                ) from error
            message = said_by(error).removeprefix("RuntimeError: ")
            noun = "images" if isinstance(example, tuple) else "an example"
            shown = list(getattr(example, "shape", example))
            raise SpecError(f"expected a network that takes {noun} {shown}, found: {message}") from error
    check_shapes(net)
    owners = _owners(net)
    calls = seen | {module: [] for module in names if module not in seen}
    sites = [_site(names[module], module, called, owners, module in reads.modules) for module, called in calls.items()]
    return Survey(
        network=type(net).__name__,
        sites=tuple(sites),
        flops=int(counter.get_total_flops()),
        params=sum(parameter.numel() for parameter in net.parameters()),
        modules={name: module for module, name in names.items()},
        others={
            name: kind
            for name, module in net.named_modules()
            if ".parametrizations." not in f".{name}." and (kind := _other_kind(module)) is not None
        },
    )


def find_convolutions(
    net: nn.Module,
    input_shape: tuple[int, int, int],
    *,
    kernel_size: tuple[int, int] | None = (3, 3),
    stride: tuple[int, int] | None = (1, 1),
    groups: int | None = 1,
    predicate: Predicate | None = None,
) -> list[Site]:
    """Return the convolutions of ``net`` that an operator of the same shapes can replace, in the order of their calls.

    The function runs :func:`survey` with one image [C, H, W] of ``input_shape``; an empty result is no error. The
    arguments ``kernel_size``, ``stride`` and ``groups`` select layers (None: any), ``predicate`` selects by name and
    module. Layers that no operator can replace are left out: see :attr:`.Site.obstacle`. Raises SpecError when the
    network cannot run the shape.
    """
    selection = Selection(
        kernel_size=kernel_size, stride=stride, groups=groups, pointwise=kernel_size is None, predicate=predicate
    )
    seen = survey(net, input_shape)
    reasons = seen.reasons(selection)
    return [site for site in seen.sites if reasons[site.name] is None]


def _kind(module: nn.Module) -> Kind | None:
    if isinstance(module, nn.Conv2d):
        return "conv2d"
    names = {f"{base.__module__}.{base.__qualname__}" for base in type(module).__mro__}
    return "linear" if isinstance(module, nn.Linear) or names & _TRANSPOSED else None


def _other_kind(module: nn.Module) -> str | None:
    """Return the kind of a layer with weights; None without weights, and for image convolutions and linear layers."""
    if _kind(module) is not None:
        return None
    bases = [base for base in type(module).__mro__ if base is not nn.Module]
    if any(".quantized." in base.__module__ for base in bases):
        return f"a quantized {bases[0].__name__}" if hasattr(module, "weight") else None
    of_torch = next((base.__name__ for base in bases if base.__module__.startswith("torch.nn.modules.")), None)
    computed = getattr(module, "parametrizations", None)
    if of_torch is None and computed is None and list(module.children()):
        return None
    weights = [*module.parameters(recurse=False), *(() if computed is None else computed.parameters())]
    if not any(weight.ndim > 1 for weight in weights):
        return None
    scripted = getattr(module, "original_name", None) if isinstance(module, torch.jit.ScriptModule) else None
    return f"{scripted} in TorchScript" if scripted else of_torch or bases[0].__name__


def _taken_type(net: nn.Module, positional: tuple[Tensor, ...]) -> torch.dtype | None:
    """After a failure with the example's dtype, return a dtype that ``net`` accepts; None if none is accepted."""
    weight = next((parameter.dtype for parameter in net.parameters() if parameter.is_floating_point()), torch.float32)
    for dtype in (weight, torch.int64) if positional else ():
        if positional[0].dtype != dtype:
            with suppress(Exception):  # try the next dtype if the network fails with this dtype too
                net(positional[0].to(dtype))
                return dtype
    return None


def arguments(net: nn.Module, example: Example, batch: int = 1) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return the positional and named arguments to call ``net`` on ``example``; a shape is ``batch`` images of zeros.

    Raises SpecError for a wrong shape.
    """
    weight = next((parameter for parameter in net.parameters() if parameter.is_floating_point()), torch.empty(0))

    def moved(value: Tensor) -> Tensor:
        dtype = weight.dtype if value.is_floating_point() else value.dtype
        return value.detach().to(weight.device, dtype, copy=True)  # a copy, because layers may change it

    if isinstance(example, Mapping):
        return (), {name: moved(value) for name, value in example.items()}
    if isinstance(example, Tensor):
        return (moved(example),), {}
    if len(example) != 3 or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in example):
        raise SpecError(f"expected the input shape of one image as [C, H, W], found {list(example)}")
    return (moved(torch.zeros(batch, *example)),), {}


def _call(inputs: list[Any], output: Any) -> Call:
    """Return the shapes of a call's input and output, or the reason why an operator cannot replace the called layer."""
    values = [value for value in inputs if value is not None]
    if not values or not isinstance(values[0], Tensor) or values[0].is_nested:
        return "its input is not one plain tensor"
    if len(values) > 1:
        return f"it is called with {len(values)} inputs, and an operator takes one"
    if not isinstance(output, Tensor):
        return f"its output is a {type(output).__name__}, not a tensor"
    return values[0].shape, output.shape


class _Taken(TorchDispatchMode):
    """Record layers whose weights' values a torch function reads while the layer itself does not run."""

    def __init__(self, layers: Iterable[nn.Module], running: list[nn.Module]) -> None:
        super().__init__()
        plain = (layer for layer in layers if not any(map(is_of_torch, layer._forward_pre_hooks.values())))
        owned = ((layer, name, value) for layer in plain for name, value in layer._parameters.items())
        # A bias is left out: operators keep it. Hooks of torch may read the tensors from which they compute a weight.
        self._owners = {_start(value): layer for layer, name, value in owned if value is not None and name != "bias"}
        self._owners.pop(None, None)
        self._running = running
        self.modules: set[nn.Module] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        reads_none = name in ("detach", "alias") or name.startswith("new_") or name.endswith("_like")
        for value in [] if reads_none else tree_leaves((args, kwargs)):
            owner = self._owners.get(_start(value)) if isinstance(value, Tensor) else None
            if owner is not None and owner not in self._running:
                self.modules.add(owner)
        return func(*args, **(kwargs or {}))


def _start(tensor: Tensor) -> tuple[int, int] | None:
    """Return the address of a tensor's first value, which most of its views share; None without values."""
    try:
        return tensor.untyped_storage()._cdata, int(tensor.storage_offset())
    except (NotImplementedError, RuntimeError, ValueError):
        return None


@contextmanager
def _watched(net: nn.Module, forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Replace modules' ``forward``, in evaluation mode. Hooks would run too late: after the network's own hooks."""
    with ExitStack() as after:
        after.enter_context(modes_kept(net))
        for parameter in net.parameters():  # torch's hooks that count FLOPs fail for views of tensors with gradients.
            if parameter.requires_grad and parameter.is_leaf:  # Parameters of TorchScript's copies are no leaves.
                after.callback(setattr, parameter, "requires_grad", True)
                parameter.requires_grad = False
        after.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)  # the fast path would not call the layers
        for module, forward in forwards.items():
            if (own := vars(module).get("forward")) is not None:
                after.callback(setattr, module, "forward", own)
            after.callback(vars(module).pop, "forward", None)
            module.forward = forward
        net.eval()
        yield


def _owners(net: nn.Module) -> dict[int, set[str]]:
    """Return for each parameter's id the names of the modules that own it; a parametrization counts as its module."""
    owners: dict[int, set[str]] = {}
    for name, module in net.named_modules():
        for parameter in module._parameters.values():
            owners.setdefault(id(parameter), set()).add(name.partition(".parametrizations.")[0])
    return owners


def _site(name: str, module: nn.Module, seen: list[Call], owners: Mapping[int, set[str]], taken: bool) -> Site:
    # Reads stored parameters, because weight_norm or a parametrization computes a new weight for each call.
    weights = [parameter for own, parameter in module.named_parameters() if "bias" not in own]
    sharing = sorted({owner for weight in weights for owner in owners.get(id(weight), ())} - {name})
    calls = [call for call in seen if not isinstance(call, str)]
    obstacle = next((call for call in seen if isinstance(call, str)), None)
    if obstacle is None and taken and not sharing:
        how = "besides its calls" if seen else "and the network does not call it"
        obstacle = f"a function takes its weight, {how}"
    elif obstacle is None and not seen:
        obstacle = "the network does not call it on this example"
    elif obstacle is None and sharing:
        obstacle = f"it shares its weight with {sharing[0]}"
    site = Site(
        name,
        *_channels(module),
        height=1,
        width=1,
        kernel_size=(1, 1),
        flops=0,
        params=sum(parameter.numel() for parameter in module.parameters()),
        calls=len(seen),
        bias=module.bias is not None,
        obstacle=obstacle,
    )
    if isinstance(module, nn.Conv2d):
        return _convolution(site, module, calls)
    positions = prod(calls[0][0][:-1]) if calls else 1
    flops = sum(2 * site.in_channels * prod(output) for _, output in calls)
    return replace(site, kind="linear", positions=positions, flops=flops)


def _channels(module: nn.Module) -> tuple[int, int]:
    if isinstance(module, nn.Conv2d):
        return module.in_channels, module.out_channels
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    assert isinstance(module.weight, Tensor)
    inputs, outputs = module.weight.shape
    return inputs, outputs


def _convolution(site: Site, module: nn.Conv2d, calls: Sequence[tuple[torch.Size, torch.Size]]) -> Site:
    site = replace(
        site,
        kernel_size=(module.kernel_size[0], module.kernel_size[1]),
        stride=(module.stride[0], module.stride[1]),
        dilation=(module.dilation[0], module.dilation[1]),
        groups=module.groups,
    )
    if not calls:
        return site
    height, width = calls[0][0][-2:]
    area = module.in_channels // module.groups * prod(module.kernel_size)
    site = replace(site, height=height, width=width, flops=sum(2 * area * prod(output) for _, output in calls))
    pixels, expected = (calls[0][1][-2], calls[0][1][-1]), _output_pixels(site)
    obstacle = None
    if len({tuple(image[-2:]) for image, _ in calls}) > 1:
        obstacle = "it is called on images of several sizes"
    elif any(len(image) != 4 for image, _ in calls):
        obstacle = "it is called on an image without a batch"
    elif site.dilation != (1, 1):
        obstacle = f"its dilation is {_times(site.dilation)}"
    elif pixels != expected:
        obstacle = f"its output is {_times(pixels)}, and not {_times(expected)} as its padding would have to make it"
    return replace(site, obstacle=site.obstacle or obstacle)


def _output_pixels(site: Site) -> tuple[int, int]:
    return -(-site.height // site.stride[0]), -(-site.width // site.stride[1])


def _shape(site: Site, channels: int, pixels: tuple[int, int]) -> str:
    return f"{site.positions}x{channels}" if site.kind == "linear" else f"{channels}x{_times(pixels)}"


def _times(pixels: tuple[int, int]) -> str:
    return f"{pixels[0]}x{pixels[1]}"


def nothing_to_replace(network: str, reasons: Mapping[str, str | None]) -> SpecError:
    """Return the error for a network of which no layer can be replaced, with the reasons."""
    return SpecError(f"expected something to replace in this {network}, found {in_short(reasons)}")


def in_short(reasons: Mapping[str, str | None], most: int | None = None) -> str:
    """Return why layers are not replaced: at most ``most`` different reasons, each with its first layer."""
    if not reasons:
        return "no convolution and no linear layer"
    first: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason is not None:
            first.setdefault(reason, []).append(name or "the network itself")
    parts = [f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {why}" for why, names in first.items()]
    more = [] if most is None else [f"{len(parts[most:])} other reasons"] * bool(parts[most:])
    return "; ".join([*parts[:most], *more])
