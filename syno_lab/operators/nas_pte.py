"""The three operators of NAS-PTE, the rival in Figure 9 of Syno: concatenations of convolutions, so no pGraphs.

Turner, Crowley, O'Boyle, Neural Architecture Search as Program Transformation Exploration, ASPLOS 2021; written after
the descriptions in our design notes, not after its sources. They are operators under the small protocol that search,
evaluation and figures know: module, TVM module, FLOPs, parameters, fingerprint, picture, JSON.

Shapes: N images, C_in and C_out channels, H rows, W columns; windows of 3 x 3, padded with zeros.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab.errors import FormatError, SpecError
from syno_lab.ir.versioned import read_versioned

if TYPE_CHECKING:
    from torch import nn

FORMAT = "syno-lab-nas-pte"
VERSION = 1
WINDOW = 3
VARIABLES = ("N", "C_in", "C_out", "H", "W")
#: The channels of the second operator's dense convolution.
DENSE = 16


@dataclass(frozen=True)
class Part:
    """One convolution: input channels from ``first_in``, ``inputs`` of them, to ``outputs`` channels in ``groups``."""

    first_in: int
    inputs: int
    outputs: int
    groups: int

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """[outputs, inputs of a group, 3, 3], as PyTorch has it."""
        return self.outputs, self.inputs // self.groups, WINDOW, WINDOW


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """An operator file: the name says it all."""

    format: str
    version: int
    name: str


@dataclass(frozen=True)
class NasPteOperator:
    """Convolutions side by side, their outputs concatenated along the channels.

    Attributes:
        name: ``nas_pte_1``, ``nas_pte_2`` or ``nas_pte_3``.
        latency_only: it does not compute an image of the output's shape, and stands for a cost alone.
    """

    name: str
    latency_only: bool = False

    def parts(self, binding: Mapping[str, int]) -> tuple[Part, ...]:
        """The convolutions for a binding, in the order of their outputs and of the weights.

        Raises:
            SpecError: where the binding lacks a variable or its channels do not divide.
        """
        bound = self.complete_binding(binding)
        parts = _PARTS[self.name](bound["C_in"], bound["C_out"])
        for part in parts:
            if min(part.inputs, part.outputs) < 1 or part.inputs % part.groups or part.outputs % part.groups:
                raise SpecError(
                    f"{self.name}: expected channels that its convolutions can divide, found C_in={bound['C_in']}, "
                    f"C_out={bound['C_out']}: {part.inputs} to {part.outputs} channels in {part.groups} groups"
                )
        return parts

    def complete_binding(self, binding: Mapping[str, int] | None = None) -> dict[str, int]:
        """``binding``'s N, C_in, C_out, H and W; raises SpecError where one is missing or no positive whole number."""
        given = dict(binding or {})
        for name in VARIABLES:
            size = given.get(name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise SpecError(f"{self.name}: expected a whole number from 1 up for {name}, found {size!r}")
        return {name: given[name] for name in VARIABLES}

    def rows(self, binding: Mapping[str, int]) -> int:
        """The rows that are computed: H, or half of them (rounded up) where it stands for a cost alone."""
        height = self.complete_binding(binding)["H"]
        return -(-height // 2) if self.latency_only else height

    def input_sizes(self, binding: Mapping[str, int]) -> tuple[int, ...]:
        """[N, C_in, H, W]."""
        bound = self.complete_binding(binding)
        return bound["N"], bound["C_in"], bound["H"], bound["W"]

    def output_sizes(self, binding: Mapping[str, int]) -> tuple[int, ...]:
        """[N, C_out, rows, W]."""
        bound = self.complete_binding(binding)
        return bound["N"], bound["C_out"], self.rows(bound), bound["W"]

    def weight_sizes(self, binding: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
        """One weight for each convolution."""
        return tuple(part.weight_shape for part in self.parts(binding))

    def params(self, binding: Mapping[str, int]) -> int:
        """The number of weight elements."""
        return sum(prod(shape) for shape in self.weight_sizes(binding))

    def flops(self, binding: Mapping[str, int]) -> int:
        """Two for each multiply-add, padding counted, as for pGraphs."""
        images, _, rows, columns = self.output_sizes(binding)
        return 2 * images * rows * columns * self.params(binding)

    def fingerprint(self, binding: Mapping[str, int]) -> str:
        """32 hexadecimal digits of the convolutions and the binding.

        Not of the terms as a pGraph's is: it never equals one, though a concatenation may compute what a pGraph does.
        """
        text = repr((FORMAT, self.parts(binding), self.output_sizes(binding)))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def to_torch(self, binding: Mapping[str, int]) -> nn.Module:
        """A module for images [batch, C_in, H, W] of any batch size."""
        from syno_lab.operators.nas_pte_module import NasPteModule

        return NasPteModule(self, self.complete_binding(binding))

    def to_tvm(self, binding: Mapping[str, int], dtype: str = "float32") -> Any:
        """An IRModule with one unscheduled function ``main(X, W1, ..., Y)``."""
        from syno_lab.operators.nas_pte_tvm import to_tvm

        return to_tvm(self, self.complete_binding(binding), dtype)

    def to_json(self) -> str:
        """As JSON text; :func:`from_json` reads it back."""
        return msgspec.json.encode(_File(FORMAT, VERSION, self.name)).decode()

    def dot(self, binding: Mapping[str, int] | None = None) -> str:
        """The convolutions between input and output as DOT text, with channels where a binding is given."""
        parts = self.parts(binding) if binding else _PARTS[self.name](64, 64)
        lines = ["digraph {", 'node [shape=box, fontname="Helvetica,Arial,sans-serif"];']
        lines += ['input [label="[N, C_in, H, W]"];', 'output [label="concatenation"];']
        for number, part in enumerate(parts, start=1):
            how = "dense" if part.groups == 1 else f"{part.groups} groups"
            sizes = f", {part.inputs} to {part.outputs} channels" if binding else ""
            half = ", half of the rows" if self.latency_only else ""
            lines.append(f'part{number} [label="3x3 convolution, {how}{sizes}{half}"];')
            lines.append(f"input -> part{number} -> output;")
        return "\n".join([*lines, "}"]) + "\n"

    def svg(self, binding: Mapping[str, int] | None = None) -> str:
        """The picture of :meth:`dot`."""
        from syno_lab.codegen.drawing_render import accessible_svg

        return accessible_svg(self.dot(binding), str(self), {})

    def __str__(self) -> str:
        return f"{self.name} of NAS-PTE, a concatenation of convolutions"


def _two_grouped(channels_in: int, channels_out: int) -> tuple[Part, ...]:
    half = channels_out // 2
    return Part(0, channels_in, half, 2), Part(0, channels_in, channels_out - half, 4)


def _dense_and_grouped(channels_in: int, channels_out: int) -> tuple[Part, ...]:
    return Part(0, DENSE, DENSE, 1), Part(DENSE, channels_in - DENSE, channels_out - DENSE, 2)


def _dense(channels_in: int, channels_out: int) -> tuple[Part, ...]:
    return (Part(0, channels_in, channels_out, 1),)


_PARTS: dict[str, Callable[[int, int], tuple[Part, ...]]] = {
    "nas_pte_1": _two_grouped,
    "nas_pte_2": _dense_and_grouped,
    "nas_pte_3": _dense,
}


def nas_pte_1() -> NasPteOperator:
    """Two convolutions over all input channels, in 2 and in 4 groups, each giving half of the output channels."""
    return NasPteOperator("nas_pte_1")


def nas_pte_2() -> NasPteOperator:
    """16 output channels from a dense convolution, the rest in 2 groups from the remaining input channels.

    The description does not say what the dense one reads; here it reads the first 16 input channels, so that the
    others "remain".
    """
    return NasPteOperator("nas_pte_2")


def nas_pte_3() -> NasPteOperator:
    """Known by its cost alone: Syno's authors timed it as a dense convolution over half of the height.

    For latency only: the module gives the upper half of a convolution's rows, of the upper half of the input's.
    """
    return NasPteOperator("nas_pte_3", latency_only=True)


NAS_PTE: dict[str, Callable[[], NasPteOperator]] = {made.__name__: made for made in (nas_pte_1, nas_pte_2, nas_pte_3)}


def from_json(text: str | bytes) -> NasPteOperator:
    """Read :meth:`NasPteOperator.to_json`'s text.

    Raises:
        FormatError: for another format or version, missing fields or junk.
    """
    file = read_versioned(text, _File, what="NAS-PTE operator file", name=FORMAT, version=VERSION, most=1 << 12)
    if file.name not in NAS_PTE:
        raise FormatError(f"NAS-PTE operator file: expected a name among {', '.join(NAS_PTE)}, found {file.name!r}")
    return NAS_PTE[file.name]()
