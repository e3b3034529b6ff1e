"""What was measured, kept for good: one file for each operator, sizes, dtype, target and TVM; nothing is tuned twice.

A file holds lines that are only ever appended, each with a digest of its own: the key first, then every candidate with
its schedule and its seconds, and every result. A finished line survives a kill at any moment. A torn or altered line is
moved to a file beside it and costs itself alone; a full disk is an error and leaves what was there. While a tuning
writes a file nobody else does. (TVM's own database loses all to one torn line, mixes two writers up and swallows a full
disk: what we make of it is an export.)
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from syno_lab.errors import FormatError, StoreError, SynoError, TuningError
from syno_lab.evaluate.tuning.process import cores
from syno_lab.evaluate.tuning.values import TuningResult, TuningTask

FORMAT = "syno-lab-tuning"
VERSION = 1
_DIGEST = 16


@dataclass(frozen=True)
class TuningKey:
    """What a latency is of. Two keys are of one record when all of it is equal.

    ``fingerprint`` is the operator's semantic fingerprint under the binding (empty where it has none) and ``program``
    a digest of the operator as it is written and of the method, unless that is the default: two pGraphs of one function
    have different loops and different latencies.
    ``target`` is TVM's JSON text, ``conditions`` what the board says of itself: threads and power mode.
    """

    fingerprint: str
    program: str
    binding: str
    dtype: str
    target: str
    tvm: str
    conditions: str

    @property
    def name(self) -> str:
        """The name of the record's file."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32]

    def difference(self, other: TuningKey) -> str:
        """The first field in which another key differs, in words."""
        mine, its = asdict(self), asdict(other)
        name = next(one for one in mine if mine[one] != its[one])
        return f"{name} {its[name]!r} where {mine[name]!r} is expected"


def key_of(task: TuningTask, target: str, tvm: str, conditions: str, method: str = "") -> TuningKey:
    """The key of ``task`` for a target as TVM writes it, searched by ``method`` in words. Needs no TVM."""
    from syno_lab.ir.files import from_json, to_json
    from syno_lab.ir.fingerprint import fingerprint

    text, name = task.operator, ""
    with contextlib.suppress(SynoError):  # a task of a network is a TVM module; some operators have too many terms
        operator = from_json(text)
        text = to_json(operator)
        name = fingerprint(operator, dict(task.binding))
    # What one method found says nothing of another's space. The default adds nothing: older records stay valid.
    how = f"\n{method}" if method else ""
    program = hashlib.sha256(f"{task.builder}\n{text}{how}".encode()).hexdigest()[:32]
    binding = json.dumps(dict(sorted(task.binding.items())))
    return TuningKey(name, program, binding, task.dtype, target, tvm, conditions)


@dataclass(frozen=True)
class Trial:
    """One candidate: its schedule as a trace in TVM's JSON, and the seconds of a call (none where it failed, and why).

    ``board`` is the address of the device that measured it.
    """

    trace: Any
    seconds: tuple[float, ...]
    reason: str = ""
    board: str = ""
    at: str = ""


@dataclass
class Record:
    """The record of one key, open for writing: see :func:`open_record`."""

    key: TuningKey
    path: Path
    trials: list[Trial] = field(default_factory=list)
    results: list[TuningResult] = field(default_factory=list)
    damaged: int = 0

    def add_trial(self, trial: Trial) -> None:
        """Append a candidate; it is on the disk when this returns. Raises :class:`StoreError`."""
        self._append({"kind": "trial", **asdict(trial), "at": datetime.now(UTC).isoformat(timespec="milliseconds")})
        self.trials.append(trial)

    def add_result(self, result: TuningResult) -> None:
        """Append the outcome of a tuning. Raises :class:`StoreError`."""
        self._append({"kind": "result", "result": result.to_dict()})
        self.results.append(result)

    def answer(self, trials: int) -> TuningResult | None:
        """The last result where it stands for a budget of ``trials``: they are spent, or the space has no more."""
        if not self.results or len(self.trials) > self.results[-1].trials:
            return None  # more has been measured since
        last = self.results[-1]
        return last if last.trials >= trials or last.stopped == "space" else None

    def _append(self, data: dict[str, Any]) -> None:
        left = _line(data)
        # Unbuffered: a buffer that could not be written would be written when the file is closed.
        with _told(self.path), self.path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    os.truncate(self.path, before)
                raise


def _line(data: dict[str, Any]) -> bytes:
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    return hashlib.sha256(text).hexdigest()[:_DIGEST].encode() + b" " + text + b"\n"


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the tuning record {path} cannot be read or written ({error.strerror or error}): check free space and "
            "permissions; what was recorded is safe"
        ) from None


