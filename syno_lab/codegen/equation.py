"""The loop nest as an equation: text, LaTeX and sympy.

>>> import syno_lab as sl
>>> print(sl.operators.conv1d().equation())
Y[n, o, h] = sum over c < C_in, p < k_1 of [0 <= h + p - k_1//2 < H] X[n, c, h + p - k_1//2] W1[c, p, o]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syno_lab.codegen.loops import condition_text, make_program
from syno_lab.codegen.nest import Access, Condition, Nest, Program
from syno_lab.errors import SpecError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.synthesis.expressions import name, size_latex

if TYPE_CHECKING:
    import sympy

_ARRAY = re.compile(r"(?P<d>d?)(?P<stem>[A-Z])(?P<index>\w*)")


def equation(
    operator: Operator, binding: Binding | None = None, *, staged: bool = False, wrt: str | None = None
) -> Equation:
    """Implement :meth:`.Operator.equation`."""
    program = make_program(operator, binding, is_staged=staged, wrt=wrt, style="letters")
    if any(nest.scatters for nest in program.nests):
        raise SpecError(f"wrt: d{wrt} has no equation, because a primitive has no inverse; loops(wrt=...) has its nest")
    return Equation(program)


@dataclass(frozen=True)
class Equation:
    """An operator's equation, or an equation for each stage. Iverson brackets exclude terms outside a window's bounds.

    ``program`` has the loop nests of the equation.
    """

    program: Program

    def __str__(self) -> str:
        """Return plain text, one line for each stage; ``[...]`` is 1 where its condition holds, else 0."""
        return "\n".join(map(_text, self.program.nests))

    @property
    def latex(self) -> str:
        """The LaTeX text for display mathematics, without the delimiters."""
        lines = [_latex(nest, align=len(self.program.nests) > 1) for nest in self.program.nests]
        if len(lines) == 1:
            return lines[0]
        return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex}$"

    @property
    def equations(self) -> tuple[sympy.Eq, ...]:
        """The equations as sympy, one ``Eq`` for each stage.

        The right side is a ``Sum`` over the iterators; conditions make its terms a ``Piecewise``. Tensors are
        ``IndexedBase``, sizes are positive integer symbols, iterators are non-negative integer symbols. Sympy may
        divide a condition by a common factor, so evaluate the comparisons with rationals, not with floats.
        """
        return tuple(map(_sympy, self.program.nests))

    @property
    def sympy(self) -> sympy.Eq:
        """The sympy equation of the last stage; :attr:`equations` has all stages."""
        return self.equations[-1]


def _text(nest: Nest) -> str:
    over = ", ".join(f"{loop.name} < {loop.size.code}" for loop in nest.sums)
    brackets = "".join(f"[{condition_text(c)}] " for c in nest.conditions)
    factors = " ".join(f"{a.array}[{', '.join(map(str, a.index))}]" for a in nest.factors)
    target = f"{nest.result.array}[{', '.join(map(str, nest.result.index))}]"
    return f"{target} = " + (f"sum over {over} of " if over else "") + brackets + factors


def _latex(nest: Nest, align: bool = False) -> str:
    sums = "".join(rf"\sum_{{{name(loop.name).latex}=0}}^{{{size_latex(loop.size)}-1}} " for loop in nest.sums)
    brackets = "".join(rf"\left[{condition_latex(c)}\right] " for c in nest.conditions)
    factors = r" \, ".join(map(_access_latex, nest.factors))
    return f"{_access_latex(nest.result)} {'&' if align else ''}= {sums}{brackets}{factors}"


def condition_latex(condition: Condition) -> str:
    """Return a condition as LaTeX."""
    if condition.kind == "inside":
        return rf"0 \le {condition.value.latex} < {size_latex(condition.size)}"
    return rf"{(condition.value % condition.size).latex} = 0"


def _access_latex(access: Access) -> str:
    return f"{array_latex(access.array)}[{', '.join(e.latex for e in access.index)}]"


def array_latex(text: str) -> str:
    r"""Return an array's name as LaTeX: ``W_{1}``, ``\mathrm{d}X``."""
    match = _ARRAY.fullmatch(text)
    assert match is not None, text
    index = match["index"].replace("_", r"\_")
    return (r"\mathrm{d}" if match["d"] else "") + match["stem"] + (f"_{{{index}}}" if index else "")


def _sympy(nest: Nest) -> sympy.Eq:
    import sympy

    def access(read: Access) -> sympy.Expr:
        base = sympy.IndexedBase(read.array)
        # A scalar is sympy's plain symbol of that name.
        return base[tuple(e.sympy() for e in read.index)] if read.index else sympy.Symbol(read.array)

    def condition(asked: Condition) -> sympy.Basic:
        value, size = asked.value.sympy(), asked.size.to_sympy()
        if asked.kind == "inside":
            return sympy.And(sympy.Ge(value, 0), sympy.Lt(value, size))
        return sympy.Eq(sympy.Mod(value, size), 0)

    term: sympy.Expr = sympy.Mul(*map(access, nest.factors))
    if nest.conditions:
        term = sympy.Piecewise((term, sympy.And(*map(condition, nest.conditions))), (0, True))
    if nest.sums:
        # sympy's first limit is the innermost sum.
        limits = [(name(loop.name).sympy(), 0, loop.size.to_sympy() - 1) for loop in reversed(nest.sums)]
        term = sympy.Sum(term, *limits)
    return sympy.Eq(access(nest.result), term, evaluate=False)
