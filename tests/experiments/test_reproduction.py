"""Reproductions: plans of hours, one part that is killed and goes on, and the pages that show what there is."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command_line import answered, refused
from matplotlib.image import imread
from msgspec import structs, to_builtins
from reproduce import main
from reproduction import PARTS, Options, Reproduction, reproduce
from reproduction.items import Work
from reproduction.paper import figure_5, figure_6, figure_8, table_2
from reproduction.paper.differences import of_distance, of_layers, of_rates
from reproduction.paper.page import write_pages
from reproduction.run import prepare
from reproduction.scale import check_parts, plan_of, scale_for
from reproduction.trainings import KNOWN, accuracy

from syno_lab.data.datasets import load_dataset
from syno_lab.errors import FormatError, SpecError
from syno_lab.experiments.driver import Stopped
from syno_lab.ir.spec import Spec

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reproduce.py"
TINY = Spec.parse("[H]", "[H]", ["H=12: 0"], ["k=3: 2", "s=2: 1"], max_primitives=3, max_tensors=2)
TEXT = "a tale of two cities that were one, and of a river between them.\n" * 200


def begun(folder: Path, hours: float = 1e-4, smaller: dict[str, Any] | None = None, **options: Any) -> Reproduction:
    """A reproduction whose batches take a tenth of a second, without training any; ``smaller`` is of its scale."""
    chosen = Options(hours=hours, **options)
    scale = structs.replace(scale_for(chosen, 0.1), **smaller or {})
    folder.mkdir(exist_ok=True)
    plain = {"format": "syno-lab-reproduction", "version": 1, "step_s": 0.1}
    content = plain | {"options": to_builtins(chosen), "scale": to_builtins(scale)}
    (folder / "reproduction.json").write_text(json.dumps(content))
    return prepare(folder, chosen)


# -- plans -------------------------------------------------------------------------------------------------------------


def test_the_parts_share_the_hours_and_more_hours_do_more() -> None:
    chosen = Options(hours=8.0, text="text.txt")
    plan = plan_of(chosen, scale_for(chosen, 0.2), 0.2)
    assert [part.name for part in plan.parts] == list(PARTS)
    assert plan.seconds == pytest.approx(8 * 3600, rel=0.02)
    assert all(part.seconds > 0 for part in plan.parts)
    few, many = scale_for(Options(hours=1), 0.2), scale_for(Options(hours=16), 0.2)
    for name in ("rates_s", "layer_candidates", "text_s", "search_steps", "network_candidates", "seeds"):
        assert getattr(few, name) < getattr(many, name)
    assert few.steps * few.seeds < many.steps * many.seeds


def test_a_plan_says_what_is_more_than_the_hours_and_what_is_left_out() -> None:
    chosen = Options(hours=0.001)
    plan = plan_of(chosen, scale_for(chosen, 0.2), 0.2)
    assert plan.seconds > 3.6, "each part has a least size"
    assert {part.name for part in plan.parts if part.what.startswith("left out")} == {"text", "text-search"}
    with pytest.raises(SpecError, match="hours: expected a number above 0, at most 10,000, found nan"):
        Options(hours=float("nan"))
    with pytest.raises(SpecError, match=r"parts: expected some of table-2, .*, found 'figure-5'"):
        check_parts(["text", "figure-5"])


# -- running -----------------------------------------------------------------------------------------------------------


def test_what_is_done_is_not_done_again_and_what_is_stopped_is_not_stored(tmp_path: Path) -> None:
    found = begun(tmp_path / "out", hours=1e-4)
    with pytest.raises(Stopped):
        reproduce(found, TINY, parts=("table-2",), should_stop=lambda: True)
    assert found.done == ()
    assert reproduce(found, TINY, parts=("table-2",)) == ("table-2",)
    first = found.result("table-2")
    assert first is not None
    assert [row["size"] for row in first["rows"]] == list(range(2, 9))
    assert reproduce(found, TINY, parts=("table-2",)) == ()
    assert found.result("table-2") == first
    counts = {str(row["size"]): (row["canonical"], row["pgraphs"]) for row in first["rows"] if row["pgraphs"]}
    (here,) = table_2(found.file("table-2")).measured
    assert dict(zip((size for size, _ in here.values), here.counts, strict=True)) == counts
    assert first["spec"].startswith("[H] to [H], weights ")


def test_other_options_are_refused_in_the_same_folder(tmp_path: Path) -> None:
    begun(tmp_path, hours=1e-4)
    with pytest.raises(SpecError, match=r"has a reproduction with hours 0\.0001, found 2\.0; seed 0, found 3: choose "):
        prepare(tmp_path, Options(hours=2.0, seed=3))
    (tmp_path / "reproduction.json").write_text("[]")
    with pytest.raises(FormatError, match=r"reproduction\.json: expected a JSON object, found list"):
        prepare(tmp_path, Options(hours=2.0))


def test_items_are_stored_as_they_come(tmp_path: Path) -> None:
    def fails() -> dict[str, Any]:
        raise ValueError

    work = Work(tmp_path, lambda *_: None, lambda: False)
    assert work.item("one", lambda: {"x": 1}) == {"x": 1}
    with pytest.raises(ValueError):  # noqa: PT011 - raised above
        work.item("two", fails)
    again = Work(tmp_path, lambda *_: None, lambda: False)
    assert again.item("one", fails) == {"x": 1}
    assert again.item("two", lambda: {"x": 2}) == {"x": 2}


def test_accuracies_are_told_with_the_number_of_test_images(tmp_path: Path) -> None:
    found = begun(tmp_path, smaller={"steps": 2})
    work = Work(tmp_path / "work", lambda *_: None, lambda: False)
    result = accuracy(found.options, found.scale, work, {"found": []})
    assert result["test_images"] == len(load_dataset("digits").test_images)
    assert [row["label"] for row in result["rows"]] == ["baseline", *KNOWN]


def test_the_time_of_a_part_is_that_of_all_its_processes(tmp_path: Path) -> None:
    now = 100.0

    def work() -> Work:
        return Work(tmp_path, lambda *_: None, lambda: False, clock=lambda: now)

    first = work()
    now += 9
    first.report(0.1, "")
    now += 3
    first.report(0.2, "")  # after 12 s: kept
    now += 5
    first.report(0.3, "")
    assert first.seconds == 17
    now += 1000
    second = work()  # the first was killed
    assert second.seconds == 12
    now += 2
    second.item("one", lambda: {"x": 1})
    assert work().seconds == 14


@pytest.mark.warm
def test_a_part_that_is_killed_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command, killed after its first training, trains only what is missing."""
    out, text = tmp_path / "out", tmp_path / "text.txt"
    text.write_text(TEXT)
    begun(out, hours=0.001, smaller={"text_s": 1.0}, text=str(text))  # time enough to kill the second training
    (out / "parts").mkdir(mode=0o700)
    (out / "parts" / "text-search.json").write_text(json.dumps({"about": {"machine": "m"}, "found": []}))
    words = [
        "--hours",
        "0.001",
        "--out",
        str(out),
        "--data",
        "digits",
        "--text",
        str(text),
        "--only",
        "text",
    ]
    items = out / "work" / "text" / "items.json"
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 240
        while not items.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (out / "parts" / "text.json").exists()
    before = json.loads(items.read_text())
    assert list(before) == ["baseline"]
    assert json.loads(answered(capsys, *words, "--json", "-", command=main))["ran"] == ["text"]
    part = json.loads((out / "parts" / "text.json").read_text())
    assert [trial["name"] for trial in part["trials"]] == ["baseline", "grouped_linear"]
    assert {key: part["trials"][0][key] for key in before["baseline"]} == before["baseline"], "not trained again"
    page = (out / "reproduction.html").read_text()
    assert "baseline: perplexity" in page
    assert "The part networks has not run" in page


