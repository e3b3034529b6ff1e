"""The eight primitives of Table 1, each with its card: its signature, before and after, domains and refusals."""

from __future__ import annotations

from syno_lab.common.size import Size
from syno_lab.ir.primitives.base import Card, Primitive
from syno_lab.ir.spec import Spec


class Split(Primitive):
    """``[i, j]: [G, B] <- [B*i + j]: [G*B]``; top-down: partition into blocks.

    args:
        block     the coordinate that counts blocks, of size G
        offset    the coordinate inside a block, of size B
    rewrite:
        i: G, j: B   ->   B*i + j: G*B
    """

    name = "SPLIT"
    operands = ("block", "offset")
    is_one_to_one = True
    example = (("G", "B"), None)
    card = Card(
        "SPLIT",
        "split(block, offset)",
        "[i, j]: [G, B]",
        "[B*i + j]: [G*B]",
        "a dimension of G*B is partitioned into G blocks of B (reshape)",
        "A bijection: every element of the input is used once.",
        ("one coordinate with itself", "a coordinate that has left the data tensor"),
        "Syno, section 5.1 and Table 1",
    )
    result_sizes = staticmethod(lambda sizes, parameter: (sizes[0] * sizes[1],))
    index = staticmethod(lambda args, sizes, parameter: (sizes[1] * args[0] + args[1],))


