"""Trials of earlier tunings of the same program as the start of a new one, where they can be compared with its own."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from syno_lab.errors import TuningError
from syno_lab.inputs import quoted
from syno_lab.tuning.method import Method
from syno_lab.tuning.records import Trial, TuningKey, key_of, read_record
from syno_lab.tuning.values import TuningTask

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
    nothing. A record names its method in its results; ``methods`` are those of records without one.

    Raises:
        TuningError: as :func:`record_files`, or there is none; the message says in what the nearest record differs.
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
