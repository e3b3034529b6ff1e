"""Export trials as a table: pandas, CSV, Parquet."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from syno_lab.inputs import no_formula
from syno_lab.reports.rows import LATENCY, RUNG, TrialRow, rungs_among

if TYPE_CHECKING:
    import pandas as pd

#: The columns before and after those of which there is one for each rung or target.
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
    """A row for each trial in the given order; unknown values are missing.

    It has ``accuracy@RUNG`` for each rung, held-out images (``accuracy`` is that of finals and full trainings), and
    ``latency_ms@TARGET`` for each target.

    Args:
        rows: trials.
        targets: targets whose latencies become columns, in addition to the rows' own targets.
        on_front: keys of the rows that are on the front.
    """
    import pandas as pd

    given = list(rows)
    wanted = list(dict.fromkeys((*targets, *(target for row in given for target in row.latencies))))
    names = (*FIRST, *(RUNG + rung for rung in rungs_among(given)), *(LATENCY + target for target in wanted), *LAST)
    kinds = {"number": "int64", "flops": "int64", "params": "int64", "job": "Int64"}
    kinds |= dict.fromkeys(("accuracy", "memory_mib", "probe", "wall_s", "latency_ms"), "float64")
    kinds |= dict.fromkeys(("on_front", "is_baseline"), "bool")
    table = {}
    for name in names:
        values = [row.key in on_front if name == "on_front" else row.value(name) for row in given]
        table[name] = pd.Series(values, dtype=kinds.get(name.partition("@")[0], "str"))
    return pd.DataFrame(table)


def trials_csv(rows: Iterable[TrialRow], targets: Sequence[str] = (), on_front: Collection[str] = ()) -> bytes:
    """:func:`trials_frame` as CSV in UTF-8, without the operators' JSON (Parquet has it)."""
    return csv_bytes(trials_frame(rows, targets, on_front).drop(columns="operator"))


def csv_bytes(frame: pd.DataFrame) -> bytes:
    """A table as CSV in UTF-8; no cell is a formula for a spreadsheet."""
    texts = frame.select_dtypes(["object", "str"]).map(no_formula)
    return frame.assign(**texts).to_csv(index=False).encode("utf-8", "replace")


def trials_parquet(rows: Iterable[TrialRow], targets: Sequence[str] = (), on_front: Collection[str] = ()) -> bytes:
    """:func:`trials_frame` as Parquet, including the operators' JSON."""
    content = io.BytesIO()
    trials_frame(rows, targets, on_front).to_parquet(content, index=False)
    return content.getvalue()
