"""What a kernel reads and mixes: αNAS's mixing property (section 3.1) of Canvas's kernels, wishes about it, the probe.

Of each element of each tensor it is followed which positions along each axis of the input it depends on, as a set of
bits: a view moves the sets, what sums or compares unites them. So the matrix is exact for weights in general; only
what cancels out, such as a softmax of what is constant along its axis, counts as if it did not.
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
#: The axes of a kernel's input and output, by which wishes name them.
INPUT = ("N", "C_in", "H", "W")
OUTPUT = ("N", "C_out", "H", "W")
#: Sizes at which kernels are looked at: all different, so large that a few windows do not cover an axis, at most 64.
_SIZES = {"N": 1, "C_in": 8, "C_out": 8, "H": 12, "W": 14, "s": 1}
_GROUPS = 2


def parse_wishes(text: str | None) -> tuple[Wish, ...]:
    """The wishes of a text such as ``"C_in>=m, H->W>=o"`` (:func:`syno_lab.common.wants.parse_wants`).

    Raises SpecError for a text that is none, and for the axis N, which takes part in nothing.
    """
    symbols = Symbols(tuple(dict.fromkeys((*INPUT, *OUTPUT))), ())
    into, out = ([symbols.size(name) for name in names] for names in (INPUT, OUTPUT))
    found = parse_wants(text, into, out, symbols)
    for wish in found:
        if wish.axis == 0 or wish.output == 0:
            raise SpecError(f"wants '{wishes_text([wish])}': expected axes that take part in something, found N")
    return found


def wishes_text(wants: Sequence[Wish]) -> str:
    """The wishes as one text that :func:`parse_wishes` reads."""
    return wants_text(wants, INPUT, OUTPUT)


@lru_cache(maxsize=1024)
def pairing_of(kernel: Kernel, window: tuple[int, int] = (3, 3)) -> Pairing:
    """The mixing property of a kernel, from [N, C_in, H, W] to [N, C_out, H, W], in place of a convolution's window.

    It is that with as many channels in as out: at other places a kernel runs in parts, which mix more. ``window`` is
    that of the replaced convolution. Raises SpecError where it has no whole sizes at the sizes of :data:`_SIZES`.
    """
    outer = {**_SIZES, "KH": window[0], "KW": window[1]}
    bound = Fitted(kernel, _GROUPS if "G" in kernel.variables else 1).template(outer)[1]
    tensors = [_input(bound)]
    for node, shape in zip(kernel.nodes, kernel.shapes[1:], strict=True):
        shapes = tuple([kernel.shapes[tensor] for tensor in node.inputs])
        found = _united(node.primitive, shapes, [tensors[tensor] for tensor in node.inputs], bound, shape)
        tensors.append(found.reshape(3, *shape.at(bound)))
    image = tuple([bound[name] for name in ("C", "H", "W")])
    output = tensors[-1].reshape(3, *image)
    rows = [[_mark(output[axis], out, image[axis]) for axis in range(3)] for out in range(3)]
    # Images stay apart, so along N all elements read alike: an axis is paired with N where one of them reads all of it.
    alike: list[Letter] = ["a" if (output[axis] == _whole(image[axis])).any() else "x" for axis in range(3)]
    marks: list[tuple[Letter, ...]] = [("o", *alike), *(("x", *row) for row in rows)]
    return Pairing(OUTPUT, INPUT, tuple(marks))


def _input(bound: Binding) -> Array:
    """The sets of the input, [axis, G, C, KH, KW, H, W]: each element depends on itself."""
    sizes = (1, bound["C"], 1, 1, bound["H"], bound["W"])
    found = np.empty((3, *sizes), np.uint64)
    for number, slot in enumerate(("C", "H", "W")):
        length = sizes[AXIS[slot] - 1]
        bits = np.left_shift(np.uint64(1), np.arange(length, dtype=np.uint64))
        found[number] = bits.reshape([length if place == AXIS[slot] - 1 else 1 for place in range(6)])
    return found


def _united(
    primitive: Primitive, shapes: tuple[Shape, ...], inputs: Sequence[Array], bound: Binding, result: Shape
) -> Array:
    """The sets of a primitive's result; the elements in order."""
    name, parameter = primitive
    a = inputs[0]
    if name in ("group", "shift", "unfold"):
        return value(primitive, shapes, inputs, bound, None)  # moves elements, and has 0, the empty set, outside
    if name == "fc":
        whole = _union(a, tuple([AXIS[slot] for slot in ("C", "KH", "KW")]))
        groups, channels = a.shape[AXIS["G"]], math.prod(result.at(bound)[:4])
        return np.broadcast_to(whole, (*whole.shape[:2], channels // groups, *whole.shape[3:]))
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
    found: Array = np.bitwise_or.reduce(sets, axis=axes, keepdims=True)
    return found


def _whole(length: int) -> int:
    return (1 << length) - 1


def _mark(sets: Array, out: int, length: int) -> Letter:
    """The mark from an input axis of this length to an output axis: ``sets`` [C, H, W] are those of the input axis."""
    whole = _whole(length)
    if not (_union(sets, (out,)) == whole).any():  # no line of elements along the output axis covers it
        return "x"
    found = {int(one) for one in np.unique(sets)}
    if whole in found:
        return "a"
    return "m" if any(one.bit_count() > 1 for one in found) else "o"


# How the middle of an operator's output depends on its input (:mod:`syno_lab.common.probe`). An operator need not be
# linear, so its kernel is that of its derivatives, at a few random inputs. One backward pass gives the derivatives of
# all output channels at all of these inputs: the batch has a copy of an input for each channel.

#: Random inputs at which the derivatives are taken.
INPUTS = 4
#: Rows and columns of the output, where the operator has whole sizes there.
SIDE = 8
#: The most elements of the input's copies, and the most multiply-adds of the forward pass: tenths of a second.
MOST_ELEMENTS, MOST_FLOPS = 1 << 23, 1 << 33


def probe(operator: Fitted, place: Place) -> Probe | None:
    """The probe of an operator at a place, whose image is made smaller, with weights that are the same each time.

    Batch normalisations are those of fresh modules in evaluation. None where the operator is too large to be probed,
    or its derivatives are no finite numbers. Raises SpecError where the operator does not fit the place.
    """
    import torch

    bound = _smaller(operator, place)
    here = place_in(bound)
    copies = INPUTS * here.c_out
    sizes = operator.input_sizes(bound)[1:]
    if copies * math.prod(sizes) > MOST_ELEMENTS or copies * operator.flops(bound) > MOST_FLOPS:
        return None
    rng = torch.Generator().manual_seed(SEED)  # our own: trainings in other threads draw from torch's
    module = _module(operator, bound, rng)
    images = torch.randn((INPUTS, 1, *sizes), generator=rng).expand(INPUTS, here.c_out, *sizes)
    images = images.reshape(copies, *sizes).requires_grad_()
    with torch.enable_grad():
        out = module(images)[:, :, here.h // 2, here.w // 2].reshape(INPUTS, here.c_out, here.c_out)
        total = out.diagonal(dim1=1, dim2=2).sum()
        # What does not depend on the input at all has no graph.
        found = torch.autograd.grad(total, images)[0] if total.requires_grad else torch.zeros_like(images)
    if not bool(torch.isfinite(found).all()):
        return None
    return Probe.of(*found.reshape(INPUTS, here.c_out, *sizes).numpy().astype("float64"))


def _smaller(operator: Fitted, place: Place) -> dict[str, int]:
    """The binding at the place with a smaller image and the place's own numbers for the dynamic variables."""
    whole = operator.binding(place)
    inner = {name: whole[name] for name in operator.inner}
    outer = {"C_in": place.c_in, "C_out": place.c_out, "KH": place.kh, "KW": place.kw, "N": 1, "s": 1}
    small = replace(place, h=min(place.h, SIDE), w=min(place.w, SIDE))
    for size in (small, place):
        try:
            return operator.complete_binding({**outer, **inner, "H": size.h, "W": size.w})
        except SpecError as error:
            refusal = error
    raise refusal


def _module(operator: Fitted, bound: dict[str, int], rng: torch.Generator) -> nn.Module:
    """The module with FCs that keep the scale of what they read; it is made without a draw from torch's generator."""
    import torch

    with torch.device("meta"):
        module = operator.to_torch(bound)
    module = module.to_empty(device="cpu").eval().requires_grad_(False)
    scales = [len(sizes) for sizes in operator.weight_sizes(bound)]
    for number, weight in enumerate(module.parameters()):
        if scales[number] == 3:
            torch.nn.init.normal_(weight, std=1 / math.sqrt(weight.shape[2]), generator=rng)
        else:  # behind an FC a scale, and behind it an offset
            torch.nn.init.constant_(weight, float(scales[number - 1] == 3))
    for name, buffer in module.named_buffers():
        buffer.fill_(float(name.startswith("var")))
    return module
