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

#: The builder of a network's functions, whose texts are TVM modules, not operators.
NETWORK_BUILDER = "syno_lab.codegen.tvm_network:task_module"

#: What TVM makes of a schedule's trace: its instructions and its decisions, as data of JSON.
TraceData = list[Any]

_DTYPES = ("float16", "float32", "float64")


@dataclass(frozen=True)
class TuningTask:
    """One operator under one binding, to be tuned.

    ``operator`` is the operator's JSON text and ``binding`` gives every variable its value (``N`` is the batch, 1 for
    latencies). ``builder`` names the function ``(operator, binding, dtype) -> tvm.IRModule`` with one PrimFunc ``main``
    (inputs and weights first, the output last) which the child process imports and calls. It is code: pass only names
    that you trust, and never one that was read from a file.

    ``calls`` is how often one example calls it, by which a scheduler weighs it. ``digest`` is TVM's structural hash of
    the program with the names of its blocks, by which records know it in place of its text, whose other names differ
    from network to network.
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
        """The task as JSON data, for a job."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"binding": dict(self.binding)}

    def __reduce__(self) -> tuple[type[TuningTask], tuple[JSON, ...]]:
        return TuningTask, tuple(self.request().values())  # to another process: a read-only mapping does not go there


@dataclass(frozen=True)
class TuningProgress:
    """The progress of a tuning: ``trial`` of at most ``trials`` candidates were tried, ``failed`` of them failed.

    ``known`` of the trials were in the records already. ``best_ms`` is the best latency so far in milliseconds (None
    before the first candidate that ran), ``seconds_per_trial`` counts everything since the start, imports included, and
    ``left_s`` the seconds that the remaining trials of all operators in the queue take at this pace.
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
        """The pace so far."""
        return 3600 / self.seconds_per_trial if self.seconds_per_trial > 0 else 0.0

    def __str__(self) -> str:
        """One line: ``trial 5 of 16, best 0.1234 ms, 7,200 trials an hour, 6 s left``."""
        best = "none has run" if self.best_ms is None else f"best {self.best_ms:.4f} ms"
        failed = f", {self.failed} failed" if self.failed else ""
        minutes, seconds = divmod(round(self.left_s), 60)
        left = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
        pace = f"{self.trials_per_hour:,.0f} trials an hour"
        return f"trial {self.trial} of {self.trials}, {best}{failed}, {pace}, {left} left"


@dataclass(frozen=True)
class TuningResult:
    """A finished tuning. All latencies are in milliseconds for one call, measured on the device over RPC.

    ``latency_ms`` is the median and ``best_ms`` the least of ``repeats`` fresh measurements of the best candidate, made
    after the search. ``trials`` candidates were tried (fewer than asked for when the space or the time ran out),
    ``failed`` of them did not compile or run. ``seconds`` is the whole wall time as the caller saw it. ``history``
    holds the best latency of the search after each trial. ``verified`` says that the winner's output on the device was
    compared with the unscheduled program's on this machine (a difference is an error, not a result); it is False only
    where that program was too slow to run.

    ``known`` of the trials came from the records of earlier tunings; ``from_records`` says that all did and nothing was
    measured now (``seconds`` is then the time of the recorded tuning). ``stopped`` is why the search ended: ``budget``,
    ``time``, or ``space`` where no further candidate was found. ``conditions`` are the board's threads and power mode.
    ``method`` describes the method (empty for TVM's own), and ``trace`` the winner's schedule as TVM's JSON text, which
    :func:`~syno_lab.tuning.explain.explain_schedule` reads.
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
        """Wall seconds for each candidate tried in this tuning, all overhead counted."""
        return self.seconds / max(self.trials - self.known, 1)

    def to_dict(self) -> dict[str, JSON]:
        """The result as JSON data, with its version."""
        return {"version": RESULT_VERSION} | asdict(self) | {"history": [list(point) for point in self.history]}

    @classmethod
    def from_dict(cls, data: JSON) -> TuningResult:
        """Inverse of :meth:`to_dict`; raises :class:`FormatError` on other versions, fields and types."""
        if not isinstance(data, Mapping) or data.get("version") != RESULT_VERSION:
            found = quoted(data.get("version") if isinstance(data, Mapping) else data)
            raise FormatError(f"tuning result: expected version {RESULT_VERSION}, found {found}")
        given = {name: value for name, value in data.items() if name != "version"}
        if odd := given.keys() ^ {one.name for one in fields(cls)}:
            raise FormatError(f"tuning result: missing or unknown fields {quoted(sorted(odd))}")
        try:
            result: TuningResult = msgspec.convert(given, cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"tuning result: {reason(error)}") from None
        numbers = result.latency_ms, result.best_ms, result.seconds, *(best for _, best in result.history)
        if not all(map(math.isfinite, numbers)):
            raise FormatError(f"tuning result: expected finite numbers, found {quoted(numbers)}")
        return result
