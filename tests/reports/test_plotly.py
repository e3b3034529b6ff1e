"""Figures of plotly: their data are the lab's rows, no name is markup, and without a value there is one line."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import plotly.io
import pytest
from known_rungs import BASE, FIRST, TRIALS, fill_rungs
from known_runs import fill_lab
from reproduction.paper import PaperFigure, Series, figure_6, figure_10, table_2
from reproduction.paper.drawing import plotly_figure

import syno_lab as sl
from syno_lab.errors import SpecError, StoreError
from syno_lab.operators import conv2d
from syno_lab.reports import LabReader, front_of
from syno_lab.reports.figures import comparisons_figure, courses_figure, front_figure, layers_figure
from syno_lab.reports.pictures import KNOWN
from syno_lab.reports.progress import finals_table, title
from syno_lab.reports.published import Stated
from syno_lab.store import Store
from tests.reports.test_figures import HOSTILE, front


def points_of(figure: Any) -> dict[str, tuple[float, float]]:
    """The place of each trial in a figure, by its key."""
    marks = [trace for trace in figure.data if trace.customdata]
    return {key: (x, y) for mark in marks for key, x, y in zip(mark.customdata, mark.x, mark.y, strict=True)}


@pytest.mark.parametrize("axes", [("flops", "accuracy"), ("latency_ms@cpu", "accuracy", "params")])
def test_a_fronts_figure_has_its_points(rng: Random, axes: tuple[str, ...]) -> None:
    shown = front(rng, 40, systems=4, axes=axes)
    unread = shown.points[2]._replace(system="", mark="")  # an operator that no system here can read
    shown = shown._replace(points=(*shown.points[:2], unread, *shown.points[3:]))
    figure = shown.figure("<b>T</b>")
    assert points_of(figure) == {point.key: point.values[:2] for point in shown.points}
    by_key = {point.key: point for point in shown.points}
    for trace in figure.data:
        for at, key in enumerate(trace.customdata or ()):
            point = by_key[key]
            assert trace.text[at] == point.name.replace("&", "&amp;")
            assert (trace.name == "baseline") == point.is_baseline
            assert trace.name.split(", ")[1:] == [point.system] * bool(point.system and not point.is_baseline)
            assert trace.marker.symbol.startswith("star" if point.is_baseline else point.mark or "circle")
            assert trace.name.startswith(KNOWN) == bool(point.known and not point.is_baseline)
            if len(axes) == 3:
                assert trace.marker.color[at] == point.values[2]
            elif point.intervals:
                low, high = point.intervals[1] or (point.values[1],) * 2
                ends = trace.y[at] - trace.error_y.arrayminus[at], trace.y[at] + trace.error_y.array[at]
                assert ends == pytest.approx((low, high))
    line = figure.data[0]
    best = [shown.points[at].values[:2] for at in shown.front] if len(axes) == 2 else []
    assert list(zip(line.x, line.y, strict=True)) == best
    assert figure.layout.title.text == "&lt;b&gt;T&lt;/b&gt;"
    assert figure.layout.xaxis.title.text == shown.axes[0].text
    assert shown.points[1].known == HOSTILE


@pytest.mark.parametrize("is_relative", [True, False])
def test_the_papers_statements_are_areas_of_a_relative_front(rng: Random, is_relative: bool) -> None:
    stated = Stated("<i>op</i>", "<i>op</i> (§9)", ((0.25, 0.5), (-1.0, 0.0)))
    drawn = front_figure(front(rng, 5)._replace(is_relative=is_relative), published=[stated]).data
    areas = [trace for trace in drawn if trace.fill == "toself"]
    assert len(areas) == is_relative
    for area in areas:
        assert area.name == "the paper: &lt;i&gt;op&lt;/i&gt; (§9)"
        corners = {(0.25, -1.0), (0.5, -1.0), (0.5, 0.0), (0.25, 0.0)}
        assert set(zip(area.x, area.y, strict=True)) == corners


def test_the_figures_of_a_lab_are_its_rows(tmp_path: Path) -> None:
    result = fill_rungs(tmp_path)
    lab = sl.open_lab(tmp_path)
    rows = {row["source"] + "#" + row["label"].removeprefix("trial "): row for _, row in lab.trials().iterrows()}
    rung = f"accuracy@{FIRST}"
    placed = points_of(lab.figure("front", "rungs", ("flops", rung)))
    assert placed == {key: (row["flops"], row[rung]) for key, row in rows.items() if row[rung] == row[rung]}
    assert len(placed) == 1 + len(TRIALS), "the baseline too"
    assert points_of(lab.pareto("rungs", ("flops", rung)).figure()) == placed

    bars, funnel = lab.figure("funnel").data[0], result["funnel"]
    wanted = {name: number for name, number in funnel["draws"].items() if name != "seconds"}
    wanted |= {title(name): counts["trained"] for name, counts in funnel["rungs"].items()}
    assert dict(zip(bars.y, bars.x, strict=True)) == wanted

    marks = lab.figure("comparisons").data[0]
    assert list(marks.y) == ["trial 0", "trial 1"]
    assert {*marks.text} == {row[-1] for row in finals_table(result).rows if row[-1]}
    assert list(marks.x) == pytest.approx([-1.5, -3.7])
    assert [x + up for x, up in zip(marks.x, marks.error_x.array, strict=True)] == pytest.approx([-0.2, -1.9])
    assert [x - down for x, down in zip(marks.x, marks.error_x.arrayminus, strict=True)] == pytest.approx([-2.8, -5.5])

    assert lab.figure("comparisons").layout.xaxis.title.text == "accuracy against the baseline [percentage points]"
    in_nats = {name: one | {"measure": "loss"} for name, one in result["comparisons"].items()}
    losses = comparisons_figure(result | {"comparisons": in_nats})
    assert list(losses.data[0].x) == pytest.approx([-0.015, -0.037])
    assert losses.layout.xaxis.title.text == "loss against the baseline [nats]"

    curves = lab.figure("curves")
    ends = sorted(trace.y[-1] for trace in curves.data)
    finals = [value for _, accuracies in TRIALS for value in accuracies[4:]]
    network = [accuracies[3] for _, accuracies in TRIALS if len(accuracies) > 3]
    assert ends == sorted([*finals, *network, *BASE[2:]])
    assert curves.layout.yaxis2.title.text == "accuracy"


def test_bars_of_layers_are_the_operators_flops() -> None:
    sizes = {"N": 1, "C_in": 8, "C_out": 16, "H": 10, "W": 10, "k": 3}
    given = conv2d()
    places = (("layer <i>", {name: sizes.get(name, 3) for name in given.variables}),)
    (bar,) = layers_figure({"a": (given, places)}).data
    assert list(bar.x) == ["layer &lt;i&gt;"]
    assert list(bar.y) == [2 * 8 * 16 * 9 * 100]


@pytest.mark.parametrize("make", [figure_6, figure_10])
def test_the_papers_figures_have_their_series(make: Any) -> None:
    shown: PaperFigure = make()
    drawn = {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in shown.figure().data}
    wanted = {one.name.replace("<", "&lt;"): list(one.values) for one in shown.series}
    assert drawn == wanted


def test_a_place_of_a_papers_figure_is_no_markup() -> None:
    shown = PaperFigure("figure_5", "t", "bars", "x", "y", (Series("s", ((HOSTILE, 1.0), ("<b>a</b>", 2.0))),), "")
    (drawn,) = shown.figure().data
    assert drawn.x[0] == HOSTILE.replace("&", "&amp;")
    assert drawn.x[1] == "&lt;b&gt;a&lt;/b&gt;"


def test_a_table_of_the_paper_is_a_table() -> None:
    (drawn,) = table_2().figure().data
    assert len(drawn.header["values"]) == len(drawn.cells["values"]) > 1


def test_a_style_that_the_user_changed_stays(rng: Random) -> None:
    shown = front(rng, 3)
    shown.figure()
    style = plotly.io.templates["syno-lab"]
    given = style.layout.font.size
    try:
        style.layout.font.size = 30
        figure = shown.figure()
        assert figure.layout.template.layout.font.size == 30
    finally:
        style.layout.font.size = given
    light = figure.layout.template.layout.paper_bgcolor
    assert figure.update_layout(template="syno-lab-dark").layout.template.layout.paper_bgcolor != light


def test_a_figure_without_a_value_is_one_line(tmp_path: Path) -> None:
    fill_lab(tmp_path, 3)
    lab = sl.open_lab(tmp_path)
    nothing = front_of([], ("flops", "accuracy"))
    with pytest.raises(StoreError, match=r"^figure of FLOPs and accuracy: expected a trial .*; choose other axes"):
        nothing.figure()
    with pytest.raises(
        StoreError, match=r"^figure of FLOPs and accuracy: expected a trial .*, or train operators first$"
    ):
        nothing.save(tmp_path / "front.pdf")
    assert not (tmp_path / "front.pdf").exists()
    with pytest.raises(StoreError, match=r"^funnel of known: expected a drawn operator, found none"):
        lab.figure("funnel")
    assert set(points_of(lab.figure("front", ""))) == set(points_of(lab.figure("front"))), "empty: all searches"
    with pytest.raises(StoreError, match=r"^funnel of known: expected a drawn operator"):
        lab.figure("funnel", "")
    (tmp_path / "empty").mkdir()
    Store.open(tmp_path / "empty").close()
    with pytest.raises(StoreError, match=r"^funnel of a lab without searches: expected a drawn operator, found none"):
        sl.open_lab(tmp_path / "empty").figure("funnel")
    with pytest.raises(StoreError, match=r"^figure of comparisons: expected a search with finals, found none"):
        lab.figure("comparisons")
    with pytest.raises(StoreError, match=r"^figure of layers: expected an operator in a layer, found none"):
        lab.figure("layers")
    with pytest.raises(SpecError, match=r"^figure of a lab: expected one of front, .*, comparisons, found 'loss'$"):
        lab.figure("loss")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=r"^figure of curves: expected a training or tuning with a curve, found none"):
        courses_figure([])
    with pytest.raises(StoreError, match=r"^figure_5: expected a value to draw, found none; give a lab"):
        plotly_figure(PaperFigure("figure_5", "t", "bars", "x", "y", (Series("s", ()),), ""))
    with LabReader(tmp_path) as reader:
        assert front_of(reader.read().rows, ("flops", "accuracy")).save(tmp_path / "a.pdf").read_bytes()[:4] == b"%PDF"
