"""What a lab holds, read for people: against brute force, and while others write it."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
import multiprocessing
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_runs import curve, end_job

from syno_lab.errors import FormatError, StoreError, SynoError
from syno_lab.jobs.context import job_folder
from syno_lab.jobs.ledger import Ledger
from syno_lab.operators import conv2d
from syno_lab.protocol import SearchStep
from syno_lab.reports import (
    LabReader,
    TrialRow,
    find_axis,
    front_of,
    front_picture,
    front_sketch,
    list_axes,
    published_on,
    published_points,
    read_courses,
    trials_csv,
    trials_frame,
    trials_parquet,
)
from syno_lab.reports.fronts import hypervolume, short_number
from syno_lab.reports.pictures import describe_front
from syno_lab.store import Store
from syno_lab.store.courses import COURSE_FILE, CURVE_FILE, read_course, write_course

OPERATOR = conv2d().to_json()


def row(number: int, accuracy: float | None, flops: int, params: int, **more: Any) -> TrialRow:
    known = {"state": "finished", "reason": "", "is_baseline": False, "label": f"trial {number}"} | more
    return TrialRow(
        key=f"search:s#{number}",
        source="search:s",
        number=number,
        fingerprint=f"f{number}",
        accuracy=accuracy,
        flops=flops,
        params=params,
        **known,
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.77e6, "1.77 M"), (1.5e6, "1.5 M"), (9999.4, "9999"), (12345, "12.35 k"), (0.25, "0.25"), (3e12, "3 T")],
)
def test_numbers_are_written_as_the_page_writes_them(value: float, text: str) -> None:
    assert short_number(value) == text
    assert short_number(-value) == f"-{text}"


# -- fronts ------------------------------------------------------------------------------------------------------------


def beaten(point: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
    """Whether another is as good everywhere and better somewhere; all are costs."""
    return any(
        all(o <= p for o, p in zip(other, point, strict=True)) and tuple(other) != tuple(point) for other in others
    )


def cells(points: Sequence[Sequence[int]], corner: Sequence[int]) -> int:
    """The volume by counting the unit cells that some point dominates; points and corner are whole numbers."""
    return sum(
        any(all(p <= c for p, c in zip(point, cell, strict=True)) for point in points)
        for cell in itertools.product(*(range(limit) for limit in corner))
    )


def test_a_volume_is_that_of_a_case_worked_by_hand() -> None:
    # Up to (4, 4, 4): boxes of 1 x 4 x 2 and 3 x 2 x 2, which share 1 x 2 x 2, and one of 2 x 1 x 3 of which 2 x 1 x 1
    # is in neither, as the second is 2 deep.
    points = np.array([[3.0, 0.0, 2.0], [1.0, 2.0, 2.0], [2.0, 3.0, 1.0]])
    assert hypervolume(points, np.array([4.0, 4.0, 4.0])) == 8 + 12 - 4 + 2
    assert hypervolume(points[:, :2], np.array([4.0, 4.0])) == 4 + 6 - 2
    assert hypervolume(np.empty((0, 3)), np.ones(3)) == 0


@settings(max_examples=60)
@given(st.integers(2, 4), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_volumes_are_those_of_inclusion_and_exclusion(axes: int, number: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    limit = chance.normal(size=axes)
    points = limit - chance.exponential(size=(number, axes))
    points[chance.random(points.shape) < 0.2] -= 1.0
    points[:, 0] = np.where(chance.random(number) < 0.3, limit[0], points[:, 0])  # on the border: no volume
    points[0] = points[-1]
    worth = math.fsum(
        (-1.0) ** (size + 1) * float(np.prod(limit - points[list(some)].max(axis=0)))
        for size in range(1, number + 1)
        for some in itertools.combinations(range(number), size)
    )
    assert hypervolume(points, limit) == pytest.approx(worth, rel=1e-9, abs=1e-9)


@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), max_size=12), st.booleans())
def test_fronts_and_volumes_are_those_of_brute_force(costs: list[tuple[int, int, int]], has_third: bool) -> None:
    # Accuracy counts the other way round, in steps of 1 from 6 down.
    rows = [row(n, float(6 - a), b, c) for n, (a, b, c) in enumerate(costs)]
    axes = ["accuracy", "flops", "params"][: 3 if has_third else 2]
    points = [cost[: len(axes)] for cost in costs]
    corner = [6] * len(axes)
    found = front_of(rows, axes, reference=[0, 6, 6][: len(axes)])
    assert {found.points[place].key for place in found.front} == {
        f"search:s#{n}" for n, point in enumerate(points) if not beaten(point, points)
    }
    assert found.hypervolume == pytest.approx(cells(points, corner))
    history = dict(found.history)
    for number, _ in enumerate(points, 1):
        so_far = max((n for n in history if n <= number), default=None)
        assert (history[so_far] if so_far else 0) == pytest.approx(cells(points[:number], corner))
    assert [found.points[p].values for p in found.front] == sorted(found.points[p].values for p in found.front)


def test_points_come_in_the_order_in_which_they_ended() -> None:
    rows = [
        row(0, 0.5, 10, 1, ended="2026-01-01T00:00:02"),
        row(1, 0.6, 20, 1, ended="2026-01-01T00:00:01"),
        row(-1, 0.4, 30, 1, is_baseline=True, ended="2027-01-01T00:00:00"),
        row(2, None, 5, 1, state="waiting"),
        row(3, 0.99, 5, 1, state="pruned"),
    ]
    found = front_of(rows, ("flops", "accuracy"))
    assert [point.label for point in found.points] == ["trial -1", "trial 1", "trial 0"]
    assert found.unplaced == 2, "an accuracy of a training that did not finish is another measure"
    assert [n for n, _ in found.history] == [1, 2, 3]
    assert found.reference == (pytest.approx(32.0), pytest.approx(0.38)), "a tenth of the range beyond the worst"


def test_against_the_baseline() -> None:
    base = row(-1, 0.5, 100, 40, is_baseline=True, latencies={"cpu": 8.0})
    rows = [base, row(0, 0.49, 25, 10, latencies={"cpu": 2.0}), row(1, 0.6, 50, 20)]
    found = front_of(rows, ("latency_ms@cpu", "accuracy"), baselines={"search:s": base})
    assert [point.values for point in found.points] == [(1.0, 0.0), (0.25, pytest.approx(-1.0))]
    assert [axis.unit for axis in found.axes] == ["", "percentage points"]
    assert front_of(rows, ("flops", "accuracy"), baselines={}).points == ()


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (("flops",), "two or three different axes, found flops"),
        (("flops", "flops"), "two or three different axes"),
        (("accuracy", "flops", "params", "memory_mib"), "two or three different axes"),
        (
            ("accuracy", "speed"),
            "no axis 'speed': expected one of accuracy, flops, params, memory_mib, probe, accuracy@RUNG or latency_ms@",
        ),
        (("accuracy", "latency_ms@"), "no axis 'latency_ms@'"),
    ],
)
def test_axes_are_checked(axes: tuple[str, ...], said: str) -> None:
    with pytest.raises(SynoError, match=said):
        front_of([], axes)
    with pytest.raises(SynoError, match="reference: expected 2 values, found 1"):
        front_of([], ("accuracy", "flops"), reference=[1.0])
    assert [axis.name for axis in list_axes(["b", "a"])] == [
        "accuracy",
        "latency_ms@b",
        "latency_ms@a",
        "flops",
        "params",
        "memory_mib",
        "probe",
    ]


# -- what a store holds ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A lab with a search of three trials and its baseline's trainings, and a job under way."""
    with Store.open(tmp_path) as store:
        log = store.search("s", {"seed": 1})
        for number in range(3):
            log.add(f"fp{number}", OPERATOR, [SearchStep("REDUCE(k)", ("REDUCE(k)",))], 100 - number, 50 + number)
        log.record(0, {"state": "finished", "accuracy": 0.5, "wall_s": 2.0, "peak_mib": 33.0, "curve": []}, job=7)
        log.record(1, {"state": "diverged", "reason": "no number", "accuracy": 0.1})
        log.record_latency(0, "cpu", {"latency_ms": 1.5})
        log.record_latency(0, "gpu", {"latency_ms": 0.5})
        ledger = Ledger(store.database)
        outcome = {"state": "finished", "flops": 400, "params": 90, "peak_mib": 40.0, "wall_s": 1.0}
        for seed, accuracy in enumerate((0.6, 0.8)):
            end_job(
                ledger,
                "train",
                f"s: baseline, seed {seed}",
                {**outcome, "accuracy": accuracy, "curve": curve(2, last=0.2)},
            )
        ledger.submit("train", {}, resources={}, name="s: trial 2")
    place = tmp_path / "searches" / "s"
    place.mkdir(parents=True)
    tuning = {"target": "cpu", "stored_as": "cpu", "baseline_ms": 6.0}
    (place / "status.json").write_text(json.dumps({"tuning": tuning}))
    return tmp_path


