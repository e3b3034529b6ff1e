"""Measure one operator in PyTorch eager, in ``torch.compile`` and in TVM, or several schedules in turn.

Each way to run the operator has its own process, with the same number of threads. The processes take samples in turn,
in rounds, so that a disturbance affects all ways. A sample is many calls, timed together. Medians are reported with the
spread between the quartiles. Notes name everything that makes the medians doubtful: a spread above a limit, load of
other processes, time that a hypervisor took, and a changing clock rate (from Linux's counters).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from syno_lab.errors import TuningError
from syno_lab.generated import fill
from syno_lab.processes.process import cores
from syno_lab.processes.worker import CallFailedError, Worker, once
from syno_lab.scratch import scratch
from syno_lab.systems import read_operator
from syno_lab.tuning.child import load_module
from syno_lab.tuning.jobs import apply_trace, compile_candidate, draw
from syno_lab.tuning.records import TuningKey, open_record
from syno_lab.tuning.search import TOLERANCE, shape_and_dtype
from syno_lab.tuning.targets import LOCAL, resolve
from syno_lab.tuning.values import TraceData, TuningTask
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    import numpy as np

_T = TypeVar("_T")

#: The ways to run an operator (eager, compiled, TVM), in the order in which they are shown.
WAYS = {"eager": "PyTorch eager", "compile": "torch.compile", "tvm": "TVM"}

#: The largest distance between the quartiles without a note, as a share of the median.
SPREAD_LIMIT = 0.1
#: Seconds for timing schedules or operators in turn.
_BESIDE_S = 600.0
#: The limits for notes: share of time that a hypervisor took, share of the machine that other processes used, relative
#: change of the clock rate.
_STOLEN_LIMIT, _OTHERS_LIMIT, _CLOCK_LIMIT = 0.02, 0.1, 0.05


@dataclass(frozen=True)
class Timing:
    """Milliseconds for one call: median, quartiles and least of ``samples``, each of ``calls`` calls.

    ``error`` is the largest difference from the output of the first way, relative to the largest output; None for that
    way.
    """

    way: str
    median_ms: float
    low_ms: float
    high_ms: float
    best_ms: float
    samples: int
    calls: int
    error: float | None
    notes: tuple[str, ...] = ()

    @property
    def spread(self) -> float:
        """The distance between the quartiles, divided by the median."""
        return (self.high_ms - self.low_ms) / self.median_ms

    def __str__(self) -> str:
        """Return a line such as ``PyTorch eager: 0.2520 ms (0.2510 to 0.2540, best 0.2490)``."""
        name = WAYS.get(self.way, self.way)
        return f"{name}: {self.median_ms:.4f} ms ({self.low_ms:.4f} to {self.high_ms:.4f}, best {self.best_ms:.4f})"


@dataclass(frozen=True)
class Comparison:
    """The timings of an operator in several ways, with notes on disturbances, and the ways that could not run."""

    label: str
    threads: int
    timings: tuple[Timing, ...]
    notes: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)

    def get(self, way: str) -> Timing | None:
        """Return the timing of a way to run the operator; None if the way was not measured."""
        return next((timing for timing in self.timings if timing.way == way), None)

    def speedup(self, way: str, over: str = "eager") -> float | None:
        """Return the speedup of a way over another way, by their medians; None if a timing is missing."""
        timing, its = self.get(way), self.get(over)
        return None if timing is None or its is None else its.median_ms / timing.median_ms

    def to_dict(self) -> dict[str, JSON]:
        """Return the comparison as JSON data."""
        return asdict(self) | {"timings": [asdict(timing) | {"spread": timing.spread} for timing in self.timings]}


def measure(
    task: TuningTask,
    ways: Sequence[str] = tuple(WAYS),
    *,
    record: tuple[str | os.PathLike[str], TuningKey] | None = None,
    threads: int | None = None,
    warmup: int = 3,
    repeats: int = 20,
    min_ms: float = 20.0,
    rounds: int = 4,
    seed: int = 0,
    deadline_s: float = 300.0,
) -> Comparison:
    """Measure one operator on this machine's processor in several ``ways``, a subset of :data:`WAYS`.

    ``record`` is a folder and the key of a tuning's record in it. TVM runs the best schedule of this record. Without
    ``record``, TVM runs unscheduled loops, which are slow. Each way takes ``warmup`` samples that do not count and
    ``repeats`` samples that count, of at least ``min_ms`` milliseconds, in ``rounds`` that alternate between the ways.
    Each way has ``threads`` threads (default: all processors). All ways have the same random inputs, from ``seed``.

    Raises :class:`TuningError` for unknown ways, for numbers out of range, if no way could run, and if two ways compute
    different outputs. A single way that fails is listed in ``failed``.
    """
    unknown = [way for way in ways if way not in WAYS]
    if unknown or not ways:
        raise TuningError(f"expected ways among {', '.join(WAYS)}, found {', '.join(unknown) or 'none'}")
    if min(warmup, repeats - 1, rounds - 1) < 0 or min_ms <= 0 or deadline_s <= 0:
        raise TuningError(f"expected at least one sample of some milliseconds, found {repeats} of {min_ms:g} ms")
    used = threads or cores()
    deadline = time.monotonic() + deadline_s
    trace = _best_trace(record) if "tvm" in ways and record is not None else None
    failed: dict[str, str] = {}
    calls: dict[str, int] = {}
    samples: dict[str, list[float]] = {way: [] for way in ways}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch("syno-measure-"))
        environment = {f"{name}_NUM_THREADS": str(used) for name in ("OMP", "MKL", "TVM")} | {"TMPDIR": str(folder)}
        runners = {way: Worker(folder / f"{way}.log", environment, has_tvm=way == "tvm") for way in ways}
        for worker in runners.values():
            stack.callback(worker.close)

        def ask(way: str, function: Callable[..., _T], *arguments: Any) -> _T | None:
            """Call the function in the way's process; after a failure return None, with the reason in ``failed``."""
            try:
                return runners[way].call(function, *arguments, deadline_s=max(deadline - time.monotonic(), 0.0))
            except CallFailedError as failure:
                failed[way] = str(failure)
                return None

        # A build during another way's warm-up would distort the number of calls in a sample.
        for way in ways:
            output = folder / f"{way}.npy"
            calls[way] = ask(way, _prepare, way, task, seed, used, min_ms, warmup, trace, output) or 0
        before = _Machine.now()
        share = [repeats // rounds + (n < repeats % rounds) for n in range(rounds)]
        for number, count in enumerate(size for size in share if size):
            for way in ways if number % 2 == 0 else tuple(reversed(ways)):
                if way not in failed:
                    samples[way] += ask(way, _samples, count) or []
        after = _Machine.now()
        errors = _errors(task, [way for way in ways if way not in failed], folder)
    timings = [
        _timing(way, samples[way], calls[way], errors.get(way)) for way in ways if way not in failed and samples[way]
    ]
    if not timings:
        raise TuningError(f"{task.label}: " + "; ".join(f"{WAYS[way]}: {why}" for way, why in failed.items()))
    return Comparison(task.label, used, tuple(timings), tuple(after.disturbed_since(before, used)), failed)


def time_schedules(task: TuningTask, traces: Mapping[str, str], rounds: int = 100) -> dict[str, list[float]]:
    """Measure single calls in milliseconds: in each of ``rounds`` rounds, one call of every schedule in turn.

    ``traces`` come from tunings' results. On a busy machine, a call is shorter than a time slice of the operating
    system, so the least of many times is undisturbed. Raises :class:`TuningError`.
    """
    return time_operators({name: (task, trace) for name, trace in traces.items()}, rounds, task.label)


def time_operators(
    tuned: Mapping[str, tuple[TuningTask, str]], rounds: int = 100, label: str = "time_operators"
) -> dict[str, list[float]]:
    """Measure schedules of different operators as :func:`time_schedules` does; each name maps to a task and a trace.

    Raises :class:`TuningError`, with a message that begins with ``label``.
    """
    if rounds < 1 or not tuned:
        raise TuningError(f"{label}: expected schedules and at least one round, found {len(tuned)} and {rounds}")
    try:
        plain = {name: (task, json.loads(trace)) for name, (task, trace) in tuned.items()}
    except ValueError:
        raise TuningError(f"{label}: expected traces as TVM's JSON text") from None
    return once(label, _times, plain, rounds, deadline_s=_BESIDE_S)


def _timing(way: str, seconds: list[float], calls: int, error: float | None) -> Timing:
    times = sorted(1e3 * value for value in seconds)
    low, median, high = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    spread = (high - low) / median
    notes = (f"the spread is {spread:.0%} of the median: measure again on a quieter machine",) * (spread > SPREAD_LIMIT)
    return Timing(way, median, low, high, times[0], len(times), calls, error, notes)


def _best_trace(record: tuple[str | os.PathLike[str], TuningKey]) -> TraceData:
    with open_record(*record) as stored:
        ran = [trial for trial in stored.trials if trial.seconds]
    if not ran:
        raise TuningError(f"expected a trial that ran in the record {stored.path}, found none; tune the operator first")
    return min(ran, key=lambda trial: statistics.median(trial.seconds)).trace


def _errors(task: TuningTask, ways: Sequence[str], folder: Path) -> dict[str, float]:
    """Return each way's largest difference from the first way, relative to the largest output. Raises TuningError."""
    import numpy as np

    outputs = {
        way: np.load(folder / f"{way}.npy").astype("float64") for way in ways if (folder / f"{way}.npy").exists()
    }
    if not outputs:
        return {}
    name, first = next(iter(outputs.items()))
    scale = max(float(np.abs(first).max()), 1e-30)
    errors = {way: float(np.abs(array - first).max()) / scale for way, array in outputs.items() if way != name}
    for way, error in errors.items():
        if not error <= TOLERANCE[task.dtype]:
            raise TuningError(
                f"{task.label}: {WAYS[way]} computes something else than {WAYS[name]}: they differ by {error:.2g} of "
                "the largest output; please report it"
            )
    return errors


# -- functions that run in the process of a way ------------------------------------------------------------------------

#: The function to time, and a function that returns its output as an array.
_Way = tuple[Callable[[], object], Callable[[], "np.ndarray"]]

#: The largest number of calls in a sample, for calls that take almost no time.
_MOST_CALLS = 100_000

#: The function that this process samples, and the number of calls in a sample.
_PREPARED: list[tuple[Callable[[], object], int]] = []


def _prepare(
    way: str,
    task: TuningTask,
    seed: int,
    threads: int,
    min_ms: float,
    warmup: int,
    trace: TraceData | None,
    output: Path,
) -> int:
    """Load the function that :func:`_samples` calls, write its output to a file, and return the calls per sample."""
    import numpy as np

    operator, binding = read_operator(task.operator), dict(task.binding)
    shapes = [operator.input_sizes(binding), *operator.weight_sizes(binding)]
    arrays = draw([(tuple(shape), task.dtype) for shape in shapes], seed)
    if way == "tvm":
        call, result = _tvm_way(task, arrays, threads, trace)
    else:
        call, result = _torch_way(task, arrays, threads, is_compiled=way == "compile")
    call()  # compiles
    np.save(output, result())
    calls = 1
    while (duration := _sample(call, calls)) < 1e-3 * min_ms and calls < _MOST_CALLS:
        calls = min(max(round(calls * 1.2e-3 * min_ms / max(duration, 1e-9)), calls + 1), 10 * calls)
    for _ in range(warmup):
        _sample(call, calls)
    _PREPARED[:] = [(call, calls)]
    return calls


def _samples(count: int) -> list[float]:
    """Take ``count`` samples; return the seconds of one call in each sample."""
    ((call, calls),) = _PREPARED
    return [_sample(call, calls) / calls for _ in range(count)]


def _sample(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


def _torch_way(task: TuningTask, arrays: list[np.ndarray], threads: int, is_compiled: bool) -> _Way:
    """Return the operator's torch module on the arrays, without gradients."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    module = read_operator(task.operator).to_torch(dict(task.binding)).to(getattr(torch, task.dtype))
    if is_compiled:
        module.compile()
    fill(module.eval(), arrays[1:])
    x = torch.from_numpy(arrays[0])
    return lambda: module(x), lambda: module(x).numpy()


def _tvm_way(task: TuningTask, arrays: list[np.ndarray], threads: int, trace: TraceData | None) -> _Way:
    """Return the operator's TVM function on the arrays, with the schedule of ``trace`` or with unscheduled loops."""
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    module = load_module(task)
    if trace is not None:
        module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(apply_trace(module, trace).mod)
    function = tvm.compile(module, target=resolve(f"{LOCAL}:{threads}").tvm)["main"]
    buffers = [tvm.runtime.tensor(array) for array in arrays]
    output = tvm.runtime.empty(read_operator(task.operator).output_sizes(dict(task.binding)), task.dtype)
    return lambda: function(*buffers, output), lambda: output.numpy()


def _times(tuned: dict[str, tuple[TuningTask, TraceData]], rounds: int) -> dict[str, list[float]]:
    """Run :func:`time_operators` in a worker; the traces are JSON data."""
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    target, device = resolve(LOCAL).tvm, tvm.cpu()
    calls = {}
    for number, (name, (task, trace)) in enumerate(tuned.items()):
        module = load_module(task)
        *inputs, output = [shape_and_dtype(info) for info in ArgInfo.from_entry_func(module, remove_preproc=False)]
        buffers = [tvm.runtime.tensor(array, device) for array in draw(inputs, 0)]
        buffers.append(tvm.runtime.empty(*output, device=device))
        # Each library has its own name, because a process loads a path only once.
        path = f"{tempfile.gettempdir()}/{number}.so"
        compile_candidate(apply_trace(module, trace).mod, target, path)
        library = tvm.runtime.load_module(path)
        calls[name] = library.time_evaluator("main", device, number=1, repeat=1), buffers
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, (timer, buffers) in calls.items():
            times[name].append(float(timer(*buffers).results[0]) * 1e3)
    return times


# -- the machine -------------------------------------------------------------------------------------------------------


class _Machine(NamedTuple):
    """The machine's counters: seconds of all processors (busy, stolen, total), and the clock rate in MHz, if known."""

    busy: float
    stolen: float
    total: float
    mhz: float | None

    @classmethod
    def now(cls) -> _Machine:
        """Return the current counters."""
        import psutil

        # Linux counts the time of virtual guests as time of users too.
        took = {name: s for name, s in psutil.cpu_times()._asdict().items() if not name.startswith("guest")}
        stolen, total, clock = took.get("steal", 0.0), sum(took.values()), None
        with contextlib.suppress(NotImplementedError, OSError):
            clock = psutil.cpu_freq()
        busy = total - took["idle"] - took.get("iowait", 0.0) - stolen
        return cls(busy, stolen, total, None if clock is None else clock.current)

    def disturbed_since(self, before: _Machine, threads: int) -> Iterator[str]:
        """Yield notes on disturbances, since ``before``, of a measurement in ``threads`` threads."""
        processors = os.cpu_count() or 1
        if self.total > before.total:
            took = self.total - before.total
            stolen = (self.stolen - before.stolen) / took
            by_others = (self.busy - before.busy) / took - threads / processors
            if stolen > _STOLEN_LIMIT:
                yield f"the hypervisor took {stolen:.0%} of the processors' time away"
            if by_others > _OTHERS_LIMIT:
                yield f"other processes used {by_others:.0%} of the {processors} processors besides"
        load = os.getloadavg()[0]
        if load > processors + 0.5:
            yield f"the load is {load:.1f} on {processors} processors"
        if self.mhz and before.mhz and abs(self.mhz - before.mhz) > _CLOCK_LIMIT * before.mhz:
            yield f"the clock went from {before.mhz:.0f} to {self.mhz:.0f} MHz"
