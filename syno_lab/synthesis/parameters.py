"""The sizes that primitives' parameters may have in a space: small monomials over the variables that may occur."""

from __future__ import annotations

from itertools import combinations_with_replacement

from syno_lab.common.size import Size
from syno_lab.effort import Effort, kept
from syno_lab.errors import TooLargeError
from syno_lab.ir.spec import Spec

_MAX_COEFFICIENTS = 2  # in one parameter (a decision of DESIGN, section 4)
_MOST_COEFFICIENTS = 150  # that may occur: their products are 45,000, of which a multiset of REDUCEs takes some


@kept(64)
def coefficient_products(spec: Spec, *, effort: Effort | None = None) -> tuple[Size, ...]:
    """1 and every product of at most two coefficients or their inverses that the limits allow.

    Raises:
        TooLargeError: for more than 150 coefficients that may occur.
        EffortError: for what exceeds ``effort``.
    """
    watched = effort or Effort()
    one = spec.symbols.one
    names = [n for n in spec.symbols.coefficient if spec.occurrence_limits[n] != 0]
    if len(names) > _MOST_COEFFICIENTS:
        raise TooLargeError(
            f"too many sizes for REDUCE, MERGE and STRIDE: expected at most {_MOST_COEFFICIENTS} coefficients that "
            f"primitives may introduce, found {len(names)}; give the others a limit of 0, as in '{names[-1]}: 0'"
        )
    factors = [spec.symbols.size(f"{name}^{power}") for name in names for power in (1, -1)]
    sizes = {one}
    for count in range(1, _MAX_COEFFICIENTS + 1):
        for chosen in combinations_with_replacement(factors, count):
            watched.tick(f"multiplying {len(names)} coefficients")
            size = one
            for factor in chosen:
                size = size * factor
            sizes.add(size)
    return tuple(sorted(sizes, key=lambda s: s.exponents))


@kept(64)
def reduce_sizes(spec: Spec, *, effort: Effort | None = None) -> tuple[Size, ...]:
    """Sizes of REDUCEs: a primary over at most two coefficients, or at most two coefficients.

    Raises:
        EffortError: as :func:`coefficient_products`.
    """
    watched = effort or Effort()
    products = coefficient_products(spec, effort=watched)
    primaries = [spec.symbols.size(n) for n in spec.symbols.primary if spec.occurrence_limits[n] != 0]
    small = [s for s in products if min(s.exponents, default=0) >= 0]
    below = [s for s in products if max(s.exponents, default=0) <= 0]
    found = []
    for size in (s for s in small if not s.is_one):
        watched.tick(f"choosing the sizes for REDUCE of {len(products)} products")
        if spec.is_legal(size):
            found.append(size)
    for primary in primaries:
        for divisor in below:
            watched.tick(f"choosing the sizes for REDUCE of {len(products)} products")
            size = primary * divisor
            if spec.is_legal(size):
                found.append(size)
    return tuple(found)


@kept(1 << 14)
def merge_blocks(spec: Spec, size: Size, *, effort: Effort | None = None) -> tuple[Size, ...]:
    """The blocks that a coordinate of this size may be MERGEd into.

    One side is made of at most two coefficients, or these times a primary that the size has.

    Raises:
        EffortError: as :func:`coefficient_products`.
    """
    watched = effort or Effort()
    products = coefficient_products(spec, effort=watched)
    sides = [s for s in products if not s.is_one]
    for name, power in zip(spec.symbols.primary, size.primary_exponents, strict=True):
        if power:
            primary = spec.symbols.size(name)
            sides += [primary * s for s in products]
    found: dict[Size, None] = {}
    for side in sides:
        watched.tick(f"choosing the blocks for MERGE of {len(products)} products")
        for block in (side, size / side):
            if block in found or block.is_one or block == size:
                continue
            if spec.is_legal(block) and spec.is_legal(size / block):
                found[block] = None
    return tuple(found)
