"""PyTorch source of an operator: readable code that needs only torch, and the module of the code (Canvas, section 7).

A tensor has the batch as its first axis, then one axis for each filled slot of its shape. Views stay views. A group
splits an axis, a window is a stride over a padded copy, and a broadcast may split an axis of its right side. An FC
after unfolds and a group is one convolution of the tensor before the unfolds, so windows are never stored. If the
template runs in several parts, the parts are in the batch axis, and FCs are grouped convolutions.
"""

from __future__ import annotations

import math
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from syno_lab.canvas.primitives import BROADCASTS, SHIFTS, UNFOLDS, axes_of, parts_of, span_of
from syno_lab.canvas.shape import FIXED
from syno_lab.generated import module_of

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.canvas.kernel import Kernel, Node
    from syno_lab.canvas.places import AtPlaces
    from syno_lab.canvas.shape import Shape

#: exp(a) is bounded by a large number. Behind a minimum or a ReLU, an infinite value would have a gradient of 0 times
#: infinity. Zero times infinity is NaN, and ends the training.
_EXP = """
def exp(a):
    largest = {torch.float16: 11, torch.float64: 709}.get(a.dtype, 88)  # above it exp overflows
    return torch.exp(a.clamp(max=largest))
"""

_CALLS = {
    "relu": "F.relu({})",
    "gelu": "F.gelu({})",
    "sigmoid": "torch.sigmoid({})",
    "tanh": "torch.tanh({})",
    "abs": "torch.abs({})",
    "exp": "exp({})",
    "neg": "-{}",
    "sin": f"torch.sin({math.pi / 2!r} * {{}})",
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "min": "torch.minimum({}, {})",
    "max": "torch.maximum({}, {})",
}


class View(NamedTuple):
    """A tensor as a view: unfolds and groups of an earlier tensor."""

    of: int  # The number of the earlier tensor, or of the tensor itself.
    axes: tuple[str, ...]  # The axes with windows: H, W, both or none.


def view_of(kernel: Kernel, tensor: int) -> View:
    """Return a tensor as a view: the tensor before its unfolds and groups, and the axes of the unfolds."""
    of, axes = tensor, set()
    while of:
        (name, parameter), inputs = kernel.nodes[of - 1]
        if name not in ("unfold", "group"):
            break
        if name == "unfold":
            axes |= set(UNFOLDS[parameter])
        (of,) = inputs
    return View(of, tuple(sorted(axes)))


def to_torch(operator: AtPlaces, bound: dict[str, int], **options: bool) -> nn.Module:
    """Return a module that computes an operator on tensors [N, C_in, s·H, s·W], for any batch size, dtype and device.

    The weights ``weight_1``, ``weight_2``, … have the shapes of :meth:`.Fitted.weight_sizes`. Weights of FCs start as
    in PyTorch's convolutions, uniform within 1/√(inputs of a group); scales and offsets of normalisations start as 1
    and 0. Pickling and copying rebuild the module from the operator's JSON and the complete binding. ``options`` are
    those of :func:`.module_of`.
    """
    return module_of(to_torch, to_torch_source(operator, bound), operator, bound, **options)


def to_torch_source(operator: AtPlaces, bound: dict[str, int]) -> str:
    """Return Python source of a class ``SynoOperator(nn.Module)`` for a complete binding, for use in any project."""
    return _Writer(operator, bound).source()


