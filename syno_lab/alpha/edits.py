"""Edits of networks as values: an edit is one mutation of a network, and a lineage of edits can be replayed.

An edit names blocks and nodes by number, so it is valid for one network only. A :class:`Variant` is a seed network with
edits applied in order. The variant's file contains the edits and :attr:`.Network.digest` of the seed. Reading raises an
error for edits of another seed.
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
#: The limit of edits of one variant; in a search of 800 individuals, a variant has far fewer.
MOST_EDITS = 1000
_WHAT = "file of edits"


# -- edits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replacement:
    """A replacement of one region by another graph in some blocks of one type.

    Attributes:
        blocks: the numbers of the blocks, in order.
        nodes: the numbers of the region's nodes, in order.
        old: the region in the first of the blocks, as a graph.
        new: the graph that replaces the region.
    """

    blocks: tuple[int, ...]
    nodes: tuple[int, ...]
    old: Graph
    new: Graph

    def apply(self, network: Network) -> Network:
        """Return the edited network. Raises SpecError where the region is not ``old``, or ``new`` does not fit."""
        for number in self.blocks:
            graph = _block(network, number).graph
            current = graph.subgraph(self.nodes)
            if (current.nodes, current.outputs) != (self.old.nodes, self.old.outputs):
                expected = f"{words(self.old)} as nodes {_numbers(self.nodes)}"
                raise SpecError(f"block {number}: expected {expected}, found {words(current)}")
        return network.edited(self.blocks, self.nodes, self.new)

    def __str__(self) -> str:
        where = f"{plural(len(self.blocks), 'block')} {_numbers(self.blocks)}, nodes {_numbers(self.nodes)}"
        return f"{where}: {words(self.old)} -> {words(self.new)}"


@dataclass(frozen=True)
class Duplication:
    """A copy of ``block``, inserted in front of block ``before``; at the end if ``before`` is the number of blocks."""

    block: int
    before: int

    def apply(self, network: Network) -> Network:
        """Return the edited network. Raises SpecError for an unknown or fixed block, or a part that does not fit."""
        copy, blocks = _changeable(network, self.block), list(network.blocks)
        if not 0 <= self.before <= len(blocks):
            raise SpecError(f"expected a position from 0 to {len(blocks)}, found {quoted(self.before)}")
        return network.with_blocks([*blocks[: self.before], copy, *blocks[self.before :]])

    def __str__(self) -> str:
        return f"copy block {self.block} to before block {self.before}"


@dataclass(frozen=True)
class Deletion:
    """A network without the block of this number."""

    block: int

    def apply(self, network: Network) -> Network:
        """Return the edited network. Raises SpecError for an unknown or fixed block, or a part that does not fit."""
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
        raise SpecError(f"block {number}: expected a block with a type, found a block without")
    return block


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


# -- words -----------------------------------------------------------------------------------------------------------


def words(graph: Graph) -> str:
    """List a graph's operations in a line, as in ``conv 3x3 32, relu``; also name the tensors if it is no chain."""
    names = [_described(node.operation, *graph.input_shapes(number)) for number, node in enumerate(graph.nodes)]
    if graph.is_chain:
        return ", ".join(names) or "nothing"
    inputs = [" and ".join(f"t{tensor}" for tensor in node.inputs) or "nothing" for node in graph.nodes]
    lines = [f"t{graph.tensor(number)} = {name} of {inputs[number]}" for number, name in enumerate(names)]
    return "; ".join([*lines, f"outputs {', '.join(f't{tensor}' for tensor in graph.outputs)}"])


def _described(operation: Operation, *shapes: Shape) -> str:
    """Return an operation with the attributes that differ from the default: ``depthwise 3x3 stride 2``."""
    at = operation.at(*shapes)
    name, values = at.name, dict(at.attributes)
    defaults = {key: row.default for key, row in at.row.attributes.items()}
    parts = []
    if name == "conv":
        channels = shapes[0][-1]
        if values["groups"] == values["features"] == channels > 1:
            name, values["groups"], values["features"] = "depthwise", 1, None
        parts.append("x".join([str(values.pop("kernel"))] * (len(shapes[0]) - 2)))
    elif name.endswith("_pool"):
        window = values.pop("window")
        parts.append("x".join([str(window)] * (len(shapes[0]) - 2)) if window else "whole")
    elif name == operator_node.NAME:
        name = operator_node.said(values["file"])
    features = values.pop("features", None)
    if features is not None:
        parts.append(str(features))
    for key, value in values.items():
        if value != defaults[key] and at.row.attributes[key].is_shown:
            text = "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
            parts.append(f"no {key}" if value is False else key if value is True else f"{key} {text}")
    return " ".join([name, *parts])


