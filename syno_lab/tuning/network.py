"""Tune a whole network: each of its functions by :func:`tune`; then measure the network with the best schedules."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from syno_lab.codegen.tvm_job import NetworkMeasurement, measure_network, network_tasks
from syno_lab.errors import TrackerError, TuningError
from syno_lab.tuning.board import Board
from syno_lab.tuning.options import Budget, TuningOptions
from syno_lab.tuning.tune import TuningStopped, tune
from syno_lab.tuning.values import NETWORK_BUILDER, TuningResult, TuningTask

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class NetworkTuning:
    """A tuned network: ``measurement`` of the whole, each function's tuning by name, and the reason of each failure."""

    measurement: NetworkMeasurement
    results: dict[str, TuningResult]
    failed: dict[str, str]


def tune_network(
    net: nn.Module,
    example_shape: Sequence[int],
    *,
    board: Board | None = None,
    records: str | os.PathLike[str],
    threads: int | None = None,
    repeats: int = 10,
    on_progress: Callable[[str, int, int], None] | None = None,
    **budget: Unpack[Budget],
) -> NetworkTuning:
    """Tune ``net`` for this machine's processor: each different function in ``budget``, on ``board`` if there is one.

    The schedules go to the folder ``records`` (and stay there: a second call adds to them); a function whose tuning
    fails keeps TVM's unscheduled loops. ``on_progress`` gets each function's name, its number and the number of all.
    Raises as :func:`measure_network` and :func:`tune` do, but a TuningError of one function goes to ``failed``.
    """
    results, failed = tune_functions(
        net, example_shape, board=board, threads=threads, records=records, on_progress=on_progress, **budget
    )
    measurement = measure_network(
        net, example_shape, records=records if results else None, threads=threads, repeats=repeats
    )
    return NetworkTuning(measurement, results, failed)


def tune_functions(
    net: nn.Module,
    example_shape: Sequence[int],
    *,
    board: Board | None = None,
    threads: int | None = None,
    records: str | os.PathLike[str],
    on_progress: Callable[[str, int, int], None] | None = None,
    **budget: Unpack[Budget],
) -> tuple[dict[str, TuningResult], dict[str, str]]:
    """The tuning of each function of ``net`` by name, and the reason of each failure, without measuring the network."""
    options = TuningOptions(work_dir=Path(records) / "logs", threads=threads, records=records, **budget).on(board)
    tasks = network_tasks(net, example_shape)
    results: dict[str, TuningResult] = {}
    failed: dict[str, str] = {}
    # The most called functions first, so that an interrupted run has tuned those that count most.
    for number, task in enumerate(sorted(tasks, key=lambda one: -one["calls"]), start=1):
        if on_progress is not None:
            on_progress(task["name"], number, len(tasks))
        job = TuningTask(task["name"], task["module"], {}, builder=NETWORK_BUILDER)
        try:
            results[task["name"]] = tune(job, options)
        except (TrackerError, TuningStopped):
            raise
        except TuningError as error:
            failed[task["name"]] = str(error)
    return results, failed
