"""The results of operators in a lab, for a comparison side by side: which trials are of them, and how these ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from operator import methodcaller

from syno_lab.errors import FormatError
from syno_lab.panes.compared import NumberRow, Subject, table_row
from syno_lab.protocol import Operator
from syno_lab.reports.lab import Reading
from syno_lab.reports.rows import LATENCY, RUNG, TrialRow, rungs_among
from syno_lab.reports.text_tables import Cell
from syno_lab.store.latencies import short_title
from syno_lab.systems import read_operator

GROUP = "Results"


def trials_of(reading: Reading, subjects: Sequence[Subject]) -> list[TrialRow | None]:
    """For each operator its trial in a lab that says the most, else None.

    A trial is of an operator where it holds an equal one. That with an accuracy comes before that with a probe alone,
    and of several the newest.
    """

    @cache
    def read(text: str) -> Operator | None:
        with suppress(FormatError):  # of a system that nobody knows here
            return read_operator(text)
        return None

    def says(row: TrialRow) -> tuple[bool, int, bool, str]:
        return row.accuracy is not None, len(row.rungs), row.probe is not None, row.ended

    found: list[TrialRow | None] = []
    for one in subjects:
        rows = [row for row in reading.rows if row.operator and one.operator and read(row.operator) == one.operator]
        found.append(max(rows, key=says, default=None))
    return found


def result_rows(rows: Sequence[TrialRow | None]) -> list[NumberRow]:
    """Lines of the table of a comparison: accuracies, latencies, costs of the network, probe and seconds.

    ``rows`` has the trial of each operator, None for one without. A line that no trial has a value for is left out.
    """
    there = [row for row in rows if row is not None]
    if not there:
        return []
    names = {"training": "state", "accuracy": "accuracy"}
    names |= {f"accuracy on {rung}": RUNG + rung for rung in rungs_among(there)}
    targets = dict.fromkeys(target for row in there for target in row.latencies)
    names |= {f"ms, {short_title(target)}": LATENCY + target for target in targets}
    names |= {"FLOPs of the network": "flops", "parameters of the network": "params", "probe": "probe"}
    of: dict[str, Callable[[TrialRow], Cell]] = {"trial": lambda row: f"{row.label} of {row.source.partition(':')[2]}"}
    of |= {title: methodcaller("value", name) for title, name in names.items()}
    of["seconds of training"] = lambda row: row.wall_s or None
    columns = {title: [None if row is None else read(row) for row in rows] for title, read in of.items()}
    return [table_row(GROUP, title, values) for title, values in columns.items() if set(values) != {None}]
