"""Which of a network's layers are replaced: by kind, by patterns of names, by shape, or by a predicate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn

from syno_lab.errors import SpecError
from syno_lab.models.sites import Kind, Site, Strides, check_strides

Predicate = Callable[[str, nn.Module], bool]
KINDS: tuple[Kind, ...] = ("conv2d", "linear")


@dataclass(frozen=True)
class Selection:
    """Which layers to replace.

    Attributes:
        kinds: among ``conv2d`` and ``linear``.
        names: patterns as on a shell's command line (``*.qkv``); a layer must match one.
        leave: patterns of layers that stay whatever else is said.
        kernel_size, stride: rows and columns of a convolution; None is any, as below.
        groups: of a convolution.
        pointwise: whether 1x1 convolutions are replaced too, where ``kernel_size`` does not ask for them.
        predicate: asked with name and module.
        strides: what becomes of a stride; see :meth:`.sites.Site.form`.

    Raises:
        SpecError: for a kind or a treatment of strides that is unknown.
    """

    kinds: tuple[Kind, ...] = ("conv2d",)
    names: tuple[str, ...] = ("*",)
    leave: tuple[str, ...] = ()
    kernel_size: tuple[int, int] | None = None
    stride: tuple[int, int] | None = None
    groups: int | None = 1
    pointwise: bool = False
    predicate: Predicate | None = None
    strides: Strides = "pool"

    def __post_init__(self) -> None:
        check_strides(self.strides)
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise SpecError(f"kinds of layers: expected some of {', '.join(KINDS)}, found {list(self.kinds)}")

    def reason_against(self, site: Site, module: nn.Module) -> str | None:
        """Why ``site`` stays, or None where it is replaced."""
        if site.kind not in self.kinds:
            return f"it is a layer of kind {site.kind}"
        if not any(fnmatchcase(site.name, pattern) for pattern in self.names):
            return f"no pattern of {', '.join(self.names)} has its name"
        if any(fnmatchcase(site.name, pattern) for pattern in self.leave):
            return "it is to be left by its name"
        obstacle = site.obstacle_to(self.strides)
        if obstacle is not None:
            return obstacle
        if site.kind == "conv2d":
            if self.kernel_size is None and site.kernel_size == (1, 1) and not self.pointwise:
                return "1x1 convolutions stay unless asked for"
            for what, wanted, found in (
                ("kernel", self.kernel_size, site.kernel_size),
                ("stride", self.stride, site.stride),
            ):
                if wanted is not None and tuple(wanted) != found:
                    return f"its {what} is {found[0]}x{found[1]}"
            if self.groups is not None and site.groups != self.groups:
                return f"it has {site.groups} groups"
        if self.predicate is not None and not self.predicate(site.name, module):
            return "the predicate says no"
        return None
