"""The comparison of a traced graph with its network: values and gradients on one random batch, in both modes.

Graph and network run as copies, so running statistics, random generators and gradients stay as they are. In the copies,
a weight whose values are all equal, as in a new normalisation, becomes random. A weight of equal values would hide
differences in the layers before or after it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from syno_lab.alpha.graph import Graph
from syno_lab.alpha.recording import Example, Record, eager, leaves
from syno_lab.alpha.twins import kept_chance, tensors_of, twin
from syno_lab.blame import said_by
from syno_lab.errors import SpecError

_BATCH = 2
#: The most FLOPs of one example to compare gradients in both modes (`EVERYTHING`), gradients only in training (`ONCE`),
#: or only outputs in evaluation (`VALUES`). A network above `VALUES`, or with more than `BYTES` of weights, is skipped.
EVERYTHING, ONCE, VALUES, BYTES = 1e9, 4e9, 2e10, 2**29
#: The limit in bytes for weights on the meta device, which have no values and get random values for the comparison.
_DRAWN_BYTES = 2**26
#: Tolerances by dtype, as shares of a tensor's range (the largest minus the smallest value).
_TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 5e-2}
_TOLERANCE, _LEAST = 1e-4, 1e-6  # `_LEAST` is a share of the largest range of a gradient
#: A difference above this share is not caused by rounding.
_ROUNDED = 0.05


@dataclass(frozen=True)
class _Pass:
    """Outputs, and gradients of inputs and weights by name; or the message of an exception, in one line."""

    outputs: list[Tensor]
    gradients: dict[str, Tensor | None]
    error: str = ""


def check_same(graph: Graph, seen: Record, example: Example) -> None:
    """Compare the module of a traced graph with its network.

    The network's cost decides how much is compared, see :data:`EVERYTHING`. If the network draws other random numbers
    than its graph in training, this mode is not compared, and a warning is given. Raises SpecError with one line that
    names the difference, the mode and the module.
    """
    assert graph.origin is not None
    net, flops = graph.origin.net, graph.flops()
    weights = [weight for _, weight in tensors_of(net)]
    is_meta = any(weight.is_meta for weight in weights)
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    if flops > VALUES or size > (_DRAWN_BYTES if is_meta else BYTES):
        return
    modes = [(False, True), (True, True)] if flops <= EVERYTHING else [(True, True), (False, False)]
    device = next((weight.device for weight in weights if not weight.is_meta), torch.device("cpu"))
    refused = ""
    with eager():
        for inputs in _inputs(net, seen, example, device):
            why = _refusal(graph, twin(net, _drawn), inputs, modes if flops <= ONCE else [(False, False)])
            if not why:
                return
            refused = refused or why
    if not is_meta:  # a network on the meta device gets its real weights later
        raise SpecError(f"{type(net).__name__}: expected a network that takes a random batch, found {refused}")


def _refusal(graph: Graph, net: nn.Module, inputs: list[Tensor], modes: list[tuple[bool, bool]]) -> str:
    """Return why a network fails on these inputs; empty if it was compared. A mode is a pair (training, gradients)."""
    network, module = twin(net), _module(graph, net)
    for training, with_gradients in modes:
        gradients = with_gradients
        wanted = _passed(network, inputs, training, gradients)
        if wanted.error and gradients:  # the network computes no gradients
            gradients = False
            wanted = _passed(network, inputs, training, gradients)
        if wanted.error and training:  # for instance, the batch is too small for batch statistics
            continue
        if wanted.error or not all(bool(tensor.isfinite().any()) for tensor in wanted.outputs if tensor.numel()):
            return wanted.error or "outputs that are no numbers"
        actual = _passed(module, inputs, training, gradients)
        text = _difference(wanted, actual)[0] and _reason(graph, net, inputs, wanted, actual, (training, gradients))
        if text:
            mode = "training" if training else "evaluation"
            raise SpecError(
                f"{type(net).__name__}: expected a graph that does in {mode} what the network does, found {text}: αNAS "
                "cannot follow the network there"
            )
    return ""


def _reason(
    graph: Graph, net: nn.Module, inputs: list[Tensor], wanted: _Pass, found: _Pass, mode: tuple[bool, bool]
) -> str:
    """Describe the difference of two passes; empty where random numbers or rounding explain the difference."""
    again, reseeded = (_passed(twin(net), inputs, *mode, seed) for seed in (0, 1))
    if _difference(wanted, again)[0] and not _difference(again, found)[0]:
        return "that its outputs depend on earlier calls"
    is_random = bool(not (found.error or reseeded.error) and _difference(wanted, reseeded)[0])
    are_random = is_random and bool(_difference(found, _passed(_module(graph, net), inputs, *mode, 1))[0])
    if is_random and not are_random:
        if not mode[0]:
            return "that it draws at random in another way"
        warnings.warn(
            f"{type(net).__name__} draws at random in training, as by a stochastic depth of its own, and its graph "
            "does not: an edited network trains without it",
            stacklevel=5,
        )
        return ""
    with _NoDropout() if are_random else nullcontext():
        if are_random:
            wanted, reseeded = (_passed(twin(net), inputs, *mode, seed) for seed in (0, 1))
            if _difference(wanted, reseeded)[0]:  # modules other than dropout draw random numbers too
                return ""
            found = _passed(_module(graph, net), inputs, *mode)
        message, share = _difference(wanted, found)
        if message and share < _ROUNDED:  # float64 shows whether the difference is rounding
            double = twin(net).double()
            wide = [x.double() if x.is_floating_point() else x for x in inputs]
            exact = _passed(double, wide, *mode)
            if not exact.error and not _difference(exact, _passed(_module(graph, double), wide, *mode))[0]:
                return ""
        return message and message + _where((twin(net), _module(graph, net)), inputs, mode[0])


def _module(graph: Graph, net: nn.Module) -> nn.Module:
    assert graph.origin is not None
    return replace(graph, origin=replace(graph.origin, net=net)).to_torch()


class _NoDropout(TorchFunctionMode):
    """Replace dropout by the identity, so that random draws in another order do not hide a difference."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if "dropout" in getattr(func, "__name__", ""):
            return args[0] if args else named["input"]
        return func(*args, **named)


