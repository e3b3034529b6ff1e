"""REDUCE: a sum over a new iterator."""

from typing import ClassVar

from syno_lab.common.size import Size
from syno_lab.ir.primitives.base import Card, Primitive
from syno_lab.ir.spec import Spec


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
    example: ClassVar = ((), "N")
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
        """N is a size other than 1."""
        assert parameter is not None
        if parameter.is_one:
            self.refuse("expected a size other than 1, which changes nothing")
        self.require_plausible((parameter,), spec)
