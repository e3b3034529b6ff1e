"""Draw a front as a small SVG without matplotlib, for pages without a kernel: it must not delay a notebook cell."""

from __future__ import annotations

from collections.abc import Sequence

from syno_lab.drawing.svg import GREY, picture, safe, text
from syno_lab.reports.fronts import Front
from syno_lab.reports.marks import Mark, mark_of
from syno_lab.reports.pictures import KNOWN, LOOKS, PAPER, describe_front, kinds_of, shape_of
from syno_lab.reports.published import Stated

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 680, 400, 70, 20, 34, 46
_TICKS = 5


def front_sketch(front: Front, title: str = "Trials", published: Sequence[Stated] = ()) -> str:
    """Draw the points, the front and its volume as SVG text on a white ground; arguments as of :func:`.front_picture`.

    A third axis is not drawn, but it is in the description.
    """
    paper = published if front.is_relative else ()
    x0, x1 = _span(front, 0, paper)
    y0, y1 = _span(front, 1, paper)

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - x0) / (x1 - x0) * (_WIDTH - _LEFT - _RIGHT)
        return across, _HEIGHT - _BOTTOM - (y - y0) / (y1 - y0) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>', text(_LEFT, 20, title, 14)]
    for number in range(_TICKS):
        share = number / (_TICKS - 1)
        x, y = x0 + share * (x1 - x0), y0 + share * (y1 - y0)
        across, up = place(x, y)
        parts.append(_line(across, _TOP, across, _HEIGHT - _BOTTOM) + _line(_LEFT, up, _WIDTH - _RIGHT, up))
        parts.append(text(across, _HEIGHT - _BOTTOM + 16, f"{x:.4g}", anchor="middle"))
        parts.append(text(_LEFT - 6, up + 4, f"{y:.4g}", anchor="end"))
    first, second = front.axes[:2]
    parts.append(text(_WIDTH / 2, _HEIGHT - 8, first.text, anchor="middle"))
    parts.append(text(14, _HEIGHT / 2, second.text, anchor="middle", turned=True))
    for one in paper:
        (a, b), (c, d) = one.ranges[:2]
        (left, low), (right, high) = place(a, c), place(b, d)
        size = f'x="{left - 2:.1f}" y="{high - 2:.1f}" width="{right - left + 4:.1f}" height="{low - high + 4:.1f}"'
        parts.append(
            f'<rect {size} fill="{PAPER}" fill-opacity="0.35"><title>The paper: {safe(one.text)}</title></rect>'
        )
    for point in front.points:
        for side, wide in enumerate(point.intervals[:2]):
            if wide is not None:
                ends = [(end, point.values[1]) if side == 0 else (point.values[0], end) for end in wide]
                (left, low), (right, high) = (place(*end) for end in ends)
                parts.append(_line(left, low, right, high, GREY))
    kinds = kinds_of(front)
    for kind, (colour, area) in LOOKS.items():
        for point, found in zip(front.points, kinds, strict=True):
            if found == kind:
                across, up = place(*point.values[:2])
                look = f'fill="none" stroke="{colour}"' if kind == KNOWN else f'fill="{colour}"'
                parts.append(_mark(shape_of(point), across, up, area**0.5 / 1.5, look, point.name))
    if len(front.systems) > 1:
        across = _LEFT + 8.0
        for title, mark in front.systems.items():
            parts.append(_mark(mark_of(mark), across, _TOP + 10, 4, f'fill="{GREY}"', title))
            parts.append(text(across + 9, _TOP + 14, title))
            across += 24 + 7 * len(title)
    if not front.points:
        parts.append(text(_WIDTH / 2, _HEIGHT / 2, "no trial has a value on each axis yet", anchor="middle"))
    return picture(_WIDTH, _HEIGHT, describe_front(front, title), parts)


def _span(front: Front, axis: int, paper: Sequence[Stated]) -> tuple[float, float]:
    values = [point.values[axis] for point in front.points]
    values += [end for point in front.points for end in (point.intervals[axis : axis + 1] or (None,))[0] or ()]
    values += [value for one in paper for value in one.ranges[axis]]
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.06 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def _mark(mark: Mark, x: float, y: float, size: float, look: str, title: str) -> str:
    """A mark in the middle of which ``x`` and ``y`` are; a stroke is 2 wide whatever its size."""
    place = f'transform="translate({x:.1f} {y:.1f}) scale({size:.1f})" stroke-width="{2 / size:.2f}"'
    return f'<path d="{mark.path}" {place} {look}><title>{safe(title)}</title></path>'


def _line(x0: float, y0: float, x1: float, y1: float, colour: str = "#e0e0e0") -> str:
    return f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{colour}" fill="none"/>'
