"""Tuning records: a file for each operator with sizes, dtype, target and TVM, so that no tuning is repeated.

Lines are only appended to a file, each with its own digest. The first line is the key; the next lines are candidates,
with schedule and seconds, and results. A complete line survives a kill at any moment. An incomplete or altered line is
moved to a file beside the record, and no other line is lost. A full disk raises an error and leaves the file unchanged.
Only one tuning at a time writes a file. (TVM's own database is only an export: one incomplete line makes it unreadable,
it mixes the lines of two writers, and it reports no full disk.)
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
MOST_BYTES = 1 << 28  # largest size of a record file
_Line = dict[str, JSON]


@dataclass(frozen=True)
class TuningKey:
    """The key of a record: everything on which a latency depends. Two keys name one record if all fields are equal.

    ``fingerprint`` is the operator's semantic fingerprint under the binding (empty if there is none). ``program`` is a
    digest of the operator's text and of the method, because two pGraphs of one function have different loops and
    latencies. ``target`` is TVM's JSON text, ``conditions`` the board's report of its threads and power mode.
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
        """Describe the first field in which another key differs."""
        own_fields, its = asdict(self), asdict(other)
        name = next(field_name for field_name in own_fields if own_fields[field_name] != its[field_name])
        return f"{name} {quoted(its[name])} where {quoted(own_fields[name])} is expected"


def key_of(task: TuningTask, target: str, tvm: str, conditions: str, method: str = "") -> TuningKey:
    """Return the key of ``task`` for a target in TVM's text form; ``method`` is the method's text. Imports no TVM.

    Raises FormatError if the task's operator cannot be read.
    """
    operator = _operator_of(task)
    text = (task.digest or task.operator) if operator is None else operator.to_json()
    binding, name = dict(task.binding), ""  # empty if the binding is incomplete, or the operator has too many terms
    with contextlib.suppress(SynoError):
        if operator is not None and operator.complete_binding(binding) == binding:
            name = operator.fingerprint(binding)
    # The result of one method is not valid for another method.
    program = hashlib.sha256(f"{task.builder}\n{text}\n{method}".encode()).hexdigest()[:32]
    sizes = json.dumps(dict(sorted(binding.items())))
    return TuningKey(name, program, sizes, task.dtype, target, tvm, conditions)


def _operator_of(task: TuningTask) -> Operator | None:
    """Return the operator of a task; None if the task's text is a TVM module, which only its builder reads."""
    if task.builder not in builders():
        try:
            format_of(task.operator)
        except FormatError:
            return None
    return read_operator(task.operator)


@dataclass(frozen=True)
class Trial:
    """A candidate: its schedule as a trace in TVM's JSON, and the seconds of its calls or the reason of its failure.

    ``board`` is the address of the device that measured the candidate.
    """

    trace: TraceData
    seconds: tuple[float, ...]
    reason: str = ""
    board: str = ""
    at: str = ""


@dataclass
class Record:
    """The record of a key, open for writing: see :func:`open_record`."""

    key: TuningKey
    path: Path
    trials: list[Trial] = field(default_factory=list)
    results: list[TuningResult] = field(default_factory=list)
    damaged: int = 0

    def add_trial(self, trial: Trial) -> None:
        """Append a candidate; the candidate is on the disk when this method returns. Raises :class:`StoreError`."""
        self._append({"kind": "trial", **asdict(trial), "at": datetime.now(UTC).isoformat(timespec="milliseconds")})
        self.trials.append(trial)

    def add_result(self, result: TuningResult) -> None:
        """Append the outcome of a tuning. Raises :class:`StoreError`."""
        self._append({"kind": "result", "result": result.to_dict()})
        self.results.append(result)

    def answer(self, trials: int) -> TuningResult | None:
        """Return the last result if it is valid for ``trials``: all of them are measured, or no candidates are left."""
        if not self.results or len(self.trials) > self.results[-1].trials:
            return None  # later trials were measured after this result
        last = self.results[-1]
        return last if last.trials >= trials or last.stopped == "space" else None

    def _append(self, data: _Line) -> None:
        remaining = _line(data)
        # Unbuffered, because closing the file would write a failed buffer again.
        with _store_errors(self.path), self.path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                while remaining:
                    remaining = remaining[file.write(remaining) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    os.truncate(self.path, before)
                raise


def _line(data: _Line) -> bytes:
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    return hashlib.sha256(text).hexdigest()[:_DIGEST].encode() + b" " + text + b"\n"


@contextlib.contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the tuning record {path} cannot be read or written ({error.strerror or error}): check free space and "
            "permissions; what was recorded is safe"
        ) from None


