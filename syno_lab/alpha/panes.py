"""The panes of the operator view for networks of αNAS."""

from __future__ import annotations

from math import prod
from typing import Any

from syno_lab.alpha.edits import words
from syno_lab.alpha.operator import NetworkOperator
from syno_lab.panes import Asked
from syno_lab.panes.forms import cost_forms
from syno_lab.panes.generic import GRAPH, SOURCE, total_costs
from syno_lab.protocol import Pane

_FLOAT32_BYTES = 4


def cost_pane(asked: Asked[Any]) -> dict[str, Any]:
    """The cost of the network and of each node with weights or FLOPs.

    Returns:
        As :func:`syno_lab.panes.generic.total_costs`, with a row for each such node, as the pane of a pGraph has one
        for each stage.
    """
    found = total_costs(asked)
    operator: NetworkOperator = asked.operator
    graph = operator.at(found["binding"])
    total = max(1, found["totals"]["flops"])
    for number, node in enumerate(graph.nodes):
        shapes = graph.input_shapes(number)
        flops, params = node.operation.flops(*shapes), node.operation.params(*shapes)
        if not flops and not params:
            continue
        out = graph.shapes[graph.tensor(number)]
        found["rows"].append(
            {
                "stage": number,
                "does": words(graph.subgraph(graph.region([number]))),
                "sums": "",
                "out": str(list(out)),
                "iterations": flops // 2,
                "flops": flops,
                "share": flops / total,
                "weight_bytes": _FLOAT32_BYTES * params,
                "out_bytes": _FLOAT32_BYTES * prod(out),
                "ids": [f"n{number}"],
            }
        )
    return found


PANES: dict[str, Pane] = {
    "graph": GRAPH,
    "cost": Pane(cost_pane, ("name", "binding"), cost_forms, title="Cost"),
    "source": SOURCE,
}
