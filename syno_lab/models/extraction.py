"""Find the convolutions of a network and replace them by other modules: the short way.

:mod:`.layers` sees every layer with what speaks against replacing it, and :mod:`.slot` takes operators out again.
Shapes: N images, C_in and C_out channels, H rows, W columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from torch import Tensor, nn

from syno_lab.copies import copied
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.models.layers import survey
from syno_lab.models.selection import Selection
from syno_lab.models.sites import Site
from syno_lab.models.slot import swap, with_slots

__all__ = ["Site", "WithBias", "find_convolutions", "replace_modules", "with_placeholders"]


class WithBias(nn.Module):
    """A module with images [N, C, H, W] as its output, and a bias [C] added to it."""

    def __init__(self, module: nn.Module, bias: Tensor) -> None:
        super().__init__()
        self.module = module
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """Apply the module, then add the bias."""
        return self.module(x) + self.bias[:, None, None]


def find_convolutions(
    net: nn.Module,
    input_shape: tuple[int, int, int],
    *,
    kernel_size: tuple[int, int] | None = (3, 3),
    stride: tuple[int, int] | None = (1, 1),
    groups: int | None = 1,
    predicate: Callable[[str, nn.Conv2d], bool] | None = None,
) -> list[Site]:
    """Return the convolutions of ``net`` that an operator of the same shapes can replace, in the order of their calls.

    They are seen in one forward pass over a zero image [C, H, W] of ``input_shape`` in evaluation mode; the network is
    as before afterwards. ``kernel_size``, ``stride`` and ``groups`` select (None: any), and so does ``predicate`` on
    name and module. Left out are dilated convolutions, those whose output is not ⌈H/stride⌉ x ⌈W/stride⌉, those used on
    images of several sizes, which one operator could not follow, and those that share their weights with other layers.
    Raises SpecError where the network refuses the shape.
    """
    selection = Selection(
        kernel_size=kernel_size,
        stride=stride,
        groups=groups,
        pointwise=kernel_size is None,
        predicate=cast("Callable[[str, nn.Module], bool] | None", predicate),
    )
    seen = survey(net, input_shape)
    return [site for site in seen.sites if selection.reason_against(site, seen.modules[site.name]) is None]


def replace_modules(net: nn.Module, modules: Mapping[str, nn.Module], *, in_place: bool = False) -> nn.Module:
    """Return ``net`` with the named modules in the place of its own, in a copy unless ``in_place``.

    A module that stands in several places is replaced in all of them. Where a convolution with a bias is replaced, its
    bias stays and is added to the new module's output. The new modules themselves go in, not copies. Raises SpecError
    for a name that the network has not, or one inside another; nothing is changed then.
    """
    known = dict(net.named_modules(remove_duplicate=False))
    unknown = [name for name in modules if name not in known]
    if unknown:
        raise SpecError(
            f"expected names of modules of this {type(net).__name__}, found {', '.join(map(repr, unknown))}"
        )
    for outer in modules:
        for inner in modules:
            if inner != outer and (not outer or inner.startswith(outer + ".")):
                raise SpecError(f"expected separate modules to replace, found {quoted(inner)} inside {quoted(outer)}")
    result = net if in_place else copied(net, "replace them in place (in_place=True)")
    targets = {result.get_submodule(name): module for name, module in modules.items()}
    return swap(
        result,
        {
            old: WithBias(new, old.bias) if isinstance(old, nn.Conv2d) and old.bias is not None else new
            for old, new in targets.items()
        },
    )


def with_placeholders(net: nn.Module, sites: Iterable[Site]) -> nn.Module:
    """Return a copy of ``net`` with an empty :class:`.slot.Slot` at each site; mappings name C_in, C_out, H and W."""
    return with_slots(net, sites)
