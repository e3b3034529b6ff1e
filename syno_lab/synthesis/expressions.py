r"""Coordinate expressions as trees, for text, LaTeX and sympy.

An :class:`Expression` behaves like a number, so :attr:`.Primitive.index` builds the expression that it computes,
in Table 1's order. Nothing is simplified: the result shows exactly what the primitives compute.

>>> from syno_lab.common.size import Symbols
>>> symbols = Symbols(("H",), ("s",))
>>> i = name("#0")
>>> high = i // size(symbols.size("s^-1*H"))
>>> print(high, "|", high.latex)
#0//(H//s) | \left\lfloor \#_{0} / (H/s) \right\rfloor
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partialmethod
from typing import TYPE_CHECKING, Literal

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.state import State

if TYPE_CHECKING:
    import sympy

Operation = Literal["+", "-", "*", "//", "%"]
_PLUS, _TIMES, _ATOM = 1, 2, 3
_RANK = {"+": _PLUS, "-": _PLUS, "*": _TIMES, "//": _TIMES, "%": _TIMES}
_NAME = re.compile(r"(?P<stem>#|[A-Za-z]+)(?:_(?=.))?(?P<index>\w*)")


@dataclass(frozen=True)
class Expression:
    """A name, a size, a number, or an operation on two expressions.

    Attributes:
        leaf: the name, the size or the number; None for an operation.
        operation: the operation; ``//`` is floor division, ``%`` its remainder.
        left: the first operand of an operation.
        right: the second operand of an operation.
    """

    leaf: str | Size | int | None = None
    operation: Operation | None = None
    left: Expression | None = None
    right: Expression | None = None

    def _then(self, operation: Operation, other: object) -> Expression:
        return Expression(None, operation, self, _lift(other))

    def _behind(self, operation: Operation, other: object) -> Expression:
        return Expression(None, operation, _lift(other), self)

    __add__, __radd__ = partialmethod(_then, "+"), partialmethod(_behind, "+")
    __sub__, __rsub__ = partialmethod(_then, "-"), partialmethod(_behind, "-")
    __mul__, __rmul__ = partialmethod(_then, "*"), partialmethod(_behind, "*")
    __floordiv__, __rfloordiv__ = partialmethod(_then, "//"), partialmethod(_behind, "//")
    __mod__, __rmod__ = partialmethod(_then, "%"), partialmethod(_behind, "%")

    def __str__(self) -> str:
        """Return a Python expression over integers, except for wildcards such as ``#0``."""
        if self.operation is None:
            return self.leaf.code if isinstance(self.leaf, Size) else str(self.leaf)
        assert self.left is not None
        assert self.right is not None
        sign = self.operation
        if sign in "+-":
            return f"{self.left} {sign} {self.right._bracketed(_PLUS if sign == '+' else _TIMES)}"
        # Without brackets, a quotient on the left of * would mean something else.
        keeps = sign == "*" and not self.left._divides
        left = self.left._bracketed(_TIMES if keeps else _ATOM)
        spaced = " % " if sign == "%" else sign
        return f"{left}{spaced}{self.right._bracketed(_ATOM)}"

    @property
    def _rank(self) -> int:
        if self.operation is not None:
            return _RANK[self.operation]
        if isinstance(self.leaf, Size) and not (self.leaf.code.isidentifier() or self.leaf.code.isdecimal()):
            return _TIMES
        return _ATOM

    @property
    def _divides(self) -> bool:
        """Return whether the outermost operation is a division or a remainder."""
        return self.operation in ("//", "%") or (isinstance(self.leaf, Size) and "/" in self.leaf.code)

    def as_factor(self) -> tuple[str, str]:
        """Return text and LaTeX, in brackets where a factor needs them."""
        return self._bracketed(_ATOM if self._divides else _TIMES), self._latex_in(_TIMES)

    def _bracketed(self, rank: int) -> str:
        return str(self) if self._rank >= rank else f"({self})"

    @property
    def latex(self) -> str:
        r"""Return LaTeX for display mathematics; floor division has floor signs, the remainder is ``\bmod``."""
        if isinstance(self.leaf, Size):
            return size_latex(self.leaf)
        if self.operation is None:
            return _name_latex(self.leaf) if isinstance(self.leaf, str) else str(self.leaf)
        assert self.left is not None
        assert self.right is not None
        left, right = self.left, self.right
        if self.operation == "//":
            return rf"\left\lfloor {left._latex_in(_TIMES)} / {right._latex_in(_ATOM)} \right\rfloor"
        if self.operation == "%":
            return rf"{left._latex_in(_ATOM)} \bmod {right._latex_in(_ATOM)}"
        if self.operation == "*":
            return rf"{left._latex_in(_TIMES)} \, {right._latex_in(_TIMES)}"
        rank = _PLUS if self.operation == "+" else _TIMES
        return f"{left._latex_in(_PLUS)} {self.operation} {right._latex_in(rank)}"

    def _latex_in(self, rank: int) -> str:
        return self.latex if self._latex_rank >= rank else f"({self.latex})"

    @property
    def _latex_rank(self) -> int:
        if isinstance(self.leaf, Size):
            code = size_latex(self.leaf)
            return 0 if "/" in code else _TIMES if r"\," in code else _ATOM
        if self.operation in ("//", None):
            return _ATOM  # a floor has its own brackets
        return 0 if self.operation == "%" else self._rank  # \bmod has no agreed rank, so it always gets brackets

    def sympy(self) -> sympy.Expr:
        """Convert to unevaluated sympy, with ``floor`` and ``Mod``; names are non-negative, sizes positive integers."""
        import sympy

        if isinstance(self.leaf, Size):
            return self.leaf.to_sympy()
        if isinstance(self.leaf, str):
            return sympy.Symbol(self.leaf, integer=True, nonnegative=True)
        if self.leaf is not None:
            return sympy.Integer(self.leaf)
        assert self.left is not None
        assert self.right is not None
        left, right = self.left.sympy(), self.right.sympy()
        if self.operation == "-":
            return sympy.Add(left, sympy.Mul(-1, right, evaluate=False), evaluate=False)
        if made := {"+": sympy.Add, "*": sympy.Mul, "%": sympy.Mod}.get(self.operation or ""):
            return made(left, right, evaluate=False)
        quotient = left / right if right.is_Integer else sympy.Mul(left, sympy.Pow(right, -1), evaluate=False)
        return sympy.floor(quotient, evaluate=False)


