"""SHIFT: a roll by one along a dimension."""

from typing import Any, ClassVar

from syno_lab.common.size import Size
from syno_lab.ir.primitives.base import Card, Primitive


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
    example: ClassVar = (("N",), None)
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

    def result_sizes(self, sizes: tuple[Size, ...], parameter: Size | None) -> tuple[Size, ...]:
        """``[N]``."""
        return sizes

    def index(self, args: tuple[Any, ...], sizes: tuple[Any, ...], parameter: Any) -> tuple[Any, ...]:
        """``(i + 1) % N``."""
        return ((args[0] + 1) % sizes[0],)
