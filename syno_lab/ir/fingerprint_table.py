"""Hash numbers of a part's terms; the number of a product of parts is the product of the parts' numbers.

Each term of a part has a position on some output and input axes, and uses an element of each *member*: a weight, or an
unordered input axis. Elements may be renamed, unlike positions. All numbers are residues modulo :data:`MODULUS`:

* A fixed residue for each position on each axis; the residue of a term is the product over its axes.
* Sums over all terms, and over the terms that use one element of a member.
* Powers, and products over the members.

Each of these operations commutes with products of parts. A term of two parts together is a pair: one term of each part.
Two pairs use the same element if their first terms do and their second terms do. A sum over pairs of terms is the
product of two sums. Every number of an operator is the product of its parts' numbers, *however fine the parts are*.
Equal multisets of terms get equal numbers, even if one operator has finer parts.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

import numpy as np

from syno_lab.ir.fingerprint_parts import DIV, FLIP, MOD, OWN, SHIFT, SPLIT, STRIDE, UNFOLD, Expression, PartKey
from syno_lab.ir.primitives import PRIMITIVES

Array = np.ndarray[Any, Any]

# The five largest primes below 2^31: a product of two residues fits into 64 bits.
_PRIMES = (2147483647, 2147483629, 2147483587, 2147483579, 2147483563)
MODULUS = prod(_PRIMES)  # 155 bits
_CHINESE = [MODULUS // p * pow(MODULUS // p, -1, p) for p in _PRIMES]
# Exponents that identify a member or a pair of members. The first ten have no common factor with any p - 1, so powers
# of two different residues differ.
_POWERS = (13, 17, 19, 23, 29, 37, 41, 43, 47, 53)
_COUNT_POWER = 17
ROUNDS = 4
_AT_ONCE = 1 << 10  # Up to this number of terms, one array holds the residues for all primes.
_MEMO = 1 << 14  # The limit of cached parts, about 2 KiB each.
# Odd 64-bit constants of the splitmix64 generator (Steele, Lea and Flood 2014).
_GAMMA, _MIX = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_INPUT_AXES = 1 << 10  # the number of the first input axis among all axes


class Facts(NamedTuple):
    """The facts about a part that a fingerprint needs.

    Attributes:
        is_empty: whether the part has no terms.
        is_visible: whether no two terms have the same position.
        finer: for each member a mask of the members whose element the member's element determines in every term.
        single: a mask of the members with one element.
        apart: a number that describes all pairs of terms; also used for a member that is not in the part.
        pairs: for each member a number that describes the pairs of terms with the same element of this member.
    """

    is_empty: bool
    is_visible: bool
    finer: tuple[int, ...]
    single: int
    apart: int
    pairs: tuple[int, ...]


class _Table(NamedTuple):
    """The distinct terms of a part: (axis, positions), numbered elements of members, counts divided by their gcd."""

    axes: list[tuple[int, Array]]
    members: list[Array]
    counts: Array


@lru_cache(maxsize=_MEMO)
def facts(key: PartKey) -> Facts:
    """List the terms of a part and compute all facts that need no names of members.

    The number of a weight ``W`` is a sum over the pairs of terms with the same element of ``W``. Each pair adds the
    product of its terms' residues. This polynomial in the residues describes which terms share an element; the pair of
    a term with itself describes the term's count. If all positions differ, the fingerprint needs no other number.
    """
    table = _table(key)
    total = len(table.counts)
    if not total:
        return Facts(True, True, (), 0, 0, ())
    elements = [int(member.max()) + 1 for member in table.members]
    finer = tuple(
        sum(1 << j for j, small in enumerate(table.members) if _determines(big, elements[i], small))
        for i, big in enumerate(table.members)
    )
    single = sum(1 << i for i, number in enumerate(elements) if number == 1)
    _, positions = _joint([positions for _, positions in table.axes], total)
    groups = [_Grouped(member) for member in table.members]
    apart: list[int] = []
    pairs: list[list[int]] = [[] for _ in groups]
    for lanes in _lanes(total):
        p = lanes.primes
        times = _times(table.counts, p)
        first = _mod(times * _residues(table.axes, 0, lanes, total), p)
        second = _mod(times * _residues(table.axes, 1, lanes, total), p)
        apart += _total(_mod(_total_array(first, p) * _total_array(second, p), p), p)
        for group, out in zip(groups, pairs, strict=True):
            out += _total(_mod(group.sums(first, p) * group.sums(second, p), p), p)
    return Facts(False, positions == total, finer, single, _chinese(apart), tuple(map(_chinese, pairs)))


@lru_cache(maxsize=_MEMO)
def refined(key: PartKey, names: tuple[int, ...], absent: tuple[int, ...]) -> int:
    """Compute a number that also distinguishes terms of equal positions, by rounds of colour refinement.

    In each round, an element of a member gets the sum of its terms' residues. A term gets the product of its position's
    residue and its elements' numbers, each raised to the power for its member's name. A pair of elements of two members
    also counts as an element; otherwise a ring of six weights would look like two rings of three.

    Args:
        key: the part.
        names: a name for each member of the part, or -1 to leave out an absorbed weight.
        absent: the names of the members that have no element in the part.
    """
    table = _table(key)
    total = len(table.counts)
    named = sorted((name, member) for member, name in enumerate(names) if name >= 0)
    groups = [
        (_Grouped(_joint([table.members[i], table.members[j]], total)[0]), _pair(a, b))
        for (a, i), (b, j) in combinations(named, 2)
    ]
    exponent = sum(map(_exponent, absent)) + sum(_pair(*pair) for pair in combinations(sorted(absent), 2))
    # A pair of a present and an absent member groups the terms exactly as the present member does.
    groups += [
        (_Grouped(table.members[i]), _exponent(name) + sum(_pair(*sorted((name, other))) for other in absent))
        for name, i in named
    ]
    totals: list[int] = []
    for lanes in _lanes(total):
        p = lanes.primes
        times = _times(table.counts, p)
        colour = _mod(times * _residues(table.axes, 2, lanes, total), p)
        for level in range(3, 3 + ROUNDS):
            after = _mod(times * _residues(table.axes, level, lanes, total), p)
            if absent:
                after = _mod(after * _power(_total_array(colour, p), exponent, p), p)
            for group, power in groups:
                after = _mod(after * _power(group.sums(colour, p), power, p)[:, group.member], p)
            colour = after
        totals += _total(colour, p)
    return _chinese(totals)


def forget() -> None:
    """Clear the caches of parts, for measurements from a cold start."""
    for memory in (facts, refined, _table, _positions):
        memory.cache_clear()


# -- the terms -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _table(key: PartKey) -> _Table:
    shape = tuple(size for _, size in key.iterators)
    total = prod(shape)
    grids = np.ogrid[tuple(slice(size) for size in shape)]
    valid: Array = np.ones((1,) * len(shape), dtype=bool)

    def index(expression: Expression) -> Array:
        nonlocal valid
        if isinstance(expression, int):
            return grids[expression]
        operation, tree, *rest = expression
        value = index(tree)
        if operation == SHIFT:
            return (value + 1) % rest[0]
        if operation == SPLIT:
            return value * rest[1] + index(rest[0])
        if operation == DIV:
            return value // rest[0]
        if operation == MOD:
            return value % rest[0]
        if operation == STRIDE:
            return value * rest[0]
        if operation == FLIP:
            return rest[0] - 1 - value
        if operation == OWN:
            name, _, size = rest[0]
            return np.asarray(PRIMITIVES[name].index((value,), (size,), None)[0])
        assert operation == UNFOLD
        value = value + index(rest[0]) - rest[1]
        valid = valid & (value >= 0) & (value < rest[2])
        return value

    axes = [(axis, grids[i]) for i, (axis, _) in enumerate(key.iterators) if axis >= 0]
    axes += [(_INPUT_AXES + axis, index(expression)) for axis, expression in key.inputs]
    members = [[index(expression) for expression in member] for member in key.members]
    for expression in key.bounds:
        index(expression)

    keep = np.broadcast_to(valid, shape)
    is_full = bool(valid.all())
    terms = total if is_full else int(keep.sum())

    def column(grid: Array) -> Array:
        spread = np.broadcast_to(grid, shape)
        return spread.reshape(-1) if is_full else spread[keep]

    if not terms:
        return _Table([], [], np.zeros(0, dtype=np.int64))
    positions = [(axis, column(grid)) for axis, grid in axes]
    elements = [_joint([column(grid) for grid in member], terms)[0] for member in members]
    ids, distinct = _joint([*(c for _, c in positions), *elements], terms)
    if distinct < terms:
        count = np.bincount(ids, minlength=distinct)
        some = np.empty(distinct, dtype=np.int64)
        some[ids] = np.arange(terms)
        count //= int(np.gcd.reduce(count))
        return _Table([(axis, c[some]) for axis, c in positions], [e[some] for e in elements], count)
    return _Table(positions, elements, np.ones(terms, dtype=np.int64))


def _joint(columns: list[Array], rows: int) -> tuple[Array, int]:
    """Number the distinct rows of a table densely; return each row's number and the count of distinct rows."""
    if not columns:
        return np.zeros(rows, dtype=np.int64), 1
    key = columns[0]
    bound = int(key.max()) + 1
    for column in columns[1:]:
        size = int(column.max()) + 1
        if bound * size >= 1 << 62:
            distinct, key = np.unique(key, return_inverse=True)
            bound = len(distinct)
        key = key * size + column
        bound *= size
    if bound <= 4 * rows + 64:
        used = np.zeros(bound, dtype=np.int64)
        used[key] = 1
        number = used.cumsum()
        return number[key] - 1, int(number[-1])
    distinct, key = np.unique(key, return_inverse=True)
    return key, len(distinct)