def test_searches_become_rows(folder: Path) -> None:
    with LabReader(folder) as reader:
        reading = reader.read()
    assert {source.key for source in reading.sources} == {"search:s"}
    assert set(reading.targets) == {"cpu", "gpu"}
    base, zero, one, two = reading.of("s")
    assert (base.key, base.is_baseline, base.accuracy, base.flops, base.params) == (
        "search:s#baseline",
        True,
        pytest.approx(0.7),
        400,
        90,
    )
    assert (base.latencies, base.memory_mib, base.reason) == ({"cpu": 6.0}, 40.0, "mean of 2 seeds")
    assert (zero.key, zero.state, zero.accuracy, zero.memory_mib, zero.job) == ("search:s#0", "finished", 0.5, 33.0, 7)
    assert zero.latencies == {"cpu": 1.5, "gpu": 0.5}
    assert zero.primitives == "REDUCE SHARE UNFOLD"
    assert (one.state, one.reason, two.state, two.accuracy) == ("diverged", "no number", "waiting", None)
    with pytest.raises(StoreError, match="no trial 'x' in "):
        reading.row("x")
    with pytest.raises(StoreError, match=r"no search 'x' in .*: there is search:s"):
        reading.of("x")


def test_a_search_of_one_process_has_its_baseline_from_its_result(folder: Path) -> None:
    with Store.open(folder) as store:
        store.search("alone", {}).add("fp", OPERATOR, [], 5, 5)
    place = folder / "searches" / "alone"
    place.mkdir()
    with LabReader(folder) as reader:
        assert reader.read().sources[-1].baseline is None
    (place / "result.json").write_text(json.dumps({"baseline": {"accuracy": 0.9, "flops": 7, "params": 8}}))
    with LabReader(folder) as reader:
        baseline = reader.read().sources[-1].baseline
    assert baseline is not None
    assert (baseline.accuracy, baseline.flops, baseline.params) == (0.9, 7, 8)


