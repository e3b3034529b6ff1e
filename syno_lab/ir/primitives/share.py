"""SHARE: a coordinate indexes the data and a new weight; with others it forms a CONTRACTION."""

from typing import ClassVar

from syno_lab.ir.primitives.base import Card, Primitive


class Share(Primitive):
    """``[i]: [N] <- ([i], [i]): ([N], [N])``; top-down: element-wise product.

    Applied as the paper's CONTRACTION (appendix A): one new weight, a non-empty set of coordinates SHAREd between data
    and weight, and a possibly empty set *given* to the weight, which leave the data (C_out in a convolution). One
    CONTRACTION is one step. Views on weights are never needed, because weights can be reshaped offline (section 6).

    args:
        share     the coordinates that index the data and the weight
        give      the coordinates that only the weight keeps
    rewrite:
        i: N   ->   (i: N in the data, i: N in the weight)
        o: M   ->   o: M in the weight
    """

    name = "SHARE"
    operands = ("share",)
    example: ClassVar = (("N", "M"), None)
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
