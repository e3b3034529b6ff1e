"""The course of distances over the places of a session, as a picture (Syno, section 7.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from syno_lab.drawing.style import LINE

_ACROSS = 26  # a step in the course
_HIGH = 54  # of the course between its lines
_MARGIN = 22  # room for a number above the highest place, and beside the first and the last
_BAND, _GAP, _NAMES = 56, 8, 52  # of several courses: the height of each, above and below it, and beside it its name


def course_svg(
    distances: Sequence[float | None],
    here: int,
    first: int = 0,
    wished: Sequence[float | None] | None = None,
    *,
    name: str = "Shape distance",
) -> str:
    """A distance over the steps, in the colour of the text around it; the property distance as a second line.

    Args:
        distances: at each place of the line, or of a part of it; None where the input is out of reach.
        here: the place that is shown, counted from the first of them.
        first: how many places of the line are before the first of them.
        wished: the property distance at the same places; None: nothing is wished. Its line has squares and long dashes,
            and a number where it is not the shape distance.
        name: of the distance.
    """
    most = max([1, *(far for far in (*distances, *(wished or ())) if far is not None)])
    width, height = 2 * _MARGIN + _ACROSS * max(1, len(distances) - 1), 2 * _MARGIN + _HIGH

    def at(place: int, line: Sequence[float | None]) -> tuple[float, float] | None:
        far = line[place]
        return None if far is None else (_MARGIN + _ACROSS * place, _MARGIN + _HIGH * (1 - far / most))

    part = f" from place {first} on" if first else ""
    words = f"{name} over the steps{part}: {_said(distances)}; shown is place {first + here}."
    if wished is not None:
        words += f" Property distance: {_said(wished)}."
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
            f'<text x="{x:.1f}" y="{y - 7:.1f}" font-size="10" text-anchor="middle" fill="currentColor">{number}</text>'
            "</g>"
        )
    for place in range(len(distances) - 1):
        one, other = at(place, distances), at(place + 1, distances)
        if one is not None and other is not None:
            ahead = ' stroke-dasharray="3 3"' if place >= here else ""
            parts.append(
                f'<path d="M{one[0]:.1f} {one[1]:.1f}L{other[0]:.1f} {other[1]:.1f}" stroke="currentColor" '
                f'stroke-width="1.5" fill="none"{ahead}/>'
            )
    for place, far in enumerate(distances):
        x = _MARGIN + _ACROSS * place
        point = at(place, distances)
        name = "?" if far is None else f"{far:g}"
        y = height - _MARGIN if point is None else point[1]
        size, fill = (5, "currentColor") if place == here else (3, "none")
        parts.append(
            f"<g><title>place {first + place}: "
            f"{'out of reach' if far is None else f'distance {far}'}</title>"
            f'<ellipse cx="{x}" cy="{y:.1f}" rx="{size}" ry="{size}" fill="{fill}" stroke="currentColor"/>'
            f'<text x="{x}" y="{y - 7:.1f}" font-size="10" text-anchor="middle" fill="currentColor">{name}</text></g>'
        )
    return _picture(width, height, words, parts)


def courses_svg(lines: Mapping[str, Sequence[float | None]], here: int, first: int = 0) -> str:
    """Several distances over the same steps, one line above the other, in the colour of the text around them.

    Args:
        lines: by the name of the distance, its value at each place; None where nothing leads to 0.
        here: the place that is shown, counted from the first of them.
        first: how many places of the history are before the first of them.
    """
    places = max(map(len, lines.values()), default=0)
    width = 2 * _MARGIN + _NAMES + _ACROSS * max(1, places - 1)
    height = 2 * _MARGIN + _BAND * len(lines)
    part = f" from place {first} on" if first else ""
    words = f"Distances over the steps{part}; shown is place {first + here}."
    parts = []
    for number, (name, line) in enumerate(lines.items()):
        words += f" {name}: {_said(line)}."
        floor, most = _MARGIN + _BAND * (number + 1) - _GAP, max([1, *(far for far in line if far is not None)])
        ys = [floor if far is None else floor - (_BAND - 2 * _GAP) * far / most for far in line]
        xs = [_MARGIN + _NAMES + _ACROSS * place for place in range(len(line))]
        parts.append(
            f'<text x="{_MARGIN}" y="{floor}" font-size="11" fill="currentColor">{escape(name)}</text>'
            f'<path d="M{_MARGIN + _NAMES} {floor}H{width - _MARGIN}" stroke="{LINE}" stroke-width="1" fill="none"/>'
        )
        for place in range(len(line) - 1):
            if line[place] is not None and line[place + 1] is not None:
                ahead = ' stroke-dasharray="3 3"' if place >= here else ""
                parts.append(
                    f'<path d="M{xs[place]} {ys[place]:.1f}L{xs[place + 1]} {ys[place + 1]:.1f}" '
                    f'stroke="currentColor" stroke-width="1.5" fill="none"{ahead}/>'
                )
        for place, far in enumerate(line):
            size, fill = (5, "currentColor") if place == here else (3, "none")
            shown, said = ("?", "out of reach") if far is None else (f"{far:.3g}", f"distance {far:g}")
            parts.append(
                f"<g><title>place {first + place}: {escape(name)}, {said}</title>"
                f'<ellipse cx="{xs[place]}" cy="{ys[place]:.1f}" rx="{size}" ry="{size}" fill="{fill}" '
                'stroke="currentColor"/>'
                f'<text x="{xs[place]}" y="{ys[place] - 7:.1f}" font-size="10" text-anchor="middle" '
                f'fill="currentColor">{shown}</text></g>'
            )
    return _picture(width, height, words, parts)


def _picture(width: int, height: int, words: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(words, quote=True)}">\n<title>{escape(words)}</title>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _said(distances: Sequence[float | None]) -> str:
    return ", ".join("out of reach" if far is None else f"{far:g}" for far in distances)
