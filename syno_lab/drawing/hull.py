"""One CONTRACTION as one thing: a hull behind its weight, its SHAREs and the lines between them.

The layout stays as it is, so no line crosses another for it. The hull follows the lines as a wide band, and does not
cover what only stands between them, as a convex one would.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape

#: The band is so many points wider than a line, and than a node on all sides.
BAND, ROUND = 16, 12
#: Its colour on a light ground, and on a dark one.
HULL, DARK_HULL = "#dff4f5", "#0d2b2f"

_GROUP = re.compile(r'<g id="([^"]*)" class="([^"]*)">(.*?)</g>', re.DOTALL)
_SHARED = re.compile(r"(w\d+)_d\d+--s(\d+)_c\d+")
_CURVE = re.compile(r'<path [^>]*\bd="([^"]*)"')
_OUTLINE = re.compile(r'<polygon [^>]*\bpoints="([^"]*)"')
_ROOT = re.compile(r'<g id="graph0"[^>]*>\s*(?:<title>.*?</title>\s*)?', re.DOTALL)


def bands(names: Iterable[str]) -> dict[str, list[str]]:
    """For each weight the lines from it to the SHAREs of its CONTRACTION, among all lines of a picture, by their names.

    Where a coordinate that is given was shared before, a line leads to a SHARE of an earlier step; it is none of these.
    """
    lines: dict[str, dict[int, list[str]]] = {}
    for name in names:
        if found := _SHARED.fullmatch(name):
            lines.setdefault(found[1], {}).setdefault(int(found[2]), []).append(name)
    return {weight: by_step[max(by_step)] for weight, by_step in lines.items()}


def with_hulls(svg: str) -> str:
    """The picture of a pGraph with a hull for each CONTRACTION, behind all else; other pictures stay as they are."""
    groups = {unescape(found[1]): found[3] for found in _GROUP.finditer(svg)}
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
