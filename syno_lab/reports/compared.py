"""Find the trials of several operators in a lab, and their results, for a side-by-side comparison."""

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
    """Return the most informative trial of each operator in a lab; None for an operator without a trial.

    An operator's trials are the trials with an equal operator. A trial with an accuracy comes before a trial with only
    a probe, and a newer trial before an older trial.
    """

    @cache
    def read(text: str) -> Operator | None:
        with suppress(FormatError):  # the operator's system is unknown here
            return read_operator(text)
        return None

    def says(row: TrialRow) -> tuple[bool, int, bool, str]:
        return row.accuracy is not None, len(row.rungs), row.probe is not None, row.ended

    trials: list[TrialRow | None] = []
    for item in subjects:
        rows = [row for row in reading.rows if row.operator and item.operator and read(row.operator) == item.operator]
        trials.append(max(rows, key=says, default=None))
    return trials


def result_rows(rows: Sequence[TrialRow | None]) -> list[NumberRow]:
    """Return the rows of a table of operators: accuracies, latencies, costs of the network, probe and seconds.

    ``rows`` has the trial of each operator; None for an operator without a trial. A row without any value is left out.
    """
    trials = [row for row in rows if row is not None]
    if not trials:
        return []
    names = {"training": "state", "accuracy": "accuracy"}
    names |= {f"accuracy on {rung}": RUNG + rung for rung in rungs_among(trials)}
    targets = dict.fromkeys(target for row in trials for target in row.latencies)
    names |= {f"ms, {short_title(target)}": LATENCY + target for target in targets}
    names |= {"FLOPs of the network": "flops", "parameters of the network": "params", "probe": "probe"}
    by: dict[str, Callable[[TrialRow], Cell]] = {"trial": lambda row: f"{row.label} of {row.source.partition(':')[2]}"}
    by |= {title: methodcaller("value", name) for title, name in names.items()}
    by["seconds of training"] = lambda row: row.wall_s or None
    columns = {title: [None if row is None else read(row) for row in rows] for title, read in by.items()}
    return [table_row(GROUP, title, values) for title, values in columns.items() if set(values) != {None}]
