"""What a lab stands: processes that stand still, a clock that jumps, a disk that is full.

``SYNO_LAB_LONG=1`` runs the long cases too: a minute's stop, and searches whose trainings are jobs.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import faked_clock
import job_kinds
import pytest
from labs import ended, show_kinds, steps, until

from syno_lab.jobs import Lab
from syno_lab.processes import alive
from syno_lab.store import Store

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
IS_LONG = os.environ.get("SYNO_LAB_LONG") == "1"
long = pytest.mark.skipif(not IS_LONG, reason="takes long: set SYNO_LAB_LONG=1 to run it")
needs_faketime = pytest.mark.skipif(
    faked_clock.library() is None, reason="no libfaketime: Debian's package faketime has it"
)
TROUBLES = ("lost", "duplicated", "wrong", "overlapping", "stuck", "processes left")
PATIENCE_S = 600.0


# -- counting jobs: a driver, its jobs and jobs by themselves, in the hands of processes drawn by chance --------------


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark of kills, which stops processes as well."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    specification = importlib.util.spec_from_file_location("chaos", BENCHMARKS / "chaos.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "chaos", module)
    specification.loader.exec_module(module)
    monkeypatch.setenv("SYNO_LAB_KINDS", "")
    monkeypatch.setenv("PYTHONPATH", "")
    return module


def check(found: dict[str, Any]) -> None:
    print(found)
    for trouble in TROUBLES:
        assert not found[trouble], (trouble, found)
    assert found["states"] == {"finished": 5}, "a driver, its two jobs, and two by themselves"


def test_nothing_is_lost_while_processes_stand_still(chaos: ModuleType, rng: random.Random) -> None:
    times, stop_s = (10, 60.0) if IS_LONG else (2, 5.0)
    found = chaos.run(times, rng.randrange(1 << 30), jobs=2, steps=40, seconds=0.02, pause=0.2, stop_s=stop_s)
    check(found)
    assert found["attempts"] == 5, "who stands still for a minute is not taken for dead"


@needs_faketime
def test_nothing_is_lost_when_the_clock_of_the_day_jumps(
    chaos: ModuleType, rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = faked_clock.FakedClock(tmp_path, moves_monotonic=False)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    with clock.jumping(1.5):
        found = chaos.run(30 if IS_LONG else 2, rng.randrange(1 << 30), jobs=2, steps=80, seconds=0.02, pause=1.0)
    check(found)
    assert clock.jumps >= 2


@needs_faketime
def test_nothing_is_lost_when_the_monotonic_clock_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forth, Dask takes workers for dead; back, its timers sleep. What was begun goes on, all once it is restarted."""
    clock = faked_clock.FakedClock(tmp_path, moves_monotonic=True)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    show_kinds(monkeypatch, job_kinds.VARIABLE)
    folder = tmp_path / "lab"
    jobs = 1, 2

    def done(number: int) -> int:
        journal = folder / "jobs" / str(number) / "journal.txt"
        return len(journal.read_text().splitlines()) if journal.is_file() else 0

    with Lab.open(folder, slots=2) as lab:
        for _ in jobs:
            lab.submit("count", {"until": str(folder / "enough"), "seconds": 0.02}, max_attempts=99)
        until(lambda: all(map(done, jobs)), lab)
        for offset in (3600, 7200, 0):
            clock.set(offset)
            before = [done(number) for number in jobs]
            until(lambda before=before: all(done(n) > b + 100 for n, b in zip(jobs, before, strict=True)), lab)
        lab.shutdown()
    (folder / "enough").touch()
    with Lab.open(folder, slots=2) as lab:
        for job in (ended(lab, number) for number in jobs):
            assert job.state == "finished", job
            assert job.result["total"] == sum(range(job.result["steps"]))
            assert steps(lab, job.id) == list(range(1, job.result["steps"] + 1)), "no step is lost or done twice"
        lab.shutdown()


# -- a search, against the same search that nothing befell -------------------------------------------------------------

SMALL = (
    *("--backbone", "resnet20", "--data", "digits", "--width", "4", "--blocks", "1"),
    *("--epochs", "2", "--images", "200", "--test-images", "100", "--max-primitives", "4"),
    *("--wants", "none"),
    *("--to-the-end", "--seeds", "1", "--workers", "1"),
)
TRIALS = 4 if IS_LONG else 2
STATUS = Path("/proc/self/status")
# CAP_SYS_ADMIN, which root has not in every container.
MAY_MOUNT = STATUS.exists() and bool(int(re.findall(r"CapEff:\s*(\w+)", STATUS.read_text())[0], 16) & 1 << 21)
HERE = "--in-process"


def search(folder: Path, *words: str, **more: Any) -> subprocess.Popen[str]:
    """A search that was begun or is gone on with, in a session of its own."""
    given = () if "--continue" in words else SMALL
    command = [sys.executable, "-m", "syno_lab.cli", "search", *given, *words, "--folder", str(folder), "--name", "s"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, **more)


def finish(folder: Path, *words: str, **more: Any) -> None:
    """Let a search of so many trials come to its end."""
    process = search(folder, "--trials", str(max(TRIALS, len(told(folder)))), *words, **more)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors


def told(folder: Path) -> list[tuple[str, str, float | None]]:
    """What the search of a folder has learnt, in the order in which it did: operators, how they ended, accuracies."""
    if not (folder / "results.sqlite").is_file():
        return []
    with Store.look(folder) as store:
        trials = [trial for log in store.searches() for trial in log.trials() if trial.position is not None]
    return [(one.operator, one.state, one.accuracy) for one in sorted(trials, key=lambda one: one.position or 0)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, float | None]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(folder, HERE)
    found = told(folder)
    assert [state for _, state, _ in found] == ["finished"] * TRIALS
    return found


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait for something that must come while a process runs."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def tmpfs(folder: Path) -> Iterator[None]:
    """A small disk in memory."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no byte free."""
    with (folder / "ballast").open("wb", buffering=0) as ballast:
        for size in (1 << 16, 1):
            try:
                while ballast.write(bytes(size)):
                    pass
            except OSError:
                continue


def one_line(errors: str) -> str:
    """The only line that is said but for progress."""
    lines = [line for line in errors.splitlines() if line.startswith("syno-lab: ")]
    assert len(lines) == 1, errors
    assert "Traceback" not in errors
    return lines[0]


@pytest.mark.parametrize(
    "is_mounted",
    [
        pytest.param(True, marks=pytest.mark.skipif(not MAY_MOUNT, reason="only root may mount: a limit stands in")),
        pytest.param(False, marks=pytest.mark.skipif(MAY_MOUNT and not IS_LONG, reason="a disk was filled")),
    ],
    ids=["a disk", "a limit"],
)
@pytest.mark.warm
def test_a_disk_that_fills_up_ends_a_search_in_one_line(
    is_mounted: bool, tmp_path: Path, undisturbed: list[tuple[str, str, float | None]]
) -> None:
    folder = tmp_path / "disk"
    with tmpfs(folder) if is_mounted else contextmanager(lambda: iter([None]))():
        # More trials than it comes to: it is ended in the middle, however slow this machine is.
        process = search(folder, HERE, "--trials", "40")
        wait_for(lambda: told(folder), process)
        process.send_signal(signal.SIGSTOP)
        if is_mounted:
            fill(folder)
        else:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 2, errors
        line = one_line(errors)
        assert "no room to write" in line or "check free space" in line
        assert "what was saved is safe" in line
        assert "--continue" in line or "check free space" in line
        before = told(folder)
        assert {state for _, state, _ in before} == {"finished"}, "a full disk is no operator's fault"
        (folder / "ballast").unlink(missing_ok=True)
        finish(folder, "--continue", HERE)
        after = told(folder)
    assert after[: len(before)] == before
    assert after[:TRIALS] == undisturbed


# -- the same with trainings as jobs -----------------------------------------------------------------------------------


def check_jobs(folder: Path) -> Counter[str]:
    """No training was done twice (what waited is cancelled with its search); the causes of all attempts."""
    with Lab.open(folder, start=False) as lab:
        jobs = lab.jobs()
        names = Counter(job.name for job in jobs if job.kind == "train" and job.state != "cancelled")
        assert set(names.values()) == {1}, names
        causes = Counter(one.cause for job in jobs for one in lab.ledger.attempts(job.id))
        lab.shutdown()
    print(causes)
    return causes


@long
def test_a_search_goes_on_after_each_of_its_processes_stood_still_for_a_minute(
    tmp_path: Path, undisturbed: list[tuple[str, str, float | None]]
) -> None:
    process = search(tmp_path, "--trials", str(TRIALS))

    def pids(kind: str) -> list[int]:
        with Lab.open(tmp_path, start=False) as lab:
            if kind in ("worker", "scheduler"):
                return [pid for role, pid in lab.cluster.processes().items() if role == kind]
            leases = [one for one in lab.ledger.leases() if lab.ledger.job(one.job).kind == kind]
            return [alive.pid_of(one.child) for one in leases if alive.is_alive(one.child)]

    for kind in ("scheduler", "worker", "search", "train"):
        wait_for(lambda kind=kind: pids(kind), process)  # type: ignore[misc]
        (pid, *_) = pids(kind)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(60)
        os.kill(pid, signal.SIGCONT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert told(tmp_path) == undisturbed
    assert set(check_jobs(tmp_path)) == {""}, "nothing was begun twice"


@long
@needs_faketime
def test_a_search_goes_on_while_the_clock_jumps(
    tmp_path: Path, undisturbed: list[tuple[str, str, float | None]]
) -> None:
    folder = tmp_path / "lab"
    clock = faked_clock.FakedClock(tmp_path, moves_monotonic=False)
    environment = {**os.environ, **clock.environment}
    with clock.jumping(3):
        process = search(folder, "--trials", "40", env=environment)
        wait_for(lambda: told(folder), process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert "--continue" in errors
        finish(folder, "--continue", env=environment)
    print(clock.jumps, "jumps")
    assert told(folder)[:TRIALS] == undisturbed
    check_jobs(folder)


@long
@pytest.mark.skipif(not MAY_MOUNT, reason="only root may mount")
def test_jobs_wait_for_room_on_a_full_disk(tmp_path: Path, undisturbed: list[tuple[str, str, float | None]]) -> None:
    folder = tmp_path / "disk"
    with tmpfs(folder):
        process = search(folder, "--trials", "40")
        wait_for(lambda: told(folder), process)
        fill(folder)
        time.sleep(60)
        (folder / "ballast").unlink()
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        print(errors)
        assert "Traceback" not in errors
        finish(folder, "--continue")
        assert told(folder)[:TRIALS] == undisturbed
        assert {state for _, state, _ in told(folder)} == {"finished"}
        check_jobs(folder)
