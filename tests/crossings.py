"""How often the lines of a graph cross in its layout."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from syno_lab.drawing.render import render

_STEPS = np.linspace(0, 1, 7)[1:, None]  # straight pieces of each cubic curve
_RANKS = re.compile(r"^\s*\{ rank=.*\n", re.MULTILINE)


def laid_out(source: str) -> dict[str, Any]:
    """The layout of DOT text, as Graphviz's JSON has it."""
    found: dict[str, Any] = msgspec.json.decode(render(source, "json"))
    return found


def without_ranks(source: str) -> str:
    """The same graph for `dot` alone: nothing says which nodes are at the top and at the bottom."""
    return _RANKS.sub("", source)


def crossings(layout: dict[str, Any]) -> int:
    """How many pairs of lines without a common end cross, each pair once."""
    lines = [(one["tail"], one["head"], _way(one)) for one in layout.get("edges", ()) if "_draw_" in one]
    return sum(
        _cross(one, other)
        for (tail, head, one), (start, end, other) in combinations(lines, 2)
        if not {tail, head} & {start, end}
    )


def _way(edge: dict[str, Any]) -> np.ndarray:
    """The points of a line `[P, 2]`."""
    (points,) = [np.array(step["points"]) for step in edge["_draw_"] if step["op"] == "b"]
    parts = [points[:1]]
    for at in range(0, len(points) - 1, 3):
        a, b, c, d = points[at : at + 4]
        u, v = _STEPS, 1 - _STEPS
        parts.append(v**3 * a + 3 * v**2 * u * b + 3 * v * u**2 * c + u**3 * d)
    return np.concatenate(parts)


def _cross(one: np.ndarray, other: np.ndarray) -> bool:
    if (one.max(0) < other.min(0)).any() or (other.max(0) < one.min(0)).any():
        return False
    a, b, c, d = one[:-1, None], one[1:, None], other[None, :-1], other[None, 1:]

    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
        return (q - p)[..., 0] * (r - p)[..., 1] - (q - p)[..., 1] * (r - p)[..., 0]

    return bool(((side(a, b, c) * side(a, b, d) < 0) & (side(c, d, a) * side(c, d, b) < 0)).any())
