"""The paper's figures: what is measured here is worked out by hand, what the paper states is marked as its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from reproduction.paper import PaperFigure, Series, figure_5, figure_6, figure_8, figure_9, figure_10, table_2

from syno_lab.errors import FormatError, StoreError, SynoError
from syno_lab.jobs.attempts import end, take
from syno_lab.jobs.ledger import Ledger
from syno_lab.jobs.records import Ending
from syno_lab.reports import LabReader
from syno_lab.reports.pictures import PAPER
from syno_lab.store import Store
from syno_lab.synthesis.ablation import CanonicalRates, SizeRow

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
FIGURES: tuple[Callable[..., PaperFigure], ...] = (figure_5, figure_6, figure_8, figure_9, figure_10, table_2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A search with a baseline of 0.80 and 8 ms on each of two layers, and three operators; two trainings of text."""

    def tuned(*latencies: float) -> list[dict[str, object]]:
        sizes = [{"N": 1, "C_in": size, "C_out": size, "H": 32 // size, "W": 32 // size} for size in (8, 16)]
        return [{"binding": one, "latency_ms": ms} for one, ms in zip(sizes, latencies, strict=True)]

    with Store.open(tmp_path) as store:
        log = store.search("digits", {"training": {"backbone": "resnet20"}})
        for number, (accuracy, latencies) in enumerate(
            ((0.795, (4.0, 1.0)), (0.75, (1.0, 1.0)), (None, (2.0, 8.0))),  # one good, one too bad, one untrained
        ):
            log.add(f"name {number}", "{}", (), 100, 10)
            log.record_latency(number, "cpu", {"latency_ms": 2 * sum(latencies), "layers": tuned(*latencies)})
            if accuracy is not None:
                log.record(number, {"state": "finished", "accuracy": accuracy})
        ledger = Ledger(store.database)
        for name, last in (("text, baseline", 50.0), ("text, operator", 40.0)):
            job = ledger.submit("train", {"options": {"steps": 20}}, resources={}, name=name)
            curve = [
                {"epoch": 1, "accuracy": 0.1, "perplexity": 90.0},
                {"epoch": 2, "accuracy": 0.1, "perplexity": last},
            ]
            lease = take(ledger, job)
            assert lease is not None
            assert end(ledger, job, lease.token, Ending("finished", "", {"state": "finished", "curve": curve}))
    place = tmp_path / "searches" / "digits"
    place.mkdir(parents=True)
    tuning = {"target": "cpu", "stored_as": "cpu", "baseline_ms": 32.0, "baseline_layers": tuned(8.0, 8.0)}
    (place / "status.json").write_text(json.dumps({"tuning": tuning}))
    (place / "result.json").write_text(json.dumps({"baseline": {"accuracy": 0.8, "flops": 100, "params": 10}}))
    return tmp_path


def values(series: Series) -> dict[object, float]:
    return {place: pytest.approx(value) for place, value in series.values}


def test_figure_5_takes_the_fastest_that_loses_little(folder: Path) -> None:
    figure = figure_5(folder)
    (here,) = figure.measured
    assert here.name == "here, sum of layers, cpu"
    assert "end-to-end" not in f"{figure.title} {figure.note}".lower()
    assert "Measured here: digits on cpu: sum over the replaced layers, not the whole network" in figure.note
    assert values(here) == {"resnet20 (digits)": 32 / 10}  # 2 * (8 + 8) over 2 * (4 + 1)
    (looser,) = figure_5(folder, within=5.1).measured
    assert values(looser) == {"resnet20 (digits)": 8.0}
    assert figure_5(folder, within=0.4).measured == ()
    paper = dict(figure.paper[0].values)
    assert paper["geometric mean of the workloads, CPU"] == 2.06
    assert paper["EfficientNet-V2, GPU"] == 1.19


def test_figures_5_and_6_take_whole_networks_where_there_are_any(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        log = store.search("whole", {"training": {"backbone": "resnet20"}})
        for number, (accuracy, whole, layers) in enumerate(((0.8, 5.0, 1.0), (0.795, 8.0, 0.5))):
            log.add(f"name {number}", json.dumps({"format": number}), (), 100, 10)
            log.record(number, {"state": "finished", "accuracy": accuracy}, None)
            log.record_latency(number, "cpu", {"latency_ms": layers})
            where = {"where": "127.0.0.1:9000", "functions": 20, "trials": 160 * (1 + number)}
            log.record_latency(number, "network@cpu", {"latency_ms": whole, **where})
    place = tmp_path / "searches" / "whole"
    place.mkdir(parents=True)
    tuning = {"target": "cpu", "stored_as": "network@cpu", "of": "whole network", "baseline_ms": 10.0}
    baseline = {"accuracy": 0.8, "flops": 200, "params": 20}
    (place / "result.json").write_text(json.dumps({"tuning": tuning, "baseline": baseline}))
    for figure in (figure_5(tmp_path), figure_6(tmp_path)):
        assert figure.measured[0].name.startswith("here, whole network, cpu")
        assert "sum of layers" not in " ".join(series.name for series in figure.measured)
        assert (
            "whole on network@cpu: the whole network through Relax on 127.0.0.1:9000, 160 to 320 candidates tried for "
            "20 functions together" in figure.note
        )
    assert values(figure_5(tmp_path).measured[0]) == {"resnet20 (whole)": 2.0}
    assert [tuple(map(pytest.approx, pair)) for pair in figure_6(tmp_path).measured[0].values] == [(0.5, 0.0)]


def test_figure_6_is_the_front_against_the_baseline(folder: Path) -> None:
    front, baseline = figure_6(folder).measured
    assert [tuple(map(pytest.approx, pair)) for pair in front.values] == [(0.125, -5.0), (0.3125, -0.5), (1.0, 0.0)]
    assert baseline.values == ((1.0, 0.0),)
    (paper,) = figure_6(folder).paper
    assert paper.ranges == ((-2.0, -1.0),)
    assert paper.spans == ((pytest.approx(1 / 4.73), pytest.approx(1 / 1.10)),)


def test_figure_8_puts_operators_beside_each_other(folder: Path) -> None:
    speedups, losses = figure_8(folder, labels=["trial 0", "trial 2"]).measured
    assert values(speedups) == {"trial 0": 3.2, "trial 2": 1.6}
    assert values(losses) == {"trial 0": -0.5}
    assert [label for label, _ in figure_8(folder).measured[0].values] == ["trial 0", "trial 1", "trial 2"]
    assert "doubled the accuracy degradation" in figure_8(folder).note
    with pytest.raises(StoreError, match="no search 'x' in "):
        figure_8(folder, of="x")


def test_figure_9_from_a_store_and_from_stored_results(folder: Path) -> None:
    first, second, third = figure_9(folder).measured
    assert (first.name, values(first)) == (
        "here, trial 0, cpu",
        {"8 channels, 4x4": 2.0, "16 channels, 2x2": 8.0},
    )
    assert values(third) == {"8 channels, 4x4": 4.0, "16 channels, 2x2": 1.0}
    assert second.name == "here, trial 1, cpu"
    with pytest.raises(StoreError, match=r"no search 'x' in .*; there is 'digits'"):
        figure_9(folder, run="x")
    assert figure_9(folder, target="gpu").measured == ()
    file = RESULTS / "tvm.json"
    stored = json.loads(file.read_text())
    shown = {one.name.split(",")[1].strip(): list(one.values) for one in figure_9(file).measured}
    for name, found in stored["speedups"].items():
        if name != "conv2d":
            ratios = [value for _, value in shown[name.split(",")[0]]]
            assert sorted(ratios) == pytest.approx(sorted(found["layers"].values())), "as the benchmark works them out"
    means = dict(figure_9().paper[0].values)
    assert means["Operator 2 over conv2d, average of layers, CPU"] == 5.35


def test_figure_9_from_a_search(tmp_path: Path) -> None:
    def layers(*latencies: float) -> list[dict[str, object]]:
        sizes = [{"N": 1, "C_in": size, "C_out": size, "H": 32 // size, "W": 32 // size} for size in (8, 16)]
        return [{"binding": one, "latency_ms": ms} for one, ms in zip(sizes, latencies, strict=True)]

    with Store.open(tmp_path) as store:
        log = store.search("mine", {})
        for number, latencies in enumerate([(2.0, 8.0), (4.0, 0.5)]):
            log.add(f"fp{number}", "{}", [], 1, 1)
            log.record_latency(number, "cpu", {"latency_ms": sum(latencies), "layers": layers(*latencies)})
    assert figure_9(tmp_path).measured == (), "its baseline is not known"
    place = tmp_path / "searches" / "mine"
    place.mkdir(parents=True)
    tuning = {"target": "cpu", "baseline_layers": layers(8.0, 4.0)}
    (place / "status.json").write_text(json.dumps({"tuning": tuning}))
    zero, one = figure_9(tmp_path, run="mine").measured
    assert (zero.name, values(zero)) == ("here, trial 0, cpu", {"8 channels, 4x4": 4.0, "16 channels, 2x2": 0.5})
    assert values(one) == {"8 channels, 4x4": 2.0, "16 channels, 2x2": 8.0}
    assert figure_9(tmp_path, target="gpu").measured == ()
    for junk in ([], [{"binding": 3}], [{"latency_ms": "x", "binding": {}}], "x"):
        (place / "status.json").write_text(json.dumps({"tuning": {"target": "cpu", "baseline_layers": junk}}))
        assert figure_9(tmp_path).measured == ()


def test_figure_10_counts_steps(folder: Path) -> None:
    baseline, operator = figure_10(folder).measured
    assert (baseline.name, baseline.values) == ("here, text, baseline", ((20.0, 90.0), (40.0, 50.0)))
    assert operator.values[-1] == (40.0, 40.0)
    assert len(figure_10(folder, names=("operator",)).measured) == 1
    assert [one.values for one in figure_10().paper] == [((100000.0, 99.0),), ((100000.0, 111.0),)]


def test_figure_10_of_a_stored_file(tmp_path: Path) -> None:
    curve = [{"epoch": 1, "perplexity": 90.0}, {"epoch": 2, "perplexity": 50.0}]
    trials = [{"name": name, "seed": 1, "curve": curve} for name in ("baseline", "grouped_linear")]
    file = tmp_path / "text.json"
    file.write_text(json.dumps({"settings": {"options": {"steps": 30}}, "trials": trials}))
    baseline, operator = figure_10(file).measured
    assert (baseline.name, baseline.values) == ("here, baseline, seed 1", ((30.0, 90.0), (60.0, 50.0)))
    assert figure_10(file, names=("grouped",)).measured == (operator,)
    file.write_text(json.dumps({"settings": {}, "trials": [{"name": "x", "curve": [{"epoch": 1}]}]}))
    with pytest.raises(FormatError, match=r"expected results of benchmarks/trials\.py with trainings of text"):
        figure_10(file)


def test_table_2(tmp_path: Path) -> None:
    rows = tuple(SizeRow(size, drawn, hits, 3, None, 0.1) for size, drawn, hits in ((2, 10, 10), (3, 10, 4), (4, 0, 0)))
    figure = table_2(CanonicalRates(rows, {}, 10, 1.0, 0))
    (here,) = figure.measured
    assert here.values == (("2", 1.0), ("3", 0.4)), "of 4 primitives none was drawn"
    assert here.counts == ((10, 10), (4, 10))
    # Wilson's intervals with z = 1.959964, worked out by hand.
    assert here.ranges == (pytest.approx((0.72247, 1.0), abs=1e-5), pytest.approx((0.16818, 0.68733), abs=1e-5))
    file = tmp_path / "rates.json"
    plain = {
        "rows": [{"size": size, "canonical": hits, "pgraphs": drawn} for size, drawn, hits in ((2, 10, 10), (3, 10, 4))]
    }
    for content in (plain, {"ablate-canonical": plain}):
        file.write_text(json.dumps(content))
        assert table_2(file) == figure
    assert dict(table_2().paper[0].values)["3"] == 0.1818


def test_table_2_has_counts_and_intervals_beside_the_rates_in_every_form() -> None:
    figure = table_2(
        CanonicalRates((SizeRow(3, 10, 4, 3, None, 0.1), SizeRow(8, 1234, 0, 3, None, 0.1)), {}, 1, 1.0, 0)
    )
    colours = {
        element.text: PAPER in element.get("style", "")
        for element in ElementTree.fromstring(figure.svg()).iter("{http://www.w3.org/2000/svg}text")
    }
    for text, is_paper in (
        ("4 of 10", False),
        ("0.1682 to 0.6873", False),
        ("0 of 1,234", False),
        ("0.0000 to 0.0031", False),
        ("0.4000", False),
        ("95 % interval", False),
        ("canonical of drawn", False),
        ("0.1818", True),
        ("0.1397", True),
        ("the paper, Table 2:", True),
    ):
        assert colours[text] is is_paper, text
    assert "0.4 (4 of 10, 95 % interval 0.1682 to 0.6873)" in figure.text
    rows = figure.frame().set_index(["from", "place"])
    assert list(rows.loc[("here", "8"), ["value", "hits", "drawn"]]) == [0.0, 0, 1234]
    assert rows.loc["the paper", "hits"].isna().all()
    assert "hits" not in figure_9().frame(), "a column of figures that count shares alone"
    with pytest.raises(ValueError, match="x: expected counts and a range for each of 1 values, found 1 and 0"):
        Series("x", (("2", 0.5),), counts=((1, 2),))


@pytest.mark.parametrize("make", FIGURES, ids=lambda make: make.__name__)
def test_alone_it_is_the_paper_s_and_says_so(make: Callable[..., PaperFigure], tmp_path: Path) -> None:
    figure = make()
    assert figure.name == make.__name__
    assert figure.measured == ()
    assert all(one.name.startswith("the paper") for one in figure.paper)
    assert "was measured here." in figure.note or "was found here." in figure.note
    svg = figure.svg()
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label", "").startswith(figure.title)
    assert "the paper" in svg
    assert "mathdefault" not in svg, "labels are words and numbers, not formulas"
    assert figure.svg() == svg, "the same facts, the same file"
    assert figure.save(tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    csv = figure.save(tmp_path / "f.csv").read_text()
    assert csv.count("the paper") >= sum(len(one.values) for one in figure.paper)
    assert set(figure._repr_mimebundle_()) == {"image/svg+xml", "text/plain"}


@pytest.mark.parametrize("make", [figure_5, figure_6, figure_8, figure_9, figure_10], ids=lambda make: make.__name__)
def test_any_form_of_a_lab(make: Callable[..., PaperFigure], folder: Path) -> None:
    with Store.open(folder) as store:
        assert make(store) == make(folder) == make(str(folder)) == make(folder / "results.sqlite")
    assert make(folder).measured
    ElementTree.fromstring(make(folder).svg())
    frame = make(folder).frame()
    assert set(frame["from"]) == {"here", "the paper"}
    with pytest.raises(StoreError, match="is not there"):
        make(folder / "nowhere")
    with pytest.raises(FormatError, match="expected a lab, a store, a folder or a file of results"):
        make(3)
    if make is not figure_9:  # which needs more than a reading holds
        with LabReader(folder) as reader:
            assert make(reader.read()) == make(folder)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    for text, said in (
        ("[1]", "expected results as a JSON object, found list"),
        ("{", "expected results as JSON, found"),
        ('{"rows": [3, {"size": 2, "share": 0.5}]}', "expected canonical pGraphs counted by size"),
        ('{"rows": [{"size": 2, "canonical": 0, "pgraphs": 0}]}', "expected canonical pGraphs counted by size"),
        (
            '{"rows": [{"size": 2, "canonical": 3, "pgraphs": 2}]}',
            "size 2: expected from 0 to 2 canonical pGraphs, found 3",
        ),
    ):
        file.write_text(text)
        with pytest.raises(FormatError, match=said):
            table_2(file)
    file.write_text('{"layers": [{"operator": "x", "latency_ms": 1}, 4]}')
    with pytest.raises(FormatError, match="with the layers of conv2d, found none"):
        figure_9(file)
    with pytest.raises(FormatError, match=r"missing\.json: expected a file of results"):
        table_2(tmp_path / "missing.json")
    with pytest.raises(FormatError, match=r"expected a name that ends in \.pdf, .*\.csv, found 'x\.docx'"):
        table_2().save("x.docx")
    for suffix in (".csv", ".svg"):
        with pytest.raises(SynoError, match=r"expected to write .*; choose another place"):
            table_2().save(file / f"x{suffix}")
