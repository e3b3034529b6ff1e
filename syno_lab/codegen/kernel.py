"""The kernel of an operator: by how much each input element counts for the output elements in the middle.

An operator is linear in its input, so one output element is a sum over input elements, each times a number that the
weights make. For conv2d these numbers are its weight; for a product of several weights they are what the product
amounts to. :func:`kernel` computes them without a torch module: with the position of the output fixed, each weight is
an array over the iterators that index it, each input axis a table of ones and zeros from iterators to positions, and
the kernel is the contraction of them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Binding

Array = np.ndarray[Any, Any]
#: The most elements of an array on the way to a kernel: 128 MiB.
MOST_ELEMENTS = 1 << 24
#: The most products of numbers in one of the contractions that make it: some seconds.
MOST_PRODUCTS = 1 << 31


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
        SynoError: an array on the way would have more than :data:`MOST_ELEMENTS` elements.
    """
    loops = (*operator.output, *operator.reductions)
    domains = [
        np.array([fixed[number]]) if number in fixed else np.arange(loop.size.at(binding))
        for number, loop in enumerate(loops)
    ]
    grids: dict[Coordinate, Array] = {}
    for number, (loop, domain) in enumerate(zip(loops, domains, strict=True)):
        shape = [1] * len(loops)
        shape[number] = len(domain)
        grids[loop] = domain.reshape(shape)
    factors: list[tuple[Array, tuple[int, ...]]] = []
    for step in operator.steps:
        if step.primitive in ("REDUCE", "SHARE"):
            continue
        primitive = PRIMITIVES[step.primitive]
        args = tuple(grids[c] for c in step.operands)
        sizes = tuple(c.size.at(binding) for c in step.operands)
        parameter = None if step.parameter is None else step.parameter.at(binding)
        for result, index in zip(
            operator.state.results(step), primitive.index(args, sizes, parameter), strict=True
        ):
            if primitive.clips:
                length = result.size.at(binding)
                inside = (index >= 0) & (index < length)
                if not inside.all():
                    factors.append(_squeezed(inside.astype(np.float64)))
                    index = np.clip(index, 0, length - 1)  # where a term is zero any element will do
            grids[result] = index
    for weight, array in zip(operator.weights, weights, strict=True):
        index = tuple(grids[c] for c in weight.coordinates)
        _check(prod(np.broadcast_shapes(*(one.shape for one in index))))
        factors.append(_squeezed(np.asarray(array, np.float64)[index]))
    for axis, coordinate in enumerate(operator.inputs):
        size = coordinate.size.at(binding)
        _check(grids[coordinate].size * size)
        hit = grids[coordinate][..., None] == np.arange(size)
        table, letters = _squeezed(hit.astype(np.float64), keep=1)
        factors.append((table, (*letters, len(loops) + axis)))
    free = [number for number in range(len(operator.output)) if number not in fixed]
    result = [*free, *range(len(loops), len(loops) + len(operator.inputs))]
    used = {letter for _, letters in factors for letter in letters}
    # What nothing depends on repeats every term, or every row.
    times = prod(len(domains[number]) for number in range(len(loops)) if number not in used and number not in free)
    found = _contract(factors, [letter for letter in result if letter in used]) * times
    lengths = [len(domains[number]) for number in free] + [c.size.at(binding) for c in operator.inputs]
    shape = tuple(length if letter in used else 1 for letter, length in zip(result, lengths, strict=True))
    spread: Array = np.broadcast_to(found.reshape(shape), lengths)
    return spread


def _squeezed(array: Array, keep: int = 0) -> tuple[Array, tuple[int, ...]]:
    """The array without axes of length 1, and the numbers of those that are left; the last ``keep`` stay, unnumbered."""
    own = array.ndim - keep
    letters = tuple(axis for axis in range(own) if array.shape[axis] > 1)
    shape = [array.shape[axis] for axis in (*letters, *range(own, array.ndim))]
    return array.reshape(shape), letters


def _check(elements: int, most: int = MOST_ELEMENTS) -> None:
    if elements > most:
        raise SynoError(f"kernel: expected at most {most:,} elements on the way, found {elements:,}: give smaller sizes")


def _contract(factors: list[tuple[Array, tuple[int, ...]]], result: list[int]) -> Array:
    """The sum of the products of all factors over the letters that are not in the result, two factors at a time."""
    arguments: list[Any] = [one for factor in factors for one in factor]
    path, _ = np.einsum_path(*arguments, result, optimize="greedy")
    length = {letter: size for array, letters in factors for letter, size in zip(letters, array.shape, strict=True)}
    left = [set(letters) for _, letters in factors]
    for taken in path[1:]:
        joined = set().union(*(left.pop(place) for place in sorted(taken, reverse=True)))
        kept = joined & set(result).union(*left)
        _check(prod(length[letter] for letter in kept))
        _check(prod(length[letter] for letter in joined), MOST_PRODUCTS)
        left.append(kept)
    found: Array = np.einsum(*arguments, result, optimize=path)
    return found
