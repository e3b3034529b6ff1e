"""Kernels that people designed or Canvas found, as micro-DAGs (Canvas, sections 1 and 8.4 to 8.5).

A kernel that the paper shows only as a picture is a reconstruction from the text, and its docstring says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.kernel import Draft, Kernel
from syno_lab.canvas.matching import broadcast


def _chain(draft: Draft, tensor: int, *primitives: str) -> tuple[Draft, int]:
    """Apply primitives one after another to a tensor; return the draft and the number of the last tensor."""
    for text in primitives:
        draft = draft.apply(text, tensor)
        tensor = len(draft.nodes)
    return draft, tensor


def _of(*primitives: str) -> Kernel:
    return _chain(Draft(), 0, *primitives)[0].kernel()


def convolution() -> Kernel:
    """Return the standard convolution, which the other kernels replace."""
    return _of("unfold H,W", "fc C")


def grouped_convolution() -> Kernel:
    """Return a convolution of G groups."""
    return _of("unfold H,W", "group G", "fc C")


def depthwise_separable() -> Kernel:
    """Return a depthwise convolution, then a 1 x 1 convolution (MobileNet)."""
    return _of("unfold H,W", "group each", "fc C", "fc C")


def spatially_separable() -> Kernel:
    """Return a convolution along H, then a convolution along W."""
    return _of("unfold H", "fc C", "unfold W", "fc C")


def residual() -> Kernel:
    """Return the sum of the input and an FC of the input."""
    draft, fc = _chain(Draft(), 0, "fc C")
    return broadcast(draft, "add", fc, 0).kernel()


def squeeze_excite() -> Kernel:
    """Return squeeze-and-excitation: the input, scaled by channel, with x0 channels in between."""
    draft, scale = _chain(Draft(), 0, "fold_avg H", "fold_avg W", "fc x0", "relu", "fc C", "sigmoid")
    return broadcast(draft, "mul", scale, 0).kernel()


def involution() -> Kernel:
    """Return an involution (Figure 1): each pixel computes, by x0 channels, G windows of weights for its neighbours.

    The windows are folded by the mean, while the original involution sums: a factor of 1/(KH·KW).
    """
    draft, windows = _chain(Draft(), 0, "fc x0", "relu", "fc x1", "group G")
    draft, image = _chain(draft, 0, "unfold H,W", "group G")
    draft = broadcast(draft, "mul", windows, image, by="G*KH*KW")
    return _chain(draft, len(draft.nodes), "fold_avg KH", "fold_avg KW")[0].kernel()


def figure_6() -> Kernel:
    """Return the best kernel for ResNet-34 (Figure 6), reconstructed: input plus neighbour, then a scale by channel."""
    draft, shifted = _chain(Draft(), 0, "shift H+1")
    draft = broadcast(draft, "add", shifted, 0)
    pair = len(draft.nodes)
    draft, scaled = _chain(draft, 0, "group each", "fc C")
    return broadcast(draft, "add", scaled, pair).kernel()


def figure_8() -> Kernel:
    """Return an unfold in H after a shifted residual in W (Figure 8): 6 of 9 neighbours, KH weights per channel."""
    draft, shifted = _chain(Draft(), 0, "shift W+1")
    draft = broadcast(draft, "add", shifted, 0)
    return _chain(draft, len(draft.nodes), "unfold H", "group each", "fc C")[0].kernel()


def figure_9a() -> Kernel:
    """Return kernel A of Figure 9: the mean of the image determines H·W weights, one for each pixel."""
    draft, weights = _chain(Draft(), 0, "fold_avg H", "fold_avg W", "fc x0")
    return broadcast(draft, "mul", weights, 0, by="H*W").kernel()


def figure_9b() -> Kernel:
    """Return kernel B of Figure 9, reconstructed: FCs of each pixel, and a shift, which matters in a residual block."""
    return _of("fc x0", "relu", "shift H+1", "fc C")


_DESIGNED = (convolution, grouped_convolution, depthwise_separable, spatially_separable, residual, squeeze_excite)
_FOUND = (involution, figure_6, figure_8, figure_9a, figure_9b)
#: All known kernels by name.
KNOWN = {kernel.__name__: kernel for kernel in (*_DESIGNED, *_FOUND)}


def _fitted(make: Callable[[], Kernel]) -> Callable[[], Fitted]:
    return wraps(make)(lambda: Fitted(make()))


#: All known kernels as operators without a network.
FITTED = {name: _fitted(make) for name, make in KNOWN.items()}
