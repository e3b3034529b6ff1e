"""Algorithm 1, lines 6 to 9: tune the trials about as accurate as the baseline, while the search continues.

Each trial within the margin becomes a job of kind ``tune`` in the search's lab, and its latency goes to the store when
the job ends: that of the whole network through Relax, on the target (:mod:`syno_lab.tuning.job`), or, as a
quick estimate, the sum over the replaced layers (:mod:`.layers`). Where the latency is an objective of the search,
every trained trial is tuned so. A tuning that fails does not end the search: the reason stays with its job and is shown
with the trial. Whole networks are tuned one after another: they share records, and would disturb each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from syno_lab.errors import SpecError, SynoError
from syno_lab.experiments.evaluators import LocalEvaluators, Running
from syno_lab.experiments.layers import OF, Layer, baseline_layers, layers_of, summed
from syno_lab.experiments.settings import TuningChoice
from syno_lab.experiments.space import Space
from syno_lab.store.pareto import pareto_front
from syno_lab.systems import read_operator
from syno_lab.tuning.job import WHOLE
from syno_lab.tuning.presets import enough_s, find_preset

if TYPE_CHECKING:
    from syno_lab.jobs import Lab
    from syno_lab.store import SearchLog

TUNE = "tune"
LOOK_S = 0.5


class Tuners(Protocol):
    """Runs tunings for a search. Names are unique in a lab and stay when another process continues the search."""

    def submit(self, name: str, params: Mapping[str, Any]) -> Running:
        """Begin a tuning: the future is of the result of :func:`syno_lab.tuning.job.run`."""

    def find(self, name: str, params: Mapping[str, Any]) -> Running | None:
        """The tuning of this name that any process began before; None where there is none to continue."""


class JobTuners:
    """Tunings as jobs of kind ``tune``; they continue when the search's own process ends.

    Args:
        lab: an open lab; a search that is a job uses the lab of its context, so that cancelling it cancels its tunings.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def submit(self, name: str, params: Mapping[str, Any]) -> Running:
        """See :class:`Tuners`."""
        handle = self._lab.submit(TUNE, params, name=name)
        return Running(handle.future(), handle.id)

    def find(self, name: str, params: Mapping[str, Any]) -> Running | None:
        """See :class:`Tuners`. A tuning paused with the search continues; one cancelled with it does not."""
        jobs = self._lab.ledger.jobs("kind=? AND name=?", (TUNE, name))
        if not jobs or jobs[-1].state == "cancelled" or jobs[-1].wish == "cancel" or jobs[-1].params != params:
            return None
        handle = self._lab.job(jobs[-1].id)
        if not jobs[-1].is_ended:
            handle.allow(jobs[-1])  # its parameters are exactly those of this search
        handle.resume()
        return Running(handle.future(), handle.id)


class LocalTuners:
    """Tunings in the threads of a search's trainings: with one thread, nothing else runs while candidates are timed.

    A tuning that is begun again continues from its records.

    Args:
        evaluators: the trainings whose threads are used.
        lab: the lab's folder; tuning jobs keep their records there, too.
    """

    def __init__(self, evaluators: LocalEvaluators, lab: Path) -> None:
        self._evaluators, self._lab = evaluators, lab

    def submit(self, name: str, params: Mapping[str, Any]) -> Running:
        """See :class:`Tuners`."""
        from syno_lab.tuning.job import run

        here = _Here(self._lab, self._evaluators.folder_of(name), self._evaluators.should_stop)
        return self._evaluators.begin(lambda: run(dict(params), here))

    def find(self, name: str, params: Mapping[str, Any]) -> Running | None:
        """See :class:`Tuners`: a tuning ends with its process."""
        return None


@dataclass(frozen=True)
class _Here:
    """The context of a tuning that is not a job (:class:`syno_lab.tuning.job.Workplace`)."""

    root: Path
    folder: Path
    should_stop: Callable[[], bool]

    def report(self, fraction: float, message: str = "") -> None:
        """Ignore it: nobody watches this tuning."""

    def log(self, line: str) -> None:
        """Ignore it: the tuning's own log has it."""


