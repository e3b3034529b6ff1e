"""What belongs together in the picture of a pGraph, so that a page can light it up.

Every node of the drawing has a *light*: the nodes and lines that belong to it. That of a coordinate is its whole
expression, all that is below it down to its iterators; that of a primitive or tensor is the coordinates that it
touches, with theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import unescape

from syno_lab.codegen.drawing import Drawable, coordinate_ids

_GROUP = re.compile(r'<g id="([^"]*)"[^>]*>(?:\s*<title>(.*?)</title>)?', re.DOTALL)
_ID = re.compile(r"(c\d+|s\d+(_c\d+)?|[wxy]\d*)(_[ad]\d+)?(--\w+)?")
_SHARE = re.compile(r"s\d+_(c\d+)")
_SHARE_OF = re.compile(r"(s\d+)_c\d+")
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
    nodes: list[str] = []
    below: dict[str, list[str]] = {}
    titles: dict[str, str] = {}
    for found in _GROUP.finditer(svg):
        name = unescape(found[1])
        if not _ID.fullmatch(name):
            continue
        upper, line, lower = name.partition("--")
        if line:
            below.setdefault(_node(upper), []).append(name)
            # From a tensor's row a line leads to one node; the node of the line's lower end says whose it is.
            below.setdefault(_node(lower), [])
        else:
            nodes.append(name)
            titles[name] = unescape(found[2] or name)
    coordinates = coordinate_ids(graph)
    return {name: _link(name, titles[name], below, coordinates) for name in nodes}


def _link(name: str, words: str, below: dict[str, list[str]], coordinates: Iterable[str]) -> Link:
    light = _down(name, below)
    if step := _SHARE_OF.fullmatch(name):  # of one CONTRACTION all is lit together
        light |= _bonds(step[1], below)
    kind = "coordinate" if name in coordinates else "tensor" if _TENSORS.fullmatch(name) else "primitive"
    if kind != "coordinate":
        light |= {line for lines_of in below.values() for line in lines_of if line.endswith(f"--{name}")}
    # A tensor is named where it is read; its coordinates stand in other places too.
    touched = _touched(name, below, coordinates) if kind == "primitive" else []
    return Link(words, kind, tuple(sorted(light - {"x", "y"} | {name})), tuple(touched))


def _bonds(step: str, below: dict[str, list[str]]) -> set[str]:
    """The SHAREs of a CONTRACTION, its weight, and the lines between them."""
    shares = {node for node in below if node.startswith(f"{step}_")}
    ends = {weight for weight in below if weight.startswith("w") if _ends(weight, below) & shares}
    return shares.union(ends, *(below[weight] for weight in ends))


def _ends(upper: str, below: dict[str, list[str]]) -> set[str]:
    return {line.partition("--")[2] for line in below[upper]}


def _node(end: str) -> str:
    """The node of a line's end: ``w0`` of ``w0_d1``, ``s5_c4`` is one itself."""
    return re.sub(r"_[ad]\d+$", "", end)


def _down(name: str, below: dict[str, list[str]]) -> set[str]:
    """A node with all that is below it."""
    found, waiting = {name}, [name]
    while waiting:
        for line in below.get(waiting.pop(), ()):
            lower = _node(line.partition("--")[2])
            if lower == "y":
                continue
            found.add(line)
            if lower not in found:
                found.add(lower)
                waiting.append(lower)
    return found


def _touched(name: str, below: dict[str, list[str]], coordinates: Iterable[str]) -> list[str]:
    if shared := _SHARE.fullmatch(name):
        return [shared[1]]
    made = [
        upper for upper in coordinates if any(_node(line.partition("--")[2]) == name for line in below.get(upper, ()))
    ]
    if made:
        return made
    lower = [line.partition("--")[2] for line in below.get(name, ())]
    # What is drawn above a SHARE stands for the coordinate that is shared.
    lower = [shared[1] if (shared := _SHARE.fullmatch(one)) else one for one in lower]
    return [one for one in coordinates if one in lower]
