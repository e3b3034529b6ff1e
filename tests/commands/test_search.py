"""``syno-lab search``: one search in this process from beginning to end, and one line for everything that is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import answered, refused
from house import ROOT

SMALL = (
    *("--backbone", "resnet20", "--data", "digits", "--width", "4", "--blocks", "1", "--epochs", "1"),
    *("--images", "100", "--test-images", "50", "--max-primitives", "4", "--in-process"),
    *("--wants", "none"),  # so few steps make no operator that does what a convolution does
)


def test_a_search_is_made_and_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--folder", str(tmp_path), "--name", "first")
    new = ("--trials", "2", "--seeds", "0", "--to-the-end", "--system", "pGraphs")
    found = json.loads(answered(capsys, "search", *SMALL, *place, *new, "--json", "-"))
    assert found["trials"] == 2
    assert found["comparisons"] == {}
    assert found["settings"]["rungs"] is False  # a number of trials bounds it
    # The same name is not searched twice unawares.
    line = refused(capsys, "search", *SMALL, *place, "--trials", "2", "--seeds", "0")
    assert f"there is a search 'first' in {tmp_path} already" in line
    assert "--continue" in line
    more = json.loads(answered(capsys, "search", "--continue", "--in-process", *place, "--trials", "4", "--json", "-"))
    assert more["trials"] == 4
    assert more["recorded"][:2] == found["recorded"]
    assert more["settings"]["training"] == found["settings"]["training"]
    assert more["settings"]["system"] == "syno-lab-operator"
    assert more["settings"]["wants"] is None
    # Each trial's steps are there whole, with their names.
    for trial in more["recorded"]:
        assert [step["name"] for step in trial["taken"]] == trial["steps"]
        assert sum(step["steps"] for step in trial["taken"]) <= 4
    text = answered(capsys, "search", "--continue", "--in-process", *place)
    assert "4 trials" in text


def test_a_budget_of_seconds_is_every_training_s_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--folder", str(tmp_path), "--name", "timed")
    words = ("--budget", "0.3", "--trials", "1", "--seeds", "0")
    found = json.loads(answered(capsys, "search", *SMALL, *place, *words, "--json", "-"))
    training = found["settings"]["training"]
    assert (training["budget_s"], training["stopping"], found["settings"]["rungs"]) == (0.3, None, False)
    assert found["recorded"][0]["accuracy"] is not None
    for wrong, message in (
        (("--budget", "0"), "--budget: expected seconds above 0, found 0"),
        (("--budget", "1", "--rungs"), "--budget: expected trainings of the network itself, found --rungs"),
    ):
        assert message in refused(capsys, "search", *SMALL, *place, *wrong)


def test_minutes_go_in_rungs_unless_the_user_says_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = ("--minutes", "0.02", "--seeds", "0")
    for words, in_rungs in (((), True), (("--no-rungs",), False)):
        place = ("--folder", str(tmp_path), "--name", f"search-{in_rungs}")
        found = json.loads(answered(capsys, "search", *SMALL, *place, *bounds, *words, "--json", "-"))
        assert found["settings"]["rungs"] is in_rungs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backbone", "resnet21"), "expected the name of a backbone, found 'resnet21'; did you mean resnet20"),
        (("--option", 'leave=["*"]'), "expected something to replace in this CifarResNet"),
        (("--backbone", "gpt_tiny"), "expected text for the backbone gpt_tiny, found images as data"),
        (("--data", "/no/such/folder"), "/no/such/folder"),
        (("--flops", "1e-12"), "max_replaced_ratio: expected a share that leaves FLOPs for an operator, found 1e-12"),
        (("--wants", "K>=m"), "wants: expected an input axis of [N, C_in, H, W], found 'K'"),
        (("--wants", "N>=m"), "wants 'N>=m': expected axes that take part in something"),
        (("--wants", "H"), "wants: expected axis>=letter, as in 'C_in>=m' or 'H->W>=o', found 'H'"),
        (("--flops", "-1"), "max_replaced_ratio: expected a number above 0"),
        (("--minutes", "0"), "minutes: expected a number above 0"),
        (("--option", "nonsense"), "--option: expected NAME=VALUE"),
        (("--system", "halide"), "--system: expected a system among pgraphs, canvas, αnas, nas-pte, found 'halide'"),
        (("--system", "NAS-PTE"), "no space"),
        (("--continue", "--name", "none"), "--continue: expected a search 'none'"),
        (("--name", "a/b"), "name: expected a name that can be one of a folder"),
        (("--in-process", "--address", "tcp://127.0.0.1:1"), "--address: expected trainings as jobs"),
        (("--in-process", "--detach"), "--detach: expected a search as a job"),
        (("--tune-within", "-1"), "tune within: expected percentage points from 0 to 100"),
        (("--tune-within", "1", "--target", "no such thing"), "expected a target among local"),
        (("--tune-within", "1", "--tracker", "127.0.0.1:1"), "no RPC tracker listens at 127.0.0.1:1"),
        (
            ("--rungs", "--trials", "3"),
            "rungs: expected the minutes of the search, which rungs share, found trials alone",
        ),
        (("--rungs", "--tune-within", "1"), "rungs: expected no tuning beside them"),
        (("--tune-within", "1", "--seeds", "0"), "tuning: expected seeds to train the baseline on"),
        (("--rave",), "--rave: expected --method mcts beside it, found estimate"),
        (("--virtual-loss", "1", "--method", "random"), "--virtual-loss: expected --method mcts beside it, found rand"),
        (("--tracker", "127.0.0.1:1"), "--tracker: expected --tune-within POINTS beside it, found none"),
    ],
)
def test_one_line_for_what_is_wrong(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, "search", "--data", "digits", "--folder", str(tmp_path), *arguments)
    assert message in line


def test_a_cluster_that_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syno_lab.jobs.dispatch.ANSWER_S", 0.3)
    line = refused(capsys, "search", "--data", "digits", "--folder", str(tmp_path), "--address", "tcp://127.0.0.1:1")
    assert "the Dask cluster at tcp://127.0.0.1:1 does not answer within 0.3 s" in line


def test_a_store_of_another_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import sqlite3
    from contextlib import closing

    from syno_lab.store import Store

    Store.open(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as file:
        file.execute("PRAGMA user_version=99")
    assert "has version 99" in refused(capsys, "search", *SMALL, "--folder", str(tmp_path), "--trials", "1")


def test_a_search_without_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ("--folder", str(tmp_path), "--name", "untrained")
    small = (*SMALL, "--wants", "none", "--flops", "2")
    found = json.loads(answered(capsys, "search", *small, *place, "--untrained", "--trials", "20", "--json", "-"))
    assert (found["untrained"], found["examined"], found["end"]) == (True, 20, "20 operators are examined")
    assert found["settings"]["method"] == "elites"
    assert found["baseline"]["accuracy"] is None
    scores = [point["score"] for point in found["front"]]
    assert scores == sorted(scores)
    assert Path(found["picture"]).read_text().startswith("<?xml")
    text = answered(capsys, "search", "--continue", "--in-process", *place, "--trials", "30")
    assert "30 operators examined" in text
    assert "none trained" in text
    line = refused(capsys, "search", *small, "--folder", str(tmp_path), "--untrained", "--tune-within", "1")
    assert "tuning: expected a search that trains, found an untrained one" in line


def test_the_search_of_the_readme_finds_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands there, on the data that everybody has, but for a number of operators in place of its minutes."""
    found = re.search(
        r"^syno-lab (search --untrained .*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found is not None
    words = re.sub(r"--minutes \d+", "--trials 8", found[1]).split()
    result = json.loads(answered(capsys, *words, "--in-process", "--folder", str(tmp_path), "--json", "-"))
    assert result["examined"] == 8
    assert result["front"]
