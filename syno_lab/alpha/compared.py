"""A traced network is held against the network: values and gradients on one random batch, in both modes.

Both run on copies, so that running statistics, generators and gradients stay as they are. Weights that are equal
everywhere, as those of new normalisations and of heads that begin with zeros, are drawn in the copy: they would hide
what stands before or behind them.
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
#: FLOPs of one example up to which both modes are compared with gradients, training with and evaluation without them,
#: and evaluation alone without; and the bytes of weights. What has more is not compared.
EVERYTHING, ONCE, VALUES, BYTES = 1e9, 4e9, 2e10, 2**29
#: The same of weights without values, on the meta device, which are drawn to compare.
_DRAWN_BYTES = 2**26
#: Shares of a tensor's spread up to which two are equal, by type, and of the spread of all gradients.
_TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 5e-2}
_TOLERANCE, _LEAST = 1e-4, 1e-6
#: What is further off is no matter of rounding.
_ROUNDED = 0.05


@dataclass(frozen=True)
class _Pass:
    """Outputs, and gradients of inputs and weights by their names; or what was raised, in one line."""

    outputs: list[Tensor]
    gradients: dict[str, Tensor | None]
    error: str = ""


def check_same(graph: Graph, seen: Record, example: Example) -> None:
    """Hold the module of a traced graph against the network.

    How much is compared follows from the network's cost, see :data:`EVERYTHING`. A network that draws at random in
    another way than its graph is not compared in that mode. Raises SpecError in one line, what differs, in which mode
    and where.
    """
    assert graph.origin is not None
    net, flops = graph.origin.net, graph.flops()
    weights = [weight for _, weight in tensors_of(net)]
    is_meta = any(weight.is_meta for weight in weights)
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    if flops > VALUES or size > (_DRAWN_BYTES if is_meta else BYTES):
        return
    modes = [(False, True), (True, True)] if flops <= EVERYTHING else [(True, True), (False, False)]
    device = next((each.device for each in weights if not each.is_meta), torch.device("cpu"))
    refused = ""
    with eager():
        for inputs in _inputs(net, seen, example, device):
            why = _refusal(graph, twin(net, _drawn), inputs, modes if flops <= ONCE else [(False, False)])
            if not why:
                return
            refused = refused or why
    if not is_meta:  # weights that are drawn are not those that it will have
        raise SpecError(f"{type(net).__name__}: expected a network that takes a random batch, found {refused}")


def _refusal(graph: Graph, net: nn.Module, inputs: list[Tensor], modes: list[tuple[bool, bool]]) -> str:
    """Why a network does not take inputs; empty where it was compared in some modes: training, gradients."""
    one, module = twin(net), _module(graph, net)
    for training, with_gradients in modes:
        gradients = with_gradients
        wanted = _passed(one, inputs, training, gradients)
        if wanted.error and gradients:  # a network that only answers
            gradients = False
            wanted = _passed(one, inputs, training, gradients)
        if wanted.error and training:  # such as a batch that is too small for its statistics
            continue
        if wanted.error or not all(bool(each.isfinite().any()) for each in wanted.outputs if each.numel()):
            return wanted.error or "outputs that are no numbers"
        found = _passed(module, inputs, training, gradients)
        said = _difference(wanted, found)[0] and _reason(graph, net, inputs, wanted, found, (training, gradients))
        if said:
            mode = "training" if training else "evaluation"
            raise SpecError(
                f"{type(net).__name__}: expected a graph that does in {mode} what the network does, found {said}: αNAS "
                "cannot follow the network there"
            )
    return ""


def _reason(
    graph: Graph, net: nn.Module, inputs: list[Tensor], wanted: _Pass, found: _Pass, mode: tuple[bool, bool]
) -> str:
    """What differs in two passes; empty where only chance or rounding does."""
    again, other = (_passed(twin(net), inputs, *mode, seed) for seed in (0, 1))
    if _difference(wanted, again)[0] and not _difference(again, found)[0]:
        return "that its outputs depend on earlier calls"
    is_random = bool(not (found.error or other.error) and _difference(wanted, other)[0])
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
            wanted, other = (_passed(twin(net), inputs, *mode, seed) for seed in (0, 1))
            if _difference(wanted, other)[0]:  # both draw in other ways too
                return ""
            found = _passed(_module(graph, net), inputs, *mode)
        said, share = _difference(wanted, found)
        if said and share < _ROUNDED:  # in float64 rounding is no reason to differ
            double = twin(net).double()
            wide = [each.double() if each.is_floating_point() else each for each in inputs]
            exact = _passed(double, wide, *mode)
            if not exact.error and not _difference(exact, _passed(_module(graph, double), wide, *mode))[0]:
                return ""
        return said and said + _where((twin(net), _module(graph, net)), inputs, mode[0])


def _module(graph: Graph, net: nn.Module) -> nn.Module:
    assert graph.origin is not None
    return replace(graph, origin=replace(graph.origin, net=net)).to_torch()


class _NoDropout(TorchFunctionMode):
    """Dropout gives what it gets, so that what is drawn in another order can be compared."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if "dropout" in getattr(func, "__name__", ""):
            return args[0] if args else named["input"]
        return func(*args, **named)


