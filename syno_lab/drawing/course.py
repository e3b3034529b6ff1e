"""Draw how the distance to the input changes from step to step of a session (Syno, section 7.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from syno_lab.drawing.style import LINE
from syno_lab.drawing.svg import titled

_ACROSS = 26  # The width of a step, in pixels.
_HIGH = 54  # The height of a curve, in pixels.
_MARGIN = 22  # The space for a number above the curve's highest point, and beside its first and last points.
_BAND, _GAP, _NAMES = 56, 8, 52  # For several curves: the height of a curve, the space around, the width of a name.


def course_svg(
    distances: Sequence[float | None],
    here: int,
    first: int = 0,
    wished: Sequence[float | None] | None = None,
    *,
    name: str = "Shape distance",
) -> str:
    """Draw a distance over a session's steps in the page's text colour; the property distance is a second curve.

    Args:
        distances: the distance at each drawn place of the session; None where no steps lead to the input.
        here: the index of the current place among the drawn places.
        first: the number of places before the drawn places.
        wished: the property distance at the drawn places; None: no wishes. The curve has squares and long dashes, and a
            number wherever the two distances differ.
        name: the name of the distance.
    """
    most = max([1, *(far for far in (*distances, *(wished or ())) if far is not None)])
    width, height = 2 * _MARGIN + _ACROSS * max(1, len(distances) - 1), 2 * _MARGIN + _HIGH

    def at(place: int, line: Sequence[float | None]) -> tuple[float, float] | None:
        far = line[place]
        return None if far is None else (_MARGIN + _ACROSS * place, _MARGIN + _HIGH * (1 - far / most))

    part = f" from place {first} on" if first else ""
    words = f"{name} over the steps{part}: {_distance_texts(distances)}; shown is place {first + here}."
    if wished is not None:
        words += f" Property distance: {_distance_texts(wished)}."
    parts = [
        f'<path d="M{_MARGIN} {height - _MARGIN}H{width - _MARGIN}" stroke="{LINE}" stroke-width="1" fill="none"/>'
    ]
    for place, far in enumerate(wished or ()):
        point = at(place, wished or ())
        before = at(place - 1, wished or ()) if place else None
        if point is not None and before is not None:
            parts.append(
                f'<path d="M{before[0]:.1f} {before[1]:.1f}L{point[0]:.1f} {point[1]:.1f}" stroke="currentColor" '
                'stroke-width="1" fill="none" stroke-dasharray="7 2"/>'
            )
        x, y = point or (_MARGIN + _ACROSS * place, height - _MARGIN)
        name = "out of reach" if far is None else str(far)
        number = "" if far == distances[place] else "?" if far is None else str(far)
        parts.append(
            f"<g><title>place {first + place}: property distance {name}</title>"
            f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="none" stroke="currentColor"/>'
            f'<text x="{x:.1f}" y="{y - 7:.1f}" font-size="11" text-anchor="middle" fill="currentColor">{number}</text>'
            "</g>"
        )
    for place in range(len(distances) - 1):
        start, end = at(place, distances), at(place + 1, distances)
        if start is not None and end is not None:
            parts.append(_line(f"{start[0]:.1f} {start[1]:.1f}", f"{end[0]:.1f} {end[1]:.1f}", place >= here))
    for place, far in enumerate(distances):
        point = at(place, distances)
        title = f"place {first + place}: {'out of reach' if far is None else f'distance {far}'}"
        y = height - _MARGIN if point is None else point[1]
        parts.append(_dot(_MARGIN + _ACROSS * place, y, title, "?" if far is None else f"{far:g}", place == here))
    return titled(f"{width}", f"{height}", f"0 0 {width} {height}", words, parts)


def courses_svg(lines: Mapping[str, Sequence[float | None]], here: int, first: int = 0) -> str:
    """Draw several distances over a session's steps in the page's text colour, one curve above the other.

    Args:
        lines: for each distance's name its values at the drawn places; None where no path leads to distance 0.
        here: the index of the current place among the drawn places.
        first: the number of places before the drawn places.
    """
    places = max(map(len, lines.values()), default=0)
    width = 2 * _MARGIN + _NAMES + _ACROSS * max(1, places - 1)
    height = 2 * _MARGIN + _BAND * len(lines)
    part = f" from place {first} on" if first else ""
    words = f"Distances over the steps{part}; shown is place {first + here}."
    parts = []
    for number, (name, line) in enumerate(lines.items()):
        words += f" {name}: {_distance_texts(line)}."
        floor, most = _MARGIN + _BAND * (number + 1) - _GAP, max([1, *(far for far in line if far is not None)])
        ys = [floor if far is None else floor - (_BAND - 2 * _GAP) * far / most for far in line]
        xs = [_MARGIN + _NAMES + _ACROSS * place for place in range(len(line))]
        parts.append(
            f'<text x="{_MARGIN}" y="{floor}" font-size="11" fill="currentColor">{escape(name)}</text>'
            f'<path d="M{_MARGIN + _NAMES} {floor}H{width - _MARGIN}" stroke="{LINE}" stroke-width="1" fill="none"/>'
        )
        for place in range(len(line) - 1):
            if line[place] is not None and line[place + 1] is not None:
                start, end = (f"{xs[at]} {ys[at]:.1f}" for at in (place, place + 1))
                parts.append(_line(start, end, place >= here))
        for place, far in enumerate(line):
            shown, text = ("?", "out of reach") if far is None else (f"{far:.3g}", f"distance {far:g}")
            text = f"place {first + place}: {name}, {text}"
            parts.append(_dot(xs[place], ys[place], text, shown, place == here))
    return titled(f"{width}", f"{height}", f"0 0 {width} {height}", words, parts)


def _line(start: str, end: str, is_ahead: bool) -> str:
    """Return a line of the curve between two neighbouring places; lines after the current place are dashed."""
    ahead = ' stroke-dasharray="3 3"' if is_ahead else ""
    return f'<path d="M{start}L{end}" stroke="currentColor" stroke-width="1.5" fill="none"{ahead}/>'


def _dot(x: float, y: float, title: str, shown: str, is_here: bool) -> str:
    size, fill = (5, "currentColor") if is_here else (3, "none")
    return (
        f"<g><title>{escape(title)}</title>"
        f'<ellipse cx="{x}" cy="{y:.1f}" rx="{size}" ry="{size}" fill="{fill}" stroke="currentColor"/>'
        f'<text x="{x}" y="{y - 7:.1f}" font-size="11" text-anchor="middle" fill="currentColor">{shown}</text></g>'
    )


def _distance_texts(distances: Sequence[float | None]) -> str:
    return ", ".join("out of reach" if far is None else f"{far:g}" for far in distances)
