"""Exports trials as a table: pandas, CSV, Parquet."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from syno_lab.inputs import no_formula
from syno_lab.reports.rows import LATENCY, RUNG, TrialRow, rungs_among

if TYPE_CHECKING:
    import pandas as pd

#: The first columns of a table, which precede the columns for rungs and targets, and the last columns.
FIRST = ("source", "number", "label", "known", "state", "rung", "accuracy", "flops", "params", "memory_mib", "probe")
LAST = (
    "on_front",
    "is_baseline",
    "system",
    "primitives",
    "reason",
    "wall_s",
    "ended",
    "job",
    "fingerprint",
    "operator",
)


def trials_frame(rows: Iterable[TrialRow], targets: Sequence[str] = (), on_front: Collection[str] = ()) -> pd.DataFrame:
    """Return a pandas frame with a row for each trial in the given order; unknown values are missing.

    The frame has ``accuracy@RUNG`` for each rung, on held-out images (``accuracy`` is for finals and full trainings),
    and ``latency_ms@TARGET`` for each target.

    Args:
        rows: the trials.
        targets: targets whose latencies become columns, in addition to the rows' own targets.
        on_front: the keys of the rows on the front.
    """
    import pandas as pd

    trials = list(rows)
    timed = list(dict.fromkeys((*targets, *(target for row in trials for target in row.latencies))))
    names = (*FIRST, *(RUNG + rung for rung in rungs_among(trials)), *(LATENCY + target for target in timed), *LAST)
    kinds = {"number": "int64", "flops": "int64", "params": "int64", "job": "Int64"}
    kinds |= dict.fromkeys(("accuracy", "memory_mib", "probe", "wall_s", "latency_ms"), "float64")
    kinds |= dict.fromkeys(("on_front", "is_baseline"), "bool")
    table = {}
    for name in names:
        values = [row.key in on_front if name == "on_front" else row.value(name) for row in trials]
        table[name] = pd.Series(values, dtype=kinds.get(name.partition("@")[0], "str"))
    return pd.DataFrame(table)


def trials_csv(rows: Iterable[TrialRow], targets: Sequence[str] = (), on_front: Collection[str] = ()) -> bytes:
    """Return :func:`trials_frame` as CSV in UTF-8, without the operators' JSON."""
    return csv_bytes(trials_frame(rows, targets, on_front).drop(columns="operator"))


def csv_bytes(frame: pd.DataFrame) -> bytes:
    """Return a table as CSV in UTF-8. A spreadsheet reads no cell as a formula."""
    texts = frame.select_dtypes(["object", "str"]).map(no_formula)
    return frame.assign(**texts).to_csv(index=False).encode("utf-8", "replace")


def trials_parquet(rows: Iterable[TrialRow], targets: Sequence[str] = (), on_front: Collection[str] = ()) -> bytes:
    """Return :func:`trials_frame` as Parquet, including the operators' JSON."""
    content = io.BytesIO()
    trials_frame(rows, targets, on_front).to_parquet(content, index=False)
    return content.getvalue()
