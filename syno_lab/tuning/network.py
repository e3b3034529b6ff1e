"""Tune a whole network on its device, and measure it there: TVM's task scheduler tunes its functions.

``torch.nn.Module`` → the functions that Relax calls, each once for all layers of one shape → :func:`tune_functions`,
which shares the trials among them → :func:`compiled`, with the best schedules → :func:`run_networks`, on this machine
or on a board behind a tracker. The key of a record has TVM's structural hash of a function, so a function that another
network calls too is not tuned again.
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

#: The largest number of seconds to compile a network, to run it, and to occupy a device.
COMPILE_S, RUN_S, SESSION_S = 600.0, 900.0, 600.0
#: The least milliseconds of a sample of a network's calls.
MIN_MS = 20
#: The largest allowed difference between the device's and torch's output, relative to the largest output.
TOLERANCE = 1e-3
#: The folder with the schedules of a compiled network, in MetaSchedule's own format.
SCHEDULES = "schedules"

Progress = Callable[[TuningProgress], None]


class _Measured(msgspec.Struct, frozen=True):
    """The fields that :class:`NetworkMeasurement` and :class:`NetworkFacts` share."""

    latency_ms: float
    best_ms: float
    repeats: int
    error: float
    functions: int
    tuned: int


class NetworkMeasurement(_Measured, frozen=True):
    """The measurement of a whole network that TVM compiled.

    ``latency_ms`` is the median and ``best_ms`` the least of ``repeats`` measurements of one call, by TVM's time
    evaluator. ``error`` is the largest difference between the network's and torch's outputs, relative to the largest.
    ``functions`` counts the different functions that the network calls; ``tuned`` counts the tuned functions.
    """

    target: str


class Tuned(NamedTuple):
    """A function of a network: its TVM module as text, the trace of its best schedule, and the seconds of a call."""

    module: str
    trace: str
    seconds: float


@dataclass(frozen=True)
class Compiled:
    """A network compiled for a target: the compiled file, and a file with an input and torch's output for it."""

    path: str
    check: str
    functions: int
    tuned: int
    target: str
    device: str
    machine: str


class Runs(NamedTuple):
    """The error of each network, relative to its largest output, and the seconds of its calls in each round."""

    errors: list[float]
    seconds: list[list[list[float]]]
    address: str


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function's share of a network's time: calls, milliseconds of a call, and trials (if it was tuned)."""

    name: str
    calls: int
    latency_ms: float | None = None
    trials: int | None = None


class NetworkOptions(Budget, total=False):
    """The options of a network's tuning; ``tokens``: whether the input is integers, as for texts."""

    tokens: bool
    on_progress: Progress | None
    should_stop: Callable[[], bool] | None


@dataclass(frozen=True)
class FunctionsTuning:
    """The functions of the network ``net``, tuned with ``options``.

    ``results`` and ``failed`` map a function's name to its result or error. Failed functions keep unscheduled loops.
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
        """The number of candidates of all functions, including the records' candidates."""
        return sum(result.trials for result in self.results.values())

    @property
    def known(self) -> int:
        """The number of trials that were already in the records."""
        return sum(result.known for result in self.results.values())

    @property
    def parts(self) -> tuple[Part, ...]:
        """Each function's share of the network's time."""
        pairs = [(task, self.results.get(task.label)) for task in self.tasks]
        return tuple(
            Part(task.label, task.calls, *(() if res is None else (res.latency_ms, res.trials))) for task, res in pairs
        )


