"""Workers that see no lab's folder: two clusters' folders on one machine, whose devices are only named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import job_kinds
import msgspec
import psutil
import pytest
from command_line import answered, refused
from labs import PATIENCE_S, ended, free_port, show_kinds, steps, until

from syno_lab.commands.search_options import parse_workers
from syno_lab.errors import JobError, SynoError
from syno_lab.experiments import JobRunner, SearchSettings
from syno_lab.experiments.job import offer_gpus
from syno_lab.experiments.rung_worker import JobWorkers
from syno_lab.jobs import Lab, door, gpus
from syno_lab.jobs.cluster import Settings
from syno_lab.jobs.kinds import is_at_home
from syno_lab.trial import TrialRequest

pytestmark = pytest.mark.warm

CODE = "import sys; from syno_lab.cli import main; sys.exit(main())"


# -- GPUs --------------------------------------------------------------------------------------------------------------


def test_names_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    assert gpus.parse("3") == ("0", "1", "2")
    assert gpus.parse("GPU-8f1c, GPU-22aa") == ("GPU-8f1c", "GPU-22aa")
    monkeypatch.setenv(gpus.VISIBLE, "5,7")
    assert gpus.parse("2") == ("5", "7")
    with pytest.raises(
        JobError, match="expected at most the 2 that CUDA_VISIBLE_DEVICES lets this process see, found 3"
    ):
        gpus.parse("3")
    for wrong in ("", "a,,b", "a,a", "x y", "all,1;rm"):
        with pytest.raises(JobError, match="GPUs: expected all, a number, or names divided by commas, found"):
            gpus.parse(wrong)


def test_the_machine_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.parse("all") == (), "no driver"
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: some (UUID: GPU-1)'\necho 'GPU 1: some (UUID: GPU-2)'\n")
    program.chmod(0o700)
    assert gpus.parse("all") == ("0", "1")
    monkeypatch.setenv(gpus.VISIBLE, "1")
    assert gpus.parse("all") == ("1",)


def test_each_attempt_has_gpus_of_its_own_and_parts_share_one() -> None:
    pool = gpus.Pool(("a", "b", "c"))
    with pool.some(1) as first, pool.some(1) as second:
        assert {*first, *second} == {"a", "b"}
        with pool.some(0) as none, pool.some(0.5) as half, pool.some(0.5) as other:
            assert none == ()
            assert half == other == ("c",)
    with pool.held(("b",), 1.0), pool.some(2) as two:
        assert two == ("a", "c")
    with pool.some(3) as every:
        assert every == ("a", "b", "c")


def test_an_attempt_sees_what_its_worker_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpus.VARIABLE, raising=False)
    with gpus.assigned(1) as said:
        assert said == {}, "a worker whose GPUs nobody has named"
    monkeypatch.setenv(gpus.VARIABLE, "x,y")
    with gpus.assigned(1) as one, gpus.assigned(1) as other, gpus.assigned(0) as none:
        assert [one, other, none] == [{gpus.VISIBLE: "x"}, {gpus.VISIBLE: "y"}, {gpus.VISIBLE: ""}]


# -- the door ----------------------------------------------------------------------------------------------------------


def test_files_travel_once_and_stay_in_the_folder(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "deep").mkdir(parents=True)
    (here / "a").write_bytes(b"1")
    (here / "deep" / "b").write_bytes(b"2")
    (here / "link").symlink_to("/etc/passwd")
    known: dict[str, tuple[int, int]] = {}
    assert door.files_of(here, known) == {"a": b"1", "deep/b": b"2"}
    assert door.files_of(here, known) == {}
    (here / "a").write_bytes(b"changed")
    assert door.files_of(here, known) == {"a": b"changed"}
    door.write_files(there, door.files_of(here))
    assert (there / "deep" / "b").read_bytes() == b"2"
    for path in ("../x", "/x", "a/../../x", "a//b", "a\\b", ""):
        with pytest.raises(JobError, match="expected a path within a job's folder, found"):
            door.write_files(there, {path: b""})
    (there / "out").symlink_to(tmp_path)
    with pytest.raises(JobError, match="found a link out of it at 'out/x'"):
        door.write_files(there, {"out/x": b""})
    assert not (tmp_path / "x").exists()


def test_what_works_in_the_store_stays_at_home() -> None:
    assert [is_at_home(kind, {"slot": 1}) for kind in ("rungs", "train", "tune")] == [True, False, False]
    assert is_at_home("search", {})
    assert is_at_home("mine", {})


# -- two machines ------------------------------------------------------------------------------------------------------


@contextmanager
def machine(
    tmp_path: Path, name: str, address: str, certificate: Path, devices: str, *more: str
) -> Iterator[subprocess.Popen[str]]:
    """A worker with settings and a folder of its own, as another machine would have."""
    home = tmp_path / name
    home.mkdir(mode=0o700)
    own = home / "copied.pem"
    own.write_bytes(certificate.read_bytes())
    own.chmod(0o600)
    words = ["worker", address, "--certificate", str(own), "--slots", "2", "--gpus", devices, *more]
    environment = {**os.environ, "SYNO_LAB_CONFIG": str(home / "settings"), "SYNO_LAB_AWAY_FILES_S": "0.2"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", CODE, *words],
        env={**environment, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), *filter(None, sys.path)])},
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        if process.stdout is not None and not process.stdout.closed:
            threading.Thread(target=process.communicate, daemon=True).start()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def kill_all(process: subprocess.Popen[str]) -> None:
    """As if the machine had lost its power: the command, Dask's worker, and the processes of its jobs."""
    for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        one.kill()


