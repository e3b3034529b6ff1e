"""Room for the texts of figures that have axes: long labels, tables, legends above the axes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

_LETTER = 0.58  # the width of a letter, in sizes of the font
_SMALL = 0.85  # letters of a legend, in sizes of the font
_LARGE = 1e4


def renderer_of(plot: Plot) -> Any:
    """What measures the texts of a figure."""
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
    renderer = renderer_of(plot)
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

    renderer = renderer_of(plot)
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
