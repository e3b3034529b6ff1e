"""Boards, trackers, kernels and databases that break in the middle of a tuning: real ones, on loopback, and broken.

Each fault must end in a recorded failure, in a retry or in an error of one line; never in a hang, a lost trial or a
wrong number. ``SYNO_LAB_LONG=1`` runs the slow ones too.
"""

import contextlib
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

from syno_lab import operators
from syno_lab.errors import TrackerError, TuningError
from syno_lab.processes.process import end_group, start_child
from syno_lab.tuning import TuningTask, tracker_summary, tune
from syno_lab.tuning.board import Board
from syno_lab.tuning.checkup import check_up, run_remotely
from syno_lab.tuning.setup import Plan, checked
from syno_lab.tuning.tracker import request_device

pytestmark = [pytest.mark.tvm, pytest.mark.timeout(300)]

long = pytest.mark.skipif(os.environ.get("SYNO_LAB_LONG") != "1", reason="takes long: set SYNO_LAB_LONG=1 to run it")

SERVE = "syno_lab.processes.serve"
#: While the file that a variable names is there, kernels on a board that has the variable crash, or never end.
CRASH, HANG = "SYNO_FAULT_CRASH", "SYNO_FAULT_HANG"
SIZE = 16


def faulty(operator, binding, dtype):
    """A matrix product whose every read of ``x`` looks for trouble first (the builder of all tunings here)."""
    import tvm
    from tvm import te, tirx

    def variable(name):
        return tirx.call_extern("handle", "getenv", tvm.ir.StringImm(name))

    def if_there(name, number):
        is_there = tirx.call_extern("int32", "access", variable(name), 0) == 0
        return tirx.Select(is_there, tirx.IntImm("int32", number), tirx.IntImm("int32", 0))

    def trouble():
        # raise(0) does nothing, and neither does waiting for nothing (NULL, no files) for 0 ms; both return 0.
        crash = tirx.call_extern("int32", "raise", if_there(CRASH, signal.SIGSEGV))
        hang = tirx.call_extern("int32", "poll", variable("SYNO_FAULT_NONE"), 0, if_there(HANG, 100_000_000))
        return (crash + hang).astype(dtype)

    x, w = (te.placeholder((SIZE, SIZE), dtype, name=name) for name in "xw")
    k = te.reduce_axis((0, SIZE))
    checked = te.compute((SIZE, SIZE), lambda i, j: x[i, j] + trouble(), name="checked")
    y = te.compute((SIZE, SIZE), lambda i, j: te.sum(checked[i, k] * w[j, k], axis=k), name="y")
    return tvm.ir.IRModule({"main": te.create_prim_func([x, w, y])})


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


class Faults:
    """The files that kernels look for."""

    def __init__(self, folder):
        self.crash, self.hang = folder / "crash", folder / "hang"

    def clear(self):
        self.crash.unlink(missing_ok=True)
        self.hang.unlink(missing_ok=True)

    def environment(self):
        return {CRASH: str(self.crash), HANG: str(self.hang)}


class Bench:
    """A tracker and servers on loopback, which a test kills, stops and starts again."""

    def __init__(self, folder):
        self._folder, self.faults = folder, Faults(folder)
        self._environment = {"TMPDIR": str(folder), "TVM_NUM_THREADS": "1", **self.faults.environment()}
        self._children = []
        self.port, self.key = 0, "bench"
        self.tracker = self.start_tracker()
        self.server = self.start_server()

    def _start(self, port, arguments, module=SERVE):
        with socket.create_server(("127.0.0.1", port)) as listener, (self._folder / "bench.log").open("ab") as log:
            number = listener.fileno()
            role, *rest = arguments
            child = start_child(
                module, [role, str(number), *rest], log=log, pass_fds=[number], environment=self._environment
            )
            self._children.append(child)
            return child, listener.getsockname()[1]

    def start_tracker(self):
        """At the same port as before."""
        self.tracker, self.port = self._start(self.port, ["tracker"])
        return self.tracker

    def start_server(self):
        """In the place of the one before."""
        self.server, _ = self._start(0, ["server", str(self.port), self.key])
        return self.server

    def start_another(self, key, module):
        """Beside the first, at the same tracker."""
        child, _ = self._start(0, ["server", str(self.port), key], module)
        assert wait_until(lambda: self.free(key) == 1)
        return child

    def free(self, key=None):
        with contextlib.suppress(TrackerError):
            entry = tracker_summary("127.0.0.1", self.port, 2).get(key or self.key)
            return 0 if entry is None else entry.free
        return 0

    def ready(self):
        assert wait_until(lambda: self.free() == 1), self.log()[-2000:]
        return self

    def log(self):
        return (self._folder / "bench.log").read_text()

    def close(self):
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGCONT)
            end_group(child)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with contextlib.closing(Bench(tmp_path_factory.mktemp("bench"))) as started:
        yield started.ready()


