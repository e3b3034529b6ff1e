"""Stores that somebody else made: rows with right digests over what no store of ours holds."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from known_runs import fill_lab

from syno_lab.errors import StoreError
from syno_lab.reports import LabReader, front_of
from syno_lab.store import Store
from syno_lab.store.database import FILE_NAME, digest


def forged(folder: Path, table: str, column: str, value: object) -> Path:
    """A lab in which a column of a table's first row is another, with the digest that goes with it."""
    fill_lab(folder, 4)
    with closing(sqlite3.connect(folder / FILE_NAME)) as store:
        columns = [row[1] for row in store.execute(f"PRAGMA table_info({table})")]
        number, *row = store.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid").fetchone()
        row[columns.index(column)] = value
        row[-1] = digest(row[:-1])
        store.execute(f"UPDATE {table} SET {', '.join(f'{name}=?' for name in columns)} WHERE rowid=?", (*row, number))
        store.commit()
    return folder


def read(folder: Path) -> object:
    with LabReader(folder) as reader:
        return front_of(reader.read().rows, ("flops", "accuracy"))


def look(folder: Path) -> object:
    with Store.look(folder) as store:
        return [(log.latencies("cpu"), [trial.outcome for trial in log.trials()]) for log in store.searches()]


@pytest.mark.parametrize(
    ("table", "column", "value", "reader", "message"),
    [
        ("syno_search_trials", "flops", "many", read, "flops of a row holds something else"),
        ("syno_search_trials", "steps", '{"a": 1}', read, "holds steps that Syno Lab did not write"),
        ("syno_search_outcomes", "accuracy", "half", read, "accuracy of a row holds something else"),
        ("syno_search_outcomes", "reward", float("inf"), read, "reward of a row holds something else"),
        ("syno_search_outcomes", "outcome", "[" * 5000, look, "holds an outcome that Syno Lab did not write"),
        ("syno_search_latencies", "result", "[1]", look, "holds a latency that Syno Lab did not write"),
        ("syno_searches", "settings", '{"a": ' + "9" * 5000 + "}", read, "holds settings that Syno Lab did not write"),
    ],
)
def test_rows_that_no_store_of_ours_holds_are_refused_in_one_line(
    table: str, column: str, value: object, reader: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    lab = forged(tmp_path, table, column, value)
    with pytest.raises(StoreError, match=message) as refused:
        reader(lab)
    assert str(refused.value).isprintable()


def test_a_latency_of_another_kind_is_none(tmp_path: Path) -> None:
    lab = forged(tmp_path, "syno_search_latencies", "result", '{"latency_ms": "fast"}')
    with LabReader(lab) as reader:
        first, *others = (row for row in reader.read().rows if row.number in (0, 3))
        assert "cpu" not in first.latencies
        assert all("cpu" in row.latencies for row in others)


@pytest.mark.parametrize("side", ["-wal", "-shm"])
def test_a_fifo_beside_a_store_does_not_hang(side: str, tmp_path: Path) -> None:
    fill_lab(tmp_path, 1)
    beside = tmp_path / (FILE_NAME + side)
    beside.unlink(missing_ok=True)
    os.mkfifo(beside)
    for opening in (Store.look, Store.open):
        with pytest.raises(StoreError, match="beside it is no file"):
            opening(tmp_path)
