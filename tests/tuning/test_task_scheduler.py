"""TVM's task scheduler: more trials for what promises more, records shared by what a program computes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from syno_lab import operators
from syno_lab.errors import TuningError
from syno_lab.tuning import TuningProgress, TuningTask, tune_queue
from syno_lab.tuning.records import key_of
from syno_lab.tuning.values import NETWORK_BUILDER

SIZES = {"N": 1, "C_in": 4, "C_out": 8, "H": 6, "W": 10}


def named(name: str, calls: int) -> TuningTask:
    operator = operators.KNOWN[name]()
    symbols = operator.spec.symbols.names
    binding = operator.complete_binding({n: v for n, v in SIZES.items() if n in symbols})
    return TuningTask(name, operator.to_json(), binding, calls=calls)


def expected_turns(trials: int, seconds: dict[str, tuple[int, list[float | None]]]) -> list[str]:
    """Whose turns they are by the formula of MetaSchedule (and Ansor's, section 6): calls x gradient, the largest.

    The gradient is 0.2 x the progress of the last three turns, a third of it, and 0.8 x the best seconds over the
    number of turns. What never ran comes last; what has no candidates left is out.
    """
    best: dict[str, list[float]] = {name: [] for name in seconds}
    left = {name: list(known) for name, (_, known) in seconds.items()}
    alive, turns, given = list(seconds), [], 0

    def gradient(name: str) -> float:
        history = best[name]
        if history[-1] >= 1e6:
            return -1e9
        progress = (history[-4] - history[-1]) / 3 if len(history) > 3 else 0.0
        return seconds[name][0] * (0.2 * progress + 0.8 * history[-1] / len(history))

    while given < trials and alive:
        waiting = [name for name in seconds if not best[name]]
        name = waiting[0] if waiting else max(alive, key=gradient)
        turns.append(name)
        now, left[name] = left[name][:2], left[name][2:]
        if not now:
            alive.remove(name)
            continue
        given += len(now)
        tried = [1e6 if one is None else one for one in now]
        best[name].append(min([*tried, *best[name][-1:]]))
    return turns


@pytest.mark.tvm
@pytest.mark.warm
def test_tvm_s_scheduler_gives_turns_by_the_gradient() -> None:
    child = Path(__file__).with_name("scheduler_child.py")
    done = subprocess.run([sys.executable, str(child), "40"], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["turns"] == expected_turns(40, found["known"])
    assert sum(found["given"].values()) == 40
    assert found["given"]["light"] == 2
    assert found["given"]["broken"] == 2
    assert found["given"]["small space"] == 4


@pytest.mark.tvm
def test_trials_go_where_the_time_is_and_go_on_where_they_stopped(tmp_path: Path) -> None:
    store = tmp_path / "records"
    tasks = [named("conv2d", 50), named("conv1x1", 1)]
    options = {"target": "local:1", "work_dir": tmp_path, "store": store, "scheduler": "gradient"}
    seen: list[TuningProgress] = []
    done = tune_queue(tasks, total=12, on_progress=seen.append, **options)
    trials = {name: one.trials for name, one in done.results.items()}
    assert sum(trials.values()) == 12 == len(seen)
    assert trials["conv2d"] > 2 * trials["conv1x1"] > 0
    assert [(now.trial, now.trials) for now in seen] == [(number, 12) for number in range(1, 13)]
    assert all(one.verified and one.stopped == "budget" for one in done.results.values())
    # The same again is answered by the records; more trials are the same ones and then new ones.
    again = tune_queue(tasks, total=12, on_progress=pytest.fail, **options)
    for name, one in again.results.items():
        assert one == replace(done.results[name], from_records=True, known=one.trials)
    more: list[TuningProgress] = []
    longer = tune_queue(tasks, trials=8, on_progress=more.append, **options)
    assert sum(one.trials for one in longer.results.values()) == 16
    assert len(more) == 4
    # A program with nothing new keeps its result, the other has been measured again.
    kept = [name for name, one in longer.results.items() if one.from_records]
    assert kept == [name for name in trials if longer.results[name].trials == trials[name]]


def test_a_program_is_known_by_its_digest() -> None:
    task = TuningTask("first", '{"names": "of one network"}', {}, builder=NETWORK_BUILDER, digest="00ff")
    other = replace(task, label="second", operator='{"names": "of another network"}')
    assert key_of(task, "{}", "0", "threads=1") == key_of(other, "{}", "0", "threads=1")
    for changed in (replace(task, digest="00fe"), replace(task, digest=""), replace(task, dtype="float64")):
        assert key_of(changed, "{}", "0", "threads=1") != key_of(task, "{}", "0", "threads=1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheduler": "fair"}, "expected a scheduler among equal, gradient, found 'fair'"),
        ({"total": 1}, "expected a trial in total for each of 2 operators, found 1"),
        ({"scheduler": "gradient", "records": "x"}, "expected a store of records with the scheduler gradient"),
    ],
)
def test_one_line_for_wrong_options(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=message):
        tune_queue([named("conv2d", 1), named("conv1x1", 1)], work_dir=tmp_path, **options)
    with pytest.raises(TuningError, match="expected a number of calls above 0, found 0"):
        named("conv2d", 0)