def _where(nets: tuple[nn.Module, nn.Module], inputs: list[Tensor], training: bool) -> str:
    """The first module of both networks whose output differs."""
    given: list[dict[str, Tensor]] = [{}, {}]
    for net, outputs in zip(nets, given, strict=True):
        for path, part in net.named_modules():
            if path and not isinstance(part, torch.jit.ScriptModule):
                part.register_forward_hook(partial(_keep, outputs, path))
        _passed(net, inputs, training, False)  # as far as it goes
    one, two = given
    both = (path for path in one if path in two and one[path].shape == two[path].shape)
    first = next((path for path in both if _apart(one[path], two[path]) > _TOLERANCE), None)
    return f", first in {first}" if first else ""


def _keep(
    outputs: dict[str, Tensor], path: str, module: nn.Module, given: tuple[Tensor, ...], y: Tensor | tuple[Tensor, ...]
) -> None:
    if isinstance(y, Tensor):
        outputs.setdefault(path, y.detach().clone())


def _passed(net: nn.Module, inputs: list[Tensor], training: bool, gradients: bool, seed: int = 0) -> _Pass:
    """Run a network, with chance as it is after a seed."""
    starts = [each.clone().requires_grad_(gradients and each.is_floating_point()) for each in inputs]
    try:
        net.train().train(training)  # what a network keeps for evaluations, it makes anew after a training
        net.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(gradients), kept_chance(seed):
            # A network may change what it gets in place, which no leaf allows.
            outputs = [leaf for leaf in leaves(net(*(each.clone() for each in starts))) if isinstance(leaf, Tensor)]
            if gradients and (of := [each for each in outputs if each.requires_grad]):
                generator = torch.Generator().manual_seed(1)
                torch.autograd.backward(of, [torch.randn(each.shape, generator=generator).to(each) for each in of])
    except (Exception, SystemExit) as error:  # noqa: BLE001 - of the user's own code
        return _Pass([], {}, said_by(error))
    named = {f"input {number}": each for number, each in enumerate(starts)}
    named |= dict(net.named_parameters(remove_duplicate=False))
    grads = {name: each.grad for name, each in named.items() if each.requires_grad} if gradients else {}
    return _Pass([each.detach() for each in outputs], grads)


def _difference(wanted: _Pass, found: _Pass) -> tuple[str, float]:
    """What of a pass is not that of another, and by which share of its spread; empty for nothing."""
    if wanted.error or found.error:
        return found.error or wanted.error, inf
    outputs, gradients, others, other_gradients = wanted.outputs, wanted.gradients, found.outputs, found.gradients
    shapes = [[list(each.shape) for each in some] for some in (outputs, others)]
    if shapes[0] != shapes[1]:
        return f"outputs of {shapes[1]} for {shapes[0]}", inf
    for one, two in zip(outputs, others, strict=True):
        if (share := _apart(one, two)) > _TOLERANCES.get(one.dtype, _TOLERANCE):
            return f"outputs that are {share:.1e} of their spread apart", share
    given = [each for each in gradients.values() if each is not None]
    least = _LEAST / _TOLERANCE * max(map(_spread, given), default=0.0)
    tied = {id(gradients[name]) for name in other_gradients if name in gradients}
    for name, gradient in gradients.items():
        other = other_gradients.get(name)
        if name not in other_gradients and id(gradient) in tied:  # under another name
            continue
        if gradient is None or other is None:
            if gradient is not other:
                is_new = f"a gradient of {name} where the network has none"
                return is_new if gradient is None else f"no gradient of {name}", inf
        elif (share := _apart(gradient, other, least)) > _TOLERANCES.get(gradient.dtype, _TOLERANCE):
            return f"a gradient of {name} that is {share:.1e} of its spread off", share
    return "", 0.0


def _spread(tensor: Tensor) -> float:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    real = real[real.isfinite()]  # an infinite gradient says nothing of what is small beside it
    return (float(real.max() - real.min()) or float(real.abs().max()) * _LEAST) if real.numel() else 0.0


def _apart(one: Tensor, two: Tensor, least: float = 0.0) -> float:
    """How far two tensors are apart, as a share of the spread of the first; infinite where only one has numbers."""
    if one.dtype != two.dtype or not (one.is_floating_point() or one.is_complex()):
        return 0.0 if one.dtype == two.dtype and torch.equal(one, two) else inf
    difference = float((one - two).abs().max()) if one.numel() else 0.0
    if isfinite(difference):
        return difference / (max(_spread(one), least) or difference or 1.0)
    finite = one.isfinite()
    return _apart(one[finite], two[finite], least) if torch.equal(finite, two.isfinite()) else inf


def _drawn(weight: Tensor) -> Tensor:
    """A copy of a weight that has values, and not all the same."""
    value = weight.detach().clone()
    if weight.is_meta:  # weights of layers are around 0, scales and variances around 1
        value = torch.full(weight.shape, float(weight.is_floating_point()), dtype=weight.dtype)
        if weight.is_floating_point() and weight.ndim > 1:
            value.uniform_(-1, 1).div_(max(1, weight.shape[1:].numel()) ** 0.5)
    if value.is_floating_point() and value.numel() > 1 and bool((value == value.flatten()[0]).all()):
        value += torch.rand_like(value) / 2
    return value


def _inputs(net: nn.Module, seen: Record, example: Example, device: torch.device) -> Iterator[list[Tensor]]:
    """Batches to try, in order: drawn, integers as all embeddings take them; without negative numbers; the example."""
    bound = min((each.num_embeddings for each in net.modules() if isinstance(each, nn.Embedding)), default=2)
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
    given = [example] if isinstance(example, Tensor) else [each for each in example if isinstance(each, Tensor)]
    if given and not any(each.is_meta for each in given):
        yield [each[:1].expand(_BATCH, *each.shape[1:]).to(device) for each in given]