# -- pages -------------------------------------------------------------------------------------------------------------

NETWORKS = {
    "about": {"machine": "a <machine>", "seconds": 90.0, "ended": "today"},
    "backbone": "resnet20",
    "data": "cifar",
    "steps": 100,
    "seeds": 2,
    "candidates": 16,
    "rounds": 3,
    "threads": 2,
    "image": [3, 32, 32],
    "test_images": 1000,
    "baseline": "baseline",
    "rows": [
        {"label": "baseline", "accuracies": {"0": 0.80, "1": 0.82}, "latency_ms": 10.0},
        {"label": "near", "accuracies": {"0": 0.80, "1": 0.81}, "latency_ms": 4.0},
        {"label": "far", "accuracies": {"0": 0.70}, "latency_ms": 2.0},
        {"label": "worse", "accuracies": {"0": 0.70}, "latency_ms": 5.0},
        {"label": "unmeasured", "accuracies": {"0": 0.81}, "latency_ms": None},
    ],
}


def test_figures_of_whole_networks(tmp_path: Path) -> None:
    file = tmp_path / "networks.json"
    file.write_text(json.dumps(NETWORKS))
    (best,) = figure_5(file).measured
    assert best.values == (("resnet20 on cifar, near", pytest.approx(2.5)),)
    (looser,) = figure_5(file, within=12).measured
    assert looser.values[0][1] == pytest.approx(5.0)
    front, baseline, *each = figure_6(file).measured
    assert [tuple(map(pytest.approx, pair)) for pair in front.values] == [(0.2, -11.0), (0.4, -0.5), (1.0, 0.0)]
    assert baseline.values == ((1.0, 0.0),)
    assert [one.name for one in each] == [f"here, whole network: {name}" for name in ("near", "far", "worse")]
    speedups, points = figure_8(file).measured
    assert dict(speedups.values) == {"near": 2.5, "far": 5.0, "worse": 2.0}
    assert dict(points.values)["unmeasured"] == pytest.approx(0.0)
    assert "16 candidates a function" in figure_8(file).note
    file.write_text(json.dumps({"rows": []}))
    with pytest.raises(FormatError, match="expected whole networks with a baseline"):
        figure_5(file)