@dataclass
class _Pending:
    number: int | None  # None: the baseline
    layers: list[Layer] | None  # None: the whole network
    params: dict[str, Any]
    running: Running | None = None  # None: waits for its turn


class Tunings:
    """The tunings of one search.

    Args:
        choice: which trials are tuned, for which target, and how.
        name: the search's name.
        baseline_accuracy: accuracy of the network without an operator, from 0 to 1; None where no margin asks for it.
        space, log: the search's space and its records in the store.
        tuners: run the tunings.
    """

    def __init__(
        self,
        choice: TuningChoice,
        name: str,
        baseline_accuracy: float | None,
        space: Space,
        log: SearchLog,
        tuners: Tuners,
    ) -> None:
        self.choice = choice
        self.least = 0.0
        if baseline_accuracy is not None and choice.within is not None:
            self.least = baseline_accuracy - choice.within / 100
        self.failed: dict[int, str] = {}
        self.baseline_ms: float | None = None
        self.baseline_layers: list[dict[str, Any]] = []
        self.baseline_facts: dict[str, Any] = {}
        self.baseline_reason = ""
        self._name, self._space, self._log, self._tuners = name, space, log, tuners
        self._latencies = {n: found["latency_ms"] for n, found in log.latencies(choice.stored_as).items()}
        self._accuracies: dict[int, float] = {}
        self._pending: list[_Pending] = []
        try:
            self._begin(None, None if choice.is_whole else baseline_layers(space.sites))
        except SpecError as error:
            self.baseline_reason = f"not tuned: {error}"

    def consider(self, number: int, outcome: Mapping[str, Any]) -> None:
        """Tune a trial that has ended, if it is accurate enough and was not tuned for this target before."""
        accuracy = outcome.get("accuracy")
        if outcome.get("state") != "finished" or accuracy is None or accuracy < self.least:
            return
        self._accuracies[number] = accuracy
        if self.is_settled(number) or any(one.number == number for one in self._pending):
            return
        operator = read_operator(self._log.trial(number).operator)
        layers = None if self.choice.is_whole else layers_of(operator, self._space.sites, self._space.strides)
        self._begin(number, layers)

    def is_settled(self, number: int) -> bool:
        """Whether the trial has a latency or a reason why it has none."""
        return number in self._latencies or number in self.failed

    @property
    def futures(self) -> list[Future[dict[str, Any]]]:
        """Of the tunings under way."""
        return [one.running.future for one in self._pending if one.running is not None]

    def look(self) -> None:
        """Record the tunings that have ended, and begin the next one that waits."""
        for one in [one for one in self._pending if one.running is not None and one.running.future.done()]:
            self._pending.remove(one)
            self._ended(one)
        self._go_on()

    def finish(self, report: Callable[[float, str], None], should_stop: Callable[[], bool]) -> bool:
        """Wait for the tunings under way; False if ``should_stop`` returned True before they ended."""
        total = len(self._pending)
        while self._pending:
            if should_stop():
                return False
            report(1 - len(self._pending) / total, self.line())
            wait(self.futures, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            self.look()
        return True

    # -- shown -------------------------------------------------------------------------------------------------------

    def latency_ms(self, number: int) -> float | None:
        """The latency of a tuned trial in milliseconds, None for one without."""
        return self._latencies.get(number)

    def front(self) -> list[dict[str, Any]]:
        """The tuned trials on the front of accuracy and latency, in the order of asking."""
        numbers = sorted(number for number in self._latencies if number in self._accuracies)
        points = [{"number": n, "accuracy": self._accuracies[n], "latency_ms": self._latencies[n]} for n in numbers]
        return [points[place] for place in pareto_front(points, maximise=["accuracy"], minimise=["latency_ms"])]

    def to_dict(self) -> dict[str, Any]:
        """Return data for JSON; ``baseline_ms`` is the baseline's latency, None (with a reason) if unknown.

        ``of`` says what a latency is of, and ``stored_as`` under which target the store has them. ``baseline_layers``
        are the replaced layers one by one, as :func:`.layers.summed` has them; ``baseline_facts`` are those of the
        baseline's whole network (:class:`syno_lab.tuning.network.NetworkFacts`).
        """
        return {
            "target": self.choice.target,
            "stored_as": self.choice.stored_as,
            "of": WHOLE if self.choice.is_whole else OF,
            "trials": self._trials,
            "scheduler": self.choice.scheduler if self.choice.is_whole else "equal",
            "within": self.choice.within,
            "least_accuracy": self.least,
            "tuned": len(self._latencies),
            "under_way": [one.number for one in self._pending if one.number is not None],
            "failed": {str(number): reason for number, reason in self.failed.items()},
            "baseline_ms": self.baseline_ms,
            "baseline_layers": self.baseline_layers,
            "baseline_facts": self.baseline_facts,
            "baseline_reason": self.baseline_reason,
            "front": self.front(),
        }

    def line(self) -> str:
        """The state of the tunings in one line of text."""
        parts = [f"{len(self._latencies)} tuned"]
        if self._pending:
            parts[0] += f", {len(self._pending)} being tuned"
        if front := self.front():
            fastest = min(front, key=lambda point: float(point["latency_ms"]))
            than = f" (baseline {self.baseline_ms:.4g} ms)" if self.baseline_ms is not None else ""
            what = "least whole network" if self.choice.is_whole else "least sum of layers"
            parts.append(f"{what} {fastest['latency_ms']:.4g} ms{than}: trial {fastest['number']}")
        if self.failed:
            number, reason = list(self.failed.items())[-1]
            parts.append(f"trial {number} was not tuned: {reason}")
        return "; ".join(parts)

    # -- within ------------------------------------------------------------------------------------------------------

    def _begin(self, number: int | None, layers: list[Layer] | None) -> None:
        self._pending.append(_Pending(number, layers, self._params(number, layers)))
        self._go_on()

    def _go_on(self) -> None:
        """Begin what waits: all of it, or the next whole network when no other is being tuned."""
        for one in [one for one in self._pending if one.running is None]:
            if self.choice.is_whole and self.futures:
                return
            what = "the baseline" if one.number is None else f"trial {one.number}"
            name = f"{self._name}: {what} on {self.choice.target}"
            one.running = self._tuners.find(name, one.params) or self._tuners.submit(name, one.params)

    @property
    def _trials(self) -> int:
        return self.choice.trials or find_preset(self.choice.preset).trials

    def _params(self, number: int | None, layers: list[Layer] | None) -> dict[str, Any]:
        choice = self.choice
        trials = self._trials
        params: dict[str, Any] = {"target": choice.target, "preset": choice.preset, "trials": trials}
        if layers is None:
            operator = None if number is None else self._log.trial(number).operator
            request = msgspec.structs.replace(self._space.network, operator=operator)
            params |= {"network": request.to_dict(), "scheduler": choice.scheduler}
        else:
            params |= {"tasks": [one.task for one in layers], "deadline_s": enough_s(trials, len(layers))}
        if choice.tracker is not None:
            params |= {"tracker": choice.tracker, "key": choice.board_key}
        return params

    def _ended(self, one: _Pending) -> None:
        assert one.running is not None
        try:
            answer = one.running.future.result()
            found = answer if one.layers is None else summed(one.layers, answer)
        except CancelledError:
            self._failed(one.number, "its job was cancelled")
        except SynoError as error:  # of a layer, or of the job
            self._failed(one.number, str(error))
        else:
            if one.number is None:
                self.baseline_ms = found["latency_ms"]
                if one.layers is None:
                    self.baseline_facts = dict(found)
                else:
                    self.baseline_layers = found["layers"]
            else:
                self._log.record_latency(one.number, self.choice.stored_as, {**found, "job": one.running.job})
                self._latencies[one.number] = found["latency_ms"]

    def _failed(self, number: int | None, reason: str) -> None:
        if number is None:
            self.baseline_reason = reason
        else:
            self.failed[number] = reason
