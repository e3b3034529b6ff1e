"""Sizes: monomials over named variables, and the parser of the strings in which users write them.

A size such as ``s^-1*H`` is stored as a tuple of integer exponents over the variables of a :class:`Symbols`. *Primary*
variables (``H``, ``C_in``) are large and belong to the input and the output. *Coefficient* variables (``k_1``, ``s``)
are small and come from primitives; only they may have negative exponents (Syno, section 5.3).
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import add, index, sub
from typing import TYPE_CHECKING

from syno_lab.errors import SpecError
from syno_lab.inputs import LARGEST_SIZE, MOST_DIGITS, QUOTED, integer, positive, printable, quoted

if TYPE_CHECKING:
    import sympy

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_FACTOR = re.compile(r"\s*(?P<name>[A-Za-z_][A-Za-z_0-9]*|[0-9]+)\s*(?:\^\s*(?P<power>-?[0-9]+))?\s*")
_MAX_POWER = 64
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
# The limit of bits of a numerator or a denominator; a size up to `LARGEST_SIZE` needs far fewer bits.
_MOST_BITS = 4096


@dataclass(frozen=True)
class Symbols:
    """The variables of sizes, primary variables first; equal names mean equal variables."""

    primary: tuple[str, ...]
    coefficient: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name in self.names:
            if not _NAME.fullmatch(name):
                raise SpecError(f"variable {quoted(name)}: expected a name of letters, digits and _, as in C_in or k_1")
            if name == "range" or keyword.iskeyword(name):  # loop nests and modules use variables as Python names
                raise SpecError(f"variable {quoted(name)} is a word of Python; expected another name, such as {name}_1")
            if name in seen:
                raise SpecError(f"variable {quoted(name)} is declared twice; give each variable one place")
            seen.add(name)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return all variables, primary variables first; exponents of a size have the same order."""
        return self.primary + self.coefficient

    @cached_property
    def position(self) -> dict[str, int]:
        """Map each variable to the index of its exponent."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def one(self) -> Size:
        """Return the size 1, with all exponents zero."""
        return Size(self, (0,) * len(self.names))

    @property
    def unused(self) -> str:
        """Return a name that no variable has, for messages that propose a name."""
        names = ("C", "D", *(f"n_{i}" for i in range(len(self.names))))
        return next(name for name in names if name not in self.position)

    def size(self, text: str | Size) -> Size:
        """Parse a monomial: ``"s^2*C"``, ``"s^-1*H"``, ``"H/s"`` or ``"1"``.

        Raises SpecError for an unknown variable, a number other than 1, or a text that is no monomial.
        """
        return text if isinstance(text, Size) else parse_size(text, self)

    def shape(self, text: str) -> tuple[Size, ...]:
        """Parse a shape such as ``"[N, C_in, H, W]"`` into its sizes; ``"[]"`` is a scalar."""
        return tuple([self.size(part) for part in split_shape(text)])


class Size:
    """A monomial over the variables of ``symbols``, immutable and hashable.

    ``exponents[i]`` is the power of ``symbols.names[i]``.
    """

    __slots__ = ("_hash", "exponents", "symbols")

    def __init__(self, symbols: Symbols, exponents: tuple[int, ...]) -> None:
        self.symbols = symbols
        self.exponents = exponents
        self._hash = hash(exponents)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Size):
            return NotImplemented
        return self.exponents == other.exponents and (self.symbols is other.symbols or self.symbols == other.symbols)

    def __hash__(self) -> int:
        return self._hash

    def __mul__(self, other: Size) -> Size:
        return Size(self.symbols, tuple(map(add, self.exponents, other.exponents)))

    def __truediv__(self, other: Size) -> Size:
        return Size(self.symbols, tuple(map(sub, self.exponents, other.exponents)))

    def __pow__(self, power: int) -> Size:
        return Size(self.symbols, tuple(a * power for a in self.exponents))

    @property
    def factors(self) -> dict[str, int]:
        """Map each variable with a power other than 0 to its power."""
        return {name: power for name, power in zip(self.symbols.names, self.exponents, strict=True) if power}

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of the variables with a power other than 0."""
        return tuple(self.factors)

    @property
    def is_one(self) -> bool:
        """Return whether every exponent is zero."""
        return not any(self.exponents)

    @property
    def primary_exponents(self) -> tuple[int, ...]:
        """Return the exponents of the primary variables."""
        return self.exponents[: len(self.symbols.primary)]

    @property
    def has_primary(self) -> bool:
        """Return whether a primary variable occurs."""
        return any(self.primary_exponents)

    @property
    def is_plausible(self) -> bool:
        """Return whether the size can be an integer: it divides by no primary, and is not only 1 over coefficients."""
        if min(self.primary_exponents, default=0) < 0:
            return False
        return self.has_primary or max(self.exponents, default=0) > 0 or self.is_one

    def at(self, binding: Mapping[str, int]) -> int:
        """Evaluate the size for a binding, as a positive integer.

        Raises SpecError when a variable has no value, or the result is no positive integer or over `LARGEST_SIZE`.
        """
        above = below = 1
        for name, power in zip(self.symbols.names, self.exponents, strict=True):
            if power:
                if name not in binding:
                    bound = _cut(", ".join(map(str, binding))) or "none"
                    raise SpecError(f"size {_cut(str(self))}: variable {_cut(name)} is not bound; bound are {bound}")
                number = index(binding[name])  # NumPy's integers would overflow
                if abs(power) * number.bit_length() > _MOST_BITS:
                    raise _too_large(self, binding)
                if power > 0:
                    above *= number**power
                else:
                    below *= number**-power
        if below == 0 or above % below or above <= 0:
            raise SpecError(
                f"size {_cut(str(self))} is {quoted(above)}/{quoted(below)} for {_format_binding(self, binding)}: "
                "expected a positive integer"
            )
        if above // below > LARGEST_SIZE:
            raise _too_large(self, binding)
        return above // below

    def is_integral(self, binding: Mapping[str, int]) -> bool:
        """Return whether :meth:`at` succeeds for ``binding``."""
        try:
            self.at(binding)
        except SpecError:
            return False
        return True

    def __str__(self) -> str:
        """Write the size as :func:`parse_size` reads it, coefficients first as in the paper: ``s^-1*H``."""
        n = len(self.symbols.primary)
        order = [*range(n, len(self.exponents)), *range(n)]
        names = self.symbols.names
        powers = [(names[i], self.exponents[i]) for i in order if self.exponents[i]]
        parts = [name if power == 1 else f"{name}^{power}" for name, power in powers]
        return "*".join(parts) or "1"

    def __repr__(self) -> str:
        return f"Size({str(self)!r})"

    @property
    def pretty(self) -> str:
        """Return the size for pictures: ``H/s``, ``C_in·k_1²``."""
        return self.written("·", "/", lambda name, power: name + (str(power).translate(_RAISED) if power > 1 else ""))

    @property
    def code(self) -> str:
        """Return the size as a Python expression over integers: ``H//s``."""
        return self.written("*", "//", lambda name, power: "*".join([name] * power))

    def written(self, times: str, over: str, factor: Callable[[str, int], str]) -> str:
        """Write the size as a quotient of products; ``factor`` formats a variable with a positive power."""
        sides: tuple[list[str], list[str]] = ([], [])
        for name, power in self.factors.items():
            sides[power < 0].append(factor(name, abs(power)))
        above, below = (times.join(side) for side in sides)
        return (above or "1") + (f"{over}({below})" if times in below else f"{over}{below}" if below else "")

    def to_sympy(self) -> sympy.Expr:
        """Convert the monomial to a sympy expression over positive integer symbols, for display and proofs."""
        import sympy

        return sympy.Mul(*(sympy.Symbol(n, integer=True, positive=True) ** power for n, power in self.factors.items()))


