"""Draw the figures with matplotlib; equal data gives equal files. The paper's values are purple and hatched."""

from __future__ import annotations

import io
import itertools
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from syno_lab.drawing.figure import Figure, Page, fit_labels, legend_above, renderer_of
from syno_lab.errors import StoreError
from syno_lab.inputs import printable
from syno_lab.reports.figures import bars_of, blank, plain
from syno_lab.reports.pictures import PAPER

if TYPE_CHECKING:
    import plotly.graph_objects
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Plot

    from reproduction.paper.facts import PaperFigure, Series

_COLOURS = ("#2a7fd4", "#009e73", "#d55e00", "#e69f00", "#56b4e9", "#767676", "#cc79a7", "#444444")
_MARKS = "oDs^vp><"
_HATCHES = ("///", "\\\\\\", "---", "|||")  # lines alone: in PGF, a surface of dots has megabytes
_PAPER_MARKS = "XP*h"
_FEWEST = 3  # categories for which there is room at least
_MOST_BELOW = 5  # categories whose names stand below bars, and not beside them
_LEAST_HIGH, _LINE = 3.2, 0.2  # inches: of axes, and of a line of their text
_TABLE_LINE = 0.14  # inches: of a line of a table's text
_WIDEST_BAR = 0.4  # of the room of a category
_LONGEST_LABEL = 34  # letters of a line beside an axis
_MISSING = "–"  # in a table
_LONGEST_NAME = 56  # letters of a line of a legend, which has two columns
_LONGEST_PLACE = 22  # letters of a line of a category's name


def draw(shown: PaperFigure, form: str) -> bytes:
    """The figure as ``svg`` or ``png``."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "syno-lab", "text.parse_math": False}):
        panels = shown.panels
        # The names of many categories stand beside bars, where they have room.
        is_across = shown.kind == "bars" and any(len(_places(panel)) > _MOST_BELOW for panel in panels)
        each = [
            max(_LEAST_HIGH, _LINE * _spacing(panel) * len(_places(panel))) if is_across else _LEAST_HIGH
            for panel in panels
        ]
        high = _table_lines(shown) * _TABLE_LINE if shown.kind == "table" else 0.4 + sum(each)
        figure = Figure(figsize=(8.5, 1.2 + high), facecolor="white", layout="constrained")
        figure.suptitle(printable(shown.title), fontsize=11)
        rows = figure.subplots(len(panels), squeeze=False, height_ratios=each)[:, 0]
        for axes, panel in zip(rows, panels, strict=True):
            if is_across:
                _bars(axes, panel, across=True)
            else:
                _DRAWN[shown.kind](axes, panel)
            handles, names = axes.get_legend_handles_labels()
            if handles:
                # Above the axes: within them it would cover bars.
                names = [_wrapped(name, _LONGEST_NAME) for name in names]
                axes.legend(
                    handles, names, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, fontsize=7, frameon=False
                )
        figure.supxlabel(_wrapped(printable(shown.note)), fontsize=7.5, color="#555555")
        _fit_tables(figure)
        buffer = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(buffer, format=form, dpi=144, facecolor="white", metadata=metadata)
    if form == "png":
        return buffer.getvalue()
    words = escape(printable(shown.text), quote=True)
    return buffer.getvalue().decode().replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1).encode()


def plotly_figure(shown: PaperFigure) -> plotly.graph_objects.Figure:
    """The figure for plotly: a trace for each series, one panel for each unit, and the paper's series in purple."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    panels = shown.panels
    if not any(one.values for one in shown.series):
        raise StoreError(f"{shown.name}: expected a value to draw, found none; give a lab or a file with results")
    figure = blank(title=shown.title)
    if shown.kind == "table":
        heads, *rows = _grid(shown)[0]
        columns = [[plain(text) for text in column] for column in zip(*rows, strict=True)]
        return figure.add_trace(go.Table(header={"values": [*map(plain, heads)]}, cells={"values": columns}))
    figure = make_subplots(rows=len(panels), figure=figure)
    for row, panel in enumerate(panels, 1):
        for number, one in enumerate(panel.series):
            places = [plain(place) if isinstance(place, str) else place for place, _ in one.values]
            values = [value for _, value in one.values]
            error = bars_of(values, one.ranges or [None] * len(values))
            colour = PAPER if one.is_paper else _COLOURS[number % len(_COLOURS)]
            given: dict[str, Any] = {"x": places, "y": values, "error_y": error, "name": plain(one.name)}
            if panel.kind == "bars" and not one.is_range:
                figure.add_bar(**given, marker={"color": colour}, row=row, col=1)
                continue
            if one.spans:
                given["error_x"] = bars_of([float(place) for place in places], one.spans)
            mode = "lines+markers" if one.is_line else "markers"
            figure.add_scatter(**given, mode=mode, marker={"color": colour, "size": 9}, row=row, col=1)
        axis = {"title_text": plain(panel.x), "type": "log"} if panel.is_log_x else {"title_text": plain(panel.x)}
        figure.update_xaxes(**axis, row=row, col=1)
        figure.update_yaxes(title_text=plain(panel.y), row=row, col=1)
    # The legend says which series are the paper's, also where there is one alone.
    return figure.update_layout(height=120 + 340 * len(panels), showlegend=True)


