"""Matrix products: matmul, 1x1 convolution, grouped linear."""

from __future__ import annotations

from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator

IMAGE = ["N", "C_in", "C_out", "H", "W"]


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


def grouped_linear() -> Operator:
    """Linear layer by groups (Syno, section 9.3): each of g groups of outputs reads one group of inputs.

    ``Y[n, a*(D_out/g) + o] = sum_c X[n, a*(D_in/g) + c] W[a, c, o]``, with D_in*D_out/g parameters.
    """
    build = Build("[N, D_in]", "[N, D_out]", ["N", "D_in", "D_out"], ["g=4"], fixed_io_pairs=[(0, 0)])
    n, d_out = build.output
    c = build.reduce("g^-1*D_in")
    a, o = build.merge(d_out, "g^-1*D_out")
    build.contract(share=[a, c], give=[o])
    return build.finish(n, build.split(a, c))
