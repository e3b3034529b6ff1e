"""Tuning records: one permanent file for each operator, sizes, dtype, target and TVM, so that nothing is tuned twice.

Lines are only appended to a file, each with its own digest: first the key, then every candidate with its schedule and
its seconds, and every result. A complete line survives a kill at any moment. An incomplete or altered line is moved to
a file beside it, and no other line is lost; a full disk is an error that leaves the file unchanged. Only one tuning at
a time writes a file. (TVM's own database is lost by one incomplete line, mixes the lines of two writers and reports no
full disk; so it serves only as an export.)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from syno_lab import private
from syno_lab.errors import FormatError, StoreError, SynoError, TuningError
from syno_lab.inputs import quoted, read_bytes, read_json
from syno_lab.processes.alone import take
from syno_lab.processes.process import cores
from syno_lab.protocol import Operator
from syno_lab.scratch import put
from syno_lab.systems import builders, format_of, read_operator
from syno_lab.tuning.method import Method
from syno_lab.tuning.values import TraceData, TuningResult, TuningTask
from syno_lab.versioned import JSON

FORMAT = "syno-lab-tuning"
VERSION = 1
_DIGEST = 16
MOST_BYTES = 1 << 28  # of one record file
_Line = dict[str, JSON]


@dataclass(frozen=True)
class TuningKey:
    """The key of a record: all that its latency depends on. Two keys name one record if all fields are equal.

    ``fingerprint`` is the operator's semantic fingerprint under the binding (empty where it has none) and ``program`` a
    digest of the operator's text and of the method: two pGraphs of one function have
    different loops and different latencies. ``target`` is TVM's JSON text, ``conditions`` the board's report on itself:
    threads and power mode.
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
        """A text on the first field in which another key differs."""
        mine, its = asdict(self), asdict(other)
        name = next(one for one in mine if mine[one] != its[one])
        return f"{name} {quoted(its[name])} where {quoted(mine[name])} is expected"


def key_of(task: TuningTask, target: str, tvm: str, conditions: str, method: str = "") -> TuningKey:
    """The key of ``task`` for a target as TVM writes it, searched by ``method``, as text. Imports no TVM.

    Raises FormatError where the task's operator cannot be read.
    """
    operator = _operator_of(task)
    text = (task.digest or task.operator) if operator is None else operator.to_json()
    binding, name = dict(task.binding), ""  # no name if the binding is incomplete or the operator has too many terms
    with contextlib.suppress(SynoError):
        if operator is not None and operator.complete_binding(binding) == binding:
            name = operator.fingerprint(binding)
    # Results of one method tell nothing about another's space.
    program = hashlib.sha256(f"{task.builder}\n{text}\n{method}".encode()).hexdigest()[:32]
    sizes = json.dumps(dict(sorted(binding.items())))
    return TuningKey(name, program, sizes, task.dtype, target, tvm, conditions)


def _operator_of(task: TuningTask) -> Operator | None:
    """The operator of a task; None if the task's text is no operator but a TVM module, which only its builder reads."""
    if task.builder not in builders():
        try:
            format_of(task.operator)
        except FormatError:
            return None
    return read_operator(task.operator)


@dataclass(frozen=True)
class Trial:
    """One candidate: its schedule as a trace in TVM's JSON, and the seconds of its calls (none if it failed, and why).

    ``board`` is the address of the device that measured it.
    """

    trace: TraceData
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
        """Append a candidate; it is on the disk when the call returns. Raises :class:`StoreError`."""
        self._append({"kind": "trial", **asdict(trial), "at": datetime.now(UTC).isoformat(timespec="milliseconds")})
        self.trials.append(trial)

    def add_result(self, result: TuningResult) -> None:
        """Append the outcome of a tuning. Raises :class:`StoreError`."""
        self._append({"kind": "result", "result": result.to_dict()})
        self.results.append(result)

    def answer(self, trials: int) -> TuningResult | None:
        """The last result if it is valid for a budget of ``trials``: they are spent, or the space is used up."""
        if not self.results or len(self.trials) > self.results[-1].trials:
            return None  # more trials were measured since
        last = self.results[-1]
        return last if last.trials >= trials or last.stopped == "space" else None

    def _append(self, data: _Line) -> None:
        left = _line(data)
        # Unbuffered: a buffer that could not be written would be tried again when the file is closed.
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


