"""The panes of the operator view for NAS-PTE's operators."""

from __future__ import annotations

from math import prod
from typing import Any

from syno_lab.inputs import count_of
from syno_lab.nas_pte.operator import NasPteOperator
from syno_lab.panes import Asked
from syno_lab.panes.forms import cost_forms
from syno_lab.panes.generic import GENERIC, total_costs
from syno_lab.panes.reach import reach_by_gradients
from syno_lab.protocol import FLOAT32_BYTES, Pane


def cost_pane(asked: Asked[Any]) -> dict[str, Any]:
    """The cost of the operator and of each of its convolutions.

    Returns:
        As :func:`syno_lab.panes.generic.total_costs`, with a row for each convolution, as the pane of a pGraph has one
        for each stage.
    """
    found = total_costs(asked)
    operator: NasPteOperator = asked.operator
    bound = found["binding"]
    images, _, rows, columns = operator.output_sizes(bound)
    for number, part in enumerate(operator.parts(bound), 1):
        weights = prod(part.weight_shape)
        flops = 2 * images * rows * columns * weights
        shape = [images, part.outputs, rows, columns]
        last = part.first_in + part.inputs - 1
        found["rows"].append(
            {
                "stage": number,
                "does": f"3x3 convolution of channels {part.first_in} to {last} in " + count_of(part.groups, "group"),
                "sums": "",
                "out": str(shape),
                "iterations": flops // 2,
                "flops": flops,
                "share": flops / found["totals"]["flops"],
                "weight_bytes": FLOAT32_BYTES * weights,
                "out_bytes": FLOAT32_BYTES * prod(shape),
                "ids": [],
            }
        )
    return found


PANES: dict[str, Pane] = {
    **GENERIC,
    "cost": Pane(cost_pane, ("name", "binding"), cost_forms, title="Cost"),
    "reach": reach_by_gradients(("N", "C_in", "H", "W"), (0, None, 2, 3)),
}
