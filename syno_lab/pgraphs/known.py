"""The known operators, with which discoveries are compared: those that a space has, and the one that is a layer.

A search may begin with those of its space.
"""

from __future__ import annotations

from typing import cast

from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.models.sites import Site
from syno_lab.operators import KNOWN, conv2d, grouped, matmul, strided
from syno_lab.operators.known import grouped_strided
from syno_lab.search.asking import find
from syno_lab.search.protocol import State
from syno_lab.synthesis.rebuilding import arrangements


def known_operators(root: State, spec: Spec) -> dict[str, Operator]:
    """The operators of :data:`syno_lab.operators.KNOWN` that the space of ``root`` has, as it has them, by their names.

    Their variables are the variables of ``spec`` with the same names. The order of its steps, and the coordinate with
    which a weight is shared, may be others in the space; an operator that the space has only in another form is not
    found, nor an operator that a rule, a budget or a hard limit refuses.
    """
    found: dict[str, Operator] = {}
    for name, make in KNOWN.items():
        operator = placed(root, make(), spec)
        if operator is not None and operator not in found.values():
            found[name] = operator
    return found


def placed(root: State, operator: Operator, spec: Spec) -> Operator | None:
    """The operator in the form that the space of ``root`` has; None if it is not found there."""
    if len(operator.output) != len(spec.output_shape) or len(operator.inputs) != len(spec.input_shape):
        return None
    if len(operator.steps) > spec.limits.max_primitives:
        return None
    try:
        for one in arrangements(operator, spec):
            if one.state.is_match(one.inputs) and (trail := find(root, one)) is not None:
                return cast("Operator", trail.end.operator())
    except (KeyError, SynoError):  # a variable that the spec does not have, or a step that is not legal over it
        return None
    return None


def for_layer(site: Site) -> tuple[Operator, dict[str, int]]:
    """An operator that computes a layer's function for one example, and the sizes of its variables.

    Raises:
        SpecError: for a convolution with dilation, an oblong window, or a stride that does not divide its input.
    """
    if site.kind == "linear":
        return matmul(), {"M": site.positions, "K": site.in_channels, "N": site.out_channels}
    rows, columns = site.stride
    kernel = site.kernel_size[0]
    is_square = site.kernel_size == (kernel, kernel) and rows == columns
    if not is_square or site.dilation != (1, 1) or site.height % rows or site.width % rows:
        raise SpecError(
            f"{site.name}: expected a square convolution without dilation whose stride divides its input, found "
            f"window {kernel}x{site.kernel_size[1]}, stride {rows}x{columns}, dilation "
            f"{site.dilation[0]}x{site.dilation[1]} on {site.height}x{site.width}"
        )
    sizes = {"N": 1, "C_in": site.in_channels, "C_out": site.out_channels, "k_1": kernel}
    sizes |= {"H": site.height // rows, "W": site.width // rows}
    if rows > 1:
        sizes["s"] = rows
    if site.groups == 1:
        return (conv2d() if rows == 1 else strided()), sizes
    return (grouped() if rows == 1 else grouped_strided()), sizes | {"g": site.groups}
