"""The inputs and results of a tuning as plain values. Imports no TVM."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

import msgspec

from syno_lab.errors import FormatError, TuningError
from syno_lab.inputs import positive, quoted
from syno_lab.versioned import JSON, reason

#: The version of :meth:`TuningResult.to_dict`.
RESULT_VERSION = 3

#: The builder of a network's functions; the text of such a task is a TVM module, not an operator.
NETWORK_BUILDER = "syno_lab.codegen.tvm_network:task_module"

#: TVM's form of a schedule's trace: its instructions and its decisions, as JSON data.
TraceData = list[Any]

_DTYPES = ("float16", "float32", "float64")


@dataclass(frozen=True)
class TuningTask:
    """An operator under a binding, to be tuned.

    ``operator`` is the operator's JSON text, and ``binding`` has the value of every variable (``N`` is the batch, 1 for
    latencies). ``builder`` names the function ``(operator, binding, dtype) -> tvm.IRModule``, which the child process
    imports and calls; this TVM module has one PrimFunc ``main`` (inputs and weights first, the output last). A builder
    is code: pass only trusted names, and never a name that was read from a file.

    ``calls`` is the number of calls for one example, by which a scheduler weighs the operator. ``digest`` is TVM's
    structural hash of the program with the names of its blocks. The hash replaces the program's text in records' keys,
    because other names in the text differ between networks.
    """

    label: str
    operator: str
    binding: Mapping[str, int]
    dtype: str = "float32"
    builder: str = "syno_lab.codegen.tvm_target:lower_json"
    calls: int = 1
    digest: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "binding", MappingProxyType({name: positive(size) or size for name, size in self.binding.items()})
        )
        if self.dtype not in _DTYPES:
            raise TuningError(f"{self.label}: expected a dtype among {', '.join(_DTYPES)}, found {quoted(self.dtype)}")
        if self.builder.count(":") != 1 or not all(self.builder.split(":")):
            raise TuningError(f"{self.label}: expected a builder as 'module:function', found {quoted(self.builder)}")
        if positive(self.calls) is None:
            raise TuningError(f"{self.label}: expected a number of calls above 0, found {quoted(self.calls)}")

    def __hash__(self) -> int:
        return hash((self.label, self.operator, tuple(sorted(self.binding.items())), self.dtype, self.builder))

    def request(self) -> dict[str, JSON]:
        """Return the task as JSON data, for a job."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)} | {"binding": dict(self.binding)}

    def __reduce__(self) -> tuple[type[TuningTask], tuple[JSON, ...]]:
        return TuningTask, tuple(self.request().values())  # pickle refuses a read-only mapping


@dataclass(frozen=True)
class TuningProgress:
    """The progress of a tuning: ``trial`` of at most ``trials`` candidates were tried, ``failed`` of them failed.

    ``known`` is the number of trials that were already in the records. ``best_ms`` is the best latency so far in
    milliseconds (None before the first candidate that ran). ``seconds_per_trial`` counts all time since the start,
    including imports. ``left_s`` is the time of the queue's remaining trials at this pace, in seconds.
    """

    label: str
    trial: int
    trials: int
    failed: int
    best_ms: float | None
    seconds_per_trial: float
    known: int = 0
    left_s: float = 0.0

    @property
    def trials_per_hour(self) -> float:
        """The number of trials per hour so far."""
        return 3600 / self.seconds_per_trial if self.seconds_per_trial > 0 else 0.0

    def __str__(self) -> str:
        """Return a line such as ``trial 5 of 16, best 0.1234 ms, 7,200 trials an hour, 6 s left``."""
        best = "none has run" if self.best_ms is None else f"best {self.best_ms:.4f} ms"
        failed = f", {self.failed} failed" if self.failed else ""
        minutes, seconds = divmod(round(self.left_s), 60)
        remaining = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
        pace = f"{self.trials_per_hour:,.0f} trials an hour"
        return f"trial {self.trial} of {self.trials}, {best}{failed}, {pace}, {remaining} left"


@dataclass(frozen=True)
class TuningResult:
    """A finished tuning. All latencies are in milliseconds for one call, measured on the device over RPC.

    ``latency_ms`` is the median and ``best_ms`` the least of ``repeats`` new measurements of the best candidate, made
    after the search. ``trials`` candidates were tried (fewer than requested if the space or the time was used up), and
    ``failed`` of them did not compile or run. ``seconds`` is the wall time of the caller. ``history`` has the best
    latency of the search after each trial. With ``verified``, the best candidate's output on the device was compared
    with the output of the unscheduled program on this machine; a difference raises an error. ``verified`` is False only
    if the unscheduled program was too slow to run.

    ``known`` is the number of trials from the records of earlier tunings. With ``from_records``, all trials are from
    records, nothing was measured now, and ``seconds`` is the time of the recorded tuning. ``stopped`` is the reason of
    the search's end: ``budget``, ``time``, or ``space`` if no further candidate was found. ``conditions`` are the
    board's threads and power mode. ``method`` describes the method (empty for TVM's own), and ``trace`` is the best
    schedule as TVM's JSON text, for :func:`~syno_lab.tuning.explain.explain_schedule`.
    """

    label: str
    latency_ms: float
    best_ms: float
    repeats: int
    trials: int
    failed: int
    seconds: float
    target: str
    tvm_version: str
    seed: int
    verified: bool
    history: tuple[tuple[int, float], ...] = field(default=(), repr=False)
    known: int = 0
    from_records: bool = False
    stopped: str = "budget"
    preset: str = "quick"
    conditions: str = "unknown"
    method: str = ""
    trace: str = field(default="", repr=False)

    @property
    def seconds_per_trial(self) -> float:
        """Wall seconds for each candidate that this tuning tried, including all overhead."""
        return self.seconds / max(self.trials - self.known, 1)

    def to_dict(self) -> dict[str, JSON]:
        """Return the result as JSON data, with the version of the format."""
        return {"version": RESULT_VERSION} | asdict(self) | {"history": [list(point) for point in self.history]}

    @classmethod
    def from_dict(cls, data: JSON) -> TuningResult:
        """Read data of :meth:`to_dict`. Raises :class:`FormatError` for other versions, fields and types."""
        if not isinstance(data, Mapping) or data.get("version") != RESULT_VERSION:
            version = quoted(data.get("version") if isinstance(data, Mapping) else data)
            raise FormatError(f"tuning result: expected version {RESULT_VERSION}, found {version}")
        settings = {name: value for name, value in data.items() if name != "version"}
        if odd := settings.keys() ^ {entry.name for entry in fields(cls)}:
            raise FormatError(f"tuning result: missing or unknown fields {quoted(sorted(odd))}")
        try:
            result: TuningResult = msgspec.convert(settings, cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"tuning result: {reason(error)}") from None
        numbers = result.latency_ms, result.best_ms, result.seconds, *(best for _, best in result.history)
        if not all(map(math.isfinite, numbers)):
            raise FormatError(f"tuning result: expected finite numbers, found {quoted(numbers)}")
        return result
