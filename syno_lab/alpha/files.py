"""Graphs and networks of αNAS as JSON; reading applies the checks of the constructors.

Tensors are numbered as in :mod:`syno_lab.alpha.graph`. A file contains data only. The only shapes in a file are the
inputs' shapes; all other shapes follow. A :class:`.Rel` is an object with ``mul``, ``div`` and ``axis``. Attributes
with their default values are left out.
"""

from __future__ import annotations

import msgspec

from syno_lab.alpha.blocks import Block, Network
from syno_lab.alpha.graph import Graph, Node
from syno_lab.alpha.operations import Operation, Shape
from syno_lab.alpha.row import Value
from syno_lab.errors import FormatError, SpecError
from syno_lab.versioned import read_versioned

FORMAT = "syno-lab-graph"
NETWORK_FORMAT = "syno-lab-network"
VERSION = 1
MAX_BYTES = 1 << 22
_LONGEST_SOURCE = 400  # characters


class NodeRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An operation with the numbers of its input tensors."""

    operation: str
    attributes: dict[str, Value] = {}
    inputs: tuple[int, ...] = ()
    source: str = ""


class GraphRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The record of a graph, without a header; files of networks and of edits contain this record too."""

    inputs: tuple[Shape, ...]
    nodes: list[NodeRecord]
    outputs: tuple[int, ...]


class _File(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    format: str
    version: int
    graph: GraphRecord


class _BlockRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A block: the name of its type, its graph, and the numbers of its mutable nodes."""

    graph: GraphRecord
    kind: str = ""
    mutable: list[int] = []


class NetworkRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The record of a network, without a header; operator files contain this record too."""

    stem: GraphRecord
    blocks: list[_BlockRecord]
    head: GraphRecord


class _NetworkFile(NetworkRecord, omit_defaults=True, kw_only=True):
    format: str
    version: int


def record_of(graph: Graph) -> GraphRecord:
    """Return the record of a graph in a file."""
    nodes = [record_of_operation(node.operation, node.inputs, node.source) for node in graph.nodes]
    return GraphRecord(graph.inputs, nodes, graph.outputs)


def graph_of(record: GraphRecord, what: str) -> Graph:
    """Return the graph of a record. Raises FormatError in one line that begins with ``what``."""
    nodes, where = [], what
    try:
        for number, node in enumerate(record.nodes):
            where = f"{what}: node {number}"
            if len(node.source) > _LONGEST_SOURCE:
                raise SpecError(f"source: expected at most {_LONGEST_SOURCE} characters")
            nodes.append(Node(operation_of(node), node.inputs, node.source))
        where = what
        return Graph(record.inputs, tuple(nodes), record.outputs)
    except SpecError as error:
        raise FormatError(f"{where}: {error}") from None


def record_of_operation(operation: Operation, inputs: tuple[int, ...] = (), source: str = "") -> NodeRecord:
    """Return the record of an operation in a file."""
    rows = operation.row.attributes
    changed = {name: value for name, value in operation.attributes if value != rows[name].default}
    return NodeRecord(operation.name, changed, inputs, source)


def operation_of(record: NodeRecord) -> Operation:
    """Return the operation of a record. Raises SpecError for a record that describes no operation."""
    return Operation(record.operation, tuple(record.attributes.items()))


def to_json(graph: Graph) -> str:
    """Return the text of a graph file."""
    return msgspec.json.format(msgspec.json.encode(_File(FORMAT, VERSION, record_of(graph))), indent=1).decode()


def from_json(text: str | bytes) -> Graph:
    """Read a graph file. Raises FormatError with one line: expected value, found value and place in the file."""
    record = read_versioned(text, _File, what="graph file", name=FORMAT, version=VERSION, most=MAX_BYTES)
    return graph_of(record.graph, "graph file")


def record_of_network(network: Network) -> NetworkRecord:
    """Return the record of a network in a file."""
    blocks = [_BlockRecord(record_of(block.graph), block.kind, sorted(block.mutable)) for block in network.blocks]
    return NetworkRecord(record_of(network.stem), blocks, record_of(network.head))


def network_of(record: NetworkRecord, what: str) -> Network:
    """Return the network of a record. Raises FormatError in one line that begins with ``what``."""
    stem, head = (graph_of(part, f"{what}: {name}") for part, name in ((record.stem, "stem"), (record.head, "head")))
    try:
        blocks = []
        for number, block in enumerate(record.blocks):
            graph = graph_of(block.graph, f"{what}: block {number}")
            blocks.append(Block(block.kind, graph, frozenset(block.mutable)))
        return Network(stem, tuple(blocks), head)
    except SpecError as error:
        raise FormatError(f"{what}: {error}") from None


def network_to_json(network: Network) -> str:
    """Return the text of a network file."""
    contents = record_of_network(network)
    file = _NetworkFile(contents.stem, contents.blocks, contents.head, format=NETWORK_FORMAT, version=VERSION)
    return msgspec.json.format(msgspec.json.encode(file), indent=1).decode()


def network_from_json(text: str | bytes) -> Network:
    """Read a network file. Raises FormatError with one line: expected value, found value and place in the file."""
    what = "network file"
    record = read_versioned(text, _NetworkFile, what=what, name=NETWORK_FORMAT, version=VERSION, most=MAX_BYTES)
    return network_of(record, what)
