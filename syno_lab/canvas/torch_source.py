"""PyTorch from a kernel: readable source that needs torch alone, and the module that it defines (Canvas, section 7).

A tensor has the batch in front and one axis for each filled slot of its shape. Views stay views: a group splits an
axis, a window is a stride over one padded copy, a broadcast splits an axis where its left side begins inside it. An FC
behind unfolds and a group is one convolution of what stands in front of them, so its windows are never stored.
"""

from __future__ import annotations

import math
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from syno_lab.canvas.primitives import BROADCASTS, SHIFTS, UNFOLDS, axes_of, parts_of, span_of
from syno_lab.canvas.shape import FIXED

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.canvas.kernel import Binding, Kernel, Node
    from syno_lab.canvas.shape import Shape

_NOT_STATE = ("operator", "binding")

_CALLS = {
    "relu": "F.relu({})",
    "gelu": "F.gelu({})",
    "sigmoid": "torch.sigmoid({})",
    "tanh": "torch.tanh({})",
    "abs": "torch.abs({})",
    "exp": "torch.exp({})",
    "neg": "-{}",
    "sin": f"torch.sin({math.pi / 2!r} * {{}})",
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "min": "torch.minimum({}, {})",
    "max": "torch.maximum({}, {})",
}


def to_torch(kernel: Kernel, binding: Binding) -> nn.Module:
    """A module that computes a kernel on tensors [N, C, H, W], for any batch size, dtype and device.

    Its weights ``weight_1``, ``weight_2``, … are those of the FCs in the order of nodes, [groups, outputs of a group,
    inputs of a group]; they start as PyTorch's convolutions do, uniform within 1/√(inputs of a group). It can be
    pickled and copied: it is rebuilt from the kernel's JSON and the binding.

    Raises:
        SpecError: when the binding misses a variable or leaves a size fractional.
    """
    bound = kernel.complete_binding(binding)
    module: nn.Module = _class(kernel, bound)()
    _say_what_it_is(module, kernel, bound)
    return module


def _class(kernel: Kernel, bound: dict[str, int]) -> Any:
    """The class of the source, whose instances are pickled and copied by way of :func:`_rebuilt`."""
    namespace: dict[str, Any] = {"__name__": "syno_lab.generated"}
    # The source is our own: it holds integers and names made here, never text from a file.
    exec(to_torch_source(kernel, bound), namespace)  # noqa: S102

    def reduced(module: Any) -> tuple[Any, ...]:
        state = {name: value for name, value in module.__dict__.items() if name not in _NOT_STATE}
        return _rebuilt, (kernel.to_json(), dict(bound)), state

    found = namespace["SynoOperator"]
    found.__reduce__ = reduced
    return found


def _rebuilt(text: str, binding: dict[str, int]) -> nn.Module:
    """A module without its weights, which pickle and copy put in afterwards; no weights are drawn for it."""
    from torch import nn

    from syno_lab.canvas.files import from_json

    kernel = from_json(text)
    kind = _class(kernel, binding)
    module: nn.Module = kind.__new__(kind)
    nn.Module.__init__(module)
    _say_what_it_is(module, kernel, binding)
    return module


def _say_what_it_is(module: nn.Module, kernel: Kernel, binding: Binding) -> None:
    # Plain attributes, past nn.Module's own bookkeeping.
    object.__setattr__(module, "operator", kernel)
    object.__setattr__(module, "binding", dict(binding))


def to_torch_source(kernel: Kernel, binding: Binding) -> str:
    """Python source of a class ``SynoOperator(nn.Module)`` for a binding, to paste into one's own project.

    Raises:
        SpecError: when the binding misses a variable or leaves a size fractional.
    """
    return _Writer(kernel, kernel.complete_binding(binding)).source()


class _Convolution(NamedTuple):
    """What an FC computes as a convolution.

    Attributes:
        of: the number of the tensor in front of the unfolds and the group, or of the FC's own input.
        axes: H, W, both or none: where its windows slide.
    """

    of: int
    axes: tuple[str, ...]


