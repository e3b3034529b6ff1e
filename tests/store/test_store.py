"""The results store: what it keeps, what it refuses, and what it survives."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from syno_lab.errors import StoreError
from syno_lab.protocol import SearchStep
from syno_lab.store import SearchLog, Store


def operator(name: str) -> str:
    return json.dumps({"version": 1, "name": name})


def add(log: SearchLog, name: str) -> int:
    return log.add(f"fp-{name}", operator(name), [SearchStep("REDUCE", ("REDUCE",))], 1000, 10)


def evaluate(log: SearchLog, name: str, accuracy: float, latency: float) -> None:
    number = add(log, name)
    log.record(number, {"state": "finished", "accuracy": accuracy, "curve": [0.1, accuracy]})
    log.record_latency(number, "llvm", {"latency_ms": latency})


def contents(path: Path) -> dict[str, object]:
    """Everything that can be read from the store, as a value to compare."""
    with Store.open(path) as store:
        return {log.name: (log.settings, log.trials(), log.latencies("llvm"), log.told()) for log in store.searches()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def test_a_store_of_users_waits_until_a_write_is_on_the_disk(path: Path) -> None:
    """In a process of its own: the stores of the tests' own processes wait for no disk (`conftest.py`)."""
    program = """
import sys
from pathlib import Path
from syno_lab.store.database import Database
print(*Database(Path(sys.argv[1]))._connection.execute("PRAGMA synchronous").fetchone())
"""
    words = [sys.executable, "-c", program, str(path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True, timeout=240).stdout == "2\n"  # FULL


class TestKeeps:
    def test_a_folder_holds_one_store_and_nothing_half_made(self, tmp_path: Path) -> None:
        with Store.open(tmp_path) as store:
            assert store.path == tmp_path / "results.sqlite"
            store.search("demo", {})
        assert {p.name for p in tmp_path.iterdir()} <= {"results.sqlite", "results.sqlite-lock"}
        assert list(contents(tmp_path)) == ["demo"]

    def test_threads_share_a_store(self, path: Path) -> None:
        with Store.open(path) as store:
            log = store.search("demo", {})
            threads = [
                threading.Thread(target=lambda k=k: [evaluate(log, f"{k}-{i}", 0.5, 1.0) for i in range(10)])
                for k in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(trial.fingerprint for trial in log.trials()) == sorted(
                f"fp-{k}-{i}" for k in range(4) for i in range(10)
            )
            assert all(trial.state == "finished" for trial in log.trials())
            assert len(log.latencies("llvm")) == len(log.told()) == 40


class TestRefuses:
    def test_other_settings(self, path: Path) -> None:
        with Store.open(path) as store:
            store.search("demo", {"epochs": 3, "seed": 0, "shape": (1, 2)})
            store.search("demo", {"seed": 0, "shape": [1, 2], "epochs": 3})
            with pytest.raises(StoreError, match=r"epochs was 3, is 5; lr was absent, is 0\.1"):
                store.search("demo", {"epochs": 5, "seed": 0, "shape": [1, 2], "lr": 0.1})

    def test_unknown_names(self, path: Path) -> None:
        with Store.open(path) as store:
            store.search("demo", {})
            with pytest.raises(StoreError, match=r"no search 'dema' in .*; there is 'demo'"):
                store.search("dema")

    @pytest.mark.parametrize("value", [None, 0.0, -1.0, math.nan, math.inf, "fast"])
    def test_latencies_that_are_none(self, path: Path, value: object) -> None:
        with Store.open(path) as store:
            log = store.search("demo", {})
            number = add(log, "a")
            with pytest.raises(StoreError, match="expected latency_ms in milliseconds above 0, found"):
                log.record_latency(number, "llvm", {"latency_ms": value})
            assert log.latencies("llvm") == {}

    def test_values_of_wrong_kind(self, path: Path) -> None:
        with Store.open(path) as store:
            log = store.search("demo", {})
            number = add(log, "a")
            with pytest.raises(StoreError, match=r"trial's FLOPs: expected a whole number from 0 to 2\^63-1"):
                log.add("b", "{}", [], 2**63, 1)
            with pytest.raises(StoreError, match=r"outcome.curve\[1\]: expected text, numbers.* found object"):
                log.record(number, {"state": "finished", "accuracy": 1.0, "curve": [1, object()]})
            with pytest.raises(StoreError, match="settings: expected a mapping, found list"):
                store.search("x", [])  # type: ignore[arg-type]
            with pytest.raises(StoreError, match="cannot hold a text that is not Unicode"):
                log.add("\udc80", "{}", [], 1, 1)
            assert [trial.fingerprint for trial in log.trials()] == ["fp-a"]

    def test_numbers_that_are_none_come_back_as_none(self, path: Path) -> None:
        with Store.open(path) as store:
            log = store.search("demo", {})
            log.record(add(log, "a"), {"state": "diverged", "accuracy": math.nan, "curve": (1.0, math.inf)})
            assert log.trial(0).outcome == {"state": "diverged", "accuracy": None, "curve": [1.0, None]}

    def test_a_closed_store_and_one_of_another_process(self, path: Path) -> None:
        store = Store.open(path)
        log = store.search("demo", {})
        child = os.fork()
        if child == 0:
            try:
                log.trials()
            except StoreError as error:
                os._exit(0 if "opened by another process" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.close()
        store.close()
        with pytest.raises(StoreError, match="is closed"):
            log.trials()


class TestDamage:
    @pytest.fixture
    def filled(self, path: Path) -> Path:
        with Store.open(path) as store:
            log = store.search("demo", {"epochs": 3})
            for index in range(48):  # more than the empty tables' pages hold
                evaluate(log, f"operator-{index}", index / 64, 1.0 + index)
        return path

    def refused(self, path: Path, match: str) -> None:
        before = {p.name: p.read_bytes() for p in path.parent.iterdir() if p.suffix != ".sqlite-shm"}
        with pytest.raises(StoreError, match=match) as caught:
            Store.open(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert {name: (path.parent / name).read_bytes() for name in before} == before

    def test_header_zeroed(self, filled: Path) -> None:
        data = bytearray(filled.read_bytes())
        data[:100] = bytes(100)
        filled.write_bytes(data)
        self.refused(filled, "damaged or no Syno Lab store .*file is not a database")

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.5, 0.97])
    def test_truncated(self, filled: Path, share: float) -> None:
        data = filled.read_bytes()
        filled.write_bytes(data[: int(len(data) * share)])
        self.refused(filled, "damaged or no Syno Lab store")

    def test_not_a_database(self, path: Path) -> None:
        path.write_text("{}" * 600)
        self.refused(path, "damaged or no Syno Lab store")

    def test_of_another_program(self, path: Path) -> None:
        with sqlite3.connect(path) as file:
            file.execute("CREATE TABLE notes (text)")
        file.close()
        self.refused(path, "made by another program")

    def test_newer_version(self, filled: Path) -> None:
        with sqlite3.connect(filled) as file:
            file.execute("PRAGMA user_version=99")
        file.close()
        self.refused(filled, "has version 99, this Syno Lab reads version 8: it was made by a newer Syno Lab")

    def test_a_folder_in_the_place_of_a_parent(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(StoreError, match="cannot be reached"):
            Store.open(tmp_path / "file" / "results.sqlite")

    def test_any_flipped_bytes_are_refused_or_harmless(self, filled: Path, tmp_path: Path) -> None:
        seed = 20261121
        print("seed", seed)
        rng = random.Random(seed)
        whole, truth = filled.read_bytes(), contents(filled)
        copy = tmp_path / "copy" / "results.sqlite"
        copy.parent.mkdir()
        refusals = 0
        for _ in range(150):
            data = bytearray(whole)
            for _ in range(rng.choice([1, 1, 4, 64])):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            copy.write_bytes(data)
            refusal = ""
            try:
                assert contents(copy) == truth
            except StoreError as error:
                refusal = str(error)
            if refusal:
                refusals += 1
                assert str(copy) in refusal
                assert "\n" not in refusal
                assert copy.read_bytes() == data
        assert refusals > 20, "the flips hit nothing: the test shows nothing"

    def test_a_flipped_digit_in_a_result_is_noticed(self, filled: Path) -> None:
        data = filled.read_bytes()
        old = b'"curve": [0.1, 0.25]'
        assert data.count(old) == 1
        filled.write_bytes(data.replace(old, b'"curve": [0.1, 0.95]'))
        with Store.open(filled) as store, pytest.raises(StoreError, match="a row differs from what was written"):
            store.search("demo").trials()

    def test_a_torn_log_loses_at_most_its_end(self, path: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy" / "results.sqlite"
        copy.parent.mkdir()
        with Store.open(path) as store:
            log = store.search("demo", {})
            for index in range(10):
                add(log, str(index))
            for suffix in ("", "-wal"):  # as a power cut would leave it
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        log = Path(f"{copy}-wal")
        log.write_bytes(log.read_bytes()[:-700])
        with Store.open(copy) as store:
            kept = [trial.operator for trial in store.search("demo").trials()]
        assert kept == [operator(str(index)) for index in range(len(kept))]
        assert len(kept) >= 8


class TestDisk:
    def test_a_full_disk_is_told_and_loses_nothing(self, path: Path) -> None:
        code = """
import resource, signal, sys
from pathlib import Path
from syno_lab.errors import StoreError
from syno_lab.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Store.open(sys.argv[1]) as store:
    log = store.search("demo", {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    try:
        for index in range(1000):
            log.add(f"fp-{index}", "x" * 10_000, [], 1, 1)
            print(index, flush=True)
    except StoreError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.add("fp-after", "", [], 1, 1)
"""
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        *written, message = done.stdout.splitlines()
        assert "cannot be read or written" in message
        assert str(path) in message
        with Store.open(path) as store:
            kept = [trial.fingerprint for trial in store.search("demo").trials()]
        assert kept == [*(f"fp-{index}" for index in written), "fp-after"]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(StoreError, match="cannot be"):
            Store.open(tmp_path / "results.sqlite")

    def test_a_rival_that_never_lets_go(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("syno_lab.store.database.BUSY_SECONDS", 0.2)
        with Store.open(path) as store:
            log = store.search("demo", {})
            rival = sqlite3.connect(path, isolation_level=None)
            rival.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match=r"is busy: another process has held it for 0.2 s"):
                add(log, "a")
            rival.close()
            assert add(log, "a") == 0


WRITER = """
import sys
from syno_lab.store import Store
path, name, amount = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store.open(path) as store:
    log = store.search("demo", {"epochs": 3})
    for index in range(amount):
        fingerprint = f"fp-{name}-{index}"
        number = log.add(fingerprint, "{}" * 500, [], 1000, 10)
        print("operator", fingerprint, flush=True)
        log.record(number, {"state": "finished", "accuracy": 0.5, "curve": [0.1] * 50})
        print("training", fingerprint, flush=True)
        log.record_latency(number, "llvm", {"latency_ms": 1.0 + index})
        print("latency", fingerprint, flush=True)
"""


def start_writer(path: Path, name: str, amount: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(amount)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class TestProcesses:
    def test_what_was_acknowledged_survives_a_kill_at_any_moment(self, path: Path) -> None:
        seed = 7
        print("seed", seed)
        rng = random.Random(seed)
        told: set[tuple[str, ...]] = set()
        for attempt in range(10):
            writer = start_writer(path, str(attempt), 100_000)
            assert writer.stdout is not None
            if attempt == 0:
                time.sleep(0.15 + 0.1 * rng.random())  # around the making of the file
            else:
                told.add(tuple(writer.stdout.readline().split()))
                time.sleep(rng.random())
            writer.send_signal(signal.SIGKILL)
            output, _ = writer.communicate(timeout=240)
            told.update(tuple(line.split()) for line in output.splitlines() if line.endswith(tuple("0123456789")))
        told.discard(())
        assert len(told) >= 9  # one of each but the first; how many more there are is a matter of speed
        with Store.open(path) as store:
            log = store.search("demo", {"epochs": 3})
            trials = {trial.fingerprint: trial for trial in log.trials()}
            latencies = log.latencies("llvm")
            for kind, fingerprint in told:
                trial = trials[fingerprint]
                if kind == "training":
                    assert trial.accuracy == 0.5
                if kind == "latency":
                    assert latencies[trial.number]["latency_ms"] == 1.0 + int(fingerprint.rsplit("-", 1)[1])
            assert len(log.told()) == sum(trial.position is not None for trial in trials.values())

    def test_four_writers_at_once(self, path: Path) -> None:
        writers = [start_writer(path, name, 12) for name in "abcd"]
        for writer in writers:
            _, errors = writer.communicate(timeout=240)
            assert writer.returncode == 0, errors
        with Store.open(path) as store:
            log = store.search("demo")
            assert [trial.number for trial in log.trials()] == list(range(48))
            assert all(trial.state == "finished" for trial in log.trials())
            assert len(log.latencies("llvm")) == len(log.told()) == 48

    def test_importing_the_store_loads_nothing_heavy(self) -> None:
        code = (
            "import sys, syno_lab.store;"
            "print(sorted({'torch', 'tvm', 'pandas', 'optuna', 'IPython'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip() == "[]"
