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
from typing import Any

import pandas as pd
import psutil
import pytest

from syno_lab.errors import DataError, SynoError
from syno_lab.experiments.demo import DemoOptions, run_demo
from syno_lab.reports import Front, LabReader, Placed, front_of
from syno_lab.store import Store
from syno_lab.systems import read_operator


def start(data: Path, out: Path) -> subprocess.Popen[str]:
    """The command of the README; it writes its summary beside its folder."""
    command = ["demo", "--quick", "--data", str(data), "--out", str(out), "--json", f"{out}.json"]
    # A session of its own, as a terminal gives one, so that the interrupt reaches what a Ctrl-C would reach.
    return subprocess.Popen(
        [sys.executable, "-m", "syno_lab.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def known(out: Path) -> dict[int, tuple[str, dict[str, object] | None]]:
    """What the store holds by trial: its operator, and how its training ended, seconds and all."""
    with Store.open(out) as store:
        return {one.number: (one.operator, one.outcome) for log in store.searches() for one in log.trials()}


@pytest.mark.tvm
@pytest.mark.timeout(900)
@pytest.mark.warm
def test_a_demo_that_is_interrupted_and_killed_goes_on_to_its_end(
    real_data: Callable[[str], Path], tmp_path: Path, rng: random.Random
) -> None:
    """Where Ctrl-C and a kill find it, a demo on real images loses nothing, does nothing twice, and ends with all."""
    data, out = real_data("cifar-10-batches-bin"), tmp_path / "demo"
    before: dict[int, tuple[str, dict[str, object] | None]] = {}
    # While an operator is trained or tuned, or the last tunings are waited for; twice in one demo.
    stages = sorted(rng.sample(["0 tuned, 1 being tuned", "1 trials", "2 trials", "3 trials"], 2))
    for stage, how in zip(stages, rng.sample([signal.SIGINT, signal.SIGKILL], 2), strict=True):
        wait = rng.random()
        print(f"{how.name} {wait:.2f} s into {stage}")
        end_at(stage, how, wait, data, out)
        now = known(out)
        check_kept(before, now)
        before = now
    last = start(data, out)
    said, _ = last.communicate(timeout=600)
    assert last.returncode == 0, said[-2000:]
    check_kept(before, known(out))
    check_whole(out, json.loads(Path(f"{out}.json").read_text()))
    text = (out / "results.csv").read_text()
    again = run_demo(DemoOptions(data, out, quick=True))
    assert (out / "results.csv").read_text() == text, "all is known: nothing is trained or tuned"
    assert len(again.table) == 5


def end_at(stage: str, how: signal.Signals, wait_s: float, data: Path, out: Path) -> None:
    """Start the demo, end it so many seconds after it says ``stage``, and see that no process of it is left."""
    demo = start(data, out)
    assert demo.stdout is not None
    said = []
    for line in demo.stdout:
        said.append(line)
        if stage in line:
            break
    else:
        pytest.fail("".join(said)[-2000:])
    busy = rf"the search 'demo-[0-9a-f]+' in {out} is already running \(process {demo.pid}\): watch it"
    os.kill(demo.pid, signal.SIGSTOP)  # it might be done before it is found to be at work
    try:
        with pytest.raises(SynoError, match=busy):
            run_demo(DemoOptions(data, out, quick=True))
    finally:
        os.kill(demo.pid, signal.SIGCONT)
    time.sleep(wait_s)
    children = psutil.Process(demo.pid).children(recursive=True)
    os.kill(demo.pid, how)
    demo.communicate(timeout=240)
    _, alive = psutil.wait_procs(children, timeout=120)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE], "processes were left behind"


def check_kept(
    before: dict[int, tuple[str, dict[str, object] | None]], after: dict[int, tuple[str, dict[str, object] | None]]
) -> None:
    """What was in the store is there: no trial is another, none that had ended was done again."""
    for number, (operator, outcome) in before.items():
        assert after[number][0] == operator
        if outcome is not None:  # seconds and all
            assert after[number][1] == outcome


def check_whole(out: Path, summary: dict[str, Any]) -> None:
    """The summary, the lab, the table, the page and the files say the same of a baseline and four operators."""
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
    with LabReader(out) as reader:
        rows = reader.read().rows
    assert [(row.label, row.latencies.get("local")) for row in rows] == [
        (entry["label"], entry["latency_ms"]) for entry in [baseline, *operators]
    ]
    front = front_of(rows, ("latency_ms@local", "accuracy"))
    table = pd.read_csv(out / "results.csv")
    assert table.loc[table["on_front"], "label"].tolist() == [p.label for p in front.points if p in best_of(front)]
    tuned = table.dropna(subset="latency_ms")
    assert tuned["speedup"].to_numpy() == pytest.approx(baseline["latency_ms"] / tuned["latency_ms"].to_numpy())
    assert table["flops_ratio"].to_numpy() == pytest.approx(table["flops"].to_numpy() / baseline["flops"])
    page = (out / "pareto.html").read_text()
    for entry in operators:
        assert f"#{entry['label'].split()[1]}" in page
    for name in ("pareto.html", "pareto.svg", "pareto.png", "results.csv"):
        assert (out / name).stat().st_size > 100
    for suffix in ("svg", "dot", "json", "py"):
        assert len(list((out / "pgraphs").glob(f"*.{suffix}"))) == 5


def best_of(front: Front) -> list[Placed]:
    return [front.points[place] for place in front.front]


def test_missing_data_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere") as refusal:
        run_demo(DemoOptions(tmp_path / "nowhere", tmp_path / "out"))
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out").exists()