@pytest.fixture
def bench(shared):
    """One for all tests that leave it as it was."""
    yield shared.ready()
    shared.faults.clear()
    assert shared.ready()


@pytest.fixture
def fragile(tmp_path):
    """One for this test alone, which may kill it."""
    with contextlib.closing(Bench(tmp_path)) as started:
        yield started.ready()


def run(bench, folder, *, key=None, trials=4, builder="faulty", seen=None, then=lambda trial: None, **options):
    """Tune on the bench; ``then`` is called after each trial, ``seen`` gets (trial, failed)."""

    def progress(now):
        if seen is not None:
            seen.append((now.trial, now.failed))
        then(now.trial)

    options = {"wait_s": 60, "session_s": 40, "deadline_s": 240, "store": folder / "store"} | options
    task = TuningTask("a product", "{}", {}, builder=f"test_tuning_faults:{builder}")
    return tune(
        task, tracker=("127.0.0.1", bench.port), key=key or bench.key, trials=trials, work_dir=folder / "tuning",
        on_progress=progress, **options,
    )  # fmt: skip


def recorded(folder):
    """The trials in the record: how many ran, and the reasons of those that did not."""
    lines = [line for file in (folder / "store").glob("*.jsonl") for line in file.read_bytes().splitlines()]
    trials = [one for one in (json.loads(line.partition(b" ")[2]) for line in lines) if one["kind"] == "trial"]
    assert all(bool(one["seconds"]) != bool(one["reason"]) for one in trials)
    assert all(0 < second < 10 for one in trials for second in one["seconds"])  # a hang lasts for a day
    return sum(not one["reason"] for one in trials), [one["reason"] for one in trials if one["reason"]]


def is_sound(result, seen, folder):
    """Every trial is told and recorded once, those that failed too, and what comes out is right and no fault's time."""
    assert result.stopped in ("budget", "space")
    assert [trial for trial, _ in seen] == list(range(1, result.trials + 1))
    assert seen[-1][1] == result.failed
    ran, reasons = recorded(folder)
    assert (ran, len(reasons)) == (result.trials - result.failed, result.failed)
    assert result.verified
    assert 0 < result.best_ms <= result.latency_ms < 10_000
    assert all(best < 10_000 for _, best in result.history)
    assert not [one for one in psutil.Process().children() if "processes.worker" in _command(one)]
    return True


def _command(process):
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def sessions(bench):
    """The processes of sessions that are under way on the bench's server."""
    with contextlib.suppress(psutil.Error):  # a server that is a fork has a nursery too, see warm.py
        return [one for one in psutil.Process(bench.server.pid).children() if _command(one).strip() != "nursery"]
    return []


def in_a_session(bench):
    """Whether the bench's server has a session under way."""
    return bool(sessions(bench))


def test_kernels_that_crash_and_never_end(bench, tmp_path):
    """The first crashes its server's session, the second is ended by the session's time; the others count."""
    bench.faults.crash.touch()

    def then(trial):
        if trial == 1:
            bench.faults.crash.unlink()
            bench.faults.hang.touch()
        elif trial == 2:
            bench.faults.hang.unlink()

    seen = []
    # Long enough for a sound session on a busy machine: one that is ended by mistake would count as a third failure.
    result = run(bench, tmp_path, trials=5, seen=seen, then=then, session_s=10)
    assert is_sound(result, seen, tmp_path)
    assert seen[:2] == [(1, 1), (2, 2)]
    assert result.failed in (2, 3)  # the third may begin before its predecessor is told
    reasons = recorded(tmp_path)[1]
    assert any("SessionTimeout" in reason for reason in reasons)
    assert any("the session on 'bench' ended in the middle of a call: the candidate crashed" in one for one in reasons)