def _determines(big: Array, elements: int, small: Array) -> bool:
    value = np.zeros(elements, dtype=np.int64)
    value[big] = small  # of any term; all terms are equal if big determines small
    return bool((value[big] == small).all())


# -- residues --------------------------------------------------------------------------------------------------------


class _Lanes(NamedTuple):
    """Primes whose residues are computed together: an array or a single number; ``rows`` are their indices."""

    primes: Any
    rows: slice


def _lanes(total: int) -> list[_Lanes]:
    column = np.array(_PRIMES, dtype=np.uint64)[:, None]
    if total <= _AT_ONCE:
        return [_Lanes(column, slice(None))]
    return [_Lanes(np.uint64(p), slice(i, i + 1)) for i, p in enumerate(_PRIMES)]


def _mod(values: Array, primes: Any) -> Array:
    if isinstance(primes, np.uint64):
        return values - values // primes * primes  # NumPy computes // by a number several times faster than %
    return values % primes


class _Grouped:
    """Terms sorted by their element of one member."""

    def __init__(self, member: Array) -> None:
        self.member = member
        elements = int(member.max()) + 1
        self.is_identity = elements == len(member)
        self.order = np.argsort(member, kind="stable")
        self.starts = np.searchsorted(member[self.order], np.arange(elements))

    def sums(self, residues: Array, primes: Any) -> Array:
        """Sum the residues of each element's terms."""
        sorted_residues = residues[:, self.order]
        if self.is_identity:
            return sorted_residues
        return _mod(np.add.reduceat(sorted_residues, self.starts, axis=1), primes)


