"""Algorithm 1, lines 6 to 9: what is about as accurate as the baseline is tuned while the search goes on.

Each trial within the margin becomes a job of kind ``tune`` in the search's lab, and its latency (of what: see
:mod:`.layers`) goes to the store when it is there. A tuning that fails costs the search nothing: its reason stays with
its job, and is shown with the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from syno_lab.errors import SpecError, SynoError
from syno_lab.evaluate.pareto import pareto_front
from syno_lab.evaluate.searching.evaluators import Running
from syno_lab.evaluate.searching.layers import OF, Layer, baseline_layers, layers_of, summed
from syno_lab.evaluate.searching.settings import TuningChoice
from syno_lab.evaluate.searching.space import Space
from syno_lab.evaluate.tuning.presets import enough_s, find_preset
from syno_lab.ir.operator import Operator

if TYPE_CHECKING:
    from syno_lab.evaluate.jobs import Lab
    from syno_lab.evaluate.store import SearchLog

TUNE = "tune"
LOOK_S = 0.5


class Tuners(Protocol):
    """What a search tunes with. Names are unique in a lab and stay when a search goes on in another process."""

    def submit(self, name: str, params: Mapping[str, Any]) -> Running:
        """Begin a tuning: the future is of the result of :func:`syno_lab.evaluate.tuning.job.run`."""

    def find(self, name: str, params: Mapping[str, Any]) -> Running | None:
        """That tuning, begun before by whichever process; None where there is none to go on."""


class JobTuners:
    """Tunings as jobs of kind ``tune``; they go on when the search's own process ends.

    Args:
        lab: an open lab; within a job that of its context, so that cancelling the search cancels them.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def submit(self, name: str, params: Mapping[str, Any]) -> Running:
        """See :class:`Tuners`."""
        handle = self._lab.submit(TUNE, params, name=name)
        return Running(handle.future(), handle.id)

    def find(self, name: str, params: Mapping[str, Any]) -> Running | None:
        """See :class:`Tuners`. What was paused with the search goes on; what was cancelled with it does not."""
        jobs = self._lab.ledger.jobs("kind=? AND name=?", (TUNE, name))
        if not jobs or jobs[-1].state == "cancelled" or jobs[-1].wish == "cancel" or jobs[-1].params != params:
            return None
        handle = self._lab.job(jobs[-1].id)
        handle.resume()
        return Running(handle.future(), handle.id)


@dataclass
class _Pending:
    number: int | None  # None: the baseline
    layers: list[Layer]
    running: Running