def _where(nets: tuple[nn.Module, nn.Module], inputs: list[Tensor], training: bool) -> str:
    """Return the first module whose output differs between two networks."""
    recorded: list[dict[str, Tensor]] = [{}, {}]
    for net, outputs in zip(nets, recorded, strict=True):
        for path, part in net.named_modules():
            if path and not isinstance(part, torch.jit.ScriptModule):
                part.register_forward_hook(partial(_keep, outputs, path))
        _passed(net, inputs, training, False)  # after an exception, the hooks have recorded all earlier outputs
    ours, theirs = recorded
    common = (path for path in ours if path in theirs and ours[path].shape == theirs[path].shape)
    first = next((path for path in common if _apart(ours[path], theirs[path]) > _TOLERANCE), None)
    return f", first in {first}" if first else ""


def _keep(
    outputs: dict[str, Tensor], path: str, module: nn.Module, given: tuple[Tensor, ...], y: Tensor | tuple[Tensor, ...]
) -> None:
    if isinstance(y, Tensor):
        outputs.setdefault(path, y.detach().clone())


def _passed(net: nn.Module, inputs: list[Tensor], training: bool, gradients: bool, seed: int = 0) -> _Pass:
    """Run a network with random generators seeded by ``seed``."""
    starts = [x.clone().requires_grad_(gradients and x.is_floating_point()) for x in inputs]
    try:
        net.train().train(training)  # a change of mode clears the network's caches
        net.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(gradients), kept_chance(seed):
            # A network may change its inputs in place, which PyTorch forbids for leaf tensors.
            outputs = [leaf for leaf in leaves(net(*(x.clone() for x in starts))) if isinstance(leaf, Tensor)]
            if gradients and (roots := [y for y in outputs if y.requires_grad]):
                generator = torch.Generator().manual_seed(1)
                torch.autograd.backward(roots, [torch.randn(y.shape, generator=generator).to(y) for y in roots])
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
        return _Pass([], {}, said_by(error))
    named = {f"input {number}": x for number, x in enumerate(starts)}
    named |= dict(net.named_parameters(remove_duplicate=False))
    grads = {name: tensor.grad for name, tensor in named.items() if tensor.requires_grad} if gradients else {}
    return _Pass([y.detach() for y in outputs], grads)


