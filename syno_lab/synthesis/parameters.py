"""The sizes that primitives' parameters may have in a space: small monomials over the variables that may occur."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations_with_replacement

from syno_lab.ir.size import Size
from syno_lab.ir.spec import Spec

_MAX_COEFFICIENTS = 2  # in one parameter (a decision of DESIGN, section 4)


@lru_cache(maxsize=256)
def coefficient_products(spec: Spec) -> tuple[Size, ...]:
    """1 and every product of at most two coefficients or their inverses that the limits allow."""
    one = spec.symbols.one
    names = [n for n in spec.symbols.coefficient if spec.occurrence_limits[n] != 0]
    factors = [spec.symbols.size(f"{name}^{power}") for name in names for power in (1, -1)]
    sizes = {one}
    for count in range(1, _MAX_COEFFICIENTS + 1):
        for chosen in combinations_with_replacement(factors, count):
            size = one
            for factor in chosen:
                size = size * factor
            sizes.add(size)
    return tuple(sorted(sizes, key=lambda s: s.exponents))


@lru_cache(maxsize=256)
def reduce_sizes(spec: Spec) -> tuple[Size, ...]:
    """Sizes of REDUCEs: a primary over at most two coefficients, or at most two coefficients."""
    primaries = [spec.symbols.size(n) for n in spec.symbols.primary if spec.occurrence_limits[n] != 0]
    small = [s for s in coefficient_products(spec) if min(s.exponents, default=0) >= 0]
    below = [s for s in coefficient_products(spec) if max(s.exponents, default=0) <= 0]
    sizes = [s for s in small if not s.is_one] + [p * s for p in primaries for s in below]
    return tuple(size for size in sizes if spec.is_legal(size))


@lru_cache(maxsize=1 << 14)
def merge_blocks(spec: Spec, size: Size) -> tuple[Size, ...]:
    """The blocks that a coordinate of this size may be MERGEd into.

    One side is made of at most two coefficients, or these times a primary that the size has.
    """
    products = coefficient_products(spec)
    sides = [s for s in products if not s.is_one]
    for name, power in zip(spec.symbols.primary, size.primary_exponents, strict=True):
        if power:
            sides += [spec.symbols.size(name) * s for s in products]
    blocks = dict.fromkeys(block for side in sides for block in (side, size / side))
    return tuple(
        block
        for block in blocks
        if not block.is_one and block != size and spec.is_legal(block) and spec.is_legal(size / block)
    )
