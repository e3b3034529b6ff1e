"""Operators without multiplication by weights, or nearly: pooling, pixel shuffle, im2col, up-sampling."""

from __future__ import annotations

from typing import NoReturn

from syno_lab.errors import PrimitiveError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator

IMAGE = ["N", "C", "H", "W"]


def sum_pool() -> Operator:
    """Sum over s x s blocks: ``Y[n, c, h, w] = sum_{p,q<s} X[n, c, s*h+p, s*w+q]``.

    With ``to_torch(binding, scale=1/s**2)`` it is average pooling, ``F.avg_pool2d``.
    """
    build = Build("[N, C, s*H, s*W]", "[N, C, H, W]", IMAGE, ["s=2"], fixed_io_pairs=[(0, 0)])
    n, c, h, w = build.output
    p, q = build.reduce("s"), build.reduce("s")
    return build.finish(n, c, build.split(h, p), build.split(w, q))


def sum_pool_window() -> Operator:
    """Sum over sliding windows, stride 1, zero-padded: ``Y[n, c, h, w] = sum_{p,q} X[n, c, h+p-K/2, w+q-K/2]``."""
    build = Build("[N, C, H, W]", "[N, C, H, W]", IMAGE, ["k_1=3"], fixed_io_pairs=[(0, 0)])
    n, c, h, w = build.output
    p, q = build.reduce("k_1"), build.reduce("k_1")
    return build.finish(n, c, build.unfold(h, p), build.unfold(w, q))


def pixel_shuffle() -> Operator:
    """Depth to space: ``Y[n, c, y, x] = X[n, (c*s + y%s)*s + x%s, y/s, x/s]``; ``F.pixel_shuffle``."""
    build = Build("[N, s^2*C, H, W]", "[N, C, s*H, s*W]", IMAGE, ["s=2"], fixed_io_pairs=[(0, 0)])
    n, c, y, x = build.output
    h, p = build.merge(y, "s")
    w, q = build.merge(x, "s")
    return build.finish(n, build.split(build.split(c, p), q), h, w)


def pixel_unshuffle() -> Operator:
    """Space to depth: ``Y[n, (c*s + p)*s + q, h, w] = X[n, c, s*h+p, s*w+q]``; ``F.pixel_unshuffle``."""
    build = Build("[N, C, s*H, s*W]", "[N, s^2*C, H, W]", IMAGE, ["s=2"], fixed_io_pairs=[(0, 0)])
    n, channel, h, w = build.output
    rest, q = build.merge(channel, "s")
    c, p = build.merge(rest, "s")
    return build.finish(n, c, build.split(h, p), build.split(w, q))


def unfold() -> Operator:
    """im2col: ``Y[n, (c*K + p)*K + q, h*W + w] = X[n, c, h+p-K/2, w+q-K/2]``; ``F.unfold``."""
    build = Build("[N, C, H, W]", "[N, k_1^2*C, H*W]", IMAGE, ["k_1=3"], fixed_io_pairs=[(0, 0)])
    n, channel, place = build.output
    rest, q = build.merge(channel, "k_1")
    c, p = build.merge(rest, "k_1")
    h, w = build.merge(place, "W")
    return build.finish(n, c, build.unfold(h, p), build.unfold(w, q))


def fold() -> Operator:
    """col2im with stride equal to kernel: ``Y[n, c, y, x] = X[n, (c*K + y%K)*K + x%K, (y/K)*W + x/K]``; ``F.fold``."""
    build = Build("[N, k_1^2*C, H*W]", "[N, C, k_1*H, k_1*W]", IMAGE, ["k_1=2"], fixed_io_pairs=[(0, 0)])
    n, c, y, x = build.output
    h, p = build.merge(y, "k_1")
    w, q = build.merge(x, "k_1")
    return build.finish(n, build.split(build.split(c, p), q), build.split(h, w))


def fold_overlapping() -> NoReturn:
    """The overlapping fold is no pGraph.

    Raises:
        PrimitiveError: always, with the reason.
    """
    raise PrimitiveError(
        "fold with a stride smaller than the kernel: X[..., p, y - p] uses the iterator p twice in one tensor, "
        "but a pGraph uses each coordinate once; only stride equal to kernel can be built"
    )


def upsample_nearest() -> Operator:
    """Nearest up-sampling by s: ``Y[n, c, y, x] = X[n, c, y/s, x/s]``; ``F.interpolate(mode="nearest")``."""
    build = Build("[N, C, H, W]", "[N, C, s*H, s*W]", IMAGE, ["s=2"], fixed_io_pairs=[(0, 0)])
    n, c, y, x = build.output
    h, p = build.merge(y, "s")
    w, q = build.merge(x, "s")
    build.expand(p)
    build.expand(q)
    return build.finish(n, c, h, w)
