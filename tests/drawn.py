"""Where things stand in a picture, read from its SVG alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import hypot
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_CAP = 0.72  # how high a capital letter is, in sizes of the font


@dataclass(frozen=True)
class Box:
    """Left, top, right and bottom, in points."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def meets(self, other: Box, slack: float = 0.5) -> bool:
        across = min(self.right, other.right) - max(self.left, other.left)
        return across > slack and min(self.bottom, other.bottom) - max(self.top, other.top) > slack


@dataclass
class Node:
    """A node or a line: its outlines as points, and its texts with their boxes."""

    kinds: list[str]
    outlines: list[list[tuple[float, float]]] = field(default_factory=list)
    texts: list[tuple[str, Box]] = field(default_factory=list)

    @property
    def box(self) -> Box:
        points = [point for outline in self.outlines for point in outline]
        across, down = [x for x, _ in points], [y for _, y in points]
        return Box(min(across), min(down), max(across), max(down))


def read_nodes(svg: str) -> dict[str, Node]:
    """The nodes and lines of a picture by their ids."""
    found = {}
    for group in ElementTree.fromstring(svg).iter(f"{_SVG}g"):
        name, kinds = group.get("id", ""), group.get("class", "").split()
        if not {"node", "edge"} & set(kinds):
            continue
        node = found[name] = Node(kinds)
        for part in group.iter():
            kind = part.tag.removeprefix(_SVG)
            if kind in ("polygon", "path"):
                numbers = [float(one) for one in _NUMBER.findall(part.get("points") or part.get("d") or "")]
                node.outlines.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
            elif kind == "ellipse":
                x, y, wide, high = (float(part.get(key, 0)) for key in ("cx", "cy", "rx", "ry"))
                node.outlines.append([(x - wide, y), (x, y - high), (x + wide, y), (x, y + high)])
            elif kind == "text" and "".join(part.itertext()).strip():
                node.texts.append(("".join(part.itertext()), _text_box(part)))
    return found


def _text_box(text: ElementTree.Element) -> Box:
    x, y, size, width = (float(text.get(key, 0)) for key in ("x", "y", "font-size", "textLength"))
    left = {"start": x, "middle": x - width / 2, "end": x - width}[text.get("text-anchor", "start")]
    return Box(left, y - _CAP * size, left + width, y)


def is_within(box: Box, outline: list[tuple[float, float]], slack: float = 0.6) -> bool:
    """Whether a box is inside a convex outline: both of its upper and of its lower corners are."""
    for y in (box.top, box.bottom):
        across = []
        for (x0, y0), (x1, y1) in pairwise([*outline, outline[0]]):
            if min(y0, y1) <= y <= max(y0, y1):
                across += [x0, x1] if y0 == y1 else [x0 + (x1 - x0) * (y - y0) / (y1 - y0)]
        if not across or box.left < min(across) - slack or box.right > max(across) + slack:
            return False
    return True


def boxes(nodes: Mapping[str, Node]) -> dict[str, Box]:
    """The boxes of the nodes alone."""
    return {name: node.box for name, node in nodes.items() if "node" in node.kinds}


def rows(boxes: Mapping[str, Box]) -> list[list[str]]:
    """The names of boxes in rows, the highest first, each from left to right; a row's middles are within 2 points."""
    found: list[list[str]] = []
    for name in sorted(boxes, key=lambda one: boxes[one].middle[1]):
        if found and boxes[name].middle[1] - boxes[found[-1][-1]].middle[1] < 2:
            found[-1].append(name)
        else:
            found.append([name])
    return [sorted(row, key=lambda one: boxes[one].left) for row in found]


@dataclass
class Change:
    """What a step changes for what was there before, the input aside, which always moves up.

    Attributes:
        pairs, changed: pairs of nodes beside each other both before and after, and those that changed sides.
        ways: how far each node moved relative to the output, in points.
    """

    pairs: int = 0
    changed: int = 0
    ways: list[float] = field(default_factory=list)

    def add(self, before: Mapping[str, Box], after: Mapping[str, Box]) -> None:
        old = [name for name in before if name in after and name != "x"]
        for one, other in combinations(old, 2):
            was, now = _side(before[one], before[other]), _side(after[one], after[other])
            self.pairs += bool(was and now)
            self.changed += was * now < 0
        (x0, y0), (x1, y1) = before["y"].middle, after["y"].middle
        for name in old:
            if name != "y":
                (a0, b0), (a1, b1) = before[name].middle, after[name].middle
                self.ways.append(hypot((a1 - x1) - (a0 - x0), (b1 - y1) - (b0 - y0)))


def _side(one: Box, other: Box) -> int:
    """1 where one stands to the right of the other, -1 on the left, 0 above or below it."""
    return (one.left >= other.right) - (one.right <= other.left)
