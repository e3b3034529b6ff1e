"""Tunings end to end over a real tracker, and every way in which one can go wrong."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from waiting import wait_until

from syno_lab.errors import FormatError, TrackerError, TuningError
from syno_lab.processes.worker import CallFailedError, Worker
from syno_lab.tuning import TuningResult, TuningStopped, TuningTask, local_board, tracker_summary, tune
from syno_lab.tuning.search import compare

# ---- builders: imported and called by the tuning's process, which finds this file on its path


def conv(operator, binding, dtype):
    """conv2d with zero padding as tensor expressions."""
    import tvm
    from tvm import te

    n, c, o, h, w, k = (binding[name] for name in ("N", "C_in", "C_out", "H", "W", "k"))
    p = k // 2
    x = te.placeholder((n, c, h, w), dtype, name="x")
    weight = te.placeholder((o, c, k, k), dtype, name="weight")
    padded = te.compute(
        (n, c, h + k - 1, w + k - 1),
        lambda b, d, i, j: tvm.tirx.if_then_else(
            tvm.tirx.all(i >= p, i < h + p, j >= p, j < w + p), x[b, d, i - p, j - p], tvm.tirx.const(0, dtype)
        ),
        name="padded",
    )
    d, i, j = (te.reduce_axis((0, size)) for size in (c, k, k))
    y = te.compute(
        (n, o, h, w),
        lambda b, f, u, v: te.sum(padded[b, d, u + i, v + j] * weight[f, d, i, j], axis=[d, i, j]),
        name="y",
    )
    return tvm.ir.IRModule({"main": te.create_prim_func([x, weight, y])})


def conv_without_torch(operator, binding, dtype):
    assert "torch" not in sys.modules, "PyTorch was imported into the tuning process"
    return conv(operator, binding, dtype)


def two_functions(operator, binding, dtype):
    import tvm

    module = conv(operator, binding, dtype)
    return tvm.ir.IRModule({"main": module["main"], "other": module["main"]})


def segfault(operator, binding, dtype):
    ctypes.string_at(0)


def killed(operator, binding, dtype):
    os.kill(os.getpid(), signal.SIGKILL)


def endless(operator, binding, dtype):
    subprocess.Popen(["sleep", "600"])  # a descendant that must go too
    time.sleep(600)


def refuses(operator, binding, dtype):
    raise ValueError(f"no lowering for\n{operator}")


# ----


def task(builder="conv", **changes):
    binding = {"N": 1, "C_in": 4, "C_out": 8, "H": 7, "W": 9, "k": 3}
    return TuningTask(
        **{"label": "a conv", "operator": "{}", "binding": binding, "builder": f"test_tuning:{builder}"} | changes
    )


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def board():
    with local_board() as started:
        yield started


def nothing_left(marked, board, work_dir):
    """No process, no scratch folder, and the board is free again with an empty queue."""

    def is_idle():
        entry = tracker_summary(*board.address).get(board.key)
        return entry is not None and (entry.free, entry.pending) == (1, 0)

    return wait_until(lambda: not marked()) and not list(work_dir.glob(".tuning-*")) and wait_until(is_idle)


def test_the_parent_side_loads_neither_tvm_nor_torch():
    code = "import syno_lab.tuning, sys; print({'tvm', 'torch', 'pandas', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


@pytest.mark.cold  # what it builds sees to it that no torch is imported
@pytest.mark.tvm
def test_a_tuning(board, marked, tmp_path):
    seen = []
    result = tune(
        task("conv_without_torch"),
        tracker=board.address,
        key=board.key,
        trials=6,
        seed=3,
        work_dir=tmp_path,
        on_progress=seen.append,
    )
    assert result.label == "a conv"
    assert 0 < result.best_ms <= result.latency_ms < 1e3
    assert 1 <= result.trials <= 6
    assert result.failed == 0
    assert result.repeats >= 10
    assert result.verified
    assert result.seed == 3
    assert '"mcpu"' in result.target
    assert result.tvm_version.startswith("0.27")
    assert [progress.trial for progress in seen] == list(range(1, result.trials + 1))
    assert [trial for trial, _ in result.history] == [progress.trial for progress in seen]
    best = [latency for _, latency in result.history]
    assert best == sorted(best, reverse=True)
    assert best == [progress.best_ms for progress in seen]
    assert result.seconds_per_trial * result.trials == pytest.approx(result.seconds)
    assert TuningResult.from_dict(result.to_dict()) == result
    assert nothing_left(marked, board, tmp_path)


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("builder", "match"),
    [
        ("segfault", r"a conv: the tuning process ended \(killed by SIGSEGV\) after 0 trials"),
        ("killed", r"a conv: the tuning process ended \(killed by SIGKILL\)"),
        ("refuses", r"^a conv: ValueError: \{\}$"),
        ("missing", "a conv: cannot find the builder 'test_tuning:missing'"),
        ("two_functions", "expected test_tuning:two_functions to give one function 'main', found main, other"),
    ],
)
def test_a_builder_that_fails(board, marked, tmp_path, builder, match):
    with pytest.raises(TuningError, match=match) as caught:
        tune(task(builder), tracker=board.address, key=board.key, trials=2, work_dir=tmp_path)
    assert "\n" not in str(caught.value)
    assert nothing_left(marked, board, tmp_path)


@pytest.mark.tvm
def test_a_deadline_and_a_stop(board, marked, tmp_path):
    with pytest.raises(TuningError, match="a conv: no result after 3 s and 0 trials; see"):
        tune(task("endless"), tracker=board.address, key=board.key, work_dir=tmp_path, deadline_s=3)
    assert nothing_left(marked, board, tmp_path)
    asked = time.monotonic()
    with pytest.raises(TuningStopped, match="a conv: stopped on request after 0 trials"):
        tune(
            task("endless"), tracker=board.address, key=board.key, work_dir=tmp_path,
            should_stop=lambda: time.monotonic() - asked > 2,
        )  # fmt: skip
    assert nothing_left(marked, board, tmp_path)


@pytest.mark.tvm
def test_an_interrupt_in_the_middle(board, marked, tmp_path):
    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(task(), tracker=board.address, key=board.key, trials=6, work_dir=tmp_path, on_progress=interrupt)
    assert nothing_left(marked, board, tmp_path)


@pytest.mark.tvm
@pytest.mark.warm
def test_a_parent_killed_in_the_middle(board, marked, tmp_path):
    script = textwrap.dedent(f"""
        import sys
        sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parent.parent)!r}]
        import test_tuning as t
        t.tune(t.task(), tracker={board.address!r}, key={board.key!r}, trials=500, work_dir={str(tmp_path)!r},
               on_progress=lambda progress: print(progress.trial, flush=True))
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "1\n"
        assert len(marked()) >= 3
        parent.kill()
    assert wait_until(lambda: not marked())
    assert wait_until(lambda: tracker_summary(*board.address).get(board.key).free == 1)


