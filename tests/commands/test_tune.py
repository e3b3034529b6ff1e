"""``syno-lab tune``: what it refuses, and one tuning that is kept."""

import json
import subprocess
import sys

import pytest
from command_line import answered, refused

from syno_lab.cli import main
from syno_lab.commands.detach import working_in
from syno_lab.jobs import Lab
from syno_lab.jobs.trust import is_signed
from syno_lab.tuning import PRESETS
from syno_lab.tuning.method import from_job

SIZES = [text for size in ("N=1", "C_in=4", "C_out=4", "H=6", "W=6") for text in ("--bind", size)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "fast"], "expected a preset among quick, normal, thorough, found 'fast'"),
        (["--trials", "0"], "Invalid value for '--trials'"),
        (["--target", "jetson-orin-nano-cpu", "--compare"], "--compare: expected --target local"),
        (["--target", "local:99"], "expected local:THREADS with 1 to"),
        (["--key", "a"], "--tracker HOST:PORT and --key KEY together"),
        (["--bind", "Q=3"], "unknown variable 'Q'"),
        (["--mutator", "tile-size"], "--mutator: expected NAME=SHARE, as in tile-size=0.9, found 'tile-size'"),
        (["--mutator", "tile-size=much"], "--mutator: expected NAME=SHARE, as in tile-size=0.9, found"),
        (["--mutator", "tiles=1"], "expected a mutator among tile-size, unroll"),
        (["--mutator", "unroll=0"], "expected the share of a mutator as a number above 0, found 0"),
        (["--postprocessor", "verify"], "expected a postprocessor among no-dynamic-loop"),
        (["--cost-model", "linear"], "expected a cost model among xgboost, random, a class or 'file.py:class'"),
        (["--cost-model", "/none/such.py:Model"], "/none/such.py"),
        (["--records", "records", "--detach"], "leave --compare, --records and --start-from out"),
        (["--start-from", "nowhere"], "there is no such folder: 'nowhere'"),
    ],
)
def test_bad_input(arguments, message, capsys):
    assert message in refused(capsys, "tune", "conv2d", *SIZES, *arguments)


def test_the_presets_cost_more_and_more():
    assert list(PRESETS) == ["quick", "normal", "thorough"]
    costs = [(one.trials, one.population, one.generations, one.search.min_ms) for one in PRESETS.values()]
    assert costs == sorted(costs)
    assert len({trials for trials, *_ in costs}) == 3


@pytest.mark.parametrize(("options", "seconds"), [(["--trials", "700"], 700 * 12), (["--deadline", "40"], 40)])
def test_a_detached_tuning_has_time_for_all_its_trials(capsys, tmp_path, options, seconds):
    with Lab.open(tmp_path, start=False) as lab, working_in(lab):
        answered(capsys, "tune", "conv2d", *SIZES, *options, "--detach")
        (job,) = lab.jobs(kind="tune")
    assert seconds <= job.params["deadline_s"] < 2 * seconds  # a trial has been seen to take 12 on a busy machine


def test_a_detached_tuning_searches_as_it_was_told(capsys, tmp_path):
    options = ["--rule", "tiling", "--rule", "vectorize", "--strategy", "replay-trace", "--cost-model", "random"]
    with Lab.open(tmp_path, start=False) as lab, working_in(lab):
        answered(capsys, "tune", "conv2d", *SIZES, *options, "--detach")
        answered(capsys, "tune", "conv2d", *SIZES, "--detach")
        plain, chosen = sorted((one.params for one in lab.jobs(kind="tune")), key=lambda one: one["strategy"])
    assert [chosen[name] for name in ("rules", "cost_model")] == [["tiling", "vectorize"], "random"]
    assert plain["rules"] == ["fuse-stages", "channel-lanes", "default"]