class PaperPicture(Figure):
    """A figure of the paper for a paper: without its title and note, which belong into the caption."""

    def __init__(self, shown: PaperFigure) -> None:
        self.description = shown.text
        self._shown = shown

    def _plot(self, page: Page) -> Plot:
        from matplotlib.figure import Figure as Plot

        shown = self._shown
        line = page.points * 1.4 / 72
        panels = shown.panels
        high = line * _table_lines(shown) if shown.kind == "table" else min(0.75 * page.width, 4.2)
        high *= len(panels)
        needed = [len(_places(one)) * _spacing(one) * line for one in panels] if shown.kind == "bars" else None
        plot = Plot(figsize=(page.width, high), facecolor="white", layout="constrained")
        rows = plot.subplots(len(panels), squeeze=False, height_ratios=needed)[:, 0]
        handles = []
        for axes, panel in zip(rows, panels, strict=True):
            if shown.kind == "bars":
                _bars(axes, panel, across=True)
            else:
                _DRAWN[shown.kind](axes, panel)
            axes.spines[["top", "right"]].set_visible(False)
            handles += axes.get_legend_handles_labels()[0]
        fit_labels(plot)
        _fit_tables(plot)
        if handles:
            legend_above(plot, handles)
        if needed is not None:
            # What stands around the axes is as high as it is: the rest of the height is for the bars.
            plot.draw_without_rendering()
            plot.set_figheight(high - sum(axes.bbox.height for axes in rows) / plot.dpi + sum(needed))
        return plot


def _spacing(shown: PaperFigure) -> float:
    """Lines of text from one category of bars across to the next: room for the bars and for the name of each."""
    bars = Counter(str(place) for one in shown.series for place, _ in one.values)
    names = (_wrapped(printable(place), _LONGEST_PLACE).count("\n") + 1 for place in bars)
    return max(0.55 * max(bars.values()) + 0.6, 0.75 * max(names) + 0.4)


def _size(share: float) -> float:
    """The size of small letters, in points."""
    import matplotlib as mpl

    return share * float(mpl.rcParams["font.size"])


