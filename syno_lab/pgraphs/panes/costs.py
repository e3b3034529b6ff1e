"""FLOPs and memory by stage of the lowering plan."""

from __future__ import annotations

from math import prod

from syno_lab.codegen.drawing import coordinate_ids, describe_step
from syno_lab.codegen.text import expressions
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import plan
from syno_lab.panes import Asked
from syno_lab.panes.data import Costs
from syno_lab.panes.generic import CostRow, costs


def cost_pane(asked: Asked[Operator]) -> Costs:
    """Return the total cost of an operator, and the cost of each stage.

    The total ``naive_flops`` is for computing all loops in a single stage. ``ids`` has the coordinates of a stage's
    domain.
    """
    operator, bound = asked.operator, asked.bound()
    best = plan(operator, bound)
    names = expressions(operator)
    ids = {coordinate: name for name, coordinate in coordinate_ids(operator).items()}
    rows = []
    for number, stage in enumerate(best.stages, 1):
        does = [describe_step(operator.state, step, names) for step in stage.undo]
        weights = [operator.weights[weight].coordinates for weight in stage.weights]
        rows.append(
            CostRow.of(
                number,
                "; ".join(does) or "puts the axes in order",
                f"[{', '.join(c.size.pretty for c in stage.out)}] = {_numbers(stage.out, bound)}",
                stage.flops,
                best.flops,
                sum(_elements(weight, bound) for weight in weights),
                _elements(stage.out, bound),
                sums=", ".join(names[c] for c in stage.summed),
                iterations=_elements(stage.domain, bound),
                ids=sorted({ids[c] for c in stage.domain}),
            )
        )
    return costs(asked, rows, naive_flops=plan(operator, bound, "naive").flops)


def _elements(coordinates: tuple[Coordinate, ...], bound: dict[str, int]) -> int:
    return prod(c.size.at(bound) for c in coordinates)


def _numbers(coordinates: tuple[Coordinate, ...], bound: dict[str, int]) -> list[int]:
    return [c.size.at(bound) for c in coordinates]
