"""Tune a whole network where it runs, and measure it there: its functions by TVM's task scheduler, then all of it.

``torch.nn.Module`` → the functions that Relax calls, each once for all layers of one shape → :func:`tune_functions`,
which shares the trials among them → :func:`compiled`, with the best schedules → :func:`run_networks`, on this machine
or on a board behind a tracker. Records are kept by TVM's structural hash of a function: what another network calls too
is not tuned again.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import msgspec

from syno_lab.codegen.target_names import local_threads
from syno_lab.codegen.tvm_job import export_to, network_tasks, read_network, write_check
from syno_lab.codegen.tvm_trace import DATABASE, check_database
from syno_lab.errors import TuningError
from syno_lab.processes.light import tame_intrinsics
from syno_lab.processes.process import cores
from syno_lab.processes.worker import once
from syno_lab.scratch import scratch
from syno_lab.tuning.jobs import Device, apply_trace, in_words, open_session, upload
from syno_lab.tuning.options import Budget, TuningOptions, enough_s, find_preset
from syno_lab.tuning.targets import check_here, resolve
from syno_lab.tuning.tracker import check_tracker, host_version
from syno_lab.tuning.tune import QueueResult, tune_queue
from syno_lab.tuning.values import NETWORK_BUILDER, TuningProgress, TuningResult, TuningTask

if TYPE_CHECKING:
    from torch import nn
    from tvm.target import Target

#: Seconds to compile a network, to run it, and for which it may hold a device.
COMPILE_S, RUN_S, SESSION_S = 600.0, 900.0, 600.0
#: The least milliseconds of a sample of a network's calls.
MIN_MS = 20
#: The most that the device's output may differ from torch's, relative to the largest output.
TOLERANCE = 1e-3
#: The folder with the schedules that a network was compiled with, in MetaSchedule's own format.
SCHEDULES = "schedules"

Progress = Callable[[TuningProgress], None]


class _Measured(msgspec.Struct, frozen=True):
    """What a measurement of a whole network tells: see :class:`NetworkMeasurement`."""

    latency_ms: float
    best_ms: float
    repeats: int
    error: float
    functions: int
    tuned: int


class NetworkMeasurement(_Measured, frozen=True):
    """A whole network as TVM compiled it.

    ``latency_ms`` is the median and ``best_ms`` the least of ``repeats`` measurements of one call, by TVM's time
    evaluator. ``error`` is the largest difference between its output and torch's, relative to the largest output.
    ``functions`` is the number of different functions that it calls, ``tuned`` of them with a schedule from a tuning.
    """

    target: str


class Tuned(NamedTuple):
    """A function of a network: TVM's text of its module, the trace of its best schedule, and its seconds."""

    module: str
    trace: str
    seconds: float


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


class Runs(NamedTuple):
    """For each network the error, relative to the largest output, and for each round the seconds of its calls."""

    errors: list[float]
    seconds: list[list[list[float]]]
    address: str


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a function takes of a network's time: calls, milliseconds of one call, and its trials (if it was tuned)."""

    name: str
    calls: int
    latency_ms: float | None = None
    trials: int | None = None


class NetworkOptions(Budget, total=False):
    """How a network is tuned; ``tokens``: its input is whole numbers, as of texts."""

    tokens: bool
    on_progress: Progress | None
    should_stop: Callable[[], bool] | None


@dataclass(frozen=True)
class FunctionsTuning:
    """The functions of the network ``net``, tuned with ``options``.

    The ``tasks``, the results by name, and the reason of each failure: such a function keeps TVM's unscheduled loops.
    """

    net: nn.Module
    example_shape: tuple[int, ...]
    tokens: bool
    options: TuningOptions
    tasks: tuple[TuningTask, ...] = ()
    results: dict[str, TuningResult] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def trials(self) -> int:
        """Candidates of all functions, those of the records among them."""
        return sum(one.trials for one in self.results.values())

    @property
    def known(self) -> int:
        """Those of the trials that were in the records before."""
        return sum(one.known for one in self.results.values())

    @property
    def parts(self) -> tuple[Part, ...]:
        """What each function takes of the network's time."""
        found = [(task, self.results.get(task.label)) for task in self.tasks]
        return tuple(
            Part(task.label, task.calls, *(() if one is None else (one.latency_ms, one.trials))) for task, one in found
        )


@dataclass(frozen=True)
class NetworkTuning:
    """A tuned network: ``measurement`` of the whole, and the tuning of its ``functions``.

    ``where`` is the device's address, or ``this machine``.
    """

    measurement: NetworkMeasurement
    functions: FunctionsTuning
    where: str


