"""Why this one: what a lab knows of an operator, in words and as a page."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import answered

from syno_lab.errors import StoreError
from syno_lab.operators import separable
from syno_lab.operators.neighbours import nearest
from syno_lab.pgraphs.probe import probe
from syno_lab.reports.why import read_why, why_page, why_tables, why_text, write_pages
from syno_lab.store import Store
from syno_lab.store.rungs import BASELINE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A lab with a search <b> of one operator, that passed two rungs and the finals."""
    operator = separable()
    with Store.open(tmp_path) as store:
        log = store.search("s", {})
        log.add("fp", operator.to_json(), [], 400, 50)
        log.record(0, {"state": "finished", "accuracy": 0.4, "probe": {"score": 0.59, "space": 0.87}})
        for number, rung, seed, measure in (
            (0, "small", 0, 0.25),
            (0, "network", 0, 0.375),
            (0, "network", 1, 0.5),
            (BASELINE, "small", 0, 0.9),
        ):
            log.rungs.queue(number, rung, seed, 1)
            one = log.rungs.take("me")
            assert one is not None
            log.rungs.record(one, {"state": "finished"}, measure)
        log.rungs.queue(0, "final", 5, 1)
        log.add("other", operator.to_json().replace('"version"', ' "version"'), [], 400, 50)
    place = tmp_path / "searches" / "s"
    place.mkdir(parents=True)
    final = {"measure": "accuracy", "baseline": 0.5, "operator": 0.49, "seeds": [1000, 1001], "verdict": "as <good>"}
    final["over_seeds"] = {"difference": -0.01, "low": -0.03, "high": 0.01, "confidence": 0.95}
    result = {
        "baseline": {"accuracy": 0.5, "flops": 1000, "params": 100},
        "best": {"0.4": {"number": 0}, "0.25": None},
        "comparisons": {"0.4": final, "0.25": final},
    }
    (place / "result.json").write_text(json.dumps(result))
    return tmp_path


def test_everything_that_is_known_is_said(folder: Path) -> None:
    found = read_why(folder, "s#0")
    assert found.known == "separable"
    assert [(p.rung, p.seeds, p.measure, p.state) for p in found.row.rungs] == [
        ("small", 1, 0.25, "finished"),
        ("network", 2, 0.4375, "finished"),
    ]
    tables = {title.partition(",")[0]: rows for title, _, rows in why_tables(found)}
    assert tables["The network with it"] == [
        ["FLOPs", "400", "40.0%"],
        ["parameters", "50", "50.0%"],
        ["probe", "0.59", ""],
    ]
    assert tables["Finals"] == [
        ["0.4", "0.500", "0.490", "undecided, -1.0 points (95% interval -3.0 to +1.0; 2 seeds)"]
    ]
    mine = probe(separable())
    assert tables["Kernel for random weights"][0][1:] == [f"{one:.1f}" for one in (mine.e_space, mine.e_out, mine.e_in)]
    near = [one.name for one in nearest(separable(), most=3)]
    assert [row[0] for row in tables["Nearest known operators"]] == near
    text = why_text(found)
    assert text.startswith("Why trial 0 of s: ")
    assert all(word in text for word in ("which is separable", "network  2", "-3.0 to +1.0"))


def test_the_page_stands_alone(folder: Path) -> None:
    # Without an interval, a foreign file's own text is the verdict.
    place = folder / "searches" / "s" / "result.json"
    place.write_text(place.read_text().replace('"over_seeds"', '"lost"'))
    page = why_page(read_why(folder, "search:s#0"))
    for foreign in ("<script", 'http-equiv="refresh', "src=", "href=", "@import", "url("):
        assert foreign not in page
    assert "as &lt;good&gt;" in page
    assert "as <good>" not in page
    body = page[page.index("<body>") : page.index("</html>")]
    tree = ElementTree.fromstring(body)
    assert len(tree.findall(".//table")) == 6
    svg = "{http://www.w3.org/2000/svg}svg"
    assert [bool(one.find(svg) is not None) for one in tree.findall(".//figure")] == [True, True]
    assert all(one.find("caption") is not None for one in tree.findall(".//table"))


def test_pages_of_finalists_are_written(folder: Path, tmp_path: Path) -> None:
    (file,) = write_pages(folder, ["s#0"], tmp_path)
    assert file.name == "why-0.html"
    assert file.read_text(encoding="utf-8") == why_page(read_why(folder, "s#0"))


def test_what_is_not_there_is_refused_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreError, match=r"no trial 's#7' in .*: search 's' has the trials 0 to 1; best is 0"):
        read_why(folder, "s#7")
    with pytest.raises(StoreError, match="'s#baseline' is the network as it is: expected a trial with an operator"):
        read_why(folder, "s#baseline")


def test_show_says_it(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answered(capsys, "show", "s#0", "--as", "why", "--folder", str(folder))
    assert said.strip() == why_text(read_why(folder, "s#0"))
    page = tmp_path / "why.html"
    answered(capsys, "show", "s#0", "--as", "why", "--folder", str(folder), "--out", str(page))
    assert page.read_text(encoding="utf-8").strip() == why_page(read_why(folder, "s#0")).strip()
    told = json.loads(answered(capsys, "show", "s#0", "--as", "why", "--folder", str(folder), "--json", "-"))
    assert told["known"] == "separable"
