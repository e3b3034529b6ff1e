"""The kernel of an operator: the coefficients of the input elements in one output element or several elements.

An operator is linear in its input, so an output element is a sum of input elements times coefficients. The coefficients
of conv2d are its weight; with several weights they are sums of products of weights. :func:`kernel` needs no torch
module; it fixes an output position. Each weight becomes an array over the iterators that index it. Each input axis
becomes an array of ones and zeros over iterators and positions. The kernel is the contraction of all arrays.
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
Factor = tuple[Array, tuple[int, ...]]  # An array, and for each of its axes the number of the iterator or input axis.
#: The limit of elements of an intermediate array: 16 MiB.
MOST_ELEMENTS = 1 << 21
#: The limit of multiplications in one contraction; they take a second or less.
MOST_PRODUCTS = 1 << 24


def kernel(operator: Operator, weights: Sequence[Array], binding: Binding, fixed: Mapping[int, int]) -> Array:
    """Return the kernel of ``operator`` at one position of the output.

    Args:
        operator: the operator.
        weights: one array for each weight, shaped as ``operator.weight_sizes(binding)``.
        binding: the sizes of all variables.
        fixed: the indices on the fixed output axes, by the numbers of the axes.

    Returns:
        The derivatives ``dY[...] / dX[...]``: first an axis for each output axis that is not fixed, then an axis for
        each input axis.

    Raises:
        SpecError: a size is no positive integer under the binding.
        SynoError: an intermediate needs more than :data:`MOST_ELEMENTS` elements or :data:`MOST_PRODUCTS` products.
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
        _check(prod(np.broadcast_shapes(*(grid.shape for grid in at))))
        factors.append(_factor(np.asarray(array)[at]))
    for axis, coordinate in enumerate(operator.inputs, len(loops)):
        place = grids[coordinate]
        _check(place.size * lengths[axis])
        factors.append(_factor(place[..., None] == np.arange(lengths[axis]), axis))
    used = {letter for _, letters in factors for letter in letters}
    free = [number for number in range(len(operator.output)) if number not in fixed]
    result = [*free, *range(len(loops), len(lengths))]
    # An iterator on which no factor depends repeats all terms, or repeats all elements along an output axis.
    times = prod(length for number, length in enumerate(lengths) if number not in (*used, *result))
    contracted = _contract(factors, [letter for letter in result if letter in used]) * times
    shape = [lengths[letter] if letter in used else 1 for letter in result]
    spread: Array = np.broadcast_to(contracted.reshape(shape), [lengths[letter] for letter in result])
    return spread


def _inside(operator: Operator, binding: Binding, grids: dict[Coordinate, Array]) -> Iterator[Array]:
    """Add the steps' results to ``grids``, and yield for each bound an array of booleans: where the bound holds."""
    for result in climb(operator, operator.steps, grids, lambda size: size.at(binding)):
        index = grids[result]
        # Where a term is zero, the index does not matter; clipping keeps the index in bounds.
        grids[result] = np.clip(index, 0, result.size.at(binding) - 1)
        yield grids[result] == index


def _factor(array: Array, last: int | None = None) -> Factor:
    """Return an array over iterators without axes of length 1; a last axis named ``last`` stays at any length."""
    own = array.ndim - (last is not None)
    letters = [axis for axis in range(own) if array.shape[axis] > 1]
    if last is not None:
        letters.append(last)
    shape = [array.shape[letter] if letter < own else array.shape[-1] for letter in letters]
    return array.reshape(shape).astype(np.float64), tuple(letters)


def _check(elements: int, products: int = 0) -> None:
    for found, most, what in ((elements, MOST_ELEMENTS, "elements"), (products, MOST_PRODUCTS, "products")):
        if found > most:
            raise SynoError(f"kernel: expected at most {most:,} {what} in a step, found {found:,}: give smaller sizes")


def _contract(factors: list[Factor], result: list[int]) -> Array:
    """Multiply all factors, two at a time, and sum over the axes whose letters are not in ``result``."""
    scalar = prod(float(array) for array, letters in factors if not letters)
    factors = [factor for factor in factors if factor[1]]
    if not factors:
        return np.array(scalar)
    arguments: list[Any] = [part for factor in factors for part in factor]
    path, _ = np.einsum_path(*arguments, result, optimize="greedy")
    length = {letter: size for array, letters in factors for letter, size in zip(letters, array.shape, strict=True)}
    remaining = [set(letters) for _, letters in factors]
    for pair in path[1:]:
        joined: set[int] = set().union(*(remaining.pop(place) for place in sorted(pair, reverse=True)))
        letters_kept = joined & set(result).union(*remaining)
        _check(prod(length[letter] for letter in letters_kept), prod(length[letter] for letter in joined))
        remaining.append(letters_kept)
    contracted: Array = np.einsum(*arguments, result, optimize=path) * scalar
    return contracted
