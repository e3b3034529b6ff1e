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


def start_from(
    folder: str | os.PathLike[str], task: TuningTask, key: TuningKey, methods: Iterable[str] = (), most: int = MOST
) -> list[Trial]:
    """The fastest trials in a folder of records of ``task``, searched by any method.

    They are of the program, sizes, dtype, target, TVM, threads and power mode of ``key``: of others the seconds say
    nothing. A record names its method in its results; ``methods`` are those of records without one.

    Raises:
        TuningError: there is none; the message says in what the nearest record differs.
    """
    found: list[Trial] = []
    differences: list[str] = []
    for place in sorted(Path(folder).glob("*.jsonl")):
        record = read_record(place)
        if record is None:
            continue
        fields = asdict(record.key) | {"program": key.program}
        if TuningKey(**fields) != key:
            differences.append(key.difference(TuningKey(**fields)))
            continue
        tried = {one.method for one in record.results} | {*methods, str(Method()), ""}
        programs = {key_of(task, key.target, key.tvm, key.conditions, how).program for how in tried}
        if record.key.program not in programs:
            differences.append("another program of the same function")
            continue
        found += [one for one in record.trials if one.seconds]
    if not found:
        what = f"found {differences[0]}" if differences else f"found none in {quoted(str(folder))}"
        raise TuningError(f"expected records of this program, machine and TVM to start from, {what}")
    return sorted(found, key=lambda one: statistics.median(one.seconds))[:most]
