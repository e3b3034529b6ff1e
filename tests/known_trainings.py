"""Trainings whose outcomes are known, in the place of real ones: for tests of what a search makes of them."""

from __future__ import annotations

import random
from concurrent.futures import Future
from typing import Any

from syno_lab.experiments import Running, SearchSettings
from syno_lab.trial import TrialRequest

TRAINING = TrialRequest(backbone="resnet20", data="digits", options={"width": 4, "blocks": 1}, epochs=2)


def settings(**changes: Any) -> SearchSettings:
    """A search over small operators of a small network."""
    given: dict[str, Any] = {
        "training": TRAINING,
        "trials": 12,
        "limits": {"max_primitives": 4},
        "coefficients": ("s=2: 1",),
        "seeds": (),
    }
    return SearchSettings(**given | changes)


def accuracy(operator: str) -> float:
    """Something that depends on the operator, the same in every process."""
    return random.Random(operator).random()


class Known:
    """A runner of trainings that knows what comes out; each training lasts until :meth:`end`, or ends at once."""

    def __init__(self, *, at_once: bool = True, endings: dict[int, dict[str, Any]] | None = None) -> None:
        self.at_once = at_once
        self.endings = endings or {}
        self.begun: dict[str, tuple[TrialRequest, Future[dict[str, Any]]]] = {}

    def submit(self, name: str, request: TrialRequest) -> Running:
        future: Future[dict[str, Any]] = Future()
        assert name not in self.begun, f"{name} is begun twice"
        self.begun[name] = (request, future)
        if self.at_once:
            self.end(name)
        return Running(future)

    def find(self, name: str, request: TrialRequest) -> Running | None:
        return Running(self.begun[name][1]) if name in self.begun else None

    def end(self, name: str) -> None:
        request, future = self.begun[name]
        assert request.operator is not None
        value = accuracy(request.operator)
        outcome = {"state": "finished", "accuracy": value, "curve": [{"accuracy": value / 2}, {"accuracy": value}]}
        future.set_result(outcome | self.endings.get(int(name.rpartition(" ")[2]), {}))
