"""Whether the memory traffic of an operator, known before its training, tells how long the training takes.

``python benchmarks/traffic.py LAB`` reads the trials of one search from the store of a lab (its folder, or the file
itself; nothing in it is changed) and lays beside the measured time of each what was known before: the traffic
(``syno_lab/pgraphs/traits.py``) and the FLOPs of the network with it. A trial that was ended early counts
as long as all its epochs would have taken: what the training foresaw when it gave up (some did after four batches, a
rough figure), or the mean of the epochs it had. A trial is slow where that is more than the search allowed, twice the
baseline's time. Rank correlations are Spearman's; the interval is of 10,000 resamplings of the trials.

The search of the stored result had the filter on, at 4: what it left out was not trained, so this says how well the
filter orders what it lets through, and what a lower limit would have cut.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, about, parser, save, typed
from scipy.stats import spearmanr

from syno_lab.experiments.driver import TIMES_THE_BASELINE
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.space import Space
from syno_lab.ir.operator import Operator
from syno_lab.store import Store

LIMITS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
RESAMPLINGS = 10_000
_FORESEEN = re.compile(r"projected ([0-9.]+) s of")


def training_s(outcome: dict[str, Any], epochs: int) -> float | None:
    """Seconds that all epochs of a trial would have taken, its beginning included; None where nothing says so."""
    foreseen = _FORESEEN.search(outcome.get("reason") or "")
    if foreseen:
        return float(foreseen[1])
    seconds = [row["seconds"] for row in outcome.get("curve") or ()]
    if len(seconds) == epochs:
        return float(outcome["wall_s"])
    return epochs * statistics.mean(seconds) if seconds else None


def rank_correlation(x: Sequence[float], y: Sequence[float], seed: int) -> dict[str, float]:
    """Spearman's, with a 95 % interval by resampling the pairs."""
    a, b = np.array(x), np.array(y)
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(a), size=(RESAMPLINGS, len(a)))
    found = [spearmanr(a[i], b[i]).statistic for i in draws]
    low, high = np.nanquantile(found, [0.025, 0.975])
    return {"rho": float(spearmanr(a, b).statistic), "low": float(low), "high": float(high)}


def measure(folder: str, result: dict[str, Any], seed: int) -> dict[str, Any]:
    """All trials of a search whose time is known, and what the traffic says of them; ``result``: of that search."""
    settings = SearchSettings.from_dict(result["settings"])
    with Store.look(folder) as store:
        logs = {log.name: log for log in store.searches()}
        if settings.name not in logs:
            sys.exit(f"{folder}: expected a search {settings.name!r}, found {', '.join(logs) or 'none'}")
        trials = logs[settings.name].trials()
    space = Space(settings)
    baseline_s = statistics.median(result["baseline"]["wall_s"])
    allowed_s = TIMES_THE_BASELINE * baseline_s
    rows = []
    for trial in trials:
        seconds = training_s(trial.outcome or {}, settings.training.epochs)
        if seconds is not None:
            rows.append(
                {
                    "number": trial.number,
                    "state": trial.state,
                    "traffic": space.traffic(Operator.from_json(trial.operator)),
                    "flops_ratio": trial.flops / space.baseline.flops,
                    "training_s": seconds,
                    "is_slow": seconds > allowed_s,
                    "accuracy": trial.accuracy,
                }
            )
    slow = [row for row in rows if row["is_slow"]]
    fine = [row for row in rows if not row["is_slow"]]
    best = max(fine, key=lambda row: row["accuracy"] or 0.0)
    seconds = [row["training_s"] for row in rows]
    return {
        "filter": settings.max_traffic_ratio,
        "baseline_s": baseline_s,
        "allowed_s": allowed_s,
        "trials": len(rows),
        "slow": len(slow),
        "time_by": {
            what: rank_correlation([r[what] for r in rows], seconds, seed) for what in ("traffic", "flops_ratio")
        },
        "limits": [
            {
                "limit": limit,
                "slow_cut": sum(row["traffic"] > limit for row in slow),
                "fine_cut": sum(row["traffic"] > limit for row in fine),
                "fine": len(fine),
                "best_is_cut": best["traffic"] > limit,
            }
            for limit in LIMITS
        ],
        "rows": rows,
    }


def main() -> None:
    """Measure and save."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("lab", help="a lab's folder, or its results.sqlite")
    arguments.add_argument(
        "--result", type=Path, default=RESULTS / "search_resnet20.json", help="of that search (search_resnet20.json)"
    )
    chosen = arguments.parse_args()
    found = measure(chosen.lab, json.loads(chosen.result.read_text(encoding="utf-8")), chosen.seed)
    save("traffic", found | {"about": about(typed(), None)})


if __name__ == "__main__":
    main()