def _line(data: _Line) -> bytes:
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
    """Open the record of ``key`` in a folder of records, or make it; inside the block no other process can write it.

    Raises:
        TuningError: another process is tuning this, or the file is the record of another key.
        StoreError: the file cannot be read or written.
    """
    place = Path(folder) / f"{key.name}.jsonl"
    with contextlib.ExitStack() as stack:
        with _told(place):
            if not place.parent.is_dir():
                private.folder(place.parent)
            lock = stack.enter_context(private.create(place.with_suffix(".lock"), "ab"))
            if not take(lock, place.with_suffix(".lock")):
                raise TuningError(f"another process is tuning this and writes {place}: wait for it or end it")
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
            head: _Line = {"kind": "key", "format": FORMAT, "version": VERSION, **asdict(key)}
            whole = [head, *(one for one in lines if one.get("kind") != "key")]
            _rewrite(place, whole, damaged)
            lines = whole
        for data in lines:
            _take(record, data)
        yield record


def _read(place: Path) -> tuple[list[_Line], list[bytes]]:
    """The intact lines, and the damaged ones."""
    if not place.exists():
        return [], []
    good: list[_Line] = []
    bad: list[bytes] = []
    *whole, torn = read_bytes(place, MOST_BYTES).split(b"\n")
    for line in whole:
        seal, _, text = line.partition(b" ")
        if seal.decode("ascii", "replace") != hashlib.sha256(text).hexdigest()[:_DIGEST]:
            bad.append(line)
            continue
        try:
            good.append(msgspec.json.decode(text, type=dict))
        except (msgspec.DecodeError, UnicodeError, RecursionError):  # a right digest, but not a line of ours
            bad.append(line)
    return good, [*bad, torn] if torn else bad


def _rewrite(place: Path, lines: list[_Line], damaged: list[bytes]) -> None:
    """Put the whole lines into a new file in the old one's place; the damaged ones go beside it."""
    with _told(place):
        if damaged:
            with private.create(place.with_suffix(".damaged"), "ab") as beside:
                beside.write(b"".join(line + b"\n" for line in damaged))
        put(place, b"".join(map(_line, lines)))


def _key(data: _Line, place: Path) -> TuningKey:
    if data.get("format") != FORMAT or data.get("version") != VERSION:
        found = quoted(data.get("version"))
        raise TuningError(f"{place}: expected a tuning record of version {VERSION}, found {found}")
    given = {name: value for name, value in data.items() if name not in ("kind", "format", "version")}
    try:
        key = TuningKey(**msgspec.convert(given, dict[str, str]))
        msgspec.json.decode(key.binding, type=dict[str, int])
    except (TypeError, msgspec.DecodeError, UnicodeError, RecursionError):
        raise TuningError(f"{place}: expected the fields of a tuning record's key, found others") from None
    return key


def _take(record: Record, data: _Line) -> None:
    """Add the data of one line; a line with a right digest but invalid content counts as damaged."""
    try:
        if data["kind"] == "trial":
            trial = msgspec.convert(data, Trial)
            if not all(math.isfinite(one) and one > 0 for one in trial.seconds):
                raise ValueError(trial.seconds)
            record.trials.append(trial)
        elif data["kind"] == "result":
            record.results.append(TuningResult.from_dict(data["result"]))
    except (KeyError, TypeError, ValueError, ArithmeticError, msgspec.ValidationError):
        record.damaged += 1


def read_record(place: Path) -> Record | None:
    """A record's file as it is, without a lock and unchanged; None for a file that is no record.

    Raises TuningError where it is of another version, and StoreError where it cannot be read.
    """
    with _told(place):
        lines, damaged = _read(place)
    if not lines or lines[0].get("kind") != "key":
        return None
    record = Record(_key(lines[0], place), place, damaged=len(damaged))
    for data in lines:
        _take(record, data)
    return record


def known_target(folder: str | os.PathLike[str], name: str, tvm: str) -> str | None:
    """TVM's JSON text for a target that was resolved before on this machine, so that TVM need not be imported."""
    return _targets(folder).get(_target_key(name, tvm))


def remember_target(folder: str | os.PathLike[str], name: str, tvm: str, text: str) -> None:
    """Keep TVM's text for a target for :func:`known_target`; TVM can resolve it again, so no error is raised."""
    known = {**_targets(folder), _target_key(name, tvm): text}
    with contextlib.suppress(OSError):
        put(Path(folder) / _TARGETS, json.dumps(known, indent=1).encode())


