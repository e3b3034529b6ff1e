"""MERGE: one coordinate becomes block and offset."""

from typing import Any, ClassVar

from syno_lab.common.size import Size
from syno_lab.ir.primitives.base import Card, Primitive
from syno_lab.ir.spec import Spec


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
    example: ClassVar = (("N",), "B")
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
        """B divides N and is neither 1 nor N."""
        assert parameter is not None
        if parameter.is_one or parameter == sizes[0]:
            self.refuse(f"expected a block between 1 and {sizes[0]}, found {parameter}, which changes nothing")
        if not (sizes[0] / parameter).is_plausible or not parameter.is_plausible:
            self.refuse(f"expected a block that divides {sizes[0]}, found {parameter}")
        self.require_plausible((parameter, sizes[0] / parameter), spec)

    def result_sizes(self, sizes: tuple[Size, ...], parameter: Size | None) -> tuple[Size, ...]:
        """``[N/B, B]``."""
        assert parameter is not None
        return (sizes[0] / parameter, parameter)

    def index(self, args: tuple[Any, ...], sizes: tuple[Any, ...], parameter: Any) -> tuple[Any, ...]:
        """``i // B`` and ``i % B``."""
        return (args[0] // parameter, args[0] % parameter)