@contextlib.contextmanager
def open_record(folder: str | os.PathLike[str], key: TuningKey) -> Iterator[Record]:
    """The record of ``key`` in a folder of records, made where there is none; ours alone inside the block.

    Raises:
        TuningError: another process is tuning this; the file is the record of something else.
        StoreError: the disk does not let us.
    """
    place = Path(folder) / f"{key.name}.jsonl"
    with contextlib.ExitStack() as stack:
        with _told(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(place.with_suffix(".lock").open("ab"))
            _lock(lock, place)
            lines, damaged = _read(place)
        if lines and lines[0].get("kind") == "key":
            found = _key(lines[0], place)
            if found != key:
                raise TuningError(
                    f"{place} is the record of another operator or target: it has {key.difference(found)}; "
                    "move it away, or use another folder"
                )
        record = Record(key, place, damaged=len(damaged))
        if damaged or not lines:
            whole = [_header(key), *(one for one in lines if one.get("kind") != "key")]
            _rewrite(place, whole, damaged)
            lines = whole
        for data in lines:
            _take(record, data)
        yield record


def _header(key: TuningKey) -> dict[str, Any]:
    return {"kind": "key", "format": FORMAT, "version": VERSION, **asdict(key)}


def _lock(lock: IO[bytes], place: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TuningError(f"another process is tuning this and writes {place}: wait for it or end it") from None


def _read(place: Path) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The lines that are whole, and those that are not."""
    if not place.exists():
        return [], []
    good: list[dict[str, Any]] = []
    bad: list[bytes] = []
    *whole, torn = place.read_bytes().split(b"\n")
    for line in whole:
        seal, _, text = line.partition(b" ")
        if seal.decode("ascii", "replace") != hashlib.sha256(text).hexdigest()[:_DIGEST]:
            bad.append(line)
            continue
        good.append(json.loads(text))
    return good, [*bad, torn] if torn else bad


def _rewrite(place: Path, lines: list[dict[str, Any]], damaged: list[bytes]) -> None:
    """Put the whole lines into a new file in the old one's place; the damaged ones go beside it."""
    with _told(place):
        if damaged:
            with place.with_suffix(".damaged").open("ab") as beside:
                beside.write(b"".join(line + b"\n" for line in damaged))
        fresh = place.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(b"".join(map(_line, lines)))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(place)


def _key(data: Mapping[str, Any], place: Path) -> TuningKey:
    if data.get("format") != FORMAT or data.get("version") != VERSION:
        raise TuningError(f"{place}: expected a tuning record of version {VERSION}, found {data.get('version')!r}")
    try:
        return TuningKey(**{name: value for name, value in data.items() if name not in ("kind", "format", "version")})
    except TypeError:
        raise TuningError(f"{place}: expected the fields of a tuning record's key, found others") from None


def _take(record: Record, data: dict[str, Any]) -> None:
    """Add what one line says; a line whose digest is right but whose content is not is counted as damaged."""
    try:
        if data["kind"] == "trial":
            seconds = tuple(float(one) for one in data["seconds"])
            if not all(math.isfinite(one) and one > 0 for one in seconds):
                raise ValueError(seconds)
            record.trials.append(Trial(data["trace"], seconds, data["reason"], data["board"], data["at"]))
        elif data["kind"] == "result":
            record.results.append(TuningResult.from_dict(data["result"]))
    except (KeyError, TypeError, ValueError, FormatError):
        record.damaged += 1


def known_target(folder: str | os.PathLike[str], name: str, tvm: str) -> str | None:
    """TVM's JSON text for a target that was resolved before on this machine, so that TVM need not be asked again."""
    try:
        found = json.loads((Path(folder) / _TARGETS).read_text(encoding="utf-8")).get(_target_key(name, tvm))
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def remember_target(folder: str | os.PathLike[str], name: str, tvm: str, text: str) -> None:
    """Keep TVM's text for a target for :func:`known_target`; it can be found out again, so no error is raised."""
    place = Path(folder) / _TARGETS
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            known = dict(json.loads(place.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            known = {}
        fresh = place.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({**known, _target_key(name, tvm): text}, indent=1), encoding="utf-8")
        fresh.replace(place)


_TARGETS = "targets.json"


def _target_key(name: str, tvm: str) -> str:
    """``local`` means another target where the processor, its features or those that we may use are others."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = "\n".join(sorted({one for one in told if one.startswith(("model name", "flags", "Features"))}))
    facts = f"{processor}\n{platform.node()}\n{cores()}"
    return f"{name} {tvm} {hashlib.sha256(facts.encode()).hexdigest()[:16]}"


def list_records(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """What the records in a folder hold, each with its newest result: for tables. No lock, and nothing is changed."""
    rows = []
    for place in sorted(Path(folder).glob("*.jsonl")):
        with _told(place):
            lines, damaged = _read(place)
        if not lines or lines[0].get("kind") != "key":
            continue
        key = _key(lines[0], place)
        record = Record(key, place, damaged=len(damaged))
        for data in lines:
            _take(record, data)
        last = record.results[-1] if record.results else None
        rows.append(
            {
                "label": last.label if last else "",
                "fingerprint": key.fingerprint,
                "binding": json.loads(key.binding),
                "dtype": key.dtype,
                "target": key.target,
                "tvm": key.tvm,
                "conditions": key.conditions,
                "trials": len(record.trials),
                "failed": sum(not one.seconds for one in record.trials),
                "latency_ms": last.latency_ms if last else None,
                "damaged": record.damaged,
                "file": place.name,
            }
        )
    return rows
