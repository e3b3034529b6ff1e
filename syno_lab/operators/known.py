"""Known operators, each composed of primitives in a few lines.

Windows of size K are padded by K//2 on the left and K-1-K//2 on the right (Table 1, Listing 1). For odd K this padding
is PyTorch's ``padding=K//2``. For even K and for dilation, compare with an explicit ``F.pad``.
"""

from __future__ import annotations

from typing import NoReturn

from syno_lab.errors import PrimitiveError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator

IMAGE = ["N", "C_in", "C_out", "H", "W"]
INPUT, OUTPUT = "[N, C_in, H, W]", "[N, C_out, H, W]"
PLANES = ["N", "C", "H", "W"]


# -- convolutions -----------------------------------------------------------------------------------------------------


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

    The STRIDE is an UNFOLD's main coordinate. A STRIDE there is legal, but outside the default space of synthesis.
    """
    build = Build("[N, C_in, s*H, s*W]", OUTPUT, IMAGE, ["k_1=3", "s=2"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c, p, q = build.reduce("C_in"), build.reduce("k_1"), build.reduce("k_1")
    build.contract(share=[c, p, q], give=[o])
    return build.finish(n, c, build.unfold(build.stride(h, "s"), p), build.unfold(build.stride(w, "s"), q))


def dilated() -> Operator:
    """2-D convolution of dilation s: ``Y[n, o, h, w] = sum X[n, c, h+s*p-(s*K)/2, w+s*q-(s*K)/2] W[c, p, q, o]``.

    The padding is floor(s*K/2) on the left and s*(K-1) - floor(s*K/2) on the right, unlike PyTorch's symmetric padding.
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


def grouped(groups: int = 4) -> Operator:
    """Grouped convolution: output group a reads input group a.

    ``Y[n, a*(C_out/g)+o, h, w] = sum X[n, a*(C_in/g)+c, h+p-K/2, w+q-K/2] W[a, c, p, q, o]``; ``groups=g``.
    """
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3", f"g={groups}"], fixed_io_pairs=[(0, 0)])
    n, c_out, h, w = build.output
    c, p, q = build.reduce("g^-1*C_in"), build.reduce("k_1"), build.reduce("k_1")
    a, o = build.merge(c_out, "g^-1*C_out")
    build.contract(share=[a, c, p, q], give=[o])
    return build.finish(n, build.split(a, c), build.unfold(h, p), build.unfold(w, q))


def grouped_strided() -> Operator:
    """:func:`grouped` with stride s, from ``[N, C_in, s*H, s*W]``; window and padding are those of :func:`strided`."""
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


def separable_reversed() -> Operator:
    """:func:`separable` in the other order: 1x1, then depthwise K x K; weights [C_out, K, K] and [C_in, C_out]."""
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c, p, q = build.reduce("C_in"), build.reduce("k_1"), build.reduce("k_1")
    build.contract(share=[o, p, q])
    build.contract(share=[c], give=[o])
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

    In contrast to :func:`operator_1`, the first stage REDUCEs its window, and the second stage has another window:

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


# -- matrix products --------------------------------------------------------------------------------------------------


def matmul() -> Operator:
    """Matrix product: ``Y[m, n] = sum_k X[m, k] W[k, n]``; ``torch.matmul``."""
    build = Build("[M, K]", "[M, N]", ["M", "K", "N"])
    m, n = build.output
    k = build.reduce("K")
    build.contract(share=[k], give=[n])
    return build.finish(m, k)


