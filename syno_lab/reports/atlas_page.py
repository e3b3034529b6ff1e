"""An atlas of operators as a picture, and as a page of its own that needs neither scripts nor a server."""

from __future__ import annotations

from collections.abc import Sequence

from syno_lab.drawing.svg import safe
from syno_lab.inputs import printable
from syno_lab.reports.atlas import ShownAtlas, ShownPlace
from syno_lab.reports.marks import mark_of

_WIDTH, _HEIGHT, _ROOM, _LEGEND = 960.0, 560.0, 40.0, 52.0
#: From the lowest to the highest result (the colours of viridis), for no result, and for known operators.
SHADES = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
_NO_RESULT, _KNOWN, _EDGE = "#a0a0a8", "#009e73", "#767680"
_SIZE, _POINTS, _LETTER = 6.0, 11, 6.3  # a mark, the font of names, and the width of its letters, in pixels
_MOST_LETTERS = 22
# Lines are as wide as they say whatever the scale, and a hollow mark is hit inside too.
_LINES = 'vector-effect="non-scaling-stroke" pointer-events="all"'


def ids_of(shown: ShownAtlas) -> list[str]:
    """The ids of the places in the picture, in their order."""
    return [f"p{number}" for number in range(len(shown.places))]


def atlas_svg(shown: ShownAtlas, *, has_links: bool = False) -> str:
    """The picture of :func:`syno_lab.reports.atlas.shown_atlas`: both directions have one scale.

    The shape of a mark says the system, its colour the result; known operators are hollow and have their names beside
    them where there is room. ``has_links``: whether a place with a page leads there.
    """
    places = shown.places
    spots = _spots([(one.x, one.y) for one in places])
    names = _names(places, spots)
    parts = []
    for name, one, (x, y) in zip(ids_of(shown), places, spots, strict=True):
        look = f'fill="none" stroke="{_KNOWN}" stroke-width="2.4"'
        if not one.known:
            look = f'fill="{shade(one.value, shown.low, shown.high)}" stroke="{_EDGE}" stroke-width="1"'
        path = mark_of(one.mark).path
        mark = f'<path d="{path}" transform="translate({x:.1f} {y:.1f}) scale({_SIZE})" {look} {_LINES}/>'
        text = names.get(name, "")
        group = f'<g id="{name}"><title>{safe(one.text)}</title>{mark}{text}</g>'
        if has_links and one.page:
            group = f'<a href="{safe(one.page)}" aria-label="{safe(one.text)}">{group}</a>'
        parts.append(group)
    height = _HEIGHT + _LEGEND
    words, role = safe(shown.words), "group" if has_links else "img"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:g}" height="{height:g}" '
        f'viewBox="0 0 {_WIDTH:g} {height:g}" role="{role}" aria-label="{words}" font-family="sans-serif" '
        f'font-size="{_POINTS}" style="max-width:100%;height:auto">\n<title>{words}</title>\n'
        f"<g>{''.join(parts)}</g>\n{_legend(shown)}\n</svg>\n"
    )


def shade(value: float | None, low: float, high: float) -> str:
    """The colour of a result among those from ``low`` to ``high``."""
    if value is None:
        return _NO_RESULT
    share = 0.5 if high <= low else (value - low) / (high - low)
    return SHADES[min(len(SHADES) - 1, int(share * len(SHADES)))]


def _spots(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points on the picture, by one scale."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    room = (_WIDTH - 2 * _ROOM - _MOST_LETTERS * _LETTER, _HEIGHT - 2 * _ROOM)  # names stand at the right
    scale = min(room[0] / wide if wide else 1e9, room[1] / high if high else 1e9, 120.0)
    left = _ROOM + (room[0] - scale * wide) / 2
    top = _ROOM + (room[1] - scale * high) / 2
    return [(left + scale * (x - min(xs)), top + scale * (max(ys) - y)) for x, y in points]


def _names(places: Sequence[ShownPlace], spots: Sequence[tuple[float, float]]) -> dict[str, str]:
    """The names of known operators, each right of its mark, above or below it, where it lies on nothing else."""
    taken = [(x - _SIZE, y - _SIZE, x + _SIZE, y + _SIZE) for x, y in spots]
    found = {}
    for number, (one, (x, y)) in enumerate(zip(places, spots, strict=True)):
        text = printable(one.name)
        if not one.known or len(text) > _MOST_LETTERS:
            continue
        for down in (4.0, -8.0, 16.0, -20.0, 28.0):
            left, base = x + _SIZE + 3, y + down
            box = (left, base - 10, left + len(text) * _LETTER, base + 4)
            if box[2] <= _WIDTH and not any(_meet(box, other) for other in taken):
                taken.append(box)
                found[f"p{number}"] = f'<text x="{left:.1f}" y="{base:.1f}" fill="{_EDGE}">{safe(text)}</text>'
                break
    return found


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _legend(shown: ShownAtlas) -> str:
    """What shapes and colours say, in two lines below the picture."""
    y, x, parts = _HEIGHT + 14, _ROOM, []

    def put(path: str, look: str, text: str) -> None:
        nonlocal x
        parts.append(f'<path d="{path}" transform="translate({x:.1f} {y - 4:.1f}) scale(5)" {look}/>')
        parts.append(f'<text x="{x + 11:.1f}" y="{y:.1f}" fill="{_EDGE}">{safe(text)}</text>')
        x += 34 + _LETTER * len(text)

    circle = mark_of("circle").path
    for title, mark in {one.system: one.mark for one in shown.places}.items():
        put(mark_of(mark).path, f'fill="none" stroke="{_EDGE}" stroke-width="0.4"', title)
    put(circle, f'fill="none" stroke="{_KNOWN}" stroke-width="0.5"', "known operator")
    if any(one.value is not None for one in shown.places):
        y, x = y + 22, _ROOM
        text = f"{shown.measure} from {shown.low:.4g}"
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{_EDGE}">{safe(text)}</text>')
        x += _LETTER * len(text) + 10
        for colour in SHADES:
            parts.append(f'<rect x="{x:.1f}" y="{y - 11:.1f}" width="16" height="13" fill="{colour}"/>')
            x += 16
        parts.append(f'<text x="{x + 8:.1f}" y="{y:.1f}" fill="{_EDGE}">to {shown.high:.4g}</text>')
    return "".join(parts)


_STYLE = """
:root { color-scheme: light dark; }
body { font-family: system-ui, sans-serif; margin: 16px auto; max-width: 1100px; padding: 0 12px; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 2px 14px 2px 0; border-bottom: 1px solid #8a8a94; overflow-wrap: anywhere; }
td.number { text-align: right; }
svg text { fill: currentColor; }
a:focus-visible { outline: 3px solid #1f5fbf; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"


def atlas_page(title: str, shown: ShownAtlas) -> str:
    """The atlas as HTML: the picture and a table, both with links to the operators' pages; nothing is fetched."""
    rows = []
    for one in shown.places:
        name = safe(one.name)
        link = f'<a href="{safe(one.page)}">{name}</a>' if one.page else name
        value = "known" if one.known else "" if one.value is None else f"{one.value:.4g}"
        cells = f'<td>{safe(one.system)}</td><td class="number">{value}</td>'
        rows.append(f'<tr><th scope="row">{link}</th>{cells}</tr>')
    heads = "".join(f'<th scope="col">{safe(text)}</th>' for text in ("operator", "system", shown.measure))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{safe(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{safe(title)}</h1>\n"
        f"<p>{safe(shown.words)}</p>\n{atlas_svg(shown, has_links=True)}"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>\n</main>\n</body>\n</html>\n"
    )