class Merge(Primitive):
    """``[i]: [N] <- [i / B, i % B]: [N/B, B]``; top-down: flatten two dimensions.

    args:
        main      the coordinate to take apart, of size N
        B         the block size, a divisor of N
    rewrite:
        i: N   ->   i // B: N/B,  i % B: B
    """

    name = "MERGE"
    operands = ("main",)
    parameter = "B"
    is_one_to_one = True
    example = (("N",), "B")
    card = Card(
        "MERGE",
        "merge(main, B)",
        "[i]: [N]",
        "[i / B, i % B]: [N/B, B]",
        "two dimensions of N/B and B are flattened into one of N (reshape)",
        "A bijection; B must divide N, in symbols and under every binding.",
        ("a block that does not divide the size", "a block of 1 or of the whole size, which changes nothing"),
        "Syno, section 5.1 and Table 1",
    )

    def check(self, sizes: tuple[Size, ...], parameter: Size | None, spec: Spec) -> None:
        """Check that B divides N and is neither 1 nor N."""
        assert parameter is not None
        if parameter.is_one or parameter == sizes[0]:
            self.refuse(f"expected a block between 1 and {sizes[0]}, found {parameter}, which changes nothing")
        if not (sizes[0] / parameter).is_plausible or not parameter.is_plausible:
            self.refuse(f"expected a block that divides {sizes[0]}, found {parameter}")
        self.require_plausible((parameter, sizes[0] / parameter), spec)

    result_sizes = staticmethod(lambda sizes, parameter: (sizes[0] / parameter, parameter))
    index = staticmethod(lambda args, sizes, parameter: (args[0] // parameter, args[0] % parameter))


class Shift(Primitive):
    """``[i]: [N] <- [(i + 1) % N]: [N]``; top-down: shift along a dimension, wrapping around.

    args:
        main      the coordinate to shift, of size N
    rewrite:
        i: N   ->   (i + 1) % N: N
    """

    name = "SHIFT"
    operands = ("main",)
    is_one_to_one = True
    example = (("N",), None)
    card = Card(
        "SHIFT",
        "shift(main)",
        "[i]: [N]",
        "[(i + 1) % N]: [N]",
        "the dimension is rolled by one (torch.roll by -1)",
        "A bijection: it wraps around, where UNFOLD pads with zeros.",
        ("a coordinate that is fixed", "a coordinate that has left the data tensor"),
        "Syno, Table 1",
    )
    result_sizes = staticmethod(lambda sizes, parameter: sizes)
    index = staticmethod(lambda args, sizes, parameter: ((args[0] + 1) % sizes[0],))


class Expand(Primitive):
    """``[i]: [C] <- []: []``; top-down: repeat or up-sample.

    args:
        main      the coordinate to drop, of size C
    rewrite:
        i: C   ->   (nothing)
    """

    name = "EXPAND"
    operands = ("main",)
    example = (("C",), None)
    card = Card(
        "EXPAND",
        "expand(main)",
        "[i]: [C]",
        "[]: []",
        "the input is repeated C times along a new dimension",
        "Replicates data: a low-quality primitive whose number is limited (section 5.1).",
        ("a coordinate that is fixed", "a coordinate that has left the data tensor"),
        "Syno, section 5.1 and Table 1",
    )
    result_sizes = staticmethod(lambda sizes, parameter: ())
    index = staticmethod(lambda args, sizes, parameter: ())


class Unfold(Primitive):
    """``[i, j]: [N, K] <- [i + j - K/2]: [N]``; top-down: extract sliding windows.

    A term of the operator is zero if ``i + j - K//2`` is outside ``[0, N)``, whatever steps are above the UNFOLD. The
    padding is ``K//2`` on the left and ``K - 1 - K//2`` on the right.

    args:
        main      the coordinate that the window moves along, of size N
        window    the coordinate inside the window, of size K (K > N is legal)
    rewrite:
        i: N, j: K   ->   i + j - K//2: N   (zero outside)
    """

    name = "UNFOLD"
    operands = ("main", "window")
    clips = True
    example = (("N", "K"), None)
    card = Card(
        "UNFOLD",
        "unfold(main, window)",
        "[i, j]: [N, K]",
        "[i + j - K/2]: [N]",
        "windows of size K are extracted along N, zero-padded by K/2 left and K-1-K/2 right",
        "For even K this is not PyTorch's symmetric padding: compare with an explicit F.pad.",
        ("one coordinate with itself", "a coordinate that has left the data tensor"),
        "Syno, Table 1; padding as in Listing 1",
    )
    result_sizes = staticmethod(lambda sizes, parameter: (sizes[0],))
    index = staticmethod(lambda args, sizes, parameter: (args[0] + args[1] - sizes[1] // 2,))


class Stride(Primitive):
    """``[i]: [K] <- [S*i]: [S*K]``; top-down: strided access.

    A 1-to-many primitive, UNFOLD or EXPAND, must consume a STRIDE's result, so that no data are lost. The result makes
    a dilated convolution if it is an UNFOLD's window, and a strided convolution if it is an UNFOLD's main coordinate.

    args:
        main      the coordinate to stretch, of size K
        S         the stride
    rewrite:
        i: K   ->   S*i: S*K
    """

    name = "STRIDE"
    operands = ("main",)
    parameter = "S"
    example = (("K",), "S")
    card = Card(
        "STRIDE",
        "stride(main, S)",
        "[i]: [K]",
        "[S*i]: [S*K]",
        "every S-th element of a dimension of S*K is taken",
        "Discards data by itself: its result must go into an UNFOLD (or EXPAND), and its number is limited.",
        (
            "a stride of 1, which changes nothing",
            "a primitive other than UNFOLD and EXPAND above it",
            "a complete operator with a strided coordinate in the input",
        ),
        "Syno, sections 5.1, 5.2 and Table 1",
    )

    def check(self, sizes: tuple[Size, ...], parameter: Size | None, spec: Spec) -> None:
        """Check that S is a size other than 1."""
        assert parameter is not None
        if parameter.is_one:
            self.refuse("expected a stride other than 1, which changes nothing")
        self.require_plausible((parameter, sizes[0] * parameter), spec)

    result_sizes = staticmethod(lambda sizes, parameter: (sizes[0] * parameter,))
    index = staticmethod(lambda args, sizes, parameter: (parameter * args[0],))


class Reduce(Primitive):
    """``[]: [] <- sum_i [i]: [N]``; top-down: reduce a dimension.

    args:
        N         the size of the reduction
    rewrite:
        (nothing)   ->   r: N, summed over
    """

    name = "REDUCE"
    operands = ()
    parameter = "N"
    example = ((), "N")
    card = Card(
        "REDUCE",
        "reduce(N)",
        "[]: []",
        "sum_i [i]: [N]",
        "a dimension of N is summed away",
        "Adds one loop to the loop nest. Synthesis places all REDUCEs first (appendix A).",
        ("a size of 1, which changes nothing", "a size that is not a positive integer under every binding"),
        "Syno, section 5.1 and Table 1",
    )

    def check(self, sizes: tuple[Size, ...], parameter: Size | None, spec: Spec) -> None:
        """Check that N is a size other than 1."""
        assert parameter is not None
        if parameter.is_one:
            self.refuse("expected a size other than 1, which changes nothing")
        self.require_plausible((parameter,), spec)


class Share(Primitive):
    """``[i]: [N] <- ([i], [i]): ([N], [N])``; top-down: element-wise product.

    The step is the paper's CONTRACTION (appendix A): it adds a weight that SHAREs at least one coordinate with the
    data. Other coordinates may be *given* to the weight and leave the data (C_out in a convolution). One CONTRACTION
    is one step. Views on weights are never needed, because weights can be reshaped offline (section 6).

    args:
        share     the coordinates that index the data and the weight
        give      the coordinates that only the weight keeps
    rewrite:
        i: N   ->   (i: N in the data, i: N in the weight)
        o: M   ->   o: M in the weight
    """

    name = "SHARE"
    operands = ("share",)
    example = (("N", "M"), None)
    card = Card(
        "SHARE",
        "contract(share=[i, ...], give=[o, ...])",
        "[i]: [N], [o]: [M]",
        "([i]: [N], weight[i, o]: [N, M])",
        "the data are multiplied by a weight that has the shared and the given dimensions",
        "The given coordinates leave the data; the shared stay in both.",
        (
            "no shared coordinate",
            "a coordinate that is shared and given, or named twice",
            "a strided coordinate, whose weight would have elements that are never used",
        ),
        "Syno, sections 5.1 and 6, appendix A",
    )


PRIMITIVES: dict[str, Primitive] = {
    primitive.name: primitive
    for primitive in (Split(), Merge(), Shift(), Expand(), Unfold(), Stride(), Reduce(), Share())
}
