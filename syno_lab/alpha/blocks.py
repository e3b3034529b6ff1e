"""Networks as a stem, blocks and a head (αNAS, section 5).

The output tensor of each part is the input of the next part. A block is an instance of a type: blocks of one type have
equal nodes, so one edit fits all blocks of the type. Sizes in a block are relative to the block's input
(:class:`.Rel`), so a type does not fix the number of channels. ResNet has a type for each pair of a stride and a ratio
of output to input channels. The nodes between two blocks are a block without a type, which no edit changes.

An edit never changes the residual connection of a block: :attr:`Block.mutable` has only nodes of the longer branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from syno_lab.alpha.graph import Graph, Node, Nodes, Shape
from syno_lab.alpha.operations import OPAQUE, Rel
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted

_LONGEST_KIND = 200  # Characters.
#: Classes of PyTorch that only contain other modules.
CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})


@dataclass(frozen=True)
class Block:
    """An instance of a type of blocks.

    Attributes:
        kind: the name of the block's type; empty for a block that no edit changes.
        graph: the block's graph, with one input and one output.
        mutable: the nodes that an edit may change; empty for a block without a type.

    Raises SpecError unless the graph has one input and one output, and for a wrong ``kind`` or ``mutable``.
    """

    kind: str
    graph: Graph
    mutable: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if len(self.graph.inputs) != 1 or len(self.graph.outputs) != 1:
            counts = f"{len(self.graph.inputs)} and {len(self.graph.outputs)}"
            raise SpecError(f"expected a block of one input and one output, found {counts}")
        if not self.kind.isprintable() or len(self.kind) > _LONGEST_KIND:
            expected = f"the name of a type in at most {_LONGEST_KIND} characters"
            raise SpecError(f"expected {expected}, found {quoted(self.kind)}")
        if not self.mutable <= set(range(len(self.graph.nodes))) or (self.mutable and not self.kind):
            expected = f"nodes from 0 to {len(self.graph.nodes) - 1} of a block with a type"
            raise SpecError(f"expected {expected}, found {quoted(sorted(self.mutable))}")

    def at(self, shape: Shape) -> Block:
        """Return the block for an input of another shape. Raises SpecError where an operation does not fit."""
        return replace(self, graph=self.graph.at(shape))


@dataclass(frozen=True)
class Network:
    """A stem, blocks and a head.

    Attributes:
        stem: a graph that may have several inputs and may be empty.
        blocks: the blocks in order.
        head: a graph that may have several outputs and may be empty.

    Raises SpecError unless the only input of each part is the output of the part before.
    """

    stem: Graph
    blocks: tuple[Block, ...]
    head: Graph

    def __post_init__(self) -> None:
        names = ["stem", *(f"block {number}" for number in range(len(self.blocks))), "head"]
        for (before, after), name in zip(zip(self.parts, self.parts[1:], strict=False), names[1:], strict=True):
            if before.output_shapes != after.inputs or len(after.inputs) != 1:
                expected = f"one input of shape {quoted(before.output_shapes)}"
                raise SpecError(f"{name}: expected {expected}, found {quoted(after.inputs)}")

    if TYPE_CHECKING:  # syno_lab.alpha adds these methods: the module of files imports this module

        def to_json(self) -> str:
            """Return the text of a network file."""

        @staticmethod
        def from_json(text: str | bytes) -> Network:
            """Read a network file."""

    @property
    def parts(self) -> tuple[Graph, ...]:
        """The graphs of stem, blocks and head, in order."""
        return (self.stem, *(block.graph for block in self.blocks), self.head)

    @cached_property
    def graph(self) -> Graph:
        """The graph of the whole network."""
        nodes, tensors = Nodes(len(self.stem.inputs)), list(range(len(self.stem.inputs)))
        for part in self.parts:
            for node in part.nodes:
                tensors.append(nodes.put(node, tensors))
            tensors = [tensors[tensor] for tensor in part.outputs]
        origin = next((part.origin for part in self.parts if part.origin is not None), None)
        return Graph(self.stem.inputs, tuple(nodes), tuple(tensors), origin)

    @cached_property
    def key(self) -> str:
        """:attr:`.Graph.key` of the network with all sizes as numbers, independent of the division into blocks."""
        return in_numbers(self.graph).key

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits, equal only if all parts, and the types and mutable nodes of all blocks, are equal."""
        contents = [
            (part.inputs, [(node.operation.name, node.operation.attributes, node.inputs) for node in part.nodes])
            for part in self.parts
        ]
        outputs = [part.outputs for part in self.parts]
        blocks = [(block.kind, sorted(block.mutable)) for block in self.blocks]
        return blake2b(repr((contents, outputs, blocks)).encode(), digest_size=16).hexdigest()

    @property
    def kinds(self) -> dict[str, tuple[int, ...]]:
        """For each type of blocks, the numbers of the blocks of this type."""
        kinds = [block.kind for block in self.blocks]
        every = dict.fromkeys(filter(None, kinds))
        return {name: tuple([number for number, kind in enumerate(kinds) if kind == name]) for name in every}

    def with_blocks(self, blocks: Iterable[Block]) -> Network:
        """Return the network with other blocks; each block and the head are fitted to the output of the part before.

        Raises SpecError where a block or the head does not fit the output of the part before.
        """
        shape, fitted = self.stem.output_shapes[0], []
        for block in blocks:
            fitted.append(block.at(shape))
            shape = fitted[-1].graph.output_shapes[0]
        return Network(self.stem, tuple(fitted), self.head.at(shape))

    def edited(self, numbers: Collection[int], nodes: Collection[int], graph: Graph) -> Network:
        """Return the network where ``graph`` replaces the region of ``nodes`` in the blocks ``numbers``.

        The edited blocks get a new type, unless all blocks of the type are edited. Later edits may change the new
        nodes. Raises SpecError for blocks of several types, an immutable region, and a part that does not fit the part
        before.
        """
        if not numbers or not all(isinstance(n, int) and 0 <= n < len(self.blocks) for n in numbers):
            raise SpecError(f"expected blocks from 0 to {len(self.blocks) - 1}, found {quoted(sorted(numbers))}")
        kinds = {self.blocks[number].kind for number in numbers}
        if len(kinds) != 1 or kinds == {""}:
            raise SpecError(f"expected blocks of one type, found {quoted(sorted(kinds))}")
        (kind,) = kinds
        every = self.kinds[kind]
        name = kind if set(numbers) == set(every) else _fresh(kind, self.kinds)
        blocks = list(self.blocks)
        for number in numbers:
            old = blocks[number]
            region = old.graph.region(nodes)
            if fixed := region.nodes - old.mutable:
                raise SpecError(f"expected nodes that may be changed, found {quoted(sorted(fixed))}")
            new, origins = old.graph.replaced(region, graph)
            mutable = {index for index, origin in enumerate(origins) if origin is None or origin in old.mutable}
            blocks[number] = Block(name, new, frozenset(mutable))
        return self.with_blocks(blocks)


