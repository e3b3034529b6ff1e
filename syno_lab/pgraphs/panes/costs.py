"""FLOPs and memory by stage of the lowering plan."""

from __future__ import annotations

from math import prod
from typing import Any

from syno_lab.codegen.drawing import coordinate_ids, describe_step
from syno_lab.codegen.text import expressions
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.plan import plan
from syno_lab.pgraphs.panes.asked import Asked
from syno_lab.protocol import FLOAT32_BYTES


def cost_pane(asked: Asked) -> dict[str, Any]:
    """The sum and the cost of each stage.

    Returns:
        ``binding``; ``totals`` with ``flops``, ``naive_flops`` (one stage with every loop), ``params`` and
        ``memory_bytes`` as the operator counts them; ``rows``, one for each stage: ``stage`` from 1, ``does`` (words),
        ``sums``, ``out`` (its shape in symbols and in numbers), ``iterations``, ``flops``, ``share`` of the FLOPs,
        ``weight_bytes`` and ``out_bytes`` in float32, and ``ids`` of the drawing's nodes that it undoes.
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
            {
                "stage": number,
                "does": "; ".join(does) or "puts the axes in order",
                "sums": ", ".join(names[c] for c in stage.summed),
                "out": f"[{', '.join(c.size.pretty for c in stage.out)}] = {_numbers(stage.out, bound)}",
                "iterations": _elements(stage.domain, bound),
                "flops": stage.flops,
                "share": stage.flops / best.flops if best.flops else 0.0,
                "weight_bytes": FLOAT32_BYTES * sum(_elements(weight, bound) for weight in weights),
                "out_bytes": FLOAT32_BYTES * _elements(stage.out, bound),
                "ids": sorted({ids[c] for c in stage.domain}),
            }
        )
    totals = {
        "flops": best.flops,
        "naive_flops": plan(operator, bound, "naive").flops,
        "params": operator.params(bound),
        "memory_bytes": operator.memory(bound),
    }
    return {"binding": bound, "totals": totals, "rows": rows}


def _elements(coordinates: tuple[Coordinate, ...], bound: dict[str, int]) -> int:
    return prod(c.size.at(bound) for c in coordinates)


def _numbers(coordinates: tuple[Coordinate, ...], bound: dict[str, int]) -> list[int]:
    return [c.size.at(bound) for c in coordinates]