def test_each_axis_has_one_unit_and_ranges_are_no_bars(tmp_path: Path) -> None:
    file = tmp_path / "networks.json"
    file.write_text(json.dumps(NETWORKS))
    speedups, points = figure_8(file).panels
    assert {one.name for one in speedups.series} == {"here, speedup, whole network", "the paper, speedup"}
    assert points.y.startswith("accuracy against the baseline")
    (theirs,) = points.paper
    assert theirs.is_range
    assert theirs.ranges == ((-1.0, 0.0),)
    assert all(len(figure.panels) == 1 for figure in (figure_5(file), figure_6(file), table_2()))


def test_rates_in_words(tmp_path: Path) -> None:
    file = tmp_path / "table-2.json"
    drawn = {2: (40, 100), 3: (18, 100), 4: (14, 100), 5: (4, 100), 8: (30, 1000)}
    rows = [{"size": size, "canonical": hits, "pgraphs": total} for size, (hits, total) in drawn.items()]
    file.write_text(json.dumps({"walks": 1000, "spec": "[H] to [H]", "rows": rows}))
    first, last, beside, *_ = of_rates(file)
    assert first == (
        "Of pGraphs of 2 primitives 40.00 % are canonical here (40 of 100, 95 % interval 30.94 to 49.80 %); the paper "
        "has 100 %."
    )
    assert "30 of 1,000, 95 % interval 2.11 to 4.25 %); the paper has 0 %" in last
    assert beside.endswith("by primitives: above for 2; within for 3, 4 and 5; below for 8.")