def large(operator, binding, dtype):
    """A product whose argument takes 80 MB."""
    import tvm
    from tvm import te

    x, w = te.placeholder((80_000, SIZE, SIZE), dtype, name="x"), te.placeholder((SIZE, SIZE), dtype, name="w")
    b, k = te.reduce_axis((0, 80_000)), te.reduce_axis((0, SIZE))
    y = te.compute((SIZE, SIZE), lambda i, j: te.sum(x[b, i, k] * w[k, j], axis=[b, k]), name="y")
    return tvm.ir.IRModule({"main": te.create_prim_func([x, w, y])})


def test_a_device_that_runs_out_of_memory(bench, tmp_path):
    """The board's server may take 64 MB more than it has; the trial has its reason, and the board goes on."""
    server = psutil.Process(bench.server.pid)
    before = server.rlimit(psutil.RLIMIT_AS)
    server.rlimit(psutil.RLIMIT_AS, (server.memory_info().vms + (64 << 20), before[1]))
    try:
        with pytest.raises(
            TuningError, match=r"none of 1 candidates ran; the last: 'bench' ran out of memory: expected room"
        ) as caught:
            run(bench, tmp_path, trials=1, builder="large")
    finally:
        server.rlimit(psutil.RLIMIT_AS, before)
    assert "\n" not in str(caught.value)
    ran, (reason,) = recorded(tmp_path)
    assert ran == 0
    assert reason.endswith("take smaller sizes or a device with more memory")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="code for this machine runs on the board")
def test_a_board_of_another_architecture_than_its_key_says(bench, tmp_path):
    """This machine's server with a Jetson's key: refused by all who would send it code, and nothing is sent."""
    server = bench.start_another("jetson-orin-nano-cpu", SERVE)
    sessions, address = bench.log().count("connected from"), f"127.0.0.1:{bench.port}"
    line = (
        rf"the device 'jetson-orin-nano-cpu' at 127\.0\.0\.1:\d+ is of the architecture {platform.machine()}, code for "
        r"the target '.*' is for aarch64: nothing was sent; name the device's own target"
    )
    try:
        key = target = "jetson-orin-nano-cpu"
        with pytest.raises(TrackerError, match=line) as caught:
            run(bench, tmp_path, key=key, target=target)
        assert "\n" not in str(caught.value)
        board, sizes = Board("127.0.0.1", bench.port, key), {"N": 1, "C_in": 1, "C_out": 1, "H": 4, "W": 4}
        with pytest.raises(TrackerError, match=line):
            run_remotely(operators.conv2d().to_json(), sizes, board=board, target=key)
        for asked in ("aarch64", "arm64"):
            with pytest.raises(TrackerError, match=line.replace("aarch64", asked)):
                request_device("127.0.0.1", bench.port, key, 5, machine=asked, target="mine")
        findings = {one.name: one for one in check_up(address, key)}
        assert not findings[f"key {key}, architecture"].ok
        assert re.search(line, findings[f"key {key}, architecture"].found)
        assert f"key {key}, a kernel" not in findings
        assert bench.log().count("connected from") == sessions
        (step,) = (one for one in checked(Plan(tracker=address))[0] if one.title == "the server")
        assert (step.state, bool(re.search(line, step.found))) == ("to do", True)
        assert request_device("127.0.0.1", bench.port, key, 30, machine="amd64", target="mine")
    finally:
        end_group(server)


@long
def test_a_kernel_that_always_crashes(bench, tmp_path):
    bench.faults.crash.touch()
    seen = []
    with pytest.raises(TuningError, match=r"^a product: none of \d candidates ran; the last: ") as caught:
        run(bench, tmp_path, trials=3, seen=seen)
    assert "\n" not in str(caught.value)
    assert seen == [(i, i) for i in range(1, len(seen) + 1)]
    assert [len(one) if isinstance(one, list) else one for one in recorded(tmp_path)] == [0, len(seen)]


