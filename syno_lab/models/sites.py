"""Convolutions and linear layers of a network, the shapes of operators that replace them, and their selection.

Shapes: N images or positions, C_in and C_out channels, H rows, W columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from syno_lab.common.wants import RANK, Letter, Wish
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted

if TYPE_CHECKING:
    from torch import nn

Kind = Literal["conv2d", "linear"]
KINDS: tuple[Kind, ...] = ("conv2d", "linear")
Predicate = Callable[[str, "nn.Module"], bool]
Strides = Literal["pool", "shape"]
STRIDES: tuple[Strides, ...] = ("pool", "shape")


@dataclass(frozen=True)
class Form:
    """The shapes of an operator in symbols; ``stride`` is the value of s."""

    input_shape: str
    output_shape: str
    primary: tuple[str, ...]
    stride: int = 1


_IMAGE = Form("[N, C_in, H, W]", "[N, C_out, H, W]", ("N", "C_in", "C_out", "H", "W"))
_POSITIONS = Form("[N, C_in]", "[N, C_out]", ("N", "C_in", "C_out"))


@dataclass(frozen=True)
class Site:
    """A convolution or linear layer of a network on one example.

    ``name``: the dotted name, as in ``named_modules``. ``kind``: ``conv2d`` or ``linear``. ``height``, ``width``: the
    size of the layer's input (1 for a linear layer). ``positions``: the number of vectors that a linear layer is
    applied to (tokens; 1 for a convolution). ``kernel_size``, ``stride``, ``dilation``: rows and columns. ``flops``: 2
    for each multiply-add of one example without the bias, summed over ``calls``, the number of calls by the network.
    ``params``: the parameters with the bias. ``obstacle``: the reason why no operator can replace the layer, or None.
    """

    name: str
    in_channels: int
    out_channels: int
    height: int
    width: int
    kernel_size: tuple[int, int]
    flops: int
    params: int
    calls: int = 1
    kind: Kind = "conv2d"
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    bias: bool = False
    positions: int = 1
    obstacle: str | None = None

    @property
    def mapping(self) -> dict[str, int]:
        """The values of the layer's variables, for a Placeholder: C_in, C_out, H and W, or N, C_in and C_out.

        H and W are the size of the input, because an operator at the input's resolution does not depend on the stride.
        """
        if self.kind == "linear":
            return {"N": self.positions, "C_in": self.in_channels, "C_out": self.out_channels}
        return {"C_in": self.in_channels, "C_out": self.out_channels, "H": self.height, "W": self.width}

    @property
    def output_elements(self) -> int:
        """The number of output elements for one example over all calls, which a library's convolution stores."""
        if self.kind == "linear":
            return self.calls * self.positions * self.out_channels
        rows, columns = (-(-size // step) for size, step in zip((self.height, self.width), self.stride, strict=True))
        return self.calls * self.out_channels * rows * columns

    def form(self, strides: Strides = "pool") -> Form:
        """Return the shapes in symbols of an operator that replaces the layer.

        ``strides="pool"``: the operator keeps the size of images, and a stride becomes an average pooling after it.
        ``strides="shape"``: the operator goes from ``[N, C_in, s*H, s*W]`` to ``[N, C_out, H, W]``. A linear layer's
        positions are the fixed axis N, because an operator that mixes positions would read later tokens.
        """
        if self.kind == "linear":
            return _POSITIONS
        if strides == "pool" or self.stride == (1, 1):
            return _IMAGE
        return replace(_IMAGE, input_shape="[N, C_in, s*H, s*W]", stride=self.stride[0])

    def pool(self, strides: Strides = "pool") -> tuple[int, int] | None:
        """Return the rows and columns of the average pooling behind an operator of :meth:`form`; None: no pooling."""
        is_pooled = self.kind == "conv2d" and strides == "pool" and self.stride != (1, 1)
        return self.stride if is_pooled else None

    def binding(self, strides: Strides = "pool") -> dict[str, int]:
        """Return the values of all variables of :meth:`form`, N included (1 for images)."""
        bound = {"N": 1, **self.mapping}
        stride = self.form(strides).stride
        if stride > 1:
            bound |= {"H": self.height // stride, "W": self.width // stride, "s": stride}
        return bound

    def obstacle_to(self, strides: Strides = "pool") -> str | None:
        """Return why no operator of :meth:`form` can replace the layer, or None."""
        if self.obstacle is not None or strides == "pool" or self.stride == (1, 1):
            return self.obstacle
        rows, columns = self.stride
        if rows != columns:
            return f"its strides {rows} and {columns} differ"
        if self.height % rows or self.width % columns:
            return f"its stride {rows} does not divide {self.height}x{self.width}"
        return None


def check_strides(strides: str) -> None:
    """Raise SpecError if ``strides`` is not in :data:`STRIDES`."""
    if strides not in STRIDES:
        raise SpecError(f"strides: expected {' or '.join(map(repr, STRIDES))}, found {quoted(strides)}")


@dataclass(frozen=True)
class Selection:
    """A rule for which layers to replace.

    Attributes:
        kinds: the replaced kinds of layers: ``conv2d``, ``linear``, or both.
        names: shell patterns (``*.qkv``); the name of a layer must match one of them.
        leave: shell patterns of the names of layers that are never replaced.
        kernel_size, stride: the rows and columns of a convolution; None accepts any.
        groups: the number of groups of a convolution; None accepts any.
        pointwise: whether 1x1 convolutions are replaced when ``kernel_size`` is None.
        predicate: a function of name and module that accepts a layer.
        strides: the treatment of strides; see :meth:`Site.form`.

    Raises SpecError for an unknown kind or an unknown treatment of strides.
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
        """Return why ``site`` is not replaced; None if it is replaced."""
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
            for part, needed, size in (
                ("kernel", self.kernel_size, site.kernel_size),
                ("stride", self.stride, site.stride),
            ):
                if needed is not None and tuple(needed) != size:
                    return f"its {part} is {size[0]}x{size[1]}"
            if self.groups is not None and site.groups != self.groups:
                return f"it has {site.groups} groups"
        if self.predicate is not None and not self.predicate(site.name, module):
            return "the predicate says no"
        return None


def derived_wants(sites: Iterable[Site], strides: Strides = "pool") -> tuple[Wish, ...]:
    """Return the wish (:mod:`syno_lab.common.wants`) by which operators read and mix as much as these layers.

    Each input axis that is not fixed gets the mark of the layer's mixing property (αNAS, section 3.1). The mark
    ``a`` becomes ``m``, so that grouped operators, which read some of the channels, meet the wish too. The wish is
    ``C_in>=m, H>=m, W>=m`` for a 3x3 convolution, ``C_in>=m, H>=o, W>=o`` for a 1x1, ``C_in>=m`` for a linear layer.

    One operator replaces all layers, so the operator should read as much as each layer. For several layers, each axis
    gets the highest of the layers' marks. With the lowest mark, one 1x1 convolution among 3x3 convolutions would allow
    operators that read no neighbours.
    """
    columns = zip(*(_marks(site, strides) for site in sites), strict=True)
    most = [max(marks, key=RANK.__getitem__) for marks in columns]
    return tuple(Wish(axis, mark) for axis, mark in enumerate(most, start=1) if mark != "x")


def _marks(site: Site, strides: Strides) -> list[Letter]:
    """Return the marks of a layer's input axes after the fixed first axis, with ``m`` in place of ``a``."""
    channels: Letter = "m" if site.in_channels > site.groups else "o"
    if site.kind == "linear":
        return [channels]
    steps = (1, 1) if strides == "pool" else site.stride  # with "pool" an average pooling replaces the stride
    marks: list[Letter] = [channels]
    for window, step in zip(site.kernel_size, steps, strict=True):
        # A stride longer than the window skips some positions.
        marks.append("x" if step > window else "m" if window > 1 else "o")
    return marks
