"""The operations of αNAS's networks, so that those of several can be put side by side.

An edit in the middle changes all that is computed behind it, but not the operations there. So networks are compared as
sequences: equal are the operations, with the shapes that they give, that stand in the first network and in another in
one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from syno_lab.alpha.edits import words
from syno_lab.alpha.graph import Graph
from syno_lab.alpha.synthesis import Draft
from syno_lab.protocol import TracedStep


def traces(values: Sequence[Any]) -> list[list[TracedStep]]:
    """The operations of each network or draft, in its order."""
    graphs: list[Graph] = [value.graph() if isinstance(value, Draft) else value.graph for value in values]
    texts = [[_text(graph, number) for number in range(len(graph.nodes))] for graph in graphs]
    found, fresh = [], len(texts[0]) if texts else 0
    for graph, mine in zip(graphs, texts, strict=True):
        keys = list(range(fresh, fresh + len(mine)))
        fresh += len(mine)
        for at, to, length in SequenceMatcher(None, texts[0], mine, autojunk=False).get_matching_blocks():
            keys[to : to + length] = range(at, at + length)
        kinds = [node.operation.name for node in graph.nodes]
        found.append(
            [
                TracedStep(kind, text, key, ids=(f"n{number}",))
                for number, (kind, text, key) in enumerate(zip(kinds, mine, keys, strict=True))
            ]
        )
    return found


def _text(graph: Graph, number: int) -> str:
    """An operation and the shape that it gives."""
    said = words(graph.subgraph(graph.region([number])))
    return f"{said} gives [{', '.join(map(str, graph.shapes[graph.tensor(number)]))}]"
