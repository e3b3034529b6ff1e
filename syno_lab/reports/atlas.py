"""An atlas of operators: known and discovered operators on one plane, where similar operators are near each other.

The distance of two operators is the Euclidean distance of their traits at the sizes of one layer, :data:`LAYER`.
Searches compare operators by the same traits (:meth:`syno_lab.protocol.System.traits`). Traits are the range of each
axis that the middle output element reads, the kernel's effective ranks, multiply-adds and parameters, mostly as
logarithms to the base 2. A trait that only one of two operators has is 0 for the other operator. At distance 0, no
trait distinguishes the two operators. Systems have different traits, so distances between systems are too large.

The plane comes from classical multidimensional scaling (Torgerson, Psychometrika 17, 1952). This plane preserves more
of the squared distances than any other plane, namely the share :attr:`Atlas.kept`. The result has no random part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from syno_lab.common import layers
from syno_lab.drawing.style import HUES, LINE, SHADES
from syno_lab.drawing.svg import safe
from syno_lab.effort import Stop, end_if
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.inputs import printable
from syno_lab.protocol import Operator
from syno_lab.reports.axes import axis_value, find_axis
from syno_lab.reports.fronts import short_number
from syno_lab.reports.marks import mark_name, mark_of
from syno_lab.reports.rows import TrialRow
from syno_lab.reports.shown import usual_measure
from syno_lab.reports.text_tables import html_page, html_table
from syno_lab.systems import all_systems, binding_for, read_operator, system_of

#: The layer at whose sizes operators are compared, a 3x3 convolution.
LAYER: Mapping[str, int] = {**layers.LAYER, "s": 1, "window_h": 3, "window_w": 3}
_SHAPE = (1, 64, 28, 28)
#: The largest number of a lab's operators in an atlas, which has the operators with the best results.
MOST = 300
#: The distance below which two operators are drawn at one point.
_SAME = 1e-6


@dataclass(frozen=True)
class Placed:
    """An operator in an atlas; ``key`` is the key of its trial, or ``known:NAME``.

    ``value`` is the result on the atlas's axis, or None; ``x`` and ``y`` are coordinates in units of the distance.
    ``flops`` are the FLOPs at :data:`LAYER`.
    """

    key: str
    name: str
    operator: Operator
    known: bool
    value: float | None = None
    x: float = 0.0
    y: float = 0.0
    flops: int = 0


@dataclass(frozen=True)
class Atlas:
    """Operators on a plane, the known operators first; ``measure`` is the axis by which results are compared.

    ``kept`` is the share of the squared distances that the plane keeps, from 0 to 1. ``left_out`` counts operators that
    do not fit :data:`LAYER` or have no traits there. ``more`` counts operators above the limit :data:`MOST`.
    """

    places: tuple[Placed, ...]
    measure: str
    kept: float
    left_out: int
    more: int

    @property
    def words(self) -> str:
        """A description of the atlas in a few sentences."""
        known = sum(item.known for item in self.places)
        text = f"{known} known and {len(self.places) - known} discovered operators by the distance of their traits; "
        text += f"the plane keeps {100 * self.kept:.0f} % of the squared distances."
        if self.left_out:
            text += f" {self.left_out} do not fit a convolution's layer."
        if self.more:
            text += f" {self.more} with lesser results are not in it."
        return text


def atlas(
    rows: Sequence[TrialRow] = (), *, known: bool = True, most: int = MOST, should_stop: Stop | None = None
) -> Atlas:
    """Make the atlas of the operators of a lab's trials, together with the known operators.

    Args:
        rows: the trials. If several trials have the same operator, the best trial counts.
        known: whether the atlas has the known operators of all systems.
        most: the largest number of operators of trials.
        should_stop: called after each operator; True stops the calculation.

    Raises SpecError where no operator fits; StoppedError when ``should_stop`` stops the calculation.
    """
    measure = usual_measure(rows)
    trials = _trials(rows, measure)
    named = [item for system in all_systems() for item in system.known.items()] if known else []
    candidates = [Placed(f"known:{name}", name, make(), True) for name, make in named]
    candidates += [Placed(row.key, row.label, operator, False, value) for operator, row, value in trials[:most]]
    words: list[Mapping[str, int]] = []
    fitting = []
    for item in candidates:
        end_if(should_stop, "comparing the traits of operators")
        traits = traits_of(item.operator)
        if traits is not None:
            words.append(traits)
            fitting.append(replace(item, flops=item.operator.flops(_layer_sizes(item.operator))))
    if not fitting:
        raise SpecError("atlas: expected an operator that fits a convolution's layer, found none")
    places, kept = plane(words)
    placed = tuple([replace(item, x=x, y=y) for item, (x, y) in zip(fitting, places, strict=True)])
    return Atlas(placed, measure, kept, len(candidates) - len(fitting), max(0, len(trials) - most))


def _trials(rows: Iterable[TrialRow], measure: str) -> list[tuple[Operator, TrialRow, float | None]]:
    """Return the operators with their best trials, the best first."""
    axis = find_axis(measure)
    valued = [(axis_value(row, axis), row) for row in rows if row.operator and not row.is_baseline]
    best: dict[str, tuple[float | None, TrialRow]] = {}
    for value, row in sorted(valued, key=lambda pair: -math.inf if pair[0] is None else pair[0], reverse=True):
        best.setdefault(row.operator, (value, row))
    trials = []
    for text, (value, row) in best.items():
        with suppress(FormatError):  # the operator's system is unknown here
            trials.append((read_operator(text), row, value))
    trials.sort(key=lambda trial: (trial[2] is None, -(trial[2] or 0.0), trial[1].number))
    return trials


def traits_of(operator: Operator) -> Mapping[str, int] | None:
    """Return the traits of an operator at :data:`LAYER`; None where the operator does not fit or has no traits."""
    try:
        return system_of(operator).traits(operator, operator.complete_binding(_layer_sizes(operator))) or None
    except SynoError:
        return None


def _layer_sizes(operator: Operator) -> dict[str, int]:
    return {**system_of(operator).example_binding(operator), **binding_for(operator, LAYER, _SHAPE, _SHAPE)}


def distance(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """Return the distance of two operators by their traits."""
    return float(sum((one.get(word, 0) - other.get(word, 0)) ** 2 for word in {*one, *other}) ** 0.5)


def plane(traits: Sequence[Mapping[str, int]]) -> tuple[list[tuple[float, float]], float]:
    """Return a point of the plane for each operator's traits, and the share of the squared distances that is kept."""
    import numpy as np
    from sklearn.manifold import ClassicalMDS

    words = sorted({word for entry in traits for word in entry})
    points = np.array([[float(entry.get(word, 0)) for word in words] for entry in traits])
    total = float(((points - points.mean(axis=0)) ** 2).sum())
    if total < _SAME:
        return [(0.0, 0.0)] * len(traits), 1.0
    coordinates = ClassicalMDS(n_components=min(2, len(traits))).fit_transform(points)
    coordinates = np.column_stack([coordinates, np.zeros(len(coordinates))])[:, :2]
    return [(float(x), float(y)) for x, y in coordinates], min(1.0, float((coordinates**2).sum()) / total)


