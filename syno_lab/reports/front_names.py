"""The names of a front's points, beside them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from syno_lab.drawing.figure_room import renderer_of
from syno_lab.inputs import printable
from syno_lab.reports.fronts import Front

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Plot
    from matplotlib.transforms import Bbox

_LONGEST_NAME = 28
_LINE = "#767676"
# Sizes of letters from a point to its name, the nearest first; then the directions, the usual one first.
_FAR = (0.9, 1.8, 3.0, 4.5, 6.5, 9.0, 12.0)
_REFUSED = 10**6  # more than points and lines can be hit
_WAYS = ((1, -1), (-1, -1), (1, 1), (-1, 1), (1, 0), (-1, 0), (0, -1), (0, 1))
_MARK = 0.45  # half of the width of a point, in sizes of the font


def draw_names(plot: Plot, axes: Axes, front: Front) -> None:
    """Write the labels of the front's points beside them: near, inside the axes, on no point, line or other name.

    A name that stands away from its point is tied to it by a thin line. One that has no place but on another name or
    outside the axes is left out; the description of the figure has all.
    """
    import matplotlib as mpl
    from matplotlib.transforms import Bbox

    size = 0.8 * mpl.rcParams["font.size"]
    renderer = renderer_of(plot)
    plot.draw_without_rendering()  # from here on it is known where points are
    dot = plot.dpi / 72
    taken = list(_taken(axes, front, _MARK * size * dot))
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
                    arrowprops={"arrowstyle": "-", "color": _LINE, "lw": 0.5} if far > _FAR[0] else None,
                )
                drawn.set_in_layout(False)
                box = _text_box(drawn, renderer)
                is_inside = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
                hits = box.count_overlaps(taken) + (0 if is_inside and not box.count_overlaps(named) else _REFUSED)
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


def _text_box(drawn: Any, renderer: Any) -> Bbox:
    """The box of an annotation's text, without its line."""
    from matplotlib.text import Text

    drawn.update_positions(renderer)  # before that, the offset counts from the figure's corner
    return Text.get_window_extent(drawn, renderer)


def _taken(axes: Axes, front: Front, half: float) -> Iterator[Bbox]:
    """The boxes of all points, and of the front's line and the intervals, in dots."""
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
