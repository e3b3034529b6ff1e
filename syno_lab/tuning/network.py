"""Tune a whole network where it runs, and measure it there: its functions by TVM's task scheduler, then all of it.

``torch.nn.Module`` → the functions that Relax calls, each once for all layers of one shape → :func:`tune_functions`,
which shares the trials among them → :func:`compiled`, with the best schedules → :func:`run_networks`, on this machine
or on a board behind a tracker. Records are kept by TVM's structural hash of a function: what another network calls too
is not tuned again.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from syno_lab.codegen.tvm_job import NetworkMeasurement, export_to, network_tasks, run_job, write_check
from syno_lab.errors import TuningError
from syno_lab.processes.process import cores
from syno_lab.scratch import scratch
from syno_lab.tuning.board import Board
from syno_lab.tuning.jobs import HERE, Device
from syno_lab.tuning.options import Budget, TuningOptions
from syno_lab.tuning.presets import enough_s, find_preset
from syno_lab.tuning.targets import threads_of
from syno_lab.tuning.tracker import check_tracker, host_version
from syno_lab.tuning.tune import tune_queue
from syno_lab.tuning.values import NETWORK_BUILDER, TuningProgress, TuningResult, TuningTask

if TYPE_CHECKING:
    from torch import nn

CHILD = "syno_lab.tuning.network_child"
#: Seconds to compile a network, to run it, and for which it may hold a device.
COMPILE_S, RUN_S, SESSION_S = 600.0, 900.0, 600.0
#: The least milliseconds of a sample of a network's calls.
MIN_MS = 20
#: The most that the device's output may differ from torch's, relative to the largest output.
TOLERANCE = 1e-3
#: The folder with the schedules that a network was compiled with, in MetaSchedule's own format.
SCHEDULES = "schedules"

Progress = Callable[[TuningProgress], None]


@dataclass(frozen=True)
class FunctionsTuning:
    """The functions of one network, tuned: the ``tasks``, the results by name, and the reason of each failure."""

    tasks: tuple[TuningTask, ...]
    results: dict[str, TuningResult]
    failed: dict[str, str]

    @property
    def trials(self) -> int:
        """Candidates of all functions, those of the records among them."""
        return sum(one.trials for one in self.results.values())

    @property
    def known(self) -> int:
        """Those of the trials that were in the records before."""
        return sum(one.known for one in self.results.values())

    @property
    def parts(self) -> list[dict[str, Any]]:
        """What each function takes of the network's time: name, calls, milliseconds of one call, and trials."""
        rows = []
        for task in self.tasks:
            found = self.results.get(task.label)
            facts = {} if found is None else {"latency_ms": found.latency_ms, "trials": found.trials}
            rows.append({"name": task.label, "calls": task.calls, **facts})
        return rows


@dataclass(frozen=True)
class Compiled:
    """A network compiled for a target: the file that is run, and an input with torch's output to check it by."""

    path: str
    check: str
    functions: int
    tuned: int
    target: str
    device: str
    machine: str


@dataclass(frozen=True)
class NetworkTuning:
    """A tuned network: ``measurement`` of the whole, each function's tuning by name, and the reason of each failure.

    ``where`` is the device's address, or ``this machine``.
    """

    measurement: NetworkMeasurement
    functions: FunctionsTuning
    where: str

    @property
    def results(self) -> dict[str, TuningResult]:
        """The tuning of each function by name."""
        return self.functions.results

    @property
    def failed(self) -> dict[str, str]:
        """The reason of each function that was not tuned: it keeps TVM's unscheduled loops."""
        return self.functions.failed


def tune_network(
    net: nn.Module,
    example_shape: Sequence[int],
    *,
    board: Board | None = None,
    records: str | os.PathLike[str],
    target: str = "local",
    threads: int | None = None,
    tokens: bool = False,
    repeats: int = 10,
    rounds: int = 3,
    on_progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    **budget: Unpack[Budget],
) -> NetworkTuning:
    """Tune ``net`` for ``target``, and measure it there: on ``board``, or on this machine without one.

    ``budget`` has the ``trials`` of a function on average, or the ``total`` of all: unless ``scheduler="equal"`` is
    given, TVM's task scheduler gives more of them to the functions that promise most of the network's time. All trials
    stay in the folder ``records``: a second call adds to them, and the schedules are kept there in MetaSchedule's
    own format too (in ``schedules``). A function whose tuning fails keeps TVM's unscheduled loops. ``threads`` are
    those of this machine; a board has its own. The input is an example of ``example_shape``, of ``tokens`` for texts.

    Raises:
        SpecError: the network does not take that shape.
        TrackerError: the tracker or the board is away.
        TuningStopped: ``should_stop`` returned True.
        TuningError: no function could be tuned, or the device computes something else than torch.
        SynoError: TVM cannot take the network over, or a process dies.
    """
    done = tune_functions(
        net,
        example_shape,
        board=board,
        target=target,
        threads=threads,
        tokens=tokens,
        records=records,
        on_progress=on_progress,
        should_stop=should_stop,
        **budget,
    )
    with scratch("syno-network-") as folder:
        one = compiled(net, example_shape, done, folder, board=board, target=target, tokens=tokens, keep=Path(records))
        (rounds_of,), where = run_networks(
            [one], board=board, target=target, threads=threads, repeats=repeats, rounds=rounds
        )
    return NetworkTuning(merged(rounds_of), done, where)


