"""The wish of the layers that a search replaces: what their own kernels read and mix (:mod:`syno_lab.common.wants`).

For each axis of the input that takes part in anything: the mark of the layer's own mixing property (αNAS, section 3.1),
and m where that is a, so that grouped operators, which read some of the channels, meet the wish too. A 3x3 convolution
wishes ``C_in>=m, H>=m, W>=m``; a 1x1 convolution ``C_in>=m, H>=o, W>=o``; a linear layer ``C_in>=m``.

One operator replaces all layers, so it should do what each of them does: the wish of several layers is, for each axis,
the most that one of them has. By the least, an operator without neighbours could take the place of 3x3 convolutions
because a 1x1 convolution is among them.
"""

from __future__ import annotations

from collections.abc import Iterable

from syno_lab.common.wants import RANK, Letter, Wish
from syno_lab.models.sites import Site, Strides


def derived_wants(sites: Iterable[Site], strides: Strides = "pool") -> tuple[Wish, ...]:
    """The wish of layers of one form, for the spec that :func:`.derive_spec` derives from them."""
    columns = zip(*(_marks(site, strides) for site in sites), strict=True)
    most = [max(marks, key=RANK.__getitem__) for marks in columns]
    return tuple(Wish(axis, mark) for axis, mark in enumerate(most, start=1) if mark != "x")


def _marks(site: Site, strides: Strides) -> list[Letter]:
    """The marks of a layer's input axes behind the first, which is fixed; m where the layer has a."""
    channels: Letter = "m" if site.in_channels > site.groups else "o"
    if site.kind == "linear":
        return [channels]
    steps = (1, 1) if strides == "pool" else site.stride  # with "pool" an average pooling does what a stride leaves out
    return [channels, *map(_along, site.kernel_size, steps)]


def _along(window: int, step: int) -> Letter:
    """The mark along rows or columns; a stride longer than the window reads some positions nowhere."""
    return "x" if step > window else "m" if window > 1 else "o"
