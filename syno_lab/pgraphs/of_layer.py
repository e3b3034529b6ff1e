"""The layers of a network as pGraphs, with which operators that replace them are compared."""

from __future__ import annotations

from syno_lab.errors import SpecError
from syno_lab.ir.operator import Operator
from syno_lab.models.sites import Site
from syno_lab.operators import conv2d, grouped, matmul, strided
from syno_lab.operators.convolution import grouped_strided


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
