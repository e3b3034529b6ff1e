"""An edited network in the place of the network that its seed was traced from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from syno_lab.alpha.blocks import find_blocks
from syno_lab.alpha.edits import Variant
from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import Shape
from syno_lab.alpha.tracing import uncompared
from syno_lab.errors import SpecError
from syno_lab.models.slot import Place


@dataclass(frozen=True)
class Edited:
    """A variant in the place of its seed's network (:class:`syno_lab.protocol.Placement`).

    Attributes:
        variant: whose seed is the network, traced and split into blocks.
    """

    variant: Variant

    @property
    def whole(self) -> tuple[int, int]:
        """FLOPs and parameters of the edited network."""
        return self.variant.flops(), self.variant.params()

    @property
    def places(self) -> list[Place]:
        """The nodes of both networks with weights or FLOPs: those that stay, those that go, new ones.

        What goes has no cost any more, so that all costs together are those of the edited network.
        """
        before, after = self.variant.seed.graph, self.variant.network.graph
        stays: dict[tuple[str, str], int] = {}
        for number, node in enumerate(after.nodes):
            if node.source:
                stays.setdefault((node.source, node.operation.name), number)
        found: list[Place] = []
        done: set[int] = set()
        for number, node in enumerate(before.nodes):
            flops, params = _costs(before, number)
            if not flops and not params:
                continue
            other = stays.get((node.source, node.operation.name))
            if other is not None and _costs(after, other) == (flops, params):
                done.add(other)
                found.append(Place(node.source, None, "the edits leave it as it is", flops, params))
            else:
                found.append(Place(node.source, {}, None, 0, 0))
        for number, node in enumerate(after.nodes):
            flops, params = _costs(after, number)
            if number not in done and (flops or params):
                found.append(Place(f"node {number} ({node.operation})", {}, None, flops, params))
        return found

    def apply(self, net: nn.Module) -> nn.Module:
        """The edited network as a module: nodes that stay have the weights of ``net``, new ones are drawn.

        Args:
            net: built as the network that was traced.

        Raises:
            SpecError: where it is another network than the seed's.
        """
        (shape, *_) = self.variant.seed.stem.inputs
        traced, _ = uncompared(net, example_of(shape))
        found = find_blocks(traced)
        if found.digest != self.variant.seed.digest:
            raise SpecError(
                f"expected the network that the edits were made for ({self.variant.seed.digest}), found another "
                f"{type(net).__name__} ({found.digest}): of another size, or changed since"
            )
        return self.variant.network.graph.to_torch(traced)


def example_of(shape: Shape) -> tuple[int, ...] | Tensor:
    """What a network is traced with whose graph has an input of this shape: an image [C, H, W], or tokens [1, T].

    Raises:
        SpecError: for an input that is neither.
    """
    if len(shape) == 4:
        return (shape[3], shape[1], shape[2])
    if len(shape) == 2:
        return torch.zeros(shape, dtype=torch.int64)
    raise SpecError(f"expected a network for images or tokens, found one for an input of shape {list(shape)}")


def _costs(graph: Graph, number: int) -> tuple[int, int]:
    made, shapes = graph.nodes[number].operation, graph.input_shapes(number)
    return made.flops(*shapes), made.params(*shapes)