@contextlib.contextmanager
def open_record(folder: str | os.PathLike[str], key: TuningKey) -> Iterator[Record]:
    """Open or make the record of ``key`` in a folder of records; no other process can write it during the block.

    Raises:
        TuningError: if another process is tuning the key, or if the file is the record of another key.
        StoreError: if the file cannot be read or written.
    """
    path = Path(folder) / f"{key.name}.jsonl"
    with contextlib.ExitStack() as stack:
        with _store_errors(path):
            if not path.parent.is_dir():
                private.folder(path.parent)
            lock = stack.enter_context(private.create(path.with_suffix(".lock"), "ab"))
            if not take(lock, path.with_suffix(".lock")):
                raise TuningError(f"another process is tuning and writes {path}: wait for the process or end it")
            lines, damaged = _read(path)
        if lines and lines[0].get("kind") == "key":
            stored_key = _key(lines[0], path)
            if stored_key != key:
                raise TuningError(
                    f"{path} is the record of another operator or target: it has {key.difference(stored_key)}; "
                    "move it away, or use another folder"
                )
        record = Record(key, path, damaged=len(damaged))
        if damaged or not lines:  # move the damaged lines to a file beside the record
            head: _Line = {"kind": "key", "format": FORMAT, "version": VERSION, **asdict(key)}
            lines = [head, *(line for line in lines if line.get("kind") != "key")]
            with _store_errors(path):
                if damaged:
                    with private.create(path.with_suffix(".damaged"), "ab") as beside:
                        beside.write(b"".join(line + b"\n" for line in damaged))
                put(path, b"".join(map(_line, lines)))
        for data in lines:
            _take(record, data)
        yield record


def _read(path: Path) -> tuple[list[_Line], list[bytes]]:
    """Return the intact lines and the damaged lines of the file."""
    if not path.exists():
        return [], []
    good: list[_Line] = []
    bad: list[bytes] = []
    *lines, torn = read_bytes(path, MOST_BYTES).split(b"\n")
    for line in lines:
        seal, _, text = line.partition(b" ")
        if seal.decode("ascii", "replace") != hashlib.sha256(text).hexdigest()[:_DIGEST]:
            bad.append(line)
            continue
        try:
            good.append(msgspec.json.decode(text, type=dict))
        except (msgspec.DecodeError, UnicodeError, RecursionError):  # a right digest, but not a record's line
            bad.append(line)
    return good, [*bad, torn] if torn else bad


def _key(data: _Line, path: Path) -> TuningKey:
    if data.get("format") != FORMAT or data.get("version") != VERSION:
        version = quoted(data.get("version"))
        raise TuningError(f"{path}: expected a tuning record of version {VERSION}, found {version}")
    fields = {name: value for name, value in data.items() if name not in ("kind", "format", "version")}
    try:
        key = TuningKey(**msgspec.convert(fields, dict[str, str]))
        msgspec.json.decode(key.binding, type=dict[str, int])
    except (TypeError, msgspec.DecodeError, UnicodeError, RecursionError):
        raise TuningError(f"{path}: expected the fields of a tuning record's key, found others") from None
    return key


def _take(record: Record, data: _Line) -> None:
    """Add the data of a line; a line with a right digest but invalid content counts as damaged."""
    try:
        if data["kind"] == "trial":
            trial = msgspec.convert(data, Trial)
            if not all(math.isfinite(value) and value > 0 for value in trial.seconds):
                raise ValueError(trial.seconds)
            record.trials.append(trial)
        elif data["kind"] == "result":
            record.results.append(TuningResult.from_dict(data["result"]))
    except (KeyError, TypeError, ValueError, ArithmeticError, msgspec.ValidationError):
        record.damaged += 1


def read_record(path: Path) -> Record | None:
    """Read a record's file without a lock and without changes; None for a file that is no record.

    Raises TuningError for a record of another version, and StoreError for a file that cannot be read.
    """
    with _store_errors(path):
        lines, damaged = _read(path)
    if not lines or lines[0].get("kind") != "key":
        return None
    record = Record(_key(lines[0], path), path, damaged=len(damaged))
    for data in lines:
        _take(record, data)
    return record


def known_target(folder: str | os.PathLike[str], name: str, tvm: str) -> str | None:
    """Return TVM's JSON text for a target that this machine resolved before, so that TVM need not be imported."""
    return _targets(folder).get(_target_key(name, tvm))


def remember_target(folder: str | os.PathLike[str], name: str, tvm: str, text: str) -> None:
    """Store TVM's text of a target for :func:`known_target`. Ignore errors, as TVM can resolve the target again."""
    texts = {**_targets(folder), _target_key(name, tvm): text}
    with contextlib.suppress(OSError):
        put(Path(folder) / _TARGETS, json.dumps(texts, indent=1).encode())


