"""A network with its edits as an operator of the lab (:class:`syno_lab.protocol.Operator`).

Other operators fill slots of a network; the placement of this operator returns the edited network. The operator is a
function of a tensor (N, spatial axes…, channels). The operator's weights are the weights of all nodes
(:mod:`.reference`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from syno_lab.alpha.blocks import Block, Network, in_numbers
from syno_lab.alpha.edits import EditRecord, Variant, record_of_edit, variant_of
from syno_lab.alpha.files import MAX_BYTES, NetworkRecord, network_of, record_of_network
from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import Shape
from syno_lab.common.size import bound_size
from syno_lab.errors import FormatError, SpecError
from syno_lab.inputs import quoted
from syno_lab.protocol import FLOAT32_BYTES, Binding
from syno_lab.versioned import read_versioned

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike
    from torch import nn

FORMAT = "syno-lab-alpha"
VERSION = 1
_WHAT = "αNAS file"
_LONGEST = 200  # the limit of characters in the operator's name


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    seed: NetworkRecord
    edits: list[EditRecord]


@dataclass(frozen=True)
class NetworkOperator:
    """A seed network and its edits. Raises SpecError unless the edited network has one input and one output."""

    variant: Variant

    def __post_init__(self) -> None:
        graph = self.graph
        if len(graph.inputs) != 1 or len(graph.outputs) != 1:
            counts = f"{len(graph.inputs)} and {len(graph.outputs)}"
            raise SpecError(f"expected a network of one input and one output, found {counts}")

    @classmethod
    def of_graph(cls, graph: Graph) -> NetworkOperator:
        """Return the operator of a network whose only block is this graph, wholly mutable. Raises as the class."""
        block = Block("block", graph, frozenset(range(len(graph.nodes))))
        before, after = (Graph((shape,), (), (0,)) for shape in (graph.inputs[0], graph.output_shapes[0]))
        return cls(Variant(Network(before, (block,), after)))

    @property
    def graph(self) -> Graph:
        """The graph of the whole network, for the network's own batch size."""
        return self.variant.network.graph

    @property
    def format(self) -> str:
        """See :class:`syno_lab.protocol.Operator`."""
        return FORMAT

    @property
    def variables(self) -> tuple[str, ...]:
        """The only variable: N, the batch size. The network fixes all other sizes."""
        return ("N",)

    def complete_binding(self, binding: Binding | None = None, /) -> dict[str, int]:
        """Return N, by default the network's batch size. Raises SpecError unless N is an integer from 1 up."""
        batch = (binding or {}).get("N", self.graph.inputs[0][0])
        return {"N": bound_size(batch, "N", "αNAS")}

    def at(self, binding: Binding | None = None, /) -> Graph:
        """Return the graph for a batch of N. Raises SpecError where an operation fixes the batch size."""
        return _at(self.graph, self.complete_binding(binding)["N"])

    def input_sizes(self, binding: Binding | None = None, /) -> Shape:
        """Return the input's shape, (N, spatial axes…, channels)."""
        return self.at(binding).inputs[0]

    def output_sizes(self, binding: Binding | None = None, /) -> Shape:
        """Return the shape of the result."""
        return self.at(binding).output_shapes[0]

    def weight_sizes(self, binding: Binding | None = None, /) -> tuple[Shape, ...]:
        """Return the shapes of all weights (:func:`.reference.weight_order`). Raises SpecError for an opaque node."""
        from syno_lab.alpha.reference import weight_order

        graph = self.at(binding)
        order = [(graph.nodes[number].operation, graph.input_shapes(number)) for number in weight_order(graph)]
        return tuple([shape for operation, shapes in order for shape in operation.weights(*shapes)])

    def flops(self, binding: Binding | None = None, /) -> int:
        """Return the FLOPs of the whole batch, 2 for each multiply-add."""
        return self.at(binding).flops()

    def params(self, binding: Binding | None = None, /) -> int:
        """Return the number of weights."""
        return self.at(binding).params()

    def memory(self, binding: Binding | None = None, /) -> int:
        """Return the largest number of bytes that the weights and the tensors need at one time, in float32."""
        from syno_lab.alpha.reference import live_elements

        graph = self.at(binding)
        return FLOAT32_BYTES * (graph.params() + live_elements(graph))

    def traffic(self, binding: Binding | None = None, /) -> int:
        """Return the number of elements of all nodes' results."""
        graph = self.at(binding)
        return sum(prod(graph.shapes[graph.tensor(number)]) for number in range(len(graph.nodes)))

    def fingerprint(self, binding: Binding | None = None, /) -> str:
        """Return a hash that is equal for networks of one structure and batch size, even if their blocks differ."""
        return in_numbers(self.at(binding)).key

    def reference(self, x: ArrayLike, *weights: ArrayLike, binding: Binding | None = None) -> np.ndarray[Any, Any]:
        """See :func:`syno_lab.alpha.reference.run`. Raises SpecError for tensors of other shapes, and opaque nodes."""
        import numpy as np

        from syno_lab.alpha.reference import run

        wanted = [self.input_sizes(binding), *self.weight_sizes(binding)]
        arrays = [np.asarray(array) for array in (x, *weights)]
        if [array.shape for array in arrays] != wanted:
            expected, actual = ([list(shape) for shape in shapes] for shapes in (wanted, [a.shape for a in arrays]))
            raise SpecError(f"αNAS: expected tensors of {quoted(expected)}, found {quoted(actual)}")
        return run(self.at(binding), arrays[:1], arrays[1:])[0]

    def to_torch(self, binding: Binding | None = None, /) -> nn.Module:
        """Return a module with new random weights; it takes any batch size unless an operation fixes it."""
        from syno_lab.alpha.torch_source import module_of

        return module_of(self, self.complete_binding(binding))

    def to_torch_source(self, binding: Binding | None = None, /) -> str:
        """See :func:`syno_lab.alpha.torch_source.to_torch_source`."""
        from syno_lab.alpha.torch_source import to_torch_source

        return to_torch_source(self.at(binding))

    def to_tvm(self, binding: Binding | None = None, /, dtype: str = "float32") -> NoReturn:
        """Raise SpecError: a network has no single TVM function, because it is compiled as a whole."""
        sides = "expected an operator of layers for one TVM function, found a whole network of αNAS"
        raise SpecError(f"{sides}; compile it by `syno-lab network`")

    def dot(self, **options: Any) -> str:
        """See :func:`syno_lab.alpha.drawing.dot`."""
        return self.graph.dot(**options)

    def svg(self, **options: Any) -> str:
        """See :func:`syno_lab.alpha.drawing.svg`."""
        return self.graph.svg(**options)

    def to_json(self) -> str:
        """Return the text of an operator file, which :func:`from_json` reads."""
        edits = [record_of_edit(edit) for edit in self.variant.edits]
        return msgspec.json.encode(_File(FORMAT, VERSION, record_of_network(self.variant.seed), edits)).decode()

    def __str__(self) -> str:
        """Return the edits in a line; for a seed without edits, the operations."""
        edits = "; ".join(map(str, self.variant.edits))
        text = edits or ", ".join(node.operation.name for node in self.graph.nodes) or "identity"
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


@lru_cache(maxsize=256)
def _at(graph: Graph, batch: int) -> Graph:
    (shape,) = graph.inputs
    return graph if shape[0] == batch else graph.at((batch, *shape[1:]))


def from_json(text: str | bytes) -> NetworkOperator:
    """Read an operator file and replay its edits.

    Raises FormatError with one line: the expected value, the found value and the place in the file.
    """
    record = read_versioned(text, _File, what=_WHAT, name=FORMAT, version=VERSION, most=MAX_BYTES)
    seed = network_of(record.seed, f"{_WHAT}: seed")
    try:
        return NetworkOperator(variant_of(seed, record.edits, _WHAT))
    except SpecError as error:
        raise FormatError(f"{_WHAT}: {error}") from None