class _Writer:
    """The writer of an operator's source for a binding.

    Names in the source: ``image`` is the pooled input; m is the number of images, n = m · parts; t0, … are tensors.
    """

    def __init__(self, operator: AtPlaces, bound: dict[str, int]) -> None:
        self.kernel = kernel = operator.kernel
        self.place, self.bound = operator.template(bound)
        self.input = operator.input_sizes(bound)[1:]
        self.sizes = operator.weight_sizes(bound)
        #: The number of each FC's weight in the source, and the FC's convolution, by the number of the FC's result.
        self.weights = {tensor: place + 1 for tensor, place in kernel.weight_places.items()}
        self.convolutions = {tensor: self._convolution(kernel.nodes[tensor - 1].inputs[0]) for tensor in self.weights}

    def source(self) -> str:
        """Return the full source."""
        wanted = ", ".join(map(str, self.input))
        lines = ["import torch", "from torch import nn", "from torch.nn import functional as F", "", ""]
        if any(node.primitive.name == "exp" for node in self.kernel.nodes):
            lines += [*_EXP.strip().splitlines(), "", ""]
        lines += ["class SynoOperator(nn.Module):"]
        lines += [f'    """A kernel of Canvas on tensors of shape [N, {wanted}]."""', ""]
        lines += ["    def __init__(self):", "        super().__init__()", *self._weights(), ""]
        lines += ["    def forward(self, image):"]
        lines += [f"        if image.ndim != 4 or image.shape[1:] != {self.input}:"]
        lines += [f'            wanted = "[N, {wanted}]"']
        lines += ['            raise ValueError(f"expected an input of shape {wanted}, found {list(image.shape)}")']
        return "\n".join([*lines, *self._forward(), ""])

    def _weights(self) -> list[str]:
        norms = {self.weights[tensor] for tensor in self.kernel.normalised}
        lines = []
        for number, sizes in enumerate(self.sizes, start=1):
            start = "ones" if number - 1 in norms else "zeros" if number - 2 in norms else "empty"
            lines.append(f"        self.weight_{number} = nn.Parameter(torch.{start}({sizes}))")
        for number in sorted(norms):
            sizes = self.sizes[number]
            lines.append(f'        self.register_buffer("mean_{number}", torch.zeros({sizes}))')
            lines.append(f'        self.register_buffer("var_{number}", torch.ones({sizes}))')
        for number, sizes in enumerate(self.sizes, start=1):
            if len(sizes) == 3:
                bound = repr(1 / math.sqrt(sizes[2]))
                lines.append(f"        nn.init.uniform_(self.weight_{number}, -{bound}, {bound})")
        return lines

    def _forward(self) -> list[str]:
        place, kernel = self.place, self.kernel
        parts, axes = place.parts, self._axes(0)
        body = [f"t{tensor} = {self._value(tensor)}  # {kernel.shapes[tensor]}" for tensor in self._needed()]
        last = len(kernel.nodes)
        result = self._viewed(f"t{last}", self._axes(last), axes)
        lines = [f"image = F.avg_pool2d(image, {place.stride})"] if place.stride > 1 else []
        if parts > 1:
            lines.append("m = image.shape[0]")
            lines.append(f"n = {parts} * m")
            if place.c_in > place.c_out:
                lines.append(f"t0 = image.reshape(n, {', '.join(map(str, axes))})  # a part after a part")
                result = f"({result}).reshape(m, {parts}, {', '.join(map(str, axes))}).mean(1)"
            else:
                lines.append(f"t0 = image.repeat_interleave({parts}, 0)  # the same for each part")
                result = f"({result}).reshape(m, {', '.join(map(str, (parts * axes[0], *axes[1:])))})"
        else:
            lines.append("t0 = image")
            if any("reshape(n" in line for line in (*body, result)):
                lines.append("n = image.shape[0]")
        return [f"        {line}" for line in (*lines, *body, f"return {result}")]

    def _axes(self, tensor: int) -> tuple[int, ...]:
        return tuple([size.at(self.bound) for size in self.kernel.shapes[tensor].sizes])

    def _needed(self) -> list[int]:
        """Return the tensors that the source computes; a convolution makes the views before it unnecessary."""
        needed = {len(self.kernel.nodes)}
        for tensor in range(len(self.kernel.nodes), 0, -1):
            if tensor in needed:
                convolution = self.convolutions.get(tensor)
                needed |= set(self.kernel.nodes[tensor - 1].inputs) if convolution is None else {convolution.of}
        return sorted(needed - {0})

    def _convolution(self, tensor: int) -> View:
        """Return the view of a tensor from which an FC can be computed as a convolution."""
        view = view_of(self.kernel, tensor)
        if "H" in view.axes and self.kernel.shapes[view.of]["KW"] is not None:
            return View(tensor, ())  # KW would be a channel before KH, but the weight has KH first
        return view

    def _value(self, tensor: int) -> str:
        node = self.kernel.nodes[tensor - 1]
        name, parameter = node.primitive
        if name == "fc":
            return self._fc(tensor)
        if name in BROADCASTS:
            return self._broadcast(node)
        a, shape = f"t{node.inputs[0]}", self.kernel.shapes[node.inputs[0]]
        if name == "group":
            before, after = self._axes(node.inputs[0]), self._axes(tensor)
            return a if len(before) == len(after) else f"{a}.unflatten(1, {after[:2]})"
        if name == "shift":
            offsets = tuple([offset for _, offset in SHIFTS[parameter]])
            return f"torch.roll({a}, {offsets}, {tuple([_axis(shape, slot) for slot, _ in SHIFTS[parameter]])})"
        if name == "unfold":
            return self._unfold(a, shape, UNFOLDS[parameter])
        if name in ("fold_avg", "fold_max"):
            return f"{a}.{'mean' if name == 'fold_avg' else 'amax'}({_axis(shape, parameter)})"
        if name == "softmax":
            slots = axes_of(parameter)
            first, last = _axis(shape, slots[0]), _axis(shape, slots[-1])
            if first == last:
                return f"{a}.softmax({first})"
            together = self._axes(tensor)[first - 1 : last]
            return f"{a}.flatten({first}, {last}).softmax({first}).unflatten({first}, {together})"
        return _CALLS[name].format(a)

    def _unfold(self, a: str, shape: Shape, slots: tuple[str, ...]) -> str:
        """Return windows as a stride over a padded copy; each new axis comes last and moves to its slot."""
        pads = []  # border widths, from the last axis to the first padded axis
        for slot in ("W", "H"):
            if shape[slot] is not None:
                pads += [self.bound[f"K{slot}"] // 2] * 2 if slot in slots else [0, 0]
        text = f"F.pad({a}, {tuple(pads)})"
        for slot in slots:
            axis, window = _axis(shape, slot), f"K{slot}"
            shape = shape.with_slots({window: FIXED[window]})
            text += f".unfold({axis}, {self.bound[window]}, 1).movedim(-1, {_axis(shape, window)})"
        return text

    def _fc(self, tensor: int) -> str:
        weight, parts = self.weights[tensor], self.place.parts
        groups, outputs, inputs = self.sizes[weight - 1]  # groups of all parts
        of, slots = self.convolutions[tensor]
        windows = [self.bound[f"K{slot}"] if slot in slots else 1 for slot in ("H", "W")]
        shape = self.kernel.shapes[of]
        image = [shape.size(slot).at(self.bound) for slot in ("H", "W")]
        channels = groups * inputs // prod(windows)  # channels of all parts
        if of == 0 and groups == parts > 1 and self.place.c_in < self.place.c_out:
            a, groups_of_it = "image", 1  # all parts have the same input: one convolution for all
        elif parts > 1:
            a, groups_of_it = f"t{of}.reshape({', '.join(map(str, ('m', channels, *image)))})", groups
        else:
            a, groups_of_it = self._viewed(f"t{of}", self._axes(of), (channels, *image)), groups
        kernel = f"self.weight_{weight}.view{(groups * outputs, inputs // prod(windows), *windows)}"
        padding = f", padding={tuple([window // 2 for window in windows])}" if slots else ""
        text = f"F.conv2d({a}, {kernel}{padding}{f', groups={groups_of_it}' if groups_of_it > 1 else ''})"
        has_relu = self.kernel.normalised.get(tensor)
        if has_relu is not None:
            ours = f"self.mean_{weight}, self.var_{weight}, self.weight_{weight + 1}, self.weight_{weight + 2}"
            text = f"F.batch_norm({text}, {ours}, self.training)"
            if has_relu:
                text = f"F.relu({text})"
        sizes = (groups * outputs // parts, *image)
        if parts > 1:
            return f"{text}.reshape({', '.join(map(str, ('n', *self._axes(tensor))))})"
        return self._viewed(text, sizes, self._axes(tensor))

    def _broadcast(self, node: Node) -> str:
        """Return the blend of the two sides with matching axes; an axis of RHS is split where a copy of LHS begins."""
        name, parameter = node.primitive
        left, right = (self.kernel.shapes[number] for number in node.inputs)
        parts = parts_of(parameter, left, right)
        repeats, rest = parts.repeats.at(self.bound), parts.lhs.at(self.bound)
        start, stop = span_of(parameter)
        first, end = (sum(size is not None for size in right.slots[:place]) for place in (start, stop))
        sizes = self._axes(node.inputs[1])
        before, block, after = sizes[:first], sizes[first:end], sizes[end:]
        period = rest
        ones: tuple[int, ...]
        same: tuple[int, ...] = ()  # the last axes of the block, equal in LHS
        while len(same) < len(block) and period % block[-1 - len(same)] == 0:
            period //= block[-1 - len(same)]
            same = block[len(block) - len(same) - 1 :]
        others = block[: len(block) - len(same)]
        lhs, rhs = (f"t{number}" for number in node.inputs)
        axis = first + len(others)  # the last axis of the block that differs from LHS
        if period == 1:
            ones, back = (1,) * len(others), ""
        elif others[-1] % period == 0:
            rhs += f".unflatten({axis}, {(others[-1] // period, period)})"
            ones, back = (*(1,) * len(others), period), f".flatten({axis}, {axis + 1})"
        else:
            rhs += f".flatten({first + 1}, {end}).unflatten({first + 1}, {(repeats, rest)})"
            ones, same, back = (1, rest), (), f".flatten({first + 1}, {first + 2}).unflatten({first + 1}, {block})"
        lhs = self._viewed(lhs, self._axes(node.inputs[0]), (*before, *ones, *same, *after))
        text = _CALLS[name].format(lhs, rhs)
        return f"({text}){back}" if back else text

    @staticmethod
    def _viewed(text: str, axes: tuple[int, ...], wanted: tuple[int, ...]) -> str:
        return text if axes == wanted else f"{text}.reshape({', '.join(map(str, ('n', *wanted)))})"


def _axis(shape: Shape, slot: str) -> int:
    return 1 + shape.filled.index(slot)