def find_blocks(
    graph: Graph, classes: Mapping[str, str] | None = None, names: Collection[str] | None = None
) -> Network:
    """Split a traced network into stem, blocks and head.

    A block is an outermost module whose class occurs at least twice. The module must have one input tensor and one
    output tensor, and no connection may lead around it. Each residual connection but the last ends a block, so a
    transformer block becomes attention and MLP. Blocks with equal nodes have one type, named by the class; further
    types of a class get a number.

    Args:
        graph: the traced graph; :attr:`.Node.source` names the module that a node comes from.
        classes: the class name of each module, by the module's path; None: the class names of the traced network.
        names: the classes of blocks; None: all classes that occur at least twice and are no containers.

    Raises SpecError for a graph without a traced network where ``classes`` is None.
    """
    if classes is None:
        if graph.origin is None:
            wanted = "a graph of sl.alpha.trace, or the classes of modules"
            raise SpecError(f"expected {wanted}, found a graph without a network")
        classes = graph.origin.classes
    counts = Counter(classes.values())
    stages: list[tuple[str, frozenset[int]]] = []

    def visit(path: str) -> None:
        name = classes.get(path, "")
        is_wanted = name in names if names is not None else counts[name] > 1 and name not in CONTAINERS
        if path and is_wanted:
            nodes = _of_module(graph, path)
            if len(nodes) > 1 and _is_stage(graph, nodes):
                stages.append((name, nodes))
                return
        start = f"{path}." if path else ""
        inner = [other for other in classes if other.startswith(start) and other != path]
        for child in dict.fromkeys(start + other[len(start) :].partition(".")[0] for other in inner):
            visit(child)

    visit("")
    return _split(graph, sorted(stages, key=lambda block: min(block[1])))


