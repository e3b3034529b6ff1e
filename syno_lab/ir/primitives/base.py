"""What every primitive says about itself: its card, its rule of sizes, and its coordinate expression.

A primitive is read bottom to top (Syno, Table 1): it takes the *bottom* coordinates, nearer the output, and gives the
*top* ones, nearer the input. A new primitive is one file with a subclass and one line in the registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from syno_lab.common.size import Size
from syno_lab.errors import PrimitiveError
from syno_lab.ir.spec import Spec


@dataclass(frozen=True)
class Card:
    """A primitive on one page; ``picture`` is an operator-less pGraph drawn by the graphviz room."""

    name: str
    signature: str
    before: str
    after: str
    top_down: str
    meaning: str
    misuses: tuple[str, ...]
    paper: str

    def __str__(self) -> str:
        refused = "".join(f"\n  refused: {line}" for line in self.misuses)
        return (
            f"{self.name}\n  {self.signature}\n  bottom: {self.before}\n  top:    {self.after}\n"
            f"  top-down: {self.top_down}\n  {self.meaning}{refused}\n  source: {self.paper}"
        )


class Primitive:
    """One row of Table 1.

    Attributes:
        name: as in the paper, in capitals.
        operands: what the bottom coordinates are called, in order.
        parameter: what the size parameter is called, or None.
        clips: whether a term is zero where the result is outside its domain ``[0, size)``.
        is_one_to_one: whether it is a bijection of coordinates (the paper's 1-to-1 views).
        example: sizes of the operands and the parameter for the card's picture.
    """

    name: ClassVar[str]
    operands: ClassVar[tuple[str, ...]]
    parameter: ClassVar[str | None] = None
    clips: ClassVar[bool] = False
    is_one_to_one: ClassVar[bool] = False
    example: ClassVar[tuple[tuple[str, ...], str | None]]
    card: ClassVar[Card]

    def check(self, sizes: tuple[Size, ...], parameter: Size | None, spec: Spec) -> None:
        """Refuse what Table 1 does not allow for operands of these sizes.

        Raises:
            PrimitiveError: one line, expected and found.
        """

    def result_sizes(self, sizes: tuple[Size, ...], parameter: Size | None) -> tuple[Size, ...]:
        """The domains of the top coordinates."""
        raise NotImplementedError  # only REDUCE, EXPAND and SHARE have no expression of their own

    def index(self, args: tuple[Any, ...], sizes: tuple[Any, ...], parameter: Any) -> tuple[Any, ...]:
        """The top coordinates' expressions for the bottom ones.

        Uses only ``+ - * // %``, so that integers, arrays, texts, sympy and TVM expressions all do; ``sizes`` are the
        bottom domains and ``parameter`` the parameter, in the same kind of number.
        """
        raise NotImplementedError  # see result_sizes

    def refuse(self, expected: str) -> NoReturn:
        """Raise a :class:`PrimitiveError` that begins with the primitive's name."""
        raise PrimitiveError(f"{self.name}: {expected}")

    def require_plausible(self, sizes: tuple[Size, ...], spec: Spec) -> None:
        """Refuse result sizes that are no positive integers, in symbols or under one of the spec's bindings."""
        for size in sizes:
            if not size.is_plausible:
                self.refuse(f"expected sizes that can be positive integers, found {size}")
            for binding in spec.binding_maps:
                if not size.is_integral(binding):
                    bound = ", ".join(f"{k}={v}" for k, v in binding.items())
                    self.refuse(f"expected sizes that are integers for {bound}, found {size}")
