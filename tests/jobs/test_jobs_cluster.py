"""The lab's own scheduler and worker, and what Dask does with a job that is sent by more than one."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import job_kinds
import pytest
from distributed import Client
from labs import PATIENCE_S, show_kinds

from syno_lab.jobs import Lab, keeper
from syno_lab.jobs.cluster import COUNTED, FILE_NAME, Cluster, Settings
from syno_lab.jobs.dispatch import SLOT, connect, send, within
from syno_lab.processes import alive


def gone(pids: list[int]) -> bool:
    return not any(alive.identity(pid) for pid in pids)


def test_a_cluster_whose_starter_was_killed_before_it_was_written_down_is_not_left(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, Settings(slots=1))
    other = Cluster(tmp_path / "other", Settings(slots=1))
    (tmp_path / "other").mkdir()
    try:
        cluster.endpoint()
        other.endpoint()
        lost = list(cluster.processes().values())
        assert len(lost) == 2
        (cluster.home / FILE_NAME).unlink()
        cluster.endpoint()
        assert gone(lost)
        assert cluster.is_up()
        assert other.is_up(), "that of another folder is not ours"
    finally:
        cluster.stop()
        other.stop()
    assert not cluster.processes()


def test_what_another_client_still_holds_is_run_again_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask runs one key once for as long as any client holds its future, and two may take turns in holding it."""
    show_kinds(monkeypatch, job_kinds.VARIABLE)
    with Lab.open(tmp_path, slots=1, start=False) as lab:
        before = lab.submit("nothing")
        after = lab.submit("nothing", after=[before.id])
        own = lab.cluster.endpoint()
        clients = [connect(own) for _ in range(2)]
        try:
            held = [send(client, tmp_path, after.record(), (SLOT,)) for client in clients]
            for future in held:
                future.result(timeout=PATIENCE_S)
            assert after.record().state == "waiting", "it came too early, and nothing was done"
            send(clients[0], tmp_path, before.record(), (SLOT,)).result(timeout=PATIENCE_S)
            assert before.record().state == "finished"
            send(clients[0], tmp_path, after.record(), (SLOT,)).result(timeout=PATIENCE_S)
            assert after.record().state == "waiting", "Dask runs it again: is_again is no longer needed"
            send(clients[0], tmp_path, after.record(), (SLOT,), is_again=True).result(timeout=PATIENCE_S)
            assert after.record().state == "finished"
        finally:
            for client in clients:
                client.close()
            lab.shutdown()


def test_a_driver_does_not_wait_behind_jobs_without_a_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask gives its first worker all waiting tasks, also more than the worker has slots for."""
    show_kinds(monkeypatch, job_kinds.VARIABLE)
    with Lab.open(tmp_path, slots=1, start=False) as lab:
        counts = [lab.submit("count", {"until": str(tmp_path / "enough")}) for _ in range(2)]
        driver = lab.submit("nothing", resources={})
        client = connect(lab.cluster.endpoint())
        try:
            os.kill(lab.cluster.processes()["worker"], signal.SIGKILL)
            for job in counts:
                send(client, tmp_path, job.record(), COUNTED)
            client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.story("none"))  # it has got the tasks
            lab.cluster.endpoint()
            while not any(job.record().state == "running" for job in counts):
                time.sleep(0.02)
            send(client, tmp_path, driver.record(), COUNTED)
            assert driver.wait(timeout=PATIENCE_S).state == "finished"
            assert {job.record().state for job in counts} == {"running", "waiting"}
        finally:
            (tmp_path / "enough").touch()
            client.close()
            lab.shutdown()


def test_a_scheduler_that_lives_and_does_not_answer_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a clock that jumped, or a machine that slept: the process is there, and nothing comes back."""
    show_kinds(monkeypatch, job_kinds.VARIABLE)
    with Lab.open(tmp_path, slots=1) as lab:
        first = lab.submit("nothing")
        lab.wait([first.id], timeout=PATIENCE_S)
        stopped = lab.cluster.processes()["scheduler"]
    os.kill(stopped, signal.SIGSTOP)
    monkeypatch.setattr(keeper, "OWN_ANSWER_S", 1.0)  # not before: a busy one may need longer
    monkeypatch.setattr(keeper, "SILENT_S", 3.0)
    try:
        with Lab.open(tmp_path, slots=1) as lab:
            again = lab.submit("nothing")
            lab.hand_over()
            assert again.wait(timeout=PATIENCE_S).state == "finished"
            assert lab.cluster.processes()["scheduler"] != stopped
            lab.shutdown()
        assert gone([stopped])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGKILL)


@pytest.mark.warm
def test_a_command_on_a_damaged_store_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread that sends jobs finds the same as the command does."""
    show_kinds(monkeypatch, job_kinds.VARIABLE)
    with Lab.open(tmp_path, slots=1, start=False) as lab:
        lab.submit("nothing")
    with contextlib.closing(sqlite3.connect(tmp_path / "results.sqlite")) as store:
        store.execute("ALTER TABLE syno_progress RENAME COLUMN job TO jo")
        store.commit()
    command = [sys.executable, "-m", "syno_lab.cli", "jobs", "watch", "1", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("is damaged or no Syno Lab store") == 1, done.stderr


def test_the_modules_of_dask_that_get_another_clock_still_have_one() -> None:
    code = (
        "import time; from distributed import batched; from distributed.comm import core\n"
        "from syno_lab.jobs import node\n"
        "assert batched.time is core.time is time.time; node.use_steady_clock()\n"
        "assert batched.time is core.time is time.monotonic"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)


def test_a_connection_that_comes_too_late_is_closed(tmp_path: Path) -> None:
    """Dask would wait for an hour where the clock of the day was set back by one."""
    cluster, may_connect, connected = Cluster(tmp_path, Settings(slots=1)), threading.Event(), []

    def late() -> Client:
        may_connect.wait()
        connected.append(connect(cluster.endpoint()))
        return connected[0]

    try:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
            within(0.2, late)
        may_connect.set()
        deadline = time.monotonic() + PATIENCE_S
        while not (connected and connected[0].status == "closed"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        cluster.stop()