class ShownPlace(msgspec.Struct, frozen=True):
    """A point on a page: ``mark`` is its system's mark, ``text`` its description, ``page`` its address or empty."""

    key: str
    name: str
    system: str
    mark: str
    x: float
    y: float
    known: bool
    value: float | None
    flops: int
    text: str
    page: str


class ShownAtlas(msgspec.Struct, frozen=True):
    """An atlas on a page: its points, the title of the ``measure``, and the fewest FLOPs above 0 and the most."""

    words: str
    measure: str
    low: int
    high: int
    places: list[ShownPlace]


def shown_atlas(found: Atlas, pages: Mapping[str, str] | None = None) -> ShownAtlas:
    """Convert an atlas to data for a page.

    Args:
        found: the atlas.
        pages: the address of an operator's page by the operator's key.
    """
    axis = find_axis(found.measure)
    costs = [item.flops for item in found.places if item.flops] or [0]
    places = []
    for item in found.places:
        system = system_of(item.operator)
        result = f"{axis.title} {item.value:.4g}" if item.value is not None else "no result"
        text = f"{item.name} ({system.title}): {'known operator' if item.known else result}, "
        text += f"{short_number(item.flops)} FLOPs"
        x, y, page = round(item.x, 4), round(item.y, 4), (pages or {}).get(item.key, "")
        fields = (item.key, item.name, system.title, mark_name(system.format), x, y, item.known, item.value)
        places.append(ShownPlace(*fields, item.flops, text, page))
    return ShownAtlas(found.words, axis.title, min(costs), max(costs), places)


