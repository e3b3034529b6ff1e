"""Networks as a stem, blocks and a head (αNAS, section 5).

The parts follow one another, and one tensor goes from each to the next. A block is an instance of a type: instances of
one type have equal nodes, so that one edit suits all of them. Their sizes are relative to what they get
(:class:`.Rel`), so a type does not say how many channels an instance has: a block of ResNet is of one type for each
stride and factor of channels. What stands between two blocks is a block without a type, which is never changed.

A residual connection around a block is not changed either: :attr:`Block.mutable` has the nodes of the longer branch.
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

_LONGEST_KIND = 200  # characters
#: Classes of PyTorch that only hold others.
CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})


@dataclass(frozen=True)
class Block:
    """An instance of a type of blocks.

    Attributes:
        kind: the name of its type; empty for what is never changed.
        graph: with one input and one output.
        mutable: the nodes that an edit may change; none of a block without a type.

    Raises SpecError for another number of inputs or outputs, and for a node that is not there.
    """

    kind: str
    graph: Graph
    mutable: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if len(self.graph.inputs) != 1 or len(self.graph.outputs) != 1:
            found = f"{len(self.graph.inputs)} and {len(self.graph.outputs)}"
            raise SpecError(f"expected a block of one input and one output, found {found}")
        if not self.kind.isprintable() or len(self.kind) > _LONGEST_KIND:
            expected = f"the name of a type in at most {_LONGEST_KIND} characters"
            raise SpecError(f"expected {expected}, found {quoted(self.kind)}")
        if not self.mutable <= set(range(len(self.graph.nodes))) or (self.mutable and not self.kind):
            expected = f"nodes from 0 to {len(self.graph.nodes) - 1} of a block with a type"
            raise SpecError(f"expected {expected}, found {quoted(sorted(self.mutable))}")

    def at(self, shape: Shape) -> Block:
        """The block for an input of another shape. Raises SpecError where it does not apply."""
        return replace(self, graph=self.graph.at(shape))


@dataclass(frozen=True)
class Network:
    """A stem, blocks and a head.

    Attributes:
        stem: may have several inputs, and no nodes.
        blocks: in order.
        head: may have several outputs, and no nodes.

    Raises SpecError where a part does not take the one tensor that the part before it gives.
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

    if TYPE_CHECKING:  # bound in syno_lab.alpha: files are above networks

        def to_json(self) -> str:
            """The text of a network file."""

        @staticmethod
        def from_json(text: str | bytes) -> Network:
            """Read a network file."""

    @property
    def parts(self) -> tuple[Graph, ...]:
        """Stem, blocks and head, in order."""
        return (self.stem, *(block.graph for block in self.blocks), self.head)

    @cached_property
    def graph(self) -> Graph:
        """The whole network."""
        made, tensors = Nodes(len(self.stem.inputs)), list(range(len(self.stem.inputs)))
        for part in self.parts:
            for node in part.nodes:
                tensors.append(made.put(node, tensors))
            tensors = [tensors[tensor] for tensor in part.outputs]
        origin = next((part.origin for part in self.parts if part.origin is not None), None)
        return Graph(self.stem.inputs, tuple(made), tuple(tensors), origin)

    @cached_property
    def key(self) -> str:
        """:attr:`.Graph.key` of the whole network with sizes in numbers: how blocks write and split it is no matter."""
        return in_numbers(self.graph).key

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits, equal for equal networks alone: with their types and the numbers of their nodes."""
        said = [
            (part.inputs, [(node.operation.name, node.operation.attributes, node.inputs) for node in part.nodes])
            for part in self.parts
        ]
        outputs = [part.outputs for part in self.parts]
        blocks = [(block.kind, sorted(block.mutable)) for block in self.blocks]
        return blake2b(repr((said, outputs, blocks)).encode(), digest_size=16).hexdigest()

    @property
    def kinds(self) -> dict[str, tuple[int, ...]]:
        """The types, each with the numbers of its instances."""
        kinds = [block.kind for block in self.blocks]
        every = dict.fromkeys(filter(None, kinds))
        return {each: tuple([number for number, kind in enumerate(kinds) if kind == each]) for each in every}

    def with_blocks(self, blocks: Iterable[Block]) -> Network:
        """The network with other blocks; each, and the head, for the shape that the part before it gives.

        Raises SpecError where one of these does not apply.
        """
        shape, found = self.stem.output_shapes[0], []
        for block in blocks:
            found.append(block.at(shape))
            shape = found[-1].graph.output_shapes[0]
        return Network(self.stem, tuple(found), self.head.at(shape))

    def edited(self, numbers: Collection[int], nodes: Collection[int], graph: Graph) -> Network:
        """The network with ``graph`` in the place of the same region of some blocks of one type.

        Blocks that are changed are of a new type, unless all of their type are. New nodes may be changed again.
        Raises SpecError for blocks of several types, a region that is not mutable, and where a part does not apply.
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
            if kept := region.nodes - old.mutable:
                raise SpecError(f"expected nodes that may be changed, found {quoted(sorted(kept))}")
            new, origins = old.graph.replaced(region, graph)
            mutable = {place for place, origin in enumerate(origins) if origin is None or origin in old.mutable}
            blocks[number] = Block(name, new, frozenset(mutable))
        return self.with_blocks(blocks)


