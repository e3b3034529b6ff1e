"""The three operators of NAS-PTE in Syno's Figure 9. The operators concatenate convolutions, so they are no pGraphs.

Source: Turner, Crowley, O'Boyle, Neural Architecture Search as Program Transformation Exploration, ASPLOS 2021. The
operators follow the descriptions in the lab's design notes, not NAS-PTE's source code. The operators fulfil the
protocol of operators in :mod:`syno_lab.protocol`; :mod:`syno_lab.nas_pte.system` is their system.

Shapes: N images, C_in and C_out channels, H rows, W columns; windows of 3 x 3, padded with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from syno_lab.common.size import bound_size
from syno_lab.drawing.render import accessible_svg
from syno_lab.errors import FormatError, SpecError
from syno_lab.generated import module_of
from syno_lab.inputs import quoted
from syno_lab.nas_pte.parts import PARTS, WINDOW, Part, binding_of, check_shapes, parts_fingerprint, reference
from syno_lab.protocol import FLOAT32_BYTES, Binding
from syno_lab.versioned import read_versioned

if TYPE_CHECKING:
    from torch import nn

FORMAT = "syno-lab-nas-pte"
VERSION = 1
VARIABLES = ("N", "C_in", "C_out", "H", "W")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """An operator file; the name determines the operator."""

    format: str
    version: int
    name: str


@dataclass(frozen=True)
class NasPteOperator:
    """Convolutions side by side, with their outputs concatenated along the channels.

    Attributes:
        name: ``nas_pte_1``, ``nas_pte_2`` or ``nas_pte_3``.
        latency_only: whether only the latency is used, because the output has another shape than the layer's.
    """

    name: str
    latency_only: bool = False

    format = FORMAT
    variables = VARIABLES

    def parts(self, binding: Binding | None = None, /) -> tuple[Part, ...]:
        """Return the convolutions for a binding, in the order of their outputs and of the weights.

        Raises SpecError where the binding lacks a variable, or where its channels cannot be divided into the groups.
        """
        bound = self.complete_binding(binding)
        parts = PARTS[self.name](bound["C_in"], bound["C_out"])
        for part in parts:
            if min(part.inputs, part.outputs) < 1 or part.inputs % part.groups or part.outputs % part.groups:
                raise SpecError(
                    f"{self.name}: expected channels that its convolutions can divide, found C_in={bound['C_in']}, "
                    f"C_out={bound['C_out']}: {part.inputs} to {part.outputs} channels in {part.groups} groups"
                )
        return parts

    def complete_binding(self, binding: Binding | None = None, /) -> dict[str, int]:
        """Return N, C_in, C_out, H and W of ``binding``. Raises SpecError for a missing or invalid value."""
        sizes = dict(binding or {})
        return {name: bound_size(sizes.get(name), name, self.name) for name in VARIABLES}

    def rows(self, binding: Binding | None = None, /) -> int:
        """Return the number of computed rows: H, or half of H (rounded up) if the operator is ``latency_only``."""
        height = self.complete_binding(binding)["H"]
        return -(-height // 2) if self.latency_only else height

    def input_sizes(self, binding: Binding | None = None, /) -> tuple[int, ...]:
        """Return [N, C_in, H, W]."""
        bound = self.complete_binding(binding)
        return bound["N"], bound["C_in"], bound["H"], bound["W"]

    def output_sizes(self, binding: Binding | None = None, /) -> tuple[int, ...]:
        """Return [N, C_out, rows, W]."""
        bound = self.complete_binding(binding)
        return bound["N"], bound["C_out"], self.rows(bound), bound["W"]

    def weight_sizes(self, binding: Binding | None = None, /) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each convolution's weight."""
        return tuple(part.weight_shape for part in self.parts(binding))

    def params(self, binding: Binding | None = None, /) -> int:
        """Return the number of weight elements."""
        return sum(prod(shape) for shape in self.weight_sizes(binding))

    def flops(self, binding: Binding | None = None, /) -> int:
        """Return the FLOPs: 2 for each multiply-add; terms of the padding count, as for pGraphs."""
        images, _, rows, columns = self.output_sizes(binding)
        return 2 * images * rows * columns * self.params(binding)

    def memory(self, binding: Binding | None = None, /) -> int:
        """Return the bytes in float32 of input, output, weights, and the outputs before their concatenation."""
        output = prod(self.output_sizes(binding))
        live = output if len(self.parts(binding)) > 1 else 0
        return FLOAT32_BYTES * (prod(self.input_sizes(binding)) + output + live + self.params(binding))

    def fingerprint(self, binding: Binding | None = None, /) -> str:
        """Return the :func:`.parts_fingerprint`, 32 hexadecimal digits. Raises SynoError for too many terms."""
        return _fingerprint(self.parts(binding), self.input_sizes(binding), self.rows(binding))

    def reference(self, x: Any, *weights: Any, binding: Binding | None = None) -> np.ndarray[Any, Any]:
        """Compute the output for ``x`` and the weights in NumPy; without a binding the arrays determine the sizes.

        Raises SpecError where a shape or the number of weights does not fit the binding.
        """
        arrays = [np.asarray(array) for array in (x, *weights)]
        bound = self.complete_binding(binding_of(arrays[0], arrays[1:]) if binding is None else binding)
        check_shapes(arrays, [self.input_sizes(bound), *self.weight_sizes(bound)])
        return reference(self.parts(bound), self.rows(bound), arrays[0], arrays[1:])

    def to_torch(self, binding: Binding | None = None, /) -> nn.Module:
        """Return a module for images [batch, C_in, H, W] of any batch size; initial weights are as in ``nn.Conv2d``.

        The weights are ``weight_1``, ``weight_2``, …, one for each convolution.
        """
        return _made(self, self.complete_binding(binding))

    def to_torch_source(self, binding: Binding | None = None, /) -> str:
        """Return the module as Python source that needs torch alone: a class ``SynoOperator(nn.Module)``."""
        return _torch_source(self, self.complete_binding(binding))

    def to_tvm(self, binding: Binding | None = None, /, dtype: str = "float32") -> Any:
        """Return an IRModule with one unscheduled function ``main(X, W1, ..., Y)``."""
        from syno_lab.nas_pte.tvm import to_tvm

        return to_tvm(self, self.complete_binding(binding), dtype)

    def to_json(self) -> str:
        """Return JSON text, which :func:`from_json` reads."""
        return msgspec.json.encode(_File(FORMAT, VERSION, self.name)).decode()

    def dot(self, binding: Binding | None = None, **_: Any) -> str:
        """Return the convolutions between input and output as DOT text, with numbers of channels if there is a binding.

        Options of other systems' pictures are ignored.
        """
        parts = self.parts(binding) if binding else PARTS[self.name](64, 64)
        joined = "concatenation" if len(parts) > 1 else "output"
        lines = ["digraph {", 'node [shape=box, fontname="Helvetica"];']
        lines += ['input [label="[N, C_in, H, W]"];', f'output [label="{joined}"];']
        for number, part in enumerate(parts, start=1):
            how = "dense" if part.groups == 1 else f"{part.groups} groups"
            sizes = f", {part.inputs} to {part.outputs} channels" if binding else ""
            half = ", half of the rows" if self.latency_only else ""
            lines.append(f'part{number} [label="3x3 convolution, {how}{sizes}{half}"];')
            lines.append(f"input -> part{number} -> output;")
        return "\n".join([*lines, "}"]) + "\n"

    def svg(self, binding: Binding | None = None, **_: Any) -> str:
        """Return the picture of :meth:`dot` as SVG."""
        return accessible_svg(self.dot(binding), str(self), {})

    def __str__(self) -> str:
        if self.latency_only:
            return f"{self.name} of NAS-PTE, a convolution of half of the rows, for its latency alone"
        return f"{self.name} of NAS-PTE, a concatenation of convolutions"


