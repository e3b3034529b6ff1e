"""αNAS as one system of several (:class:`syno_lab.protocol.System`): its operators are whole networks with edits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import log2
from typing import TYPE_CHECKING, Any

from syno_lab.alpha.edits import Variant
from syno_lab.alpha.graph import Graph
from syno_lab.alpha.known import KNOWN
from syno_lab.alpha.operator import FORMAT, NetworkOperator, from_json
from syno_lab.alpha.panes import PANES
from syno_lab.alpha.space import OPTIONS, NetworkSpace
from syno_lab.alpha.stepping import CONSTRUCTION, traces
from syno_lab.inputs import count_of
from syno_lab.protocol import Binding, Placement, System

if TYPE_CHECKING:
    from syno_lab.models.sites import Site, Strides


class Alpha(System):
    """The system of ``syno-lab-alpha``."""

    format = FORMAT
    title = "αNAS"
    known = KNOWN
    panes = PANES
    construction = CONSTRUCTION
    space_options = OPTIONS

    read = staticmethod(from_json)
    space = staticmethod(NetworkSpace)
    traces = staticmethod(traces)

    def summary(self, text: str | bytes) -> str:
        """The number of edits, or that there are none."""
        edits = len(from_json(text).variant.edits)
        return count_of(edits, "edit") if edits else "the seed"

    def network_costs(self, operator: NetworkOperator) -> tuple[int, int]:
        """FLOPs and parameters of the edited network."""
        return operator.variant.flops(), operator.variant.params()

    def placement(self, operator: NetworkOperator, sites: Sequence[Site], strides: Strides) -> Placement:
        """The edited network in the place of the one that it was traced from, whatever layers are named."""
        from syno_lab.alpha.module import Edited

        return Edited(operator.variant)

    def traits(self, operator: NetworkOperator, binding: Binding) -> Mapping[str, int]:
        """How often each operation is in the network, the blocks, and the costs by powers of two."""
        graph = operator.at(binding)
        found = dict(Counter(node.operation.name for node in graph.nodes))
        found["blocks"] = len(operator.variant.network.blocks)
        found["multiply-adds"] = round(log2(1 + graph.flops() / 2))
        found["parameters"] = round(log2(1 + graph.params()))
        return found

    def operator_of(self, value: Any) -> NetworkOperator | None:
        """Of a variant, and of a graph of one input and one output."""
        if isinstance(value, Variant):
            return NetworkOperator(value)
        if isinstance(value, Graph) and len(value.inputs) == len(value.outputs) == 1:
            return NetworkOperator.of_graph(value)
        return None

    def small_binding(self, operator: NetworkOperator) -> dict[str, int]:
        """A batch of two."""
        return {"N": 2}


ALPHA = Alpha()
