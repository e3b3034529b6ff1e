"""The sizes of Canvas: monomials over C, H, W, the window, the number of groups and the dynamic variables.

C channels, H rows and W columns of a template; KH and KW the window of the replaced convolution; G the number of
groups, one for a whole network; x0 to x7 *dynamic variables*: sizes that stay free until they are solved (Canvas,
section 6.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import product

from syno_lab.common.size import Size, Symbols

#: Dynamic variables that one draft may have at a time.
MOST_VARIABLES = 8
SYMBOLS = Symbols(("C", "H", "W"), ("G", "KH", "KW", *(f"x{number}" for number in range(MOST_VARIABLES))))

ONE = SYMBOLS.one
C, H, W, G, KH, KW = map(SYMBOLS.size, ("C", "H", "W", "G", "KH", "KW"))
#: The elements of the input and of the output of a template.
IMAGE = C * H * W

_C, _G = SYMBOLS.position["C"], SYMBOLS.position["G"]
_FIRST = SYMBOLS.position["x0"]


@lru_cache(maxsize=1 << 12)
def parse(text: str) -> Size:
    """The size of a text such as ``C/G`` or ``G^-1*C``. Raises SpecError."""
    return SYMBOLS.size(text)


def volume_of(sizes: Iterable[Size]) -> Size:
    """The product of sizes."""
    found = ONE
    for size in sizes:
        found = found * size
    return found


def variable(number: int) -> Size:
    """The dynamic variable of this number."""
    return parse(f"x{number}")


@lru_cache(maxsize=1 << 16)
def variables_of(size: Size) -> tuple[tuple[int, int], ...]:
    """The dynamic variables in a size: their numbers with their exponents."""
    return tuple([(number, power) for number, power in enumerate(size.exponents[_FIRST:]) if power])


def static_part(size: Size) -> Size:
    """The size without its dynamic variables."""
    return Size(SYMBOLS, size.exponents[:_FIRST] + (0,) * MOST_VARIABLES)


@lru_cache(maxsize=1 << 16)
def substitute(size: Size, number: int, by: Size) -> Size:
    """The size with ``by`` in the place of a dynamic variable."""
    power = size.exponents[_FIRST + number]
    return size / variable(number) ** power * by**power if power else size


@lru_cache(maxsize=1 << 16)
def fault_of(size: Size) -> str | None:
    """Why a size can be no dimension, or None.

    Without a dynamic variable nothing may stand below the line but G, and each G below needs a C above, because G
    divides C and nothing else is known to divide anything. With one above the line any quotient may still become whole;
    the solver by constraints sees to it. Theorem 1 (section 6.2): none below, and at most one, to the power 1, above.
    """
    powers = size.exponents[_FIRST:]
    if min(powers) < 0:
        return f"a dynamic variable is below the line in {size.pretty}"
    if sum(powers) > 1:
        return f"more than one dynamic variable is in {size.pretty}"
    if any(powers):
        return None
    static = size.exponents[:_FIRST]
    if any(power < 0 for place, power in enumerate(static) if place != _G):
        return f"{size.pretty} is not always a whole number"
    if -static[_G] > static[_C]:
        return f"{size.pretty} is no whole number for all C that G divides"
    return None


def is_legal(size: Size) -> bool:
    """Whether a size may be a dimension: see :func:`fault_of`."""
    return fault_of(size) is None


@lru_cache(maxsize=1 << 14)
def factors(size: Size) -> tuple[Size, ...]:
    """The factors of what stands above the line in a size: products of smaller powers; a C may also give G or C/G.

    1 is a factor, and so is a dynamic variable.
    """
    found = {ONE}
    for name, power in zip(SYMBOLS.names, size.exponents, strict=True):
        choices = (ONE, C, G, C / G) if name == "C" else (ONE, parse(name))
        for _ in range(power):
            found = {a * b for a, b in product(found, choices)}
    return tuple(sorted(filter(is_legal, found), key=lambda size: size.exponents))
