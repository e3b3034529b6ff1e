"""The panes of the operator view for NAS-PTE's operators."""

from __future__ import annotations

from math import prod
from typing import Any

from syno_lab.inputs import count_of
from syno_lab.nas_pte.operator import NasPteOperator
from syno_lab.panes import Asked
from syno_lab.panes.data import Costs
from syno_lab.panes.forms import cost_forms
from syno_lab.panes.generic import GENERIC, CostRow, costs
from syno_lab.panes.reach import reach_by_gradients
from syno_lab.protocol import Pane


def cost_pane(asked: Asked[Any]) -> Costs:
    """The cost of the operator and of each of its convolutions."""
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
