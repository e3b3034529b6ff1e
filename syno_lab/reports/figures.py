"""Figures of a lab as :class:`plotly.graph_objects.Figure`, to edit, combine and show in any notebook.

Plotly is imported on use. Plotly's templates ``syno-lab`` and ``syno-lab-dark`` are the style of all figures:
``figure.update_layout(template="syno-lab-dark")``. :meth:`.Front.save` draws for papers, without a browser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal, get_args

from syno_lab.drawing.style import DARK_CHART, GRID, HUES, INK, WHITE
from syno_lab.errors import SpecError, StoreError
from syno_lab.inputs import printable, quoted
from syno_lab.reports.courses import Course, read_courses, rung_courses
from syno_lab.reports.fronts import Front, front_of
from syno_lab.reports.pictures import KNOWN, LOOKS, PAPER, groups_of
from syno_lab.reports.progress import Progress, read_progress, read_result
from syno_lab.reports.searched import searched
from syno_lab.store.verdicts import sentence
from syno_lab.systems import read_operator

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from syno_lab.panes.layers import Places
    from syno_lab.protocol import Operator
    from syno_lab.reports.lab import Reading
    from syno_lab.reports.published import Stated
    from syno_lab.reports.rows import Source
    from syno_lab.versioned import JSON

Subject = Literal["front", "curves", "funnel", "layers", "comparisons"]


def plain(text: str) -> str:
    """Escape a name, so that plotly shows all its letters and reads no markup."""
    return escape(printable(text), quote=False)


def blank(x: str = "", y: str = "", title: str = "") -> Figure:
    """Return an empty figure in the lab's style; ``x`` and ``y`` are the titles of its axes."""
    import plotly.graph_objects as go
    import plotly.io

    for name, ink, ground, line in (("", INK, WHITE, GRID), ("-dark", *DARK_CHART)):
        if f"syno-lab{name}" in plotly.io.templates:
            continue  # a registered template may have the user's changes
        axis = {"gridcolor": line, "linecolor": line, "zerolinecolor": line, "automargin": True}
        look: dict[str, Any] = {"paper_bgcolor": ground, "plot_bgcolor": ground, "xaxis": axis, "yaxis": axis}
        look |= {"colorway": HUES, "font": {"family": "system-ui, sans-serif", "size": 14, "color": ink}}
        look |= {"hovermode": "closest", "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"}}
        plotly.io.templates[f"syno-lab{name}"] = go.layout.Template(layout=look)
    titles = {name: {"text": plain(text)} for name, text in (("title", title), ("xaxis_title", x), ("yaxis_title", y))}
    return go.Figure(layout={"template": "syno-lab"}).update_layout(titles)


def bars_of(values: Sequence[float], spans: Sequence[tuple[float, float] | None]) -> dict[str, Any]:
    """Return plotly's error bars for an interval around each value; None: no bar."""
    pairs = [(value, *(span or (value, value))) for value, span in zip(values, spans, strict=True)]
    bars = {"array": [high - value for value, _, high in pairs], "arrayminus": [value - low for value, low, _ in pairs]}
    return {"type": "data", **bars, "visible": any(span is not None for span in spans)}


def front_figure(front: Front, title: str = "", published: Sequence[Stated] = ()) -> Figure:
    """Return the figure of a front: a trace for each kind of point and system, the front's line, the intervals.

    A third axis is the colour. A point's ``customdata`` is the key of the trial. ``published`` is as for
    :func:`.front_picture`. Raises StoreError where no trial has a value on all axes.
    """
    front.check()
    x, y, *z = front.axes
    figure = blank(x.text, y.text, title)
    best = [front.points[place].values for place in front.front] if not z else []
    line = {"shape": "vh" if x.maximise else "hv", "color": HUES[0], "width": 1.2}
    xs, ys = ([values[side] for values in best] for side in (0, 1))
    figure.add_scatter(x=xs, y=ys, mode="lines", line=line, name="the front", showlegend=False, hoverinfo="skip")
    for (kind, system, mark), points in groups_of(front).items():
        colour, area = LOOKS[kind]
        name = f"{kind}, {plain(system)}" if system and len(front.systems) > 1 else kind
        marker: dict[str, Any] = {"symbol": mark.symbol + "-open" * (kind == KNOWN), "size": 1.4 * area**0.5}
        marker |= {"color": [point.values[2] for point in points], "coloraxis": "coloraxis"} if z else {"color": colour}
        given: dict[str, Any] = {"name": name, "customdata": [point.key for point in points]}
        for side, axis in enumerate("xy"):
            given[axis] = [point.values[side] for point in points]
            given[f"error_{axis}"] = bars_of(given[axis], [(*point.intervals, None, None)[side] for point in points])
        marker["line"] = {"width": 2 if kind == KNOWN else 0}  # a hollow mark shows only its line
        texts, hover = [plain(point.name) for point in points], "%{text}<br>%{x:.4s}, %{y:.4g}<extra></extra>"
        figure.add_scatter(mode="markers", marker=marker, text=texts, hovertemplate=hover, **given)
    if z:
        figure.update_layout(coloraxis={"colorscale": "Viridis", "colorbar": {"title": {"text": plain(z[0].text)}}})
    for statement in published if front.is_relative else ():
        (x0, x1), (y0, y1) = statement.ranges[:2]
        box = {"x": [x0, x1, x1, x0, x0], "y": [y0, y0, y1, y1, y0], "mode": "lines", "fill": "toself"}
        figure.add_scatter(**box, line={"color": PAPER}, name=f"the paper: {plain(statement.text)}")
    return figure


