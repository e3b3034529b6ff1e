"""A table of all terms of a linear operator of any system, and the fingerprint of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

MAX_TERMS = 1 << 25  # with this number, each array of indices takes 256 MiB
_ROUNDS = 6
# Odd 64-bit constants of the splitmix64 generator (Steele, Lea and Flood 2014), and a constant for each hash lane.
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_LANES = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Terms:
    """All terms of an operator: row ``t`` adds ``X[x[t]] * prod_k W_k[weights[k][t]]`` to ``Y[y[t]]``, ``count`` times.

    Indices are flat, in row-major order. ``x_shape`` is the input's shape.
    """

    y: Array
    x: Array
    weights: tuple[Array, ...]
    count: Array
    x_shape: tuple[int, ...]


def table_of(y: Array, x: Array, weights: list[Array], x_shape: tuple[int, ...]) -> Terms:
    """Build the table from a list of terms, for an operator of any system.

    Term ``t`` adds ``X[x[t]] * prod_k W_k[weights[k][t]]`` to ``Y[y[t]]``. Indices are flat, in row-major order. Equal
    terms become one row with a count; absorbed weights are merged.
    """
    unique, count = _count_rows([y, x, *_merge_absorbed(weights)])
    return Terms(unique[0], unique[1], tuple(unique[2:]), count, x_shape)


def table_fingerprint(table: Terms, free: Sequence[int] = ()) -> str:
    """Return 32 hexadecimal digits for a table of terms; positions along the input axes ``free`` have no order."""
    return "".join(f"{_refine(table, free, lane):016x}" for lane in _LANES)


def _refine(table: Terms, free: Sequence[int], lane: int) -> int:
    """Compute one 64-bit lane of the hash."""
    factor = int(np.gcd.reduce(table.count)) if len(table.count) else 1
    count = (table.count // max(factor, 1)).astype(np.uint64)
    axes = np.unravel_index(table.x, table.x_shape) if table.x_shape else ()
    pinned = np.zeros(len(table.x), dtype=np.uint64)
    for axis, index in enumerate(axes):
        if axis not in free:
            pinned = _mix(pinned * np.uint64(3) + index.astype(np.uint64) + np.uint64(1), lane)
    base = _mix(pinned + _mix(table.y.astype(np.uint64) + np.uint64(7), lane) * np.uint64(5) + count, lane)

    # The numbering is arbitrary for the elements of each weight and for the positions along each unordered axis.
    members = [*table.weights, *(axes[axis] for axis in free)]
    kinds = [np.uint64(1)] * len(table.weights) + [np.uint64(11 + axis) for axis in free]
    colours = [
        np.full(int(m.max()) + 1 if len(m) else 0, kind, np.uint64) for m, kind in zip(members, kinds, strict=True)
    ]
    distinct = -1
    term = base
    for _ in range(_ROUNDS):
        term = base
        mixed = [_mix(colour, lane) for colour in colours]
        total = np.zeros(len(base), dtype=np.uint64)
        for colour, member in zip(mixed, members, strict=True):
            total = total + colour[member]
        term = _mix(base + _mix(total, lane), lane)
        now = 0
        for i, member in enumerate(members):
            gathered = np.zeros(len(colours[i]), dtype=np.uint64)
            np.add.at(gathered, member, _mix(term ^ mixed[i][member], lane))
            colours[i] = _mix(colours[i] * np.uint64(31) + gathered, lane)
            now += len(np.unique(colours[i]))
        if now == distinct:
            break
        distinct = now
    head = 0
    for number in (*table.x_shape, len(table.weights), len(term)):
        head = (head * 1_000_003 + number) % (1 << 64)
    total_hash = np.array([head], dtype=np.uint64) + np.add.reduce(term, dtype=np.uint64, keepdims=True)
    return int(_mix(total_hash, lane)[0])


def _mix(value: Array, lane: int) -> Array:
    """Mix the bits of 64-bit words by a bijection (the finaliser of splitmix64), different for each lane."""
    with np.errstate(over="ignore"):
        value = (value + np.uint64(lane)).astype(np.uint64)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(_MIX[0])
        value = (value ^ (value >> np.uint64(27))) * np.uint64(_MIX[1])
        return value ^ (value >> np.uint64(31))


def _merge_absorbed(weights: list[Array]) -> list[Array]:
    """Drop each weight whose element is a function of another's in every term; without terms, drop all weights."""
    if weights and not len(weights[0]):
        return []
    remaining = list(weights)
    while True:
        pairs = permutations(range(len(remaining)), 2)
        absorbed = next((j for i, j in pairs if _determines(remaining[i], remaining[j])), None)
        if absorbed is None:
            return remaining
        del remaining[absorbed]


def _determines(big: Array, small: Array) -> bool:
    value = np.zeros(int(big.max()) + 1, dtype=np.int64)
    value[big] = small  # the value of any one term: if small is a function of big, all terms give the same value
    return bool((value[big] == small).all())


def _count_rows(columns: list[Array]) -> tuple[list[Array], Array]:
    """Count equal rows of the table ``columns``; return the distinct rows and their counts."""
    if not len(columns[0]):
        return columns, np.zeros(0, dtype=np.int64)
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in ordered])
    starts = np.flatnonzero(fresh)
    return [column[starts] for column in ordered], np.diff(np.append(starts, len(order)))
