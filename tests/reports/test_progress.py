"""The plan, the funnel and the finals of a search in rungs: what people read of them, and no mixing of rungs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import answered
from hypothesis import given
from hypothesis import strategies as st
from known_rungs import BASE, FIRST, KNOWN, NETWORK, SECOND, TRIALS, fill_rungs

from syno_lab.commands.search_rungs import PlanTeller, say_rungs, say_untrained
from syno_lab.experiments.improve import _Streamer
from syno_lab.experiments.settings import SearchSettings
from syno_lab.operators import conv2d
from syno_lab.reports import LabReader, Reading, front_of, front_picture, front_sketch, rung_courses, trials_frame
from syno_lab.reports.pictures import KNOWN as KNOWN_MARK
from syno_lab.reports.pictures import describe_front, kinds_of
from syno_lab.reports.progress import (
    describe_funnel,
    finals_table,
    front_points,
    funnel_picture,
    funnel_table,
    headline,
    plan_table,
    progress_of,
    read_progress,
)
from syno_lab.reports.searched import Baseline, Counts, Funnel, Plan, PlanPart, Point, searched
from syno_lab.reports.shown import find_progress, shown_courses, shown_finals, shown_front, shown_trials, usual_measure
from syno_lab.reports.text_tables import table_text
from syno_lab.reports.why import read_why, why_tables
from syno_lab.store import Store
from syno_lab.trial import TrialRequest

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    fill_rungs(tmp_path)
    return tmp_path


@pytest.fixture
def reading(lab: Path) -> Reading:
    with LabReader(lab) as reader:
        return reader.read()


# -- the plan and the funnel ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_done", [False, True], ids=["under way", "done"])
def test_what_people_read(tmp_path: Path, golden: Callable[[str, str], None], is_done: bool) -> None:
    found = fill_rungs(tmp_path, is_done=is_done)
    progress = read_progress(tmp_path, "rungs")
    assert progress is not None
    tables = [plan_table(progress), funnel_table(progress)] + ([finals_table(found)] if is_done else [])
    text = "\n\n".join([headline(progress), describe_funnel(progress), *map(table_text, tables)])
    golden(f"progress/{'done' if is_done else 'under_way'}.txt", text + "\n")


def test_the_picture_is_the_funnel(lab: Path) -> None:
    progress = read_progress(lab, "rungs")
    assert progress is not None
    svg = "{http://www.w3.org/2000/svg}"
    drawn = ElementTree.fromstring(funnel_picture(progress))
    assert drawn.get("aria-label") == describe_funnel(progress)
    bars = drawn.findall(f"{svg}rect")
    assert [bar.findtext(f"{svg}title") for bar in bars] == [stage.name for stage in progress.stages]
    # A later stage has no more operators, so no bar is longer than the one above it.
    lengths = [float(bar.get("width") or 0) for bar in bars]
    assert lengths == sorted(lengths, reverse=True)
    texts = [text.text or "" for text in drawn.findall(f"{svg}text")]
    for stage in progress.stages:
        assert any(text.startswith(f"{stage.number:,}") for text in texts)


def test_the_order_is_that_of_the_plan(lab: Path) -> None:
    """A result that was a job's comes back with its names sorted."""
    result = json.loads(json.dumps(json.loads((lab / "searches/rungs/result.json").read_text()), sort_keys=True))
    progress = progress_of(result, "rungs")
    assert progress is not None
    names = [stage.name for stage in progress.stages if stage.is_trained]
    assert names == [FIRST, SECOND, NETWORK, "more seeds", "finals"]


@given(
    st.dictionaries(
        st.sampled_from(["plan", "funnel", "time", "phase", "search_s", "front", "best", "finalists"]), JSON
    )
)
def test_any_file_is_read(found: dict[str, Any]) -> None:
    """The files of a lab from somebody else may hold anything."""
    for given_ in (found, found | {"funnel": {"draws": found.get("plan"), "rungs": found}}):
        progress = progress_of(given_, "any")
        table_text(finals_table(given_))
        if progress is not None:
            ElementTree.fromstring(funnel_picture(progress))
            table_text(plan_table(progress))
            table_text(funnel_table(progress))
            assert headline(progress).isprintable()


