"""``syno-lab tune``: what it refuses, and one tuning that is kept."""

import json
import subprocess
import sys

import pytest
from command_line import answered, refused

from syno_lab.commands.detach import working_in
from syno_lab.jobs import Lab
from syno_lab.tuning import PRESETS

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
    assert plain["rules"] == ["channel-lanes", "default"]


@pytest.mark.tvm
def test_a_tuning_is_kept_and_compared(tmp_path):
    def tune(*arguments):
        # In a process of its own, as a user runs it.
        words = ["tune", "conv2d", "conv1x1", *SIZES, "--trials", "2", "--out", str(tmp_path), "--json", "-"]
        done = subprocess.run(
            [sys.executable, "-m", "syno_lab.cli", *words, *arguments],
            capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    told, progress = tune()
    assert told["failed"] == {}
    assert [row["label"] for row in told["results"]] == ["conv2d", "conv1x1"]
    assert "trials an hour" in progress
    for row in told["results"]:
        assert row["trials"] == 2
        assert not row["from_records"]
        assert row["seconds_per_trial"] == pytest.approx(row["seconds"] / 2)
    again, progress = tune()
    assert "starting a tracker" not in progress  # the records answer
    for row, before in zip(again["results"], told["results"], strict=True):
        assert row["from_records"]
        assert row["latency_ms"] == before["latency_ms"]
