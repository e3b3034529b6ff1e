"""The system of NAS-PTE's operators (:class:`syno_lab.protocol.System`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2, prod
from typing import TYPE_CHECKING, Any

from syno_lab.common.layers import LAYER
from syno_lab.errors import SpecError
from syno_lab.inputs import count_of
from syno_lab.nas_pte.operator import FORMAT, VARIABLES, NasPteOperator, from_json
from syno_lab.nas_pte.operator import NAS_PTE as KNOWN
from syno_lab.nas_pte.parts import WINDOW, Part
from syno_lab.panes import Asked
from syno_lab.panes.data import Costs
from syno_lab.panes.forms import cost_forms
from syno_lab.panes.generic import GENERIC, CostRow, costs
from syno_lab.panes.reach import reach_by_gradients
from syno_lab.protocol import Binding, Pane, Placement, System

if TYPE_CHECKING:
    from syno_lab.models.sites import Site, Strides


def cost_pane(asked: Asked[Any]) -> Costs:
    """Return the cost of the operator and of each of its convolutions."""
    operator: NasPteOperator = asked.operator
    bound = asked.bound()
    images, _, height, width = operator.output_sizes(bound)
    rows, total = [], operator.flops(bound)
    for number, part in enumerate(operator.parts(bound), 1):
        weights, shape = prod(part.weight_shape), [images, part.outputs, height, width]
        groups, last = count_of(part.groups, "group"), part.first_in + part.inputs - 1
        does = f"3x3 convolution of channels {part.first_in} to {last} in {groups}"
        flops = 2 * images * height * width * weights
        rows.append(CostRow.of(number, does, str(shape), flops, total, weights, prod(shape)))
    return costs(asked, rows)


PANES: dict[str, Pane] = {
    **GENERIC,
    "cost": Pane(cost_pane, ("name", "binding"), cost_forms, title="Cost"),
    "reach": reach_by_gradients(("N", "C_in", "H", "W"), (0, None, 2, 3)),
}


class NasPte(System):
    """The system ``syno-lab-nas-pte``: three operators, which are not built by steps."""

    format = FORMAT
    title = "NAS-PTE"
    known = KNOWN
    panes = PANES

    read = staticmethod(from_json)

    def summary(self, text: str | bytes) -> str:
        """Return the operator's name."""
        return from_json(text).name

    def binding_for(
        self, operator: NasPteOperator, named: Binding, input_sizes: Sequence[int], output_sizes: Sequence[int]
    ) -> dict[str, int]:
        """Return N, C_in, C_out, H and W of a layer for images.

        Raises SpecError for a layer that is not for images or changes their size, and for a ``latency_only`` operator.
        """
        if operator.latency_only:
            raise SpecError(f"expected an operator that computes the layer's output, found {operator}")
        if len(input_sizes) != 4 or len(output_sizes) != 4 or input_sizes[2:] != output_sizes[2:]:
            raise SpecError(
                f"expected a layer from [N, C_in, H, W] to [N, C_out, H, W] for {operator.name}, "
                f"found one from {list(input_sizes)} to {list(output_sizes)}"
            )
        images, channels, height, width = input_sizes
        return dict(zip(VARIABLES, (images, channels, output_sizes[1], height, width), strict=True))

    def placement(self, operator: NasPteOperator, sites: Sequence[Site], strides: Strides) -> Placement:
        """Return a placement of the operator in every slot that it fits."""
        from syno_lab.models.slot import InSlots

        return InSlots(operator, sites, strides)

    def traits(self, operator: NasPteOperator, binding: Binding) -> Mapping[str, int]:
        """Return the traits as :func:`syno_lab.pgraphs.traits.traits` does, for the output element in the middle."""
        _, channels, *image = operator.input_sizes(binding)
        part = _middle(operator.parts(binding), binding["C_out"] // 2)
        read = {1: (part.inputs // part.groups, channels)}
        read |= {axis: (min(WINDOW, size), size) for axis, size in enumerate(image, start=2)}
        words = {f"reads {axis}": round(2 * log2(number)) for axis, (number, _) in read.items()}
        words |= {f"reads all of {axis}": 1 for axis, (number, size) in read.items() if number == size}
        outputs = prod(operator.output_sizes(binding))
        words["multiply-adds"] = round(log2(max(1.0, operator.flops(binding) / 2 / outputs)))
        words["parameters"] = round(log2(1 + operator.params(binding)))
        return words

    def traffic(self, operator: NasPteOperator, binding: Binding) -> int:
        """Return the number of elements in the convolutions' outputs and, of several outputs, the concatenation."""
        output = prod(operator.output_sizes(binding))
        return output if len(operator.parts(binding)) == 1 else 2 * output

    def example_binding(self, operator: NasPteOperator) -> dict[str, int]:
        """Return the sizes of the example layer, :data:`syno_lab.common.layers.LAYER`."""
        return dict(LAYER)


def _middle(parts: Sequence[Part], channel: int) -> Part:
    """Return the convolution that computes an output channel."""
    for part in parts:
        if channel < part.outputs:
            return part
        channel -= part.outputs
    raise AssertionError(channel)


NAS_PTE = NasPte()