def test_what_is_wrong_in_one_place_is_lost_there_alone() -> None:
    final = {"baseline": 0.5, "operator": 0.49, "interval": {"difference": -0.01, "low": -0.02, "high": 0.01}}
    rung = {"begun": 2, "trained": 2, "seconds": 5.0}
    found = searched(
        {
            "finalists": {"0.4": 3, "0.25": "three"},
            "comparisons": {"0.4": final, "0.25": 7, "known": final | {"interval": {"low": None}}},
            "best": {"0.25": {"number": 4, "params": "few"}},
            "baseline": {"accuracy": 0.5, "accuracies": "all", "params": 8},
            "plan": {
                "minutes": 3,
                "parts": [{"name": "draws", "seconds": 4}, {"name": 4}, {"name": "final", "each_s": []}],
            },
            "funnel": {
                "draws": {"drawn": 9, "probed": None},
                "rungs": {"small": rung, "final": rung | {"begun": "two"}},
            },
            "recorded": [{"number": 0, "known": "conv2d"}, {"number": "one"}, 2],
        }
    )
    assert found.numbers == {"0.4": 3, "0.25": 4}
    assert set(found.comparisons) == {"0.4", "known"}
    assert found.finals[3].texts == ("-1.0 points", "-2.0 to +1.0")
    assert (found.comparisons["known"].operator, found.comparisons["known"].by) == (0.49, None)
    assert found.baseline == Baseline(accuracy=0.5, params=8)
    assert found.plan == Plan(3, 1, (PlanPart("draws", seconds=4), PlanPart("final")))
    assert found.funnel == Funnel({"drawn": 9}, {"small": Counts(2, 2, 0, 5.0), "final": Counts(0, 2, 0, 5.0)})
    assert found.known_names == {0: "conv2d"}


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6) | st.none()), max_size=12), st.data())
def test_the_front_has_what_nothing_dominates_and_the_finalists(pairs: list[tuple[int, int | None]], data: Any) -> None:
    """Against brute force; each trial is in one row at most, and equal trials share a row unless they had finals."""
    points = [Point(number=at, replaced_ratio=r / 10, accuracy=a and a / 10) for at, (r, a) in enumerate(pairs)]
    finals = data.draw(st.sets(st.sampled_from(range(len(points))))) if points else set()

    def beats(a: Point, b: Point) -> bool:
        assert a.accuracy is not None
        assert b.accuracy is not None
        return (
            a != b
            and a.accuracy >= b.accuracy
            and a.ratio <= b.ratio
            and (a.accuracy, a.ratio) != (b.accuracy, b.ratio)
        )

    trained = [point for point in points if point.accuracy is not None]
    wanted = {b.number for b in trained if not any(beats(a, b) for a in trained)} | finals
    groups = front_points(points, finals, is_whole=False)
    assert sorted(point.number for group in groups for point in group) == sorted(wanted)
    assert [group[0].ratio for group in groups] == sorted(group[0].ratio for group in groups)
    alone = [(g[0].ratio, g[0].accuracy) for g in groups if g[0].number not in finals]
    assert len(alone) == len(set(alone)), "ties are joined"
    whole = front_points(points, finals, is_whole=True)
    assert sorted(point.number for group in whole for point in group) == list(range(len(points)))


def test_a_long_front_is_short_unless_all_is_asked_for() -> None:
    result = {"front": [{"number": n, "accuracy": 0.5, "replaced_ratio": 0.1 + (n > 4)} for n in range(30)]}
    table = finals_table(result)
    assert [row[0] for row in table.rows] == ["baseline", "trial 0, trial 1, trial 2 and 2 more"]
    assert table.title.endswith("; 25 dominated trials are left out (shown with --all)")
    assert len(finals_table(result, is_whole=True).rows) == 3
    assert "left out" not in finals_table(result, is_whole=True).title


def test_the_log_of_improve_has_a_line_for_each_change_of_the_front(tmp_path: Path) -> None:
    fill_rungs(tmp_path)
    said: list[str] = []
    streamer = _Streamer(
        tmp_path,
        SearchSettings(training=TrialRequest(backbone="resnet20", data="digits"), name="rungs", minutes=1),
        said.append,
    )
    assert streamer._front(FIRST) == (
        "front on 40 steps (accuracy): trial 1 0.310 at 0.18 of the FLOPs; trial 2 0.200 at 0.11 of the FLOPs"
    ).replace("trial 1 ", "trial 1 (separable) ")
    assert streamer._front(FIRST) == "", "nothing has changed"
    with Store.open(tmp_path) as store:
        log = store.search("rungs")
        for accuracy, flops in ((0.20, 9_000_000), (0.40, 15_000_000)):  # a tie, and a change
            number = log.add(f"fp {accuracy}", conv2d().to_json(), [], flops, 1)
            log.record(number, {"state": "finished", "accuracy": accuracy})
            log.rungs.queue(number, FIRST, 0, 1)
            one = log.rungs.take("known")
            assert one is not None
            log.rungs.record(one, {"state": "finished", "accuracy": accuracy}, accuracy)
    assert streamer._front(FIRST) == (
        "front on 40 steps (accuracy): trial 6 0.400 at 0.18 of the FLOPs, instead of trial 1 (separable)"
    )


