"""Measure at how many points the two sides of a rewrite read different elements, by evaluating all points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Binding

if TYPE_CHECKING:
    from syno_lab.synthesis.rewrites_parts import Side

MAX_POINTS = 1 << 22  # the limit of points for one side: about a second
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Reads:
    """One row for each point: the wildcards' values (flat), and the elements that are read of X and of each weight.

    An index of -1 means out of bounds. Every row counts ``times`` times.
    """

    bottom: Array
    x: Array
    weights: tuple[Array, ...]
    times: int


def reads(side: Side, binding: Binding) -> Reads:
    """List what one side reads at every point, with reductions innermost.

    Raises SynoError when there are more than ``MAX_POINTS`` points.
    """
    total = side.points(binding)
    if total > MAX_POINTS:
        raise SynoError(f"rewrite: expected at most {MAX_POINTS} points, found {total}; use a smaller binding")
    loops = (*side.state.output, *side.state.reductions)
    shape = tuple(c.size.at(binding) for c in loops)
    grids: dict[Coordinate, Array] = dict(zip(loops, np.ogrid[tuple(slice(n) for n in shape)], strict=True))
    valid: Array = np.ones(shape, dtype=bool)
    for coordinate in (*side.tops, *side.state.expanded, *(c for w in side.state.weights for c in w.coordinates)):
        valid = valid & _evaluate(coordinate, grids, binding)

    def flat(coordinates: Sequence[Coordinate]) -> Array:
        index: Array = np.zeros((1,) * len(shape), dtype=np.int64)
        for coordinate in coordinates:
            index = index * coordinate.size.at(binding) + grids[coordinate]
        return np.broadcast_to(index, shape).ravel()

    def read(coordinates: Sequence[Coordinate]) -> Array:
        return np.where(valid.ravel(), flat(coordinates), -1)

    weights = tuple(read(w.coordinates) for w in side.state.weights)
    return Reads(flat(side.state.output), read(side.tops), weights, side.factor.at(binding))


def difference(before: Side, after: Side, binding: Binding) -> float:
    """Return the share of the points at which two sides read different elements; see :meth:`.Rewrite.differing`.

    Raises SynoError when there are more than ``MAX_POINTS`` points.
    """
    first, second = reads(before, binding), reads(after, binding)
    if not (first.weights or second.weights):
        return _uncommon(first, second)
    left, right = _absorb(first.weights), _absorb(second.weights)
    if len(left) != len(right) or len(first.x) != len(second.x) or first.times != second.times:
        return 1.0  # the sides differ in form, so points cannot be compared
    same = (first.x == second.x) & (first.bottom == second.bottom)
    return min(1.0 - float((same & _agree(left, order)).mean()) for order in permutations(right))


def _evaluate(coordinate: Coordinate, grids: dict[Coordinate, Array], binding: Binding) -> Array:
    """Fill in ``grids[coordinate]``; return the points where no UNFOLD in the coordinate is out of bounds."""
    if coordinate.is_leaf:
        return np.array(True)
    node = coordinate.node
    valid = np.array(True)
    for operand in node.operands:
        valid = valid & _evaluate(operand, grids, binding)
    primitive = PRIMITIVES[node.primitive]
    sizes = tuple(c.size.at(binding) for c in node.operands)
    parameter = None if node.parameter is None else node.parameter.at(binding)
    index: Array = primitive.index(tuple(grids[c] for c in node.operands), sizes, parameter)[coordinate.index]
    grids[coordinate] = index
    return valid & (index >= 0) & (index < coordinate.size.at(binding)) if primitive.clips else valid


def _uncommon(before: Reads, after: Reads) -> float:
    """Compare the multisets of terms for each value of the wildcards; return the share of terms that one side lacks."""
    rows = np.concatenate([np.stack([r.bottom, r.x], axis=1) for r in (before, after)])
    unique, member = np.unique(rows, axis=0, return_inverse=True)
    first, second = np.split(member.ravel(), [len(before.x)])
    left = np.bincount(first, minlength=len(unique)) * before.times
    right = np.bincount(second, minlength=len(unique)) * after.times
    inside = unique[:, 1] >= 0
    if (left[inside] * right[inside].sum() == right[inside] * left[inside].sum()).all():
        return 0.0  # a constant factor of the whole operator does not matter
    return 1.0 - float(np.minimum(left, right).sum() / max(left.sum(), right.sum()))


def _absorb(weights: Sequence[Array]) -> list[Array]:
    """Drop each weight that another weight's element determines: the product of the two is one trainable number."""
    remaining = list(weights)
    for small in weights:
        rest = [w for w in remaining if w is not small]
        if any(np.unique(np.stack([w, small]), axis=1).shape[1] == len(np.unique(w)) for w in rest):
            remaining = rest
    return remaining


def _agree(left: Sequence[Array], right: Sequence[Array]) -> Array:
    """Return the points that agree after the best one-to-one renaming of each weight's elements."""
    agree: Array = np.ones(1, dtype=bool)
    for x, y in zip(left, right, strict=True):
        pairs, member, count = np.unique(np.stack([x, y]), axis=1, return_inverse=True, return_counts=True)
        order = np.argsort(-count, kind="stable")
        chosen = np.ones(len(order), dtype=bool)
        for side in pairs:
            first = np.zeros(len(order), dtype=bool)
            first[order[np.unique(side[order], return_index=True)[1]]] = True
            chosen &= first
        agree = agree & chosen[member.ravel()]
    return agree
