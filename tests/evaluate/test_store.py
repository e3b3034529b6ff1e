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
from syno_lab.evaluate.store import OperatorRecord, Run, Store

LAYERS = [({"C_in": 16, "H": 32}, 2), ({"C_in": 32, "H": 16}, 3)]


def record(name: str, *, baseline: bool = False) -> OperatorRecord:
    return OperatorRecord(f"fp-{name}", json.dumps({"version": 1, "name": name}), 1000, 10, name, baseline)


def evaluate(run: Run, name: str, accuracy: float, latency: float) -> None:
    run.add_operator(record(name))
    run.record_training(f"fp-{name}", {"accuracy": accuracy, "curve": [0.1, accuracy]})
    for binding, count in LAYERS:
        run.record_latency(f"fp-{name}", target="llvm", binding=binding, count=count, result={"latency_ms": latency})


def contents(path: Path) -> dict[str, object]:
    """Everything that can be read from the store, as a value to compare."""
    with Store.open(path) as store:
        return {
            run.name: (
                run.settings,
                run.operators(),
                [run.training(o.fingerprint) for o in run.operators()],
                [run.latencies(o.fingerprint, t) for o in run.operators() for t in run.targets()],
                run.trials(),
            )
            for run in store.runs()
        }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


class TestKeeps:
    def test_everything_is_there_after_reopening(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {"epochs": 3, "data": "digits"})
            run.set_bindings(LAYERS)
            run.add_operator(record("conv2d", baseline=True))
            evaluate(run, "a", 0.5, 1.25)
            run.add_operator(record("b"))
            run.record_training("fp-b", {"accuracy": 0.25})
            run.record_latency("fp-conv2d", target="llvm", binding=LAYERS[0][0], count=2, result={"latency_ms": 3.0})
        with Store.open(path) as store:
            run = store.run("demo")
            assert run.settings == {"epochs": 3, "data": "digits"}
            assert run.operators() == [record("conv2d", baseline=True), record("a"), record("b")]
            assert run.training("fp-a") == {"accuracy": 0.5, "curve": [0.1, 0.5]}
            assert run.training("fp-conv2d") is None
            assert run.latency_ms("fp-a", "llvm") == 2 * 1.25 + 3 * 1.25
            assert run.latency_ms("fp-conv2d", "llvm") is None  # one of two bindings
            assert run.latency_ms("fp-a", "cuda") is None
            assert run.is_tuned("fp-conv2d", "llvm", {"H": 32, "C_in": 16})
            assert not run.is_tuned("fp-conv2d", "llvm", LAYERS[1][0])
            assert not run.is_tuned("fp-conv2d", "cuda", LAYERS[0][0])
            assert [(t.label, t.state, t.accuracy, t.latency_ms) for t in run.trials()] == [
                ("conv2d", "waiting", None, None),
                ("a", "done", 0.5, 6.25),
                ("b", "trained", 0.25, None),
            ]

    def test_a_folder_holds_one_store_and_nothing_half_made(self, tmp_path: Path) -> None:
        with Store.open(tmp_path) as store:
            assert store.path == tmp_path / "results.sqlite"
            store.run("demo", {})
        assert {p.name for p in tmp_path.iterdir()} <= {"results.sqlite", "results.sqlite-lock"}
        assert list(contents(tmp_path)) == ["demo"]

    def test_adding_again_changes_nothing_but_the_baseline(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            assert run.add_operator(record("a"))
            run.record_training("fp-a", {"accuracy": 0.5})
            assert not run.add_operator(record("a"))
            assert not run.add_operator(OperatorRecord("fp-a", "{}", 1, 1, "other"))
            assert run.operators() == [record("a")]
            assert not run.add_operator(OperatorRecord("fp-a", "{}", 1, 1, "conv2d", baseline=True))
            (kept,) = run.operators()
            assert (kept.label, kept.baseline, kept.flops, kept.operator) == (
                "conv2d",
                True,
                1000,
                record("a").operator,
            )
            assert run.training("fp-a") == {"accuracy": 0.5}

    def test_recording_again_overwrites(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            evaluate(run, "a", 0.5, 1.0)
            evaluate(run, "a", 0.75, 2.0)
            (trial,) = run.trials()
            assert (trial.accuracy, trial.latency_ms) == (0.75, 10.0)

    def test_a_training_without_accuracy_is_failed_and_numbers_that_are_none_are_none(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            run.add_operator(record("a"))
            run.record_training("fp-a", {"accuracy": math.nan, "curve": (1.0, math.inf)})
            assert run.trials()[0].state == "failed"
            assert run.training("fp-a") == {"accuracy": None, "curve": [1.0, None]}

    def test_runs_are_apart(self, path: Path) -> None:
        with Store.open(path) as store:
            one, two = store.run("one", {"seed": 1}), store.run("two", {"seed": 2})
            evaluate(one, "a", 0.5, 1.0)
            two.add_operator(record("a"))
            assert [run.name for run in store.runs()] == ["one", "two"]
            assert two.trials()[0].state == "waiting"
            assert two.targets() == []

    def test_threads_share_a_store(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            threads = [
                threading.Thread(target=lambda k=k: [evaluate(run, f"{k}-{i}", 0.5, 1.0) for i in range(10)])
                for k in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(run.operators()) == 40
            assert all(trial.state == "done" for trial in run.trials())


class TestOptuna:
    def test_the_study_holds_what_is_evaluated(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            run.set_bindings(LAYERS)
            run.add_operator(record("waiting"))
            evaluate(run, "slow", 0.75, 2.0)
            evaluate(run, "bad", 0.5, 3.0)
            evaluate(run, "fast", 0.5, 1.0)
        with sqlite3.connect(path) as file:  # there without having been asked for
            assert file.execute("SELECT COUNT(*) FROM trials").fetchone() == (3,)
        with Store.open(path) as store:
            study = store.run("demo").study()
            assert [d.name for d in study.directions] == ["MAXIMIZE", "MINIMIZE"]
            assert {t.user_attrs["label"]: t.values for t in study.trials} == {
                "slow": [0.75, 10.0],
                "bad": [0.5, 15.0],
                "fast": [0.5, 5.0],
            }
            assert {t.user_attrs["fingerprint"] for t in study.best_trials} == {"fp-slow", "fp-fast"}
            study.tell(study.ask(), [0.1, 20.0])  # a search may go on in the same study
            assert len(store.run("demo").study().trials) == 4

    def test_another_result_is_another_observation_and_the_same_is_not(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            run.set_bindings(LAYERS)
            evaluate(run, "a", 0.5, 1.0)
            evaluate(run, "a", 0.5, 1.0)
            assert [t.values for t in run.study().trials] == [[0.5, 5.0]]
            run.record_training("fp-a", {"accuracy": 0.75})
            assert [t.values for t in run.study().trials] == [[0.5, 5.0], [0.75, 5.0]]

    def test_half_a_latency_is_never_published(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})  # nothing declared: the first binding looks like all of them
            evaluate(run, "a", 0.5, 1.0)
            assert [t.values for t in run.study().trials] == [[0.5, 5.0]]

    def test_what_a_kill_left_unpublished_is_published_once(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            run.set_bindings(LAYERS)
            evaluate(run, "a", 0.5, 1.0)
        with sqlite3.connect(path) as file:  # killed between Optuna's commit and ours, or before Optuna's
            file.execute("DELETE FROM syno_published")
        file.close()
        with Store.open(path) as store:
            assert len(store.run("demo").study().trials) == 1
        with sqlite3.connect(path) as file:
            file.execute("DELETE FROM syno_published")
            file.execute("DELETE FROM trials")
        file.close()
        with Store.open(path) as store:
            store.run("demo")
        with sqlite3.connect(path) as file:
            assert file.execute("SELECT COUNT(*) FROM trials").fetchone() == (1,)
        file.close()

    def test_broken_optuna_tables_harm_the_study_alone(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            run.set_bindings(LAYERS)
            evaluate(run, "a", 0.5, 1.0)
        with sqlite3.connect(path) as file:
            file.execute("UPDATE study_directions SET direction='sideways'")
        file.close()
        with Store.open(path) as store:
            run = store.run("demo")
            with pytest.raises(StoreError, match=r"Optuna study in the results store .*results.sqlite cannot be used"):
                run.study()
            assert run.trials()[0].state == "done"


class TestRefuses:
    def test_other_settings(self, path: Path) -> None:
        with Store.open(path) as store:
            store.run("demo", {"epochs": 3, "seed": 0, "shape": (1, 2)})
            store.run("demo", {"seed": 0, "shape": [1, 2], "epochs": 3})
            with pytest.raises(StoreError, match=r"epochs was 3, is 5; lr was absent, is 0\.1"):
                store.run("demo", {"epochs": 5, "seed": 0, "shape": [1, 2], "lr": 0.1})

    def test_unknown_names(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            with pytest.raises(StoreError, match=r"no run 'dema' in .*; there is 'demo'"):
                store.run("dema")
            with pytest.raises(StoreError, match="no operator fp-x: add_operator first"):
                run.record_training("fp-x", {"accuracy": 1.0})
            with pytest.raises(StoreError, match="no operator fp-x: add_operator first"):
                run.record_latency("fp-x", target="llvm", binding={"N": 1}, count=1, result={"latency_ms": 1.0})
            with pytest.raises(StoreError, match="no latency yet: name the target"):
                run.study()

    @pytest.mark.parametrize("value", [None, 0.0, -1.0, math.nan, math.inf, "fast"])
    def test_latencies_that_are_none(self, path: Path, value: object) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            run.add_operator(record("a"))
            with pytest.raises(StoreError, match="expected latency_ms in milliseconds above 0, found"):
                run.record_latency("fp-a", target="llvm", binding={"N": 1}, count=1, result={"latency_ms": value})
            assert not run.is_tuned("fp-a", "llvm", {"N": 1})

    def test_values_of_wrong_kind(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            run.add_operator(record("a"))
            with pytest.raises(StoreError, match="the size N of a binding: expected a whole number from 1"):
                run.is_tuned("fp-a", "llvm", {"N": 1.5})  # type: ignore[dict-item]
            with pytest.raises(StoreError, match="number of layers with a binding: expected a whole number from 1"):
                run.record_latency("fp-a", target="llvm", binding={"N": 1}, count=0, result={"latency_ms": 1.0})
            with pytest.raises(StoreError, match=r"operator's FLOPs: expected a whole number from 0 to 2\^63-1"):
                run.add_operator(OperatorRecord("b", "{}", 2**63, 1, "b"))
            with pytest.raises(StoreError, match="has no 'accuracy': it has \\['loss'\\]"):
                run.record_training("fp-a", {"loss": 1.0})
            with pytest.raises(StoreError, match=r"training.curve\[1\]: expected text, numbers.* found object"):
                run.record_training("fp-a", {"accuracy": 1.0, "curve": [1, object()]})
            with pytest.raises(StoreError, match="settings: expected a mapping, found list"):
                store.run("x", [])  # type: ignore[arg-type]
            with pytest.raises(StoreError, match="cannot hold a text that is not Unicode"):
                run.add_operator(OperatorRecord("\udc80", "{}", 1, 1, "b"))
            assert run.operators() == [record("a")]

    def test_other_bindings_than_declared(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            with pytest.raises(StoreError, match="expected at least one binding"):
                run.set_bindings([])
            run.set_bindings(LAYERS)
            run.set_bindings(reversed([*LAYERS[:1], (LAYERS[1][0], 1), (LAYERS[1][0], 2)]))  # the same, in other words
            with pytest.raises(StoreError, match="its bindings are"):
                run.set_bindings(LAYERS[:1])
            run.add_operator(record("a"))
            with pytest.raises(StoreError, match=r"4 layers of .* are not among its bindings"):
                run.record_latency("fp-a", target="llvm", binding=LAYERS[0][0], count=4, result={"latency_ms": 1.0})

    def test_several_targets_need_a_name(self, path: Path) -> None:
        with Store.open(path) as store:
            run = store.run("demo", {})
            run.add_operator(record("a"))
            for target in ("llvm", "cuda"):
                run.record_latency("fp-a", target=target, binding={"N": 1}, count=1, result={"latency_ms": 2.0})
            with pytest.raises(StoreError, match="several targets: name one of cuda, llvm"):
                run.trials()
            assert run.trials("cuda")[0].latency_ms == 2.0

    def test_a_closed_store_and_one_of_another_process(self, path: Path) -> None:
        store = Store.open(path)
        run = store.run("demo", {})
        child = os.fork()
        if child == 0:
            try:
                run.operators()
            except StoreError as error:
                os._exit(0 if "opened by another process" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.close()
        store.close()
        with pytest.raises(StoreError, match="is closed"):
            run.operators()


class TestDamage:
    @pytest.fixture
    def filled(self, path: Path) -> Path:
        with Store.open(path) as store:
            run = store.run("demo", {"epochs": 3})
            run.set_bindings(LAYERS)
            for index in range(12):
                evaluate(run, f"operator-{index}", index / 16, 1.0 + index)
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
        self.refused(filled, "has version 99, this Syno Lab reads version 2: it was made by a newer Syno Lab")

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
            store.run("demo").trials()

    def test_a_torn_log_loses_at_most_its_end(self, path: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy" / "results.sqlite"
        copy.parent.mkdir()
        with Store.open(path) as store:
            run = store.run("demo", {})
            for index in range(10):
                run.add_operator(record(str(index)))
            for suffix in ("", "-wal"):  # as a power cut would leave it
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        log = Path(f"{copy}-wal")
        log.write_bytes(log.read_bytes()[:-700])
        with Store.open(copy) as store:
            kept = store.run("demo").operators()
        assert kept == [record(str(index)) for index in range(len(kept))]
        assert len(kept) >= 8


class TestDisk:
    def test_a_full_disk_is_told_and_loses_nothing(self, path: Path) -> None:
        code = """
import resource, signal, sys
from pathlib import Path
from syno_lab.errors import StoreError
from syno_lab.evaluate.store import OperatorRecord, Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Store.open(sys.argv[1]) as store:
    run = store.run("demo", {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    try:
        for index in range(1000):
            run.add_operator(OperatorRecord(f"fp-{index}", "x" * 10_000, 1, 1, "label"))
            print(index, flush=True)
    except StoreError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    run.add_operator(OperatorRecord("fp-after", "", 1, 1, "label"))
"""
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        *written, message = done.stdout.splitlines()
        assert "cannot be read or written" in message
        assert str(path) in message
        with Store.open(path) as store:
            kept = [record.fingerprint for record in store.run("demo").operators()]
        assert kept == [*(f"fp-{index}" for index in written), "fp-after"]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(StoreError, match="cannot be"):
            Store.open(tmp_path / "results.sqlite")

    def test_a_rival_that_never_lets_go(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("syno_lab.evaluate.store.database.BUSY_SECONDS", 0.2)
        with Store.open(path) as store:
            run = store.run("demo", {})
            rival = sqlite3.connect(path, isolation_level=None)
            rival.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match=r"is busy: another process has held it for 0.2 s"):
                run.add_operator(record("a"))
            rival.close()
            assert run.add_operator(record("a"))


WRITER = """
import sys
from syno_lab.evaluate.store import OperatorRecord, Store
path, name, amount = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store.open(path) as store:
    run = store.run("demo", {"epochs": 3})
    run.set_bindings([({"C_in": 16, "H": 32}, 2), ({"C_in": 32, "H": 16}, 3)])
    for index in range(amount):
        fingerprint = f"fp-{name}-{index}"
        run.add_operator(OperatorRecord(fingerprint, "{}" * 500, 1000, 10, fingerprint))
        print("operator", fingerprint, flush=True)
        run.record_training(fingerprint, {"accuracy": 0.5, "curve": [0.1] * 50})
        print("training", fingerprint, flush=True)
        for binding, count in (({"C_in": 16, "H": 32}, 2), ({"C_in": 32, "H": 16}, 3)):
            latency = {"latency_ms": 1.0 + index}
            run.record_latency(fingerprint, target="llvm", binding=binding, count=count, result=latency)
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
            output, _ = writer.communicate(timeout=30)
            told.update(tuple(line.split()) for line in output.splitlines() if line.endswith(tuple("0123456789")))
        told.discard(())
        assert len(told) > 30
        with Store.open(path) as store:
            run = store.run("demo", {"epochs": 3})
            trials = {trial.fingerprint: trial for trial in run.trials()}
            for kind, fingerprint in told:
                trial = trials[fingerprint]
                if kind == "training":
                    assert trial.accuracy == 0.5
                if kind == "latency":
                    assert trial.latency_ms == 5 * (1.0 + int(fingerprint.rsplit("-", 1)[1]))
            published = [trial.user_attrs["fingerprint"] for trial in run.study().trials]
            assert len(published) == len(set(published)), "a trial was given to Optuna twice"
            assert set(published) == {trial.fingerprint for trial in trials.values() if trial.state == "done"}

    def test_four_writers_at_once(self, path: Path) -> None:
        writers = [start_writer(path, name, 12) for name in "abcd"]
        for writer in writers:
            _, errors = writer.communicate(timeout=60)
            assert writer.returncode == 0, errors
        with Store.open(path) as store:
            run = store.run("demo")
            assert len(run.trials()) == 48
            assert all(trial.state == "done" for trial in run.trials())
            fingerprints = [trial.user_attrs["fingerprint"] for trial in run.study().trials]
            assert sorted(fingerprints) == sorted(trial.fingerprint for trial in run.trials())

    def test_importing_the_store_loads_nothing_heavy(self) -> None:
        code = (
            "import sys, syno_lab.evaluate.store;"
            "print(sorted({'torch', 'tvm', 'pandas', 'optuna', 'IPython'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip() == "[]"