_TARGETS = "targets.json"


def _targets(folder: str | os.PathLike[str]) -> dict[str, str]:
    try:
        return read_json(Path(folder) / _TARGETS, MOST_BYTES, dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _target_key(name: str, tvm: str) -> str:
    """Return the key of a target, with a digest of this machine's processor, features, host name and usable CPUs."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    facts = f"{processor}\n{platform.node()}\n{cores()}"
    return f"{name} {tvm} {hashlib.sha256(facts.encode()).hexdigest()[:16]}"


def list_records(folder: str | os.PathLike[str]) -> list[dict[str, JSON]]:
    """List the records in a folder, each with its newest result, for tables, without a lock and without changes."""
    rows = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        record = read_record(path)
        if record is None:
            continue
        key: dict[str, JSON] = asdict(record.key) | {"binding": json.loads(record.key.binding)}
        del key["program"]
        last = record.results[-1] if record.results else None
        rows.append(
            {
                "label": last.label if last else "",
                **key,
                "trials": len(record.trials),
                "failed": sum(not trial.seconds for trial in record.trials),
                "latency_ms": last.latency_ms if last else None,
                "damaged": record.damaged,
                "file": path.name,
            }
        )
    return rows


# -- trials from which a tuning starts ---------------------------------------------------------------------------------

#: The largest number of trials from which a tuning starts; the fastest trials are used.
MOST = 64
#: The suffix of a method's text for a tuning with ``start``, so that its records have another key.
STARTED = "; started from records"
_MOST_PATH = 1000  # the longest path that a message shows in full

#: A description of a record for each field of the key that may differ; a fingerprint depends on the sizes.
_OTHER = {"binding": "other sizes", "fingerprint": "another operator", "dtype": "another dtype"}
_OTHER |= {"target": "another machine", "tvm": "another TVM", "conditions": "other threads or another power mode"}


def record_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a folder that may be records. Raises TuningError without files, or on a read error."""
    name = quoted(os.fspath(folder), _MOST_PATH)
    try:
        entries = sorted(Path(folder).iterdir())
    except FileNotFoundError:
        raise TuningError(f"there is no such folder: {name}; expected one with tuning records") from None
    except (OSError, ValueError) as error:  # ValueError: the name has a null character
        reason = getattr(error, "strerror", None) or error
        raise TuningError(f"expected a folder of tuning records that can be read, found {name}: {reason}") from None
    files = [file for file in entries if file.suffix == ".jsonl"]
    if not files:
        names = f"{quoted(entries[0].name)} and the like" if entries else "nothing"
        raise TuningError(f"expected tuning records (*.jsonl) in the folder {name}, found {names} there")
    return files


def start_from(
    folder: str | os.PathLike[str], task: TuningTask, key: TuningKey, methods: Iterable[str] = (), most: int = MOST
) -> list[Trial]:
    """Return the fastest trials of ``task`` in a folder of records, by any method.

    Only trials with the program, sizes, dtype, target, TVM, threads and power mode of ``key`` count, because other
    trials have other latencies. Results name a record's method; ``methods`` are methods of records without results.
    Raises TuningError as :func:`record_files`, or if there are no trials; its message describes the nearest record.
    """
    trials: list[Trial] = []
    own, differences = asdict(key), list[tuple[int, str]]()
    files = record_files(folder)
    for path in files:
        record = read_record(path)
        if record is None:
            continue
        its = asdict(record.key)
        if fields := [name for name in _OTHER if its[name] != own[name]]:
            text = f"of {_OTHER[fields[0]]}: {quoted(its[fields[0]])} where {quoted(own[fields[0]])} is expected"
            differences.append((len(fields) - (fields[:2] == ["binding", "fingerprint"]), text))
            continue
        tried = {result.method for result in record.results} | {*methods, str(Method()), ""}
        programs = {key_of(task, key.target, key.tvm, key.conditions, how).program for how in tried}
        if record.key.program not in programs:
            differences.append((0, "of another program of the same function"))
            continue
        differences.append((-1, "of this program, but no trial in it ran"))
        trials += [trial for trial in record.trials if trial.seconds]
    if not trials:
        text = min(differences)[1] if differences else f"no record: {len(files)} other files, {files[0].name} and so on"
        where = quoted(os.fspath(folder), _MOST_PATH)
        raise TuningError(
            f"expected a tuning record of this program, machine and TVM in {where}, the nearest is {text}"
        )
    return sorted(trials, key=lambda trial: statistics.median(trial.seconds))[:most]
