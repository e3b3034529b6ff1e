"""Runs that the demo wrote until it became a search: they are read as they were."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from old_runs import lay_demo_run, write_run

from syno_lab.errors import StoreError
from syno_lab.operators import conv1x1, conv2d
from syno_lab.reports import LabReader, front_of
from syno_lab.store import OperatorRecord, Store
from syno_lab.store.database import FILE_NAME
from syno_lab.systems import read_operator


@pytest.mark.parametrize("is_brought_up", [False, True])
def test_a_store_of_the_old_demo_is_read(tmp_path: Path, is_brought_up: bool) -> None:
    """A file that the last demo with runs wrote: version 2 of the store, Optuna's tables in it."""
    file = tmp_path / FILE_NAME
    lay_demo_run(file)
    if is_brought_up:
        with Store.open(file) as store:
            assert store.search("new", {}).add("fp", "{}", [], 1, 1) == 0
    with Store.look(file) as store:
        (run,) = store.runs()
        assert (run.name, run.settings["data"], run.targets()) == ("demo-0123456789ab", "digits", ["local"])
        assert [(t.label, t.baseline, t.state, t.accuracy, t.latency_ms) for t in run.trials()] == [
            ("conv2d", True, "done", 0.75, 2 * 0.5 + 0.25),
            ("sample 1", False, "done", 0.5, 2 * 0.125 + 0.0625),
            ("sample 2", False, "waiting", None, None),
        ]
        assert [read_operator(t.operator) for t in run.trials()] == [conv2d(), conv1x1(), conv1x1()]
        assert sorted(one["latency_ms"] for _, _, one in run.latencies("a" * 32, "local")) == [0.25, 0.5]
        training = run.training("a" * 32)
        assert training is not None
        assert training["curve"][0]["test_loss"] == 1.5
        assert run.training("c" * 32) is None
    with LabReader(tmp_path) as reader:
        reading = reader.read()
    rows = reading.of("run:demo-0123456789ab")
    assert [(row.label, row.accuracy, row.latencies, row.wall_s) for row in rows] == [
        ("conv2d", 0.75, {"local": 1.25}, 2.5),
        ("sample 1", 0.5, {"local": 0.3125}, 1.5),
        ("sample 2", None, {}, 0.0),
    ]
    front = front_of(rows, ("latency_ms@local", "accuracy"))
    assert [front.points[place].label for place in front.front] == ["sample 1", "conv2d"]


def test_half_a_latency_is_none(tmp_path: Path) -> None:
    layers = [({"H": 32}, 2), ({"H": 16}, 3)]
    records = [OperatorRecord(name, "{}", 10, 1, name) for name in ("whole", "half")]
    found = [("whole", "cpu", layers[0][0], 2, 1.0), ("whole", "cpu", layers[1][0], 3, 0.5)]
    found.append(("half", "cpu", layers[0][0], 2, 1.0))
    with Store.open(tmp_path) as store:
        write_run(store, "said", records, {"half": {"accuracy": None}}, found, layers)
        write_run(store, "not said", records[1:], {}, found[2:])
        write_run(store, "two targets", records[1:], {}, [("half", target, {"H": 1}, 1, 2.0) for target in "ab"])
        said, unsaid, two = store.runs()
        assert [(t.latency_ms, t.state) for t in said.trials()] == [(3.5, "tuned"), (None, "failed")]
        assert [t.latency_ms for t in unsaid.trials()] == [2.0]
        with pytest.raises(StoreError, match="run 'two targets' has latencies for several targets: name one of a, b"):
            two.trials()
        assert two.trials("a")[0].latency_ms == 2.0


def test_a_flipped_digit_in_a_run_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    lay_demo_run(file)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE syno_latencies SET latency_ms=0.1")
        connection.commit()
    with Store.look(file) as store, pytest.raises(StoreError, match="a row differs from what was written"):
        store.runs()[0].trials()