@dataclass(frozen=True)
class NetworkTuning:
    """A tuned network: the ``measurement`` of the whole network, and the tuning of its ``functions``.

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
    """Tune ``net`` for ``target``, and measure it there: on ``board``, or on this machine without a board.

    ``how`` has the average ``trials`` per function, or the ``total`` number. TVM's task scheduler gives more trials to
    the functions that promise the largest savings of time, unless ``scheduler="equal"``. All trials stay in the folder
    ``records``: a second call adds trials, and the schedules are stored there in MetaSchedule's own format too (in
    ``schedules``). A function whose tuning fails keeps TVM's unscheduled loops. ``threads`` is the number of threads on
    this machine; a board has its own number. The input is an example of ``example_shape``; ``tokens`` makes it
    integers, as for texts. The network is measured in ``rounds`` rounds, each with ``repeats`` samples.

    Raises:
        SpecError: if the network does not accept the example's shape.
        TrackerError: if the tracker or the board is unreachable.
        TuningStopped: if ``should_stop`` returned True.
        TuningError: if no function could be tuned, or if the device's output differs from torch's.
        SynoError: if TVM cannot convert the network, or if a process dies.
    """
    functions = tune_functions(net, example_shape, records=records, **how)
    with scratch("syno-network-") as folder:
        network = compiled(functions, folder, keep=Path(records))
        (rounds_of,), where = run_networks([network], functions.options, repeats=repeats, rounds=rounds)
    return NetworkTuning(merged(rounds_of), functions, where)


def tune_functions(
    net: nn.Module, example_shape: Sequence[int], *, records: str | os.PathLike[str], **how: Unpack[NetworkOptions]
) -> FunctionsTuning:
    """Tune each function of ``net``, without measuring the network.

    Arguments and errors are as for :func:`tune_network`; ``deadline_s`` is for all functions together.
    """
    settings: dict[str, Any] = {"scheduler": "gradient", **how}
    tokens, board = settings.pop("tokens", False), settings.pop("board", None)
    callbacks = {name: settings.pop(name, None) for name in ("on_progress", "should_stop")}
    options = TuningOptions(work_dir=Path(records) / "logs", store=records, **settings).on(board)
    calls = network_tasks(net, example_shape, target=options.target, tokens=tokens, deadline_s=COMPILE_S)
    # The functions with the most calls come first, so that the scheduler prefers them in ties.
    tasks = [
        TuningTask(call.name, call.module, {}, builder=NETWORK_BUILDER, calls=call.calls, digest=call.digest)
        for call in sorted(calls, key=lambda call: -call.calls)
    ]
    if options.deadline_s is None:
        trials = options.trials or find_preset(options.preset).trials
        options = replace(options, deadline_s=enough_s(trials, len(tasks)))
    outcome = tune_queue(tasks, options, **callbacks) if tasks else QueueResult()
    if tasks and not outcome.results:
        name, reason = next(iter(outcome.failed.items()))
        raise TuningError(f"none of {len(tasks)} functions was tuned; {name}: {reason}")
    return FunctionsTuning(net, tuple(example_shape), tokens, options, tuple(tasks), outcome.results, outcome.failed)


def compiled(functions: FunctionsTuning, folder: Path, *, name: str = "network", keep: Path | None = None) -> Compiled:
    """Compile the network of ``functions`` into ``folder``, with the best schedules of the functions.

    The folder ``keep`` has the schedules in MetaSchedule's own format. If no function was tuned now, the schedules in
    that folder are used. Raises as :func:`tune_network` does.
    """
    schedules = [
        Tuned(task.operator, result.trace, result.latency_ms / 1e3)
        for task in functions.tasks
        if (result := functions.results.get(task.label)) is not None and result.trace
    ]
    net, shape, tokens, options = functions.net, functions.example_shape, functions.tokens, functions.options
    program = export_to(net, shape, folder, tokens=tokens)
    check = write_check(net, shape, folder / f"{name}.npz", tokens=tokens)
    schedules_folder = folder / SCHEDULES if keep is None else (keep / SCHEDULES).resolve()
    job = (program, check, options.target, options.board is None, schedules, folder / name, schedules_folder)
    return once(f"compiling {name}", compile_one, *job, deadline_s=COMPILE_S, has_tvm=False)


def run_networks(
    networks: Sequence[Compiled], options: TuningOptions, *, repeats: int = 10, rounds: int = 3
) -> tuple[list[list[NetworkMeasurement]], str]:
    """Run networks in turn on the device of ``options``; return each network's measurements by round, and the address.

    Raises:
        TuningError: if the device's output differs from torch's, or if the running process dies or exceeds its time.
        TrackerError: if the tracker or the board is unreachable.
    """
    board, target, kind, machine = options.board, options.target, networks[0].device, networks[0].machine
    threads = (options.threads or local_threads(target) or cores()) if board is None else None
    device = Device(board, kind, 30.0, SESSION_S, host_version(), machine, target)
    if board is not None:
        check_tracker(*board.address, board.key, 5.0, need_free=False)
    job = (device, list(networks), rounds, repeats)
    runs = once("running networks", run_all, *job, deadline_s=RUN_S, threads=threads)
    for network, error in zip(networks, runs.errors, strict=True):
        if not error <= TOLERANCE:
            raise TuningError(
                f"the network computes something else on {runs.address} than in torch: {Path(network.path).stem} "
                f"differs by {error:.3g} of its largest output; this is a bug in TVM or in the lowering"
            )
    measurements = [
        [
            NetworkMeasurement(
                latency_ms=1e3 * statistics.median(seconds),
                best_ms=1e3 * min(seconds),
                repeats=len(seconds),
                error=error,
                functions=network.functions,
                tuned=network.tuned,
                target=network.target,
            )
            for seconds in by_round
        ]
        for network, error, by_round in zip(networks, runs.errors, runs.seconds, strict=True)
    ]
    return measurements, runs.address


def merged(rounds: Sequence[NetworkMeasurement]) -> NetworkMeasurement:
    """Merge the measurements of a network: take the median of the rounds' medians, and the least of all times."""
    return msgspec.structs.replace(
        rounds[0],
        latency_ms=statistics.median(each_round.latency_ms for each_round in rounds),
        best_ms=min(each_round.best_ms for each_round in rounds),
        repeats=sum(each_round.repeats for each_round in rounds),
    )


