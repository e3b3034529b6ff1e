"""The mixing property of αNAS (section 3.1) for Canvas's kernels, wishes for this property, and the probe.

For each element of a tensor, bits mark the indices along each input axis on which the element depends. Views move these
sets of bits; sums and comparisons unite the sets of their inputs. The mixing property is exact for generic weights. A
dependence that cancels out, as in a softmax of a constant, still counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from syno_lab.canvas.fitted import Fitted, place_in
from syno_lab.canvas.primitives import BROADCASTS, axes_of, parts_of
from syno_lab.canvas.reference import AXIS, value
from syno_lab.common.pairing import Pairing
from syno_lab.common.probe import SEED, Probe
from syno_lab.common.size import Symbols
from syno_lab.common.wants import Letter, Wish, parse_wants, wants_text
from syno_lab.errors import SpecError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from syno_lab.canvas.kernel import Kernel
    from syno_lab.canvas.places import Place
    from syno_lab.canvas.primitives import Primitive
    from syno_lab.canvas.shape import Shape
    from syno_lab.protocol import Binding

Array = np.ndarray[Any, Any]
#: The axes of a kernel's input and output, by their names in wishes.
INPUT = ("N", "C_in", "H", "W")
OUTPUT = ("N", "C_out", "H", "W")
#: The sizes for the mixing property: all different, too large for a few windows to cover an axis, at most 64.
_SIZES = {"N": 1, "C_in": 8, "C_out": 8, "H": 12, "W": 14, "s": 1}
_GROUPS = 2


def parse_wishes(text: str | None) -> tuple[Wish, ...]:
    """Parse the wishes of a text such as ``"C_in>=m, H->W>=o"`` (:func:`syno_lab.common.wants.parse_wants`).

    Raises SpecError for a text without valid wishes, and for the axis N, which no kernel mixes.
    """
    symbols = Symbols(tuple(dict.fromkeys((*INPUT, *OUTPUT))), ())
    into, out = ([symbols.size(name) for name in names] for names in (INPUT, OUTPUT))
    wishes = parse_wants(text, into, out, symbols)
    for wish in wishes:
        if wish.axis == 0 or wish.output == 0:
            raise SpecError(f"wants '{wishes_text([wish])}': expected axes that take part in something, found N")
    return wishes


def wishes_text(wants: Sequence[Wish]) -> str:
    """Return the wishes as one text that :func:`parse_wishes` reads."""
    return wants_text(wants, INPUT, OUTPUT)


@lru_cache(maxsize=1024)
def pairing_of(kernel: Kernel, window: tuple[int, int] = (3, 3)) -> Pairing:
    """Return the mixing property of a kernel from [N, C_in, H, W] to [N, C_out, H, W]; ``window`` is (KH, KW).

    The property holds if C_in = C_out; for other layers a kernel runs in parts, which mix more. Raises SpecError where
    the kernel has no whole sizes at the sizes of :data:`_SIZES`.
    """
    outer = {**_SIZES, "KH": window[0], "KW": window[1]}
    bound = Fitted(kernel, _GROUPS if "G" in kernel.variables else 1).template(outer)[1]
    tensors = [_input(bound)]
    for node, shape in zip(kernel.nodes, kernel.shapes[1:], strict=True):
        shapes = tuple([kernel.shapes[tensor] for tensor in node.inputs])
        sets = _united(node.primitive, shapes, [tensors[tensor] for tensor in node.inputs], bound, shape)
        tensors.append(sets.reshape(3, *shape.at(bound)))
    image = tuple([bound[name] for name in ("C", "H", "W")])
    output = tensors[-1].reshape(3, *image)
    rows = [[_mark(output[axis], out, image[axis]) for axis in range(3)] for out in range(3)]
    # Images are independent, so all elements depend in the same way on N. An input axis that one element reads
    # completely is paired with N.
    alike: list[Letter] = ["a" if (output[axis] == _whole(image[axis])).any() else "x" for axis in range(3)]
    marks: list[tuple[Letter, ...]] = [("o", *alike), *(("x", *row) for row in rows)]
    return Pairing(OUTPUT, INPUT, tuple(marks))


def _input(bound: Binding) -> Array:
    """Return the sets of bits of the input, [axis, G, C, KH, KW, H, W]: each element depends on itself."""
    sizes = (1, bound["C"], 1, 1, bound["H"], bound["W"])
    sets = np.empty((3, *sizes), np.uint64)
    for number, slot in enumerate(("C", "H", "W")):
        length = sizes[AXIS[slot] - 1]
        bits = np.left_shift(np.uint64(1), np.arange(length, dtype=np.uint64))
        sets[number] = bits.reshape([length if axis == AXIS[slot] - 1 else 1 for axis in range(6)])
    return sets


def _united(
    primitive: Primitive, shapes: tuple[Shape, ...], inputs: Sequence[Array], bound: Binding, result: Shape
) -> Array:
    """Return the sets of bits of a primitive's result, in the order of its elements."""
    name, parameter = primitive
    a = inputs[0]
    if name in ("group", "shift", "unfold"):
        return value(primitive, shapes, inputs, bound, None)  # views move elements, and a 0 from outside is empty
    if name == "fc":
        union = _union(a, tuple([AXIS[slot] for slot in ("C", "KH", "KW")]))
        groups, channels = a.shape[AXIS["G"]], math.prod(result.at(bound)[:4])
        return np.broadcast_to(union, (*union.shape[:2], channels // groups, *union.shape[3:]))
    if name in BROADCASTS:
        prefix, repeats, lhs, suffix = (size.at(bound) for size in parts_of(parameter, *shapes))
        left, right = (inputs[0].reshape(3, prefix, 1, lhs, suffix), inputs[1].reshape(3, prefix, repeats, lhs, suffix))
        return left | right
    if name in ("fold_avg", "fold_max"):
        return _union(a, (AXIS[parameter],))
    if name == "softmax":
        return np.broadcast_to(_union(a, tuple([AXIS[axis] for axis in axes_of(parameter)])), a.shape)
    return a


def _union(sets: Array, axes: tuple[int, ...]) -> Array:
    return np.bitwise_or.reduce(sets, axis=axes, keepdims=True)


def _whole(length: int) -> int:
    return (1 << length) - 1


def _mark(sets: Array, out: int, length: int) -> Letter:
    """Return the mark for an output axis and an input axis of this length, from the sets of bits [C, H, W]."""
    full = _whole(length)
    if not (_union(sets, (out,)) == full).any():  # no line along the output axis covers the input axis
        return "x"
    reads = {int(bits) for bits in np.unique(sets)}
    if full in reads:
        return "a"
    return "m" if any(bits.bit_count() > 1 for bits in reads) else "o"


# How the middle of an operator's output depends on its input (:mod:`syno_lab.common.probe`). An operator may be
# non-linear, so the probe's kernel consists of derivatives at a few random inputs. One backward pass computes the
# derivatives of all output channels at all of these inputs: the batch has a copy of an input for each channel.

#: The number of random inputs for the derivatives.
INPUTS = 4
#: The rows and columns of the probe's output; if they make a size of the operator fractional, the layer's own are used.
SIDE = 8
#: The limits of elements of the input's copies and of FLOPs of the forward pass; the probe takes tenths of a second.
MOST_ELEMENTS, MOST_FLOPS = 1 << 23, 1 << 33


def probe(operator: Fitted, place: Place) -> Probe | None:
    """Return the probe of an operator in a layer, on a smaller image, with the same random weights each time.

    Batch normalisations have mean 0 and variance 1. Return None where the operator is too large for the probe, or a
    derivative is not finite. Raises SpecError where the operator does not fit the place.
    """
    import torch

    bound = _smaller(operator, place)
    here = place_in(bound)
    copies = INPUTS * here.c_out
    sizes = operator.input_sizes(bound)[1:]
    if copies * math.prod(sizes) > MOST_ELEMENTS or copies * operator.flops(bound) > MOST_FLOPS:
        return None
    rng = torch.Generator().manual_seed(SEED)  # its own generator: trainings in other threads use torch's generator
    module = _module(operator, bound, rng)
    images = torch.randn((INPUTS, 1, *sizes), generator=rng).expand(INPUTS, here.c_out, *sizes)
    images = images.reshape(copies, *sizes).requires_grad_()
    with torch.enable_grad():
        out = module(images)[:, :, here.h // 2, here.w // 2].reshape(INPUTS, here.c_out, here.c_out)
        total = out.diagonal(dim1=1, dim2=2).sum()
        # An output that does not depend on the input has no autograd graph.
        gradients = torch.autograd.grad(total, images)[0] if total.requires_grad else torch.zeros_like(images)
    if not bool(torch.isfinite(gradients).all()):
        return None
    return Probe.of(*gradients.reshape(INPUTS, here.c_out, *sizes).numpy().astype("float64"))


def _smaller(operator: Fitted, place: Place) -> dict[str, int]:
    """Return a binding for a smaller image; the dynamic variables keep the values of the layer's own image."""
    numbers = operator.binding(place)
    inner = {name: numbers[name] for name in operator.inner}
    outer = {"C_in": place.c_in, "C_out": place.c_out, "KH": place.kh, "KW": place.kw, "N": 1, "s": 1}
    small = replace(place, h=min(place.h, SIDE), w=min(place.w, SIDE))
    for size in (small, place):
        try:
            return operator.complete_binding({**outer, **inner, "H": size.h, "W": size.w})
        except SpecError as error:
            refusal = error
    raise refusal


def _module(operator: Fitted, bound: dict[str, int], rng: torch.Generator) -> nn.Module:
    """Make the module; ``rng``, not torch's generator, draws weights of FCs that keep the scale of their inputs."""
    import torch

    with torch.device("meta"):
        module = operator.to_torch(bound)
    module = module.to_empty(device="cpu").eval().requires_grad_(False)
    scales = [len(sizes) for sizes in operator.weight_sizes(bound)]
    for number, weight in enumerate(module.parameters()):
        if scales[number] == 3:
            torch.nn.init.normal_(weight, std=1 / math.sqrt(weight.shape[2]), generator=rng)
        else:  # scale and offset follow an FC's weight
            torch.nn.init.constant_(weight, float(scales[number - 1] == 3))
    for name, buffer in module.named_buffers():
        buffer.fill_(float(name.startswith("var")))
    return module
