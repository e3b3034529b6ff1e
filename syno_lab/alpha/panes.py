"""The panes of the operator view for networks of αNAS."""

from __future__ import annotations

from math import prod
from typing import Any, TypedDict

from syno_lab.alpha.edits import words
from syno_lab.alpha.lineage import Generation, block_rows, lineage
from syno_lab.alpha.operator import NetworkOperator
from syno_lab.inputs import count_of
from syno_lab.panes import Asked
from syno_lab.panes.data import Costs, Form
from syno_lab.panes.forms import cost_forms, csv_text, form, whole
from syno_lab.panes.generic import GRAPH, SOURCE, CostRow, costs
from syno_lab.protocol import Pane


def cost_pane(asked: Asked[Any]) -> Costs:
    """Return the cost of the network and of each node with weights or FLOPs."""
    operator: NetworkOperator = asked.operator
    bound = asked.bound()
    graph, total = operator.at(bound), max(1, operator.flops(bound))
    rows = []
    for number in range(len(graph.nodes)):
        flops, params = graph.costs(number)
        if flops or params:
            text, out = words(graph.subgraph([number])), graph.shapes[graph.tensor(number)]
            rows.append(CostRow.of(number, text, str(list(out)), flops, total, params, prod(out), ids=[f"n{number}"]))
    return costs(asked, rows)


class Lineage(TypedDict):
    """The edits from the seed to a network, and a table of the network's blocks."""

    steps: list[Generation]
    title: str
    heads: list[str]
    rows: list[list[str | int]]
    note: str


def lineage_pane(asked: Asked[Any]) -> Lineage:
    """Return the edits from the seed to the network, and a table of the network's blocks."""
    variant = asked.operator.variant
    return {
        "steps": lineage(variant),
        "title": "The network from input to output",
        "heads": ["part", "type", "what it does", "FLOPs", "parameters"],
        "rows": block_rows(variant.network),
        "note": f"{count_of(len(variant.edits), 'edit')} of the seed. An edit may change several blocks of one "
        "type; what is kept is never changed.",
    }


def _lineage_forms(asked: Asked[Any], data: Lineage) -> list[Form]:
    steps = [{name: cell for name, cell in step.items() if name != "pictures"} for step in data["steps"]]
    return [
        form(asked, "CSV", "lineage.csv", text=csv_text(steps)),
        form(asked, "edits (JSON)", "edits.json", text=asked.operator.variant.to_json()),
        whole(asked, "lineage"),
    ]


PANES: dict[str, Pane] = {
    "graph": GRAPH,
    "lineage": Pane(lineage_pane, ("name",), _lineage_forms, title="Lineage"),
    "cost": Pane(cost_pane, ("name", "binding"), cost_forms, title="Cost"),
    "source": SOURCE,
}
