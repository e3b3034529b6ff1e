"""SPLIT: two coordinates become the position in a row of blocks."""

from typing import Any, ClassVar

from syno_lab.common.size import Size
from syno_lab.ir.primitives.base import Card, Primitive


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
    example: ClassVar = (("G", "B"), None)
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

    def result_sizes(self, sizes: tuple[Size, ...], parameter: Size | None) -> tuple[Size, ...]:
        """``[G*B]``."""
        return (sizes[0] * sizes[1],)

    def index(self, args: tuple[Any, ...], sizes: tuple[Any, ...], parameter: Any) -> tuple[Any, ...]:
        """``B*i + j``."""
        return (sizes[1] * args[0] + args[1],)
