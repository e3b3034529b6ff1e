"""EXPAND: a coordinate is dropped, so the input is repeated along it."""

from typing import Any, ClassVar

from syno_lab.common.size import Size
from syno_lab.ir.primitives.base import Card, Primitive


class Expand(Primitive):
    """``[i]: [C] <- []: []``; top-down: repeat or up-sample.

    args:
        main      the coordinate to drop, of size C
    rewrite:
        i: C   ->   (nothing)
    """

    name = "EXPAND"
    operands = ("main",)
    example: ClassVar = (("C",), None)
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

    def result_sizes(self, sizes: tuple[Size, ...], parameter: Size | None) -> tuple[Size, ...]:
        """No coordinate is left."""
        return ()

    def index(self, args: tuple[Any, ...], sizes: tuple[Any, ...], parameter: Any) -> tuple[Any, ...]:
        """No expression is left."""
        return ()
