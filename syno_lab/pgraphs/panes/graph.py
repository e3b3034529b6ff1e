"""The pGraph's pane, and what belongs together in picture and loop nest.

What is lit together in the picture is :mod:`syno_lab.codegen.drawing_links`' to say. The lines of the loop nest are
numbered from 0.
"""

from __future__ import annotations

from syno_lab.codegen.drawing_links import links
from syno_lab.ir.operator import Operator
from syno_lab.panes import Asked
from syno_lab.panes.data import Link, Picture
from syno_lab.panes.generic import picture_pane
from syno_lab.pgraphs.panes.program import loop_pane


def graph_pane(asked: Asked[Operator]) -> Picture:
    """The drawing and its links."""
    data = picture_pane(asked)
    return {**data, "links": _links(asked, data["svg"])}


def _links(asked: Asked[Operator], svg: str) -> dict[str, Link]:
    lines = _lines(asked)
    found: dict[str, Link] = {}
    for name, link in links(asked.operator, svg).items():
        found[name] = {
            "words": link.words,
            "kind": link.kind,
            "light": list(link.light),
            "marks": list(dict.fromkeys([name, *link.touched])),
            "lines": sorted({line for one in (name, *link.touched) for line in lines.get(one, ())}),
        }
    return found


def _lines(asked: Asked[Operator]) -> dict[str, list[int]]:
    """For each node the lines of the one loop nest that it is in."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(loop_pane(asked)["nests"][0]["lines"]):
        for piece in line:
            for name in piece.get("ids", ()):
                found.setdefault(name, []).append(number)
    return found
