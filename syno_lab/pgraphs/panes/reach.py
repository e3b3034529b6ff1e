"""The receptive field as a picture, the mixing matrix as a table, and the neighbours among the known operators."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from syno_lab.codegen.mixing import mixing
from syno_lab.codegen.receptive_field import ReceptiveField, receptive_field
from syno_lab.ir.operator import Operator
from syno_lab.ir.pairing import WORDS
from syno_lab.operators.neighbours import nearest
from syno_lab.panes import read_element
from syno_lab.pgraphs.panes.asked import Asked

_CELL = 12
_MOST_CELLS = 64  # along one axis of a picture
_NEAREST = 6


def reach_pane(asked: Asked) -> dict[str, Any]:
    """Which input elements the asked output element reads.

    Returns:
        ``text`` (a line for each input axis), ``axes`` (the same as records), and ``svg``: the last two input axes,
        darker where more terms read; an axis longer than 64 is shown around what is read.

    Raises:
        SpecError: for an element that the output does not have.
    """
    bound = asked.bound()
    field = receptive_field(asked.operator, read_element(asked.element), bound, should_stop=asked.should_stop)
    axes = [
        {
            "axis": axis.axis,
            "size": axis.size,
            "number": axis.number,
            "reads": len(axis.positions),
            "extent": axis.extent,
            "cover": axis.cover,
        }
        for axis in field.axes
    ]
    return {"text": str(field), "axes": axes, "binding": bound, "svg": field_svg(field)}


def field_svg(field: ReceptiveField) -> str:
    """A map of the last two input axes (of one axis, a strip): how many terms read each position, over all others."""
    counts = field.counts
    rest = tuple(range(max(counts.ndim - 2, 0)))
    plane = counts.sum(axis=rest) if counts.ndim else counts.reshape(1)
    plane = np.atleast_2d(plane)
    names = ["", *(axis.size for axis in field.axes)][-2:]
    window = [_window(np.flatnonzero(plane.any(axis=1 - side)), plane.shape[side]) for side in (0, 1)]
    shown = plane[window[0][0] : window[0][1], window[1][0] : window[1][1]]
    most = int(shown.max()) if shown.size else 0
    cells = []
    for row, column in np.argwhere(shown > 0):
        number = int(shown[row, column])
        strength = 0.25 + 0.75 * number / most
        place = f"{row + window[0][0]}, {column + window[1][0]}"
        cells.append(
            f'<rect x="{column * _CELL}" y="{row * _CELL}" width="{_CELL}" height="{_CELL}" fill="#1f5fbf" '
            f'fill-opacity="{strength:.2f}" stroke="#767680" stroke-width="0.5">'
            f"<title>[{place}]: read by {number:,} {'term' if number == 1 else 'terms'}</title></rect>"
        )
    height, width = shown.shape[0] * _CELL, shown.shape[1] * _CELL
    words = (
        f"input axes {names[0] or 'none'} (down) and {names[1]} (across): {len(cells)} of {plane.size} positions read"
    )
    below = f"{_range(names[0], window[0], plane.shape[0])} down, {_range(names[1], window[1], plane.shape[1])} across"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, 260) + 2}" height="{height + 24}" '
        f'viewBox="-1 -1 {max(width, 260) + 2} {height + 24}" role="img" aria-label="{escape(words, quote=True)}">\n'
        f"<title>{escape(words)}</title>\n"
        f'<rect x="0" y="0" width="{width}" height="{height}" fill="none" stroke="#767680"/>\n'
        + "\n".join(cells)
        + f'\n<text x="0" y="{height + 16}" font-size="12" font-family="sans-serif" fill="currentColor">'
        f"{escape(below)}</text>\n</svg>\n"
    )


def _window(read: Any, length: int) -> tuple[int, int]:
    """The part of an axis that is drawn, with the read elements in its middle."""
    if length <= _MOST_CELLS:
        return 0, length
    middle = int(read[0] + read[-1]) // 2 if len(read) else length // 2
    start = min(max(middle - _MOST_CELLS // 2, 0), length - _MOST_CELLS)
    return start, start + _MOST_CELLS


def _range(name: str, window: tuple[int, int], length: int) -> str:
    whole = window == (0, length)
    return f"{name or 'one row'}" + ("" if whole else f" {window[0]}..{window[1] - 1} of {length}")


def mixing_pane(asked: Asked) -> dict[str, Any]:
    """See :func:`mixing_data`."""
    return mixing_data(asked.operator)


def mixing_data(operator: Operator) -> dict[str, Any]:
    """The mixing matrix of an operator at generic sizes against the wishes of its spec, as plain data.

    Returns:
        ``rows`` (output axes), ``columns`` (input axes), ``marks`` (a letter for each pair), ``words`` (of the
        letters), ``lacks`` (row and column of the entries of missing wishes), ``verdict`` (on the wishes; empty where
        there are none), ``settled``, ``text``.

    Raises:
        SpecError: it is too large to look at every element.
    """
    found, wants = mixing(operator), operator.spec.wants
    return {
        "rows": list(found.rows),
        "columns": list(found.columns),
        "marks": [list(row) for row in found.marks],
        "words": dict(WORDS),
        "lacks": [list(entry) for entry in sorted(found.lacks(wants))],
        "verdict": found.verdict(wants),
        "settled": found.settled,
        "text": found.text(wants),
    }


def near_pane(asked: Asked) -> dict[str, Any]:
    """The nearest known operators: ``rows`` with ``name``, ``distance`` in steps, ``same`` and ``differences``."""
    rows = [
        {
            "name": found.name,
            "distance": round(found.distance, 3),
            "same": found.same,
            "differences": [f"{words} ({cost:.2f})" for words, cost in found.differences],
        }
        for found in nearest(asked.operator, most=_NEAREST)
    ]
    return {"rows": rows}