def digests(folder: Path) -> dict[str, str]:
    kept = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal")))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def test_reading_changes_nothing_and_notices_every_change(folder: Path) -> None:
    before = digests(folder)
    with LabReader(folder) as reader:
        first = reader.read()
        assert reader.read() is first, "nothing has changed"
        assert digests(folder) == before
        with Store.open(folder) as store:
            store.search("s").record(2, {"state": "finished", "accuracy": 0.9})
        assert reader.read().row("search:s#2").accuracy == 0.9
    with Store.look(folder) as store, pytest.raises(StoreError, match="readonly"):
        store.search("s").record_latency(0, "gpu", {"latency_ms": 1.0})


def test_a_store_that_goes_and_comes_back(folder: Path, tmp_path: Path) -> None:
    file = folder / "results.sqlite"
    with LabReader(file) as reader:
        assert len(reader.read().rows) == 4
        away = file.with_name("away")
        file.rename(away)
        with pytest.raises(StoreError, match=r"the results store .*results.sqlite is not there"):
            reader.read()
        file.write_bytes(b"something else" * 100)
        with pytest.raises(StoreError, match="is damaged or no Syno Lab store"):
            reader.read()
        away.replace(file)
        assert len(reader.read().rows) == 4
    with pytest.raises(StoreError, match=r"nowhere/results\.sqlite is not there"):
        LabReader(tmp_path / "nowhere").read()
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(StoreError, match="is not there: expected the folder of a lab"):
        Store.look(tmp_path / "nowhere")


def _write(folder: str, count: int) -> None:
    with Store.open(folder) as store:
        log = store.search("busy", {})
        for number in range(count):
            log.add(f"fp{number}", OPERATOR, [], 100, 50)
            log.record(number, {"state": "finished", "accuracy": 0.5})


