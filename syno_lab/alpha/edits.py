"""Edits of networks as values: what a mutation of a network is, and a lineage of them that can be replayed on its seed.

An edit names blocks and nodes by their numbers, so it means something for one network alone. A :class:`Variant` is a
seed network with edits one after the other; its file holds the edits and :attr:`.Network.digest` of the seed, so that
edits of another seed are refused in one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from syno_lab.alpha import operator_node
from syno_lab.alpha.blocks import Block, Network
from syno_lab.alpha.files import MAX_BYTES, GraphRecord, graph_of, record_of
from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import Operation, Shape
from syno_lab.errors import FormatError, SpecError
from syno_lab.inputs import plural, quoted
from syno_lab.versioned import read_versioned

FORMAT = "syno-lab-network-edits"
VERSION = 1
#: Edits of one variant; a search of 800 individuals makes far fewer one after the other.
MOST_EDITS = 1000
_WHAT = "file of edits"


# -- edits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replacement:
    """Another graph in the place of the same region of some blocks of one type.

    Attributes:
        blocks: their numbers, in order.
        nodes: of the region, in order.
        old: the region, as it is in the first of the blocks.
        new: what comes in its place.
    """

    blocks: tuple[int, ...]
    nodes: tuple[int, ...]
    old: Graph
    new: Graph

    def apply(self, network: Network) -> Network:
        """The edited network. Raises SpecError where other operations stand there, or the rest does not fit."""
        for number in self.blocks:
            graph = _block(network, number).graph
            found = graph.subgraph(self.nodes)
            if (found.nodes, found.outputs) != (self.old.nodes, self.old.outputs):
                expected = f"{words(self.old)} as nodes {_numbers(self.nodes)}"
                raise SpecError(f"block {number}: expected {expected}, found {words(found)}")
        return network.edited(self.blocks, self.nodes, self.new)

    def __str__(self) -> str:
        where = f"{plural(len(self.blocks), 'block')} {_numbers(self.blocks)}, nodes {_numbers(self.nodes)}"
        return f"{where}: {words(self.old)} -> {words(self.new)}"


@dataclass(frozen=True)
class Duplication:
    """A copy of the block of this number ``before`` another one; the number of all blocks is the end."""

    block: int
    before: int

    def apply(self, network: Network) -> Network:
        """The edited network. Raises SpecError where block or place is missing or is kept, or the rest does not fit."""
        copy, blocks = _changeable(network, self.block), list(network.blocks)
        if not 0 <= self.before <= len(blocks):
            raise SpecError(f"expected a place from 0 to {len(blocks)}, found {quoted(self.before)}")
        return network.with_blocks([*blocks[: self.before], copy, *blocks[self.before :]])

    def __str__(self) -> str:
        return f"copy block {self.block} to before block {self.before}"


@dataclass(frozen=True)
class Deletion:
    """A network without the block of this number."""

    block: int

    def apply(self, network: Network) -> Network:
        """The edited network. Raises SpecError where the block is not there or is kept, or the rest does not fit."""
        _changeable(network, self.block)
        return network.with_blocks([*network.blocks[: self.block], *network.blocks[self.block + 1 :]])

    def __str__(self) -> str:
        return f"delete block {self.block}"


Edit = Replacement | Duplication | Deletion


def _block(network: Network, number: int) -> Block:
    if not 0 <= number < len(network.blocks):
        raise SpecError(f"expected blocks from 0 to {len(network.blocks) - 1}, found {quoted(number)}")
    return network.blocks[number]


def _changeable(network: Network, number: int) -> Block:
    block = _block(network, number)
    if not block.kind:
        raise SpecError(f"block {number}: expected one with a type, found one that is never changed")
    return block


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


# -- words -----------------------------------------------------------------------------------------------------------


def words(graph: Graph) -> str:
    """The operations of a graph in a line, in numbers: ``conv 3x3 32, relu``; where it is no chain with tensors."""
    said = [_said(node.operation, *graph.input_shapes(number)) for number, node in enumerate(graph.nodes)]
    if graph.is_chain:
        return ", ".join(said) or "nothing"
    taken = [" and ".join(f"t{tensor}" for tensor in node.inputs) or "nothing" for node in graph.nodes]
    lines = [f"t{graph.tensor(number)} = {does} of {taken[number]}" for number, does in enumerate(said)]
    return "; ".join([*lines, f"outputs {', '.join(f't{tensor}' for tensor in graph.outputs)}"])


def _said(operation: Operation, *shapes: Shape) -> str:
    """An operation with all that is not default: ``depthwise 3x3 stride 2``."""
    at = operation.at(*shapes)
    name, values = at.name, dict(at.attributes)
    defaults = {key: row.default for key, row in at.row.attributes.items()}
    said = []
    if name == "conv":
        channels = shapes[0][-1]
        if values["groups"] == values["features"] == channels > 1:
            name, values["groups"], values["features"] = "depthwise", 1, None
        said.append("x".join([str(values.pop("kernel"))] * (len(shapes[0]) - 2)))
    elif name.endswith("_pool"):
        window = values.pop("window")
        said.append("x".join([str(window)] * (len(shapes[0]) - 2)) if window else "whole")
    elif name == operator_node.NAME:
        name = operator_node.said(values["file"])
    features = values.pop("features", None)
    if features is not None:
        said.append(str(features))
    for key, value in values.items():
        if value != defaults[key] and at.row.attributes[key].is_shown:
            text = "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
            said.append(f"no {key}" if value is False else key if value is True else f"{key} {text}")
    return " ".join([name, *said])


# -- variants --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Variant:
    """A seed network with edits, each of what the one before gave. Two are equal where :attr:`key` is.

    Attributes:
        seed: the network that is edited.
        edits: in order, at most 1,000.

    Raises SpecError where an edit does not fit: which, and why.
    """

    seed: Network
    edits: tuple[Edit, ...] = ()
    _network: Network | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self._network is not None:  # the edits need not be replayed
            return
        if len(self.edits) > MOST_EDITS:
            raise SpecError(f"expected at most {MOST_EDITS} edits, found {len(self.edits)}")
        network = self.seed
        for number, edit in enumerate(self.edits):
            try:
                network = edit.apply(network)
            except SpecError as error:
                raise SpecError(f"edit {number}: {error}") from None
        object.__setattr__(self, "_network", network)

    def edited(self, edit: Edit) -> Variant:
        """The variant with one more edit. Raises SpecError where it does not fit."""
        if len(self.edits) >= MOST_EDITS:
            raise SpecError(f"expected at most {MOST_EDITS} edits, found one more")
        return Variant(self.seed, (*self.edits, edit), edit.apply(self.network))

    @property
    def network(self) -> Network:
        """The network with all edits."""
        assert self._network is not None
        return self._network

    @cached_property
    def key(self) -> str:
        """:attr:`.Network.key`: equal for variants of one structure, whatever edits led there."""
        return self.network.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def flops(self) -> int:
        """FLOPs for the inputs as they are; 2 for each multiply-add."""
        return self.network.graph.flops()

    def params(self) -> int:
        """The number of weights."""
        return self.network.graph.params()

    def __str__(self) -> str:
        """A line for each edit."""
        return "\n".join(map(str, self.edits)) or "the seed"

    def to_json(self) -> str:
        """The text of a file of edits, which :meth:`from_json` reads; each edit has a line for people."""
        record = _File(FORMAT, VERSION, self.seed.digest, [record_of_edit(edit) for edit in self.edits])
        return msgspec.json.format(msgspec.json.encode(record), indent=1).decode()

    @staticmethod
    def from_json(text: str | bytes, seed: Network) -> Variant:
        """Read a file of edits and replay them.

        Raises FormatError for a file that is none, edits of another seed, and one that does not fit: one line.
        """
        read = read_versioned(text, _File, what=_WHAT, name=FORMAT, version=VERSION, most=MAX_BYTES)
        if read.seed != seed.digest:
            sides = f"expected edits of the network {seed.digest}, found those of {quoted(read.seed)}"
            raise FormatError(f"{_WHAT}: {sides}; give the seed that it was made from")
        return variant_of(seed, read.edits, _WHAT)


# -- files -----------------------------------------------------------------------------------------------------------


class _Replace(msgspec.Struct, forbid_unknown_fields=True, tag="replace", tag_field="edit"):
    """`text` is for people and is not read."""

    blocks: tuple[int, ...]
    nodes: tuple[int, ...]
    old: GraphRecord
    new: GraphRecord
    text: str = ""


class _Copy(msgspec.Struct, forbid_unknown_fields=True, tag="copy", tag_field="edit"):
    block: int
    before: int
    text: str = ""


class _Delete(msgspec.Struct, forbid_unknown_fields=True, tag="delete", tag_field="edit"):
    block: int
    text: str = ""


EditRecord = _Replace | _Copy | _Delete


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    seed: str
    edits: list[EditRecord]


def record_of_edit(edit: Edit) -> EditRecord:
    """An edit as it stands in a file."""
    if isinstance(edit, Replacement):
        graphs = (record_of(edit.old), record_of(edit.new))
        return _Replace(edit.blocks, edit.nodes, *graphs, str(edit))
    if isinstance(edit, Duplication):
        return _Copy(edit.block, edit.before, str(edit))
    return _Delete(edit.block, str(edit))


def variant_of(seed: Network, records: Sequence[EditRecord], what: str) -> Variant:
    """A seed with the edits that stand in a file.

    Raises FormatError, one line that begins with ``what``, also where an edit does not fit.
    """
    edits = tuple([_edit_of(one, f"{what}: edit {number}") for number, one in enumerate(records)])
    try:
        return Variant(seed, edits)
    except SpecError as error:
        raise FormatError(f"{what}: {error}") from None


def _edit_of(record: EditRecord, what: str) -> Edit:
    if isinstance(record, _Replace):
        graphs = (graph_of(record.old, f"{what}: old"), graph_of(record.new, f"{what}: new"))
        return Replacement(record.blocks, record.nodes, *graphs)
    return Duplication(record.block, record.before) if isinstance(record, _Copy) else Deletion(record.block)