def _bars(axes: Axes, shown: PaperFigure, *, across: bool = False) -> None:
    """Bars side by side; ``across`` from left to right, so that long names of categories have room."""
    import numpy as np

    places = _places(shown)
    at = {place: number for number, place in enumerate(places)}
    # Bars of one category are side by side; a series without that category leaves no gap.
    here = {place: [one for one in shown.series if any(str(p) == place for p, _ in one.values)] for place in places}
    hatches = itertools.cycle(_HATCHES)
    draw_bars: Any = axes.barh if across else axes.bar
    for number, one in enumerate(shown.series):
        xs, widths = [], []
        for place, _ in one.values:
            group = here[str(place)]
            width = min(_WIDEST_BAR, 0.8 / len(group))
            xs.append(at[str(place)] + width * (group.index(one) + 0.5 - len(group) / 2))
            widths.append(width)
        heights = [value for _, value in one.values]
        if one.is_range:
            _range_marks(axes, one, xs, across)
            continue
        look: dict[str, Any] = {"color": _COLOURS[number % len(_COLOURS)]}
        if one.is_paper:
            look = {"facecolor": "white", "edgecolor": PAPER, "hatch": next(hatches)}
        draw_bars(xs, heights, widths, label=printable(one.name), **look)
        spread = [(x, y, span) for x, y, span in zip(xs, heights, one.ranges, strict=False) if span[0] != span[1]]
        if spread:
            errors = np.array([[y - span[0], span[1] - y] for _, y, span in spread]).T
            ends = [x for x, _, _ in spread], [y for _, y, _ in spread]
            drawn: dict[str, Any] = {"x": ends[0], "y": ends[1], "yerr": errors}
            if across:
                drawn = {"x": ends[1], "y": ends[0], "xerr": errors}
            axes.errorbar(**drawn, fmt="none", ecolor=PAPER, capsize=3)
    names = [_wrapped(printable(place), _LONGEST_PLACE) for place in places]
    line = 0 if min((v for one in shown.series for _, v in one.values), default=0) < 0 else 1
    if across:
        axes.set_yticks(range(len(places)), names, fontsize=_size(0.75))
        axes.invert_yaxis()  # the first category on top
        axes.axvline(line, color="#444444", lw=0.8)
        axes.set_xlabel(shown.y)
    else:
        axes.set_xticks(range(len(places)), names, fontsize=_size(0.75))
        axes.set_xlim(-0.7, max(len(places), _FEWEST) - 0.3)  # one or two bars are no walls
        axes.axhline(line, color="#444444", lw=0.8)
        axes.set_ylabel(_wrapped(shown.y, _LONGEST_LABEL))
    axes.grid(visible=True, axis="x" if across else "y", color="#e0e0e0", linewidth=0.8)
    axes.set_axisbelow(True)


def _range_marks(axes: Axes, one: Series, at: list[float], across: bool) -> None:
    """The ranges of a series that states no values: a line between two caps at each place, and no bar."""
    import numpy as np

    middles = [(low + high) / 2 for low, high in one.ranges]
    halves = np.array([(high - low) / 2 for low, high in one.ranges])
    drawn: dict[str, Any] = {"x": at, "y": middles, "yerr": halves}
    if across:
        drawn = {"x": middles, "y": at, "xerr": halves}
    axes.errorbar(**drawn, fmt="none", ecolor=PAPER, elinewidth=2, capsize=5, label=printable(one.name))


def _points(axes: Axes, shown: PaperFigure) -> None:
    for number, one in enumerate(shown.series):
        colour = PAPER if one.is_paper else _COLOURS[number % len(_COLOURS)]
        if one.is_range:
            _boxes(axes, one)
            continue
        xs, ys = [float(place) for place, _ in one.values], [value for _, value in one.values]
        line = "-" if one.is_line else "none"
        mark = _PAPER_MARKS[number % len(_PAPER_MARKS)] if one.is_paper else _MARKS[number % len(_MARKS)]
        size = 9 if len(xs) == 1 and not one.is_paper else 5
        axes.plot(xs, ys, linestyle=line, marker=mark, markersize=size, color=colour, label=printable(one.name))
        for place, value, span in zip(xs, ys, one.ranges, strict=False):
            axes.plot([place, place], span, color=colour, linewidth=2)
            del value
        for value, span in zip(ys, one.spans, strict=False):
            axes.plot(span, [value, value], color=colour, linewidth=2)
    if shown.is_log_x:
        axes.set_xscale("log")
        # matplotlib's own labels of powers are formulas, which are not read here.
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.set_xlabel(shown.x)
    axes.set_ylabel(_wrapped(shown.y, _LONGEST_LABEL))
    axes.margins(0.08)
    axes.grid(visible=True, color="#e0e0e0", linewidth=0.8)
    axes.set_axisbelow(True)