def find_blocks(
    graph: Graph, classes: Mapping[str, str] | None = None, names: Collection[str] | None = None
) -> Network:
    """Split a traced network into stem, blocks and head.

    A block is a module, as far out as possible, that gets one tensor and gives one, with no way around it, and whose
    class occurs at least twice. It is split after each residual connection but the last, as attention and MLP of a
    transformer. Parts with equal nodes are of one type, named by the class, with a number where there are several.

    Args:
        graph: whose nodes say by :attr:`.Node.source` from which module they come.
        classes: the name of the class of each module, by its path; None: those of the network that it was traced from.
        names: the classes of blocks; None: those that occur at least twice and are no containers.

    Raises SpecError for a graph that was traced from no network, where no classes are given.
    """
    if classes is None:
        if graph.origin is None:
            wanted = "a graph of sl.alpha.trace, or the classes of modules"
            raise SpecError(f"expected {wanted}, found a graph of no network")
        classes = graph.origin.classes
    counts = Counter(classes.values())
    found: list[tuple[str, frozenset[int]]] = []

    def visit(path: str) -> None:
        name = classes.get(path, "")
        is_wanted = name in names if names is not None else counts[name] > 1 and name not in CONTAINERS
        if path and is_wanted:
            nodes = _of_module(graph, path)
            if len(nodes) > 1 and _is_stage(graph, nodes):
                found.append((name, nodes))
                return
        start = f"{path}." if path else ""
        inner = [each for each in classes if each.startswith(start) and each != path]
        for child in dict.fromkeys(start + each[len(start) :].partition(".")[0] for each in inner):
            visit(child)

    visit("")
    return _split(graph, sorted(found, key=lambda block: min(block[1])))


def _of_module(graph: Graph, path: str) -> frozenset[int]:
    return frozenset([n for n, node in enumerate(graph.nodes) if f"{node.source}.".startswith(f"{path}.")])


def why_none(graph: Graph) -> str:
    """Why a traced network has no blocks that an edit may change: what speaks against the first that could be one."""
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
            return f"{where} is kept as it is, for it holds TorchScript, hooks or what has no row: {quoted(opaque[0])}"
        if len(nodes) < 2:
            return f"{where} is one operation"
        return f"{where} takes or gives several tensors, or shares some"
    return "blocks are modules of a class that occurs at least twice, and no such class has parts"


def in_numbers(graph: Graph) -> Graph:
    """The graph with all sizes in numbers, where :func:`relative` has them relative to an axis."""
    nodes = enumerate(graph.nodes)
    made = [replace(node, operation=node.operation.at(*graph.input_shapes(number))) for number, node in nodes]
    return replace(graph, nodes=tuple(made))


def relative(graph: Graph) -> Graph:
    """The graph with the features and groups of its operations relative to their inputs' channels."""
    nodes = []
    for number, node in enumerate(graph.nodes):
        (shape, *_) = graph.input_shapes(number) or ((),)
        channels, sizes = shape[-1] if shape else 1, {}
        for name, value in node.operation.attributes:
            # One group is one group whatever the channels are, and all of them are all.
            if isinstance(value, int) and (name == "features" or (name == "groups" and value == channels)):
                sizes[name] = Rel(value, channels)
        nodes.append(replace(node, operation=node.operation.replace(**sizes)))
    return replace(graph, nodes=tuple(nodes))


