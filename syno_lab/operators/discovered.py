"""Operators that synthesis discovered: the case studies of Syno, section 9.2."""

from __future__ import annotations

from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator

IMAGE = ["N", "C_in", "C_out", "H", "W"]
INPUT, OUTPUT = "[N, C_in, H, W]", "[N, C_out, H, W]"


def operator_1() -> Operator:
    """OPERATOR 1 of the paper (section 9.2, Figure 7): a window that one stage opens and the other closes.

    ``Z[n, a, m, h, w, q] = sum_c X[n, a*(C_in/g)+c, h, w+q-K/2] W1[a*(C_in/g)+c, q, m]``, c < C_in/g, q not reduced;
    ``Y[n, o, h, w] = sum_{a,p,q,m} Z[n, a, m, h+p-K/2, w, q] W2[a, p, q, m, o]``, m < C_out/(g*s).

    Needs g | C_in and g*s | C_out; C_in*K*C_out/(g*s) + K^2*C_out^2/s parameters. In the module weight 1 is W2 and
    weight 2 is W1, because a pGraph is built from the output.
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

    The paper says: a variant of OPERATOR 1 that resembles two 1-D convolutions with weights connected using SHARE in a
    similar manner, with less than a quarter of conv2d's parameters. Its figure is not known to us. Here one convolution
    runs along the width and one along the height; both weights share the bottleneck m:

    ``Z[n, a, m, h, w] = sum_{c,q} X[n, a*(C_in/g)+c, h, w+q-K/2] W1[a*(C_in/g)+c, q, m]``, m < C_out/(g*s);
    ``Y[n, o, h, w] = sum_{a,p,m} Z[n, a, m, h+p-K/2, w] W2[a, p, m, o]``.

    C_in*K*C_out/(g*s) + K*C_out^2/s parameters: for C_in = C_out, K=3, g=4, s=2 that is 1.875/9 of conv2d's. Weight 1
    is W2 and weight 2 is W1, as in :func:`operator_1`.
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

    ``Y[n, o, h, w] = sum_{c,q,r<s} X[n, c, t/s, w+q-K/2] W[c, q, o, t%s]`` with ``t = (s*h + r + 1) % (s*H)``. Needs no
    divisibility.
    """
    build = Build(INPUT, OUTPUT, IMAGE, ["k_1=3", "s=2"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c, q, r = build.reduce("C_in"), build.reduce("k_1"), build.reduce("s")
    t = build.shift(build.split(h, r))
    high, low = build.merge(t, "s")
    build.contract(share=[c, q], give=[o, low])
    return build.finish(n, c, high, build.unfold(w, q))