def _boxes(axes: Axes, one: Series) -> None:
    """The area that each pair of ranges spans: the paper states no point in it."""
    from matplotlib.patches import Rectangle

    for number, ((low, high), (left, right)) in enumerate(zip(one.ranges, one.spans, strict=True)):
        look: dict[str, Any] = {"facecolor": "none", "edgecolor": PAPER, "hatch": "///", "linewidth": 1}
        label = printable(one.name) if number == 0 else None
        axes.add_patch(Rectangle((left, low), right - left, high - low, label=label, **look))
        axes.update_datalim([(left, low), (right, high)])
    axes.autoscale_view()


def _cell(value: float | None) -> str:
    if value is None:
        return _MISSING
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _table(axes: Axes, shown: PaperFigure) -> None:
    axes.axis("off")
    rows, papers = _grid(shown)
    if len(rows) == 1:
        return
    (corner, *heads), *others = rows
    names, cells = [row[0] for row in others], [row[1:] for row in others]
    table = axes.table(cells, rowLabels=names, colLabels=heads, loc="center", cellLoc="right", colLoc="right")
    if corner:
        table.add_cell(0, -1, 0.1, 0.1, text=corner, loc="left")
    table.auto_set_font_size(False)
    table.set_fontsize(_size(0.8))
    total = _table_lines(shown)
    for (row, column), cell in table.get_celld().items():
        cell.set_height(_lines(rows[row]) / total)  # so that the table is as high as its axes
        cell.set_linewidth(0.6)
        if (row, column + 1) in papers:
            cell.get_text().set_color(PAPER)


def _grid(shown: PaperFigure) -> tuple[list[list[str]], set[tuple[int, int]]]:
    """The texts of a table, its head and the names of its rows among them, and which of them the paper states.

    A row is a series; where shares were counted here it is a place, and counts and intervals are columns.
    """
    places = _places(shown)
    names = [_wrapped(printable(one.name), 28) for one in shown.series]
    values = [[_cell(_at(one, place)) for place in places] for one in shown.series]
    if not any(one.counts for one in shown.series):
        rows = [["", *places], *([name, *cells] for name, cells in zip(names, values, strict=True))]
        at = [number for number, one in enumerate(shown.series, 1) if one.is_paper]
        return rows, {(row, column) for row in at for column in range(1 + len(places))}
    columns, papers = [[shown.x, *places]], set()
    for one, name, cells in zip(shown.series, names, values, strict=True):
        if one.is_paper:
            papers |= {(row, len(columns)) for row in range(1 + len(places))}
        columns.append([f"{name}:\n{shown.y}", *cells])
        if one.counts:
            found = {str(place): number for number, (place, _) in enumerate(one.values)}
            counted, spans = [f"{name}:\n{one.counted}"], [f"{name}:\n95 % interval"]
            for number in map(found.get, places):
                counted.append(_MISSING if number is None else "{:,} of {:,}".format(*one.counts[number]))
                spans.append(_MISSING if number is None else " to ".join(map(_cell, one.ranges[number])))
            columns += [counted, spans]
    return [list(row) for row in zip(*columns, strict=True)], papers


def _lines(row: list[str]) -> float:
    """The height of a row of a table, in lines of text."""
    return max(text.count("\n") for text in row) + 2.0


def _table_lines(shown: PaperFigure) -> float:
    return sum(map(_lines, _grid(shown)[0]))


def _places(shown: PaperFigure) -> list[str]:
    return list(dict.fromkeys(str(place) for one in shown.series for place, _ in one.values))


_DRAWN = {"bars": _bars, "points": _points, "table": _table}


def _at(one: Series, place: str) -> float | None:
    return next((value for found, value in one.values if str(found) == place), None)


def _wrapped(text: str, width: int = 110) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))


def _fit_tables(plot: Plot) -> None:
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
