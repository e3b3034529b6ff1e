"""Measure one operator in PyTorch eager, in ``torch.compile`` and in TVM, with notes on disturbances.

Each way runs in its own process (:mod:`~syno_lab.tuning.measuring_child`), all with the same number of threads. The
ways take samples in turn, in rounds, so that a disturbance affects all of them; a sample is many calls, timed together.
Medians are reported with the spread between the quartiles, and notes name all that makes them doubtful: a spread above
a limit, and, from Linux's counters, load of other processes, time taken by a hypervisor, a changing clock rate.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from syno_lab.errors import TuningError
from syno_lab.processes.process import cores
from syno_lab.scratch import scratch
from syno_lab.tuning.conversation import Conversation
from syno_lab.tuning.records import TuningKey, open_record
from syno_lab.tuning.values import TuningTask

#: The ways of running an operator, in the order in which they are shown.
WAYS = {"eager": "PyTorch eager", "compile": "torch.compile", "tvm": "TVM"}

#: A note is written if the spread between the quartiles is a larger share of the median.
SPREAD_LIMIT = 0.1
#: The limits of other notes: share of time stolen by a hypervisor, share of the machine that other processes
#: used, relative change of the clock rate.
_STOLEN_LIMIT, _OTHERS_LIMIT, _CLOCK_LIMIT = 0.02, 0.1, 0.05
#: If two ways differ by more, relative to the largest output, they do not compute the same.
_TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-10}


@dataclass(frozen=True)
class Timing:
    """Milliseconds for one call: median, quartiles and least of ``samples``, each of ``calls`` calls.

    ``error`` is the largest difference from the first way's output relative to the largest output, None for that first
    way itself.
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
        """The distance between the quartiles over the median."""
        return (self.high_ms - self.low_ms) / self.median_ms

    def __str__(self) -> str:
        """``PyTorch eager: 0.2520 ms (0.2510 to 0.2540, best 0.2490)``."""
        name = WAYS.get(self.way, self.way)
        return f"{name}: {self.median_ms:.4f} ms ({self.low_ms:.4f} to {self.high_ms:.4f}, best {self.best_ms:.4f})"


