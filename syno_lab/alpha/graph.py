"""Programs of αNAS: typed graphs of operations, as values (sections 3.2 and 4.6).

Tensors are numbered: 0 to i - 1 are the i inputs, i + n is the result of node n. A node names tensors that come before
it, so the order of nodes is a topological one and no cycle can be written. A graph has any number of inputs and of
outputs; every node serves an output. A :class:`Region` is a closed part of a graph, and :meth:`Graph.replace` puts
another graph in its place.
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

#: Nodes of one graph: networks with some hundred layers have fewer.
MOST_NODES = 1 << 13
_DIGEST_BYTES = 16
#: Draws of a random region before a graph counts as having none of the kind wanted.
_DRAWS = 64


@dataclass(frozen=True)
class Node:
    """An operation on tensors.

    Attributes:
        operation: with its attributes.
        inputs: the numbers of its tensors.
        source: where it comes from: the path of a module in a traced network, or nothing. It says nothing about what
            the node computes, and equality ignores it.
    """

    operation: Operation
    inputs: tuple[int, ...] = ()
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.operation} of {', '.join(f't{number}' for number in self.inputs) or 'nothing'}"


class Nodes(list[Node]):
    """The nodes of a graph in the making, with so many inputs, put one after another from other graphs."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self._inputs = inputs

    def put(self, node: Node, tensors: Mapping[int, int] | Sequence[int]) -> int:
        """Add a node that takes ``tensors[t]`` in the place of each t; the number of its result."""
        self.append(replace(node, inputs=tuple([tensors[tensor] for tensor in node.inputs])))
        return self._inputs + len(self) - 1