def test_a_job_travels_to_a_machine_without_the_folder_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_kinds(monkeypatch, job_kinds.VARIABLE)
    folder, certificate, go = tmp_path / "lab", tmp_path / "join.pem", tmp_path / "go"
    serve = ["jobs", "serve", "--listen", "127.0.0.1", "--port", str(free_port()), "--certificate", str(certificate)]
    served = json.loads(answered(capsys, *serve, "--folder", str(folder), "--json", "-"))
    assert served["address"].startswith("tls://127.0.0.1:")
    assert certificate.stat().st_mode & 0o777 == 0o600
    with Lab.open(folder) as lab, ExitStack() as stack:
        stack.callback(lab.shutdown)
        first = stack.enter_context(machine(tmp_path, "first", served["address"], certificate, "left,right"))
        on_gpu = {"slot": 1, "GPU": 1}
        pair = [lab.submit("sees", {"until": str(go)}, resources=on_gpu) for _ in range(2)]
        until(lambda: all(job.record().message == "waits" for job in pair), lab)
        go.touch()
        results = [ended(lab, job.id).result for job in pair]
        assert all(results)
        assert {result["gpus"] for result in results if result} == {"left", "right"}, "one each"
        roots = {result["root"] for result in results if result}
        assert all(root.startswith(str(tmp_path / "first" / "settings" / "away")) for root in roots)

        (tmp_path / "stop").unlink(missing_ok=True)
        counted = lab.submit("count", {"until": str(tmp_path / "stop")}, resources=on_gpu)
        journal = folder / "jobs" / str(counted.id) / "journal.txt"
        until(lambda: journal.is_file() and len(journal.read_text().splitlines()) > 5, lab)
        kill_all(first)
        before = max(steps(lab, counted.id))
        second = stack.enter_context(
            machine(tmp_path, "second", served["address"], certificate, "only", "--patience", "6")
        )
        until(lambda: counted.record().attempt > 1 and max(steps(lab, counted.id)) > before, lab)
        assert steps(lab, counted.id)[before] == before + 1, "it goes on after the steps that had travelled"

        assert counted.pause()
        until(lambda: counted.record().state == "paused", lab)
        (tmp_path / "stop").touch()
        counted.resume()
        record = ended(lab, counted.id)
        assert record.state == "finished", record
        assert "begins at step" in counted.log()
        failed = lab.submit("end", {"how": "bug"}, resources=on_gpu)
        assert ended(lab, failed.id).reason == "ValueError: two lines"
        endless = lab.submit("sleep", {"seconds": 600}, resources=on_gpu)
        until(lambda: endless.record().message == "sleeping", lab)
        endless.cancel()
        assert ended(lab, endless.id).state == "cancelled"

        os.kill(lab.cluster.processes()["scheduler"], signal.SIGKILL)
        last = lab.submit("sees", {"until": str(go)}, resources=on_gpu)
        assert (ended(lab, last.id).result or {}).get("gpus") == "only", "the lab starts another, and the worker joins"
        lab.shutdown()
        _, told = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 2
        lines = told.splitlines()
        assert f"joins {served['address']} again" in lines
        assert lines[-1].startswith(
            f"syno-lab: the scheduler at {served['address']} has not come back within 6 s: start it on the lab's "
            "machine with `syno-lab jobs serve`"
        )


