"""The meaning of a kernel: each primitive in NumPy, as plain and slow code (Canvas, section 5).

Every tensor is an array [N, G, C, KH, KW, H, W]: the batch, then the six slots; an empty slot has size 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from syno_lab.canvas.primitives import BROADCASTS, SHIFTS, UNFOLDS, axes_of, parts_of
from syno_lab.canvas.shape import SLOTS
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from syno_lab.canvas.kernel import Kernel
    from syno_lab.canvas.places import AtPlaces
    from syno_lab.canvas.primitives import Primitive
    from syno_lab.canvas.shape import Shape
    from syno_lab.protocol import Binding

Array = np.ndarray[Any, Any]
#: The position of each slot among the axes of an array.
AXIS = {name: axis for axis, name in enumerate(SLOTS, start=1)}

#: The number that a batch normalisation adds to the variance, as in PyTorch.
EPSILON = 1e-5

_erf = np.vectorize(math.erf, otypes=[np.float64])

ELEMENT: dict[str, Callable[[Array], Array]] = {
    "relu": lambda a: np.maximum(a, 0),
    "gelu": lambda a: a * (1 + _erf(a / math.sqrt(2))) / 2,
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "tanh": np.tanh,
    "abs": np.abs,
    "exp": np.exp,
    "neg": np.negative,
    "sin": lambda a: np.sin(math.pi / 2 * a),
}
BLEND: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def reference(kernel: Kernel, x: ArrayLike, *weights: ArrayLike, binding: Binding) -> Array:
    """Return the output of a kernel, in float64.

    Args:
        kernel: the template.
        x: the input, [N, C, H, W].
        weights: the weights in the order of :attr:`.Kernel.weights`. A normalisation computes as a new module in
            evaluation: a mean of 0, a variance of 1.
        binding: a number for each variable of the kernel.

    Returns:
        The output. Raises SpecError where a number is missing, a size is not whole, or an array has a wrong shape.
    """
    bound = kernel.complete_binding(binding)
    wanted = kernel.weight_sizes(bound)
    if len(weights) != len(wanted):
        raise SpecError(f"expected {len(wanted)} weights, found {len(weights)}")
    data = _images(x, (bound["C"], bound["H"], bound["W"]))
    arrays = [np.asarray(weight, np.float64) for weight in weights]
    for number, (weight, sizes) in enumerate(zip(arrays, wanted, strict=True)):
        if weight.shape != sizes:
            raise SpecError(f"expected weight {number} of shape {[*sizes]}, found {quoted(weight.shape)}")
    waiting = iter(arrays)
    tensors = [data.reshape(len(data), *kernel.shapes[0].at(bound))]
    for number, (node, shape) in enumerate(zip(kernel.nodes, kernel.shapes[1:], strict=True), start=1):
        shapes = tuple([kernel.shapes[tensor] for tensor in node.inputs])
        inputs = [tensors[tensor] for tensor in node.inputs]
        result = value(node.primitive, shapes, inputs, bound, next(waiting) if node.primitive.name == "fc" else None)
        result = result.reshape(len(data), *shape.at(bound))
        if number in kernel.normalised:
            scale, offset = (next(waiting)[:, None, None, None, None] for _ in range(2))
            result = result / math.sqrt(1 + EPSILON) * scale + offset
            if kernel.normalised[number]:
                result = np.maximum(result, 0)
        tensors.append(result)
    return tensors[-1].reshape(data.shape)


def at_place(operator: AtPlaces, x: ArrayLike, weights: Sequence[ArrayLike], bound: Binding) -> Array:
    """Return the output of an operator in float64: a pooling for the stride, then the template in parts.

    Args:
        operator: the operator.
        x: the input, [N, C_in, s·H, s·W], any N.
        weights: the weights, with the shapes of :meth:`.Fitted.weight_sizes`.
        bound: a complete binding. Raises SpecError where an array does not fit the binding.
    """
    place, template = operator.template(bound)
    data, sizes = _images(x, operator.input_sizes(bound)[1:]), operator.weight_sizes(bound)
    arrays = [np.asarray(weight, np.float64) for weight in weights]
    if [weight.shape for weight in arrays] != list(sizes):
        raise SpecError(f"expected weights of shapes {quoted(sizes)}, found {quoted([w.shape for w in arrays])}")
    step, parts = place.stride, place.parts
    data = data.reshape(len(data), place.c_in, place.h, step, place.w, step).mean((3, 5))
    blocks = np.split(data, parts, 1) if place.c_in > place.c_out else [data] * parts
    split = zip(*[np.split(weight, parts) for weight in arrays], strict=True) if arrays else [()] * parts
    results = [
        reference(operator.kernel, block, *own, binding=template) for block, own in zip(blocks, split, strict=True)
    ]
    return np.mean(results, 0) if place.c_in > place.c_out else np.concatenate(results, 1)


def _images(x: ArrayLike, sizes: tuple[int, ...]) -> Array:
    """Return images in float64. Raises SpecError for wrong sizes; any number of images is accepted."""
    data = np.asarray(x, np.float64)
    if data.ndim != 4 or data.shape[1:] != sizes:
        raise SpecError(f"expected an input of shape [N, {', '.join(map(str, sizes))}], found {quoted(data.shape)}")
    return data


def value(
    primitive: Primitive, shapes: tuple[Shape, ...], inputs: Sequence[Array], bound: Binding, weight: Array | None
) -> Array:
    """Compute a primitive on one or two arrays [N, G, C, KH, KW, H, W]; the caller reshapes the result.

    ``shapes``: the inputs' shapes; ``bound``: a number for each variable; ``weight``: the weight of an FC.
    """
    name, parameter = primitive
    if name == "fc":
        assert weight is not None
        return _fc(inputs[0], weight)
    if name in BROADCASTS:
        prefix, repeats, lhs, suffix = (size.at(bound) for size in parts_of(parameter, *shapes))
        left = inputs[0].reshape(-1, prefix, 1, lhs, suffix)
        return BLEND[name](left, inputs[1].reshape(-1, prefix, repeats, lhs, suffix))
    a = inputs[0]
    if name == "group":
        return a  # a view: the caller reshapes the result into groups
    if name == "shift":
        for axis, offset in SHIFTS[parameter]:
            a = np.roll(a, offset, AXIS[axis])
        return a
    if name == "unfold":
        for axis in UNFOLDS[parameter]:
            a = _unfold(a, axis, bound[f"K{axis}"])
        return a
    if name == "fold_avg":
        return a.mean(AXIS[parameter])
    if name == "fold_max":
        return a.max(AXIS[parameter])
    if name == "softmax":
        axes = tuple([AXIS[axis] for axis in axes_of(parameter)])
        powers = np.exp(a - a.max(axes, keepdims=True))
        return powers / powers.sum(axes, keepdims=True)
    return ELEMENT[name](a)


def _unfold(a: Array, axis: str, window: int) -> Array:
    """Compute out(…, k, …, h, …) = a(…, h + k − (K − 1)/2, …), zero outside."""
    position = AXIS[axis]
    size = a.shape[position]
    edges = [(0, 0)] * a.ndim
    edges[position] = (window // 2, window // 2)
    padded = np.pad(a, edges)
    shifted = [padded.take(range(k, k + size), position) for k in range(window)]
    return np.concatenate(shifted, AXIS[f"K{axis}"])


def _fc(a: Array, weight: Array) -> Array:
    """Compute out(g·v/G + o, h, w) = Σ over i = (c, kh, kw) of a(g, i, h, w) · weight(g, o, i)."""
    batch, groups, *_, height, width = a.shape
    grouped = a.reshape(batch, groups, -1, height, width)
    return np.einsum("ngihw,goi->ngohw", grouped, weight)
