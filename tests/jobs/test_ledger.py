"""Jobs as rows: taken once, ended once, and found dead only when they are."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from syno_lab.errors import JobError, StoreError
from syno_lab.jobs import attempts, supervise
from syno_lab.jobs.ledger import Lease, Ledger
from syno_lab.jobs.records import Ending
from syno_lab.jobs.sweep import LONGEST_LOOK_S, Watch, sweep
from syno_lab.processes import alive
from syno_lab.store import Store


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Store.open(tmp_path) as store:
        yield Ledger(store.database)


def submit(ledger: Ledger, **options: object) -> int:
    return ledger.submit("nothing", {"x": [1, None]}, resources={"slot": 1}, **options)  # type: ignore[arg-type]


def take(ledger: Ledger, number: int) -> Lease:
    lease = attempts.take(ledger, number)
    assert lease is not None
    return lease


def become(ledger: Ledger, lease: Lease, **changes: object) -> Lease:
    """Put another lease in the place of one."""
    changed = replace(lease, **changes)
    with ledger.database.transaction():
        attempts._put(ledger, changed)
    return changed


@pytest.mark.parametrize(("number", "ending"), [(errno.ENOSPC, ("waiting", 0)), (errno.EAGAIN, ("poisoned", 1))])
def test_a_job_that_finds_no_room_to_start_waits(
    number: int, ending: tuple[str, int], ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no job's fault, and any other refusal is its death."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(supervise, "_start", refuse)
    monkeypatch.setattr(supervise, "ROOM_S", 0.0)
    lease = take(ledger, submit(ledger, max_attempts=1))
    supervise.Supervisor(ledger, tmp_path, lease).run()
    job = ledger.job(lease.job)
    assert (job.state, job.deaths) == ending
    assert f"its process could not be started: [Errno {number}] {os.strerror(number)}" in job.reason
    assert not ledger.leases()


class TestOnce:
    def test_a_job_is_taken_once_and_ended_once(self, ledger: Ledger) -> None:
        number = submit(ledger)
        assert ledger.job(number).params == {"x": [1, None]}
        lease = take(ledger, number)
        assert attempts.take(ledger, number) is None
        assert ledger.job(number).state == "running"
        assert not attempts.end(ledger, number, "another token", Ending("finished", "", {"y": 1}))
        assert attempts.end(ledger, number, lease.token, Ending("finished", "", {"y": 2}, 1.5, 0.5))
        assert not attempts.end(ledger, number, lease.token, Ending("finished", "", {"y": 3}))
        assert not attempts.end(ledger, number, lease.token, Ending("died", "late"))
        job = ledger.job(number)
        assert (job.state, job.result, job.wall_s, job.cpu_s, job.progress) == ("finished", {"y": 2}, 1.5, 0.5, 1.0)
        (attempt,) = ledger.attempts(number)
        assert (attempt.attempt, attempt.cause) == (1, "")
        assert attempt.ended is not None

    def test_whoever_comes_back_late_changes_nothing(self, ledger: Ledger) -> None:
        number = submit(ledger)
        first = take(ledger, number)
        assert attempts.end(ledger, number, first.token, Ending("died", "killed by SIGKILL", None, 1.0, 0.0))
        second = take(ledger, number)
        assert not attempts.end(ledger, number, first.token, Ending("finished", "", {"y": "of the dead"}))
        assert not attempts.register(ledger, number, first.token)
        assert not attempts.beat(ledger, number, first.token)
        attempts.progress(ledger, number, first.token, 0.9, "of the dead")
        assert ledger.job(number).message == ""
        attempts.progress(ledger, number, second.token, 0.5, "alive")
        assert (ledger.job(number).progress, ledger.job(number).message) == (0.5, "alive")
        assert [a.cause for a in ledger.attempts(number)] == ["killed by SIGKILL", ""]

    @pytest.mark.warm
    def test_eight_processes_at_once_take_each_job_once(self, ledger: Ledger, tmp_path: Path) -> None:
        numbers = [submit(ledger) for _ in range(20)]
        code = (
            "import sys\n"
            "from syno_lab.jobs import attempts\n"
            "from syno_lab.jobs.ledger import Ledger\n"
            "from syno_lab.jobs.records import Ending\n"
            "from syno_lab.store import Store\n"
            "with Store.open(sys.argv[1], is_thorough=False) as store:\n"
            "    ledger = Ledger(store.database)\n"
            "    sys.stdin.readline()\n"
            "    for number in range(1, 21):\n"
            "        lease = attempts.take(ledger, number)\n"
            "        ending = Ending('finished', '', {'by': lease.supervisor if lease else ''})\n"
            "        if lease and attempts.end(ledger, number, lease.token, ending):\n"
            "            print(number, flush=True)\n"
        )
        words = [sys.executable, "-c", code, str(tmp_path)]
        takers = [
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(8)
        ]
        answers = [taker.communicate("go\n", timeout=240) for taker in takers]
        assert [errors for _, errors in answers] == [""] * 8
        taken = [int(line) for output, _ in answers for line in output.split()]
        assert sorted(taken) == numbers
        assert all(job.attempt == 1 and job.state == "finished" for job in ledger.jobs())

    def test_a_death_is_tried_again_until_it_is_too_much(self, ledger: Ledger) -> None:
        number = submit(ledger, max_attempts=2)
        assert attempts.end(ledger, number, take(ledger, number).token, Ending("died", "killed by SIGSEGV"))
        assert (ledger.job(number).state, ledger.job(number).deaths) == ("waiting", 1)
        assert attempts.end(ledger, number, take(ledger, number).token, Ending("died", "exit status 3"))
        assert (ledger.job(number).state, ledger.job(number).reason) == (
            "poisoned",
            "given up after 2 deaths: exit status 3",
        )
        assert attempts.take(ledger, number) is None
        ledger.retry(number)
        assert (ledger.job(number).state, ledger.job(number).deaths, ledger.job(number).reason) == ("waiting", 0, "")

    def test_wishes(self, ledger: Ledger) -> None:
        one, two, three = (submit(ledger) for _ in range(3))
        assert ledger.pause(one)
        assert attempts.take(ledger, one) is None
        assert ledger.resume(one)
        lease = take(ledger, one)
        assert ledger.pause(one)
        assert (ledger.job(one).state, ledger.job(one).wish) == ("running", "pause")
        assert attempts.end(ledger, one, lease.token, Ending("stopped", "paused"))
        assert (ledger.job(one).state, ledger.job(one).wish) == ("paused", "")
        assert not ledger.resume(two)
        assert ledger.cancel(two)
        assert not ledger.cancel(two)
        assert not ledger.pause(two)
        assert ledger.job(two).state == "cancelled"
        lease = take(ledger, three)
        assert ledger.cancel(three)
        assert not ledger.pause(three)
        assert attempts.end(ledger, three, lease.token, Ending("died", "killed by SIGTERM"))
        assert (ledger.job(three).state, ledger.job(three).reason) == ("cancelled", "cancelled by the user")
        with pytest.raises(JobError, match=r"job 1 is paused: only a job that failed"):
            ledger.retry(one)

    def test_what_was_submitted_by_a_cancelled_job_is_cancelled(self, ledger: Ledger) -> None:
        driver = submit(ledger)
        take(ledger, driver)
        child = submit(ledger, parent=driver)
        grandchild = submit(ledger, parent=child)
        other = submit(ledger)
        ledger.cancel(driver)
        assert [ledger.state(n) for n in (child, grandchild, other)] == ["cancelled", "cancelled", "waiting"]

    def test_order(self, ledger: Ledger) -> None:
        first = submit(ledger)
        second = submit(ledger, after=[first])
        assert attempts.take(ledger, second) is None
        assert [job.id for job in ledger.ready([first, second])] == [first]
        attempts.end(ledger, first, take(ledger, first).token, Ending("failed", "no data"))
        sweep(ledger, Watch())
        assert ledger.job(second).reason == f"job {first}, which it comes after, is failed"
        ledger.retry(first)
        ledger.retry(second)
        attempts.end(ledger, first, take(ledger, first).token, Ending("finished", "", {}))
        assert attempts.take(ledger, second) is not None

    def test_refusals_write_nothing(self, ledger: Ledger) -> None:
        with pytest.raises(JobError, match=r"no job 7 in "):
            submit(ledger, after=[7])
        with pytest.raises(JobError, match=r"max_attempts: expected a whole number from 1 on, found 0"):
            submit(ledger, max_attempts=0)
        with pytest.raises(JobError, match=r"resources: expected positive amounts, found slot=-1"):
            ledger.submit("nothing", {}, resources={"slot": -1})
        with pytest.raises(StoreError, match=r"params\.x: expected text, numbers, lists or mappings, found object"):
            ledger.submit("nothing", {"x": object()}, resources={})
        assert ledger.jobs() == []


class TestSweep:
    """T17 of the reliability notes and what surrounds it."""

    def dead(self) -> str:
        """The identity of a process that was alive a moment ago."""
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        name = alive.identity(process.pid)
        assert name is not None
        assert alive.is_alive(name)
        process.kill()
        process.wait()
        assert not alive.is_alive(name)
        return name

    def test_the_living_are_left_alone_whatever_the_clock_says(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        number = submit(ledger)
        lease = become(ledger, take(ledger, number), at=0.0)
        watch = Watch()
        for jump in (-1e9, 1e9, 3600.0):
            monkeypatch.setattr(time, "time", lambda jump=jump: 1.8e9 + jump)
            assert sweep(ledger, watch) == []
        become(ledger, lease, supervisor=self.dead(), child=alive.me())  # an orphan goes on
        assert sweep(ledger, watch) == []
        assert ledger.job(number).state == "running"

    def test_the_dead_are_found_and_the_job_waits_again(self, ledger: Ledger) -> None:
        number = submit(ledger, max_attempts=1)
        lease = become(ledger, take(ledger, number), supervisor=self.dead())
        assert sweep(ledger, Watch()) == [number]
        job = ledger.job(number)
        assert (job.state, job.deaths, job.round) == ("waiting", 0, 2)  # not the job's fault
        assert job.reason == "it and the worker that supervised it died"
        assert not attempts.register(ledger, number, lease.token), "a child that starts late finds itself unwanted"

    def test_a_number_given_out_again_is_not_the_process(self, ledger: Ledger) -> None:
        number = submit(ledger)
        become(ledger, take(ledger, number), supervisor=f"{os.getpid()}:1", child=f"{os.getpid()}:2")
        assert sweep(ledger, Watch()) == [number]

    def test_another_boot_of_this_machine(self, ledger: Ledger) -> None:
        number = submit(ledger)
        become(ledger, take(ledger, number), boot="an earlier one")
        assert sweep(ledger, Watch()) == [number]
        assert ledger.job(number).reason == "the machine was started anew"

    def test_another_machine_is_judged_by_its_beat_and_our_own_watching(self, ledger: Ledger) -> None:
        lease = become(ledger, take(ledger, submit(ledger)), place="elsewhere", supervisor="1:1")
        watch = Watch(grace_s=60)
        assert watch.look([lease], 0.0) == set()
        assert watch.look([lease], 36_000.0) == set(), "ten hours of sleep are no watching"
        at = 36_000.0
        while at < 36_000.0 + 50:
            at += LONGEST_LOOK_S
            assert watch.look([lease], at) == set()
        lease = replace(lease, beat=lease.beat + 1)  # a sign of life
        for _ in range(12):
            assert watch.look([lease], at) == set()
            at += LONGEST_LOOK_S
        assert watch.look([lease], at) == {lease.token}
        assert sweep(ledger, Watch()) == []

    def test_a_cancelled_orphan_is_ended_by_whoever_looks(self, ledger: Ledger) -> None:
        number = submit(ledger)
        lease = take(ledger, number)
        code = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print(flush=True); time.sleep(60)"
        environment = {**os.environ, alive.TOKEN_VARIABLE: lease.token}
        child = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        become(ledger, lease, supervisor=self.dead(), child=alive.identity(child.pid) or "")
        assert len(list(alive.holders(lease.token))) == 2
        ledger.cancel(number)
        assert sweep(ledger, Watch()) == [number]
        assert ledger.job(number).state == "cancelled"
        assert list(alive.holders(lease.token)) == []
        child.communicate()

    def test_adoption(self, ledger: Ledger) -> None:
        number = submit(ledger)
        lease = become(ledger, take(ledger, number), child=alive.me())
        assert attempts.adopt(ledger, number) is None, "its own supervisor lives"
        become(ledger, lease, supervisor=self.dead(), boot="an earlier one")
        assert attempts.adopt(ledger, number) is None
        become(ledger, lease, supervisor=self.dead())
        adopted = attempts.adopt(ledger, number)
        assert adopted is not None
        assert (adopted.supervisor, adopted.token) == (alive.me(), lease.token)
        assert attempts.end(ledger, number, lease.token, Ending("finished", "", {}))


def test_identities() -> None:
    assert alive.is_alive(alive.me())
    assert alive.pid_of(alive.me()) == os.getpid()
    assert not alive.is_alive("")
    assert not alive.is_alive("999999999:1")
    process = subprocess.Popen([sys.executable, "-c", ""])
    while alive.identity(process.pid) is not None:  # a zombie is dead
        time.sleep(0.01)
    process.wait()
