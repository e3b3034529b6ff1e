"""The interface of a primitive: its card, its rule of sizes, and its coordinate expression.

A primitive is read from bottom to top (Syno, Table 1): it takes *bottom* coordinates, nearer to the output, and returns
*top* coordinates, nearer to the input. A new primitive is one subclass and one entry in ``PRIMITIVES``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from syno_lab.common.size import Size
from syno_lab.errors import PrimitiveError
from syno_lab.ir.spec import Spec


@dataclass(frozen=True)
class Card:
    """A description of a primitive on one page."""

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
    """A primitive, a row of Table 1.

    Attributes:
        name: the paper's name, in capitals.
        operands: the names of the bottom coordinates, in order.
        parameter: the name of the size parameter, or None.
        clips: whether a term is zero where the result is outside its domain ``[0, size)``.
        is_one_to_one: whether the primitive is a bijection of coordinates (the paper's 1-to-1 views).
        example: the sizes of the operands and of the parameter in the card's picture.
        result_sizes: the domains of the top coordinates, from the domains of the bottom coordinates and the parameter.
        index: the expressions of the top coordinates, from the bottom coordinates, their domains and the parameter. The
            function uses only ``+ - * // %``, so it works for integers, arrays, texts, sympy and TVM expressions.
            REDUCE and SHARE have neither ``result_sizes`` nor ``index``.
    """

    name: str
    operands: tuple[str, ...]
    parameter: str | None = None
    clips: bool = False
    is_one_to_one: bool = False
    example: tuple[tuple[str, ...], str | None]
    card: Card
    result_sizes: Callable[[tuple[Size, ...], Size | None], tuple[Size, ...]]
    index: Callable[[tuple[Any, ...], tuple[Any, ...], Any], tuple[Any, ...]]

    def check(self, sizes: tuple[Size, ...], parameter: Size | None, spec: Spec) -> None:
        """Refuse operand sizes and parameters that Table 1 does not allow.

        Raises PrimitiveError with one line: the expected and the found value.
        """

    def refuse(self, expected: str) -> NoReturn:
        """Raise a :class:`PrimitiveError` that begins with the primitive's name."""
        raise PrimitiveError(f"{self.name}: {expected}")

    def require_plausible(self, sizes: tuple[Size, ...], spec: Spec) -> None:
        """Refuse result sizes that are no positive integers, in symbols or under a binding of the spec."""
        for size in sizes:
            if not size.is_plausible:
                self.refuse(f"expected sizes that can be positive integers, found {size}")
            for binding in spec.binding_maps:
                if not size.is_integral(binding):
                    bound = ", ".join(f"{k}={v}" for k, v in binding.items())
                    self.refuse(f"expected sizes that are integers for {bound}, found {size}")