@dataclass(frozen=True)
class Graph:
    """A program: each change gives a new one. Two are equal where nodes and numbers are; see :attr:`key`.

    Attributes:
        inputs: the shapes of the inputs, (batch, spatial axes…, channels).
        nodes: in topological order.
        outputs: the numbers of the tensors that it gives, at least one.
        shapes: of all tensors.
        origin: the network that it was traced from, or that its first nodes were; None: no network. It says nothing
            about what the graph computes, and equality ignores it; see :mod:`syno_lab.alpha.tracing`.

    Raises SpecError for a shape that is none, a node that names a later tensor or that does not apply to its inputs,
    and one that serves no output: which and why, in one line.
    """

    inputs: tuple[Shape, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    origin: Origin | None = field(default=None, repr=False, compare=False)
    shapes: tuple[Shape, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for what, many in (("inputs", self.inputs), ("nodes", self.nodes), ("outputs", self.outputs)):
            if len(many) > MOST_NODES:
                raise SpecError(f"expected at most {MOST_NODES} {what}, found {len(many)}")
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
        given = set(self.outputs)
        for number, tensor in enumerate(range(len(self.inputs), len(shapes))):
            if not self.users[tensor] and tensor not in given:
                name = self.nodes[number].operation.name
                raise SpecError(f"node {number} ({name}): expected one that serves an output")

    @classmethod
    def live(
        cls, inputs: Sequence[Shape], nodes: Sequence[Node], outputs: Sequence[int], origin: Origin | None = None
    ) -> Graph:
        """The graph without the nodes that serve no output; all inputs stay. Raises SpecError as the class."""
        return cls._live(inputs, nodes, outputs, origin)[0]

    @classmethod
    def _live(
        cls, inputs: Sequence[Shape], nodes: Sequence[Node], outputs: Sequence[int], origin: Origin | None
    ) -> tuple[Graph, list[int]]:
        """:meth:`live`, and the former numbers of the nodes that stay."""
        first, wanted = len(inputs), set(outputs)
        for number in range(len(nodes) - 1, -1, -1):
            if first + number in wanted:
                wanted.update(nodes[number].inputs)
        kept = [number for number in range(len(nodes)) if first + number in wanted]
        new = {first + number: first + place for place, number in enumerate(kept)}

        def renumbered(tensors: Sequence[int]) -> tuple[int, ...]:
            # A tensor that does not exist keeps its number, which is too large, for the check of the class.
            return tuple([new.get(tensor, tensor) for tensor in tensors])

        live = tuple([replace(nodes[number], inputs=renumbered(nodes[number].inputs)) for number in kept])
        return cls(tuple(inputs), live, renumbered(outputs), origin), kept

    @classmethod
    def chain(cls, shape: Shape, operations: Iterable[Operation]) -> Graph:
        """One operation after the other, from one input to one output; none of them: the identity."""
        nodes = tuple([Node(operation, (number,)) for number, operation in enumerate(operations)])
        return cls((shape,), nodes, (len(nodes),))

    @property
    def is_chain(self) -> bool:
        """Whether it is one operation after the other, as :meth:`chain` makes it."""
        follows = all(node.inputs == (number,) for number, node in enumerate(self.nodes))
        return len(self.inputs) == 1 and follows and self.outputs == (len(self.nodes),)

    # -- tensors -----------------------------------------------------------------------------------------------------

    def tensor(self, node: int) -> int:
        """The number of a node's result."""
        return len(self.inputs) + node

    def maker(self, tensor: int) -> int | None:
        """The node whose result a tensor is; None for an input."""
        return tensor - len(self.inputs) if tensor >= len(self.inputs) else None

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor the nodes that take it, in order, each once."""
        found: list[dict[int, None]] = [{} for _ in range(len(self.inputs) + len(self.nodes))]
        for number, node in enumerate(self.nodes):
            for tensor in node.inputs:
                found[tensor][number] = None
        return tuple(map(tuple, found))

    @cached_property
    def done(self) -> tuple[tuple[int, ...], ...]:
        """For each node the tensors that it takes and that no later node and no output needs, in order."""
        last = {tensor: number for number, node in enumerate(self.nodes) for tensor in node.inputs}
        taken = [sorted(set(node.inputs) - set(self.outputs)) for node in self.nodes]
        return tuple([tuple([t for t in some if last[t] == number]) for number, some in enumerate(taken)])

    def input_shapes(self, node: int) -> tuple[Shape, ...]:
        """The shapes of the tensors that a node takes."""
        return tuple([self.shapes[tensor] for tensor in self.nodes[node].inputs])

    def neighbours(self, node: int) -> frozenset[int]:
        """The nodes that make what it takes, and those that take what it makes."""
        makers = [self.maker(tensor) for tensor in self.nodes[node].inputs]
        return frozenset([maker for maker in makers if maker is not None] + list(self.users[self.tensor(node)]))

    @property
    def output_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the outputs."""
        return tuple([self.shapes[tensor] for tensor in self.outputs])

    # -- facts -------------------------------------------------------------------------------------------------------

    def params(self) -> int:
        """The number of weights."""
        return sum(node.operation.params(*self.input_shapes(number)) for number, node in enumerate(self.nodes))

    def flops(self) -> int:
        """FLOPs for the inputs as they are, the whole batch; 2 for each multiply-add."""
        return sum(node.operation.flops(*self.input_shapes(number)) for number, node in enumerate(self.nodes))

    def costs(self, node: int) -> tuple[int, int]:
        """FLOPs and the number of weights of a node."""
        made, shapes = self.nodes[node].operation, self.input_shapes(node)
        return made.flops(*shapes), made.params(*shapes)

    @cached_property
    def key(self) -> str:
        """32 hexadecimal digits, equal for graphs alone that differ in nothing but the numbers of their nodes.

        What is compared: inputs with their shapes and outputs, both in order, operations with all attributes, and who
        takes what, in order but for `add` and `mul`.
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
        """The graph for inputs of other shapes, which each `Rel` follows. Raises SpecError where it does not apply."""
        if len(inputs) != len(self.inputs):
            raise SpecError(f"expected {len(self.inputs)} shapes of inputs, found {len(inputs)}")
        return Graph(inputs, self.nodes, self.outputs, self.origin)

    def region(self, nodes: Iterable[int]) -> Region:
        """The smallest region with these nodes and all on the ways between them.

        Raises SpecError for none and unknown ones.
        """
        chosen = set(nodes)
        if not chosen or not all(isinstance(n, int) and 0 <= n < len(self.nodes) for n in chosen):
            expected = f"nodes from 0 to {len(self.nodes) - 1}, at least one"
            raise SpecError(f"expected {expected}, found {quoted(sorted(chosen))}")
        return Region(self, frozenset(self.after(chosen) & self.before(chosen)))

    def after(self, nodes: Collection[int]) -> set[int]:
        """These nodes, at least one, and all that they lead to."""
        found = set(nodes)
        for number in range(min(nodes), len(self.nodes)):
            if any(self.maker(tensor) in found for tensor in self.nodes[number].inputs):
                found.add(number)
        return found

    def before(self, nodes: Collection[int]) -> set[int]:
        """These nodes, at least one, and all that lead to them."""
        found = set(nodes)
        for number in range(max(nodes), -1, -1):
            if any(user in found for user in self.users[self.tensor(number)]):
                found.add(number)
        return found

    def choose_region(
        self, rng: Random, *, among: Iterable[int] | None = None, going_on: float = 0.75, most: float = 0.8
    ) -> Region | None:
        """A random region, connected (section 5; the specification, 2.3); None where 64 draws found none.

        It grows from a random node by random neighbours, and is closed at the end; one that is too large by then is
        drawn again. Opaque nodes are never in it.

        Args:
            rng: chance.
            among: the nodes it may have; None: all of the graph.
            going_on: the probability of each further neighbour: 0.75 for CIFAR-10, 0.9 for ImageNet.
            most: the largest share of ``among`` that it has, but at least one node: 0.8 or 0.5.
        """
        allowed = set(range(len(self.nodes)) if among is None else among)
        limit = max(1, int(most * len(allowed)))
        allowed = {node for node in allowed if self.nodes[node].operation.name != OPAQUE}
        starts = sorted(allowed)
        for _ in range(_DRAWS if starts else 0):
            chosen = {rng.choice(starts)}
            while len(chosen) < limit and rng.random() < going_on:
                around = sorted({other for node in chosen for other in self.neighbours(node)} & allowed - chosen)
                if not around:
                    break
                chosen.add(rng.choice(around))
            region = self.region(chosen)
            if len(region.nodes) <= limit and region.nodes <= allowed:
                return region
        return None

    def subgraph(self, nodes: Region | Iterable[int]) -> Graph:
        """A region, or the smallest one with these nodes, as a graph of its own; its nodes keep their order."""
        region = nodes if isinstance(nodes, Region) else self.region(nodes)
        return self.part(region.nodes, region.inputs, region.outputs)

    def part(self, nodes: Iterable[int], inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
        """Some nodes as a graph of its own, in their order, with these tensors as inputs and outputs."""
        made, new = Nodes(len(inputs)), {tensor: place for place, tensor in enumerate(inputs)}
        for node in sorted(nodes):
            new[self.tensor(node)] = made.put(self.nodes[node], new)
        shapes = tuple([self.shapes[tensor] for tensor in inputs])
        return Graph(shapes, tuple(made), tuple([new[tensor] for tensor in outputs]), self.origin)

    def replace(self, region: Region, graph: Graph) -> Graph:
        """The graph with another in the place of a region; nodes that serve no output any more go too.

        The new graph's inputs become the tensors :attr:`Region.inputs` and its outputs those of :attr:`Region.outputs`.
        Their shapes are those found there, whatever shapes it was made for. Raises SpecError where the numbers of
        inputs or outputs differ, or an operation does not apply.
        """
        return self.replaced(region, graph)[0]

    def replaced(self, region: Region, graph: Graph) -> tuple[Graph, tuple[int | None, ...]]:
        """As :meth:`replace`, with the number that each node had before; None for those of ``graph``."""
        if region.graph is not self and region.graph != self:
            raise SpecError("expected a region of this graph, found one of another")
        sides = ("inputs", region.inputs, graph.inputs), ("outputs", region.outputs, graph.outputs)
        for what, wanted, found in sides:
            if len(wanted) != len(found):
                raise SpecError(f"expected a graph with {len(wanted)} {what} for the region, found {len(found)}")
        after = self.after(region.nodes)  # a region is closed, so none of that is its input
        made, new = Nodes(len(self.inputs)), {tensor: tensor for tensor in range(len(self.inputs))}
        before = [number for number in range(len(self.nodes)) if number not in after]
        for number in before:
            new[self.tensor(number)] = made.put(self.nodes[number], new)
        inner = [new[tensor] for tensor in region.inputs]
        for node in graph.nodes:
            inner.append(made.put(node, inner))
        new |= {old: inner[tensor] for old, tensor in zip(region.outputs, graph.outputs, strict=True)}
        behind = sorted(after - region.nodes)
        for number in behind:
            new[self.tensor(number)] = made.put(self.nodes[number], new)
        ends = [new[tensor] for tensor in self.outputs]
        changed, kept = Graph._live(self.inputs, made, ends, self.origin or graph.origin)
        origins = [*before, *([None] * len(graph.nodes)), *behind]
        return changed, tuple([origins[number] for number in kept])

    if TYPE_CHECKING:  # bound in syno_lab.alpha: pictures, files and modules are above graphs

        def dot(self, **options: Any) -> str:
            """See :func:`syno_lab.alpha.drawing.dot`."""

        def svg(self, **options: Any) -> str:
            """See :func:`syno_lab.alpha.drawing.svg`."""

        def to_json(self) -> str:
            """The text of a graph file."""

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
    """Nodes of a graph with all nodes on the ways between them, so that no way leaves it and comes back."""

    graph: Graph = field(repr=False)
    nodes: frozenset[int]

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The tensors from outside that its nodes take, in the order of their numbers."""
        made = {self.graph.tensor(node) for node in self.nodes}
        return tuple(sorted({tensor for node in self.nodes for tensor in self.graph.nodes[node].inputs} - made))

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Its nodes' results that are used outside or are outputs of the graph, in the order of their numbers."""
        graph = self.graph
        made = sorted([graph.tensor(node) for node in self.nodes])
        return tuple([t for t in made if t in graph.outputs or any(user not in self.nodes for user in graph.users[t])])


def _check_tensor(tensor: int, known: int, where: str) -> None:
    if not isinstance(tensor, int) or isinstance(tensor, bool) or not 0 <= tensor < known:
        expected = f"tensors that come before, 0 to {known - 1}" if known else "no tensors, as none come before"
        raise SpecError(f"{where}: expected {expected}, found {quoted(tensor)}")
