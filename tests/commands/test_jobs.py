"""The command ``jobs`` on a lab with real jobs: lists, steers, watches, and one line for what cannot be."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import short_jobs
from command_line import answered, refused

from syno_lab.cli import main
from syno_lab.commands.jobs import job_row, left_text, possible_actions
from syno_lab.errors import SynoError
from syno_lab.jobs import JobHandle, JobRecord, Lab
from syno_lab.processes import alive

WITHIN_S = 200.0
ACTIONS = ("pause", "resume", "cancel", "retry")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab that runs jobs, found by the command through the environment."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("jobs") / "lab"
        here = str(Path(short_jobs.__file__).parent)
        patch.setenv("SYNO_LAB_FOLDER", str(folder))
        patch.setenv("SYNO_LAB_KINDS", short_jobs.VARIABLE)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
        with Lab.open(folder) as opened:
            yield opened
            opened.shutdown()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def until(job: JobHandle, *states: str) -> None:
    """Wait until a job is in one of the states."""
    deadline = time.monotonic() + WITHIN_S
    while job.record().state not in states:
        assert time.monotonic() < deadline, job.record()
        time.sleep(0.05)


def test_lists_shows_and_logs(lab: Lab, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate.write_text("[bold]open[/bold]")
    job = lab.submit("gate", {"gate": str(gate)}, name="[red]mine")
    job.wait(WITHIN_S)
    failed = lab.submit("end", {"how": "give up"})
    failed.wait(WITHIN_S)
    lines = answered(capsys, "jobs").splitlines()
    assert lines[0].split() == ["job", "kind", "name", "state", "done", "left", "attempt", "wall_s", "message"]
    assert [line.split()[:4] for line in lines[1:3]] == [
        [str(job.id), "gate", "[red]mine", "finished"],
        [str(failed.id), "end", "failed", "0"],
    ]
    assert "the data is of the wrong shape" in lines[2]
    found = json.loads(answered(capsys, "jobs", "--json", "-"))
    assert [(row["id"], row["state"]) for row in found] == [(job.id, "finished"), (failed.id, "failed")]
    assert found[0]["result"]["read"] == "[bold]open[/bold]"
    assert json.loads(answered(capsys, "jobs", "list", "--state", "failed", "--json", "-")) == found[1:]
    assert json.loads(answered(capsys, "jobs", "list", "--kind", "gate", "--json", "-")) == found[:1]

    shown = answered(capsys, "jobs", "show", str(job.id))
    assert f"id:           {job.id}\n" in shown
    assert '"read":"[bold]open[/bold]"' in shown
    assert "attempt 1: gave its result, " in shown
    assert "attempt 1: the data is of the wrong shape, " in answered(capsys, "jobs", "show", str(failed.id))
    facts = json.loads(answered(capsys, "jobs", "show", str(job.id), "--json", "-"))
    assert {name: facts[name] for name in found[0]} == found[0]
    assert [one["attempt"] for one in facts["attempts"]] == [1]

    log = answered(capsys, "jobs", "log", str(job.id))
    assert log.endswith(" waiting for gate\n")
    assert json.loads(answered(capsys, "jobs", "log", str(job.id), "--json", "-"))["log"] == log
    assert answered(capsys, "jobs", "log", str(failed.id), "--tail", "1").count("\n") == 1
    assert answered(capsys, "jobs", "log", str(job.id), "--attempt", "7") == ""


def test_steers_and_watches(lab: Lab, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = lab.submit("gate", {"gate": str(gate)})
    until(job, "running")
    number = str(job.id)
    assert "running, to pause" in answered(capsys, "jobs", "pause", number) or job.record().state == "paused"
    until(job, "paused")
    assert number in answered(capsys, "jobs", "resume", number)
    until(job, "running")
    assert job.record().attempt == 2
    assert json.loads(answered(capsys, "jobs", "cancel", number, "--json", "-"))[0]["id"] == job.id
    until(job, "cancelled")
    assert main(["jobs", "watch", number]) == 1, "it has ended without a result"
    assert f"job {number}: cancelled cancelled by the user" in capsys.readouterr().err
    answered(capsys, "jobs", "retry", number)
    opener = threading.Timer(0.5, gate.write_text, ["open"])
    opener.start()
    assert "waiting for gate" in answered(capsys, "jobs", "log", number, "--follow")
    (found,) = json.loads(answered(capsys, "jobs", "watch", number, "--json", "-"))
    assert (found["state"], found["attempt"], found["result"]["read"]) == ("finished", 3, "open")
    opener.join()


def test_what_is_offered_is_what_can_be_done(lab: Lab, gate: Path) -> None:
    """Each action that a state offers changes the job; each other one is refused or does nothing."""

    def tried(job: JobHandle, action: str) -> bool:
        before = job.record()
        try:
            getattr(job, action)()
        except SynoError:
            return False
        after = job.record()
        return (before.state, before.wish, before.round) != (after.state, after.wish, after.round)

    def made(how: str) -> JobHandle:
        if how == "failed":
            job = lab.submit("end", {"how": "give up"})
        else:  # it comes after one that never ends, so it waits
            job = lab.submit("nothing", {}, after=[] if how == "finished" else [never.id])
        if how in ("finished", "failed"):
            until(job, how)
        if how in ("paused", "cancelled"):
            {"paused": job.pause, "cancelled": job.cancel}[how]()
        return job

    never = lab.submit("gate", {"gate": str(gate)})
    never.pause()
    for state in ("waiting", "paused", "finished", "failed", "cancelled"):
        for action in ACTIONS:
            job = made(state)
            record = job.record()
            assert record.state == state
            assert (action in possible_actions(record)) == tried(job, action), (state, action)
            job.cancel()
    never.cancel()


@pytest.mark.parametrize(
    ("state", "progress", "seconds", "said"),
    [
        ("running", 0.5, 40.0, "about 40 s"),
        ("running", 0.25, 100.0, "about 5 min"),
        ("running", 0.1, 3600.0, "about 9 h"),
        ("running", 0.02, 86400.0, "about 49 days"),
        ("running", 0.01, 10.0, ""),  # too little to tell
        ("running", 1.0, 10.0, ""),
        ("waiting", 0.5, 10.0, ""),
        ("finished", 1.0, 10.0, ""),
    ],
)
def test_how_long_a_job_still_takes(state: Any, progress: float, seconds: float, said: str) -> None:
    times = {"started": None, "ended": None, "wall_s": 0.0, "cpu_s": 0.0}
    record = JobRecord(
        1, "nothing", "", {}, None, (), {}, 3, "", state, "", 1, 1, 0, "", None, **times, progress=progress
    )  # fmt: skip
    assert left_text(record, seconds) == said


def test_a_row_is_one_line(lab: Lab, gate: Path) -> None:
    job = lab.submit("end", {"how": "bug"}, name="x")
    job.wait(WITHIN_S)
    row = job_row(job.record())
    assert (row["job"], row["state"], row["message"]) == (str(job.id), "failed", "ValueError: two lines")
    assert not [value for value in row.values() if "\n" in value]


def test_stop_holds_what_was_under_way(lab: Lab, gate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = lab.submit("gate", {"gate": str(gate)})
    behind = lab.submit("nothing", {}, after=[job.id])
    until(job, "running")
    lease = lab.ledger.lease(job.id)
    assert lease is not None
    assert json.loads(answered(capsys, "jobs", "stop", "--json", "-"))["jobs"] == [job.id, behind.id]
    assert not alive.is_alive(lease.child)
    time.sleep(1.5)  # the lab of this test is open all the while, and does not start them again
    assert {job.record().state, behind.record().state} == {"paused"}
    gate.write_text("later")
    answered(capsys, "jobs", "resume", str(job.id), str(behind.id))
    assert behind.wait(WITHIN_S).state == "finished"
    assert job.record().attempt == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "77"), "no job 77 in "),
        (("cancel", "1", "77"), "no job 77 in "),
        (("resume", "1"), "job 1 is finished and cannot be asked to resume"),
        (("cancel", "x"), "Invalid value for 'JOB…'"),
        (("cancel",), "Missing argument"),
        (("melt", "1"), "No such command 'melt'"),
        (("--state", "melted"), "'melted' is not one of 'waiting', 'running'"),
        (("--kind", "train", "list"), "expected the options after 'list', found them before it"),
        (("--json", "/nowhere/at/all"), "--json: expected a file in a folder that can be written to"),
        (("log", "1", "--tail", "0"), "Invalid value for '--tail'"),
    ],
)
def test_one_line_for_bad_input(
    lab: Lab, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said in refused(capsys, "jobs", *words)
    assert lab.job(1).record().state == "finished", "a wrong number changes nothing"


def test_a_folder_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert str(file) in refused(capsys, "jobs", "list", "--folder", str(file))
    assert answered(capsys, "jobs", "list", "--folder", str(tmp_path / "new")) == f"no jobs in {tmp_path / 'new'}\n"
    assert answered(capsys, "jobs", "watch", "--folder", str(tmp_path / "new")) == f"no jobs in {tmp_path / 'new'}\n"


def test_training_is_submitted(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "baseline", "--detach", "--epochs", "1", "--train-images", "64", "--test-images", "32"]
    words += ["--width", "4", "--batch-size", "32", "--seeds", "2"]
    first, second = json.loads(answered(capsys, *words, "--json", "-"))["jobs"]
    assert (first["kind"], first["name"], first["params"]["seed"]) == ("train", "baseline, seed 0", 0)
    assert second["params"] == {**first["params"], "seed": 1}
    assert second["params"]["train_images"] == 64
    for job in (first, second):
        lab.job(job["id"]).cancel()


@pytest.mark.parametrize("option", [["--against-baseline"], ["--stop-early", "canvas"]])
def test_trainings_that_need_each_other_are_not_detached(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "train", "conv2d", "--detach", *option)
    assert "--detach: expected independent trainings" in line


def test_data_is_found_from_elsewhere(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("To be, or not to be. " * 400)
    monkeypatch.chdir(tmp_path)
    words = ["train", "baseline", "--detach", "--data", "text.txt", "--option", "layers=1", "--option", "width=8"]
    (job,) = json.loads(answered(capsys, *words, "--json", "-"))["jobs"]
    lab.job(job["id"]).cancel()
    assert job["params"]["data"] == str(tmp_path / "text.txt")


def test_lab_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from syno_lab.commands.detach import lab_folder

    monkeypatch.setenv("SYNO_LAB_FOLDER", str(tmp_path))
    assert lab_folder() == tmp_path
    assert lab_folder(Path("mine")) == Path("mine").absolute()
    monkeypatch.delenv("SYNO_LAB_FOLDER")
    assert lab_folder() == Path(".syno-lab").absolute()
