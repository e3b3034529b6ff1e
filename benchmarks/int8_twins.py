"""INT8 by torch's post-training quantisation: conv2d and Operator 1, alone and in a network (as Syno's Figure 8).

torch quantises convolutions that are modules, not the matrix products and moved views of a generated module, so an
operator must first be written as a chain of convolutions, its *twin*; there is one for conv2d's pGraph and one for
Operator 1's. ``torch.ao.quantization`` (eager mode, static, per-channel weights) is deprecated and still what torch
itself has for processors: its successor is a package of its own. TVM has no part in it: pGraphs are lowered for
floating point alone.
"""

from __future__ import annotations

import copy
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.nn.quantized import FloatFunctional
from torch.ao.quantization import DeQuantStub, QuantStub

from syno_lab.errors import SynoError
from syno_lab.inputs import quoted
from syno_lab.ir.operator import Operator
from syno_lab.operators import conv2d, operator_1

#: The largest difference between a module and its twin, relative to the largest output.
_TOLERANCE = 1e-4
_ENGINE = "x86"


class ConvTwin(nn.Module):
    """conv2d's pGraph, weight [C_in, k, k, C_out], as one convolution."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        (weight,) = (one.detach() for one in module.parameters())
        channels, height, width, outputs = weight.shape
        self.quant, self.dequant = _stubs()
        self.last = nn.Conv2d(channels, outputs, (height, width), padding=(height // 2, width // 2), bias=False)
        self.last.weight.data.copy_(weight.permute(3, 0, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        """[N, C_in, H, W] to [N, C_out, H, W]."""
        return self.dequant(self.last(self.quant(x)))


class OperatorOneTwin(nn.Module):
    """Operator 1, weights [g, K, K, m, C_out] and [C_in, K, m]: a pointwise convolution in groups for each q, then one.

    The q-th of the first ones reads the image q - K/2 columns further right, so that the second has a window of rows
    alone; see :func:`syno_lab.operators.operator_1`.
    """

    def __init__(self, module: Any) -> None:
        super().__init__()
        second, first = (one.detach() for one in module.parameters())
        groups, window, _, inner, outputs = second.shape
        channels = first.shape[0]
        self.window = window
        self.quant, self.dequant = _stubs()
        firsts = [nn.Conv2d(channels, groups * inner, 1, groups=groups, bias=False) for _ in range(window)]
        for q, one in enumerate(firsts):
            taps = first[:, q].reshape(groups, channels // groups, inner).permute(0, 2, 1)  # [g, m, C_in/g]
            one.weight.data.copy_(taps.reshape(groups * inner, channels // groups, 1, 1))
        self.firsts = nn.ModuleList(firsts)
        self.joined = FloatFunctional()
        self.last = nn.Conv2d(window * groups * inner, outputs, (window, 1), padding=(window // 2, 0), bias=False)
        taps = second.permute(4, 2, 0, 3, 1)  # [C_out, q, g, m, p]
        self.last.weight.data.copy_(taps.reshape(outputs, window * groups * inner, window, 1))

    def forward(self, x: Tensor) -> Tensor:
        """[N, C_in, H, W] to [N, C_out, H, W]."""
        width, before = x.shape[-1], self.window // 2
        padded = self.quant(nn.functional.pad(x, (before, self.window - 1 - before)))
        parts = [one(padded[..., q : q + width]) for q, one in enumerate(self.firsts)]
        return self.dequant(self.last(self.joined.cat(parts, 1)))


_TWINS: tuple[tuple[Callable[[], Operator], type[nn.Module]], ...] = (
    (conv2d, ConvTwin),
    (operator_1, OperatorOneTwin),
)


def _stubs() -> tuple[nn.Module, nn.Module]:
    return QuantStub(), DeQuantStub()


def twin(module: nn.Module, example: Tensor) -> nn.Module:
    """The chain of convolutions that computes what a module of conv2d or Operator 1 computes, in float32.

    ``example`` is an input, on which both are compared. A constant factor of the module goes into the last weight.
    Raises SynoError for other operators.
    """
    operator = getattr(module, "operator", None)
    made = next((kind for known, kind in _TWINS if operator == known()), None)
    if made is None:
        raise SynoError(
            "INT8: expected a module of conv2d or operator_1, which can be written as convolutions, "
            f"found {quoted(operator)}"
        )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found: Any = made(module).eval()
        expected, plain = module(example), found(example)
        scale = float((expected * plain).sum() / (plain * plain).sum())
        found.last.weight.mul_(scale)
        off = float((expected - scale * plain).abs().max() / expected.abs().max())
    if not off <= _TOLERANCE:
        raise SynoError(
            f"INT8: expected a module that computes its operator, found it {off:.2g} of the largest output away"
        )
    return found


def int8(module: nn.Module, examples: Sequence[Tensor]) -> nn.Module:
    """A module of conv2d or Operator 1 in INT8: per-channel weights, the rest by the ranges seen on ``examples``.

    Inputs and outputs stay float32. Raises SynoError where this torch has no INT8 for processors, as :func:`twin` does,
    and without examples.
    """
    from torch.ao import quantization

    if not examples:
        raise SynoError("INT8: expected at least one input to calibrate on, found none")
    if _ENGINE not in torch.backends.quantized.supported_engines:
        raise SynoError(f"INT8: expected a torch with the engine {_ENGINE!r}, found none for this processor")
    prepared = twin(module, examples[0])
    with torch.no_grad(), warnings.catch_warnings(), _engine():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)  # of ranges that only grow, and of storage classes
        prepared.qconfig = quantization.get_default_qconfig(_ENGINE)
        quantization.prepare(prepared, inplace=True)
        for one in examples:
            prepared(one)
        quantization.convert(prepared, inplace=True)
    return prepared


@contextmanager
def _engine() -> Iterator[None]:
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = _ENGINE
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


def with_int8(net: nn.Module, images: Tensor) -> nn.Module:
    """A copy of ``net`` whose modules of conv2d and Operator 1 run in INT8, calibrated on ``images`` [N, C, H, W].

    Everything else stays float32. Raises SynoError where there is no such module, and for other operators.
    """
    from syno_lab.codegen.tvm_export import syno_modules

    found = syno_modules(net)
    if not found:
        raise SynoError(f"INT8: expected a network with operators in it, found none in this {type(net).__name__}")
    kept = {id(one.operator): one.operator for _, one in found}
    result = copy.deepcopy(net, kept).eval()
    seen: dict[str, Tensor] = {}
    modules = dict(syno_modules(result))

    def watch(name: str) -> Callable[..., None]:
        def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen[name] = inputs[0].detach()

        return note

    hooks = [module.register_forward_pre_hook(watch(name)) for name, module in modules.items()]
    with torch.no_grad():
        result(images)
    for hook in hooks:
        hook.remove()
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        setattr(result.get_submodule(parent), last, int8(module, [seen[name]]))
    return result


@dataclass(frozen=True)
class Int8Comparison:
    """Milliseconds of one call, medians, in float32 and in INT8, and the error of the output.

    ``error`` is the root of the mean square difference over that of the output in float32.
    """

    float_ms: float
    int8_ms: float
    error: float
    rounds: int

    @property
    def speedup(self) -> float:
        """How many times faster INT8 is."""
        return self.float_ms / self.int8_ms


def compare_int8(
    module: nn.Module, examples: Sequence[Tensor], *, threads: int = 1, rounds: int = 20, calls: int = 10
) -> Int8Comparison:
    """Time a module of conv2d or Operator 1 in float32 and in INT8 in turn, on the last of ``examples``.

    The others calibrate, or it does where it is alone. Raises SynoError as :func:`int8` does.
    """
    if min(threads, rounds, calls) < 1:
        raise SynoError("INT8: expected at least one thread, round and call")
    quantised = int8(module, examples[:-1] or examples)
    plain, x = module, examples[-1]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    times: dict[str, list[float]] = {"float": [], "int8": []}
    try:
        with torch.inference_mode():
            expected, found = plain(x), quantised(x)
            for _ in range(rounds):
                for name, one in (("float", plain), ("int8", quantised)):
                    started = time.perf_counter()
                    for _ in range(calls):
                        one(x)
                    times[name].append(1e3 * (time.perf_counter() - started) / calls)
    finally:
        torch.set_num_threads(before)
    error = float(((found - expected) ** 2).mean().sqrt() / (expected**2).mean().sqrt())
    return Int8Comparison(statistics.median(times["float"]), statistics.median(times["int8"]), error, rounds)