def _fresh(kind: str, kinds: Collection[str]) -> str:
    base = kind.partition(" ")[0]
    return next(name for number in range(2, len(kinds) + 3) if (name := f"{base} {number}") not in kinds)


def _is_stage(graph: Graph, nodes: frozenset[int]) -> bool:
    """Whether one tensor goes in, one comes out, and nothing goes around."""
    region = graph.region(nodes)
    if region.nodes != nodes or len(region.inputs) != 1 or len(region.outputs) != 1:
        return False
    after = _after(graph, nodes)
    made = {graph.tensor(number) for number in after | nodes}
    taken = {tensor for number in after for tensor in graph.nodes[number].inputs} | set(graph.outputs)
    return all(tensor in made and (graph.maker(tensor) in after or tensor in region.outputs) for tensor in taken)


def _after(graph: Graph, nodes: frozenset[int]) -> frozenset[int]:
    """The nodes that others lead to, with what they alone use."""
    found = graph.after(nodes) - nodes
    for number in range(len(graph.nodes) - 1, -1, -1):
        users = graph.users[graph.tensor(number)]
        # A weight that only later nodes use belongs to them.
        if not graph.nodes[number].inputs and users and found.issuperset(users):
            found.add(number)
    return frozenset(found)


def _split(graph: Graph, stages: list[tuple[str, frozenset[int]]]) -> Network:
    """The parts of a graph: what is before, between and after stages, and the stages."""
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
    if len(parts) == 1:  # no block: all is the stem
        stem = graphs[0][1]
        if len(stem.outputs) != 1:
            raise SpecError(f"expected blocks, or one output, found no blocks and {len(stem.outputs)} outputs")
        return Network(stem, (), Graph(stem.output_shapes, (), (0,)))
    blocks: list[Block] = []
    known: dict[tuple[str, tuple[Node, ...], tuple[int, ...]], str] = {}
    for name, each in graphs[1:-1]:
        if not name:
            blocks += [Block("", each)] if each.nodes else []
            continue
        for piece in _pieces(relative(each)):
            structure = (name, piece.nodes, piece.outputs)
            if structure not in known:
                known[structure] = name if name not in known.values() else _fresh(name, known.values())
            blocks.append(Block(known[structure], piece, _mutable(piece)))
    return Network(graphs[0][1], tuple(blocks), graphs[-1][1])


def _ancestors(graph: Graph, tensor: int) -> set[int]:
    """The nodes that a tensor is made by."""
    maker = graph.maker(tensor)
    return set() if maker is None else graph.before([maker])


def _residuals(graph: Graph) -> list[int]:
    """The nodes that add two branches of a block, both from its input, with no way around them, in order."""

    def reaches_input(tensor: int) -> bool:
        return tensor == 0 or any(0 in graph.nodes[node].inputs for node in _ancestors(graph, tensor))

    every = set(range(len(graph.nodes)))
    found = []
    for number, node in enumerate(graph.nodes):
        if node.operation.name == "add" and all(map(reaches_input, node.inputs)):
            before = _ancestors(graph, graph.tensor(number))
            region = graph.region(before)
            taken = {tensor for other in every - before for tensor in graph.nodes[other].inputs}
            if region.nodes == before and region.outputs == (graph.tensor(number),) and not taken & {0}:
                found.append(number)
    return found


def _pieces(graph: Graph) -> list[Graph]:
    """A block, split after each residual connection that another one comes after."""
    cuts = _residuals(graph)[:-1]
    found, tensor, done = [], 0, set[int]()
    for cut in cuts:
        nodes = _ancestors(graph, graph.tensor(cut)) - done
        found.append(graph.part(nodes, (tensor,), (graph.tensor(cut),)))
        tensor, done = graph.tensor(cut), done | nodes
    return [*found, graph.part(set(range(len(graph.nodes))) - done, (tensor,), graph.outputs)]


def _mutable(graph: Graph) -> frozenset[int]:
    """All nodes without a residual connection; with one those that the longer of its branches alone has."""
    nodes = {number for number, node in enumerate(graph.nodes) if node.operation.name != OPAQUE}
    residuals = _residuals(graph)
    if residuals:
        branches = [_ancestors(graph, tensor) for tensor in graph.nodes[residuals[-1]].inputs]
        shorter, longer = sorted(branches, key=len)
        nodes &= longer - shorter
    return frozenset(nodes)
