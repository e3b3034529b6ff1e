"""Trainings in the rungs of a search whose measures are known, with the seconds that drive a clock of the test's."""

from __future__ import annotations

import random
import threading
from math import inf
from pathlib import Path
from typing import Any

from known_trainings import TRAINING, settings

from syno_lab.experiments import SearchSettings
from syno_lab.experiments.rung_worker import TIMING_STEPS, request_for
from syno_lab.store import SearchLog
from syno_lab.store.rungs import BASELINE, RungTraining
from syno_lab.trial import TrialOutcome, TrialRequest
from syno_lab.trial.rungs import reward_of, rungs_of

RUNGS = rungs_of(TRAINING)


class Known:
    """Trainings that take no time: what is known of each operator is the same on every rung, but for some noise."""

    def __init__(self, endings: dict[str, str] | None = None) -> None:
        self.endings = endings or {}
        self.requests: list[TrialRequest] = []
        self.worked_s = 0.0
        self._guard = threading.Lock()

    def clock(self) -> float:
        """Seconds since the beginning, as two workers that are always busy have it."""
        return self.worked_s / 2

    def __call__(self, request: TrialRequest, *, folder: Path, **_: Any) -> TrialOutcome:
        # The network itself takes 10 s for 46 batches and the measuring of its two epochs; its first 20 take 4.2 s.
        work_s = {None: 10.0, TIMING_STEPS: 4.2}.get(request.steps, 0.01 * (request.steps or 0))
        with self._guard:
            self.requests.append(request)
            self.worked_s += work_s
        value = 0.5 if request.operator is None else worth(request.operator)
        value += random.Random(f"{request.operator} {request.steps} {request.seed}").uniform(-0.01, 0.01)
        return TrialOutcome(
            state="finished",
            accuracy=value,
            train_loss=2 * (1 - value),  # the loss on held-out examples is the half of it
            curve=[{"epoch": 1, "train_loss": 1 - value, "test_loss": 1 - value, "accuracy": value, "seconds": work_s}],
            wall_s=work_s,
            cpu_s=work_s,
            work_s=work_s,
            flops=10,
            params=10,
            baseline_flops=20,
            baseline_params=20,
            seed=request.seed,
            predictions=[0] * 360 if request.keep_predictions else None,
            losses=[1.0] * 360 if request.keep_predictions else None,
        )


class InTurn(Known):
    """Workers whose time stands still between the search's looks: a training takes longer, the slower its operator."""

    def __init__(self, settings: SearchSettings, log: SearchLog) -> None:
        super().__init__()
        self.settings, self.log = settings, log
        self.now = 0.0
        self.running: list[tuple[float, RungTraining, TrialOutcome] | None] = [None] * settings.workers
        self.spans: list[list[tuple[float, float, str]]] = [[] for _ in self.running]  # begin, end, rung; by worker

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None: ...

    def look(self) -> None:
        self.sleep(0.02)

    def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            for worker, running in enumerate(self.running):
                if running is None and (one := self.log.rungs.take(f"worker {worker}")) is not None:
                    self._begin(worker, one)
            ends = [inf if running is None else running[0] for running in self.running]
            self.now = min(*ends, until)
            if self.now == until:
                return
            self._end(ends.index(self.now))

    def _begin(self, worker: int, one: RungTraining) -> None:
        operator = None if one.number == BASELINE else self.log.trial(one.number).operator
        outcome = self(request_for(self.settings, one, operator, None), folder=Path())
        slow = 1.0 if operator is None else random.Random(f"time of {operator}").uniform(1, 1.4)
        end = self.now + slow * outcome.work_s
        self.spans[worker].append((self.now, end, one.rung))
        self.running[worker] = end, one, outcome

    def _end(self, worker: int) -> None:
        running = self.running[worker]
        assert running is not None
        _, one, outcome = running
        measures = {rung.name: rung.measure for rung in RUNGS}
        self.log.rungs.record(one, outcome.to_dict(), reward_of(measures.get(one.rung, "accuracy"), outcome))
        self.running[worker] = None


def worth(operator: str) -> float:
    return random.Random(operator).uniform(0.1, 0.9)


def chosen(**changes: Any) -> SearchSettings:
    given = {"minutes": 2.0, "trials": None, "rungs": True, "seeds": (100, 101), "workers": 2, "method": "random"}
    given["anyway"] = True  # all predictions are of one class
    return settings(**given | {"max_replaced_ratio": 10.0} | changes)
