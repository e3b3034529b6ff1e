"""The commands of synthesis: what sampling keeps, stored searches, the paper's ablations."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from command_line import answered, refused

from syno_lab.cli import main
from syno_lab.commands import output
from syno_lab.commands.pgraphs import ablate, sample, specs
from syno_lab.commands.pgraphs import enumerate as enumerate_command
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.synthesis.sampler import Sampler

# -- sample ------------------------------------------------------------------------------------------------------------


def test_sample_keeps_the_first_ones_and_counts_the_rest(tiny: str) -> None:
    spec, _ = specs.load_spec(tiny, max_primitives=3)
    said: list[str] = []
    drawn = sample.draw(spec, 3, None, 1.0, lambda stage, done, message: said.append(message), keep=4)
    assert len(drawn.operators) == 4 < drawn.distinct
    assert drawn.operators == sample.draw(spec, 3, 4, None, lambda *args: None).operators
    assert len(said) <= 12, "a message takes longer than an operator: at most every tenth of a second"
    assert [moment.distinct for moment in drawn.course] == sorted(moment.distinct for moment in drawn.course)
    assert drawn.course[-1].distinct == drawn.distinct


def test_the_course_of_a_long_run_is_thinned_out_evenly() -> None:
    course = sample._Course()
    for tick in range(6001):
        course.add(sample.Moment(tick / 10, tick / 10, tick, 0))
    seconds = [moment.seconds for moment in course.moments]
    assert 20 <= len(seconds) <= 64
    assert seconds[-1] > 570
    gaps = [after - before for before, after in itertools.pairwise(seconds)]
    assert max(gaps) <= 2.5 * min(gaps)


def test_fingerprints_are_taken_of_the_first_operators(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["sample", "--spec", tiny, "--count", "8", "--seed", "1", "--json", "-"]
    every = json.loads(answered(capsys, *arguments))
    assert every["fingerprinted"] == every["distinct"] == 8
    names = [entry["fingerprint"] for entry in every["operators"]]
    out = tmp_path / "out.json"
    with output.json_to(str(out)):  # the command line asks for 5,000 fingerprints
        sample.command(spec=tiny, count=8, seed=1, fingerprints_of=5, kernels=sample.Kernels())
    some = json.loads(out.read_text())
    assert some["fingerprinted"] == 5
    assert [entry["fingerprint"] for entry in some["operators"]] == [*names[:5], None, None, None]
    assert some["repeat_share"] == 1 - len(set(names[:5])) / 5


# -- enumerate ---------------------------------------------------------------------------------------------------------


def test_enumerate_gives_each_operator_once_and_counts(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, _ = specs.load_spec(tiny, max_primitives=3)
    expected = list(Sampler.from_spec(spec).enumerate())
    out = tmp_path / "all.jsonl"
    arguments = ["enumerate", "--spec", tiny, "--max-primitives", "3", "--out", str(out), "--json", "-"]
    result = json.loads(answered(capsys, *arguments))
    assert (result["count"], result["is_whole"]) == (len(expected), True)
    assert result["by_steps"] == {str(n): k for n, k in Counter(len(operator.steps) for operator in expected).items()}
    found = [Operator.from_json(line) for line in out.read_text().splitlines()]
    assert found == expected
    assert len(set(found)) == len(found)

    first = json.loads(answered(capsys, *arguments[:-4], "--count", "2", "--json", "-"))
    assert (first["count"], first["is_whole"]) == (2, False)
    said = answered(capsys, *arguments[:-4], "--count", "2")
    assert said.endswith("2 operators of at most 3 steps, and there are more\n")
    exactly = json.loads(answered(capsys, *arguments[:-4], "--count", str(len(expected)), "--json", "-"))
    assert exactly["is_whole"]

    with pytest.raises(SynoError, match="--out: expected a file in a folder that can be written to"):
        enumerate_command.command(spec=tiny, max_primitives=3, out=tmp_path)


def test_a_spec_file_in_syno_s_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = {
        "input_shape": "[N, C: unordered, H]",
        "output_shape": "[N, D: unordered, H]",
        "primary_specs": ["N=1: 0", "C = 8: 1", "D=8: 1", "H=4:0"],
        "coefficient_specs": ["k_1=3: 2"],
        "fixed_io_pairs": [[0, 0]],
        "max_primitives": 3,
        "net": None,
        "mappings": None,
    }
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(fields))
    assert main(["sample", "--spec", str(file), "--count", "3", "--seed", "1", "--json", "-"]) == 0
    found, said = capsys.readouterr()
    assert {
        tuple(Operator.from_json(json.dumps(one["operator"])).spec.unordered) for one in json.loads(found)["operators"]
    } == {("C",)}
    assert "D is read without ': unordered'" in said
    file.write_text(json.dumps(fields | {"input_shape": "[N, 8, H]"}))
    assert "declare it, as in 'n_0=8'" in refused(capsys, "sample", "--spec", str(file))


def test_wishes_of_a_spec_file_and_of_the_command_line(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wishing = tmp_path / "wishing.json"
    wishing.write_text(json.dumps({**json.loads(Path(tiny).read_text()), "wants": "H ≥ m"}))
    expected = {
        wants: [
            op for op in Sampler.from_spec(specs.load_spec(tiny, max_primitives=3)[0]).enumerate() if op.meets(found)
        ]
        for wants, found in (("", ()), ("H>=m", specs.load_spec(str(wishing))[0].wants))
    }
    assert 0 < len(expected["H>=m"]) < len(expected[""])
    for spec, given, wants in (
        (tiny, (), ""),
        (tiny, ("--wants", "H>=m"), "H>=m"),
        (str(wishing), (), "H>=m"),
        (str(wishing), ("--wants", "none"), ""),
        (str(wishing), ("--wants", "H>=o"), "H>=o"),
    ):
        arguments = ("--spec", spec, "--max-primitives", "3", *given, "--json", "-")
        counted = json.loads(answered(capsys, "enumerate", *arguments))
        assert counted["wants"] == wants
        drawn = json.loads(answered(capsys, "sample", *arguments, "--count", "1000"))
        assert drawn["wants"] == wants
        assert counted["count"] == drawn["distinct"]
        if wants in expected:
            assert counted["count"] == len(expected[wants])
    for command in ("sample", "enumerate"):
        line = refused(capsys, command, "--spec", tiny, "--wants", "W>=m")
        assert "wants: expected an input axis of [H], found 'W'" in line
        line = refused(capsys, command, "--spec", str(wishing), "--wants", "H>=a")
        assert "wants H>=a: no operator of this space can have it: all of H is read only by a REDUCE" in line


# -- replay ------------------------------------------------------------------------------------------------------------


def test_a_saved_search_replays(tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    drawn = json.loads(
        answered(capsys, "sample", "--spec", tiny, "--count", "5", "--seed", "2", "--save", str(path), "--json", "-")
    )
    stored = json.loads(path.read_text())
    assert stored["operators"] == [entry["operator"] for entry in drawn["operators"]]
    result = json.loads(answered(capsys, "replay", str(path), "--json", "-"))
    assert result["same"]
    assert result["count"] == result["compared"] == 5
    assert answered(capsys, "replay", str(path)) == "the same 5 operators, seed 2\n"

    stored |= {"seed": 3, "syno_lab": "0.0.1", "rules": ["nothing", *stored["rules"]]}
    path.write_text(json.dumps(stored))
    assert main(["replay", str(path)]) == 1
    captured = capsys.readouterr()
    assert re.fullmatch(r"different after \d of 5: operator \d: expected [0-9a-f]{32}: .*, drew .*\n", captured.out)
    assert "note: the record is of Syno Lab 0.0.1, this is 0.1.0" in captured.err
    assert "note: the record asked rules that are not here: nothing" in captured.err


# -- ablate ------------------------------------------------------------------------------------------------------------


def test_canonical_rates_stand_beside_the_paper_s(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ablate", "canonical", "--spec", tiny, "--max-primitives", "2..3", "--trials", "30", "--seed", "1"]
    result = json.loads(answered(capsys, *arguments, "--json", "-"))
    assert [(row["size"], row["pgraphs"], row["paper"]) for row in result["rows"]] == [(2, 30, 1.0), (3, 30, 0.1818)]
    for row in result["rows"]:
        assert row["share"] == row["canonical"] / 30
        assert row["low"] <= row["share"] <= row["high"]
    assert (result["paper"]["canonical"], result["paper"]["pgraphs"]) == (86, 6452)
    assert sum(result["rejected_by"].values()) >= result["all"]["pgraphs"] - result["all"]["canonical"]
    again = json.loads(answered(capsys, *arguments, "--json", "-"))
    assert [row["canonical"] for row in again["rows"]] == [row["canonical"] for row in result["rows"]]
    header, *rows, _ = answered(capsys, *arguments).splitlines()
    assert " ".join(header.split()).startswith("size canonical drawn share 95 % from to the paper")
    for line, row in zip(rows, result["rows"], strict=True):
        shown = [f"{row[name]:.4g}" for name in ("size", "canonical", "pgraphs", "share", "low", "high", "paper")]
        assert line.split()[:7] == shown, "each rate with its counts and its interval"
    *rows, summary = answered(capsys, *arguments, "--complete").splitlines()[1:]
    assert len(rows) == 2
    assert "complete operators" in summary


def test_trials_with_and_without_distance(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ablate", "distance", "--spec", tiny, "--max-primitives", "3", "--trials", "40", "--seed", "1"]
    result = json.loads(answered(capsys, *arguments, "--json", "-"))
    assert [row["distance"] for row in result["rows"]] == ["with", "without"]
    assert [row["paper"]["trials"] for row in result["rows"]] == [5_000_000, 500_000_000]
    assert result["rows"][0]["valid"] > result["rows"][1]["valid"]
    assert "trials for one operator with the distance" in answered(capsys, *arguments)


@pytest.mark.parametrize(
    ("text", "sizes"), [("8", [2, 3, 4, 5, 6, 7, 8]), ("3..5", [3, 4, 5]), ("1", [1]), ("4..4", [4])]
)
def test_sizes_are_parsed(text: str, sizes: list[int]) -> None:
    assert ablate.parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "0", "5..3", "a", "2..", "2...4", "-3", "2..4..6", "999"])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SynoError, match="--max-primitives: expected a size such as 8"):
        ablate.parse_sizes(text)