def test_trials_in_words(tmp_path: Path) -> None:
    file = tmp_path / "distance.json"
    rows = [
        {"guided": True, "trials": 1200, "valid": 40, "distinct": 30, "high": 0.05},
        {"guided": False, "trials": 5000, "valid": 0, "distinct": 0, "high": 0.001},
    ]
    file.write_text(json.dumps({"rows": rows}))
    assert of_distance(file)[:2] == [
        "With the distance 40 of 1,200 trials end at an operator; distinct operators: 30.",
        "Without the distance none of 5,000 trials ends at an operator: fewer than one in 1,000 at 95 %.",
    ]


def test_layers_in_words(tmp_path: Path) -> None:
    file = tmp_path / "layers.json"
    latencies = {"conv2d": (8.0, 2.0), "operator_1": (2.0, 2.0), "nas_pte_1": (4.0, 4.0), "operator_2": (1.0, None)}
    layers = [
        {"operator": name, "channels": channels, "height": 7, "latency_ms": ms, "error": None if ms else "no candidate"}
        for name, pair in latencies.items()
        for channels, ms in zip((64, 512), pair, strict=True)
    ]
    file.write_text(json.dumps({"candidates": 4, "threads": 1, "layers": layers}))
    first, second, against, missing, here = of_layers(file)
    assert first.startswith(
        "Operator 1 is 2.00 times as fast as conv2d in the geometric mean over the layers, 2.25 times"
    )
    assert second.startswith("Operator 2 is 8.00 times as fast")
    assert against.startswith("The faster of these is 8.00 times as fast as the fastest of NAS-PTE's")  # 8 over 1
    assert missing == "Not tuned: operator_2 with 512 channels."
    assert "4 candidates on each layer here, in 1 thread of this processor" in here


def test_nothing_is_cut_off(tmp_path: Path) -> None:
    networks = tmp_path / "networks.json"
    networks.write_text(json.dumps(NETWORKS))
    for figure in (figure_5(networks), figure_6(networks), figure_8(networks), figure_6(), table_2()):
        pixels = imread(io.BytesIO(figure.png()))[..., :3]
        for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
            assert edge.min() == 1.0, f"{figure.name} is white along its edges"


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]


def test_the_page_stands_alone_and_the_notebook_makes_its_figures(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "networks.json").write_text(json.dumps(NETWORKS))
    (tmp_path / "parts" / "text.json").write_text(json.dumps({"about": {"machine": "m"}, "left_out": "no text"}))
    page, notebook = write_pages(tmp_path, [("networks", "Figures 5, 6, 8", "a scale"), ("layers", "Figure 9", "none")])
    content = page.read_text()
    assert page.stat().st_size < 2_000_000
    found = _Page()
    found.feed(content)
    assert found.tags.count("svg") == 7
    assert "script" not in found.tags
    assert all(address.startswith("#") for address in found.addresses), "nothing is fetched"
    assert "a &lt;machine&gt;" in content
    assert "The fastest within 1 point of the baseline&#x27;s accuracy is near, 2.50 times as fast" in content
    # 1.96 * sqrt(2 * 0.81 * 0.19 / 1000) = 0.0344
    assert (
        "The baseline&#x27;s accuracy is 81.0 % on 1,000 test images: accuracies that differ by less than 3.4"
        in content
    )
    assert "Left out: no text" in content
    assert "1.5 minutes" in content
    cells = json.loads(notebook.read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert 'figure_8("parts/networks.json")' in sources
    assert "figure_9()" in sources
    made: dict[str, Any] = {}
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        exec(sources[0], made)
        figure = eval(sources[3], made)
    finally:
        os.chdir(before)
    assert figure.svg() == "".join(cells[2 + 2 * 2 + 1]["outputs"][0]["data"]["image/svg+xml"])
    (tmp_path / "parts" / "networks.json").write_text("{}")
    with pytest.raises(FormatError, match=r"networks\.json: expected "):
        write_pages(tmp_path, [])


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    line = refused(capsys, "--text", str(tmp_path / "none.txt"), "--out", str(out), command=main)
    assert "--text: expected a text file, found" in line
    assert "expected some of table-2, distance" in refused(
        capsys, "--only", "figure-5", "--out", str(out), command=main
    )
    assert not out.exists()