def _residues(axes: list[tuple[int, Array]], level: int, lanes: _Lanes, total: int) -> Array:
    product: Array | None = None
    for axis, positions in axes:
        residues = _positions(axis, level, int(positions.max()) + 1)[lanes.rows][:, positions]
        product = residues if product is None else _mod(product * residues, lanes.primes)
    return np.ones((1, total), dtype=np.uint64) if product is None else product


def _times(counts: Array, primes: Any) -> Array:
    """Return the factor by which a term's count changes its residue, for each term."""
    return _power(_mod(counts.astype(np.uint64)[None, :], primes), _COUNT_POWER, primes)


@lru_cache(maxsize=1024)
def _positions(axis: int, level: int, size: int) -> Array:
    """Return fixed residues other than 0 for the positions along an axis, a row for each prime."""
    with np.errstate(over="ignore"):
        start = np.arange(len(_PRIMES), dtype=np.uint64)[:, None] + np.uint64(8 * (level + 16 * axis) + 1)
        word = _mix(_mix(start) + np.arange(size, dtype=np.uint64)[None, :] * np.uint64(_GAMMA))
    return word % (np.array(_PRIMES, dtype=np.uint64)[:, None] - np.uint64(1)) + np.uint64(1)


def _mix(value: Array) -> Array:
    """Mix the bits of 64-bit words by a bijection, the last step of splitmix64."""
    value = value * np.uint64(_GAMMA)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(_MIX[0])
    value = (value ^ (value >> np.uint64(27))) * np.uint64(_MIX[1])
    return value ^ (value >> np.uint64(31))


def _exponent(name: int) -> int:
    return _POWERS[name] if name < len(_POWERS) else 59 + 2 * (name - len(_POWERS))


def _pair(first: int, second: int) -> int:
    """Return the exponent for a pair of members; ``first`` is less than ``second``."""
    return _exponent(len(_POWERS) + second * (second - 1) // 2 + first)


def _power(base: Array, exponent: int, primes: Any) -> Array:
    result = base
    for bit in bin(exponent)[3:]:
        result = _mod(result * result, primes)
        if bit == "1":
            result = _mod(result * base, primes)
    return result


def _total_array(residues: Array, primes: Any) -> Array:
    return _mod(residues.sum(axis=1, keepdims=True, dtype=np.uint64), primes)


def _total(residues: Array, primes: Any) -> list[int]:
    return _total_array(residues, primes)[:, 0].tolist()


def _chinese(residues: list[int]) -> int:
    return sum(r * c for r, c in zip(residues, _CHINESE, strict=True)) % MODULUS
