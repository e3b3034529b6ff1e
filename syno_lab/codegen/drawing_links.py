"""What belongs together in the picture of a pGraph, so that a page can light it up.

Every node of the drawing has a *light*: the nodes and lines that belong to it. That of a coordinate is its whole
expression, all that is below it down to its iterators; that of a primitive or tensor is the coordinates that it
touches, with theirs.
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
    """The facts about one node of the drawing.

    Attributes:
        words: its title.
        kind: ``coordinate``, ``primitive`` or ``tensor``.
        light: the ids of the nodes and lines that are lit with it.
        touched: the coordinates that a primitive makes; of one that makes none, those right below it.
    """

    words: str
    kind: str
    light: tuple[str, ...]
    touched: tuple[str, ...]


def links(graph: Drawable, svg: str) -> dict[str, Link]:
    """The nodes of the picture ``svg`` of ``graph`` by their ids, in the order in which they were drawn."""
    drawing = drawn(graph)
    below: dict[str, list[str]] = {name: [] for name in drawing.nodes}
    for line, joint in drawing.joints.items():
        below[joint.upper].append(line)
    around = _Around(below, drawing.joints, tuple(coordinate_ids(graph)))
    return {name: around.link(name, drawing.titles[name]) for name in _GROUP.findall(svg) if name in below}


@dataclass(frozen=True)
class _Around:
    """A picture: for each node the lines that lead down from it, the ends of the lines, and the coordinates."""

    below: Mapping[str, list[str]]
    joints: Mapping[str, Joint]
    coordinates: tuple[str, ...]

    def link(self, name: str, words: str) -> Link:
        light, shared = self._down(name), _SHARE.fullmatch(name)
        if shared:  # of one CONTRACTION all is lit together
            light |= self._bonds(shared[1])
        kind = "coordinate" if name in self.coordinates else "tensor" if _TENSORS.fullmatch(name) else "primitive"
        if kind != "coordinate":
            light |= {line for line in self.joints if line.endswith(f"--{name}")}
        # A tensor is named where it is read; its coordinates stand in other places too.
        touched = self._touched(name) if kind == "primitive" else []
        return Link(words, kind, tuple(sorted(light - {"x", "y"} | {name})), tuple(touched))

    def _ends(self, upper: str) -> set[str]:
        return {self.joints[line].lower for line in self.below[upper]}

    def _bonds(self, step: str) -> set[str]:
        """The SHAREs of a CONTRACTION, its weight, and the lines between them."""
        shares = {node for node in self.below if node.startswith(f"{step}_")}
        ends = {weight for weight in self.below if weight.startswith("w") and self._ends(weight) & shares}
        return shares.union(ends, *(self.below[weight] for weight in ends))

    def _down(self, name: str) -> set[str]:
        """A node with all that is below it."""
        found, waiting = {name}, [name]
        while waiting:
            for line in self.below[waiting.pop()]:
                lower = self.joints[line].lower
                if lower == "y":
                    continue
                found.add(line)
                if lower not in found:
                    found.add(lower)
                    waiting.append(lower)
        return found

    def _touched(self, name: str) -> Iterable[str]:
        if shared := _SHARE.fullmatch(name):
            return [shared[2]]
        made = [upper for upper in self.coordinates if name in self._ends(upper)]
        # What is drawn above a SHARE stands for the coordinate that is shared.
        lower = {shared[2] if (shared := _SHARE.fullmatch(one)) else one for one in self._ends(name)}
        return made or [one for one in self.coordinates if one in lower]
