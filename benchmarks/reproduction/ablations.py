"""Table 2 and the ablation of the shape distance (Syno, section 9.4), for so many seconds each."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

from reproduction.items import Work
from reproduction.scale import Options, Scale
from syno_lab.ir.spec import Spec
from syno_lab.synthesis import ablation

#: The columns of Table 2; the paper's last is of 8 primitives and more.
SIZES = tuple(range(2, ablation.LARGEST_IN_TABLE + 1))
#: A part that ends by the clock has no number of walks.
_ENDLESS = sys.maxsize


def rates(spec: Spec, options: Options, scale: Scale, work: Work) -> dict[str, Any]:
    """Canonical rates by size; each step is drawn evenly among all legal ones, those that the space refuses among them.

    ``spec`` states what is synthesised.
    """
    stop = _Clock(scale.rates_s, work)
    found = ablation.canonical_rates(
        replace(spec, limits=replace(spec.limits, max_primitives=SIZES[-1])),
        SIZES,
        trials=_ENDLESS,
        seed=options.seed,
        evenly="steps",
        report=lambda _, fraction, message: work.report(stop.fraction, message),
        should_stop=stop,
    )
    rows = []
    for row in found.rows:
        low, high = ablation.wilson(row.canonical, row.pgraphs)
        counts = {"size": row.size, "pgraphs": row.pgraphs, "canonical": row.canonical}
        rows.append({**counts, "share": row.share, "low": low, "high": high})
    return {
        "what": "partial pGraphs, each step drawn evenly among all legal ones; what the space refuses is not canonical",
        "spec": f"{_shapes(spec)}, weights {spec.weight_limits}",
        "walks": found.trials,
        "seconds": found.seconds,
        "rows": rows,
        "rejected_by": found.rejected_by,
    }


def distance(spec: Spec, options: Options, scale: Scale, work: Work) -> dict[str, Any]:
    """Random trials with the shape distance and without it."""
    limited = replace(spec, limits=replace(spec.limits, max_primitives=SIZES[-1]))
    rows = []
    for number, guided in enumerate((True, False)):

        def run(guided: bool = guided, number: int = number) -> dict[str, Any]:
            stop = _Clock(scale.distance_s, work)
            found = ablation.distance_trials(
                limited,
                guided=guided,
                trials=_ENDLESS,
                seed=options.seed,
                report=lambda _, fraction, message: work.report((number + stop.fraction) / 2, message),
                should_stop=stop,
            )
            low, high = ablation.wilson(found.valid, found.trials)
            counts = {"trials": found.trials, "valid": found.valid, "distinct": found.distinct, "first": found.first}
            return {"guided": guided, **counts, "low": low, "high": high, "seconds": found.seconds}

        rows.append(work.item("with" if guided else "without", run))
    return {"spec": f"{_shapes(spec)}, at most {SIZES[-1]} primitives", "rows": rows}


def _shapes(spec: Spec) -> str:
    """``[N, C_in] to [N, C_out]``."""
    return " to ".join(f"[{', '.join(map(str, shape))}]" for shape in (spec.input_shape, spec.output_shape))


class _Clock:
    """Whether the seconds are over, or the user wants an end."""

    def __init__(self, seconds: float, work: Work) -> None:
        self._begin, self._seconds, self._stop = time.monotonic(), seconds, work.should_stop

    @property
    def fraction(self) -> float:
        """Of the seconds."""
        return min(1.0, (time.monotonic() - self._begin) / self._seconds)

    def __call__(self) -> bool:
        return self.fraction >= 1.0 or self._stop()