def _made(operator: NasPteOperator, bound: dict[str, int], **options: bool) -> nn.Module:
    return module_of(_made, operator.to_torch_source(bound), operator, bound, **options)


_fingerprint = lru_cache(maxsize=64)(parts_fingerprint)

_HEAD = '''\
import torch
from torch import nn
from torch.nn import functional as F


class SynoOperator(nn.Module):
    """{about}"""

    def __init__(self):
        super().__init__()
{made}
        self.reset_parameters()

    def reset_parameters(self):
        """Draw the weights as nn.Conv2d does."""
        for weight in self.parameters():
            nn.init.kaiming_uniform_(weight, a=5**0.5)

    def forward(self, x):
        if x.dim() != 4 or x.shape[1:] != ({channels}, {height}, {width}):
            wanted = "[batch, {channels}, {height}, {width}]"
            raise ValueError(f"expected an input of shape {{wanted}}, found {{list(x.shape)}}")
'''


def _torch_source(operator: NasPteOperator, bound: dict[str, int]) -> str:
    """Return the source of ``SynoOperator(nn.Module)``: [batch, C_in, H, W] to [batch, C_out, rows, W]."""
    parts, rows, (_, channels, height, width) = operator.parts(bound), operator.rows(bound), operator.input_sizes(bound)
    sizes = "x".join(map(str, operator.output_sizes(bound)[1:]))
    about = f"{operator}: to {sizes} for an image, {operator.params(bound)} parameters, {operator.flops(bound)} FLOPs."
    weights = "\n".join(
        f"        self.weight_{number} = nn.Parameter(torch.empty({part.weight_shape}))"
        for number, part in enumerate(parts, start=1)
    )
    lines = [_HEAD.format(about=about, made=weights, channels=channels, height=height, width=width).rstrip("\n")]
    if rows != height:
        lines.append(f"        x = x[:, :, :{rows}]")
    calls = [_call(number, part, channels) for number, part in enumerate(parts, start=1)]
    if len(calls) == 1:
        lines.append(f"        return {calls[0]}")
    else:
        lines += [f"        z{number} = {call}" for number, call in enumerate(calls, start=1)]
        lines.append(f"        return torch.cat([{', '.join(f'z{n}' for n in range(1, len(calls) + 1))}], 1)")
    return "\n".join([*lines, ""])


