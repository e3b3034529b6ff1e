"""The Python source of a graph, which needs only torch, and the module that this source defines.

Tensors have channels last, as in the graph. Weights have the shapes of PyTorch's layers; see :mod:`.reference`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from syno_lab import generated
from syno_lab.alpha import operator_node
from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import OPAQUE, Operation, Rel, Shape
from syno_lab.alpha.row import Applied
from syno_lab.alpha.table import pads
from syno_lab.errors import SpecError

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.alpha.operator import NetworkOperator

#: Functions for sources, by name; a source contains only the functions that it calls.
_FUNCTIONS = {
    "convolved": """
def convolved(x, weight, bias, pads, stride, dilation, groups):
    x = F.pad(x.movedim(-1, 1), pads)
    convolution = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.ndim]
    return convolution(x, weight, bias, stride, 0, dilation, groups).movedim(1, -1)
""",
    "largest": """
def largest(x, window, stride, pads):
    x = F.pad(x.movedim(-1, 1), pads, value=float("-inf"))
    pool = {3: F.max_pool1d, 4: F.max_pool2d, 5: F.max_pool3d}[x.ndim]
    return pool(x, window, stride).movedim(1, -1)
""",
    "averaged": """
def averaged(x, window, stride, pads):  # what is padded does not count
    x = x.movedim(-1, 1)
    pool = {3: F.avg_pool1d, 4: F.avg_pool2d, 5: F.avg_pool3d}[x.ndim]
    counts = pool(F.pad(torch.ones_like(x[:1, :1]), pads), window, stride)
    return (pool(F.pad(x, pads), window, stride) / counts).movedim(1, -1)
""",
    "attended": """
