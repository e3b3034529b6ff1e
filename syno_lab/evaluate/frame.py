"""The results as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .pareto import Evaluated, pareto_front

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("label", "fingerprint", "accuracy", "latency_ms", "flops", "params", "speedup", "flops_ratio", "on_front")


def to_frame(trials: Iterable[Evaluated]) -> pd.DataFrame:
    """Return one row a trial, in their order, with the columns `COLUMNS`.

    `speedup` is the baseline's latency over the row's (above 1 is faster), `flops_ratio` the row's FLOPs over the
    baseline's (below 1 is cheaper), `on_front` says that no other row is at least as accurate and as fast and better
    in one. What is not known is NaN.
    """
    import pandas as pd

    rows = list(trials)
    baseline = next((row for row in rows if row.baseline), None)
    values = [{"accuracy": row.accuracy, "latency_ms": row.latency_ms} for row in rows]
    front = set(pareto_front(values, maximise=["accuracy"], minimise=["latency_ms"]))
    table = {
        "label": [row.label for row in rows],
        "fingerprint": [row.fingerprint for row in rows],
        "accuracy": [_ratio(row.accuracy, 1.0) for row in rows],
        "latency_ms": [_ratio(row.latency_ms, 1.0) for row in rows],
        "flops": [row.flops for row in rows],
        "params": [row.params for row in rows],
        "speedup": [_ratio(baseline.latency_ms if baseline else None, row.latency_ms) for row in rows],
        "flops_ratio": [_ratio(row.flops, baseline.flops if baseline else None) for row in rows],
        "on_front": [index in front for index in range(len(rows))],
    }
    frame = pd.DataFrame(table, columns=list(COLUMNS))
    kinds = {"flops": "int64", "params": "int64", "on_front": "bool"}
    return frame.astype(kinds | dict.fromkeys(("accuracy", "latency_ms", "speedup", "flops_ratio"), "float64"))


def _ratio(above: float | None, below: float | None) -> float:
    return math.nan if above is None or not below else above / below
