"""An edited network in the place of the network that it was traced from."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from syno_lab.alpha.graph import Graph
from syno_lab.alpha.tracing import trace
from syno_lab.errors import SpecError
from syno_lab.models.slot import Place


@dataclass(frozen=True)
class Edited:
    """A graph in the place of a network (:class:`syno_lab.protocol.Placement`).

    Attributes:
        graph: made by edits of ``traced``, or read from a file of such a graph.
        traced: the network's graph, of :func:`.trace`.

    Raises:
        SpecError: where ``traced`` is of no network.
    """

    graph: Graph
    traced: Graph

    def __post_init__(self) -> None:
        if self.traced.origin is None:
            raise SpecError("expected a graph of sl.alpha.trace to edit, found one of no network")

    @property
    def places(self) -> list[Place]:
        """The nodes of both graphs with weights or FLOPs: those of the network that stay, those that go, new ones.

        What goes has no cost any more, so that all costs together are those of the edited graph.
        """
        stays: dict[tuple[str, str], int] = {}
        for number, node in enumerate(self.graph.nodes):
            if node.source:
                stays.setdefault((node.source, node.operation.name), number)
        found: list[Place] = []
        done: set[int] = set()
        for number, node in enumerate(self.traced.nodes):
            flops, params = _costs(self.traced, number)
            if not flops and not params:
                continue
            other = stays.get((node.source, node.operation.name))
            if other is not None and _costs(self.graph, other) == (flops, params):
                done.add(other)
                found.append(Place(node.source, None, "the edits leave it as it is", flops, params))
            else:
                found.append(Place(node.source, {}, None, 0, 0))
        for number, node in enumerate(self.graph.nodes):
            flops, params = _costs(self.graph, number)
            if number not in done and (flops or params):
                found.append(Place(f"node {number} ({node.operation})", {}, None, flops, params))
        return found

    def apply(self, net: nn.Module) -> nn.Module:
        """The edited network as a module: nodes that stay have the weights of ``net``, new ones are drawn.

        Args:
            net: built as the network that was traced.

        Raises:
            SpecError: where it is another network than the one that was traced.
        """
        again = trace(net, self.traced.origin.example)
        if again != self.traced:
            raise SpecError("expected the network that the edited graph was traced from, found another")
        return self.graph.to_torch(again)


def _costs(graph: Graph, number: int) -> tuple[int, int]:
    made, shapes = graph.nodes[number].operation, graph.input_shapes(number)
    return made.flops(*shapes), made.params(*shapes)