def _of_module(graph: Graph, path: str) -> frozenset[int]:
    return frozenset([n for n, node in enumerate(graph.nodes) if f"{node.source}.".startswith(f"{path}.")])


def why_none(graph: Graph) -> str:
    """Return why a traced network has no mutable blocks: the reason why the first suitable module is no block."""
    classes = graph.origin.classes if graph.origin is not None else {}
    counts = Counter(classes.values())
    for path, name in classes.items():
        has_parts = any(other.startswith(f"{path}.") for other in classes)
        if not path or not has_parts or counts[name] < 2 or name in CONTAINERS:
            continue
        nodes = _of_module(graph, path)
        opaque = [graph.nodes[n].operation["what"] for n in nodes if graph.nodes[n].operation.name == OPAQUE]
        where = f"{path} ({name})"
        if nodes and len(opaque) == len(nodes):
            return f"{where} is kept as it is, for it has TorchScript, hooks or unknown calls: {quoted(opaque[0])}"
        if len(nodes) < 2:
            return f"{where} is one operation"
        return f"{where} has several input or output tensors, or shares tensors"
    return "blocks are modules of a class that occurs at least twice, and no such class has parts"


def in_numbers(graph: Graph) -> Graph:
    """Return the graph with each relative size (:class:`.Rel`) replaced by a number."""
    nodes = enumerate(graph.nodes)
    sized = [replace(node, operation=node.operation.at(*graph.input_shapes(number))) for number, node in nodes]
    return replace(graph, nodes=tuple(sized))


def relative(graph: Graph) -> Graph:
    """Return the graph with features and groups of its operations relative to the channels of their inputs."""
    nodes = []
    for number, node in enumerate(graph.nodes):
        (shape, *_) = graph.input_shapes(number) or ((),)
        channels, sizes = shape[-1] if shape else 1, {}
        for name, value in node.operation.attributes:
            # A single group stays a single group; groups of one channel each stay groups of one channel.
            if isinstance(value, int) and (name == "features" or (name == "groups" and value == channels)):
                sizes[name] = Rel(value, channels)
        nodes.append(replace(node, operation=node.operation.replace(**sizes)))
    return replace(graph, nodes=tuple(nodes))


def _fresh(kind: str, kinds: Collection[str]) -> str:
    base = kind.partition(" ")[0]
    return next(name for number in range(2, len(kinds) + 3) if (name := f"{base} {number}") not in kinds)


def _is_stage(graph: Graph, nodes: frozenset[int]) -> bool:
    """Return whether nodes have one input tensor, one output tensor and no connection around them."""
    region = graph.region(nodes)
    if region.nodes != nodes or len(region.inputs) != 1 or len(region.outputs) != 1:
        return False
    after = _after(graph, nodes)
    results = {graph.tensor(number) for number in after | nodes}
    needed = {tensor for number in after for tensor in graph.nodes[number].inputs} | set(graph.outputs)
    return all(tensor in results and (graph.maker(tensor) in after or tensor in region.outputs) for tensor in needed)


def _after(graph: Graph, nodes: frozenset[int]) -> frozenset[int]:
    """Return the nodes that depend on these nodes, and the weights that only the returned nodes use."""
    after = graph.after(nodes) - nodes
    for number in range(len(graph.nodes) - 1, -1, -1):
        users = graph.users[graph.tensor(number)]
        # A weight belongs to the later nodes if only later nodes use it.
        if not graph.nodes[number].inputs and users and after.issuperset(users):
            after.add(number)
    return frozenset(after)