def test_while_another_process_writes(folder: Path) -> None:
    """Every reading is a state that was: trials in order, each known once; the writer is not held up."""
    process = multiprocessing.get_context("spawn").Process(target=_write, args=(str(folder), 60))
    process.start()
    seen = [0]
    try:
        with LabReader(folder) as reader:
            while process.is_alive() or seen[-1] < 60:
                reading = reader.read()
                numbers = [one.number for one in reading.rows if one.source == "search:busy"]
                assert numbers == list(range(len(numbers)))
                assert len(numbers) >= seen[-1]
                seen.append(len(numbers))
                assert process.exitcode in (None, 0)
    finally:
        process.join(120)
    assert process.exitcode == 0


# -- curves ------------------------------------------------------------------------------------------------------------


def test_courses_of_what_goes_on_and_what_has_ended(folder: Path) -> None:
    with Store.open(folder) as store:
        ledger = Ledger(store.database)
        going = ledger.submit("tune", {}, resources={}, name="going")
        history = [[1, 9.0], [2, 4.0]]
        both = {
            "results": [
                {"label": "a", "history": history},
                {"label": "b", "history": []},
                {"label": "c", "history": history},
            ]
        }
        end_job(ledger, "tune", "ended", both)
    trained = job_folder(folder, 3)
    for place in (trained, job_folder(folder, going)):
        place.mkdir(parents=True)
    write_course(trained / CURVE_FILE, curve(3, last=0.375))
    write_course(job_folder(folder, going) / COURSE_FILE, {"one": [[1, 5.0], [3, None], "x"]})
    with LabReader(folder) as reader:
        reading = reader.read()
    courses = read_courses(reading.jobs, folder)
    assert [(c.name, c.kind, c.points) for c in courses] == [
        ("s: trial 2", "train", ((1.0, 0.125), (2.0, 0.25), (3.0, 0.375))),
        ("s: baseline, seed 1", "train", ((1.0, 0.1), (2.0, 0.2))),
        ("s: baseline, seed 0", "train", ((1.0, 0.1), (2.0, 0.2))),
        ("ended: a", "tune", ((1.0, 9.0), (2.0, 4.0))),
        ("ended: c", "tune", ((1.0, 9.0), (2.0, 4.0))),
        ("going", "tune", ((1.0, 5.0),)),
    ]
    assert courses[0].losses == ((1.0, 2.0, 3.0), (2.0, 1.0, 1.5), (3.0, pytest.approx(2 / 3), 1.0))
    assert len(read_courses(reading.jobs, folder, newest=1)) == 2
    for junk in ('{"a"', "3", '[1, {"epoch": "x"}]', '{"epoch": 1}'):
        (trained / CURVE_FILE).write_text(junk)
        assert next(c.name for c in read_courses(reading.jobs, folder)) == "s: baseline, seed 1"


def test_a_course_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    write_course(tmp_path / "not there" / "x.json", [1])
    assert read_course(tmp_path / "not there" / "x.json") is None
    write_course(tmp_path / "x.json", [1])
    assert read_course(tmp_path / "x.json") == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


# -- what leaves -------------------------------------------------------------------------------------------------------


def test_tables_hold_what_the_rows_hold(folder: Path) -> None:
    with LabReader(folder) as reader:
        reading = reader.read()
    rows = reading.rows
    frame = trials_frame(rows, reading.targets, {"search:s#0"})
    measured = frame.set_index("label")["latency_ms@cpu"]
    assert measured.dropna().to_dict() == {"baseline": 6.0, "trial 0": 1.5}
    assert frame.loc[frame["on_front"], "label"].tolist() == ["trial 0"]
    parquet = pd.read_parquet(io.BytesIO(trials_parquet(rows, reading.targets, {"search:s#0"})))
    pd.testing.assert_frame_equal(parquet, frame, check_dtype=False)
    assert parquet["operator"].tolist() == [one.operator for one in rows]
    csv = pd.read_csv(io.BytesIO(trials_csv(rows, reading.targets)))
    assert "operator" not in csv
    assert csv["label"].tolist() == [one.label for one in rows]
    accuracies = csv.set_index("label")["accuracy"].dropna().to_dict()
    assert accuracies == pytest.approx({"baseline": 0.7, "trial 0": 0.5, "trial 1": 0.1})
    assert len(trials_frame([])) == 0


