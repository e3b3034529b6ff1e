"""The lineage of a network as plain data: all edits since the seed, with pictures before and after an edit."""

from __future__ import annotations

from typing import TypedDict

from syno_lab.alpha import drawing
from syno_lab.alpha.blocks import Block, Network
from syno_lab.alpha.edits import Deletion, Duplication, Edit, Replacement, Variant, words

#: The number of last edits that get pictures; pictures of all edits of a long lineage would make a page slow.
PICTURED = 8


class Shown(TypedDict):
    """A block before or after an edit; the changed nodes have a thick border in its picture."""

    title: str
    svg: str
    text: str


class Generation(TypedDict):
    """A network of a lineage, the edit (in words) that leads to it, and pictures of the first block of this edit."""

    number: int
    words: str
    blocks: int
    flops: int
    params: int
    pictures: list[Shown]


def lineage(variant: Variant) -> list[Generation]:
    """Return the networks of a lineage, the seed first."""
    before, rows = variant.seed, list[Generation]()
    for number, edit in enumerate((None, *variant.edits)):
        network = before if edit is None else edit.apply(before)
        is_pictured = edit is not None and number > len(variant.edits) - PICTURED
        shown = pictures(before, edit, network) if edit is not None and is_pictured else []
        title, blocks, graph = str(edit or "the seed"), len(network.blocks), network.graph
        rows.append(
            Generation(
                number=number, words=title, blocks=blocks, flops=graph.flops(), params=graph.params(), pictures=shown
            )
        )
        before = network
    return rows


def pictures(before: Network, edit: Edit, after: Network) -> list[Shown]:
    """Return pictures of the block that an edit changes; for a copy or a deletion only one picture."""
    match edit:
        case Replacement():
            number = edit.blocks[0]
            old, new = before.blocks[number], after.blocks[number]
            region = old.graph.region(edit.nodes)
            _, origins = old.graph.replaced(region, edit.new)
            changed = [index for index, origin in enumerate(origins) if origin is None]
            return [
                _picture(f"Block {number} before", old, sorted(region.nodes)),
                _picture(f"Block {number} after", new, changed),
            ]
        case Duplication():
            return [_picture(f"The copy, block {edit.before} after", after.blocks[edit.before], [])]
        case Deletion():
            return [_picture(f"The deleted block {edit.block}", before.blocks[edit.block], [])]


def _picture(title: str, block: Block, changed: list[int]) -> Shown:
    graph = block.graph
    marked = f" Changed: {', '.join(f't{graph.tensor(number)}' for number in changed)}." if changed else ""
    svg = drawing.svg(graph, highlight=changed)
    return {"title": title, "svg": svg, "text": f"{drawing.describe(graph)}{marked}"}


def block_rows(network: Network) -> list[list[str | int]]:
    """Return the rows of a table of the stem, the blocks and the head: name, type, operations, FLOPs and parameters."""
    parts = [("stem", "", network.stem)]
    parts += [(f"block {number}", block.kind, block.graph) for number, block in enumerate(network.blocks)]
    parts += [("head", "", network.head)]
    return [[name, kind or "kept", words(graph), graph.flops(), graph.params()] for name, kind, graph in parts]
