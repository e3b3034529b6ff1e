"""STRIDE: only every S-th position is visited."""

from typing import Any, ClassVar

from syno_lab.common.size import Size
from syno_lab.ir.primitives.base import Card, Primitive
from syno_lab.ir.spec import Spec


class Stride(Primitive):
    """``[i]: [K] <- [S*i]: [S*K]``; top-down: strided access.

    Its result must be consumed by a 1-to-many primitive, UNFOLD or EXPAND, so that no data are discarded for good: as
    an UNFOLD's window it makes a dilated convolution, as its main coordinate a strided one.

    args:
        main      the coordinate to stretch, of size K
        S         the stride
    rewrite:
        i: K   ->   S*i: S*K
    """

    name = "STRIDE"
    operands = ("main",)
    parameter = "S"
    example: ClassVar = (("K",), "S")
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
        """S is a size other than 1."""
        assert parameter is not None
        if parameter.is_one:
            self.refuse("expected a stride other than 1, which changes nothing")
        self.require_plausible((parameter, sizes[0] * parameter), spec)

    def result_sizes(self, sizes: tuple[Size, ...], parameter: Size | None) -> tuple[Size, ...]:
        """``[S*K]``."""
        assert parameter is not None
        return (sizes[0] * parameter,)

    def index(self, args: tuple[Any, ...], sizes: tuple[Any, ...], parameter: Any) -> tuple[Any, ...]:
        """``S * i``."""
        return (parameter * args[0],)
