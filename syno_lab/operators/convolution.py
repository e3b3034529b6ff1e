"""Convolutions. Windows of K are padded by K//2 on the left and K-1-K//2 on the right (Table 1, Listing 1).

For odd K that is PyTorch's ``padding=K//2``; for even K, and for dilation, compare with an explicit ``F.pad``.
"""

from __future__ import annotations

from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator

IMAGE = ["N", "C_in", "C_out", "H", "W"]
INPUT, OUTPUT = "[N, C_in, H, W]", "[N, C_out, H, W]"


def conv1d() -> Operator:
    """1-D convolution: ``Y[n, o, h] = sum_{c,p} X[n, c, h+p-K/2] W[c, p, o]``; ``F.conv1d``."""
    build = Build("[N, C_in, H]", "[N, C_out, H]", ["N", "C_in", "C_out", "H"], ["k_1=3"], fixed_io_pairs=[(0, 0)])
    n, o, h = build.output
    c, p = build.reduce("C_in"), build.reduce("k_1")
    build.contract(share=[c, p], give=[o])
    return build.finish(n, c, build.unfold(h, p))


def conv2d() -> Operator:
    """2-D convolution (Syno, Figure 2): ``Y[n, o, h, w] = sum_{c,p,q} X[n, c, h+p-K/2, w+q-K/2] W[c, p, q, o]``."""
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c, p, q = build.reduce("C_in"), build.reduce("k_1"), build.reduce("k_1")
    build.contract(share=[c, p, q], give=[o])
    return build.finish(n, c, build.unfold(h, p), build.unfold(w, q))


def strided() -> Operator:
    """2-D convolution of stride s: ``Y[n, o, h, w] = sum X[n, c, s*h+p-K/2, s*w+q-K/2] W[c, p, q, o]``.

    The STRIDE is an UNFOLD's main coordinate: legal, though outside the default space of synthesis.
    """
    build = Build("[N, C_in, s*H, s*W]", OUTPUT, IMAGE, ["k_1=3", "s=2"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c, p, q = build.reduce("C_in"), build.reduce("k_1"), build.reduce("k_1")
    build.contract(share=[c, p, q], give=[o])
    return build.finish(n, c, build.unfold(build.stride(h, "s"), p), build.unfold(build.stride(w, "s"), q))


def dilated() -> Operator:
    """2-D convolution of dilation s: ``Y[n, o, h, w] = sum X[n, c, h+s*p-(s*K)/2, w+s*q-(s*K)/2] W[c, p, q, o]``.

    Padded by floor(s*K/2) on the left and s*(K-1) - floor(s*K/2) on the right: not PyTorch's symmetric padding.
    """
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3", "s=2"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c, p, q = build.reduce("C_in"), build.reduce("k_1"), build.reduce("k_1")
    build.contract(share=[c, p, q], give=[o])
    return build.finish(n, c, build.unfold(h, build.stride(p, "s")), build.unfold(w, build.stride(q, "s")))


def depthwise() -> Operator:
    """Depthwise convolution: ``Y[n, c, h, w] = sum_{p,q} X[n, c, h+p-K/2, w+q-K/2] W[c, p, q]``; ``groups=C``."""
    build = Build("[N, C, H, W]", "[N, C, H, W]", ["N", "C", "H", "W"], ["k_1=3"], fixed_io_pairs=[(0, 0)])
    n, c, h, w = build.output
    p, q = build.reduce("k_1"), build.reduce("k_1")
    build.contract(share=[c, p, q])
    return build.finish(n, c, build.unfold(h, p), build.unfold(w, q))


def grouped() -> Operator:
    """Grouped convolution: output group a reads input group a.

    ``Y[n, a*(C_out/g)+o, h, w] = sum X[n, a*(C_in/g)+c, h+p-K/2, w+q-K/2] W[a, c, p, q, o]``; ``groups=g``.
    """
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3", "g=4"], fixed_io_pairs=[(0, 0)])
    n, c_out, h, w = build.output
    c, p, q = build.reduce("g^-1*C_in"), build.reduce("k_1"), build.reduce("k_1")
    a, o = build.merge(c_out, "g^-1*C_out")
    build.contract(share=[a, c, p, q], give=[o])
    return build.finish(n, build.split(a, c), build.unfold(h, p), build.unfold(w, q))


def grouped_strided() -> Operator:
    """:func:`grouped` with stride s, from ``[N, C_in, s*H, s*W]``: window and padding as in :func:`strided`."""
    build = Build("[N, C_in, s*H, s*W]", OUTPUT, IMAGE, ["k_1=3", "s=2", "g=4"], fixed_io_pairs=[(0, 0)])
    n, c_out, h, w = build.output
    c, p, q = build.reduce("g^-1*C_in"), build.reduce("k_1"), build.reduce("k_1")
    a, o = build.merge(c_out, "g^-1*C_out")
    build.contract(share=[a, c, p, q], give=[o])
    h, w = build.unfold(build.stride(h, "s"), p), build.unfold(build.stride(w, "s"), q)
    return build.finish(n, build.split(a, c), h, w)


def separable() -> Operator:
    """Depthwise separable convolution: depthwise K x K, then 1x1; weights [C_in, C_out] and [C_in, K, K]."""
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c, p, q = build.reduce("C_in"), build.reduce("k_1"), build.reduce("k_1")
    build.contract(share=[c], give=[o])
    build.contract(share=[c, p, q])
    return build.finish(n, c, build.unfold(h, p), build.unfold(w, q))


def shift_conv() -> Operator:
    """Shift convolution: a roll by one along the height (``torch.roll`` by -1), then 1x1.

    ``Y[n, o, h, w] = sum_c X[n, c, (h+1)%H, w] W[c, o]``.
    """
    build = Build(INPUT, OUTPUT, IMAGE, fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c = build.reduce("C_in")
    build.contract(share=[c], give=[o])
    return build.finish(n, c, build.shift(h), w)


def stacked_grouped_convolution() -> Operator:
    """Two stacked grouped convolutions (Syno, section 9.2): 1 x K by groups to C_out/s channels, then K x K.

    This is :func:`operator_1` with the first stage's window REDUCEd there and a window of its own in the second stage:

    ``Z[n, a, m, h, w] = sum_{c,q} X[n, a*(C_in/g)+c, h, w+q-K/2] W1[a*(C_in/g)+c, q, m]``,
    ``Y[n, o, h, w] = sum_{a,p,t,m} Z[n, a, m, h+p-K/2, w+t-K/2] W2[a, p, t, m, o]``, m < C_out/(g*s).
    """
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3", "g=4", "s=2"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    a, m = build.reduce("g"), build.reduce("g^-1*s^-1*C_out")
    p, t, q = build.reduce("k_1"), build.reduce("k_1"), build.reduce("k_1")
    c = build.reduce("g^-1*C_in")
    build.contract(share=[a, p, t, m], give=[o])
    w = build.unfold(w, t)
    channel = build.split(a, c)
    build.contract(share=[channel, q], give=[m])
    return build.finish(n, channel, build.unfold(h, p), build.unfold(w, q))