def test_all_that_a_tuning_outlives(fragile, tmp_path):
    """The server killed in the middle of a trial and started again, then the tracker, then a board that hangs."""
    fragile.faults.hang.touch()
    timers = []

    def later(seconds, action, *arguments):
        timers.append(threading.Timer(seconds, action, arguments))
        timers[-1].start()

    def kill_and_start():
        assert wait_until(lambda: in_a_session(fragile))
        time.sleep(1)
        fragile.faults.hang.unlink()
        end_group(fragile.server)
        time.sleep(1)
        fragile.start_server()

    def then(trial):
        if trial == 1:
            end_group(fragile.tracker)
            later(2, fragile.start_tracker)
        elif trial == 2:
            os.killpg(fragile.server.pid, signal.SIGSTOP)
            later(3, os.killpg, fragile.server.pid, signal.SIGCONT)

    seen = []
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(kill_and_start)
        result = run(fragile, tmp_path, seen=seen, then=then)
        done.result()
    for timer in timers:
        timer.join()
    assert len(timers) == min(result.trials, 2)
    assert is_sound(result, seen, tmp_path)
    assert result.failed <= 1  # tried a second time, or counted as failed
    assert fragile.ready()


@long
def test_a_server_killed_in_the_middle_of_a_trial(fragile, tmp_path):
    """Back after two seconds, as with a service manager: the trial fails or is tried again, the others wait."""
    fragile.faults.hang.touch()
    killed = fragile.server

    def kill_and_start():
        assert wait_until(lambda: in_a_session(fragile))
        time.sleep(1)
        fragile.faults.hang.unlink()
        end_group(killed)
        time.sleep(2)
        fragile.start_server()

    seen = []
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(kill_and_start)
        result = run(fragile, tmp_path, seen=seen)
        done.result()
    assert is_sound(result, seen, tmp_path)
    assert result.failed <= 1  # tried a second time, or counted as failed
    assert fragile.server is not killed


@long
def test_a_server_that_does_not_come_back(fragile, tmp_path):
    then = lambda trial: end_group(fragile.server)  # noqa: E731
    with pytest.raises(TrackerError, match=r"^a product: no device is registered as 'bench' at 127\.0\.0\.1:\d+"):
        run(fragile, tmp_path, then=then, wait_s=2)
    # TVM's tracker counts requests of closed connections until a device comes, which is then free, not given to them.
    fragile.start_server()
    assert fragile.ready()
    assert tracker_summary("127.0.0.1", fragile.port).get("bench").pending == 0


@long
@pytest.mark.parametrize("away_s", [2, 12])
def test_a_tracker_that_comes_back(fragile, tmp_path, away_s):
    timers = []

    def then(trial):
        if trial == 1:
            end_group(fragile.tracker)
            timers.append(threading.Timer(away_s, fragile.start_tracker))
            timers[0].start()

    seen = []
    result = run(fragile, tmp_path, seen=seen, then=then, wait_s=away_s + 20)
    timers[0].join()
    assert is_sound(result, seen, tmp_path)
    assert fragile.ready()
    end_group(fragile.tracker)
    with pytest.raises(TrackerError, match=rf"no RPC tracker listens at 127\.0\.0\.1:{fragile.port}"):
        request_device("127.0.0.1", fragile.port, "bench", 1)


@long
def test_a_tracker_that_does_not_come_back(fragile, tmp_path):
    """What was measured is kept: with a new tracker the same tuning goes on from there."""
    then = lambda trial: end_group(fragile.tracker)  # noqa: E731
    seen = []
    with pytest.raises(TrackerError, match=rf"^a product: .*127\.0\.0\.1:{fragile.port}") as caught:
        run(fragile, tmp_path, seen=seen, then=then, wait_s=2)
    assert "\n" not in str(caught.value)
    ran, reasons = recorded(tmp_path)
    assert ran + len(reasons) == len(seen) >= 1
    fragile.start_tracker()
    fragile.ready()
    result = run(fragile, tmp_path, seen=seen)
    assert result.known == ran + len(reasons)
    assert is_sound(result, seen, tmp_path)


@long
def test_a_board_that_hangs_for_a_while(fragile, tmp_path):
    """What is sent to it meanwhile waits, or fails and is counted."""
    timers = []

    def then(trial):
        if trial == 1:
            os.killpg(fragile.server.pid, signal.SIGSTOP)
            timers.append(threading.Timer(4, os.killpg, [fragile.server.pid, signal.SIGCONT]))
            timers[0].start()

    seen = []
    result = run(fragile, tmp_path, seen=seen, then=then)
    timers[0].join()
    assert is_sound(result, seen, tmp_path)
    assert fragile.ready()


