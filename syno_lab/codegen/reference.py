"""The meaning of an operator, run: its loop nest in NumPy, slowly and plainly.

PyTorch, TVM and every optimisation are right when they agree with this. Reductions are Python loops; the output axes
are vectorised, each element by the coordinate expressions of Table 1 (Syno, section 5).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Binding

Array = np.ndarray[Any, Any]


def reference(operator: Operator, x: Any, *weights: Any, binding: Binding | None = None) -> Array:
    """``Y = operator(x, *weights)``, in the dtype that NumPy gives to products of the arguments.

    Args:
        operator: what to run.
        x: the input, shaped as ``operator.input_sizes(binding)``.
        weights: one array for each weight, shaped as ``operator.weight_sizes(binding)``.
        binding: the sizes; without it the variables are read off the input's shape, completed by the defaults.

    Raises:
        SynoError: when a shape or the number of weights is not what the binding says.
    """
    x = np.asarray(x)
    arrays = [np.asarray(w) for w in weights]
    bound = operator.complete_binding(infer_binding(operator, x.shape) if binding is None else binding)
    if len(arrays) != len(operator.weights):
        raise SynoError(f"expected {len(operator.weights)} weights, found {len(arrays)}")
    wanted = [("the input", operator.input_sizes(bound), x)]
    wanted += [
        (f"weight {i}", shape, w) for i, (shape, w) in enumerate(zip(operator.weight_sizes(bound), arrays, strict=True), 1)
    ]
    for what, shape, array in wanted:
        if array.shape != shape:
            raise SynoError(f"{what}: expected shape {list(shape)}, found {list(array.shape)}")
    y = np.zeros(operator.output_sizes(bound), np.result_type(x, *arrays))
    for point in np.ndindex(*(r.size.at(bound) for r in operator.reductions)):
        index, valid = _indices(operator, bound, point)

        def read(array: Array, coordinates: tuple[Coordinate, ...], index: Any = index, valid: Any = valid) -> Array:
            # Where a term is zero any element will do, so that no index is out of bounds.
            return array[tuple(np.where(valid, index[c], 0) for c in coordinates)]

        term = read(x, operator.inputs)
        for array, weight in zip(arrays, operator.weights, strict=True):
            term = term * read(array, weight.coordinates)
        y += np.where(valid, term, np.zeros((), y.dtype))
    return y


def infer_binding(operator: Operator, shape: tuple[int, ...]) -> dict[str, int]:
    """The variables that are a whole input axis by themselves, read off the input's shape."""
    symbols = operator.spec.symbols
    return {
        str(coordinate.size): number
        for coordinate, number in zip(operator.inputs, shape, strict=False)
        if str(coordinate.size) in symbols.position
    }


def _indices(operator: Operator, binding: Binding, point: tuple[int, ...]) -> tuple[dict[Coordinate, Any], Any]:
    """Every coordinate's value over the output axes at one point of the reductions, and where the term is not zero."""
    shape = tuple(c.size.at(binding) for c in operator.output)
    found: dict[Coordinate, Any] = dict(zip(operator.output, np.ogrid[tuple(slice(n) for n in shape)], strict=True))
    found.update(zip(operator.reductions, point, strict=True))
    valid: Any = np.ones(shape, dtype=bool)
    for step in operator.steps:
        if step.primitive in ("REDUCE", "SHARE"):
            continue
        primitive = PRIMITIVES[step.primitive]
        args = tuple(found[c] for c in step.operands)
        sizes = tuple(c.size.at(binding) for c in step.operands)
        parameter = None if step.parameter is None else step.parameter.at(binding)
        results = operator.state.results(step)
        for result, index in zip(results, primitive.index(args, sizes, parameter), strict=True):
            found[result] = index
            if primitive.clips:
                valid = valid & (0 <= index) & (index < result.size.at(binding))
    return found, valid
