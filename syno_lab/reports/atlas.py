"""An atlas of operators: known and discovered ones on one plane, near each other where they do alike.

The distance of two operators is the Euclidean distance of their traits (:meth:`syno_lab.protocol.System.traits`, by
which searches compare operators too) at the sizes of one layer, :data:`LAYER`: what the output element in the middle
reads of each axis, the effective ranks of the kernel, multiply-adds and parameters, mostly as logarithms to the base 2;
a word that only one of the two has counts as 0 in the other. It is a metric on traits; 0 says that no trait tells two
operators apart. Systems have words of their own, so operators of two systems are farther apart than what they do says.

The plane is that of classical multidimensional scaling (Torgerson, Psychometrika 17, 1952): of all planes the one that
keeps most of the squared distances, and :attr:`Atlas.kept` says how much. It has no random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from syno_lab.drawing.svg import safe
from syno_lab.effort import Stop, end_if
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.inputs import printable
from syno_lab.protocol import Operator
from syno_lab.reports.axes import axis_value, find_axis
from syno_lab.reports.marks import mark_name, mark_of
from syno_lab.reports.rows import TrialRow
from syno_lab.reports.shown import usual_measure
from syno_lab.reports.text_tables import html_page, html_table
from syno_lab.systems import all_systems, binding_for, read_operator, system_of

#: The layer at whose sizes operators are compared: a 3x3 convolution in the middle of a residual network.
LAYER: Mapping[str, int] = {"N": 1, "C_in": 64, "C_out": 64, "H": 28, "W": 28, "s": 1, "window_h": 3, "window_w": 3}
_SHAPE = (1, 64, 28, 28)
#: How many operators of a lab an atlas has at most; those with the best results come first.
MOST = 300
#: Two operators whose places are nearer than this are drawn at one place.
_SAME = 1e-6


@dataclass(frozen=True)
class Placed:
    """One operator in an atlas; its ``key`` is that of its trial, or ``known:NAME``.

    ``value`` is the result by the atlas's measure, None where there is none; ``x`` and ``y`` its place, in units of the
    distance.
    """

    key: str
    name: str
    operator: Operator
    known: bool
    value: float | None = None
    x: float = 0.0
    y: float = 0.0


@dataclass(frozen=True)
class Atlas:
    """Operators on a plane, the known ones first; ``measure`` is the axis by which results are compared.

    ``kept``: the share of the squared distances that the plane keeps, from 0 to 1; ``left_out``: how many operators do
    not fit :data:`LAYER`, or have no traits there; ``more``: how many of the lab's are not in it, as it has its
    :data:`MOST`.
    """

    places: tuple[Placed, ...]
    measure: str
    kept: float
    left_out: int
    more: int

    @property
    def words(self) -> str:
        """The atlas in a few sentences."""
        known = sum(one.known for one in self.places)
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
    """The atlas of the operators of a lab's trials, beside the known ones.

    Args:
        rows: trials; of several with one operator the one with the best result counts.
        known: whether the known operators of all systems are in it.
        most: the most operators of trials.
        should_stop: asked after each operator.

    Raises SpecError where none of them fits; StoppedError when it was told to stop.
    """
    measure = usual_measure(rows)
    trials = _trials(rows, measure)
    named = [one for system in all_systems() for one in system.known.items()] if known else []
    found = [Placed(f"known:{name}", name, make(), True) for name, make in named]
    found += [Placed(row.key, row.label, operator, False, value) for operator, row, value in trials[:most]]
    words: list[Mapping[str, int]] = []
    fitting = []
    for one in found:
        end_if(should_stop, "comparing the traits of operators")
        traits = traits_of(one.operator)
        if traits is not None:
            words.append(traits)
            fitting.append(one)
    if not fitting:
        raise SpecError("atlas: expected an operator that fits a convolution's layer, found none")
    places, kept = plane(words)
    placed = tuple([replace(one, x=x, y=y) for one, (x, y) in zip(fitting, places, strict=True)])
    return Atlas(placed, measure, kept, len(found) - len(fitting), max(0, len(trials) - most))


def _trials(rows: Iterable[TrialRow], measure: str) -> list[tuple[Operator, TrialRow, float | None]]:
    """Operators with their best trials, the best first."""
    axis = find_axis(measure)
    given = [(axis_value(row, axis), row) for row in rows if row.operator and not row.is_baseline]
    best: dict[str, tuple[float | None, TrialRow]] = {}
    for value, row in sorted(given, key=lambda one: -math.inf if one[0] is None else one[0], reverse=True):
        best.setdefault(row.operator, (value, row))
    found = []
    for text, (value, row) in best.items():
        with suppress(FormatError):  # of a system that nobody knows here
            found.append((read_operator(text), row, value))
    found.sort(key=lambda one: (one[2] is None, -(one[2] or 0.0), one[1].number))
    return found


def traits_of(operator: Operator) -> Mapping[str, int] | None:
    """The traits of an operator at :data:`LAYER`; None where it does not fit, or nothing is known of it."""
    system = system_of(operator)
    try:
        bound = {**system.example_binding(operator), **binding_for(operator, LAYER, _SHAPE, _SHAPE)}
        return system.traits(operator, operator.complete_binding(bound)) or None
    except SynoError:
        return None


def distance(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """The distance of two operators by their traits."""
    return float(sum((one.get(word, 0) - other.get(word, 0)) ** 2 for word in {*one, *other}) ** 0.5)


def plane(traits: Sequence[Mapping[str, int]]) -> tuple[list[tuple[float, float]], float]:
    """A place for each of these traits, and the share of the squared distances that the places keep."""
    import numpy as np
    from sklearn.manifold import ClassicalMDS

    words = sorted({word for one in traits for word in one})
    points = np.array([[float(one.get(word, 0)) for word in words] for one in traits])
    whole = float(((points - points.mean(axis=0)) ** 2).sum())
    if whole < _SAME:
        return [(0.0, 0.0)] * len(traits), 1.0
    found = ClassicalMDS(n_components=min(2, len(traits))).fit_transform(points)
    found = np.column_stack([found, np.zeros(len(found))])[:, :2]
    return [(float(x), float(y)) for x, y in found], min(1.0, float((found**2).sum()) / whole)


class ShownPlace(msgspec.Struct, frozen=True):
    """A place on a page: ``mark`` is of its system, ``text`` all of it in a line, ``page`` its address, or empty."""

    key: str
    name: str
    system: str
    mark: str
    x: float
    y: float
    known: bool
    value: float | None
    text: str
    page: str


class ShownAtlas(msgspec.Struct, frozen=True):
    """An atlas on a page: the title of the ``measure``, and the lowest and highest result."""

    words: str
    measure: str
    low: float
    high: float
    places: list[ShownPlace]


def shown_atlas(found: Atlas, pages: Mapping[str, str] | None = None) -> ShownAtlas:
    """An atlas for a page.

    Args:
        found: the atlas.
        pages: the address of an operator's page by its key, where it has one.
    """
    axis = find_axis(found.measure)
    values = [one.value for one in found.places if one.value is not None]
    places = []
    for one in found.places:
        system = system_of(one.operator)
        result = f"{axis.title} {one.value:.4g}" if one.value is not None else "no result"
        text = f"{one.name} ({system.title}): {'known operator' if one.known else result}"
        x, y, page = round(one.x, 4), round(one.y, 4), (pages or {}).get(one.key, "")
        about = (one.key, one.name, system.title, mark_name(system.format), x, y, one.known, one.value, text, page)
        places.append(ShownPlace(*about))
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    return ShownAtlas(found.words, axis.title, low, high, places)


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


def atlas_page(title: str, shown: ShownAtlas) -> str:
    """The atlas as HTML: the picture and a table, both with links to the operators' pages; nothing is fetched."""
    rows = []
    for one in shown.places:
        name = safe(one.name)
        link = f'<a href="{safe(one.page)}">{name}</a>' if one.page else name
        value = "known" if one.known else "" if one.value is None else f"{one.value:.4g}"
        rows.append([link, safe(one.system), value])
    table = html_table(("operator", "system", shown.measure), rows)
    return html_page(title, [f"<p>{safe(shown.words)}</p>", atlas_svg(shown, has_links=True), table], _STYLE)


_STYLE = """th, td { overflow-wrap: anywhere; }
td:last-child { text-align: right; }
svg text { fill: currentColor; }
a:focus-visible { outline: 3px solid #1f5fbf; }
"""