def attended(x, heads, causal, in_weight, in_bias, out_weight, out_bias):
    batch, positions, channels = x.shape
    split = (batch, positions, 3, heads, channels // heads)
    queries, keys, values = F.linear(x, in_weight, in_bias).view(split).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
    return F.linear(y.transpose(1, 2).reshape(x.shape), out_weight, out_bias)
""",
    "left_out": """
def left_out(x, rate, training):  # some examples become 0, the others are scaled up
    if not training:
        return x
    kept = torch.empty(len(x), *[1] * (x.ndim - 1), dtype=x.dtype, device=x.device).bernoulli_(1 - rate)
    return x * kept / (1 - rate)
""",
}
#: Expressions of operations: ``{x}`` and ``{y}`` are the tensors, ``{weights}`` all weights, ``{first}`` and
#: ``{second}`` the first two weights or None; other names are attributes.
_CALLS: dict[str, str] = {
    "dense": "F.linear({x}, {weights})",
    "parameter": "{weights}",
    "self_attention": "attended({x}, {heads}, {causal}, {weights})",
    "add": "{x} + {y}",
    "mul": "{x} * {y}",
    "dot": "{x} @ {y}",
    "einsum": "torch.einsum({equation!r}, {x}, {y})",
    "scalar_multiply": "{x} * {constant!r}",
    "scalar_add": "{x} + {constant!r}",
    "relu": "F.relu({x})",
    "gelu": "F.gelu({x}, approximate={approximate!r})",
    "silu": "F.silu({x})",
    "sigmoid": "torch.sigmoid({x})",
    "softmax": "{x}.softmax(-1)",
    "dropout": "F.dropout({x}, {rate!r}, self.training)",
    "stochastic_depth": "left_out({x}, {rate!r}, self.training)",
    "identity": "{x}",
    "none": "torch.zeros_like({x})",
    "flatten": "{x}.flatten(1)",
    "transpose": "{x}.permute({axes!r})",
    "mean": "{x}.mean({axes!r}, keepdim={keep!r})",
    "layer_norm": "F.layer_norm({x}, {channels}, {first}, {second}, {epsilon!r})",
    "group_norm": "torch.group_norm({x}.movedim(-1, 1), {groups}, {first}, {second}, {epsilon!r}).movedim(1, -1)",
    "batch_norm": "F.batch_norm({x}.movedim(-1, 1), self.mean_{norm}, self.variance_{norm}, {first}, {second}, "
    "self.training, 0.1, {epsilon!r}).movedim(1, -1)",
    "conv": "convolved({x}, {first}, {second}, pads={pads}, stride={stride}, dilation={dilation}, groups={groups})",
    "max_pool": "largest({x}, {window}, {stride}, {pads})",
    "average_pool": "averaged({x}, {window}, {stride}, {pads})",
}
_NORMS = ("batch_norm", "layer_norm", "group_norm")
#: The methods of pools over whole axes.
_WHOLE = {"max_pool": "amax", "average_pool": "mean"}


def to_torch_source(graph: Graph) -> str:
    """Return Python source of a class ``SynoOperator(nn.Module)`` for a graph of one input and one output.

    The weights are ``weight_1``, ``weight_2``, …, in the order of the nodes. Raises SpecError for an opaque node.
    """
    return _Writer(graph).source()


def module_of(operator: NetworkOperator, bound: dict[str, int], **options: bool) -> nn.Module:
    """Return a module of an operator with new random weights; a pickle or copy of it contains the operator's JSON."""
    return generated.module_of(module_of, to_torch_source(operator.at(bound)), operator, bound, **options)


class _Writer:
    def __init__(self, graph: Graph) -> None:
        if len(graph.inputs) != 1 or len(graph.outputs) != 1:
            counts = f"{len(graph.inputs)} and {len(graph.outputs)}"
            raise SpecError(f"expected a graph of one input and one output, found {counts}")
        self.graph = graph
        self.init: list[str] = []
        self.sources: list[str] = []
        self.parts = 0
        self.count = self.norms = 0
        self.steps = []
        for number, node in enumerate(graph.nodes):
            names, result = [f"t{tensor}" for tensor in node.inputs], graph.tensor(number)
            call = self._call(node.operation, names, graph.input_shapes(number))
            self.steps.append(f"t{result} = {call}  # {list(graph.shapes[result])}")
            if graph.done[number] and number < len(graph.nodes) - 1:  # frees memory
                self.steps[-1] += f"\n        del {', '.join(f't{tensor}' for tensor in graph.done[number])}"

    def source(self) -> str:
        """Return the full source."""
        (shape,) = self.graph.inputs
        wanted = ", ".join(["N", *map(str, shape[1:])])
        lines = ["import torch", "from torch import nn", "from torch.nn import functional as F", "", ""]
        for name, text in _FUNCTIONS.items():
            if any(f"{name}(" in step for step in self.steps):
                lines += [*text.strip().splitlines(), "", ""]
        for number, text in enumerate(self.sources, 1):
            inner = textwrap.indent(text.strip(), "    ", lambda line: bool(line.strip()))
            lines += [f"def _operator_{number}():", inner, "", "    return SynoOperator", "", ""]
        lines += ["class SynoOperator(nn.Module):", f'    """A network of αNAS on tensors of shape [{wanted}]."""', ""]
        lines += ["    def __init__(self):", "        super().__init__()", *self.init, ""]
        lines += ["    def forward(self, t0):", f"        if list(t0.shape[1:]) != {list(shape[1:])}:"]
        refusal = f'raise ValueError(f"expected an input of shape [{wanted}], found {{list(t0.shape)}}")'
        lines.append(f"            {refusal}")
        steps = [f"        {step}" for step in self.steps]
        return "\n".join([*lines, *steps, f"        return t{self.graph.outputs[0]}", ""])

    def _call(self, operation: Operation, names: Sequence[str], shapes: Sequence[Shape]) -> str:
        """Return the Python expression of a node's result."""
        name, at = operation.name, operation.on(*shapes)
        if name == OPAQUE:
            raise SpecError(f"expected operations of the table, found {at['what']}, which has no source")
        if name == "reshape":
            return f"{names[0]}.reshape({', '.join(self._size(names[0], size) for size in operation['shape'])})"
        if name == operator_node.NAME:
            return self._operator(names[0], at)
        if at.values.get("window") == 0:
            return f"{names[0]}.{_WHOLE[name]}({tuple(range(1, len(at.shape) - 1))}, keepdim=True)"
        weights = self._weights(operation, shapes)
        if name == "self_attention" and len(weights) == 2:
            weights = [weights[0], "None", weights[1], "None"]
        if name == "batch_norm":
            self.norms += 1
            self.init.append(f'        self.register_buffer("mean_{self.norms}", torch.zeros({at.channels}))')
            self.init.append(f'        self.register_buffer("variance_{self.norms}", torch.ones({at.channels}))')
        values = {**at.values, **dict(zip("xy", names, strict=False)), "weights": ", ".join(weights)}
        values["approximate"] = "tanh" if values.get("tanh") else "none"
        if "padding" in values:
            values["pads"] = pads(at, at.shape[1:-1])
        channels = at.shape[-1:] if shapes else ()
        first, second, *_ = [*weights, "None", "None"]
        return _CALLS[name].format(**values, channels=channels, first=first, second=second, norm=self.norms)

    def _operator(self, x: str, at: Applied) -> str:
        """Return the call of another system's operator; a separate function holds its source, so names do not clash."""
        operator, bound = operator_node.placed(at)
        source = operator.to_torch_source(bound)
        if source not in self.sources:
            self.sources.append(source)
        self.parts += 1
        self.init.append(f"        self.part_{self.parts} = _operator_{self.sources.index(source) + 1}()()")
        return f"self.part_{self.parts}({x}.movedim(-1, 1)).movedim(1, -1)"

    @staticmethod
    def _size(x: str, size: int | Rel) -> str:
        """Return a size of a reshape as source; a :class:`.Rel` becomes an expression of the input's shape."""
        if not isinstance(size, Rel):
            return str(size)
        through = f" // {size.div}" if size.div > 1 else ""
        return f"{x}.shape[{size.axis}]{f' * {size.mul}' if size.mul > 1 else ''}{through}"

    def _weights(self, operation: Operation, shapes: Sequence[Shape]) -> list[str]:
        """Declare an operation's weights, drawn as in PyTorch's layers, and return the names of the weights."""
        names = []
        inputs = 1
        for index, shape in enumerate(operation.weights(*shapes)):
            self.count += 1
            name = f"self.weight_{self.count}"
            names.append(name)
            if operation.name in _NORMS:
                self.init.append(f"        {name} = nn.Parameter(torch.{'zeros' if index else 'ones'}({shape}))")
                continue
            self.init.append(f"        {name} = nn.Parameter(torch.empty({shape}))")
            inputs = math.prod(shape[1:]) if len(shape) > 1 else shape[-1] if operation.name == "parameter" else inputs
            bound = repr(1 / math.sqrt(inputs))
            self.init.append(f"        nn.init.uniform_({name}, -{bound}, {bound})")
        return names