class NetworkFacts(_Measured, frozen=True):
    """The data of a tuned network in the store: its latency, its device and the number of trials."""

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
        """Return a line with the latency, the device and the number of trials."""
        return (
            f"whole network through Relax: {self.latency_ms:.4f} ms on {self.where} for {self.target}, "
            f"{self.tuned} of {self.functions} functions tuned by {self.trials} trials in all, "
            f"{self.known} of them from the records; {self.seconds:.0f} s"
        )


def facts_of(tuning: NetworkTuning, of: str, target: str, seconds: float) -> NetworkFacts:
    """Return the data of a network tuned for ``target`` in ``seconds``; ``of`` is the store's name of the latency."""
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

    The result is the file ``path`` with a suffix that shows the kind of file. The folder ``keep`` has the schedules in
    MetaSchedule's own format. With ``is_here``, raise an error if this machine cannot run the code.
    """
    import torch  # noqa: F401 - before TVM, because torch reads the program

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
    for schedule in schedules:
        module = tvm.ir.load_json(schedule.module)
        trace = apply_trace(module, json.loads(schedule.trace)).trace
        arguments = ArgInfo.from_entry_func(module, remove_preproc=True)
        workload = database.commit_workload(module)
        record = ms.database.TuningRecord(trace, workload, [schedule.seconds], target, arguments)
        database.commit_tuning_record(record)


def run_all(device: Device, networks: Sequence[Compiled], rounds: int, repeats: int) -> Runs:
    """Run networks in turn, ``rounds`` times with ``repeats`` samples; compare each first output with torch's."""
    import numpy as np
    import tvm
    from tvm.runtime.vm import VirtualMachine

    session, address = open_session(device)
    timed, errors = [], []
    seconds: list[list[list[float]]] = [[] for _ in networks]
    with in_words(device.key):
        where = session.device(device.kind, 0)
        for network in networks:
            with np.load(network.check) as check:
                x, expected = check["x"], check["expected"]
            machine = VirtualMachine(upload(session, network.path), where)
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
            for index in places:
                evaluator, tensor = timed[index]
                seconds[index].append([float(value) for value in evaluator(tensor).results])
    return Runs(errors, seconds, address)