def _split(graph: Graph, stages: list[tuple[str, frozenset[int]]]) -> Network:
    """Split a graph into the stages and the parts before, between and after the stages."""
    parts: list[tuple[str, frozenset[int]]] = []
    rest = frozenset(range(len(graph.nodes)))
    for name, nodes in stages:
        after = _after(graph, nodes) & rest
        parts += [("", rest - after - nodes), (name, nodes)]
        rest = after
    graphs: list[tuple[str, Graph]] = []
    tensors: tuple[int, ...] = tuple(range(len(graph.inputs)))
    parts.append(("", rest))
    for name, nodes in parts:
        outputs = graph.outputs
        if len(graphs) < len(parts) - 1:
            outputs = graph.region(nodes).outputs if nodes else tensors
        graphs.append((name, graph.part(nodes, tensors, outputs)))
        tensors = outputs
    if len(parts) == 1:  # without blocks the stem is the whole network
        stem = graphs[0][1]
        if len(stem.outputs) != 1:
            raise SpecError(f"expected blocks, or one output, found no blocks and {len(stem.outputs)} outputs")
        return Network(stem, (), Graph(stem.output_shapes, (), (0,)))
    blocks: list[Block] = []
    known: dict[tuple[str, tuple[Node, ...], tuple[int, ...]], str] = {}
    for name, part in graphs[1:-1]:
        if not name:
            blocks += [Block("", part)] if part.nodes else []
            continue
        for piece in _pieces(relative(part)):
            structure = (name, piece.nodes, piece.outputs)
            if structure not in known:
                known[structure] = name if name not in known.values() else _fresh(name, known.values())
            blocks.append(Block(known[structure], piece, _mutable(piece)))
    return Network(graphs[0][1], tuple(blocks), graphs[-1][1])


def _ancestors(graph: Graph, tensor: int) -> set[int]:
    """Return the nodes that a tensor depends on."""
    maker = graph.maker(tensor)
    return set() if maker is None else graph.before([maker])


def _residuals(graph: Graph) -> list[int]:
    """Return the nodes that add two branches from a block's input, with no connection around them, in order."""

    def reaches_input(tensor: int) -> bool:
        return tensor == 0 or any(0 in graph.nodes[node].inputs for node in _ancestors(graph, tensor))

    every = set(range(len(graph.nodes)))
    residuals = []
    for number, node in enumerate(graph.nodes):
        if node.operation.name == "add" and all(map(reaches_input, node.inputs)):
            before = _ancestors(graph, graph.tensor(number))
            region = graph.region(before)
            used = {tensor for other in every - before for tensor in graph.nodes[other].inputs}
            if region.nodes == before and region.outputs == (graph.tensor(number),) and not used & {0}:
                residuals.append(number)
    return residuals


def _pieces(graph: Graph) -> list[Graph]:
    """Split a block after each residual connection but the last."""
    cuts = _residuals(graph)[:-1]
    pieces, tensor, done = [], 0, set[int]()
    for cut in cuts:
        nodes = _ancestors(graph, graph.tensor(cut)) - done
        pieces.append(graph.part(nodes, (tensor,), (graph.tensor(cut),)))
        tensor, done = graph.tensor(cut), done | nodes
    return [*pieces, graph.part(set(range(len(graph.nodes))) - done, (tensor,), graph.outputs)]


def _mutable(graph: Graph) -> frozenset[int]:
    """Return the nodes that are not opaque; in a block with a residual connection, only nodes of the longer branch."""
    nodes = {number for number, node in enumerate(graph.nodes) if node.operation.name != OPAQUE}
    residuals = _residuals(graph)
    if residuals:
        branches = [_ancestors(graph, tensor) for tensor in graph.nodes[residuals[-1]].inputs]
        shorter, longer = sorted(branches, key=len)
        nodes &= longer - shorter
    return frozenset(nodes)
