"""Queues of tunings over real boards: fair, on all boards at once, never twice, and going on after a kill."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from syno_lab import operators
from syno_lab.errors import TrackerError, TuningError
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.systems import builder_of
from syno_lab.tuning import TuningTask, list_records, local_board, tune, tune_queue
from syno_lab.tuning.checkup import run_remotely
from syno_lab.tuning.measuring import measure
from syno_lab.tuning.records import key_of, open_record
from syno_lab.tuning.tracker import (
    DeviceInfo,
    DeviceKey,
    TrackerSummary,
    check_versions,
    host_version,
    tracker_summary,
)
from syno_lab.tuning.tune import conditions_of

SIZES = {"N": 1, "C_in": 4, "C_out": 8, "H": 6, "W": 10}


def named(name):
    operator = operators.KNOWN[name]()
    symbols = operator.spec.symbols.names
    binding = operator.complete_binding({n: v for n, v in SIZES.items() if n in symbols})
    return TuningTask(name, operator.to_json(), binding)


CONV, DENSE = named("conv2d"), named("conv1x1")


def crash(operator, binding, dtype):
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def boards():
    with local_board("pair", devices=2, threads=1) as started:
        yield started


def record_of(task, result, store):
    key = key_of(task, result.target, result.tvm_version, result.conditions, result.method)
    with open_record(store, key) as record:
        return record


@pytest.mark.tvm
def test_operators_of_any_system_run_on_a_board_and_beside_torch(boards):
    operator = nas_pte_1()
    sizes = {"N": 1, "C_in": 8, "C_out": 16, "H": 6, "W": 10}
    for one, binding in ((operator, sizes), (operators.conv2d(), dict(CONV.binding))):
        run = run_remotely(one.to_json(), binding, board=boards, target="local")
        assert run.error < 1e-5
    task = TuningTask("nas_pte_1", operator.to_json(), sizes, builder=builder_of(operator.to_json()))
    compared = measure(task, threads=1)
    assert compared.failed == {}
    assert all(timing.error is None or timing.error < 1e-5 for timing in compared.timings)


@pytest.mark.tvm
def test_an_operator_that_cannot_be_read_costs_the_others_nothing(tmp_path):
    tasks = [replace(CONV, label="broken", operator='{"format": "nobody"}'), DENSE]
    done = tune_queue(tasks, trials=1, work_dir=tmp_path, store=tmp_path / "records")
    assert list(done.results) == ["conv1x1"]
    assert done.failed["broken"].startswith("operator file: expected a format among syno-lab-operator")
    assert [row["label"] for row in list_records(tmp_path / "records")] == ["conv1x1"]


@pytest.mark.tvm
def test_a_queue_on_two_boards(boards, tmp_path):
    store, seen = tmp_path / "records", []
    tasks = [CONV, replace(CONV, label="crashes", builder="test_tuning_queue:crash"), DENSE]
    options = {"tracker": boards.address, "key": boards.key, "target": "local:1", "work_dir": tmp_path, "store": store}
    done = tune_queue(tasks, trials=6, on_progress=seen.append, **options)
    assert set(done.results) == {"conv2d", "conv1x1"}
    assert "the tuning process ended (killed by SIGSEGV)" in done.failed["crashes"]
    # Batches of the two alternate, and each trial is told, in its order.
    turns = [label for label, _ in itertools.groupby(now.label for now in seen)]
    assert turns[:3] == ["conv2d", "conv1x1", "conv2d"]
    for label, result in done.results.items():
        mine = [now for now in seen if now.label == label]
        assert [now.trial for now in mine] == list(range(1, result.trials + 1))
        assert mine[-1].best_ms == result.history[-1][1]
        assert result.verified
        assert (result.conditions, result.known, result.from_records) == ("threads=1", 0, False)
    assert all(now.left_s >= 0 and now.trials_per_hour > 0 for now in seen)
    # Both boards measured, and what they measured is in the records, schedule and all.
    record = record_of(CONV, done.results["conv2d"], store)
    devices = {device.address for device in tracker_summary(*boards.address).of("pair")}
    assert {one.board for one in record.trials} == devices
    assert len(devices) == 2
    assert all(one.trace[0] for one in record.trials)
    assert [one.reason for one in record.trials] == [""] * len(record.trials)

    # Nothing is tuned twice: not the same budget, and of a larger one only the difference.
    again = tune_queue([DENSE, CONV], trials=6, on_progress=pytest.fail, **options)
    for label, result in again.results.items():
        first = done.results[label]
        assert result == replace(first, from_records=True, known=first.trials)
    more = tune(CONV, trials=9, on_progress=seen.append, **options)
    assert (more.known, more.trials) == (6, 9)
    assert [trial for trial, _ in more.history] == list(range(1, 10))
    assert more.history[:6] == done.results["conv2d"].history
    traces = [repr(one.trace) for one in record_of(CONV, more, store).trials]
    assert len(set(traces)) == 9

    # The best schedule of the record beside PyTorch: the same output, and both are timed.
    key = key_of(CONV, more.target, more.tvm_version, more.conditions, more.method)
    compared = measure(CONV, ("eager", "tvm"), record=(store, key), threads=1, repeats=5, min_ms=2, rounds=2)
    assert [one.way for one in compared.timings] == ["eager", "tvm"]
    assert compared.get("tvm").error < 1e-5
    assert compared.failed == {}
    for one in compared.timings:
        assert one.samples == 5
        assert 0 < one.best_ms <= one.low_ms <= one.median_ms <= one.high_ms
    assert compared.speedup("tvm") == compared.get("eager").median_ms / compared.get("tvm").median_ms

    # A record whose schedules are another program's is one clear line.
    with open_record(store, replace(key, program="0" * 32)) as wrong:
        pass
    lines = record_of(CONV, more, store).path.read_bytes().split(b"\n")
    target = record_of(DENSE, again.results["conv1x1"], store).path
    own = target.read_bytes().split(b"\n")
    target.write_bytes(b"\n".join([own[0], *(line for line in lines if b'"trial"' in line), b""]))
    with pytest.raises(TuningError, match="conv1x1: the record's schedules do not fit this operator"):
        tune(DENSE, trials=20, **options)
    wrong.path.unlink()


@pytest.mark.tvm
@pytest.mark.warm
def test_a_tuning_goes_on_after_a_kill(boards, tmp_path):
    script = textwrap.dedent(f"""
        from syno_lab.tuning import tune
        import test_tuning_queue as t
        if __name__ == "__main__":
            def told(now):
                print(now.trial, flush=True)
            tune(t.CONV, tracker={boards.address!r}, key="pair", target="local:1", trials=500, seed=1,
                 work_dir={str(tmp_path)!r}, store={str(tmp_path)!r}, on_progress=told)
    """)
    path = os.pathsep.join([str(Path(__file__).parent), *(one for one in sys.path if one)])
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as parent:
        for line in parent.stdout:
            if int(line) >= 5:
                break
        parent.kill()
        told = [int(line), *map(int, parent.stdout.read().split())][-1]
    (row,) = list_records(tmp_path)
    assert row["trials"] >= told >= 5  # what was told had been written
    assert row["damaged"] == 0
    budget = row["trials"] + 2
    result = tune(
        CONV,
        tracker=boards.address,
        key="pair",
        target="local:1",
        trials=budget,
        seed=1,
        work_dir=tmp_path,
        store=tmp_path,
    )
    assert (result.known, result.trials) == (row["trials"], budget)
    assert result.verified


def device(**facts):
    return DeviceInfo("pair", "10.0.0.2", 9090, **facts)


def test_versions_are_compared_before_anything_is_sent():
    here = host_version()
    check_versions([device(), device(tvm=here), device(tvm=here.partition(".post")[0])], here)
    with pytest.raises(
        TrackerError, match=r"'pair' at 10\.0\.0\.2:9090 has TVM 0\.26\.0, this machine has TVM 0\.27\.0\.post1"
    ):
        check_versions([device(tvm=here), device(tvm="0.26.0")], "0.27.0.post1")


def test_devices_of_one_key_must_be_alike():
    def summary(*devices):
        return TrackerSummary((DeviceKey("pair", 0, len(devices), 0),), devices)

    assert conditions_of(summary(device(tvm="1", threads=6, power="15W")).of("pair"), "pair") == "threads=6 power=15W"
    assert conditions_of(summary(device()).of("pair"), "pair") == "unknown"
    with pytest.raises(TrackerError, match=r"differ: .* has threads=1, .* has threads=2; give each its own key"):
        conditions_of(summary(device(tvm="1", threads=2), device(tvm="1", threads=1)).of("pair"), "pair")


@pytest.mark.parametrize(
    ("tasks", "changes", "match"),
    [
        ([], {}, "expected operators with different labels, found none"),
        ([CONV, CONV], {}, "expected operators with different labels, found conv2d, conv2d"),
        ([CONV], {"preset": "fast"}, "expected a preset among quick, normal, thorough, found 'fast'"),
        ([CONV], {"trials": 0}, "conv2d: expected at least one trial and second, found 0"),
        ([CONV], {"deadline_s": 0}, "expected at least one trial and second"),
    ],
)
def test_bad_queues(tasks, changes, match, tmp_path):
    with pytest.raises(TuningError, match=match):
        tune_queue(tasks, **{"tracker": "127.0.0.1:1", "key": "local", "work_dir": tmp_path} | changes)


@pytest.mark.parametrize(
    ("ways", "changes", "match"),
    [
        (("eager", "jax"), {}, "expected ways among eager, compile, tvm, found jax"),
        ((), {}, "expected ways among eager, compile, tvm, found none"),
        (("eager",), {"repeats": 0}, "expected at least one sample of some milliseconds"),
        (("eager",), {"min_ms": 0}, "expected at least one sample of some milliseconds"),
    ],
)
def test_bad_measurements(ways, changes, match):
    with pytest.raises(TuningError, match=match):
        measure(CONV, ways, **changes)