#: Parts of a tuning as a user writes them in a file; each leaves a trace of its work in the folder where TVM runs.
OWN = """\
from pathlib import Path


class Counts:
    def extract(self, context, candidates):
        return [candidate.sch.mod.script().count("for ") for candidate in candidates]

    def update(self, features, seconds):
        Path("told.txt").write_text(str(len(seconds)))

    def predict(self, features):
        return [float(feature) for feature in features]


def same(trace):
    return trace


def keeps(schedule):
    Path("kept.txt").write_text("kept")
    return True
"""


def own_parts(file):
    """The options that take the parts of :data:`OWN`, and TVM's beside them."""
    file.write_text(OWN)
    words = ["--cost-model", f"{file}:Counts", "--mutator", "tile-size=0.75", "--mutator", f"{file}:same=0.25"]
    return [*words, "--postprocessor", "reduction", "--postprocessor", f"{file}:keeps"]


def test_a_detached_tuning_takes_the_code_of_its_parts_along(capsys, tmp_path):
    """The file may be gone when the job runs: its text is in the job, and is signed with it."""
    options = own_parts(tmp_path / "parts.py")
    with Lab.open(tmp_path / "lab", start=False) as lab, working_in(lab):
        answered(capsys, "tune", "conv2d", *SIZES, *options, "--detach")
        (job,) = lab.jobs(kind="tune")
        params = job.params
        assert is_signed(lab.ledger, job)
    assert params["cost_model"]["name"] == "Counts"
    assert "class Counts" in params["cost_model"]["source"]
    (name, most), (code, least) = params["mutators"]
    assert (name, most, code["name"], least) == ("tile-size", 0.75, "same", 0.25)
    assert params["postprocessors"][0] == "reduction"
    assert "def keeps(schedule)" in params["postprocessors"][1]["source"]
    (tmp_path / "parts.py").unlink()
    assert [share for _, share in from_job(params).mutations] == [0.75, 0.25]


@pytest.mark.tvm
def test_parts_of_one_s_own_and_a_start_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = own_parts(tmp_path / "parts.py")
    common = ["tune", "conv2d", *SIZES, "--target", "local:1", "--json", "-"]
    first = json.loads(answered(capsys, *common, *options, "--trials", "4", "--out", "first"))
    assert first["trials"] == 4
    assert first["verified"]
    assert "Counts@" in first["method"]
    assert "mutators tile-size 0.75, same@" in first["method"]
    assert int((tmp_path / "told.txt").read_text()) > 0, "the model was told"
    assert (tmp_path / "kept.txt").exists(), "the postprocessor was asked"
    start = ["--start-from", "first/records", "--trials", "1", "--out", "second"]
    second = json.loads(answered(capsys, *common, *start))
    assert second["method"].endswith("started from records")
    assert not second["from_records"]
    before = min(ms for _, ms in first["history"])
    assert min(ms for _, ms in second["history"]) <= before, "it may return one of those that it started from"
    nothing = refused(capsys, *common[:-2], "--start-from", "none", "--trials", "1", "--out", "third")
    assert "there is no such folder: 'none'" in nothing


@pytest.mark.tvm
@pytest.mark.warm
def test_a_tuning_is_kept_and_compared(tmp_path, capsys):
    words = ["tune", "conv2d", "conv1x1", *SIZES, "--trials", "2", "--out", str(tmp_path), "--json", "-"]
    # In a process of its own, as a user runs it.
    done = subprocess.run(
        [sys.executable, "-m", "syno_lab.cli", *words], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    told, progress = json.loads(done.stdout), done.stderr
    assert told["failed"] == {}
    assert [row["label"] for row in told["results"]] == ["conv2d", "conv1x1"]
    assert "trials an hour" in progress
    for row in told["results"]:
        assert row["trials"] == 2
        assert not row["from_records"]
        assert row["seconds_per_trial"] == pytest.approx(row["seconds"] / 2)
    assert main(words) == 0
    captured = capsys.readouterr()
    again = json.loads(captured.out)
    assert "trials an hour" not in captured.err  # the records answer
    for row, before in zip(again["results"], told["results"], strict=True):
        assert row["from_records"]
        assert row["latency_ms"] == before["latency_ms"]