def test_other_searches_have_none(lab: Path) -> None:
    with Store.open(lab) as store:
        store.search("later", {})
    with LabReader(lab) as reader:
        reading = reader.read()
    assert find_progress(reading, "search:later") is None
    found = find_progress(reading, "")
    assert found is not None
    assert found[0].name == "rungs"
    for name in ("../rungs", "..", "", "nobody"):
        assert read_progress(lab, name) is None


# -- rungs are not mixed ----------------------------------------------------------------------------------------------


def test_accuracy_is_that_of_the_finals(reading: Reading) -> None:
    rows = {row.number: row for row in reading.rows}
    assert rows[-1].accuracy == pytest.approx(sum(BASE[2:]) / 2)
    assert rows[0].accuracy == pytest.approx(0.475)
    assert rows[1].accuracy == pytest.approx(0.453)
    assert [rows[number].accuracy for number in (2, 3, 4)] == [None] * 3
    assert [rows[number].rung for number in (-1, 0, 2, 3, 4)] == ["final", "final", NETWORK, SECOND, FIRST]
    assert [row.known for row in reading.rows if not row.is_baseline] == [KNOWN.get(n, "") for n in range(len(TRIALS))]
    assert rows[0].interval == pytest.approx((0.49 - 0.028, 0.49 - 0.002))
    assert rows[2].interval is None
    frame = trials_frame(reading.rows)
    assert frame["accuracy"].notna().sum() == 3
    assert frame[f"accuracy@{FIRST}"].tolist() == pytest.approx([BASE[0], *(one[1][0] for one in TRIALS)])
    assert frame[f"accuracy@{SECOND}"].tolist()[1] == pytest.approx(0.39), "the mean of two seeds"


def test_a_front_is_of_one_rung(reading: Reading) -> None:
    baselines = {one.key: one.baseline for one in reading.sources if one.baseline is not None}
    finals = front_of(reading.rows, ("flops", "accuracy"))
    assert [point.key[-1] for point in finals.points] == ["e", "0", "1"]
    assert finals.axes[1].text == "accuracy of the finals, test images"
    assert kinds_of(finals) == ["baseline", "on the front", KNOWN_MARK]
    relative = front_of(reading.rows, ("flops", "accuracy"), baselines=baselines)
    assert relative.points[1].intervals[1] == pytest.approx((-2.8, -0.2))
    first = front_of(reading.rows, ("flops", f"accuracy@{FIRST}"), baselines=baselines)
    assert len(first.points) == 1 + len(TRIALS)
    assert (
        first.axes[1].text == f"accuracy on the rung {FIRST}, held-out images against the baseline [percentage points]"
    )
    assert first.points[1].values[1] == pytest.approx(100 * (TRIALS[0][1][0] - BASE[0]))
    assert all(wide is None for point in first.points for wide in point.intervals), "intervals are of the finals"
    assert usual_measure(reading.rows) == f"accuracy@{FIRST}", "the only rung that all trials have"
    assert usual_measure(row for row in reading.rows if row.number < 4) == f"accuracy@{SECOND}"
    assert usual_measure(row for row in reading.rows if row.number < 2) == "accuracy"