def tune_network(
    net: nn.Module,
    example_shape: Sequence[int],
    *,
    records: str | os.PathLike[str],
    repeats: int = 10,
    rounds: int = 3,
    **how: Unpack[NetworkOptions],
) -> NetworkTuning:
    """Tune ``net`` for ``target``, and measure it there: on ``board``, or on this machine without one.

    ``how`` has the ``trials`` of a function on average, or the ``total`` of all: unless ``scheduler="equal"`` is
    given, TVM's task scheduler gives more of them to the functions that promise most of the network's time. All trials
    stay in the folder ``records``: a second call adds to them, and the schedules are kept there in MetaSchedule's
    own format too (in ``schedules``). A function whose tuning fails keeps TVM's unscheduled loops. ``threads`` are
    those of this machine; a board has its own. The input is an example of ``example_shape``, of ``tokens`` for texts.
    It is measured in so many ``rounds``, each with ``repeats`` samples.

    Raises:
        SpecError: the network does not take that shape.
        TrackerError: the tracker or the board is away.
        TuningStopped: ``should_stop`` returned True.
        TuningError: no function could be tuned, or the device computes something else than torch.
        SynoError: TVM cannot take the network over, or a process dies.
    """
    done = tune_functions(net, example_shape, records=records, **how)
    with scratch("syno-network-") as folder:
        one = compiled(done, folder, keep=Path(records))
        (rounds_of,), where = run_networks([one], done.options, repeats=repeats, rounds=rounds)
    return NetworkTuning(merged(rounds_of), done, where)


def tune_functions(
    net: nn.Module, example_shape: Sequence[int], *, records: str | os.PathLike[str], **how: Unpack[NetworkOptions]
) -> FunctionsTuning:
    """The tuning of each function of ``net``, without measuring the network.

    Arguments and errors are those of :func:`tune_network`; ``deadline_s`` is for all functions together.
    """
    given: dict[str, Any] = {"scheduler": "gradient", **how}
    tokens, board = given.pop("tokens", False), given.pop("board", None)
    told = {name: given.pop(name, None) for name in ("on_progress", "should_stop")}
    options = TuningOptions(work_dir=Path(records) / "logs", store=records, **given).on(board)
    found = network_tasks(net, example_shape, target=options.target, tokens=tokens, deadline_s=COMPILE_S)
    # The most called functions first: of turns alike, theirs come first.
    tasks = [
        TuningTask(one.name, one.module, {}, builder=NETWORK_BUILDER, calls=one.calls, digest=one.digest)
        for one in sorted(found, key=lambda one: -one.calls)
    ]
    if options.deadline_s is None:
        trials = options.trials or find_preset(options.preset).trials
        options = replace(options, deadline_s=enough_s(trials, len(tasks)))
    done = tune_queue(tasks, options, **told) if tasks else QueueResult()
    if tasks and not done.results:
        name, reason = next(iter(done.failed.items()))
        raise TuningError(f"none of {len(tasks)} functions was tuned; {name}: {reason}")
    return FunctionsTuning(net, tuple(example_shape), tokens, options, tuple(tasks), done.results, done.failed)


def compiled(functions: FunctionsTuning, folder: Path, *, name: str = "network", keep: Path | None = None) -> Compiled:
    """The network of ``functions`` compiled into ``folder`` with the schedules that their tunings found.

    In the folder ``keep`` the schedules stay in MetaSchedule's own format; where nothing was tuned now, those that are
    there already are taken. Raises as :func:`tune_network` does.
    """
    schedules = [
        Tuned(task.operator, done.trace, done.latency_ms / 1e3)
        for task in functions.tasks
        if (done := functions.results.get(task.label)) is not None and done.trace
    ]
    net, shape, tokens, options = functions.net, functions.example_shape, functions.tokens, functions.options
    program = export_to(net, shape, folder, tokens=tokens)
    check = write_check(net, shape, folder / f"{name}.npz", tokens=tokens)
    kept = folder / SCHEDULES if keep is None else (keep / SCHEDULES).resolve()
    job = (program, check, options.target, options.board is None, schedules, folder / name, kept)
    return once(f"compiling {name}", compile_one, *job, deadline_s=COMPILE_S, has_tvm=False)


def run_networks(
    networks: Sequence[Compiled], options: TuningOptions, *, repeats: int = 10, rounds: int = 3
) -> tuple[list[list[NetworkMeasurement]], str]:
    """Run compiled networks in turn where ``options`` say: each one's measurement in each round, and the address.

    Raises:
        TuningError: the device's output is not torch's, or the process that runs them dies or is not done in time.
        TrackerError: the tracker or the board is away.
    """
    board, target, kind, machine = options.board, options.target, networks[0].device, networks[0].machine
    threads = (options.threads or local_threads(target) or cores()) if board is None else None
    device = Device(board, kind, 30.0, SESSION_S, host_version(), machine, target)
    if board is not None:
        check_tracker(*board.address, board.key, 5.0, need_free=False)
    job = (device, list(networks), rounds, repeats)
    found = once("running networks", run_all, *job, deadline_s=RUN_S, threads=threads)
    for one, error in zip(networks, found.errors, strict=True):
        if not error <= TOLERANCE:
            raise TuningError(
                f"the network computes something else on {found.address} than in torch: {Path(one.path).stem} "
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
        for one, error, each in zip(networks, found.errors, found.seconds, strict=True)
    ]
    return measurements, found.address


