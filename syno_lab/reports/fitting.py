"""Room for the texts of figures: names beside points, long labels of axes, legends above the axes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from syno_lab.inputs import printable
from syno_lab.reports.fronts import Front

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Plot
    from matplotlib.transforms import Bbox

_LONGEST_NAME = 28
_LINE = "#767676"
# Sizes of letters from a point to its name, the nearest first; then the directions, the usual one first.
_FAR = (0.9, 1.8, 3.0, 4.5, 6.5, 9.0)
_WAYS = ((1, -1), (-1, -1), (1, 1), (-1, 1), (1, 0), (-1, 0), (0, -1), (0, 1))
_LETTER = 0.58  # the width of a letter, in sizes of the font
_SMALL = 0.85  # letters of a legend, in sizes of the font
_LARGE = 1e4
_MARK = 0.45  # half of the width of a point, likewise


def _renderer(plot: Plot) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = plot.canvas if isinstance(plot.canvas, FigureCanvasAgg) else FigureCanvasAgg(plot)
    return canvas.get_renderer()


def fit_labels(plot: Plot) -> None:
    """Break the labels of axes, of colour bars too, into lines that are no longer than the figure.

    Large numbers are counted in thousands, millions and so on: a power of ten at the end of an axis lies on its label.
    """
    import matplotlib as mpl
    from matplotlib.ticker import EngFormatter

    width, height = plot.get_size_inches()
    letter = _LETTER * mpl.rcParams["font.size"] / 72
    for axes in plot.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "linear" and max(map(abs, axis.get_view_interval())) >= _LARGE:
                axis.set_major_formatter(EngFormatter(sep=""))
        for label, length in ((axes.xaxis.label, 0.75 * width), (axes.yaxis.label, 0.8 * height)):
            lines = textwrap.wrap(label.get_text(), max(8, int(length / letter)))
            label.set_text("\n".join(lines))


def fit_tables(plot: Plot) -> None:
    """Make the columns of tables as wide as their texts, and the letters so small that the figure has room for all."""
    renderer = _renderer(plot)
    for axes in plot.axes:
        for table in axes.tables:
            columns = sorted({column for _, column in table.get_celld()})
            for _ in range(3):  # the space around texts shrinks with them, but not in proportion
                table.auto_set_column_width(columns)
                plot.draw_without_rendering()
                too_wide = table.get_window_extent(renderer).width / (0.98 * plot.bbox.width)
                if too_wide <= 1:
                    break
                size = table.get_celld()[0, columns[-1]].get_fontsize()
                table.set_fontsize(size / too_wide)


def legend_above(plot: Plot, handles: Sequence[Any]) -> None:
    """A legend above the axes, where it hides nothing, with as many columns as the figure has room for."""
    import matplotlib as mpl

    renderer = _renderer(plot)
    letters = int(
        (plot.get_figwidth() * 72 - 3 * mpl.rcParams["font.size"]) / (_LETTER * _SMALL * mpl.rcParams["font.size"])
    )
    for columns in range(len(handles), 0, -1):
        legend = plot.legend(
            handles=list(handles),
            labels=["\n".join(textwrap.wrap(str(one.get_label()), letters)) for one in handles],
            loc="outside upper center",
            ncols=columns,
            fontsize=_SMALL * mpl.rcParams["font.size"],
            frameon=False,
            borderpad=0.1,
            handlelength=1.0,
            handletextpad=0.4,
            columnspacing=1.2,
        )
        plot.draw_without_rendering()
        if columns == 1 or legend.get_window_extent(renderer).width <= plot.bbox.width:
            return
        legend.remove()


def draw_names(plot: Plot, axes: Axes, front: Front) -> None:
    """Write the labels of the front's points beside them: near, inside the axes, on no point, line or other name.

    A name that stands away from its point is tied to it by a thin line.
    """
    import matplotlib as mpl
    from matplotlib.transforms import Bbox

    size = 0.8 * mpl.rcParams["font.size"]
    renderer = _renderer(plot)
    plot.draw_without_rendering()  # from here on it is known where points are
    dot = plot.dpi / 72
    taken = list(_taken(axes, front, _MARK * size * dot))
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
                box = drawn.get_window_extent(renderer) if far == _FAR[0] else _text_box(drawn, renderer)
                outside = not (inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0)
                hits = box.count_overlaps(taken) + 100 * (outside or box.y1 > inside.y1)
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
        taken.append(Bbox(_text_box(best[2], renderer).get_points()))


def _text_box(drawn: Any, renderer: Any) -> Bbox:
    """The box of an annotation's text, without its line."""
    from matplotlib.text import Text

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
