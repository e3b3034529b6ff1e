"""Draws a front: for pages and papers with matplotlib, and as a small SVG for pages without a Jupyter kernel.

Equal data give equal files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from syno_lab.drawing.figure import Figure, Page, fit_labels, legend_above, renderer_of
from syno_lab.drawing.style import GREY, GRID, HUES, INK, WHITE
from syno_lab.drawing.svg import picture, safe, text
from syno_lab.errors import FormatError
from syno_lab.inputs import printable, quoted
from syno_lab.reports.fronts import Front, Placed, short_number
from syno_lab.reports.marks import BASELINE, Mark, mark_of
from syno_lab.reports.published import Stated

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure as Plot
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

#: Colour and area of the marks of each kind of point; the shape depends on the system. Kinds differ in more than
#: colour: trials are small, trials on the front large, known operators hollow, and the baseline is a star.
KNOWN = "known operators"
LOOKS = {
    "trials": (GREY, 22),
    "on the front": (HUES[0], 48),
    KNOWN: (HUES[2], 48),
    "baseline": (HUES[1], 110),
}
PAPER = HUES[6]
FORMS = ("svg", "png")
_MOST_NAMES = 12


def kinds_of(front: Front) -> list[str]:
    """Return the kind of each point of a front, a key of :data:`LOOKS`."""
    on_front = set(front.front)
    return [
        "baseline" if point.is_baseline else KNOWN if point.known else "on the front" if at in on_front else "trials"
        for at, point in enumerate(front.points)
    ]


def shape_of(point: Placed) -> Mark:
    """Return the mark of a point: its system's mark, or the star of the baseline."""
    return BASELINE if point.is_baseline else mark_of(point.mark)


def groups_of(front: Front) -> dict[tuple[str, str, Mark], list[Placed]]:
    """Return the points by kind, system (empty for the baseline) and mark; later kinds are drawn on top of others."""
    groups: dict[tuple[str, str, Mark], list[Placed]] = {}
    for kind, point in zip(kinds_of(front), front.points, strict=True):
        system = "" if point.is_baseline else point.system
        groups.setdefault((kind, system, shape_of(point)), []).append(point)
    return dict(sorted(groups.items(), key=lambda group: [*LOOKS].index(group[0][0])))


def describe_front(front: Front, title: str) -> str:
    """Describe the figure in one sentence, for readers who cannot see it."""
    title, axes = printable(title), " and ".join(axis.text for axis in front.axes)
    if not front.points:
        return f"{title}: no trial has a value on {axes} yet."
    names = [printable(front.points[place].name) for place in front.front]
    shown = ", ".join(names[:_MOST_NAMES]) + (
        f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    )
    corner = ", ".join(map(short_number, front.reference))
    return (
        f"{title}: {len(front.points)} trials by {axes}; on the Pareto front: {shown}; "
        f"hypervolume {short_number(front.hypervolume)} up to ({corner}).{_systems(front)}{_finals(front)}"
    )


def _systems(front: Front) -> str:
    """Return a sentence with the number of trials of each system; empty if all trials are of one system."""
    if len(front.systems) < 2:
        return ""
    counts = []
    for title, mark in front.systems.items():
        number = sum(point.system == title and not point.is_baseline for point in front.points)
        counts.append(f"{number} of {printable(title)} ({mark})")
    return f" Trials by system: {', '.join(counts)}."


def _finals(front: Front) -> str:
    """Return a sentence with the intervals of the finals; empty where the front has none."""
    intervals = [
        f"{printable(point.name)} {low:.4g} to {high:.4g}"
        for point in front.points
        for wide in point.intervals
        if wide is not None
        for low, high in [wide]
    ]
    return f" Intervals of the finals: {', '.join(intervals[:_MOST_NAMES])}." if intervals else ""


