"""A traced network is held against the network: values and gradients on one random batch, in both modes.

Both run on copies, so that running statistics, generators and gradients stay as they are. Weights that are equal
everywhere, as those of new normalisations and of heads that begin with zeros, are drawn in the copy: they would hide
what stands before or behind them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from syno_lab.alpha.graph import Graph
from syno_lab.alpha.recording import Example, Record, eager, leaves
from syno_lab.alpha.twins import kept_chance, tensors_of, twin
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

_DROPOUTS = {
    *(functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d),
    *(functional.alpha_dropout, functional.feature_alpha_dropout, torch.dropout, torch.feature_dropout),
}

#: Outputs, and gradients of inputs and weights by their names.
_Pass = tuple[list[Tensor], dict[str, Tensor | None]]


class _RefusedError(Exception):
    """The network does not take an input, or gives no number for it."""


def check_same(graph: Graph, seen: Record, example: Example) -> None:
    """Hold the module of a traced graph against the network.

    How much is compared follows from the network's cost, see :data:`EVERYTHING`. A network that draws at random in
    another way than its graph is not compared in that mode.

    Raises:
        SpecError: in one line, what differs, in which mode and where.
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
    refused: _RefusedError | None = None
    with eager():
        for inputs in _inputs(net, seen, example, device):
            try:
                _compare(graph, _drawn(net), inputs, modes if flops <= ONCE else [(False, False)])
            except _RefusedError as error:
                refused = refused or error
            else:
                return
    if refused is not None and not is_meta:  # weights that are drawn are not those that it will have
        raise SpecError(f"{type(net).__name__}: expected a network that takes a random batch, found {refused}")


def _compare(graph: Graph, net: nn.Module, inputs: list[Tensor], modes: list[tuple[bool, bool]]) -> None:
    """Compare in some modes (whether in training, whether with gradients)."""
    one, module = twin(net, {}), _module(graph, net)
    for training, has_gradients in modes:
        gradients = has_gradients
        try:
            try:
                wanted = _passed(one, inputs, training, gradients)
            except RuntimeError:  # a network that only answers
                wanted, gradients = _passed(one, inputs, training, False), False
        except Exception as error:
            if training:  # such as a batch that is too small for its statistics
                continue
            raise _RefusedError(_said(error)) from error
        if not all(bool(each.isfinite().any()) for each in wanted[0] if each.numel()):
            raise _RefusedError("outputs that are no numbers")
        try:
            found = _passed(module, inputs, training, gradients)
            said, share = _difference(wanted, found)
        except Exception as error:  # noqa: BLE001 - whatever it is, the network does not raise it
            said, share, found = _said(error), inf, ([], {})
        if not said:
            continue
        again = _passed(twin(net, {}), inputs, training, gradients)
        other = _passed(twin(net, {}), inputs, training, gradients, seed=1)
        is_random = bool(found[0] and _difference(wanted, other)[0])
        if _difference(wanted, again)[0] and not _difference(again, found)[0]:
            said = "that its outputs depend on earlier calls"
        elif is_random and _difference(found, _attempt(module, inputs, training, gradients))[0]:
            said, share = _without_dropout(net, module, inputs, training, gradients)
            if not said:
                continue  # both are random, in another order
        elif is_random and training:
            warnings.warn(
                f"{type(net).__name__} draws at random in training, as by a stochastic depth of its own, and its graph "
                "does not: an edited network trains without it",
                stacklevel=4,
            )
            continue
        elif is_random:
            said = "that it draws at random in another way"
        elif share < _ROUNDED and _are_same_in_double(graph, net, inputs, training):
            continue
        elif share:
            said += _where(net, module, inputs, training)
        mode = "training" if training else "evaluation"
        raise SpecError(
            f"{type(net).__name__}: expected a graph that does in {mode} what the network does, found {said}: αNAS "
            "cannot follow the network there"
        )


def _module(graph: Graph, net: nn.Module) -> nn.Module:
    assert graph.origin is not None
    return replace(graph, origin=replace(graph.origin, net=net)).to_torch()


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]:.160}"


def _are_same_in_double(graph: Graph, net: nn.Module, inputs: list[Tensor], training: bool) -> bool:
    """In float64 rounding is no reason to differ."""
    double = twin(net, {}).double()
    wide = [each.double() if each.is_floating_point() else each for each in inputs]
    try:
        one, two = (_passed(each, wide, training, True) for each in (double, _module(graph, double)))
    except Exception:  # noqa: BLE001 - it has no float64
        return False
    return not _difference(one, two)[0]