def merged(rounds: Sequence[NetworkMeasurement]) -> NetworkMeasurement:
    """The measurements of one network as one: the median of the rounds' medians, and the least of all."""
    return msgspec.structs.replace(
        rounds[0],
        latency_ms=statistics.median(one.latency_ms for one in rounds),
        best_ms=min(one.best_ms for one in rounds),
        repeats=sum(one.repeats for one in rounds),
    )


class NetworkFacts(_Measured, frozen=True):
    """What the store keeps of a tuned network: its latency, what was measured, where, and with how many trials."""

    failed: dict[str, str]
    trials: int
    known: int
    parts: tuple[Part, ...]
    where: str
    preset: str
    conditions: str
    tvm_version: str
    of: str
    target: str
    seconds: float

    def __str__(self) -> str:
        """One line: what was measured, where, and with how many trials."""
        return (
            f"whole network through Relax: {self.latency_ms:.4f} ms on {self.where} for {self.target}, "
            f"{self.tuned} of {self.functions} functions tuned by {self.trials} trials in all, "
            f"{self.known} of them from the records; {self.seconds:.0f} s"
        )


def facts_of(tuning: NetworkTuning, of: str, target: str, seconds: float) -> NetworkFacts:
    """The facts of a network tuned for ``target`` in so many seconds; ``of``: what the latency is of."""
    functions, first = tuning.functions, next(iter(tuning.functions.results.values()))
    return NetworkFacts(
        **msgspec.structs.asdict(tuning.measurement) | {"target": target},
        failed=functions.failed,
        trials=functions.trials,
        known=functions.known,
        parts=functions.parts,
        where=tuning.where,
        preset=first.preset,
        conditions=first.conditions,
        tvm_version=first.tvm_version,
        of=of,
        seconds=seconds,
    )


# -- in child processes ------------------------------------------------------------------------------------------------


def compile_one(
    program: str, check: str, name: str, is_here: bool, schedules: Sequence[Tuned], path: Path, keep: Path
) -> Compiled:
    """Compile the exported network in the file ``program`` with its ``schedules`` for the target ``name``.

    The result is ``path`` with the ending of its kind. The schedules stay in the folder ``keep``, in MetaSchedule's own
    format. ``is_here``: this machine must be able to run it.
    """
    import torch  # noqa: F401 - before TVM: the program is read by torch

    target = resolve(name)
    if is_here:
        check_here(target, name)
    from syno_lab.codegen.tvm_device import export
    from syno_lab.codegen.tvm_network import called_functions, compile_network, optimized

    tame_intrinsics(*target.intrinsics)
    module = optimized(read_network(program), target.tvm)
    names = called_functions(module)
    if schedules:
        _write_database(schedules, keep, target.tvm)
    check_database(keep)
    executable, tuned = compile_network(module, target.tvm, keep if (keep / DATABASE).exists() else None)
    file = export(executable, f"{path}.{target.artifact}", target.linker)
    return Compiled(file, check, len(names), tuned, target.text, target.device, target.machine)


def _write_database(schedules: Sequence[Tuned], folder: Path, target: Target) -> None:
    import tvm
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("database_*.json"):
        file.unlink()
    database = ms.database.JSONDatabase(work_dir=str(folder))
    for one in schedules:
        module = tvm.ir.load_json(one.module)
        trace = apply_trace(module, json.loads(one.trace)).trace
        arguments = ArgInfo.from_entry_func(module, remove_preproc=True)
        workload = database.commit_workload(module)
        record = ms.database.TuningRecord(trace, workload, [one.seconds], target, arguments)
        database.commit_tuning_record(record)


def run_all(device: Device, networks: Sequence[Compiled], rounds: int, repeats: int) -> Runs:
    """Run networks in turn on the device, ``rounds`` times each ``repeats`` samples; the first outputs are compared."""
    import numpy as np
    import tvm
    from tvm.runtime.vm import VirtualMachine

    session, address = open_session(device)
    timed, errors = [], []
    seconds: list[list[list[float]]] = [[] for _ in networks]
    with in_words(device.key):
        where = session.device(device.kind, 0)
        for one in networks:
            with np.load(one.check) as check:
                x, expected = check["x"], check["expected"]
            machine = VirtualMachine(upload(session, one.path), where)
            tensor = tvm.runtime.tensor(x, where)
            output = machine["main"](tensor).numpy()
            if output.shape != expected.shape:
                raise TuningError(f"expected an output of {expected.shape}, found one of {output.shape}")
            scale = max(float(np.abs(expected).max()), 1e-30)
            errors.append(float(np.abs(output.astype("float64") - expected).max()) / scale)
            evaluator = machine.time_evaluator("main", where, number=1, repeat=repeats, min_repeat_ms=MIN_MS)
            timed.append((evaluator, tensor))
        for number in range(rounds):
            places = range(len(timed)) if number % 2 == 0 else reversed(range(len(timed)))
            for place in places:
                evaluator, tensor = timed[place]
                seconds[place].append([float(one) for one in evaluator(tensor).results])
    return Runs(errors, seconds, address)