def test_who_has_not_the_file_does_not_join(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from syno_lab.jobs import tls

    other = tmp_path / "other.pem"
    tls.make(other)
    lab = Lab.open(tmp_path / "lab", listen="127.0.0.1", port=free_port(), slots=1, start=False)
    try:
        address = lab.cluster.serve().address
        monkey = pytest.MonkeyPatch()
        with monkey.context() as patch:
            patch.setattr("syno_lab.commands.worker._JOIN_S", 3.0)
            line = refused(capsys, "worker", address, "--certificate", str(other))
        assert "does not answer within 3 s" in line
        assert lab.cluster.serve().address == address, "it goes on"
    finally:
        lab.shutdown()
        lab.close()


def test_no_file_of_the_users_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "thesis.txt"
    mine.write_text("years of work")
    serve = ("jobs", "serve", "--listen", "127.0.0.1", "--folder", str(tmp_path / "lab"))
    assert "--certificate: expected a new file" in refused(capsys, *serve, "--certificate", str(mine))
    assert mine.read_text() == "years of work"
    assert not (tmp_path / "lab").exists()


def test_what_cannot_join_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from syno_lab.jobs import tls

    key = tmp_path / "key.pem"
    tls.make(key)
    no_file = ("--certificate", "x")
    assert "expected a scheduler's address as tls://HOST:PORT" in refused(capsys, "worker", "10.0.0.1:1", *no_file)
    assert "--certificate: expected the file that" in refused(capsys, "worker", "tls://127.0.0.1:1", *no_file)
    line = refused(capsys, "worker", "tls://192.0.2.1:8786", "--certificate", str(key))
    assert "expected --listen ADDRESS, this machine's address as 192.0.2.1 sees it" in line
    key.chmod(0o644)
    with pytest.raises(JobError, match=r"listen: expected an address of this machine, found '192\.0\.2\.1'"):
        Settings(listen="192.0.2.1")
    with pytest.raises(JobError, match="port: expected a number up to 65,535"):
        Settings(port=70_000)


def test_a_search_on_gpus_has_them_offered_and_passes_them_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The devices are only named; no training runs here."""
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    chosen = SearchSettings(training=TrialRequest(backbone="resnet20", device="cuda"), trials=1, workers=3, gpus=1)
    with Lab.open(tmp_path, slots=1, start=False) as lab:
        try:
            lab.cluster.endpoint()
            offer_gpus(chosen, tmp_path)
            worker = lab.cluster.processes()["worker"]
            words = psutil.Process(worker).cmdline()
            assert {"GPU=3", "slot=3"} <= set(words[words.index("--resources") + 1].split())
            assert psutil.Process(worker).environ()[gpus.VARIABLE] == "0,1,2"
            JobRunner(lab, chosen.resources).submit("one", chosen.training)
            JobWorkers(msgspec.structs.replace(chosen, rungs=True, minutes=1.0), lab)._submit()
            assert [job.resources for job in lab.jobs()] == [{"slot": 1, "GPU": 1}] * 2
            assert msgspec.structs.replace(chosen, gpus=0.0).resources is None
        finally:
            lab.shutdown()
    assert msgspec.structs.replace(chosen, gpus=2.0).identity == chosen.identity, "it may go on with others"


def test_workers_as_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [parse_workers(text) for text in (None, "3")] == [(None, 0.0), (3, 0.0)]
    for wrong in ("0", "many", "-1"):
        with pytest.raises(SynoError, match="--workers: expected a number from 1 on, or gpu, found"):
            parse_workers(wrong)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SynoError, match="--workers gpu: expected a GPU on this machine, found none"):
        parse_workers("gpu")


def test_a_lab_that_is_not_asked_to_listens_on_loopback(tmp_path: Path) -> None:
    begun = time.monotonic()
    with Lab.open(tmp_path, slots=1, start=False) as lab:
        try:
            first = lab.cluster.endpoint()
            assert first.address.startswith("tls://127.0.0.1:")
            key = lab.cluster.certificate()
            lab.cluster.stop()
            lab.cluster.endpoint()
            assert lab.cluster.certificate() != key, "nobody keeps the key of a cluster that nobody joins"
            lab.cluster.stop()
            state = json.loads((lab.cluster.home / "cluster.json").read_text())
            assert state["settings"]["listen"] == ""
        finally:
            lab.shutdown()
    assert time.monotonic() - begun < PATIENCE_S