_TARGETS = "targets.json"


def _targets(folder: str | os.PathLike[str]) -> dict[str, str]:
    try:
        return read_json(Path(folder) / _TARGETS, MOST_BYTES, dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _target_key(name: str, tvm: str) -> str:
    """The key of a target; ``local`` has another one if the processor, its features or the CPUs we may use differ."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = "\n".join(sorted({one for one in told if one.startswith(("model name", "flags", "Features"))}))
    facts = f"{processor}\n{platform.node()}\n{cores()}"
    return f"{name} {tvm} {hashlib.sha256(facts.encode()).hexdigest()[:16]}"


def list_records(folder: str | os.PathLike[str]) -> list[dict[str, JSON]]:
    """List the records in a folder, each with its newest result, for tables. Takes no lock and changes nothing."""
    rows = []
    for place in sorted(Path(folder).glob("*.jsonl")):
        record = read_record(place)
        if record is None:
            continue
        key = record.key
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


# -- the start of a tuning ---------------------------------------------------------------------------------------------

#: The most trials that a tuning starts from, the fastest ones.
MOST = 64
#: What the text of a method ends with where a tuning had a start, so that its records are kept apart.
STARTED = "; started from records"
_MOST_PATH = 1000  # characters of a path that a message names whole

#: What a field of a key tells, where a record has another value of it; fingerprints are of some sizes.
_OTHER = {"binding": "other sizes", "fingerprint": "another operator", "dtype": "another dtype"}
_OTHER |= {"target": "another machine", "tvm": "another TVM", "conditions": "other threads or another power mode"}


def record_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of a folder that may be records. Raises TuningError where it has none, or cannot be read."""
    name = quoted(os.fspath(folder), _MOST_PATH)
    try:
        there = sorted(Path(folder).iterdir())
    except FileNotFoundError:
        raise TuningError(f"there is no such folder: {name}; expected one with tuning records") from None
    except (OSError, ValueError) as error:  # a zero in it
        reason = getattr(error, "strerror", None) or error
        raise TuningError(f"expected a folder of tuning records that can be read, found {name}: {reason}") from None
    found = [one for one in there if one.suffix == ".jsonl"]
    if not found:
        what = f"{quoted(there[0].name)} and the like" if there else "nothing"
        raise TuningError(f"expected tuning records (*.jsonl) in the folder {name}, found {what} there")
    return found


def start_from(
    folder: str | os.PathLike[str], task: TuningTask, key: TuningKey, methods: Iterable[str] = (), most: int = MOST
) -> list[Trial]:
    """The fastest trials in a folder of records of ``task``, searched by any method.

    They are of the program, sizes, dtype, target, TVM, threads and power mode of ``key``: of others the seconds say
    nothing. A record names its method in its results; ``methods`` are those of records without one. Raises TuningError
    as :func:`record_files`, or there is none; the message says in what the nearest record differs.
    """
    found: list[Trial] = []
    mine, differences = asdict(key), list[tuple[int, str]]()
    files = record_files(folder)
    for place in files:
        record = read_record(place)
        if record is None:
            continue
        its = asdict(record.key)
        if others := [name for name in _OTHER if its[name] != mine[name]]:
            what = f"of {_OTHER[others[0]]}: {quoted(its[others[0]])} where {quoted(mine[others[0]])} is expected"
            differences.append((len(others) - (others[:2] == ["binding", "fingerprint"]), what))
            continue
        tried = {one.method for one in record.results} | {*methods, str(Method()), ""}
        programs = {key_of(task, key.target, key.tvm, key.conditions, how).program for how in tried}
        if record.key.program not in programs:
            differences.append((0, "of another program of the same function"))
            continue
        differences.append((-1, "of this program, but no trial in it ran"))
        found += [one for one in record.trials if one.seconds]
    if not found:
        what = min(differences)[1] if differences else f"no record: {len(files)} other files, {files[0].name} and so on"
        where = quoted(os.fspath(folder), _MOST_PATH)
        raise TuningError(
            f"expected a tuning record of this program, machine and TVM in {where}, the nearest is {what}"
        )
    return sorted(found, key=lambda one: statistics.median(one.seconds))[:most]
