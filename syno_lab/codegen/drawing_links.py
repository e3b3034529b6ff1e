"""The nodes and lines of a pGraph's picture that a page highlights together.

Every node has a list ``light`` of the nodes and lines that are highlighted with the node. A coordinate's list has the
nodes and lines of its expression. The list of a primitive or a tensor has its coordinates and their lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from syno_lab.codegen.drawing import Drawable, coordinate_ids, drawn
from syno_lab.codegen.drawing_order import Joint

_GROUP = re.compile(r'<g id="(\w+)"')
_SHARE = re.compile(r"(s\d+)_(c\d+)")
_TENSORS = re.compile(r"[xyw]\d*")


@dataclass(frozen=True)
class Link:
    """The texts and links of a node of the picture.

    Attributes:
        words: the title of the node.
        kind: ``coordinate``, ``primitive`` or ``tensor``.
        light: the ids of the nodes and lines that are highlighted with the node.
        touched: the coordinates that a primitive makes; for a primitive without results, the coordinates right below
            the primitive.
    """

    words: str
    kind: str
    light: tuple[str, ...]
    touched: tuple[str, ...]


def links(graph: Drawable, svg: str) -> dict[str, Link]:
    """Return the nodes of ``svg``, the picture of ``graph``, by their ids in the order of the picture."""
    drawing = drawn(graph)
    below: dict[str, list[str]] = {name: [] for name in drawing.nodes}
    for line, joint in drawing.joints.items():
        below[joint.upper].append(line)
    around = _Around(below, drawing.joints, tuple(coordinate_ids(graph)))
    return {name: around.link(name, drawing.titles[name]) for name in _GROUP.findall(svg) if name in below}


@dataclass(frozen=True)
class _Around:
    """A picture: for each node the lines that lead down from the node, the ends of each line, and the coordinates."""

    below: Mapping[str, list[str]]
    joints: Mapping[str, Joint]
    coordinates: tuple[str, ...]

    def link(self, name: str, words: str) -> Link:
        light, shared = self._down(name), _SHARE.fullmatch(name)
        if shared:  # all parts of a CONTRACTION are highlighted together
            light |= self._bonds(shared[1])
        kind = "coordinate" if name in self.coordinates else "tensor" if _TENSORS.fullmatch(name) else "primitive"
        if kind != "coordinate":
            light |= {line for line in self.joints if line.endswith(f"--{name}")}
        # In a loop nest only the tensor's name is marked: the tensor's coordinates also occur in other places.
        touched = self._touched(name) if kind == "primitive" else []
        return Link(words, kind, tuple(sorted(light - {"x", "y"} | {name})), tuple(touched))

    def _ends(self, upper: str) -> set[str]:
        return {self.joints[line].lower for line in self.below[upper]}

    def _bonds(self, step: str) -> set[str]:
        """Return the SHAREs of a CONTRACTION, its weight, and the lines between them."""
        shares = {node for node in self.below if node.startswith(f"{step}_")}
        ends = {weight for weight in self.below if weight.startswith("w") and self._ends(weight) & shares}
        return shares.union(ends, *(self.below[weight] for weight in ends))

    def _down(self, name: str) -> set[str]:
        """Return a node and all nodes and lines below it."""
        light, waiting = {name}, [name]
        while waiting:
            for line in self.below[waiting.pop()]:
                lower = self.joints[line].lower
                if lower == "y":
                    continue
                light.add(line)
                if lower not in light:
                    light.add(lower)
                    waiting.append(lower)
        return light

    def _touched(self, name: str) -> Iterable[str]:
        if shared := _SHARE.fullmatch(name):
            return [shared[2]]
        results = [upper for upper in self.coordinates if name in self._ends(upper)]
        # A line to a SHARE counts as a line to the shared coordinate.
        lower = {shared[2] if (shared := _SHARE.fullmatch(end)) else end for end in self._ends(name)}
        return results or [upper for upper in self.coordinates if upper in lower]