class _Writer:
    """Writes the source of a kernel for a binding."""

    def __init__(self, kernel: Kernel, bound: dict[str, int]) -> None:
        self.kernel = kernel
        self.bound = bound
        self.sizes = kernel.weight_sizes(bound)
        fcs = [number for number, node in enumerate(kernel.nodes, start=1) if node.primitive.name == "fc"]
        self.weights = {tensor: number for number, tensor in enumerate(fcs, start=1)}
        self.convolutions = {tensor: self._convolution(kernel.nodes[tensor - 1].inputs[0]) for tensor in fcs}

    def source(self) -> str:
        """The whole text."""
        image = self._axes(0)
        wanted = ", ".join(map(str, image))
        lines = ["import torch", "from torch import nn", "from torch.nn import functional as F", "", ""]
        lines += ["class SynoOperator(nn.Module):"]
        lines += [f'    """A kernel of Canvas on tensors of shape [N, {wanted}]."""', ""]
        lines += ["    def __init__(self):", "        super().__init__()"]
        for number, sizes in enumerate(self.sizes, start=1):
            lines.append(f"        self.weight_{number} = nn.Parameter(torch.empty({sizes}))")
        for number, sizes in enumerate(self.sizes, start=1):
            bound = repr(1 / math.sqrt(sizes[2]))
            lines.append(f"        nn.init.uniform_(self.weight_{number}, -{bound}, {bound})")
        lines += ["", "    def forward(self, t0):", f"        if t0.ndim != 4 or t0.shape[1:] != {image}:"]
        lines.append(f'            wanted = "[N, {wanted}]"')
        lines.append('            raise ValueError(f"expected an input of shape {wanted}, found {list(t0.shape)}")')
        body = [
            f"        t{tensor} = {self._value(tensor)}  # {self.kernel.shapes[tensor]}" for tensor in self._needed()
        ]
        last = len(self.kernel.nodes)
        body.append(f"        return {self._viewed(f't{last}', self._axes(last), image)}")
        if any("reshape(n" in line for line in body):
            body.insert(0, "        n = t0.shape[0]")
        lines += body
        return "\n".join([*lines, ""])

    def _axes(self, tensor: int) -> tuple[int, ...]:
        """The sizes of a tensor's axes after the batch."""
        return tuple([size.at(self.bound) for size in self.kernel.shapes[tensor].sizes])

    def _needed(self) -> list[int]:
        """The tensors that are computed: not those that a convolution takes the place of."""
        needed = {len(self.kernel.nodes)}
        for tensor in range(len(self.kernel.nodes), 0, -1):
            if tensor in needed:
                convolution = self.convolutions.get(tensor)
                needed |= set(self.kernel.nodes[tensor - 1].inputs) if convolution is None else {convolution.of}
        return sorted(needed - {0})

    def _convolution(self, tensor: int) -> _Convolution:
        """The unfolds and the group behind the input of an FC, undone."""
        of, axes = tensor, set()
        while of:
            (name, parameter), inputs = self.kernel.nodes[of - 1]
            if name not in ("unfold", "group"):
                break
            if name == "unfold":
                axes |= set(UNFOLDS[parameter])
            (of,) = inputs
        if "H" in axes and self.kernel.shapes[of]["KW"] is not None:
            return _Convolution(tensor, ())  # KW would be a channel in front of KH, and the weight has it behind
        return _Convolution(of, tuple(sorted(axes)))

    def _value(self, tensor: int) -> str:
        """The expression of a node's result."""
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
        """Windows as a stride over a padded copy; each new axis comes last and moves to its slot."""
        pads = []  # from the last axis to the first that is padded
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
        weight = self.weights[tensor]
        groups, outputs, inputs = self.sizes[weight - 1]
        of, slots = self.convolutions[tensor]
        windows = [self.bound[f"K{slot}"] if slot in slots else 1 for slot in ("H", "W")]
        shape = self.kernel.shapes[of]
        image = [shape.size(slot).at(self.bound) for slot in ("H", "W")]
        channels = groups * inputs // prod(windows)
        a = self._viewed(f"t{of}", self._axes(of), (channels, *image))
        kernel = f"self.weight_{weight}.view{(groups * outputs, inputs // prod(windows), *windows)}"
        padding = f", padding={tuple([window // 2 for window in windows])}" if slots else ""
        text = f"F.conv2d({a}, {kernel}{padding}{f', groups={groups}' if groups > 1 else ''})"
        return self._viewed(text, (groups * outputs, *image), self._axes(tensor))

    def _broadcast(self, node: Node) -> str:
        """Both sides with axes that match: RHS as it is, or with an axis split where LHS begins inside it."""
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
        same: tuple[int, ...] = ()  # the axes of the block that LHS has too
        while len(same) < len(block) and period % block[-1 - len(same)] == 0:
            period //= block[-1 - len(same)]
            same = block[len(block) - len(same) - 1 :]
        others = block[: len(block) - len(same)]
        lhs, rhs = (f"t{number}" for number in node.inputs)
        axis = first + len(others)  # of the last of the others
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
        """A tensor with other axes after the batch."""
        return text if axes == wanted else f"{text}.reshape({', '.join(map(str, ('n', *wanted)))})"


def _axis(shape: Shape, slot: str) -> int:
    """Of a slot among the axes of a tensor of this shape."""
    return 1 + shape.filled.index(slot)