def _call(number: int, part: Part, channels: int) -> str:
    end = part.first_in + part.inputs
    read = "x" if (part.first_in, end) == (0, channels) else f"x[:, {part.first_in}:{end}]"
    groups = f", groups={part.groups}" if part.groups > 1 else ""
    return f"F.conv2d({read}, self.weight_{number}, padding={WINDOW // 2}{groups})"


def nas_pte_1() -> NasPteOperator:
    """Two convolutions over all input channels, in 2 and in 4 groups; each makes half of the output channels."""
    return NasPteOperator("nas_pte_1")


def nas_pte_2() -> NasPteOperator:
    """A dense convolution makes 16 output channels, a convolution in 2 groups makes the others from other inputs.

    The paper's description does not state the input of the dense convolution. The lab's dense convolution reads the
    first 16 input channels, so that the other input channels "remain".
    """
    return NasPteOperator("nas_pte_2")


def nas_pte_3() -> NasPteOperator:
    """An operator of which only the cost is known: Syno's authors timed a dense convolution over half of the height.

    The operator is for latency only: its module computes the upper half of a convolution from the upper half of the
    input.
    """
    return NasPteOperator("nas_pte_3", latency_only=True)


#: NAS-PTE's operators by name.
NAS_PTE: dict[str, Callable[[], NasPteOperator]] = {make.__name__: make for make in (nas_pte_1, nas_pte_2, nas_pte_3)}


def from_json(text: str | bytes) -> NasPteOperator:
    """Parse the text of :meth:`NasPteOperator.to_json`. Raises FormatError for any other text, format or version."""
    file = read_versioned(text, _File, what="NAS-PTE operator file", name=FORMAT, version=VERSION, most=1 << 12)
    if file.name not in NAS_PTE:
        raise FormatError(
            f"NAS-PTE operator file: expected a name among {', '.join(NAS_PTE)}, found {quoted(file.name)}"
        )
    return NAS_PTE[file.name]()