def _attempt(module: nn.Module, inputs: list[Tensor], training: bool, gradients: bool) -> _Pass:
    try:
        return _passed(module, inputs, training, gradients, seed=1)
    except Exception:  # noqa: BLE001 - it failed before
        return [], {}


class _NoDropout(TorchFunctionMode):
    """Dropout gives what it gets, so that what is drawn in another order can be compared."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func in _DROPOUTS:
            return args[0] if args else named["input"]
        return func(*args, **named)


def _without_dropout(
    net: nn.Module, module: nn.Module, inputs: list[Tensor], training: bool, gradients: bool
) -> tuple[str, float]:
    """What differs where no dropout draws; nothing where the network draws in other ways too."""
    with _NoDropout():
        wanted, other = (_passed(twin(net, {}), inputs, training, gradients, seed) for seed in (0, 1))
        if _difference(wanted, other)[0]:
            return "", 0.0
        return _difference(wanted, _passed(twin(module, {}), inputs, training, gradients))


def _where(net: nn.Module, module: nn.Module, inputs: list[Tensor], training: bool) -> str:
    """The first module of both whose output differs."""
    given: list[dict[str, Tensor]] = []
    for each in (twin(net, {}), twin(module, {})):
        given.append({})

        def keep(path: str, y: Any, outputs: dict[str, Tensor] = given[-1]) -> None:
            if isinstance(y, Tensor):
                outputs.setdefault(path, y.detach().clone())

        parts = [one for one in each.named_modules() if not isinstance(one[1], torch.jit.ScriptModule)]
        for path, part in parts:
            part.register_forward_hook(lambda _, __, y, path=path, keep=keep: keep(path, y))
        with suppress(Exception):  # as far as it goes
            _passed(each, inputs, training, False)
    one, two = given
    differs = (path for path in one if path and path in two and one[path].shape == two[path].shape)
    first = next((path for path in differs if _apart(one[path], two[path]) > _TOLERANCE), None)
    return f", first in {first}" if first else ""


def _passed(net: nn.Module, inputs: list[Tensor], training: bool, gradients: bool, seed: int = 0) -> _Pass:
    """Run a network, with chance as it is after a seed."""
    net.train(training)
    net.zero_grad(set_to_none=True)
    starts = [each.clone().requires_grad_(gradients and each.is_floating_point()) for each in inputs]
    with torch.set_grad_enabled(gradients), kept_chance(seed):
        # A network may change what it gets in place, which no leaf allows.
        outputs = [leaf for leaf in leaves(net(*(each.clone() for each in starts))) if isinstance(leaf, Tensor)]
        if gradients and (of := [each for each in outputs if each.requires_grad]):
            generator = torch.Generator().manual_seed(1)
            torch.autograd.backward(of, [torch.randn(each.shape, generator=generator).to(each) for each in of])
    named = {f"input {number}": each for number, each in enumerate(starts)}
    named |= dict(net.named_parameters(remove_duplicate=False))
    grads = {name: each.grad for name, each in named.items() if each.requires_grad} if gradients else {}
    return [each.detach() for each in outputs], grads


def _difference(wanted: _Pass, found: _Pass) -> tuple[str, float]:
    """What of a pass is not that of another, and by which share of its spread; empty for nothing."""
    (outputs, gradients), (others, other_gradients) = wanted, found
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


def _drawn(net: nn.Module) -> nn.Module:
    """A copy with weights that all have values, and not all the same."""
    made: dict[int, Tensor] = {}
    for _, weight in tensors_of(net):
        if weight.is_meta:
            value, is_weight = torch.zeros(weight.shape, dtype=weight.dtype), isinstance(weight, nn.Parameter)
            if weight.is_floating_point():
                bound = max(1, weight.numel() // max(1, len(weight))) ** -0.5 if weight.ndim else 1.0
                value.uniform_(-bound, bound) if is_weight else value.uniform_(0.5, 1.5)
            made[id(weight)] = nn.Parameter(value, weight.requires_grad) if is_weight else value
    copied = twin(net, made)
    with torch.no_grad():
        for _, weight in tensors_of(copied):
            if weight.is_floating_point() and weight.numel() > 1 and bool((weight == weight.flatten()[0]).all()):
                weight += torch.rand(weight.shape, dtype=weight.dtype, device=weight.device) / 2
    return copied


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
