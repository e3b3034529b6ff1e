"""Draw a hull behind each CONTRACTION: behind its weight, its SHAREs and the lines between them.

The hull does not change the layout, so it adds no crossing. The hull is a wide band along the lines. A convex hull
would also cover nodes that only lie between the lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape

from syno_lab.drawing.style import HULL

#: The widths, in pixels, of the band around lines and of the border around nodes.
BAND, ROUND = 16, 12

_GROUP = re.compile(r'<g id="([^"]*)" class="([^"]*)">(.*?)</g>', re.DOTALL)
_SHARED = re.compile(r"(w\d+)_d\d+--s(\d+)_c\d+")
_CURVE = re.compile(r'<path [^>]*\bd="([^"]*)"')
_OUTLINE = re.compile(r'<polygon [^>]*\bpoints="([^"]*)"')
_ROOT = re.compile(r'<g id="graph0"[^>]*>\s*(?:<title>.*?</title>\s*)?', re.DOTALL)


def bands(names: Iterable[str]) -> dict[str, list[str]]:
    """Return for each weight the names of the lines from the weight to the SHAREs of its CONTRACTION.

    The result has no line to a SHARE of an earlier step that shared the same coordinate.
    """
    lines: dict[str, dict[int, list[str]]] = {}
    for name in names:
        if match := _SHARED.fullmatch(name):
            lines.setdefault(match[1], {}).setdefault(int(match[2]), []).append(name)
    return {weight: by_step[max(by_step)] for weight, by_step in lines.items()}


def with_hulls(svg: str) -> str:
    """Add a hull for each CONTRACTION to a pGraph's picture, behind nodes and lines; other pictures do not change."""
    groups = {unescape(match[1]): match[3] for match in _GROUP.finditer(svg)}
    weights = bands(groups)
    root = _ROOT.search(svg)
    if not weights or root is None:
        return svg
    hulls = "".join(f'<g class="hull">\n{"".join(_parts(groups, w, lines))}</g>\n' for w, lines in weights.items())
    return svg[: root.end()] + hulls + svg[root.end() :]


def _parts(groups: dict[str, str], weight: str, lines: list[str]) -> Iterator[str]:
    look = f'stroke="{HULL}" stroke-linecap="round" stroke-linejoin="round"'
    for name in lines:
        if curve := _CURVE.search(groups[name]):
            yield f'<path fill="none" {look} stroke-width="{BAND}" d="{curve[1]}"/>\n'
    for node in (weight, *(name.partition("--")[2] for name in lines)):
        if outline := _OUTLINE.search(groups.get(node, "")):
            yield f'<polygon fill="{HULL}" {look} stroke-width="{ROUND}" points="{outline[1]}"/>\n'