_WIDTH, _HEIGHT, _ROOM, _LEGEND = 960.0, 560.0, 40.0, 52.0
_KNOWN, _EDGE = HUES[2], LINE
_SIZE, _POINTS, _LETTER = 6.0, 11, 6.3  # mark size, font size and letter width in pixels
_MOST_LETTERS = 22
# Lines keep their width at any scale, and a hollow mark reacts to a pointer inside too.
_LINES = 'vector-effect="non-scaling-stroke" pointer-events="all"'


def ids_of(shown: ShownAtlas) -> list[str]:
    """Return the ids of the points in the picture, in their order."""
    return [f"p{number}" for number in range(len(shown.places))]


def atlas_svg(shown: ShownAtlas, *, has_links: bool = False) -> str:
    """Draw a :func:`syno_lab.reports.atlas.shown_atlas`, with the same scale in both directions.

    The shape of a mark shows the operator's system, and the colour shows the FLOPs. Known operators have a green
    edge, and labels where there is room. ``has_links``: whether points link to operators' pages.
    """
    places = shown.places
    spots = _spots([(item.x, item.y) for item in places])
    names = _names(places, spots)
    parts = []
    for name, item, (x, y) in zip(ids_of(shown), places, spots, strict=True):
        edge = f'stroke="{_KNOWN}" stroke-width="2.4"' if item.known else f'stroke="{_EDGE}" stroke-width="1"'
        look = f'fill="{shade(item.flops, shown.low, shown.high)}" {edge}'
        path = mark_of(item.mark).path
        mark = f'<path d="{path}" transform="translate({x:.1f} {y:.1f}) scale({_SIZE})" {look} {_LINES}/>'
        text = names.get(name, "")
        group = f'<g id="{name}"><title>{safe(item.text)}</title>{mark}{text}</g>'
        if has_links and item.page:
            group = f'<a href="{safe(item.page)}" aria-label="{safe(item.text)}">{group}</a>'
        parts.append(group)
    height = _HEIGHT + _LEGEND
    words, role = safe(shown.words), "group" if has_links else "img"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:g}" height="{height:g}" '
        f'viewBox="0 0 {_WIDTH:g} {height:g}" role="{role}" aria-label="{words}" font-family="sans-serif" '
        f'font-size="{_POINTS}" style="max-width:100%;height:auto">\n<title>{words}</title>\n'
        f"<g>{''.join(parts)}</g>\n{_legend(shown)}\n</svg>\n"
    )


def shade(flops: int, low: int, high: int) -> str:
    """Return the colour of an operator's FLOPs among those from ``low`` to ``high``, by their logarithms."""
    share = 0.5 if high <= low else math.log((flops + 1) / (low + 1)) / math.log((high + 1) / (low + 1))
    return SHADES[max(0, min(len(SHADES) - 1, int(share * len(SHADES))))]