@pytest.mark.tvm
def test_a_board_lost_in_the_middle(marked, tmp_path):
    with local_board("brief") as board:

        def unplug(progress):
            for process in marked():
                with contextlib.suppress(psutil.Error):
                    if "server" in process.cmdline():
                        process.kill()

        with pytest.raises(
            TrackerError,
            match=r"a conv: no device is registered as 'brief' .* registered keys: none; `syno-lab board` prints",
        ):
            tune(task(), tracker=board.address, key="brief", trials=6, work_dir=tmp_path, on_progress=unplug, wait_s=2)
    assert wait_until(lambda: not marked())


@pytest.mark.tvm
def test_a_target_that_tvm_does_not_know(board, tmp_path):
    with pytest.raises(TuningError, match="TVM does not know the target 'no/such-board'"):
        tune(task(), tracker=board.address, key=board.key, target="no/such-board", work_dir=tmp_path)


@pytest.mark.tvm
def test_a_key_that_nobody_has(board, tmp_path):
    with pytest.raises(TrackerError, match=r"no device is registered as 'jetson' .* registered keys: local"):
        tune(task(), tracker=f"{board.host}:{board.port}", key="jetson", work_dir=tmp_path)


@pytest.mark.tvm
def test_a_worker_outlives_what_it_runs(marked, tmp_path):
    worker = Worker(tmp_path / "log")
    try:
        assert worker.call(divmod, 7, 2, deadline_s=60) == (3, 1)
        first = worker.call(os.getpid, deadline_s=60)
        with pytest.raises(CallFailedError, match="ZeroDivisionError: integer division or modulo by zero"):
            worker.call(divmod, 7, 0, deadline_s=60)
        assert worker.call(os.getpid, deadline_s=60) == first
        with pytest.raises(CallFailedError, match="abort: the process was killed by SIGABRT"):
            worker.call(os.abort, deadline_s=60)
        with pytest.raises(CallFailedError, match=r"sleep: not done after 0\.2 s, killed"):
            worker.call(time.sleep, 600, deadline_s=0.2)
        assert worker.call(divmod, 9, 2, deadline_s=60) == (4, 1)
    finally:
        worker.close()
    assert wait_until(lambda: not marked())


def test_a_wrong_output_is_an_error():
    expected = np.asarray([1, 2, 300], "float32")
    compare(expected, np.asarray([1, 2.001, 300], "float32"), "float32")
    for wrong in ([1, 2.1, 300], [1, 2, float("nan")], [1, 2, float("inf")]):
        with pytest.raises(TuningError, match="the tuned program computes something else"):
            compare(expected, np.asarray(wrong, "float32"), "float32")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"dtype": "int8"}, "x: expected a dtype among float16, float32, float64, found 'int8'"),
        ({"builder": "no_function"}, "x: expected a builder as 'module:function', found 'no_function'"),
        ({"builder": ":function"}, "x: expected a builder as 'module:function'"),
    ],
)
def test_malformed_tasks(changes, match):
    with pytest.raises(TuningError, match=match):
        TuningTask("x", "{}", {}, **changes)


def test_a_task_is_a_value():
    assert task() == task()
    assert hash(task()) == hash(task())
    assert task() != task(binding={"N": 2})
    with pytest.raises(TypeError):
        task().binding["N"] = 2


def test_no_trials():
    with pytest.raises(TuningError, match="at least one trial and second, found 0"):
        tune(task(), tracker="127.0.0.1:1", key="local", trials=0, work_dir=".")


RESULT = TuningResult("x", 1.5, 1.25, 15, 8, 1, 9.0, "{}", "0.27", 0, True, ((1, 2.0), (2, 1.5)))


def test_a_result_as_data():
    data = RESULT.to_dict()
    assert data["version"] == 3
    assert data["history"] == [[1, 2.0], [2, 1.5]]
    assert TuningResult.from_dict(data) == RESULT


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"version": 4}, "expected version 3, found 4"),
        ({"version": 2}, "expected version 3, found 2"),
        ({"extra": 1}, "missing or unknown fields"),
        ({"latency_ms": "fast"}, r"Expected `float`, got `str` - at `\$.latency_ms`"),
        ({"latency_ms": float("nan")}, "expected finite numbers"),
        ({"trials": True}, r"Expected `int`, got `bool` - at `\$.trials`"),
        ({"history": [[1]]}, r"Expected `array` of length 2, got 1 - at `\$.history"),
    ],
)
def test_junk_is_no_result(changes, match):
    with pytest.raises(FormatError, match=match):
        TuningResult.from_dict(RESULT.to_dict() | changes)
