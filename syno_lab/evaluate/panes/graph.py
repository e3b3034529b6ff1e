"""The pGraph's pane, and what belongs together in picture and loop nest.

Every node of the drawing has a *light*: the nodes and lines that belong to it, which are lit together. That of a
coordinate is its whole expression, all that is below it down to its iterators; that of a primitive or tensor is the
coordinates that it touches, with theirs. The lines of the loop nest are numbered from 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import unescape
from typing import Any

from syno_lab.codegen import drawing
from syno_lab.evaluate.panes.asked import Asked
from syno_lab.evaluate.panes.program import loop_pane

_ID = re.compile(r'\[id="([^"]*)"')
_SHARE = re.compile(r"s\d+_(c\d+)")
_TENSORS = re.compile(r"[xyw]\d*")


def graph_pane(asked: Asked) -> dict[str, Any]:
    """The drawing and its links.

    Returns:
        ``svg``, ``dot``, ``description``, ``json`` (the operator file) and ``links``: for each node of the drawing by
        its id ``words``, ``kind`` (``coordinate``, ``primitive`` or ``tensor``), ``light`` (ids of nodes and lines),
        ``marks`` (the ids whose pieces of a loop nest are lit with it) and ``lines`` (of the one loop nest).
    """
    operator = asked.operator
    svg = drawing.svg(operator)
    dot = drawing.dot(operator)
    return {
        "svg": svg,
        "dot": dot,
        "description": drawing.describe(operator),
        "json": operator.to_json(),
        "links": _links(asked, svg, dot),
    }


def _links(asked: Asked, svg: str, dot: str) -> dict[str, dict[str, Any]]:
    nodes: list[str] = []
    below: dict[str, list[str]] = {}
    for name in _ID.findall(dot):
        upper, line, lower = name.partition("--")
        if line:
            below.setdefault(_node(upper), []).append(name)
            # From a tensor's row a line leads to one node; the node of the line's lower end says whose it is.
            below.setdefault(_node(lower), [])
        else:
            nodes.append(name)
    lines = _lines(asked)
    titles = _titles(svg)
    coordinates = drawing.coordinate_ids(asked.operator)
    found = {}
    for name in nodes:
        light = _down(name, below)
        kind = "coordinate" if name in coordinates else "tensor" if _TENSORS.fullmatch(name) else "primitive"
        if kind != "coordinate":
            light |= {line for lines_of in below.values() for line in lines_of if line.endswith(f"--{name}")}
        # A tensor is named where it is read; its coordinates stand in other places too.
        touched = _touched(name, below, coordinates) if kind == "primitive" else []
        found[name] = {
            "words": titles.get(name, name),
            "kind": kind,
            "light": sorted(light - {"x", "y"} | {name}),
            "marks": list(dict.fromkeys([name, *touched])),
            "lines": sorted({line for one in (name, *touched) for line in lines.get(one, ())}),
        }
    return found


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
    """The coordinates that a primitive makes; of one that makes none, those right below it."""
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


def _titles(svg: str) -> dict[str, str]:
    pairs = re.findall(r'<g id="([^"]*)"[^>]*>\s*<title>(.*?)</title>', svg, re.DOTALL)
    return {unescape(name): unescape(title) for name, title in pairs}


def _lines(asked: Asked) -> dict[str, list[int]]:
    """For each node the lines of the one loop nest that it is in."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(loop_pane(asked)["nests"][0]["lines"]):
        for piece in line:
            for name in piece.get("ids", ()):
                found.setdefault(name, []).append(number)
    return found