def _spots(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points in pixels of the picture, with the same scale in both directions."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    room = (_WIDTH - 2 * _ROOM - _MOST_LETTERS * _LETTER, _HEIGHT - 2 * _ROOM)  # names are to the right of marks
    scale = min(room[0] / wide if wide else 1e9, room[1] / high if high else 1e9, 120.0)
    left = _ROOM + (room[0] - scale * wide) / 2
    top = _ROOM + (room[1] - scale * high) / 2
    return [(left + scale * (x - min(xs)), top + scale * (max(ys) - y)) for x, y in points]


def _names(places: Sequence[ShownPlace], spots: Sequence[tuple[float, float]]) -> dict[str, str]:
    """Return the labels of known operators, to the right of the marks, if a label overlaps nothing."""
    occupied = [(x - _SIZE, y - _SIZE, x + _SIZE, y + _SIZE) for x, y in spots]
    labels = {}
    for number, (item, (x, y)) in enumerate(zip(places, spots, strict=True)):
        text = printable(item.name)
        if not item.known or len(text) > _MOST_LETTERS:
            continue
        for down in (4.0, -8.0, 16.0, -20.0, 28.0):
            left, base = x + _SIZE + 3, y + down
            box = (left, base - 10, left + len(text) * _LETTER, base + 4)
            if box[2] <= _WIDTH and not any(_meet(box, other) for other in occupied):
                occupied.append(box)
                labels[f"p{number}"] = f'<text x="{left:.1f}" y="{base:.1f}" fill="{_EDGE}">{safe(text)}</text>'
                break
    return labels


def _meet(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


def _legend(shown: ShownAtlas) -> str:
    """Draw the legend of shapes and colours, in two lines below the picture."""
    y, x, parts = _HEIGHT + 14, _ROOM, []

    def put(path: str, look: str, text: str) -> None:
        nonlocal x
        parts.append(f'<path d="{path}" transform="translate({x:.1f} {y - 4:.1f}) scale(5)" {look}/>')
        parts.append(f'<text x="{x + 11:.1f}" y="{y:.1f}" fill="{_EDGE}">{safe(text)}</text>')
        x += 34 + _LETTER * len(text)

    circle = mark_of("circle").path
    for title, mark in {item.system: item.mark for item in shown.places}.items():
        put(mark_of(mark).path, f'fill="none" stroke="{_EDGE}" stroke-width="0.4"', title)
    put(circle, f'fill="none" stroke="{_KNOWN}" stroke-width="0.5"', "known operator")
    y, x = y + 22, _ROOM
    text = f"FLOPs from {short_number(shown.low)}"
    parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{_EDGE}">{safe(text)}</text>')
    x += _LETTER * len(text) + 10
    for colour in SHADES:
        parts.append(f'<rect x="{x:.1f}" y="{y - 11:.1f}" width="16" height="13" fill="{colour}"/>')
        x += 16
    parts.append(f'<text x="{x + 8:.1f}" y="{y:.1f}" fill="{_EDGE}">to {short_number(shown.high)}</text>')
    return "".join(parts)


def atlas_page(title: str, shown: ShownAtlas) -> str:
    """Return the atlas as HTML, with the picture and a table that link to the operators' pages; it fetches nothing."""
    rows = []
    for item in shown.places:
        name = safe(item.name)
        link = f'<a href="{safe(item.page)}">{name}</a>' if item.page else name
        value = "known" if item.known else "" if item.value is None else f"{item.value:.4g}"
        rows.append([link, safe(item.system), value])
    table = html_table(("operator", "system", shown.measure), rows)
    return html_page(title, [f"<p>{safe(shown.words)}</p>", atlas_svg(shown, has_links=True), table], _STYLE)


_STYLE = """th, td { overflow-wrap: anywhere; }
td:last-child { text-align: right; }
svg text { fill: currentColor; }
"""