def tune_functions(
    net: nn.Module,
    example_shape: Sequence[int],
    *,
    board: Board | None = None,
    target: str = "local",
    threads: int | None = None,
    tokens: bool = False,
    records: str | os.PathLike[str],
    on_progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    **budget: Unpack[Budget],
) -> FunctionsTuning:
    """The tuning of each function of ``net``, without measuring the network.

    Arguments and errors are those of :func:`tune_network`; ``deadline_s`` in the budget is for all functions together.
    """
    found = network_tasks(net, example_shape, target=target, tokens=tokens, deadline_s=COMPILE_S)
    # The most called functions first: of turns alike, theirs come first.
    tasks = [
        TuningTask(one["name"], one["module"], {}, builder=NETWORK_BUILDER, calls=one["calls"], digest=one["digest"])
        for one in sorted(found, key=lambda one: -one["calls"])
    ]
    if not tasks:
        return FunctionsTuning((), {}, {})
    given: Budget = {"scheduler": "gradient", **budget}
    options = TuningOptions(work_dir=Path(records) / "logs", store=records, target=target, threads=threads, **given).on(
        board
    )
    if options.deadline_s is None:
        trials = options.trials or find_preset(options.preset).trials
        options = replace(options, deadline_s=enough_s(trials, len(tasks)))
    done = tune_queue(tasks, options, on_progress=on_progress, should_stop=should_stop)
    if not done.results:
        name, reason = next(iter(done.failed.items()))
        raise TuningError(f"none of {len(tasks)} functions was tuned; {name}: {reason}")
    return FunctionsTuning(tuple(tasks), done.results, done.failed)


def compiled(
    net: nn.Module,
    example_shape: Sequence[int],
    functions: FunctionsTuning,
    folder: Path,
    *,
    name: str = "network",
    board: Board | None = None,
    target: str = "local",
    tokens: bool = False,
    keep: Path | None = None,
) -> Compiled:
    """``net`` compiled into ``folder`` with the schedules that its functions' tunings found.

    In the folder ``keep`` the schedules stay in MetaSchedule's own format. Raises as :func:`tune_network` does.
    """
    schedules = [
        {"module": task.operator, "trace": done.trace, "seconds": done.latency_ms / 1e3}
        for task in functions.tasks
        if (done := functions.results.get(task.label)) is not None and done.trace
    ]
    request = export_to(net, example_shape, folder, tokens=tokens) | {
        "target": target,
        "is_here": board is None,
        "schedules": schedules,
        "folder": str(folder),
        "name": name,
        "keep": None if keep is None else str((keep / SCHEDULES).resolve()),
    }
    check = write_check(net, example_shape, folder / f"{name}.npz", tokens=tokens)
    return Compiled(check=check, **run_job("compile", request, COMPILE_S, child=CHILD))


def run_networks(
    networks: Sequence[Compiled],
    *,
    board: Board | None = None,
    target: str = "local",
    threads: int | None = None,
    repeats: int = 10,
    rounds: int = 3,
) -> tuple[list[list[NetworkMeasurement]], str]:
    """Run compiled networks in turn on one device: each network's measurements, one for each round, and the address.

    Raises:
        TuningError: the device's output is not torch's.
        TrackerError: the tracker or the board is away.
        SynoError: the process that runs them dies or is not done in time.
    """
    used = threads or threads_of(target) or cores()
    host, port, key, version = HERE, 0, HERE, None
    if board is not None:
        host, port, key, version = board.host, board.port, board.key, host_version()
        check_tracker(host, port, key, 5.0, need_free=False)
    device = Device(host, port, key, networks[0].device, 30.0, SESSION_S, version, networks[0].machine, target)
    request = {
        "device": asdict(device),
        "artifacts": [{"path": one.path, "check": one.check} for one in networks],
        "rounds": rounds,
        "repeats": repeats,
        "min_ms": MIN_MS,
    }
    found = run_job("run", request, RUN_S, used if board is None else None, child=CHILD)
    for one, error in zip(networks, found["errors"], strict=True):
        if not error <= TOLERANCE:
            raise TuningError(
                f"the network computes something else on {found['address']} than in torch: {Path(one.path).stem} "
                f"differs by {error:.3g} of its largest output; this is a bug in TVM or in the lowering"
            )
    measurements = [
        [
            NetworkMeasurement(
                latency_ms=1e3 * statistics.median(seconds),
                best_ms=1e3 * min(seconds),
                repeats=len(seconds),
                error=error,
                functions=one.functions,
                tuned=one.tuned,
                target=one.target,
            )
            for seconds in each
        ]
        for one, error, each in zip(networks, found["errors"], found["seconds"], strict=True)
    ]
    return measurements, str(found["address"])


def merged(rounds: Sequence[NetworkMeasurement]) -> NetworkMeasurement:
    """The measurements of one network as one: the median of the rounds' medians, and the least of all."""
    return replace(
        rounds[0],
        latency_ms=statistics.median(one.latency_ms for one in rounds),
        best_ms=min(one.best_ms for one in rounds),
        repeats=sum(one.repeats for one in rounds),
    )


def facts_of(tuning: NetworkTuning, **more: Any) -> Mapping[str, Any]:
    """What the store keeps of a tuned network: its latency, what was measured, where, and with how many trials."""
    whole, functions = tuning.measurement, tuning.functions
    first = next(iter(functions.results.values()))
    return {
        "latency_ms": whole.latency_ms,
        "best_ms": whole.best_ms,
        "repeats": whole.repeats,
        "error": whole.error,
        "functions": whole.functions,
        "tuned": whole.tuned,
        "failed": dict(functions.failed),
        "trials": functions.trials,
        "known": functions.known,
        "parts": functions.parts,
        "where": tuning.where,
        "preset": first.preset,
        "conditions": first.conditions,
        "tvm_version": first.tvm_version,
        **more,
    }
