"""The main job, end to end: synthesis, training, tuning through a tracker, figures; interrupted, and gone on with."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from syno_lab.errors import DataError
from syno_lab.evaluate.demo import DemoOptions, run_demo
from syno_lab.evaluate.store import Store
from syno_lab.ir.operator import Operator

SEED = int(os.environ["SYNO_LAB_SEED"])
TINY = "Scale(2, 6, min_share=1/40, train_images=300, test_images=100, epochs=2, seconds=20, tuned=1, trials=3)"
PROGRAM = f"""
import sys
from collections.abc import Callable
from pathlib import Path
from syno_lab.evaluate.demo import DemoOptions, Scale, run_demo
def report(stage, fraction, message):
    print(stage, fraction, message, flush=True)
run_demo(DemoOptions(Path("digits"), Path(sys.argv[1]), scale={TINY}), report)
"""


def start(out: Path) -> subprocess.Popen[str]:
    # A session of its own, as a terminal gives one, so that the interrupt reaches what a Ctrl-C would reach.
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(out: Path) -> dict[str, object]:
    """What the store holds, trainings whole."""
    with Store.open(out) as store:
        (run,) = store.runs()
        return {trial.fingerprint: (trial.label, run.training(trial.fingerprint)) for trial in run.trials()}


@pytest.mark.tvm
def test_quick_demo_on_real_images(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    """The command of the issue: exit 0, and a file with what it must hold."""
    out = tmp_path / "out.json"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "syno_lab.cli",
            "demo",
            "--quick",
            "--data",
            str(real_data("cifar-10-batches-bin")),
            "--out",
            str(tmp_path / "demo"),
            "--json",
            str(out),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    summary = json.loads(out.read_text())
    baseline, operators = summary["baseline"], summary["operators"]
    assert baseline["latency_ms"] > 0
    assert len(operators) == 4
    assert any(entry["latency_ms"] is not None for entry in operators)
    assert len({entry["fingerprint"] for entry in [baseline, *operators]}) == 5
    for entry in [baseline, *operators]:
        assert 0.0 <= entry["accuracy"] <= 1.0
        operator = Operator.from_json(json.dumps(entry["operator"]))
        assert entry["flops"] > 0
        assert entry["params"] > 0
        assert operator.weights
        assert entry["flops"] <= baseline["flops"]
    for name in ("pareto.html", "pareto.svg", "pareto.png", "results.csv"):
        assert (tmp_path / "demo" / name).stat().st_size > 100
    assert len(list((tmp_path / "demo" / "pgraphs").glob("*.svg"))) == 5


@pytest.mark.tvm
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_goes_on_after_an_interruption(how: signal.Signals, tmp_path: Path) -> None:
    rng = random.Random(SEED + how)
    stage = rng.choice(["sample", "train", "tune"])
    wait = rng.random()
    print(f"SYNO_LAB_SEED={SEED}: {how.name} {wait:.2f} s into {stage}")
    first = start(tmp_path)
    assert first.stdout is not None
    for line in first.stdout:
        if line.startswith(stage):
            break
    time.sleep(wait)
    children = psutil.Process(first.pid).children(recursive=True)
    os.kill(first.pid, how)
    first.communicate(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE], "processes were left behind"
    with Store.open(tmp_path) as store:
        before = finished(tmp_path) if store.runs() else {}
    second = start(tmp_path)
    _, errors = second.communicate(timeout=300)
    assert second.returncode == 0, errors[-2000:]
    after = finished(tmp_path)
    assert len(after) == 3
    for fingerprint, (label, training) in before.items():
        assert after[fingerprint][0] == label
        if training is not None:  # seconds and all: it was not done again
            assert after[fingerprint][1] == training


def test_missing_data_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere") as refusal:
        run_demo(DemoOptions(tmp_path / "nowhere", tmp_path / "out"))
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out").exists()