class Tunings:
    """The tunings of one search.

    Args:
        choice: for what and how.
        name: of the search.
        baseline_accuracy: of the network as it is, a share of 1.
        space, log: of the search.
        tuners: who tunes.
    """

    def __init__(
        self, choice: TuningChoice, name: str, baseline_accuracy: float, space: Space, log: SearchLog, tuners: Tuners
    ) -> None:
        self.choice = choice
        self.least = baseline_accuracy - choice.within / 100
        self.failed: dict[int, str] = {}
        self.baseline_ms: float | None = None
        self.baseline_reason = ""
        self._name, self._space, self._log, self._tuners = name, space, log, tuners
        self._latencies = {n: found["latency_ms"] for n, found in log.latencies(choice.target).items()}
        self._accuracies: dict[int, float] = {}
        self._pending: list[_Pending] = []
        try:
            self._begin(None, baseline_layers(space.sites))
        except SpecError as error:
            self.baseline_reason = f"not tuned: {error}"

    def consider(self, number: int, outcome: Mapping[str, Any]) -> None:
        """Tune a trial that has ended, if it is accurate enough and was not tuned for this target before."""
        accuracy = outcome.get("accuracy")
        if outcome.get("state") != "finished" or accuracy is None or accuracy < self.least:
            return
        self._accuracies[number] = accuracy
        if number not in self._latencies:
            operator = Operator.from_json(self._log.trial(number).operator)
            self._begin(number, layers_of(operator, self._space.sites, self._space.strides))

    def look(self) -> None:
        """Write down what has ended."""
        for one in [one for one in self._pending if one.running.future.done()]:
            self._pending.remove(one)
            self._ended(one)

    def finish(self, report: Callable[[float, str], None], should_stop: Callable[[], bool]) -> bool:
        """Wait for what is under way; False when ``should_stop`` said so before it had ended."""
        total = len(self._pending)
        while self._pending:
            if should_stop():
                return False
            report(1 - len(self._pending) / total, self.line())
            wait([one.running.future for one in self._pending], timeout=LOOK_S, return_when=FIRST_COMPLETED)
            self.look()
        return True

    # -- shown -------------------------------------------------------------------------------------------------------

    def latency_ms(self, number: int) -> float | None:
        """Of a trial that was tuned."""
        return self._latencies.get(number)

    def front(self) -> list[dict[str, Any]]:
        """What no other tuned trial beats in accuracy and latency, in the order of asking."""
        numbers = sorted(number for number in self._latencies if number in self._accuracies)
        points = [{"number": n, "accuracy": self._accuracies[n], "latency_ms": self._latencies[n]} for n in numbers]
        return [points[place] for place in pareto_front(points, maximise=["accuracy"], minimise=["latency_ms"])]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; ``baseline_ms`` is that of the layers that are replaced, None (with a reason) where unknown."""
        return {
            "target": self.choice.target,
            "of": OF,
            "within": self.choice.within,
            "least_accuracy": self.least,
            "tuned": len(self._latencies),
            "under_way": [one.number for one in self._pending if one.number is not None],
            "failed": {str(number): reason for number, reason in self.failed.items()},
            "baseline_ms": self.baseline_ms,
            "baseline_reason": self.baseline_reason,
            "front": self.front(),
        }

    def line(self) -> str:
        """For people."""
        parts = [f"{len(self._latencies)} tuned"]
        if self._pending:
            parts[0] += f", {len(self._pending)} being tuned"
        if front := self.front():
            fastest = min(front, key=lambda point: float(point["latency_ms"]))
            than = f" (baseline {self.baseline_ms:.4g} ms)" if self.baseline_ms is not None else ""
            parts.append(f"fastest {fastest['latency_ms']:.4g} ms{than}: trial {fastest['number']}")
        if self.failed:
            number, reason = list(self.failed.items())[-1]
            parts.append(f"trial {number} was not tuned: {reason}")
        return "; ".join(parts)

    # -- within ------------------------------------------------------------------------------------------------------

    def _begin(self, number: int | None, layers: list[Layer]) -> None:
        what = "the baseline" if number is None else f"trial {number}"
        name = f"{self._name}: {what} on {self.choice.target}"
        params = self._params(layers)
        running = self._tuners.find(name, params) or self._tuners.submit(name, params)
        self._pending.append(_Pending(number, layers, running))

    def _params(self, layers: list[Layer]) -> dict[str, Any]:
        choice = self.choice
        trials = choice.trials or find_preset(choice.preset).trials
        params: dict[str, Any] = {
            "tasks": [one.task for one in layers],
            "target": choice.target,
            "preset": choice.preset,
            "trials": trials,
            "deadline_s": enough_s(trials, len(layers)),
        }
        if choice.tracker is not None:
            params |= {"tracker": choice.tracker, "key": choice.board_key}
        return params

    def _ended(self, one: _Pending) -> None:
        try:
            found = summed(one.layers, one.running.future.result())
        except CancelledError:
            self._failed(one.number, "its job was cancelled")
        except SynoError as error:  # of a layer, or of the job
            self._failed(one.number, str(error))
        else:
            if one.number is None:
                self.baseline_ms = found["latency_ms"]
            else:
                self._log.record_latency(one.number, self.choice.target, found | {"job": one.running.job})
                self._latencies[one.number] = found["latency_ms"]

    def _failed(self, number: int | None, reason: str) -> None:
        if number is None:
            self.baseline_reason = reason
        else:
            self.failed[number] = reason