def product(sizes: Iterable[Size], symbols: Symbols) -> Size:
    """Return the product of sizes; 1 for no sizes."""
    result = symbols.one
    for size in sizes:
        result = result * size
    return result


def value(sizes: Iterable[Size], binding: Mapping[str, int]) -> int:
    """Count the elements of a tensor of this shape for a binding."""
    return prod(size.at(binding) for size in sizes)


def bound_size(value: object, name: str, system: str = "") -> int:
    """Return the integer to which a binding binds ``name``. Raises SpecError unless it is whole and 1 or more."""
    number = positive(value)
    if number is None:
        found = f"found {quoted(value)}; at most {MOST_DIGITS} digits are read"
        raise SpecError(f"{system and f'{system}: '}expected a whole number from 1 up for {name}, {found}")
    return number


def parse_size(text: str, symbols: Symbols) -> Size:
    """Parse one monomial over ``symbols``; see :meth:`Symbols.size`."""
    if not isinstance(text, str):
        raise SpecError(f"size {quoted(text)}: expected a text such as 's^-1*H' of variables that are declared")
    exponents = [0] * len(symbols.names)
    place, sign = 0, 1
    while True:
        match = _FACTOR.match(text, place)
        if not match:
            rest = quoted(text[place : place + QUOTED + 1].strip())
            raise SpecError(f"size {quoted(text)}: expected a product of powers such as s^-1*H, found {rest}")
        name, written = match["name"], match["power"] or "1"
        if name != "1" and name.isdecimal():
            new = symbols.unused
            raise SpecError(
                f"size {quoted(text)}: expected variables, found the number {_cut(name)}; declare it, as in "
                f"'{new}={_cut(name)}' of primary_specs or coefficient_specs, and write {new} here"
            )
        power = integer(written.removeprefix("-"))
        if power is None or power > _MAX_POWER:
            raise _too_high(text, f"{name}^{written}")
        if name != "1":
            if name not in symbols.position:
                declared = _cut(", ".join(symbols.names)) or "none"
                raise SpecError(f"size {quoted(text)}: unknown variable {quoted(name)}; declared are {declared}")
            position = symbols.position[name]
            exponents[position] += -sign * power if written.startswith("-") else sign * power
            if abs(exponents[position]) > _MAX_POWER:
                raise _too_high(text, f"{name}^{exponents[position]}")
        place = match.end()
        if place == len(text):
            return Size(symbols, tuple(exponents))
        if text[place] not in "*/":
            rest = quoted(text[place : place + QUOTED + 1])
            raise SpecError(f"size {quoted(text)}: expected * or / after {quoted(name)}, found {rest}")
        sign = 1 if text[place] == "*" else -1
        place += 1


