"""Export a network to a program in which each Syno operator is one call that names its pGraph; this needs no TVM.

The program holds everything that another process needs to generate code for the operators: the text of their files,
their bindings and weights. :mod:`syno_lab.codegen.tvm_network` reads the program. Importing this module imports torch.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from syno_lab.codegen.torch_module import to_torch
from syno_lab.copies import copied
from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding

#: The name of an operator's call in the graph of an exported program.
OPERATOR_CALL = "operator.default"

#: The largest relative difference between a module and its pGraph, in float64.
_TOLERANCE = 1e-8


@cache
def register() -> Any:
    """Define the torch operation ``syno_lab::operator``; it is only exported, so its shape is defined but no kernel."""
    torch.library.define(
        "syno_lab::operator",
        "(Tensor x, Tensor[] weights, str operator, str binding, int[] shape, float scale) -> Tensor",
    )

    @torch.library.register_fake("syno_lab::operator")
    def shape_of(
        x: Tensor, weights: list[Tensor], operator: str, binding: str, shape: list[int], scale: float
    ) -> Tensor:
        return x.new_empty(shape)

    return torch.ops.syno_lab.operator


class _Call(nn.Module):
    """A module that replaces one Syno module during the network's export."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.operator: Operator = module.operator
        self.binding: Binding = module.binding
        self.weights = nn.ParameterList(module.parameters())
        shapes = [tuple(weight.shape) for weight in self.weights]
        wanted = list(self.operator.weight_sizes(self.binding))
        if shapes != wanted:
            raise SynoError(f"expected an operator's module with weights {wanted}, found {shapes}")
        self.scale = _scale(module)
        self.call = register()

    def forward(self, x: Tensor) -> Tensor:
        """Call ``syno_lab::operator`` once."""
        bound = _bind_fixed(self.operator, self.binding, tuple(x.shape))
        text, numbers = self.operator.to_json(), json.dumps(bound, sort_keys=True)
        return self.call(x, list(self.weights), text, numbers, list(self.operator.output_sizes(bound)), self.scale)


def syno_modules(net: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the modules of ``net`` that were made from operators, each once, by dotted name."""
    return [(name, part) for name, part in net.named_modules() if isinstance(getattr(part, "operator", None), Operator)]


def quiet_copy(net: nn.Module) -> nn.Module:
    """Return a copy of a network in evaluation mode; the copy shares the operators, which are immutable values."""
    return copied(net, kept={id(part.operator): part.operator for _, part in syno_modules(net)}).eval()


def export_network(
    net: nn.Module, example_shape: Sequence[int], dtype: torch.dtype | None = None
) -> torch.export.ExportedProgram:
    """Export ``net`` in evaluation mode as a program for inputs of exactly ``example_shape``, the batch included.

    ``dtype`` is the dtype of the input (``torch.int64`` for tokens); None means the dtype of the weights.

    Every module that was made from a pGraph (by ``operator.to_torch``, in a placeholder or not) becomes one call of
    ``syno_lab::operator``. All other modules become torch's own operations. ``net`` is not changed. Weights keep their
    dtype. Raises SpecError when the network does not take inputs of that shape. Raises SynoError when a module's
    weights or results do not agree with its operator.
    """
    twin = quiet_copy(net)
    calls: dict[nn.Module, _Call] = {}
    for parent in list(twin.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and isinstance(getattr(child, "operator", None), Operator):
                setattr(parent, name, calls.setdefault(child, _Call(child)))
    if isinstance(getattr(twin, "operator", None), Operator):
        twin = _Call(twin)
    weight = next((p for p in twin.parameters() if p.is_floating_point()), torch.empty(0))
    example = torch.zeros(tuple(example_shape), dtype=dtype or weight.dtype, device="cpu")
    try:
        return torch.export.export(twin.cpu(), (example,))
    except SynoError:
        raise
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise SpecError(
            f"expected a network that torch can export for an input of shape {list(example_shape)}, found: {reason}"
        ) from None


def _bind_fixed(operator: Operator, binding: Binding, shape: tuple[int, ...]) -> dict[str, int]:
    """Return ``binding`` with the sizes of the fixed axes (the batch) from the input's ``shape``.

    Raises SpecError when another axis differs from ``binding``.
    """
    bound = dict(binding)
    if len(shape) == len(operator.inputs):
        for axis, c in zip(shape, operator.inputs, strict=True):
            named = [name for name, power in zip(c.size.symbols.names, c.size.exponents, strict=True) if power]
            if c in operator.state.fixed and len(named) == 1 and sum(c.size.exponents) == 1:  # a single variable
                bound[named[0]] = int(axis)
    if operator.input_sizes(bound) != shape:
        raise SpecError(f"expected an input of shape {list(operator.input_sizes(bound))}, found {list(shape)}")
    return bound


def _scale(module: Any) -> float:
    """Compute the constant factor between a module and its pGraph (``to_torch(scale=…)``): run both and compare.

    Raises SynoError when the module is not its pGraph times a constant.
    """
    operator, binding = module.operator, module.binding
    ours = copy.deepcopy(module, {id(operator): operator}).double()
    plain = to_torch(operator, binding).double()
    with torch.no_grad():
        for parameter, weight in zip(plain.parameters(), ours.parameters(), strict=True):
            parameter.copy_(weight)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(operator.input_sizes(binding), generator=generator, dtype=torch.float64)
        found, expected = ours(x).flatten(), plain(x).flatten()
        square = float(expected @ expected)
        scale = float(found @ expected) / square if square else 1.0
        off = float((found - scale * expected).abs().max()) if found.numel() else 0.0
        if off > _TOLERANCE * max(1.0, float(found.abs().max())):
            raise SynoError(
                f"expected a module that computes its operator {operator} times a constant, found an error of {off:.3g}"
            )
    return 1.0 if abs(scale - 1.0) < _TOLERANCE else scale
