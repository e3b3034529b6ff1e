"""Kernels that people designed or Canvas found, as micro-DAGs (Canvas, sections 1 and 8.4 to 8.5).

Where the paper shows a kernel only as a picture, its micro-DAG is our reconstruction from the text, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.kernel import Draft, Kernel
from syno_lab.canvas.matching import broadcast


def _chain(draft: Draft, tensor: int, *primitives: str) -> tuple[Draft, int]:
    """The draft with these primitives one after another on a tensor, and the number of the last result."""
    for text in primitives:
        draft = draft.apply(text, tensor)
        tensor = len(draft.nodes)
    return draft, tensor


def _of(*primitives: str) -> Kernel:
    return _chain(Draft(), 0, *primitives)[0].kernel()


def convolution() -> Kernel:
    """The standard convolution, which the others replace."""
    return _of("unfold H,W", "fc C")


def grouped_convolution() -> Kernel:
    """A convolution of G groups."""
    return _of("unfold H,W", "group G", "fc C")


def depthwise_separable() -> Kernel:
    """A convolution of each channel by itself, then one of a pixel (MobileNet)."""
    return _of("unfold H,W", "group each", "fc C", "fc C")


def spatially_separable() -> Kernel:
    """A convolution along H, then one along W."""
    return _of("unfold H", "fc C", "unfold W", "fc C")


def residual() -> Kernel:
    """The input added to an FC of it."""
    draft, found = _chain(Draft(), 0, "fc C")
    return broadcast(draft, "add", found, 0).kernel()


def squeeze_excite() -> Kernel:
    """Squeeze-and-excitation: the input, scaled by channel; x0 channels in between."""
    draft, scale = _chain(Draft(), 0, "fold_avg H", "fold_avg W", "fc x0", "relu", "fc C", "sigmoid")
    return broadcast(draft, "mul", scale, 0).kernel()


def involution() -> Kernel:
    """Involution (Figure 1): each pixel makes G windows that weigh its neighbours; x0 channels in between.

    The windows are folded by the mean where involution proper sums: a factor of 1/(KH·KW).
    """
    draft, windows = _chain(Draft(), 0, "fc x0", "relu", "fc x1", "group G")
    draft, image = _chain(draft, 0, "unfold H,W", "group G")
    draft = broadcast(draft, "mul", windows, image, by="G*KH*KW")
    return _chain(draft, len(draft.nodes), "fold_avg KH", "fold_avg KW")[0].kernel()


def figure_6() -> Kernel:
    """The best kernel for ResNet-34 (Figure 6), reconstructed: the input with its neighbour, and a scale by channel."""
    draft, shifted = _chain(Draft(), 0, "shift H+1")
    draft = broadcast(draft, "add", shifted, 0)
    pair = len(draft.nodes)
    draft, scaled = _chain(draft, 0, "group each", "fc C")
    return broadcast(draft, "add", scaled, pair).kernel()


def figure_8() -> Kernel:
    """An unfold in H after a shifted residual in W (Figure 8): 6 of 9 neighbours with KH weights for each channel."""
    draft, shifted = _chain(Draft(), 0, "shift W+1")
    draft = broadcast(draft, "add", shifted, 0)
    return _chain(draft, len(draft.nodes), "unfold H", "group each", "fc C")[0].kernel()


def figure_9a() -> Kernel:
    """Kernel A of Figure 9: the mean of the image gives H·W weights, one for each pixel."""
    draft, weights = _chain(Draft(), 0, "fold_avg H", "fold_avg W", "fc x0")
    return broadcast(draft, "mul", weights, 0, by="H*W").kernel()


def figure_9b() -> Kernel:
    """Kernel B of Figure 9, reconstructed: FCs by pixel and a shift, which matters where the input is added outside."""
    return _of("fc x0", "relu", "shift H+1", "fc C")


_DESIGNED = (convolution, grouped_convolution, depthwise_separable, spatially_separable, residual, squeeze_excite)
_FOUND = (involution, figure_6, figure_8, figure_9a, figure_9b)
#: All of them by name.
KNOWN = {kernel.__name__: kernel for kernel in (*_DESIGNED, *_FOUND)}


def _fitted(make: Callable[[], Kernel]) -> Callable[[], Fitted]:
    return wraps(make)(lambda: Fitted(make()))


#: The same as operators, fitted to no network.
FITTED = {name: _fitted(make) for name, make in KNOWN.items()}
