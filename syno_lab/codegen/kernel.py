"""The kernel of an operator: by how much each input element counts for the output elements in the middle.

An operator is linear in its input, so one output element is a sum over input elements, each times a number that the
weights make. For conv2d these numbers are its weight; for a product of several weights they are what the product
amounts to. :func:`kernel` computes them without a torch module: with the position of the output fixed, each weight is
an array over the iterators that index it, each input axis a table of ones and zeros from iterators to positions, and
the kernel is the contraction of them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from syno_lab.codegen.walk import climb
from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding

Array = np.ndarray[Any, Any]
Factor = tuple[Array, tuple[int, ...]]  # an array, and a letter for each of its axes: an iterator or an input axis
#: The most elements of an array on the way to a kernel: 16 MiB.
MOST_ELEMENTS = 1 << 21
#: The most products of numbers in one of the contractions that make it: a second or less.
MOST_PRODUCTS = 1 << 24


def kernel(operator: Operator, weights: Sequence[Array], binding: Binding, fixed: Mapping[int, int]) -> Array:
    """The kernel of ``operator`` at one position of the output.

    Args:
        operator: what reads.
        weights: one array for each weight, shaped as ``operator.weight_sizes(binding)``.
        binding: the sizes of all variables.
        fixed: the index along some output axes, by the number of the axis.

    Returns:
        The derivatives ``dY[...] / dX[...]``: an axis for each output axis that is not fixed, and then one for each
        axis of the input.

    Raises:
        SpecError: where a size is no positive integer under the binding.
        SynoError: more than :data:`MOST_ELEMENTS` elements or :data:`MOST_PRODUCTS` products on the way.
    """
    loops = (*operator.output, *operator.reductions)
    lengths = [1 if number in fixed else loop.size.at(binding) for number, loop in enumerate(loops)]
    grids: dict[Coordinate, Array] = dict(zip(loops, np.ogrid[tuple(map(slice, lengths))], strict=True))
    for number, index in fixed.items():
        grids[loops[number]] = grids[loops[number]] + index
    lengths += [c.size.at(binding) for c in operator.inputs]
    factors = [_factor(inside) for inside in _inside(operator, binding, grids)]
    for weight, array in zip(operator.weights, weights, strict=True):
        at = tuple(grids[c] for c in weight.coordinates)
        _check(prod(np.broadcast_shapes(*(one.shape for one in at))))
        factors.append(_factor(np.asarray(array)[at]))
    for axis, coordinate in enumerate(operator.inputs, len(loops)):
        place = grids[coordinate]
        _check(place.size * lengths[axis])
        factors.append(_factor(place[..., None] == np.arange(lengths[axis]), axis))
    used = {letter for _, letters in factors for letter in letters}
    free = [number for number in range(len(operator.output)) if number not in fixed]
    result = [*free, *range(len(loops), len(lengths))]
    # What nothing depends on repeats every term, or every row.
    times = prod(length for number, length in enumerate(lengths) if number not in (*used, *result))
    found = _contract(factors, [letter for letter in result if letter in used]) * times
    shape = [lengths[letter] if letter in used else 1 for letter in result]
    spread: Array = np.broadcast_to(found.reshape(shape), [lengths[letter] for letter in result])
    return spread


def _inside(operator: Operator, binding: Binding, grids: dict[Coordinate, Array]) -> Iterator[Array]:
    """Evaluate the other coordinates over the iterators' ``grids``; yields for each bound where it holds."""
    for result in climb(operator, operator.steps, grids, lambda size: size.at(binding)):
        index = grids[result]
        # Where a term is zero any element will do, so that no index is out of bounds.
        grids[result] = np.clip(index, 0, result.size.at(binding) - 1)
        yield grids[result] == index


def _factor(array: Array, last: int | None = None) -> Factor:
    """An array over the iterators, without axes of length 1; ``last``: the letter of its last axis, which stays."""
    own = array.ndim - (last is not None)
    letters = [axis for axis in range(own) if array.shape[axis] > 1]
    if last is not None:
        letters.append(last)
    shape = [array.shape[letter] if letter < own else array.shape[-1] for letter in letters]
    return array.reshape(shape).astype(np.float64), tuple(letters)


def _check(elements: int, products: int = 0) -> None:
    for found, most, what in ((elements, MOST_ELEMENTS, "elements"), (products, MOST_PRODUCTS, "products")):
        if found > most:
            raise SynoError(f"kernel: expected at most {most:,} {what} on the way, found {found:,}: give smaller sizes")


def _contract(factors: list[Factor], result: list[int]) -> Array:
    """The sum of the products of all factors over the letters that are not in the result, two factors at a time."""
    scalar = prod(float(array) for array, letters in factors if not letters)
    factors = [factor for factor in factors if factor[1]]
    if not factors:
        return np.array(scalar)
    arguments: list[Any] = [one for factor in factors for one in factor]
    path, _ = np.einsum_path(*arguments, result, optimize="greedy")
    length = {letter: size for array, letters in factors for letter, size in zip(letters, array.shape, strict=True)}
    left = [set(letters) for _, letters in factors]
    for taken in path[1:]:
        joined: set[int] = set().union(*(left.pop(place) for place in sorted(taken, reverse=True)))
        kept = joined & set(result).union(*left)
        _check(prod(length[letter] for letter in kept), prod(length[letter] for letter in joined))
        left.append(kept)
    found: Array = np.einsum(*arguments, result, optimize=path) * scalar
    return found