@dataclass(frozen=True)
class Comparison:
    """One operator run in several ways, with notes on disturbances and the ways that could not run."""

    label: str
    threads: int
    timings: tuple[Timing, ...]
    notes: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)

    def get(self, way: str) -> Timing | None:
        """The timing of one way."""
        return next((one for one in self.timings if one.way == way), None)

    def speedup(self, way: str, over: str = "eager") -> float | None:
        """How many times faster one way is than another, by their medians; None if one was not measured."""
        mine, its = self.get(way), self.get(over)
        return None if mine is None or its is None else its.median_ms / mine.median_ms

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self) | {"timings": [asdict(one) | {"spread": one.spread} for one in self.timings]}


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
    """Time one operator on this machine's processor in several ``ways``, a subset of :data:`WAYS`.

    ``record`` is a folder of records and the key of a tuning, whose best schedule TVM runs; without it, TVM runs
    unscheduled loops, which are slow. Each way takes ``warmup`` samples that do not count and ``repeats`` that do, of
    at least ``min_ms`` milliseconds, in ``rounds`` that alternate between the ways. Each way has ``threads`` threads
    (all processors by default). All ways get the same random inputs, from ``seed``.

    Raises :class:`TuningError` for unknown ways, numbers out of range, if no way could run, and if two ways compute
    different outputs; a single way that fails is listed in ``failed``.
    """
    unknown = [way for way in ways if way not in WAYS]
    if unknown or not ways:
        raise TuningError(f"expected ways among {', '.join(WAYS)}, found {', '.join(unknown) or 'none'}")
    if min(warmup, repeats - 1, rounds - 1) < 0 or min_ms <= 0 or deadline_s <= 0:
        raise TuningError(f"expected at least one sample of some milliseconds, found {repeats} of {min_ms:g} ms")
    used = threads or cores()
    deadline = time.monotonic() + deadline_s
    request = {"task": task.request(), "seed": seed, "threads": used, "min_ms": min_ms, "warmup": warmup}
    failed: dict[str, str] = {}
    samples: dict[str, list[float]] = {way: [] for way in ways}
    states: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch("syno-measure-"))
        runners: dict[str, Conversation] = {}
        environment = {f"{name}_NUM_THREADS": str(used) for name in ("OMP", "MKL", "TVM")} | {"TMPDIR": str(folder)}
        for way in ways:
            trace = _best_trace(record) if way == "tvm" and record is not None else None
            runners[way] = stack.enter_context(
                Conversation("syno_lab.tuning.measuring_child", folder / f"{way}.log", environment)
            )
            runners[way].send({**request, "way": way, "trace": trace, "output": str(folder / f"{way}.npy")})
        # Start the ways one after the other: a build during another's warm-up would distort the number of calls in a
        # sample.
        for way, runner in runners.items():
            _collect(way, runner, deadline, states, failed)
        before = _Machine.now()
        share = [repeats // rounds + (n < repeats % rounds) for n in range(rounds)]
        for number, count in enumerate(one for one in share if one):
            order = list(runners) if number % 2 == 0 else list(runners)[::-1]
            for way in order:
                if way in failed:
                    continue
                runners[way].send({"samples": count})
                answer: dict[str, dict[str, Any]] = {}
                _collect(way, runners[way], deadline, answer, failed)
                samples[way] += answer.get(way, {}).get("seconds", [])
        after = _Machine.now()
        errors = _errors(task, [way for way in ways if way not in failed], folder)
    timings = [
        _timing(way, samples[way], states[way], errors.get(way)) for way in ways if way not in failed and samples[way]
    ]
    if not timings:
        raise TuningError(f"{task.label}: " + "; ".join(f"{WAYS[way]}: {why}" for way, why in failed.items()))
    return Comparison(task.label, used, tuple(timings), tuple(after.disturbed_since(before, used)), failed)


def _collect(
    way: str, runner: Conversation, deadline: float, into: dict[str, dict[str, Any]], failed: dict[str, str]
) -> None:
    answer = runner.answer(max(deadline - time.monotonic(), 0.0))
    if "error" in answer:
        failed[way] = answer["error"]
    else:
        into[way] = answer


def _timing(way: str, seconds: list[float], state: Mapping[str, Any], error: float | None) -> Timing:
    taken = sorted(1e3 * one for one in seconds)
    low, median, high = statistics.quantiles(taken, n=4, method="inclusive") if len(taken) > 1 else taken * 3
    spread = (high - low) / median
    notes = [f"the spread is {spread:.0%} of the median: measure again on a quieter machine"] * (spread > SPREAD_LIMIT)
    if state.get("note"):
        notes.append(state["note"])
    return Timing(way, median, low, high, taken[0], len(taken), state["calls"], error, tuple(notes))


def _best_trace(record: tuple[str | os.PathLike[str], TuningKey]) -> Any:
    with open_record(*record) as found:
        ran = [one for one in found.trials if one.seconds]
    if not ran:
        raise TuningError(f"expected a record of a tuning in {found.path}, found none that ran; tune it first")
    return min(ran, key=lambda one: statistics.median(one.seconds)).trace


def _errors(task: TuningTask, ways: Sequence[str], folder: Path) -> dict[str, float]:
    """The largest difference of each way from the first, in terms of the largest output. Raises TuningError."""
    import numpy as np

    outputs = {
        way: np.load(folder / f"{way}.npy").astype("float64") for way in ways if (folder / f"{way}.npy").exists()
    }
    if not outputs:
        return {}
    name, first = next(iter(outputs.items()))
    scale = max(float(np.abs(first).max()), 1e-30)
    errors = {way: float(np.abs(one - first).max()) / scale for way, one in outputs.items() if way != name}
    for way, error in errors.items():
        if not error <= _TOLERANCE[task.dtype]:
            raise TuningError(
                f"{task.label}: {WAYS[way]} computes something else than {WAYS[name]}: they differ by {error:.2g} of "
                "the largest output; please report it"
            )
    return errors


@dataclass(frozen=True)
class _Machine:
    """The machine's counters: ``ticks`` of all processors (busy, stolen, in all), and the clock rate in MHz.

    None where the system does not provide them.
    """

    ticks: tuple[int, int, int] | None
    mhz: float | None

    @classmethod
    def now(cls) -> _Machine:
        """The counters at this moment."""
        ticks: tuple[int, int, int] | None = None
        with contextlib.suppress(OSError, ValueError, IndexError):
            # man 5 proc_stat: user nice system idle iowait irq softirq steal
            found = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
            ticks = sum(found) - found[3] - found[4] - found[7], found[7], sum(found)
        return cls(ticks, _clock())

    def disturbed_since(self, before: _Machine, threads: int) -> Iterator[str]:
        """Notes on what disturbed a measurement in ``threads`` threads between ``before`` and this moment."""
        processors = os.cpu_count() or 1
        if self.ticks is not None and before.ticks is not None and self.ticks[2] > before.ticks[2]:
            busy, stolen, total = (now - then for now, then in zip(self.ticks, before.ticks, strict=True))
            others = busy / total - threads / processors
            if stolen / total > _STOLEN_LIMIT:
                yield f"the hypervisor took {stolen / total:.0%} of the processors' time away"
            if others > _OTHERS_LIMIT:
                yield f"other processes used {others:.0%} of the {processors} processors besides"
        load = os.getloadavg()[0]
        if load > processors + 0.5:
            yield f"the load is {load:.1f} on {processors} processors"
        if self.mhz and before.mhz and abs(self.mhz - before.mhz) > _CLOCK_LIMIT * before.mhz:
            yield f"the clock went from {before.mhz:.0f} to {self.mhz:.0f} MHz"


def _clock() -> float | None:
    """The mean clock rate of the processors in MHz."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "cpu MHz":
                found.append(float(value))
    return statistics.mean(found) if found else None