# -- variants --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Variant:
    """A seed network with edits that are applied in order. Variants with equal :attr:`key` are equal.

    Attributes:
        seed: the network before all edits.
        edits: at most 1,000 edits, in order.

    Raises SpecError for an edit that does not fit; the message has the number of the edit and the reason.
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
        """Return the variant with one more edit. Raises SpecError where the edit does not fit."""
        if len(self.edits) >= MOST_EDITS:
            raise SpecError(f"expected at most {MOST_EDITS} edits, found one more")
        return Variant(self.seed, (*self.edits, edit), edit.apply(self.network))

    @property
    def network(self) -> Network:
        """The network after all edits."""
        assert self._network is not None
        return self._network

    @cached_property
    def key(self) -> str:
        """The :attr:`.Network.key` of the edited network: equal for variants of equal structure after any edits."""
        return self.network.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def flops(self) -> int:
        """The FLOPs for the seed's batch size; 2 for each multiply-add."""
        return self.network.graph.flops()

    def params(self) -> int:
        """The number of weights."""
        return self.network.graph.params()

    def __str__(self) -> str:
        """Return a line for each edit."""
        return "\n".join(map(str, self.edits)) or "the seed"

    def to_json(self) -> str:
        """Return the text of a file of edits, which :meth:`from_json` reads; the file describes edits in words too."""
        record = _File(FORMAT, VERSION, self.seed.digest, [record_of_edit(edit) for edit in self.edits])
        return msgspec.json.format(msgspec.json.encode(record), indent=1).decode()

    @staticmethod
    def from_json(text: str | bytes, seed: Network) -> Variant:
        """Read a file of edits and replay the edits.

        Raises FormatError in one line for a damaged file, edits of another seed, and an edit that does not fit.
        """
        read = read_versioned(text, _File, what=_WHAT, name=FORMAT, version=VERSION, most=MAX_BYTES)
        if read.seed != seed.digest:
            sides = f"expected edits of the network {seed.digest}, found edits of {quoted(read.seed)}"
            raise FormatError(f"{_WHAT}: {sides}; pass the network that was edited")
        return variant_of(seed, read.edits, _WHAT)


# -- files -----------------------------------------------------------------------------------------------------------


class _Replace(msgspec.Struct, forbid_unknown_fields=True, tag="replace", tag_field="edit"):
    """The record of a replacement in a file; `text` describes the edit in words, and readers ignore it."""

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
    """Return the record of an edit in a file."""
    if isinstance(edit, Replacement):
        graphs = (record_of(edit.old), record_of(edit.new))
        return _Replace(edit.blocks, edit.nodes, *graphs, str(edit))
    if isinstance(edit, Duplication):
        return _Copy(edit.block, edit.before, str(edit))
    return _Delete(edit.block, str(edit))


def variant_of(seed: Network, records: Sequence[EditRecord], what: str) -> Variant:
    """Return the variant of a seed and the edits of a file.

    Raises FormatError in one line that begins with ``what``, for wrong records and for an edit that does not fit.
    """
    edits = tuple([_edit_of(record, f"{what}: edit {number}") for number, record in enumerate(records)])
    try:
        return Variant(seed, edits)
    except SpecError as error:
        raise FormatError(f"{what}: {error}") from None


def _edit_of(record: EditRecord, what: str) -> Edit:
    if isinstance(record, _Replace):
        graphs = (graph_of(record.old, f"{what}: old"), graph_of(record.new, f"{what}: new"))
        return Replacement(record.blocks, record.nodes, *graphs)
    return Duplication(record.block, record.before) if isinstance(record, _Copy) else Deletion(record.block)
