"""UNFOLD: a sliding window."""

from typing import Any, ClassVar

from syno_lab.common.size import Size
from syno_lab.ir.primitives.base import Card, Primitive


class Unfold(Primitive):
    """``[i, j]: [N, K] <- [i + j - K/2]: [N]``; top-down: extract sliding windows.

    A term of the operator is zero where ``i + j - K//2`` is outside ``[0, N)``, whatever stands above: the padding is
    ``K//2`` on the left and ``K - 1 - K//2`` on the right.

    args:
        main      the coordinate that the window moves along, of size N
        window    the coordinate inside the window, of size K (K > N is legal)
    rewrite:
        i: N, j: K   ->   i + j - K//2: N   (zero outside)
    """

    name = "UNFOLD"
    operands = ("main", "window")
    clips = True
    example: ClassVar = (("N", "K"), None)
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

    def result_sizes(self, sizes: tuple[Size, ...], parameter: Size | None) -> tuple[Size, ...]:
        """``[N]``."""
        return (sizes[0],)

    def index(self, args: tuple[Any, ...], sizes: tuple[Any, ...], parameter: Any) -> tuple[Any, ...]:
        """``i + j - K // 2``."""
        return (args[0] + args[1] - sizes[1] // 2,)