def courses_figure(courses: Sequence[Course]) -> Figure:
    """Return a figure with a trace for each curve; each measure (:attr:`.Course.chart`) has its own plot.

    Raises StoreError where no curve has a point.
    """
    from plotly.subplots import make_subplots

    drawn = [course for course in courses if course.points]
    charts = list(dict.fromkeys(course.chart for course in drawn))
    if not charts:
        raise StoreError("figure of curves: expected a training or tuning with a curve, found none; use more epochs")
    figure = make_subplots(rows=len(charts), subplot_titles=[*map(plain, charts)], figure=blank())
    for course in drawn:
        row, (xs, ys) = 1 + charts.index(course.chart), zip(*course.points, strict=True)
        is_training, name = course.kind == "train", plain(f"{course.name} ({course.state})")
        figure.add_scatter(x=xs, y=ys, line_shape="linear" if is_training else "hv", name=name, row=row, col=1)
        figure.update_xaxes(title_text="epoch" if is_training else "trial", row=row, col=1)
        figure.update_yaxes(title_text="accuracy" if is_training else "ms", row=row, col=1)
    return figure.update_layout(height=120 + 320 * len(charts), legend={"orientation": "v", "y": 1, "yanchor": "top"})


def funnel_figure(progress: Progress) -> Figure:
    """Return the numbers of operators by stage on a logarithmic axis. Raises StoreError before the first draw."""
    names, numbers = [plain(stage.name) for stage in progress.stages], [stage.number for stage in progress.stages]
    if not any(numbers):
        raise StoreError(f"funnel of {progress.name}: expected a drawn operator, found none; wait for the first draws")
    figure = blank("operators", "", f"Funnel of {progress.name}")
    figure.add_bar(x=numbers, y=names, orientation="h", text=[f"{number:,}" for number in numbers])
    return figure.update_layout(xaxis={"type": "log"}, yaxis={"autorange": "reversed"})


def comparisons_figure(result: Mapping[str, JSON]) -> Figure:
    """Return the differences of the finalists from the baseline with their intervals; ``text`` is the verdict.

    Accuracies differ by percentage points, losses by nats. Raises StoreError where the result has no comparison.
    """
    finals = {number: (one, one.by) for number, one in searched(result).finals.items() if one.by is not None}
    if not finals:
        raise StoreError("figure of comparisons: expected a search with finals, found none; give it more minutes")
    is_accuracy = all(one.is_accuracy for one, _ in finals.values())
    scale, measure, unit = (100, "accuracy", "percentage points") if is_accuracy else (1, "loss", "nats")
    figure, xs = blank(f"{measure} against the baseline [{unit}]"), [scale * by.difference for _, by in finals.values()]
    ends = bars_of(xs, [(scale * by.low, scale * by.high) for _, by in finals.values()])
    texts, names = [plain(sentence(one)) for one, _ in finals.values()], [f"trial {number}" for number in finals]
    figure.add_scatter(x=xs, y=names, error_x=ends, mode="markers", text=texts, marker={"size": 11}, name="finals")
    return figure.add_vline(x=0, line={"color": LOOKS["baseline"][0], "dash": "dash"})


def layers_figure(operators: Mapping[str, tuple[Operator, Places]]) -> Figure:
    """Return bars of each named operator's FLOPs in each replaced layer. Raises StoreError without operators."""
    if not any(places for _, places in operators.values()):
        raise StoreError("figure of layers: expected an operator in a layer, found none; name a search with finals")
    figure = blank("layer", "FLOPs for one example")
    for name, (operator, places) in operators.items():
        layers, flops = [plain(layer) for layer, _ in places], [operator.flops(sizes) for _, sizes in places]
        figure.add_bar(x=layers, y=flops, name=plain(name))
    return figure


def lab_figure(reading: Reading, of: Subject, search: str | None, axes: Sequence[str]) -> Figure:
    """Return a figure of a search, by default of the newest; of all searches for ``front`` and ``curves``.

    Raises StoreError where the lab has no such search or value; SynoError for an unknown axis or an unknown ``of``.
    """
    if of not in get_args(Subject):
        raise SpecError(f"figure of a lab: expected one of {', '.join(get_args(Subject))}, found {quoted(of)}")
    rows = reading.of(search)
    named: list[Source] = [one for one in reading.sources if not search or search in (one.key, one.name)]
    if of == "front":
        return front_of(rows, axes).figure(search or "All trials")
    if of == "curves":
        jobs = () if search else read_courses(reading.jobs, reading.folder)
        return courses_figure((*jobs, *rung_courses(named)))
    newest = named[-1].name if named else ""
    if of == "funnel":
        progress = read_progress(reading.folder, newest)
        return funnel_figure(progress or Progress(newest or "a lab without searches", "", 0, None, 1, (), (), ""))
    result = read_result(reading.folder, newest) or {}
    if of == "comparisons":
        return comparisons_figure(result)
    layers: dict[str, tuple[Operator, Places]] = {}
    for number in dict.fromkeys(searched(result).numbers.values()):
        row = reading.row(f"search:{newest}#{number}")
        layers[row.label] = read_operator(row.operator), row.places
    return layers_figure(layers)