def _lift(value: object) -> Expression:
    if isinstance(value, Expression):
        return value
    if isinstance(value, str | Size | int):
        return Expression(value)
    raise TypeError(f"expected an expression, a size or an integer, found {type(value).__name__}")


def name(text: str) -> Expression:
    """Return the expression of an iterator or a wildcard by its name: ``i0``, ``r1``, ``#2``."""
    return Expression(text)


def size(value: Size) -> Expression:
    """Return the expression of a size."""
    return Expression(value)


def _name_latex(text: str) -> str:
    match = _NAME.fullmatch(text)
    if match is None:
        return r"\mathrm{" + text.replace("_", r"\_") + "}"
    stem = match["stem"].replace("#", r"\#")
    index = match["index"].replace("_", r"\_")
    return f"{stem}_{{{index}}}" if index else stem


def size_latex(value: Size) -> str:
    r"""Write a size as LaTeX: ``C_{in} \, k_{1}^{2}``, ``H/s``."""
    return value.written(r" \, ", "/", lambda name, power: _name_latex(name) + (f"^{{{power}}}" if power > 1 else ""))


def iterators(state: State) -> dict[Coordinate, Expression]:
    """Name a state's iterators: ``i0`` for output axis 0, ``r1`` for its second reduction."""
    names = {leaf: name(f"i{axis}") for axis, leaf in enumerate(state.output)}
    names.update({leaf: name(f"r{number}") for number, leaf in enumerate(state.reductions)})
    return names


def expression(coordinate: Coordinate, names: Mapping[Coordinate, Expression]) -> Expression:
    """Return the expression of a coordinate over named coordinates.

    Args:
        coordinate: a coordinate that is built from the named coordinates.
        names: the iterators (see :func:`iterators`), or the bottom coordinates of a part of a pGraph.

    Raises KeyError for an iterator without a name.
    """
    if coordinate in names:
        return names[coordinate]
    node = coordinate.node
    if coordinate.is_leaf:
        raise KeyError(f"{coordinate!r} has no name")
    args = tuple(expression(c, names) for c in node.operands)
    sizes = tuple(size(c.size) for c in node.operands)
    parameter = None if node.parameter is None else size(node.parameter)
    return PRIMITIVES[node.primitive].index(args, sizes, parameter)[coordinate.index]
