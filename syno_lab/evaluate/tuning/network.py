"""Tuning a whole network: each of its functions by :func:`tune`, then the network measured with what was found."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from syno_lab.codegen.tvm_job import NetworkMeasurement, measure_network, network_tasks
from syno_lab.errors import TrackerError, TuningError
from syno_lab.evaluate.tuning.board import Board
from syno_lab.evaluate.tuning.presets import Budget
from syno_lab.evaluate.tuning.tune import TuningStopped, tune
from syno_lab.evaluate.tuning.values import TuningResult, TuningTask

if TYPE_CHECKING:
    from torch import nn

BUILDER = "syno_lab.codegen.tvm_network:task_module"


@dataclass(frozen=True)
class NetworkTuning:
    """A tuned network: ``measurement`` of the whole, the tuning of each function by its name, and what failed why."""

    measurement: NetworkMeasurement
    results: dict[str, TuningResult]
    failed: dict[str, str]


def tune_network(
    net: nn.Module,
    example_shape: Sequence[int],
    *,
    board: Board,
    records: str | os.PathLike[str],
    threads: int | None = None,
    repeats: int = 10,
    on_progress: Callable[[str, int, int], None] | None = None,
    **budget: Unpack[Budget],
) -> NetworkTuning:
    """Tune ``net`` for this machine's processor: each different function in ``budget``, on ``board``.

    The schedules go to the folder ``records`` (and stay there: a second call adds to them); a function whose tuning
    fails keeps TVM's unscheduled loops. ``on_progress`` is told each function's name, its number and how many there
    are. Raises as :func:`measure_network` and :func:`tune` do; but a TuningError of one function is told in
    ``failed``.
    """
    results, failed = tune_functions(
        net, example_shape, board=board, records=records, on_progress=on_progress, **budget
    )
    measurement = measure_network(
        net, example_shape, records=records if results else None, threads=threads, repeats=repeats
    )
    return NetworkTuning(measurement, results, failed)


def tune_functions(
    net: nn.Module,
    example_shape: Sequence[int],
    *,
    board: Board,
    records: str | os.PathLike[str],
    on_progress: Callable[[str, int, int], None] | None = None,
    **budget: Unpack[Budget],
) -> tuple[dict[str, TuningResult], dict[str, str]]:
    """The tuning of each function of ``net`` by its name, and what failed why: :func:`tune_network` but its end."""
    tasks = network_tasks(net, example_shape)
    results: dict[str, TuningResult] = {}
    failed: dict[str, str] = {}
    # The most called first, so that a run that is cut short has tuned what counts.
    for number, task in enumerate(sorted(tasks, key=lambda one: -one["calls"]), start=1):
        if on_progress is not None:
            on_progress(task["name"], number, len(tasks))
        job = TuningTask(task["name"], task["module"], {}, builder=BUILDER)
        try:
            results[task["name"]] = tune(
                job,
                tracker=board.address,
                key=board.key,
                work_dir=Path(records) / "logs",
                records=records,
                **budget,
            )
        except (TrackerError, TuningStopped):
            raise
        except TuningError as error:
            failed[task["name"]] = str(error)
    return results, failed
