"""A picture of an operator's kernel beside a convolution's kernel, with the effective ranks of both kernels."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Literal, TypedDict

import numpy as np

from syno_lab.common.probe import Probe, beside_convolution
from syno_lab.drawing.style import ACCENT, LINE
from syno_lab.drawing.svg import titled
from syno_lab.ir.operator import Operator
from syno_lab.panes import Asked
from syno_lab.panes.data import Form
from syno_lab.panes.forms import csv_text, drawn, form, whole
from syno_lab.pgraphs.probe import probe, probe_binding

Array = np.ndarray[Any, Any]
_MOST_CELLS = 64  # The number of cells along one axis of a picture.
_SIDE = 160  # The side of a map, in pixels.
_LEVELS = 8  # Levels of darkness.
_GAP, _LINE = 24, 18
_RANKS: dict[Literal["space", "outputs", "inputs"], str] = {
    "space": "offsets",
    "outputs": "output channels",
    "inputs": "input channels",
}


class Ranks(TypedDict):
    """The effective ranks of a kernel over its axes."""

    name: str
    space: float
    outputs: float
    inputs: float


class Kernel(TypedDict):
    """The kernels of an operator and of a convolution.

    ``shares`` are the operator's ranks divided by the convolution's, with ``product`` and ``score``. ``svg`` has two
    maps for each kernel: the offsets that are read, and the channels that are mixed.
    """

    binding: dict[str, int]
    rows: list[Ranks]
    shares: dict[str, float]
    text: str
    svg: str


def kernel_pane(asked: Asked[Operator]) -> Kernel:
    """Return the kernel for random weights (:mod:`syno_lab.pgraphs.probe`), and a convolution's with the same sizes.

    Raises SynoError where the kernel is too large to compute.
    """
    bound = probe_binding(asked.operator, asked.bound())
    own = probe(asked.operator, bound)
    name, other = beside_convolution(own)
    shares = {"score": own.score(other), **own.shares(other)}
    both = ((asked.name, own), (name, other))
    rows = [Ranks(name=label, space=result.e_space, outputs=result.e_out, inputs=result.e_in) for label, result in both]
    return {
        "binding": bound,
        "rows": rows,
        "shares": shares,
        "text": _text(rows, shares, bound),
        "svg": kernels_svg(both),
    }


def kernel_forms(asked: Asked[Operator], data: Kernel) -> list[Form]:
    """Return the forms: the picture, the numbers as text and as a table, and all data."""
    return [
        *drawn(asked, "kernel", ["svg"]),
        form(asked, "text", "kernel.txt", path=["text"]),
        form(asked, "CSV", "kernel.csv", text=csv_text(data["rows"])),
        whole(asked, "kernel"),
    ]


def _text(rows: Sequence[Ranks], shares: dict[str, float], bound: dict[str, int]) -> str:
    lines = []
    for key, words in _RANKS.items():
        own, beside = (row[key] for row in rows)
        lines.append(f"over the {words}: {own:.1f}, {rows[1]['name']} {beside:.1f}: {shares[key]:.0%}")
    sizes = ", ".join(f"{name}={number}" for name, number in bound.items())
    lines.append(f"the least share is the score: {shares['score']:.2f}; all three together: {shares['product']:.2f}")
    return "\n".join([f"Effective ranks of the kernel for random weights, with {sizes}", *lines])


def kernels_svg(named: tuple[tuple[str, Probe], ...]) -> str:
    """Draw two maps for each kernel: offsets, and output by input channels; a larger mean is darker.

    An axis longer than 64 is cut.
    """
    parts, top, right = [], 0, 0
    for name, result in named:
        outputs, inputs, *lengths = result.kernel.shape
        size = np.abs(result.kernel)
        maps = [(size.mean(axis=tuple(range(2, size.ndim))), f"{outputs} output channels down, {inputs} input across")]
        if lengths:
            plane = size.mean(axis=tuple(range(size.ndim - min(2, len(lengths)))))
            maps.insert(0, (np.atleast_2d(plane), f"offsets, {' x '.join(map(str, lengths))}"))
        parts.append(_words(0, top + 13, name, "bold"))
        left, below = 0, 0
        for array, words in maps:
            drawn_map, width, height = _map(array, left, top + _LINE, f"{name}: {words}")
            parts += [drawn_map, _words(left, top + _LINE + height + 14, words)]
            left += max(width, 7 * len(words)) + _GAP
            below = max(below, height)
        right = max(right, left - _GAP)
        top += _LINE + below + _LINE + _GAP
    title = "kernels of " + " and ".join(name for name, _ in named)
    return titled(f"{right + 2}", f"{top}", f"-1 -1 {right + 2} {top}", title, parts)


def _words(left: float, top: float, words: str, weight: str = "normal") -> str:
    return (
        f'<text x="{left}" y="{top}" font-size="12" font-weight="{weight}" font-family="sans-serif" '
        f'fill="currentColor">{escape(words)}</text>'
    )


def _map(array: Array, left: int, top: int, words: str) -> tuple[str, int, int]:
    """Draw non-negative numbers as a group of paths, one for each level of darkness; return its width and height."""
    shown = array[:_MOST_CELLS, :_MOST_CELLS]
    cell = max(1, _SIDE // max(shown.shape))
    height, width = (cell * number for number in shown.shape)
    most = float(shown.max())
    levels = np.ceil(shown / most * _LEVELS).astype(int) if most else np.zeros(shown.shape, int)
    parts = [f'<g transform="translate({left} {top})">', f"<title>{escape(words)}</title>"]
    for level in range(1, _LEVELS + 1):
        cells = [f"M{x * cell} {y * cell}h{cell}v{cell}h-{cell}z" for y, x in np.argwhere(levels == level)]
        if cells:
            parts.append(f'<path d="{"".join(cells)}" fill="{ACCENT}" fill-opacity="{level / _LEVELS:.3g}"/>')
    parts.append(f'<rect width="{width}" height="{height}" fill="none" stroke="{LINE}"/></g>')
    return "\n".join(parts), width, height