def test_the_finals_stand_over_the_cloud(reading: Reading) -> None:
    """At the trials' places on the cloud; against the baseline in points, in which the baseline is 0."""
    (base,) = (row for row in reading.rows if row.is_baseline)
    wanted = {"search:rungs#0": [0.475, 0.462, 0.488], "search:rungs#1": [0.453, 0.435, 0.471]}
    for baselines in (None, {base.source: base}):
        front = front_of(reading.rows, ("flops", f"accuracy@{FIRST}"), baselines=baselines)
        shown = shown_finals(front, reading.rows, reading.sources, baselines)
        found = {front.points[place].key: numbers for place, *numbers in shown["finals"]}
        scale, zero = (1, 0) if baselines is None else (100, 0.49)
        for key, numbers in wanted.items():
            assert found.pop(key) == pytest.approx([scale * (number - zero) for number in numbers])
        assert not found
        assert shown["baseline"] == pytest.approx([scale * (number - zero) for number in (0.49, 0.485, 0.495)])
        assert shown["title"].endswith("(small marks: 40 steps; large: finals)")
    whole = front_of(reading.rows, ("flops", "accuracy"))
    assert shown_finals(whole, reading.rows, reading.sources, None)["finals"] == []


def test_figures_mark_known_operators_and_intervals(reading: Reading) -> None:
    front = front_of(reading.rows, ("flops", "accuracy"))
    words = describe_front(front, "Search")
    assert "trial 1 (separable)" in words
    assert "Intervals of the finals: trial 0 0.462 to 0.488" in words
    shown = shown_front(front, "Search")
    assert shown["known"] == [2]
    assert shown["intervals"][1][0] is None
    assert front_sketch(front).count('fill="none" stroke="#009e73"') == 1
    assert b"known operators" in front_picture(front)
    titles = {column["name"]: column["title"] for column in shown_trials(reading.rows, ())["columns"]}
    assert (titles["accuracy"], titles[f"accuracy@{FIRST}"]) == ("accuracy, finals", f"accuracy on {FIRST}")


def test_curves_of_rungs_are_apart(reading: Reading) -> None:
    found = shown_courses(rung_courses(reading.sources))
    charts: dict[str, set[str]] = {}
    for one in found:
        charts.setdefault(one["chart"], set()).add(one["name"].split(":")[1].split(" on ")[1].partition(",")[0])
    assert charts == {
        f"Accuracy of trainings on the rung {NETWORK}, held-out images": {NETWORK},
        "Accuracy of trainings in the finals, test images": {"final"},
    }
    assert len(found) == 3 + 2 * 3  # of the network, and two seeds of the finals with the baseline


def test_why_names_the_rungs(lab: Path) -> None:
    tables = {table.title: table.rows for table in why_tables(read_why(lab, "rungs#1"))}
    assert tables["Rungs"] == [
        [FIRST, "1", "0.310", "0.310", "0.320", "finished"],
        [SECOND, "2", "0.370", "0.370", "0.390", "finished"],
        [NETWORK, "1", "0.440", "0.440", "", "finished"],
        ["finals", "2", "0.453", "0.453", "0.490", "finished"],
    ]
    assert tables["The network with it"][0] == ["accuracy", "0.453", "-3.7 points"]


# -- on the command line ----------------------------------------------------------------------------------------------


def test_the_plan_is_told_once_and_the_result_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]
) -> None:
    from syno_lab.commands.output import Reporter

    with Reporter() as report:
        teller = PlanTeller(tmp_path, "rungs", 26.0, report)
        teller.look()  # nothing is planned yet
        result = fill_rungs(tmp_path)
        PlanTeller(tmp_path, "rungs", 60.0, report).look()  # the plan is for other minutes
        teller.look()
        teller.look()
    say_rungs(result | {"folder": "LAB"})
    captured = capsys.readouterr()
    golden("progress/command.txt", _lines(f"{captured.err}---\n{captured.out}"))


def test_an_untrained_search_says_its_funnel(
    capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]
) -> None:
    draws = {"drawn": 40, "wished": 21, "affordable": 9, "probed": 9, "seconds": 3.0}
    point = {"number": 3, "score": 0.5, "flops_ratio": 0.4, "replaced_ratio": 0.3, "params": 100, "known": None}
    result = {
        "settings": {"name": "u"},
        "funnel": {"draws": draws, "rungs": {}},
        "examined": 9,
        "examined_per_cpu_s": 3.0,
        "elites": 4,
        "end": "9 operators are examined",
        "front": [point],
        "known": [],
        "picture": "front.svg",
    }
    say_untrained(result)
    golden("progress/untrained.txt", _lines(capsys.readouterr().out))


def _lines(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_show_says_the_finals_of_a_known_one(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answered(capsys, "show", "rungs#1", "--as", "why", "--folder", str(lab))
    assert "known" in said
    assert "-5.5 to -1.9" in said
