"""A lab with results that are known, for tests and figures of what is shown of them: no training, no tuning."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syno_lab import operators
from syno_lab.jobs.attempts import end, take
from syno_lab.jobs.ledger import Ledger
from syno_lab.jobs.records import Ending
from syno_lab.store import Store

NAMES = ("conv2d", "separable", "conv1x1", "grouped", "operator_1", "operator_2")


def operator_texts() -> list[str]:
    """The JSON of a few known operators."""
    return [operators.KNOWN[name]().to_json() for name in NAMES]


def curve(epochs: int, last: float = 0.5) -> list[dict[str, float]]:
    """A training's curve that ends at ``last``."""
    return [
        {"epoch": e, "accuracy": last * e / epochs, "train_loss": 2.0 / e, "test_loss": 3.0 / e}
        for e in range(1, epochs + 1)
    ]


def end_job(ledger: Ledger, kind: str, name: str, result: dict[str, Any]) -> int:
    """A job that has finished with this result; its number."""
    number = ledger.submit(kind, {}, resources={}, name=name)
    lease = take(ledger, number)
    assert lease is not None
    assert end(ledger, number, lease.token, Ending("finished", "", result))
    return number


def fill_lab(folder: Path, trials: int, seed: int = 0, name: str = "known", texts: Sequence[str] | None = None) -> None:
    """A search of so many trials by chance with latencies on ``cpu``, its baseline, and two curves.

    The trials have the operators of ``texts`` in turn; None for those of :func:`operator_texts`.
    """
    rng = random.Random(seed)
    texts = texts or operator_texts()
    with Store.open(folder) as store:
        log = store.search(name, {"training": {"backbone": "resnet20"}})
        ledger = Ledger(store.database)
        outcome = {"state": "finished", "accuracy": 0.7, "flops": 1_000_000, "params": 9000, "peak_mib": 40.0}
        end_job(ledger, "train", f"{name}: baseline, seed 0", {**outcome, "curve": curve(4, 0.7)})
        history = [[1, 9.0], [4, 3.0]]
        end_job(ledger, "tune", f"{name}: trial 0 on cpu", {"results": [{"label": "a", "history": history}]})
        for number in range(trials):
            cost = rng.random()
            flops = int(1e4 + 9e5 * cost)
            log.add(f"fp{seed}-{number}", texts[number % len(texts)], [], flops, int(8000 * rng.random()) + 50)
            if number % 10 == 9:
                log.record(number, {"state": "diverged", "reason": "the loss is not a number", "wall_s": 1.0})
                continue
            accuracy = 0.3 + 0.5 * cost**0.5 * rng.random()
            log.record(number, {"state": "finished", "accuracy": accuracy, "wall_s": 2.0, "peak_mib": 30 + 9 * cost})
            if number % 3 == 0:
                log.record_latency(number, "cpu", {"latency_ms": 0.1 + 5 * cost * rng.random()})
