"""Programs of αNAS: typed graphs of operations, as values (sections 3.2 and 4.6).

With i inputs, tensors 0 to i - 1 are the inputs, and tensor i + n is the result of node n. The inputs of a node have
smaller numbers than its result, so the nodes are in topological order and a cycle cannot exist. A graph has any number
of inputs and at least one output. Each node has an output that depends on it. A :class:`Region` is a closed part of a
graph; :meth:`Graph.replace` replaces it by another graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any

from syno_lab.alpha.operations import MOST_AXES, OPAQUE, Operation, Shape
from syno_lab.common.canonical import Vertex, least_form
from syno_lab.errors import SpecError
from syno_lab.inputs import LARGEST_SIZE, positive, quoted

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.alpha.tracing import Origin
    from syno_lab.common.pairing import Pairing

#: The limit of nodes of one graph; a network with hundreds of layers has fewer nodes.
MOST_NODES = 1 << 13
_DIGEST_BYTES = 16
#: The limit of draws of a random region before :meth:`Graph.choose_region` gives up.
_DRAWS = 64


@dataclass(frozen=True)
class Node:
    """An operation on tensors.

    Attributes:
        operation: the operation with its attributes.
        inputs: the numbers of the node's input tensors.
        source: the path of the module from which a trace made the node, or an empty text. The source does not change
            the node's result, and equality ignores it.
    """

    operation: Operation
    inputs: tuple[int, ...] = ()
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.operation} of {', '.join(f't{number}' for number in self.inputs) or 'nothing'}"


class Nodes(list[Node]):
    """The nodes of a graph under construction, whose number of inputs is fixed; :meth:`put` renumbers tensors."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self._inputs = inputs

    def put(self, node: Node, tensors: Mapping[int, int] | Sequence[int]) -> int:
        """Append ``node`` with each input t replaced by ``tensors[t]``; return the number of the new node's result."""
        self.append(replace(node, inputs=tuple([tensors[tensor] for tensor in node.inputs])))
        return self._inputs + len(self) - 1