def front_picture(front: Front, form: str = "svg", *, title: str = "Trials", published: Sequence[Stated] = ()) -> bytes:
    """Draw a front for a page as ``svg`` or ``png``, with the arguments of :class:`FrontFigure`.

    Raises FormatError for any other ``form``.
    """
    if form not in FORMS:
        raise FormatError(f"expected one of {', '.join(FORMS)} for a picture, found {quoted(form)}")
    return FrontFigure(front, title=title, published=published).content(form, width="page", points=10.0)


class FrontFigure(Figure):
    """The figure of a front for a paper: only the points, without a title, because the caption is the title.

    Args:
        front: the front; its third axis becomes the colour.
        published: the paper's statements from :func:`.published_on`, only for relative axes.
        title: a title for the figure's description.
    """

    def __init__(self, front: Front, *, published: Sequence[Stated] = (), title: str = "Trials") -> None:
        self.description = describe_front(front, title)
        self._front = front
        self._published = tuple(published) if front.is_relative else ()

    def _plot(self, page: Page) -> Plot:
        from matplotlib.figure import Figure as Plot

        plot = Plot(figsize=(page.width, min(0.72 * page.width, 4.2)), facecolor="white", layout="constrained")
        axes = plot.subplots()
        handles = _draw_points(plot, axes, self._front, self._published)
        axes.spines[["top", "right"]].set_visible(False)
        fit_labels(plot)
        if handles:
            legend_above(plot, handles)
        if len(self._front.front) <= _MOST_NAMES:
            draw_names(plot, axes, self._front)
        return plot


def _draw_points(figure: Plot, axes: Axes, front: Front, published: Sequence[Stated]) -> list[Any]:
    """Draw the points with their intervals and the front's line; return the handles of the legend."""
    import matplotlib as mpl

    scale = mpl.rcParams["font.size"] / 10  # the size of marks follows the font's size
    x, y = front.axes[:2]
    axes.set_xlabel(x.text, parse_math=False)
    axes.set_ylabel(y.text, parse_math=False)
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    if not front.points:
        axes.text(0.5, 0.5, "no trial has a value on each axis yet", transform=axes.transAxes, ha="center", color=GREY)
    third = len(front.axes) == 3
    depth = [point.values[-1] for point in front.points]
    named: set[str] = set()
    are_many = len(front.systems) > 1
    for (name, _, mark), points in groups_of(front).items():
        colour, size = LOOKS[name]
        shade: dict[str, Any] = {"color": colour}
        if third:
            shade = {"c": [point.values[2] for point in points], "cmap": "viridis"}
            shade |= {"vmin": min(depth), "vmax": max(depth)}
        elif name == KNOWN:
            shade = {"facecolors": "none", "edgecolors": colour, "linewidths": 1.6}
        xs, ys = ([point.values[side] for point in points] for side in (0, 1))
        label = None if name in named or are_many else name
        drawn = axes.scatter(xs, ys, s=size * scale**2, marker=mark.marker, label=label, zorder=3, **shade)
        if third and not named:
            figure.colorbar(drawn, ax=axes, label=front.axes[2].text)
        named.add(name)
    for point in front.points:
        for side, wide in enumerate(point.intervals[:2]):
            if wide is not None:
                ends = [wide, (point.values[1],) * 2] if side == 0 else [(point.values[0],) * 2, wide]
                axes.plot(*ends, color=GREY, linewidth=1.4, marker="|" if side == 0 else "_", zorder=2)
    if len(front.axes) == 2 and front.front:
        line = [front.points[place].values for place in front.front]
        where: Any = "pre" if x.maximise else "post"
        axes.step([v[0] for v in line], [v[1] for v in line], where=where, color=HUES[0], linewidth=1.2)
    for number, statement in enumerate(published):
        (x0, x1), (y0, y1) = statement.ranges[:2]
        heights, end = ([y0, y1], "_") if x0 == x1 else ([(y0 + y1) / 2] * 2, "|")
        label = "as the paper states" if number == 0 else None
        axes.plot([x0, x1], heights, color=PAPER, linewidth=2, marker=end, label=label)
    axes.margins(0.08)
    handles, _ = axes.get_legend_handles_labels()
    return [*(_legend_of_systems(front, named) if are_many else []), *handles]


