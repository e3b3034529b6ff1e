"""αNAS as a system (:class:`syno_lab.protocol.System`) whose operators are whole networks with edits."""

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
        """Return the number of edits as text; for a network without edits, `the seed`."""
        edits = len(from_json(text).variant.edits)
        return count_of(edits, "edit") if edits else "the seed"

    def network_costs(self, operator: NetworkOperator) -> tuple[int, int]:
        """Return the FLOPs and the number of parameters of the edited network."""
        return operator.variant.flops(), operator.variant.params()

    def placement(self, operator: NetworkOperator, sites: Sequence[Site], strides: Strides) -> Placement:
        """Return a placement that replaces the whole traced network, regardless of ``sites``."""
        from syno_lab.alpha.module import Edited

        return Edited(operator.variant)

    def traits(self, operator: NetworkOperator, binding: Binding) -> Mapping[str, int]:
        """Return the count of each operation, the number of blocks, and the base-2 logarithms of both costs."""
        graph = operator.at(binding)
        traits = dict(Counter(node.operation.name for node in graph.nodes))
        traits["blocks"] = len(operator.variant.network.blocks)
        traits["multiply-adds"] = round(log2(1 + graph.flops() / 2))
        traits["parameters"] = round(log2(1 + graph.params()))
        return traits

    def operator_of(self, value: Any) -> NetworkOperator | None:
        """Return the operator of a variant, or of a graph of one input and one output; None for any other value."""
        if isinstance(value, Variant):
            return NetworkOperator(value)
        if isinstance(value, Graph) and len(value.inputs) == len(value.outputs) == 1:
            return NetworkOperator.of_graph(value)
        return None

    def small_binding(self, operator: NetworkOperator) -> dict[str, int]:
        """Return the binding of a batch of two."""
        return {"N": 2}


ALPHA = Alpha()