def test_pictures(np_rng: Any) -> None:
    rows = [row(n, float(a), int(1000 * b), n) for n, (a, b) in enumerate(np_rng.random((30, 2)))]
    base = row(-1, 0.5, 800, 9, is_baseline=True)
    for axes, baselines in ((("flops", "accuracy"), {"search:s": base}), (("flops", "accuracy", "params"), None)):
        front = front_of([base, *rows], axes, baselines=baselines)
        paper = published_on(axes) if baselines else []
        svg = front_picture(front, title="<b>$x$ & \x00", published=paper).decode()
        assert svg.count("<svg") == 1
        assert "&lt;b&gt;$x$ &amp; \N{REPLACEMENT CHARACTER}" in svg
        assert ("as the paper states" in svg) == bool(paper)
        assert front_picture(front, "png").startswith(b"\x89PNG")
        for place in front.front[:3]:
            assert front.points[place].label in describe_front(front, "T")
    empty = front_of([], ("flops", "accuracy"))
    assert "no trial has a value on each axis yet" in front_sketch(empty)
    assert "no trial has a value on each axis yet" in front_picture(empty).decode()
    with pytest.raises(FormatError, match="expected one of svg, png for a picture, found 'pdf'"):
        front_picture(empty, "pdf")


def test_a_sketch_places_points_where_their_values_are() -> None:
    base = row(-1, 0.5, 100, 9, is_baseline=True)
    rows = [base, row(0, 0.25, 50, 9), row(1, 0.75, 0, 9), row(2, 0.5, 25, 9, label="<script>\x00")]
    root = ElementTree.fromstring(front_sketch(front_of(rows, ("flops", "accuracy")), "<b>&"))
    marks = {
        mark.findtext("{*}title"): tuple(map(float, re.findall(r"-?[\d.]+", mark.get("transform", ""))[:2]))
        for mark in root.iter("{http://www.w3.org/2000/svg}path")
        if mark.find("{*}title") is not None
    }
    (x0, y0), (x1, y1), (x2, y2), (x, y) = (
        marks[name] for name in ("trial 1", "trial 0", "trial -1", "<script>\N{REPLACEMENT CHARACTER}")
    )
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert x - x0 == pytest.approx((x1 - x0) / 2, abs=0.2)
    assert y1 - y == pytest.approx(y - y0, abs=0.2)
    assert y2 == y, "equally accurate"
    assert root.get("aria-label", "").startswith("<b>&: 4 trials by FLOPs and accuracy; on the Pareto front: trial 1;")
    relative = front_of(rows, ("flops", "accuracy"), baselines={"search:s": base})
    assert "The paper: Syno, ResNet-34" in front_sketch(relative, published=published_on(("flops", "accuracy")))


# -- the paper ---------------------------------------------------------------------------------------------------------


def test_every_number_of_the_paper_is_in_its_quote() -> None:
    """Each range is written in the sentence it is said to come from, or in the words that bound it."""
    assert len({one.id for one in published_points()}) == len(published_points())
    for one in published_points():
        assert one.place.startswith("section 9.")
        text = " ".join(one.quote)
        numbers = [*(one.speedup or ()), *one.rates, *filter(None, (one.perplexity, one.samples, one.canonical))]
        for value in numbers:
            shown = [f"{value:g}", f"{value:.2f}", f"{value:.4f}"]
            assert any(form in text for form in shown), (one.id, value)
        for ratio in one.flops_ratio or ():
            assert f"{100 * (1 - ratio):.0f}%" in text, one.id
        for points in one.accuracy_points or ():
            assert not points or f"{-points:.0f}%" in text, one.id


def test_the_paper_on_axes() -> None:
    both = published_on(("latency_ms@x", "accuracy"))
    operator_1 = next(one for one in both if one.label == "Operator 1")
    assert operator_1.ranges == ((0.5, 0.5), (-1.0, 0.0))
    assert "ImageNet" in operator_1.text
    assert [one.ranges[0] for one in published_on(("flops", "accuracy"))] == [(0.37,) * 2, (0.63,) * 2, (0.75,) * 2]
    assert published_on(("params", "accuracy")) == []
    assert find_axis("latency_ms@a@b").title == "sum of layers' latencies on a@b"