@dataclass(frozen=True)
class Graph:
    """An immutable program. Equal graphs have equal inputs, nodes and outputs; :attr:`key` ignores the order of nodes.

    Attributes:
        inputs: the shapes of the inputs, (batch, spatial axes…, channels).
        nodes: the nodes in topological order.
        outputs: the numbers of the output tensors, at least one.
        shapes: the shapes of all tensors.
        origin: the traced network of the graph, or of the graph before its edits; None: no network. The origin
            does not change the graph's results, and equality ignores it; see :mod:`syno_lab.alpha.tracing`.

    Raises SpecError for a wrong shape, and for a node that takes a later tensor, does not fit its inputs, or has no
    output that depends on it. The message names the node and the reason in one line.
    """

    inputs: tuple[Shape, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    origin: Origin | None = field(default=None, repr=False, compare=False)
    shapes: tuple[Shape, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for part, values in (("inputs", self.inputs), ("nodes", self.nodes), ("outputs", self.outputs)):
            if len(values) > MOST_NODES:
                raise SpecError(f"expected at most {MOST_NODES} {part}, found {len(values)}")
        shapes: list[Shape] = []
        for number, shape in enumerate(self.inputs):
            if not isinstance(shape, tuple) or len(shape) > MOST_AXES or any(positive(n) is None for n in shape):
                expected = f"a tuple of at most {MOST_AXES} positive integers"
                raise SpecError(f"input {number}: expected {expected}, found {quoted(shape)}")
            if prod(shape) > LARGEST_SIZE:
                raise SpecError(f"input {number}: expected at most {LARGEST_SIZE} elements, found {prod(shape)}")
            shapes.append(shape)
        for number, node in enumerate(self.nodes):
            for tensor in node.inputs:
                _check_tensor(tensor, len(shapes), f"node {number} ({node.operation.name})")
            try:
                shapes.append(node.operation.shape(*(shapes[tensor] for tensor in node.inputs)))
            except SpecError as error:
                raise SpecError(f"node {number}: {error}") from None
        if not self.outputs:
            raise SpecError("expected at least one output, found none")
        for tensor in self.outputs:
            _check_tensor(tensor, len(shapes), "outputs")
        object.__setattr__(self, "shapes", tuple(shapes))
        outputs = set(self.outputs)
        for number, tensor in enumerate(range(len(self.inputs), len(shapes))):
            if not self.users[tensor] and tensor not in outputs:
                name = self.nodes[number].operation.name
                raise SpecError(f"node {number} ({name}): expected a node that serves an output")

    @classmethod
    def live(
        cls, inputs: Sequence[Shape], nodes: Sequence[Node], outputs: Sequence[int], origin: Origin | None = None
    ) -> Graph:
        """Return a graph of the nodes that outputs depend on; all inputs stay. Raises SpecError as the class does."""
        return cls._live(inputs, nodes, outputs, origin)[0]

    @classmethod
    def _live(
        cls, inputs: Sequence[Shape], nodes: Sequence[Node], outputs: Sequence[int], origin: Origin | None
    ) -> tuple[Graph, list[int]]:
        """Return the graph of :meth:`live`, and for each of its nodes the index in ``nodes``."""
        first, wanted = len(inputs), set(outputs)
        for number in range(len(nodes) - 1, -1, -1):
            if first + number in wanted:
                wanted.update(nodes[number].inputs)
        live_nodes = [number for number in range(len(nodes)) if first + number in wanted]
        new = {first + number: first + position for position, number in enumerate(live_nodes)}

        def renumbered(tensors: Sequence[int]) -> tuple[int, ...]:
            # The number of an unknown tensor stays too large, so that the constructor rejects the number.
            return tuple([new.get(tensor, tensor) for tensor in tensors])

        live = tuple([replace(nodes[number], inputs=renumbered(nodes[number].inputs)) for number in live_nodes])
        return cls(tuple(inputs), live, renumbered(outputs), origin), live_nodes

    @classmethod
    def chain(cls, shape: Shape, operations: Iterable[Operation]) -> Graph:
        """Return a graph that applies operations one after another to one input; without operations, the identity."""
        nodes = tuple([Node(operation, (number,)) for number, operation in enumerate(operations)])
        return cls((shape,), nodes, (len(nodes),))

    @property
    def is_chain(self) -> bool:
        """Whether the graph is a chain of operations, as :meth:`chain` makes it."""
        follows = all(node.inputs == (number,) for number, node in enumerate(self.nodes))
        return len(self.inputs) == 1 and follows and self.outputs == (len(self.nodes),)

    # -- tensors -----------------------------------------------------------------------------------------------------

    def tensor(self, node: int) -> int:
        """Return the number of a node's result."""
        return len(self.inputs) + node

    def maker(self, tensor: int) -> int | None:
        """Return the node that computes a tensor; None for an input."""
        return tensor - len(self.inputs) if tensor >= len(self.inputs) else None

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor, the nodes with this tensor as an input, in order and without repeats."""
        users: list[dict[int, None]] = [{} for _ in range(len(self.inputs) + len(self.nodes))]
        for number, node in enumerate(self.nodes):
            for tensor in node.inputs:
                users[tensor][number] = None
        return tuple(map(tuple, users))

    @cached_property
    def done(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the input tensors that are needed neither by a later node nor as an output, in order."""
        last = {tensor: number for number, node in enumerate(self.nodes) for tensor in node.inputs}
        inner_inputs = [sorted(set(node.inputs) - set(self.outputs)) for node in self.nodes]
        return tuple([tuple([t for t in tensors if last[t] == number]) for number, tensors in enumerate(inner_inputs)])

    def input_shapes(self, node: int) -> tuple[Shape, ...]:
        """Return the shapes of a node's input tensors."""
        return tuple([self.shapes[tensor] for tensor in self.nodes[node].inputs])

    def neighbours(self, node: int) -> frozenset[int]:
        """Return the nodes that compute a node's inputs, and the nodes that take its result."""
        makers = [self.maker(tensor) for tensor in self.nodes[node].inputs]
        return frozenset([maker for maker in makers if maker is not None] + list(self.users[self.tensor(node)]))

    @property
    def output_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the outputs."""
        return tuple([self.shapes[tensor] for tensor in self.outputs])

    # -- facts -------------------------------------------------------------------------------------------------------

    def params(self) -> int:
        """Return the number of weights."""
        return sum(node.operation.params(*self.input_shapes(number)) for number, node in enumerate(self.nodes))

    def flops(self) -> int:
        """Return the FLOPs for the whole batch of inputs; 2 for each multiply-add."""
        return sum(node.operation.flops(*self.input_shapes(number)) for number, node in enumerate(self.nodes))

    def costs(self, node: int) -> tuple[int, int]:
        """Return the FLOPs and the number of weights of a node."""
        operation, shapes = self.nodes[node].operation, self.input_shapes(node)
        return operation.flops(*shapes), operation.params(*shapes)

    @cached_property
    def key(self) -> str:
        """32 hexadecimal digits, equal for two graphs exactly if a new numbering of the nodes makes the graphs equal.

        The key depends on the inputs with their shapes, the outputs, the operations with all attributes, and the inputs
        of each node in order. The order of inputs of `add` and `mul` is ignored.
        """
        vertices = [Vertex((0, f"input {number} {shape}"), ()) for number, shape in enumerate(self.inputs)]
        for node in self.nodes:
            label = f"{node.operation.name} {node.operation.attributes!r}"
            depth = 1 + max([vertices[tensor].label[0] for tensor in node.inputs], default=0)
            vertices.append(Vertex((depth, label), node.inputs, node.operation.row.commutes))
        most = 1 + max(vertex.label[0] for vertex in vertices)
        vertices += [Vertex((most, f"output {number}"), (tensor,)) for number, tensor in enumerate(self.outputs)]
        return blake2b(repr(least_form(vertices)).encode(), digest_size=_DIGEST_BYTES).hexdigest()

    # -- changes -----------------------------------------------------------------------------------------------------

    def at(self, *inputs: Shape) -> Graph:
        """Return the graph with other input shapes; each `Rel` adapts. Raises SpecError if a node does not fit."""
        if len(inputs) != len(self.inputs):
            raise SpecError(f"expected {len(self.inputs)} shapes of inputs, found {len(inputs)}")
        return Graph(inputs, self.nodes, self.outputs, self.origin)

    def region(self, nodes: Iterable[int]) -> Region:
        """Return the smallest region that contains these nodes: the nodes and all nodes on paths between them.

        Raises SpecError for an empty set of nodes and for an unknown node.
        """
        chosen = set(nodes)
        if not chosen or not all(isinstance(n, int) and 0 <= n < len(self.nodes) for n in chosen):
            expected = f"nodes from 0 to {len(self.nodes) - 1}, at least one"
            raise SpecError(f"expected {expected}, found {quoted(sorted(chosen))}")
        return Region(self, frozenset(self.after(chosen) & self.before(chosen)))

    def after(self, nodes: Collection[int]) -> set[int]:
        """Return these nodes, at least one, and all nodes that depend on them."""
        nodes_after = set(nodes)
        for number in range(min(nodes), len(self.nodes)):
            if any(self.maker(tensor) in nodes_after for tensor in self.nodes[number].inputs):
                nodes_after.add(number)
        return nodes_after

    def before(self, nodes: Collection[int]) -> set[int]:
        """Return these nodes, at least one, and all nodes that they depend on."""
        nodes_before = set(nodes)
        for number in range(max(nodes), -1, -1):
            if any(user in nodes_before for user in self.users[self.tensor(number)]):
                nodes_before.add(number)
        return nodes_before

    def choose_region(
        self, rng: Random, *, among: Iterable[int] | None = None, going_on: float = 0.75, most: float = 0.8
    ) -> Region | None:
        """Choose a random connected region (section 5; the specification, 2.3); None after 64 draws without success.

        The region starts as a random node; random neighbours are added, then all nodes on paths between these nodes. If
        this region is too large, a new region is drawn. A region has no opaque nodes.

        Args:
            rng: the random generator.
            among: the nodes that the region may have; None: all nodes of the graph.
            going_on: the probability that one more neighbour is added: 0.75 for CIFAR-10, 0.9 for ImageNet.
            most: the limit of the region's nodes, as a share of the nodes ``among``: 0.8 or 0.5; at least one node.
        """
        allowed = set(range(len(self.nodes)) if among is None else among)
        limit = max(1, int(most * len(allowed)))
        allowed = {node for node in allowed if self.nodes[node].operation.name != OPAQUE}
        starts = sorted(allowed)
        for _ in range(_DRAWS if starts else 0):
            chosen = {rng.choice(starts)}
            while len(chosen) < limit and rng.random() < going_on:
                around = sorted({near for node in chosen for near in self.neighbours(node)} & allowed - chosen)
                if not around:
                    break
                chosen.add(rng.choice(around))
            region = self.region(chosen)
            if len(region.nodes) <= limit and region.nodes <= allowed:
                return region
        return None

    def subgraph(self, nodes: Region | Iterable[int]) -> Graph:
        """Return a region, or the smallest region that contains these nodes, as a graph; the order of nodes stays."""
        region = nodes if isinstance(nodes, Region) else self.region(nodes)
        return self.part(region.nodes, region.inputs, region.outputs)

    def part(self, nodes: Iterable[int], inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
        """Return a graph of these nodes, in the order of this graph, with these tensors as inputs and outputs."""
        part, new = Nodes(len(inputs)), {tensor: position for position, tensor in enumerate(inputs)}
        for node in sorted(nodes):
            new[self.tensor(node)] = part.put(self.nodes[node], new)
        shapes = tuple([self.shapes[tensor] for tensor in inputs])
        return Graph(shapes, tuple(part), tuple([new[tensor] for tensor in outputs]), self.origin)

    def replace(self, region: Region, graph: Graph) -> Graph:
        """Return the graph with ``graph`` in place of a region, without nodes that no output depends on any more.

        ``graph`` takes the tensors :attr:`Region.inputs`, and its outputs replace the tensors :attr:`Region.outputs`.
        Relative sizes in ``graph`` follow the shapes of the region's inputs. Raises SpecError where the number of
        inputs or outputs differs, or an operation does not fit its inputs.
        """
        return self.replaced(region, graph)[0]

    def replaced(self, region: Region, graph: Graph) -> tuple[Graph, tuple[int | None, ...]]:
        """Return the result of :meth:`replace`, and each node's former number (None for a node of ``graph``)."""
        if region.graph is not self and region.graph != self:
            raise SpecError("expected a region of this graph, found a region of another graph")
        sides = ("inputs", region.inputs, graph.inputs), ("outputs", region.outputs, graph.outputs)
        for side, wanted, actual in sides:
            if len(wanted) != len(actual):
                raise SpecError(f"expected a graph with {len(wanted)} {side} for the region, found {len(actual)}")
        after = self.after(region.nodes)  # a region is closed: the region's inputs do not depend on its nodes
        all_nodes, new = Nodes(len(self.inputs)), {tensor: tensor for tensor in range(len(self.inputs))}
        before = [number for number in range(len(self.nodes)) if number not in after]
        for number in before:
            new[self.tensor(number)] = all_nodes.put(self.nodes[number], new)
        inner = [new[tensor] for tensor in region.inputs]
        for node in graph.nodes:
            inner.append(all_nodes.put(node, inner))
        new |= {old: inner[tensor] for old, tensor in zip(region.outputs, graph.outputs, strict=True)}
        behind = sorted(after - region.nodes)
        for number in behind:
            new[self.tensor(number)] = all_nodes.put(self.nodes[number], new)
        ends = [new[tensor] for tensor in self.outputs]
        changed, live = Graph._live(self.inputs, all_nodes, ends, self.origin or graph.origin)
        origins = [*before, *([None] * len(graph.nodes)), *behind]
        return changed, tuple([origins[number] for number in live])

    if TYPE_CHECKING:  # syno_lab.alpha adds these methods: the modules that define them import this module

        def dot(self, **options: Any) -> str:
            """See :func:`syno_lab.alpha.drawing.dot`."""

        def svg(self, **options: Any) -> str:
            """See :func:`syno_lab.alpha.drawing.svg`."""

        def to_json(self) -> str:
            """Return the text of a graph file."""

        @staticmethod
        def from_json(text: str | bytes) -> Graph:
            """Read a graph file."""

        def to_torch(self, traced: Graph | None = None) -> nn.Module:
            """See :func:`syno_lab.alpha.module.to_torch`."""

        def properties(self, **options: Any) -> Any:  # Properties
            """See :meth:`.Properties.of`."""

        def shape(self, output: int = 0) -> Shape:
            """See :func:`syno_lab.alpha.wanted.shape_of`."""

        def depth(self, source: int = 0, output: int = 0) -> int:
            """See :func:`syno_lab.alpha.wanted.depth_of`."""

        def mixing(self, source: int = 0, output: int = 0) -> Pairing:
            """See :func:`syno_lab.alpha.wanted.mixing_of`."""

    def __str__(self) -> str:
        lines = [f"t{number} = input: {list(shape)}" for number, shape in enumerate(self.inputs)]
        for number, node in enumerate(self.nodes):
            tensor = self.tensor(number)
            lines.append(f"t{tensor} = {node}: {list(self.shapes[tensor])}")
        return "\n".join([*lines, f"outputs: {', '.join(f't{tensor}' for tensor in self.outputs)}"])


@dataclass(frozen=True)
class Region:
    """A set of nodes that contains all nodes on paths between its nodes: no path leaves the region and returns."""

    graph: Graph = field(repr=False)
    nodes: frozenset[int]

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The input tensors of the region's nodes that no node of the region computes, in order of number."""
        results = {self.graph.tensor(node) for node in self.nodes}
        return tuple(sorted({tensor for node in self.nodes for tensor in self.graph.nodes[node].inputs} - results))

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """The results of the region's nodes that other nodes use or that the graph returns, in order of number."""
        graph = self.graph
        own = sorted([graph.tensor(node) for node in self.nodes])
        return tuple([t for t in own if t in graph.outputs or any(user not in self.nodes for user in graph.users[t])])


def _check_tensor(tensor: int, known: int, where: str) -> None:
    if not isinstance(tensor, int) or isinstance(tensor, bool) or not 0 <= tensor < known:
        expected = f"tensors that come before, 0 to {known - 1}" if known else "no tensors, as none come before"
        raise SpecError(f"{where}: expected {expected}, found {quoted(tensor)}")