@long
def test_a_board_that_hangs_for_ever(fragile, tmp_path):
    started = time.monotonic()

    def then(trial):
        if trial == 1:
            os.killpg(fragile.server.pid, signal.SIGSTOP)

    with pytest.raises(TuningError, match=r"^a product: .*bench") as caught:
        run(fragile, tmp_path, then=then, wait_s=3, session_s=3, deadline_s=80)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 80, "the deadline ended it, not the board's own"
    os.killpg(fragile.server.pid, signal.SIGCONT)
    assert fragile.ready()
    after = tmp_path / "after"
    assert is_sound(run(fragile, after, seen=(seen := [])), seen, after)


def test_two_hosts_on_one_board(bench, tmp_path):
    """They take turns: the server has one session at a time, and both come to a right end."""
    most, done = 0, threading.Event()

    def watch():
        nonlocal most
        while not done.is_set():
            most = max(most, len(sessions(bench)))
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    seen = [], []
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run, bench, tmp_path / str(i), trials=3, seen=seen[i], wait_s=60) for i in range(2)]
        results = [one.result() for one in runs]
    done.set()
    watcher.join()
    for i, (result, told) in enumerate(zip(results, seen, strict=True)):
        assert is_sound(result, told, tmp_path / str(i))
        assert result.failed == 0
    assert most == 1
    assert bench.ready()


def test_another_version_of_tvm_on_the_board(bench, tmp_path):
    """Refused with both versions, before anything is uploaded."""
    server = bench.start_another("old", "other_version_board")
    sessions = bench.log().count("connected from")
    try:
        with pytest.raises(
            TrackerError, match=r"the device 'old' .* has TVM 0\.26\.0, this machine has TVM "
        ) as caught:
            run(bench, tmp_path, key="old")
        assert metadata.version("apache-tvm") in str(caught.value)
        assert "\n" not in str(caught.value)
        assert bench.log().count("connected from") == sessions
        assert wait_until(lambda: bench.free("old") == 1)
    finally:
        end_group(server)


@long
def test_a_stock_server(bench, tmp_path):
    """TVM's own says nothing of its version; it serves all the same."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "tvm.exec.rpc_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--port-end", str(port + 1), "--tracker", f"127.0.0.1:{bench.port}", "--key", "stock"]
    command += ["--custom-addr", "127.0.0.1"]
    with (tmp_path / "stock.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        assert wait_until(lambda: bench.free("stock") == 1), (tmp_path / "stock.log").read_text()
        assert is_sound(run(bench, tmp_path, key="stock", seen=(seen := [])), seen, tmp_path)
    finally:
        end_group(server)


def test_a_database_of_tvm_that_takes_the_process_down(bench, tmp_path):
    """TVM 0.27 dies of a blank line in its database, and is lost to a torn one: it is scratch, and must not matter."""
    records = tmp_path / "records"
    records.mkdir()
    (records / "database_workload.json").write_text('["1234567890", "')
    (records / "database_tuning_record.json").write_text("\n")
    assert is_sound(run(bench, tmp_path, seen=(seen := []), records=records), seen, tmp_path)
    assert {file.name for file in records.glob("*.damaged")} == {
        "database_workload.damaged",
        "database_tuning_record.damaged",
    }


@long
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data + b"\n", id="blank-line"),
        pytest.param(lambda data: data[: len(data) * 2 // 3], id="truncated"),
        pytest.param(lambda data: data[:40] + bytes([data[40] ^ 0x55]) + data[41:], id="flipped"),
        pytest.param(lambda data: b"\0" * len(data), id="zeroed"),
    ],
)
def test_a_damaged_database_of_tvm(bench, tmp_path, damage):
    """A tuning that is given a broken one goes on without what was in it."""
    records = tmp_path / "records"
    run(bench, tmp_path / "before", trials=2, records=records)
    files = sorted(records.glob("database*.json"))
    assert files
    for file in files:
        file.write_bytes(damage(file.read_bytes()))
    assert is_sound(run(bench, tmp_path, seen=(seen := []), records=records), seen, tmp_path)


@long
def test_the_kernels_compute_a_product_without_faults(bench, tmp_path):
    """The other tests mean something only when this one holds."""
    assert is_sound(run(bench, tmp_path, seen=(seen := [])), seen, tmp_path)
    assert seen[-1] == (4, 0)
