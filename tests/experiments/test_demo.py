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

import pandas as pd
import psutil
import pytest

from syno_lab.errors import DataError, SynoError
from syno_lab.experiments.demo import DemoOptions, Scale, run_demo
from syno_lab.reports import Front, LabReader, Placed, front_of
from syno_lab.store import Store
from syno_lab.systems import read_operator

SCALE = Scale(2, 6, min_share=1 / 40, train_images=300, test_images=100, epochs=2, seconds=20, within=100, trials=3)
PROGRAM = f"""
import sys
from collections.abc import Callable
from pathlib import Path
from syno_lab.experiments.demo import DemoOptions, Scale, run_demo
def report(stage, fraction, message):
    print(f'{{stage}} {{100 * fraction:3.0f}} {{message}}', flush=True)
run_demo(DemoOptions(Path("digits"), Path(sys.argv[1]), scale={SCALE}), report)
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


def known(out: Path) -> dict[int, tuple[str, dict[str, object] | None]]:
    """What the store holds by trial: its operator, and how its training ended, seconds and all."""
    with Store.open(out) as store:
        return {one.number: (one.operator, one.outcome) for log in store.searches() for one in log.trials()}


@pytest.mark.tvm
@pytest.mark.timeout(900)
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
        operator = read_operator(json.dumps(entry["operator"]))
        assert entry["flops"] > 0
        assert entry["params"] > 0
        assert operator.weight_sizes({"N": 1, "C_in": 8, "C_out": 8, "H": 32, "W": 32})
        assert entry["flops"] <= baseline["flops"]
    with LabReader(tmp_path / "demo") as reader:
        rows = reader.read().rows
    assert [(row.label, row.latencies.get("local")) for row in rows] == [
        (entry["label"], entry["latency_ms"]) for entry in [baseline, *operators]
    ]
    front = front_of(rows, ("latency_ms@local", "accuracy"))
    table = pd.read_csv(tmp_path / "demo" / "results.csv")
    assert table.loc[table["on_front"], "label"].tolist() == [p.label for p in front.points if p in best_of(front)]
    tuned = table.dropna(subset="latency_ms")
    assert tuned["speedup"].to_numpy() == pytest.approx(baseline["latency_ms"] / tuned["latency_ms"].to_numpy())
    assert table["flops_ratio"].to_numpy() == pytest.approx(table["flops"].to_numpy() / baseline["flops"])
    page = (tmp_path / "demo" / "pareto.html").read_text()
    for entry in operators:
        assert f"#{entry['label'].split()[1]}" in page
    for name in ("pareto.html", "pareto.svg", "pareto.png", "results.csv"):
        assert (tmp_path / "demo" / name).stat().st_size > 100
    for suffix in ("svg", "dot", "json", "py"):
        assert len(list((tmp_path / "demo" / "pgraphs").glob(f"*.{suffix}"))) == 5


def best_of(front: Front) -> list[Placed]:
    return [front.points[place] for place in front.front]


@pytest.mark.tvm
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_goes_on_after_an_interruption(how: signal.Signals, tmp_path: Path, fresh_seed: int) -> None:
    rng = random.Random(fresh_seed + how)
    # While the first operator is trained or tuned, the second is, or the last tunings are waited for.
    stage = rng.choice(["search  10 ", "0 tuned, 1 being tuned", "1 trials", "2 trials"])
    wait = rng.random()
    print(f"seed {fresh_seed}: {how.name} {wait:.2f} s into {stage}")
    first = start(tmp_path)
    assert first.stdout is not None
    for line in first.stdout:
        if stage in line:
            break
    busy = rf"the search 'demo-[0-9a-f]+' in {tmp_path} is already running \(process {first.pid}\): watch it"
    os.kill(first.pid, signal.SIGSTOP)  # it might be done before it is found to be at work
    try:
        with pytest.raises(SynoError, match=busy):
            run_demo(DemoOptions(Path("digits"), tmp_path, scale=SCALE))
    finally:
        os.kill(first.pid, signal.SIGCONT)
    time.sleep(wait)
    children = psutil.Process(first.pid).children(recursive=True)
    os.kill(first.pid, how)
    first.communicate(timeout=240)
    _, alive = psutil.wait_procs(children, timeout=120)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE], "processes were left behind"
    before = known(tmp_path)
    second = start(tmp_path)
    _, errors = second.communicate(timeout=300)
    assert second.returncode == 0, errors[-2000:]
    after = known(tmp_path)
    assert len(after) == 2
    for number, (operator, outcome) in before.items():
        assert after[number][0] == operator
        if outcome is not None:  # seconds and all: it was not done again
            assert after[number][1] == outcome
    text = (tmp_path / "results.csv").read_text()
    again = run_demo(DemoOptions(Path("digits"), tmp_path, scale=SCALE))
    assert (tmp_path / "results.csv").read_text() == text, "all is known: nothing is trained or tuned"
    assert len(again.table) == 3


def test_missing_data_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere") as refusal:
        run_demo(DemoOptions(tmp_path / "nowhere", tmp_path / "out"))
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out").exists()
