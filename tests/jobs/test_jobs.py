"""Jobs in their own processes, on Dask's own scheduler and workers: what they do, survive and leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import job_kinds
import pytest
from labs import PATIENCE_S, check_endings, ended, free_port, show_kinds, steps, until

from syno_lab.errors import JobError
from syno_lab.jobs import Lab, tls
from syno_lab.processes import alive


@pytest.fixture(scope="module", autouse=True)
def kinds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        show_kinds(patch, job_kinds.VARIABLE)
        yield


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, kinds: None) -> Iterator[Lab]:
    with Lab.open(tmp_path_factory.mktemp("lab"), slots=2) as opened:
        yield opened
        opened.shutdown()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Lab]:
    """A lab whose processes may be killed."""
    with Lab.open(tmp_path, slots=2) as opened:
        yield opened
        opened.shutdown()


class TestEndings:
    def test_a_result(self, lab: Lab) -> None:
        handle = lab.submit("count", {"steps": 5}, name="five")
        assert handle.future().result(PATIENCE_S) == {"total": 10, "steps": 5}
        job = handle.record()
        assert (job.state, job.name, job.attempt, job.deaths, job.progress) == ("finished", "five", 1, 0, 1.0)
        assert job.wall_s > 0.05
        assert 0 < job.cpu_s < 60
        assert "begins at step 0" in handle.log()
        assert (lab.folder / "jobs" / str(job.id) / "checkpoint.json").is_file()
        assert handle.cancel() is False
        with pytest.raises(JobError, match=f"job {job.id} is finished: only a job that failed"):
            handle.retry()

    def test_every_other_ending_has_its_reason(self, lab: Lab) -> None:
        more = {
            "SIGTERM": ("poisoned", "given up after 2 deaths: killed by SIGTERM"),
            "memory": ("poisoned", "given up after 2 deaths: out of memory: MemoryError: no room"),
            "try again": ("poisoned", "given up after 2 deaths: the board did not answer"),
            "give up": ("failed", "the data is of the wrong shape"),
            "not a mapping": ("failed", "a job of kind end returned int, expected a mapping"),
            "not plain": ("failed", "result.x: expected text, numbers, lists or mappings, found object"),
        }
        handles, found = check_endings(lab, 2, more)
        for how, job in found.items():
            attempts = handles[how].attempts()
            assert len(attempts) == job.attempt == (2 if job.state == "poisoned" else 1)
            assert all(attempt.ended and attempt.cause for attempt in attempts)
            with pytest.raises(JobError, match=f"job {job.id} .* is {job.state}: {job.reason}"):
                handles[how].future().result(PATIENCE_S)

    def test_a_death_is_not_the_end(self, lab: Lab) -> None:
        handle = lab.submit("end", {"how": "SIGSEGV", "times": 1})
        assert handle.future().result(PATIENCE_S) == {"attempt": 2}
        assert [attempt.cause for attempt in handle.attempts()] == ["killed by SIGSEGV", ""]

    def test_a_full_disk_for_a_while_loses_no_result(self, lab: Lab) -> None:
        handle = lab.submit("full_disk", {"seconds": 1.0})
        assert "cannot be read or written" in handle.future().result(PATIENCE_S)["refused"]
        assert handle.record().attempt == 1


class TestSteering:
    def test_pause_and_resume_go_on_from_the_checkpoint(self, lab: Lab) -> None:
        handle = lab.submit("count", {"steps": 100, "seconds": 0.05})
        until(lambda: handle.record().progress > 0, lab)
        assert handle.pause()
        until(lambda: handle.record().state == "paused", lab)
        done = len(steps(lab, handle.id))
        assert 0 < done < 100
        assert handle.resume()
        assert ended(lab, handle.id).result == {"total": 4950, "steps": 100}
        assert steps(lab, handle.id) == list(range(1, 101)), "no step twice, none left out"
        assert [attempt.cause for attempt in handle.attempts()] == ["paused", ""]

    def test_cancel_ends_all_that_a_job_has_started(self, lab: Lab) -> None:
        handle = lab.submit("end", {"how": "orphans"})
        file = lab.folder / "jobs" / str(handle.id) / "orphans.json"
        until(file.is_file, lab)
        mine = [alive.identity(pid) for pid in json.loads(file.read_text())]
        assert all(mine)
        future = handle.future()
        assert future.cancel()
        assert ended(lab, handle.id).state == "cancelled"
        assert not any(alive.is_alive(name or "") for name in mine)
        with pytest.raises(CancelledError):
            future.result(PATIENCE_S)

    def test_order(self, lab: Lab) -> None:
        first = lab.submit("count", {"steps": 20})
        second = lab.submit("nothing", {"x": 1}, after=[first.id])
        bad = lab.submit("end", {"how": "bug"}, after=[second.id])
        never = lab.submit("nothing", {}, after=[bad.id])
        assert ended(lab, never.id).reason == f"job {bad.id}, which it comes after, is failed"
        assert (first.record().ended or "") <= (second.record().started or "")

    def test_a_driver_and_its_jobs(self, lab: Lab) -> None:
        handle = lab.submit("drive", {"jobs": 3, "count": {"steps": 10}}, resources={})
        assert handle.future().result(PATIENCE_S) == {"totals": [45, 45, 45], "jobs": 3}
        assert [job.parent for job in lab.jobs(parent=handle.id)] == [handle.id] * 3

    def test_what_cannot_be_submitted(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        before = len(lab.jobs())
        with pytest.raises(JobError, match=r"no job of kind 'os:system': expected one of .*count.*train"):
            lab.submit("os:system", {"x": "true"})
        with pytest.raises(JobError, match=r"no job 99999 in "):
            lab.job(99999)
        monkeypatch.setenv("SYNO_LAB_KINDS", "nonsense")
        with pytest.raises(JobError, match="SYNO_LAB_KINDS: expected name=module:function;…, found 'nonsense'"):
            lab.submit("nothing")
        monkeypatch.setenv("SYNO_LAB_KINDS", job_kinds.VARIABLE + ";gone=no.such.module:run")
        assert len(lab.jobs()) == before

    @pytest.mark.parametrize("settings", [{"slots": 0}, {"gpus": -1}, {"idle_minutes": 0}])
    def test_settings_that_make_no_sense(self, tmp_path: Path, settings: dict[str, Any]) -> None:
        (name,) = settings
        with pytest.raises(JobError, match=f"{name}: expected a number from .*, found {settings[name]}"):
            Lab.open(tmp_path / "new", **settings)


class TestDeaths:
    def test_the_worker_dies_and_its_job_is_adopted(self, own: Lab) -> None:
        counted = {"steps": 10_000, "seconds": 0.03}  # it ends where the test says so
        handle = own.submit("count", counted | {"until": str(own.folder / "enough")})
        until(lambda: handle.record().progress > 0, own)
        (lease,) = own.ledger.leases()
        os.kill(own.cluster.processes()["worker"], signal.SIGKILL)
        until(lambda: (own.ledger.lease(handle.id) or lease).supervisor != lease.supervisor, own)
        (own.folder / "enough").touch()
        record = ended(own, handle.id)
        assert record.attempt == 1
        assert steps(own, handle.id) == list(range(1, record.result["steps"] + 1))
        # Now everything at once: the scheduler, the worker, the job's own process.
        handle = own.submit("count", counted | {"until": str(own.folder / "enough of it")})
        until(lambda: handle.record().progress > 0, own)
        child = own.ledger.leases()[0].child
        for pid in (*own.cluster.processes().values(), alive.pid_of(child)):
            os.kill(pid, signal.SIGKILL)
        (own.folder / "enough of it").touch()
        result = ended(own, handle.id).result
        assert result["total"] == sum(range(result["steps"]))
        assert result["steps"] > 0
        assert handle.attempts()[0].cause == "it and the worker that supervised it died"
        assert handle.record().deaths == 0, "no fault of the job"

    @pytest.mark.warm
    def test_whoever_submitted_is_killed_and_the_jobs_go_on(self, tmp_path: Path) -> None:
        code = (
            "import sys, time\n"
            "from syno_lab.jobs import Lab\n"
            "lab = Lab.open(sys.argv[1], slots=1)\n"
            "first = lab.submit('count', {'steps': 40, 'seconds': 0.02})\n"
            "lab.submit('end', {'how': 'SIGSEGV', 'times': 1}, after=[first.id])\n"
            "lab.hand_over()\n"
            "while first.record().state == 'waiting': time.sleep(0.05)\n"
            "print('submitted', flush=True)\n"
            "time.sleep(600)\n"
        )
        words = [sys.executable, "-c", code, str(tmp_path)]
        submitter = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert submitter.stdout is not None
        assert submitter.stdout.readline() == "submitted\n"
        submitter.kill()
        submitter.communicate()
        with Lab.open(tmp_path, start=False) as lab:  # only looks: nobody but Dask is there to go on
            with pytest.raises(JobError, match="opened only for reading"):
                lab.hand_over()
            assert lab.wait(timeout=PATIENCE_S), lab.jobs()
            assert [job.state for job in lab.jobs()] == ["finished", "finished"]
            assert lab.jobs()[1].attempt == 2
            assert steps(lab, 1) == list(range(1, 41))
            up = lab.cluster.processes()
            lab.shutdown()
        assert set(up) == {"scheduler", "worker"}
        assert not any(alive.identity(pid) for pid in up.values())

    def test_a_lab_that_was_shut_down_goes_on_when_it_is_opened(self, tmp_path: Path) -> None:
        with Lab.open(tmp_path) as lab:
            handle = lab.submit("count", {"steps": 120, "seconds": 0.03})
            until(lambda: handle.record().progress > 0, lab)
            lab.shutdown()
            assert handle.record().state == "waiting"
            assert not lab.cluster.processes()
        with Lab.open(tmp_path, idle_minutes=0.1) as lab:
            job = ended(lab, 1)
            assert (job.state, job.attempt, job.deaths) == ("finished", 2, 0)
            until(lambda: not lab.cluster.processes(), lab)  # after idling, by itself


class TestClusters:
    def test_four_workers_started_by_dask_s_own_commands(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        port = free_port()
        address = f"tls://127.0.0.1:{port}"
        key = tmp_path / "theirs.pem"
        tls.make(key)
        given = ["--tls-ca-file", str(key), "--tls-cert", str(key)]
        settings = tmp_path / "settings"
        settings.mkdir(mode=0o700)
        monkeypatch.setenv("SYNO_LAB_CONFIG", str(settings))
        (settings / "cluster.toml").write_text('ca = "../theirs.pem"\ncertificate = "../theirs.pem"\n')
        dask = [sys.executable, "-m", "dask"]
        log = (tmp_path / "dask.log").open("wb")
        started = [
            subprocess.Popen([*dask, *words, *given], stdout=log, stderr=log, start_new_session=True)
            for words in (
                ["scheduler", "--host", "tls://127.0.0.1", "--port", str(port), "--no-dashboard"],
                ["worker", address, "--nworkers", "4", "--nthreads", "1", "--no-dashboard", "--memory-limit", "0"],
            )
        ]
        try:
            with Lab.open(tmp_path / "lab", address=wait_for(address)) as lab:
                lab.cluster.remember(None)  # the driver must hear of it from its worker
                jobs = [lab.submit("count", {"steps": 30, "seconds": 0.03}) for _ in range(6)]
                driver = lab.submit("drive", {"jobs": 4, "count": {"steps": 5}}, resources={})
                supervisors = set()

                def seen() -> bool:
                    supervisors.update(lease.supervisor for lease in lab.ledger.leases())
                    return all(job.is_ended for job in lab.jobs())

                until(seen, lab)
                assert [ended(lab, job.id).result for job in jobs] == [{"total": 435, "steps": 30}] * 6
                assert driver.record().result == {"totals": [10] * 4, "jobs": 4}
                assert len(supervisors) > 1, "several workers took part"
                assert not lab.cluster.processes(), "the driver's own lab found the named cluster as well"
        finally:
            for process in started:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.close()

    def test_a_cluster_that_does_not_answer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("syno_lab.jobs.dispatch.ANSWER_S", 0.3)
        address = f"tcp://127.0.0.1:{free_port()}"
        with pytest.raises(JobError, match=f"the Dask cluster at {address} does not answer within 0.3 s"):
            Lab.open(tmp_path, address=address)

    @pytest.mark.warm
    def test_two_notebooks_and_a_command_on_one_lab(self, tmp_path: Path) -> None:
        code = (
            "import sys\n"
            "from syno_lab.jobs import Lab\n"
            "with Lab.open(sys.argv[1], slots=2) as lab:\n"
            "    mine = [lab.submit('count', {'steps': 5}, name=sys.argv[2]) for _ in range(4)]\n"
            "    mine[1].pause(); mine[2].cancel(); mine[1].resume()\n"
            "    assert lab.wait([job.id for job in mine], 100)\n"
            "    print(*(job.record().state for job in mine))\n"
        )
        words = [sys.executable, "-c", code, str(tmp_path)]
        rivals = [
            subprocess.Popen([*words, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for name in ("notebook 1", "notebook 2", "command line")
        ]
        answers = [rival.communicate(timeout=PATIENCE_S) for rival in rivals]
        with Lab.open(tmp_path, start=False) as lab:
            try:
                assert [rival.returncode for rival in rivals] == [0, 0, 0], answers
                for output, _ in answers:
                    first, second, third, fourth = output.split()
                    assert (first, second, fourth) == ("finished",) * 3
                    assert third in ("cancelled", "finished")
                jobs = lab.jobs()
                assert len(jobs) == 12
                for job in jobs:
                    if job.state == "finished":
                        assert steps(lab, job.id) == [1, 2, 3, 4, 5]
            finally:
                lab.shutdown()


def wait_for(address: str) -> str:
    """Return the address of a scheduler once it answers and has its four workers."""
    from syno_lab.jobs import endpoint
    from syno_lab.jobs.dispatch import connect

    found = endpoint.named(address)
    assert found is not None
    with connect(found, PATIENCE_S) as client:
        client.wait_for_workers(4, timeout=PATIENCE_S)
    return address