def _too_high(text: str, power: str) -> SpecError:
    return SpecError(f"size {quoted(text)}: expected powers of at most {_MAX_POWER}, found {_cut(power)}")


def shape_text(sizes: Iterable[object]) -> str:
    """Format a shape as the parser reads it: ``[N, C_in, H, W]``."""
    return f"[{', '.join(map(str, sizes))}]"


def split_shape(text: str) -> list[str]:
    """Return the texts between the commas of ``"[a, b]"``."""
    stripped = text.strip()
    if not (stripped.startswith("[") and stripped.endswith("]")):
        raise SpecError(f"shape {quoted(text)}: expected sizes in brackets, as in [N, C_in, H, W]")
    inner = stripped[1:-1].strip()
    parts = [part.strip() for part in inner.split(",")] if inner else []
    if "" in parts:
        raise SpecError(f"shape {quoted(text)}: dimension {parts.index('')} is empty; write one size between commas")
    return parts


def _format_binding(size: Size, binding: Mapping[str, int]) -> str:
    return _cut(", ".join(f"{name}={quoted(binding[name])}" for name in size.factors)) or "any binding"


def _too_large(size: Size, binding: Mapping[str, int]) -> SpecError:
    return SpecError(
        f"size {_cut(str(size))} is larger than {LARGEST_SIZE} for {_format_binding(size, binding)}: "
        "bind its variables to smaller numbers"
    )


def _cut(text: str) -> str:
    return printable(text, QUOTED)
