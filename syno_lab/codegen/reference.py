"""The reference: run the loop nest that defines an operator in NumPy, slowly and plainly.

PyTorch, TVM and every optimisation must agree with the reference. Reductions are Python loops. The output axes are
vectorised. The coordinate expressions of Table 1 (Syno, section 5) determine the indices.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from syno_lab.codegen.walk import climb
from syno_lab.effort import Stop, check_room, end_if
from syno_lab.errors import SpecError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding

Array = np.ndarray[Any, Any]
Index = dict[Coordinate, Array | int]


def reference(
    operator: Operator,
    x: ArrayLike,
    *weights: ArrayLike,
    binding: Binding | None = None,
    should_stop: Stop | None = None,
) -> Array:
    """Implement :meth:`.Operator.reference`; without a binding, :func:`infer_binding` infers the sizes."""
    x = np.asarray(x)
    arrays = [np.asarray(w) for w in weights]
    if len(arrays) != len(operator.weights):
        raise SpecError(f"weights: expected {len(operator.weights)} arrays after the input, found {len(arrays)}")
    if binding is None:
        binding = infer_binding(operator, x.shape, *(w.shape for w in arrays))
    bound = operator.complete_binding(binding)
    names = ("the input", *(f"weight {i + 1}" for i in range(len(arrays))))
    shapes = (operator.input_sizes(bound), *operator.weight_sizes(bound))
    for what, shape, array in zip(names, shapes, (x, *arrays), strict=True):
        if array.shape != shape:
            raise SpecError(f"{what}: expected shape {list(shape)}, found {list(array.shape)}")
    check_room("the output", prod(operator.output_sizes(bound)) * x.dtype.itemsize)
    y = np.zeros(operator.output_sizes(bound), np.result_type(x, *arrays))
    for point in np.ndindex(*(r.size.at(bound) for r in operator.reductions)):
        end_if(should_stop, "running the loop nest")
        index, valid = _indices(operator, bound, point)

        def read(array: Array, axes: tuple[Coordinate, ...], index: Index = index, valid: Array = valid) -> Array:
            # Where a term is zero, the index does not matter; 0 is in bounds.
            return array[tuple(np.where(valid, index[c], 0) for c in axes)]

        term = read(x, operator.inputs)
        for array, weight in zip(arrays, operator.weights, strict=True):
            term = term * read(array, weight.coordinates)
        y += np.where(valid, term, np.zeros((), y.dtype))
    return y


def infer_binding(operator: Operator, shape: tuple[int, ...], *weight_shapes: tuple[int, ...]) -> dict[str, int]:
    """Infer the binding from the arguments' shapes: an axis with a single variable as its size determines the variable.

    The input's axes have priority over the weights' axes. Other variables get the values of the spec's first binding.
    """
    sizes: dict[str, int] = {}
    tensors = [operator.inputs, *(weight.coordinates for weight in operator.weights)]
    for coordinates, numbers in zip(tensors, (shape, *weight_shapes), strict=False):
        if len(coordinates) != len(numbers):
            continue  # the caller raises an error with both shapes later
        for coordinate, number in zip(coordinates, numbers, strict=True):
            if str(coordinate.size) in operator.spec.symbols.position:
                sizes.setdefault(str(coordinate.size), int(number))
    return {**(dict(operator.spec.bindings[0]) if operator.spec.bindings else {}), **sizes}


def _indices(operator: Operator, binding: Binding, point: tuple[int, ...]) -> tuple[Index, Array]:
    """Return all coordinates over the output axes at one point of the reductions, and a mask of terms in bounds."""
    shape = tuple(c.size.at(binding) for c in operator.output)
    values: Index = dict(zip(operator.output, np.ogrid[tuple(slice(n) for n in shape)], strict=True))
    values.update(zip(operator.reductions, point, strict=True))
    valid: Any = np.ones((1,) * len(shape), dtype=bool)
    for result in climb(operator, operator.steps, values, lambda size: size.at(binding)):
        valid = valid & (values[result] >= 0) & (values[result] < result.size.at(binding))
    return values, valid
