"""Comparison of an exported file with the operator's reference, or with the torch module if the reference is slow."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from syno_lab.codegen.torch_module import to_torch
from syno_lab.errors import ExportError
from syno_lab.inputs import quoted
from syno_lab.ir.operator import Operator as PGraph
from syno_lab.protocol import Binding, Operator

if TYPE_CHECKING:
    import torch
    from torch import nn

Array = np.ndarray[Any, Any]

TORCH_MODULE = "torch module"
# The reductions of a loop nest run in Python. Within these bounds a check takes seconds at most.
_MOST_TERMS = 1 << 24
_MOST_POINTS = 10_000
_CHECKED_BATCH = 2


def batch_axes(operator: Operator) -> tuple[int, ...]:
    """Return the input axes that take any size: the fixed axes of a pGraph's spec; for other operators none."""
    if not isinstance(operator, PGraph):
        return ()
    return tuple(axis for axis, c in enumerate(operator.inputs) if c in operator.state.fixed)


def batch_variables(operator: Operator) -> frozenset[str]:
    """Return the variables of fixed axes alone, such as ``N``, on which neither weights nor code depend."""
    if not isinstance(operator, PGraph):
        return frozenset()
    sizes = [c.size for step in operator.steps for c in operator.state.results(step)]
    sizes += [c.size for c in operator.output if c not in operator.state.fixed]
    sizes += [step.parameter for step in operator.steps if step.parameter is not None]
    symbols = operator.spec.symbols
    used = {name for size in sizes for name, power in zip(symbols.names, size.exponents, strict=True) if power}
    fixed = {
        name for c in operator.state.fixed for name, power in zip(symbols.names, c.size.exponents, strict=True) if power
    }
    return frozenset(fixed - used)


def checked_binding(operator: Operator, binding: Binding) -> dict[str, int]:
    """Return ``binding`` with a small batch size, for a check."""
    bound = operator.complete_binding(binding)
    return bound | dict.fromkeys(batch_variables(operator), _CHECKED_BATCH)


def filled(shape: tuple[int, ...], number: int) -> Array:
    """Return integers from -5 to 5 without a simple pattern, so that sums of their products are exact in float64.

    Each tensor of a check gets a different ``number``. Exported Python files hold the same formula.
    """
    i = np.arange(prod(shape), dtype=np.int64) % 9973
    return np.asarray(((31 * i * i + 17 * i + 5 * number) % 11 - 5).astype(np.float64).reshape(shape))


def runs_reference(operator: Operator, binding: Binding) -> bool:
    """Check whether the reference is fast enough to be run for a comparison."""
    if not isinstance(operator, PGraph):
        return operator.flops(binding) <= 2 * _MOST_TERMS
    points = prod(c.size.at(binding) for c in operator.reductions)
    return points <= _MOST_POINTS and points * prod(operator.output_sizes(binding)) <= _MOST_TERMS


def meaning_of(operator: Operator) -> str:
    """Return the display name of an operator's ``reference``."""
    return "loop nest" if isinstance(operator, PGraph) else "NumPy reference"


def expected(
    operator: Operator, binding: Binding, module: nn.Module, x: Array, weights: list[Array], scale: float
) -> tuple[Array, str]:
    """Return the expected output for ``x`` in float64, and its source: :func:`meaning_of` or :data:`TORCH_MODULE`."""
    if runs_reference(operator, binding):
        return scale * operator.reference(x, *weights, binding=binding), meaning_of(operator)
    import torch

    from syno_lab.copies import modes_kept

    with modes_kept(module), torch.no_grad():
        return module.eval()(example_like(module, x)).double().cpu().numpy(), TORCH_MODULE


def torch_module(operator: Operator, binding: Binding, scale: float) -> nn.Module:
    """Return ``operator.to_torch``'s module, with its output times ``scale``.

    Raises ExportError if ``scale`` is not 1 and the operator is no pGraph.
    """
    if isinstance(operator, PGraph):
        return to_torch(operator, binding, scale=scale)
    if scale != 1.0:
        raise ExportError(f"scale: expected 1 for {operator}, which is no pGraph, found {quoted(scale)}")
    return operator.to_torch(binding)


def weights_of(operator: Operator, binding: Binding, module: nn.Module) -> list[Array]:
    """Return the weights of ``to_torch``'s module in float64, in the order of the reference's arguments."""
    numbers = range(1, len(operator.weight_sizes(binding)) + 1)
    return [getattr(module, f"weight_{number}").detach().double().cpu().numpy() for number in numbers]


def example_like(module: nn.Module, x: Array) -> torch.Tensor:
    """Return ``x`` as a tensor with the dtype and device of the module's floating-point parameters, else float32."""
    import torch

    like = next((p for p in module.parameters() if p.is_floating_point()), None)
    tensor = torch.from_numpy(np.array(x))  # NumPy copies the array, which may be a view
    return tensor.float() if like is None else tensor.to(like.device, like.dtype)


def compare(found: Array, wanted: Array, eps: float, what: str, against: str) -> float:
    """Return the largest absolute difference between ``found`` (of the file ``what``) and ``wanted`` (of ``against``).

    ``eps`` is the machine epsilon of the file's dtype. The square root of ``eps``, times the largest expected element,
    is allowed. Raises ExportError when the shapes or the numbers differ.
    """
    if found.shape != wanted.shape:
        raise ExportError(f"{what}: read back, expected an output of shape {wanted.shape}, found {found.shape}")
    if not found.size:
        return 0.0
    difference = float(np.abs(found.astype(np.float64) - wanted).max())
    allowed = sqrt(eps) * float(np.abs(wanted).max()) + eps
    if not difference <= allowed:  # a NaN raises the error too
        raise ExportError(
            f"{what}: read back, expected the numbers of the {against} within {allowed:.3g}, "
            f"found a difference of {difference:.3g}"
        )
    return difference


Runner = Callable[["torch.Tensor"], "torch.Tensor"]
"""A file that was read back, as a function from an input to the output."""