def _legend_of_systems(front: Front, kinds: Collection[str]) -> list[Any]:
    """Return the legend for several systems: the colour of each kind of point, then the shape of each system."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for name, (colour, _) in LOOKS.items():
        if name == "baseline" and name in kinds:
            handles.append(Line2D([], [], linestyle="", marker=BASELINE.marker, markersize=9, color=colour, label=name))
        elif name in kinds:
            handles.append(Patch(facecolor="none" if name == KNOWN else colour, edgecolor=colour, label=name))
    for title, name in front.systems.items():
        mark, label = mark_of(name).marker, printable(title)
        handles.append(Line2D([], [], linestyle="", marker=mark, markersize=6, color=INK, label=label))
    return handles


_LONGEST_NAME = 28
# The distances from a point to its label in font sizes, the nearest first, and the directions, the usual one first.
_FAR = (0.9, 1.8, 3.0, 4.5, 6.5, 9.0, 12.0)
_REFUSED = 10**6  # more than the possible number of overlaps
_WAYS = ((1, -1), (-1, -1), (1, 1), (-1, 1), (1, 0), (-1, 0), (0, -1), (0, 1))
_MARK = 0.45  # half of a mark's width, in font sizes


def draw_names(plot: Plot, axes: Axes, front: Front) -> None:
    """Write the labels of the front's points near the points, inside the axes, where they overlap nothing.

    A thin line connects a distant label with its point. A label that finds no free space inside the axes is left out;
    the figure's description has all labels.
    """
    import matplotlib as mpl
    from matplotlib.transforms import Bbox

    size = 0.8 * mpl.rcParams["font.size"]
    renderer = renderer_of(plot)
    plot.draw_without_rendering()  # this call computes the positions of the points
    dot = plot.dpi / 72
    occupied = list(_occupied(axes, front, _MARK * size * dot))
    named: list[Bbox] = []
    inside = axes.bbox
    for place in front.front:
        point = front.points[place]
        label = printable(point.name)
        label = label if len(label) <= _LONGEST_NAME else label[: _LONGEST_NAME - 1] + "…"
        best: tuple[int, float, Any] | None = None
        for far in _FAR:
            for across, up in _WAYS:
                drawn = axes.annotate(
                    label,
                    (point.values[0], point.values[1]),
                    (far * size * across, far * size * up),
                    textcoords="offset points",
                    ha={1: "left", -1: "right", 0: "center"}[across],
                    va={1: "bottom", -1: "top", 0: "center"}[up],
                    fontsize=size,
                    parse_math=False,
                    arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.5} if far > _FAR[0] else None,
                )
                drawn.set_in_layout(False)
                box = _text_box(drawn, renderer)
                is_inside = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
                hits = box.count_overlaps(occupied) + (0 if is_inside and not box.count_overlaps(named) else _REFUSED)
                if best is None or hits < best[0]:
                    if best is not None:
                        best[2].remove()
                    best = (hits, far, drawn)
                else:
                    drawn.remove()
                if best[0] == 0:
                    break
            if best is not None and best[0] == 0:
                break
        assert best is not None
        if best[0] >= _REFUSED:
            best[2].remove()
        else:
            named.append(Bbox(_text_box(best[2], renderer).get_points()))


def _text_box(drawn: Annotation, renderer: RendererBase) -> Bbox:
    """Return the bounding box of an annotation's text, without its line."""
    from matplotlib.text import Text

    drawn.update_positions(renderer)  # without this call, the label's offset starts at the figure's corner
    return Text.get_window_extent(drawn, renderer)