def conv1x1() -> Operator:
    """1x1 convolution: ``Y[n, o, h, w] = sum_c X[n, c, h, w] W[c, o]``; ``F.conv2d`` with a kernel of 1."""
    build = Build("[N, C_in, H, W]", "[N, C_out, H, W]", IMAGE, fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c = build.reduce("C_in")
    build.contract(share=[c], give=[o])
    return build.finish(n, c, h, w)


def grouped_linear(groups: int = 4) -> Operator:
    """Linear layer by groups (Syno, section 9.3): each of g groups of outputs reads one group of inputs.

    ``Y[n, a*(D_out/g) + o] = sum_c X[n, a*(D_in/g) + c] W[a, c, o]``, with D_in*D_out/g parameters.
    """
    build = Build("[N, D_in]", "[N, D_out]", ["N", "D_in", "D_out"], [f"g={groups}"], fixed_io_pairs=[(0, 0)])
    n, d_out = build.output
    c = build.reduce("g^-1*D_in")
    a, o = build.merge(d_out, "g^-1*D_out")
    build.contract(share=[a, c], give=[o])
    return build.finish(n, build.split(a, c))


# -- discovered by synthesis: the case studies of Syno, section 9.2 ---------------------------------------------------


def operator_1() -> Operator:
    """OPERATOR 1 of the paper (section 9.2, Figure 7): the first stage opens a window, the second stage closes it.

    ``Z[n, a, m, h, w, q] = sum_c X[n, a*(C_in/g)+c, h, w+q-K/2] W1[a*(C_in/g)+c, q, m]``, c < C_in/g, q not reduced;
    ``Y[n, o, h, w] = sum_{a,p,q,m} Z[n, a, m, h+p-K/2, w, q] W2[a, p, q, m, o]``, m < C_out/(g*s).

    Needs g | C_in and g*s | C_out; has C_in*K*C_out/(g*s) + K^2*C_out^2/s parameters. In the module weight 1 is W2 and
    weight 2 is W1, because a pGraph is built from its output.
    """
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3", "g=4", "s=2"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    a, m = build.reduce("g"), build.reduce("g^-1*s^-1*C_out")
    p, q, c = build.reduce("k_1"), build.reduce("k_1"), build.reduce("g^-1*C_in")
    build.contract(share=[a, p, q, m], give=[o])
    channel = build.split(a, c)
    build.contract(share=[channel, q], give=[m])
    return build.finish(n, channel, build.unfold(h, p), build.unfold(w, q))


def operator_2() -> Operator:
    """OPERATOR 2 of the paper, a RECONSTRUCTION from its words alone (section 9.2).

    The paper describes a variant of OPERATOR 1 with less than a quarter of conv2d's parameters. The variant resembles
    two 1-D convolutions with weights connected using SHARE in a similar manner. The lab's authors do not know its
    figure. One convolution runs along the width, one along the height. The weights share the bottleneck m:

    ``Z[n, a, m, h, w] = sum_{c,q} X[n, a*(C_in/g)+c, h, w+q-K/2] W1[a*(C_in/g)+c, q, m]``, m < C_out/(g*s);
    ``Y[n, o, h, w] = sum_{a,p,m} Z[n, a, m, h+p-K/2, w] W2[a, p, m, o]``.

    The operator has C_in*K*C_out/(g*s) + K*C_out^2/s parameters: for C_in = C_out, K=3, g=4, s=2 that is 1.875/9 of
    conv2d's. Weight 1 is W2 and weight 2 is W1, as in :func:`operator_1`.
    """
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3", "g=4", "s=2"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    a, m = build.reduce("g"), build.reduce("g^-1*s^-1*C_out")
    p, q, c = build.reduce("k_1"), build.reduce("k_1"), build.reduce("g^-1*C_in")
    build.contract(share=[a, p, m], give=[o])
    channel = build.split(a, c)
    build.contract(share=[channel, q], give=[m])
    return build.finish(n, channel, build.unfold(h, p), build.unfold(w, q))


def half_step_shift() -> Operator:
    """A convolution with a learned half-step shift.

    ``Y[n, o, h, w] = sum_{c,q,r<s} X[n, c, t/s, w+q-K/2] W[c, q, o, t%s]`` with ``t = (s*h + r + 1) % (s*H)``. Sizes
    need not be divisible by one another.
    """
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3", "s=2"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c, q, r = build.reduce("C_in"), build.reduce("k_1"), build.reduce("s")
    t = build.shift(build.split(h, r))
    high, low = build.merge(t, "s")
    build.contract(share=[c, q], give=[o, low])
    return build.finish(n, c, high, build.unfold(w, q))


# -- operators without weights: pooling, pixel shuffle, im2col, up-sampling -------------------------------------------


def sum_pool() -> Operator:
    """Sum over s x s blocks: ``Y[n, c, h, w] = sum_{p,q<s} X[n, c, s*h+p, s*w+q]``.

    With ``to_torch(binding, scale=1/s**2)`` it is average pooling, ``F.avg_pool2d``.
    """
    build = Build("[N, C, s*H, s*W]", "[N, C, H, W]", PLANES, ["s=2"], fixed_io_pairs=[(0, 0)])
    n, c, h, w = build.output
    p, q = build.reduce("s"), build.reduce("s")
    return build.finish(n, c, build.split(h, p), build.split(w, q))


def sum_pool_window() -> Operator:
    """Sum over sliding windows, stride 1, zero-padded: ``Y[n, c, h, w] = sum_{p,q} X[n, c, h+p-K/2, w+q-K/2]``."""
    build = Build("[N, C, H, W]", "[N, C, H, W]", PLANES, ["k_1=3"], fixed_io_pairs=[(0, 0)])
    n, c, h, w = build.output
    p, q = build.reduce("k_1"), build.reduce("k_1")
    return build.finish(n, c, build.unfold(h, p), build.unfold(w, q))


def pixel_shuffle() -> Operator:
    """Depth to space: ``Y[n, c, y, x] = X[n, (c*s + y%s)*s + x%s, y/s, x/s]``; ``F.pixel_shuffle``."""
    build = Build("[N, s^2*C, H, W]", "[N, C, s*H, s*W]", PLANES, ["s=2"], fixed_io_pairs=[(0, 0)])
    n, c, y, x = build.output
    h, p = build.merge(y, "s")
    w, q = build.merge(x, "s")
    return build.finish(n, build.split(build.split(c, p), q), h, w)


def pixel_unshuffle() -> Operator:
    """Space to depth: ``Y[n, (c*s + p)*s + q, h, w] = X[n, c, s*h+p, s*w+q]``; ``F.pixel_unshuffle``."""
    build = Build("[N, C, s*H, s*W]", "[N, s^2*C, H, W]", PLANES, ["s=2"], fixed_io_pairs=[(0, 0)])
    n, channel, h, w = build.output
    rest, q = build.merge(channel, "s")
    c, p = build.merge(rest, "s")
    return build.finish(n, c, build.split(h, p), build.split(w, q))


def unfold() -> Operator:
    """im2col: ``Y[n, (c*K + p)*K + q, h*W + w] = X[n, c, h+p-K/2, w+q-K/2]``; ``F.unfold``."""
    build = Build("[N, C, H, W]", "[N, k_1^2*C, H*W]", PLANES, ["k_1=3"], fixed_io_pairs=[(0, 0)])
    n, channel, place = build.output
    rest, q = build.merge(channel, "k_1")
    c, p = build.merge(rest, "k_1")
    h, w = build.merge(place, "W")
    return build.finish(n, c, build.unfold(h, p), build.unfold(w, q))


def fold() -> Operator:
    """col2im with stride equal to kernel: ``Y[n, c, y, x] = X[n, (c*K + y%K)*K + x%K, (y/K)*W + x/K]``; ``F.fold``."""
    build = Build("[N, k_1^2*C, H*W]", "[N, C, k_1*H, k_1*W]", PLANES, ["k_1=2"], fixed_io_pairs=[(0, 0)])
    n, c, y, x = build.output
    h, p = build.merge(y, "k_1")
    w, q = build.merge(x, "k_1")
    return build.finish(n, build.split(build.split(c, p), q), build.split(h, w))


def fold_overlapping() -> NoReturn:
    """Always raise PrimitiveError with the reason: the overlapping fold is no pGraph."""
    raise PrimitiveError(
        "fold with a stride smaller than the kernel: X[..., p, y - p] uses the iterator p twice in one tensor, "
        "but a pGraph uses each coordinate once; only stride equal to kernel can be built"
    )


def upsample_nearest() -> Operator:
    """Nearest up-sampling by s: ``Y[n, c, y, x] = X[n, c, y/s, x/s]``; ``F.interpolate(mode="nearest")``."""
    build = Build("[N, C, H, W]", "[N, C, s*H, s*W]", PLANES, ["s=2"], fixed_io_pairs=[(0, 0)])
    n, c, y, x = build.output
    h, p = build.merge(y, "s")
    w, q = build.merge(x, "s")
    build.expand(p)
    build.expand(q)
    return build.finish(n, c, h, w)
