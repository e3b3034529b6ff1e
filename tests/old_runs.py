"""Runs as the demo wrote them until it became a search, for tests of what reads them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from syno_lab.store import OperatorRecord, Store

#: A store of the demo's last version but one, with one run in it: hand-made numbers, written by that version's code.
DEMO_RUN = Path(__file__).parent / "store" / "demo_run.sql"
CREATED = "2026-01-01T00:00:00+00:00"
Latency = tuple[str, str, Mapping[str, int], int, float]


def lay_demo_run(file: Path) -> None:
    """Make the store of :data:`DEMO_RUN`."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(DEMO_RUN.read_text())


def write_run(
    store: Store,
    name: str,
    operators: Iterable[OperatorRecord],
    trainings: Mapping[str, Mapping[str, Any]] = {},
    latencies: Iterable[Latency] = (),
    bindings: Iterable[tuple[Mapping[str, int], int]] = (),
    settings: Mapping[str, Any] = {},
) -> None:
    """Write a run: trainings by fingerprint; latencies as (fingerprint, target, binding, count, milliseconds)."""

    def text(value: object) -> str:
        return json.dumps(value, sort_keys=True)

    write = store.database.write
    with store.database.transaction():
        (key,) = store.database.column("SELECT COALESCE(MAX(run), 0) + 1 FROM syno_runs")
        write("INSERT", "syno_runs", "run, name, settings, created", (key, name, text(settings), CREATED))
        for position, one in enumerate(operators):
            costs = (one.flops, one.params, one.label, int(one.baseline))
            columns = "run, position, fingerprint, operator, flops, params, label, baseline"
            write("INSERT", "syno_operators", columns, (key, position, one.fingerprint, one.operator, *costs))
        for fingerprint, result in trainings.items():
            row = (key, fingerprint, result["accuracy"], text(result))
            write("INSERT", "syno_trainings", "run, fingerprint, accuracy, result", row)
        for fingerprint, target, binding, count, latency in latencies:
            row = (key, fingerprint, target, text(binding), count, latency, text({"latency_ms": latency}))
            write("INSERT", "syno_latencies", "run, fingerprint, target, binding, count, latency_ms, result", row)
        for binding, count in bindings:
            write("INSERT", "syno_bindings", "run, binding, count", (key, text(binding), count))
