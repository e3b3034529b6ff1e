"""The marks of systems in figures: one shape for each, in matplotlib, as SVG and in the data for the browser."""

from __future__ import annotations

import re
from dataclasses import replace
from math import hypot, pi
from typing import Any
from xml.etree import ElementTree

import pytest
from known_runs import fill_lab

from syno_lab.canvas import known
from syno_lab.canvas.fitted import Fitted
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import conv2d
from syno_lab.reports import LabReader, front_of, front_picture, front_sketch, trials_frame
from syno_lab.reports.marks import BASELINE, MARKS, mark_name, mark_of, system_and_mark
from syno_lab.reports.pictures import describe_front, shape_of
from syno_lab.reports.shown import shown_front, shown_trials
from syno_lab.systems import VARIABLE, all_systems

TEXTS = [conv2d().to_json(), Fitted(known.squeeze_excite()).to_json(), nas_pte_1().to_json()]
AXES = ("flops", "accuracy")


@pytest.fixture
def rows(tmp_path: Any) -> Any:
    fill_lab(tmp_path, 9, texts=TEXTS)
    return LabReader(tmp_path).read().rows


def corners(path: str) -> list[tuple[float, float]]:
    """The corners of an outline of straight lines, whose numbers are absolute."""
    found, at = [], [0.0, 0.0]
    for letter, text in re.findall(r"([MLHV])([^MLHVZ]*)", path):
        numbers = [float(one) for one in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", text)]
        at = {"H": [*numbers, at[1]], "V": [at[0], *numbers]}.get(letter, numbers)
        found.append((at[0], at[1]))
    return found


def test_every_system_has_a_mark_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = [mark_name(system.format) for system in all_systems()]
    assert set(marks) <= set(MARKS)
    assert len(set(marks)) == len(marks)
    assert mark_of("no such mark") == MARKS["circle"]
    assert system_and_mark("") == system_and_mark('{"format": "elsewhere"}') == system_and_mark("{") == ("", "")
    assert system_and_mark(TEXTS[1]) == ("Canvas", "diamond")
    monkeypatch.setenv(VARIABLE, "elsewhere=no_such_module:NAME")
    assert mark_name("elsewhere") == "cross"


@pytest.mark.parametrize("name", ["diamond", "triangle", "square", "cross"])
def test_outlines_have_the_area_of_the_circle(name: str) -> None:
    """By the shoelace formula; none looks larger than another. The numbers are rounded to a thousandth."""
    line = corners(MARKS[name].path)
    area = sum(x * b - a * y for (x, y), (a, b) in zip(line, line[1:] + line[:1], strict=True)) / 2
    assert abs(area) == pytest.approx(pi, abs=0.02)
    assert sum(x for x, _ in line) == pytest.approx(0, abs=0.02)
    assert max(hypot(x, y) for x, y in line) < 2  # the legend's box


def test_both_systems_are_in_one_figure_with_a_legend(rows: Any) -> None:
    front = front_of(rows, AXES)
    assert front.systems == {"pGraphs": "circle", "Canvas": "diamond", "NAS-PTE": "triangle"}
    by_key = {row.key: row for row in rows}
    for point in front.points:
        wanted = BASELINE if point.is_baseline else MARKS[front.systems[by_key[point.key].system]]
        assert shape_of(point) == wanted

    svg = ElementTree.fromstring(front_sketch(front))
    drawn = [
        path.get("d") for path in svg.iter("{http://www.w3.org/2000/svg}path") if path.find("{*}title") is not None
    ]
    for title, mark in front.systems.items():
        number = sum(point.system == title for point in front.points)
        assert drawn.count(MARKS[mark].path) == number + 1, "the points, and one in the legend"
    assert drawn.count(BASELINE.path) == 1
    written = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in written if text in front.systems] == list(front.systems)
    assert "Trials by system: 3 of pGraphs (circle), 3 of Canvas (diamond), " in describe_front(front, "T")

    picture = front_picture(front).decode()
    assert all(f">{title}</text>" in picture for title in (*front.systems, "baseline", "on the front"))
    shown = shown_front(front, "T")
    assert [shown["outlines"][place] for place in shown["marks"]] == [shape_of(point).path for point in front.points]
    assert [one["title"] for one in shown["legend"]] == list(front.systems)
    assert shown["systems"] == [point.system for point in front.points]


def test_one_system_needs_no_legend(rows: Any) -> None:
    alone = front_of([row for row in rows if row.is_baseline or row.system == "Canvas"], AXES)
    assert alone.systems == {"Canvas": "diamond"}
    assert "by system" not in describe_front(alone, "T")
    assert ">Canvas</text>" not in front_sketch(alone) + front_picture(alone).decode()


def test_tables_name_the_system(rows: Any) -> None:
    frame = trials_frame(rows)
    assert set(frame["system"]) == {"", "pGraphs", "Canvas", "NAS-PTE"}
    canvas = frame[frame["system"] == "Canvas"]
    assert set(canvas["primitives"]) == {"fold_avg fc relu sigmoid mul"}
    column = next(one for one in shown_trials(rows, ())["columns"] if one["name"] == "system")
    assert column["values"] == [row.system for row in rows]


def test_operators_that_nobody_reads_are_circles(rows: Any) -> None:
    strange = [replace(row, operator=row.operator and '{"format": "elsewhere"}') for row in rows]
    front = front_of(strange, AXES)
    assert front.systems == {}
    assert {shape_of(point) for point in front.points} == {MARKS["circle"], BASELINE}
    assert front_picture(front, "png").startswith(b"\x89PNG")