def _difference(wanted: _Pass, found: _Pass) -> tuple[str, float]:
    """Return a text and the share of the range for the first difference of two passes; an empty text if they agree."""
    if wanted.error or found.error:
        return found.error or wanted.error, inf
    outputs, gradients, ys, grads = wanted.outputs, wanted.gradients, found.outputs, found.gradients
    shapes = [[list(tensor.shape) for tensor in tensors] for tensors in (outputs, ys)]
    if shapes[0] != shapes[1]:
        return f"outputs of {shapes[1]} for {shapes[0]}", inf
    for one, two in zip(outputs, ys, strict=True):
        if (share := _apart(one, two)) > _TOLERANCES.get(one.dtype, _TOLERANCE):
            return f"outputs that are {share:.1e} of their spread apart", share
    gradients_present = [y for y in gradients.values() if y is not None]
    least = _LEAST / _TOLERANCE * max(map(_spread, gradients_present), default=0.0)
    tied = {id(gradients[name]) for name in grads if name in gradients}
    for name, gradient in gradients.items():
        actual = grads.get(name)
        if name not in grads and id(gradient) in tied:  # a tied weight, listed under another name
            continue
        if gradient is None or actual is None:
            if gradient is not actual:
                is_new = f"a gradient of {name} where the network has none"
                return is_new if gradient is None else f"no gradient of {name}", inf
        elif (share := _apart(gradient, actual, least)) > _TOLERANCES.get(gradient.dtype, _TOLERANCE):
            return f"a gradient of {name} that is {share:.1e} of its spread off", share
    return "", 0.0


def _spread(tensor: Tensor) -> float:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    real = real[real.isfinite()]  # an infinite gradient would hide small differences
    return (float(real.max() - real.min()) or float(real.abs().max()) * _LEAST) if real.numel() else 0.0


def _apart(one: Tensor, two: Tensor, least: float = 0.0) -> float:
    """Return the difference of two tensors as a share of the first's range; infinite where only one is finite."""
    if one.dtype != two.dtype or not (one.is_floating_point() or one.is_complex()):
        return 0.0 if one.dtype == two.dtype and torch.equal(one, two) else inf
    difference = float((one - two).abs().max()) if one.numel() else 0.0
    if isfinite(difference):
        return difference / (max(_spread(one), least) or difference or 1.0)
    finite = one.isfinite()
    return _apart(one[finite], two[finite], least) if torch.equal(finite, two.isfinite()) else inf


def _drawn(weight: Tensor) -> Tensor:
    """Return a copy of a weight; the copy gets random values if the weight has no values or only equal values."""
    value = weight.detach().clone()
    if weight.is_meta:  # random weights of layers are around 0, scales and variances around 1
        value = torch.full(weight.shape, float(weight.is_floating_point()), dtype=weight.dtype)
        if weight.is_floating_point() and weight.ndim > 1:
            value.uniform_(-1, 1).div_(max(1, weight.shape[1:].numel()) ** 0.5)
    if value.is_floating_point() and value.numel() > 1 and bool((value == value.flatten()[0]).all()):
        value += torch.rand_like(value) / 2
    return value


def _inputs(net: nn.Module, seen: Record, example: Example, device: torch.device) -> Iterator[list[Tensor]]:
    """Yield batches to try: random values (integers fit all embeddings), then values from 0 up, then the example."""
    bound = min((part.num_embeddings for part in net.modules() if isinstance(part, nn.Embedding)), default=2)
    for is_plain in (False, True):
        batch = []
        for number in seen.inputs:
            shape, dtype = (_BATCH, *seen.shape(number)[1:]), seen.dtypes[number]
            if dtype.is_floating_point or dtype.is_complex:
                x = (torch.rand if is_plain else torch.randn)(shape, dtype=dtype)
            else:
                x = torch.full(shape, dtype == torch.bool) if is_plain else torch.randint(bound, shape)
            batch.append(x.to(device, dtype))
        yield batch
    tensors = [example] if isinstance(example, Tensor) else [tensor for tensor in example if isinstance(tensor, Tensor)]
    if tensors and not any(tensor.is_meta for tensor in tensors):
        yield [tensor[:1].expand(_BATCH, *tensor.shape[1:]).to(device) for tensor in tensors]