def _occupied(axes: Axes, front: Front, half: float) -> Iterator[Bbox]:
    """Yield the bounding boxes of all points, of the front's line and of the intervals, in pixels."""
    from matplotlib.transforms import Bbox

    for x, y in axes.transData.transform([point.values[:2] for point in front.points]):
        yield Bbox([(x - half, y - half), (x + half, y + half)])
    for line in axes.get_lines():
        ends = axes.transData.transform(line.get_xydata())
        style = line.get_drawstyle()
        for (x0, y0), (x1, y1) in pairwise(ends):
            corner = (x1, y0) if style == "steps-post" else (x0, y1)
            for (a, b), (c, d) in (((x0, y0), corner), (corner, (x1, y1))):
                yield Bbox([(min(a, c) - 1, min(b, d) - 1), (max(a, c) + 1, max(b, d) + 1)])


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 680, 400, 70, 20, 34, 46
_TICKS = 5


def front_sketch(front: Front, title: str = "Trials", published: Sequence[Stated] = ()) -> str:
    """Draw the points as SVG text on a white background, as :func:`.front_picture` does.

    Matplotlib is not imported, because that would delay a notebook's cell. A third axis is only in the description.
    """
    paper = published if front.is_relative else ()
    x0, x1 = _span(front, 0, paper)
    y0, y1 = _span(front, 1, paper)

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - x0) / (x1 - x0) * (_WIDTH - _LEFT - _RIGHT)
        return across, _HEIGHT - _BOTTOM - (y - y0) / (y1 - y0) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="{WHITE}"/>', text(_LEFT, 20, title, 14)]
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
    for statement in paper:
        (a, b), (c, d) = statement.ranges[:2]
        (left, low), (right, high) = place(a, c), place(b, d)
        size = f'x="{left - 2:.1f}" y="{high - 2:.1f}" width="{right - left + 4:.1f}" height="{low - high + 4:.1f}"'
        parts.append(
            f'<rect {size} fill="{PAPER}" fill-opacity="0.35"><title>The paper: {safe(statement.text)}</title></rect>'
        )
    for point in front.points:
        for side, wide in enumerate(point.intervals[:2]):
            if wide is not None:
                ends = [(end, point.values[1]) if side == 0 else (point.values[0], end) for end in wide]
                (left, low), (right, high) = (place(*end) for end in ends)
                parts.append(_line(left, low, right, high, GREY))
    for (kind, _, mark), points in groups_of(front).items():
        colour, area = LOOKS[kind]
        look = f'fill="none" stroke="{colour}"' if kind == KNOWN else f'fill="{colour}"'
        parts += [_mark(mark, *place(*point.values[:2]), area**0.5 / 1.5, look, point.name) for point in points]
    if len(front.systems) > 1:
        across = _LEFT + 8.0
        for title, name in front.systems.items():
            parts.append(_mark(mark_of(name), across, _TOP + 10, 4, f'fill="{GREY}"', title))
            parts.append(text(across + 9, _TOP + 14, title))
            across += 24 + 7 * len(title)
    if not front.points:
        parts.append(text(_WIDTH / 2, _HEIGHT / 2, "no trial has a value on each axis yet", anchor="middle"))
    return picture(_WIDTH, _HEIGHT, describe_front(front, title), parts)


def _span(front: Front, axis: int, paper: Sequence[Stated]) -> tuple[float, float]:
    values = [point.values[axis] for point in front.points]
    values += [end for point in front.points for end in (point.intervals[axis : axis + 1] or (None,))[0] or ()]
    values += [value for statement in paper for value in statement.ranges[axis]]
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.06 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def _mark(mark: Mark, x: float, y: float, size: float, look: str, title: str) -> str:
    """Draw a mark around ``x`` and ``y``; its stroke has width 2 at any size."""
    attributes = f'transform="translate({x:.1f} {y:.1f}) scale({size:.1f})" stroke-width="{2 / size:.2f}"'
    return f'<path d="{mark.path}" {attributes} {look}><title>{safe(title)}</title></path>'


def _line(x0: float, y0: float, x1: float, y1: float, colour: str = GRID) -> str:
    return f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{colour}" fill="none"/>'
