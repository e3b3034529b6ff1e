"""Tunes trials that are about as accurate as the baseline, during the search (Algorithm 1, lines 6 to 9).

Each trial within the margin becomes a job of kind ``tune`` in the search's lab. When the job ends, the trial's latency
goes to the store. A latency is the whole network's in Relax, on the target (:mod:`syno_lab.tuning.job`), or a quick
estimate: the sum over the replaced layers of calls x milliseconds, for one example. Layers of one size share a tuning.
The sum leaves out biases, the pooling for a stride and all other layers: their costs do not depend on the operator. If
the latency is an objective of the search, every trained trial is tuned. A failed tuning does not end the search; the
job's reason is shown with the trial. Whole networks are tuned one after another, because they share records and would
disturb each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, replace

import msgspec

from syno_lab.errors import SpecError, SynoError, TuningError
from syno_lab.experiments.runner import LOOK_S, Report, Runner, Running
from syno_lab.experiments.settings import TuningChoice
from syno_lab.experiments.space import Space
from syno_lab.models.sites import Site, Strides
from syno_lab.protocol import Operator
from syno_lab.reports.searched import Measured, Outcome, Tuned
from syno_lab.store import SearchLog
from syno_lab.store.pareto import pareto_front
from syno_lab.store.records import finite
from syno_lab.systems import builder_of, operator_for, read_operator, system_of
from syno_lab.tuning.job import WHOLE
from syno_lab.tuning.options import enough_s, find_preset
from syno_lab.versioned import JSON

#: The store's word for latencies that are sums over replaced layers.
OF = "replaced layers"


@dataclass(frozen=True)
class Layer:
    """An operator in all layers of one size: the first layer's ``name``, the ``binding``, and the sum of ``calls``."""

    name: str
    operator: str
    binding: dict[str, int]
    calls: int

    @property
    def task(self) -> dict[str, JSON]:
        """The data of a task for a job of kind ``tune``."""
        builder = builder_of(self.operator)
        return {"label": self.name, "operator": self.operator, "binding": self.binding, "builder": builder}


def layers_of(operator: Operator, sites: Sequence[Site], strides: Strides) -> list[Layer]:
    """Return ``operator`` with its binding for each size of layers. Raises SpecError if a layer does not fit."""
    text = operator.to_json()
    layers = []
    for site, slot in zip(sites, system_of(operator).placement(operator, sites, strides).places, strict=True):
        if slot.binding is None:
            raise SpecError(f"{slot.name}: {slot.reason}")
        layers.append(Layer(site.name, text, slot.binding, site.calls))
    return _merged(layers)


def baseline_layers(sites: Iterable[Site]) -> list[Layer]:
    """Return operators that compute the replaced layers. Raises SpecError for a layer that no operator computes."""
    operators = ((site, *operator_for(site)) for site in sites)
    return _merged(Layer(site.name, operator.to_json(), sizes, site.calls) for site, operator, sizes in operators)


class _Result(msgspec.Struct):
    label: str
    latency_ms: float
    trials: int
    preset: str
    conditions: str
    tvm_version: str


class _Answer(msgspec.Struct):
    """The fields that are read from the result of a job of kind ``tune``."""

    results: tuple[_Result, ...]
    failed: dict[str, str]


def summed(layers: Sequence[Layer], answer: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the sum of the latencies of ``layers``, with details for the store, from the result of a tuning job.

    Raises TuningError with the reason if a layer has no latency.
    """
    tuned = msgspec.convert(answer, _Answer)
    for name, reason in tuned.failed.items():
        raise TuningError(f"{name}: {reason}")
    results = {result.label: result for result in tuned.results}
    parts = [Measured(layer.name, layer.calls, layer.binding, results[layer.name].latency_ms) for layer in layers]
    first = results[layers[0].name]
    return {
        "latency_ms": sum(part.calls * part.latency_ms for part in parts),
        "of": OF,
        "layers": msgspec.to_builtins(parts),
        "trials": sum(result.trials for result in results.values()),
        "preset": first.preset,
        "conditions": first.conditions,
        "tvm_version": first.tvm_version,
    }


def _merged(layers: Iterable[Layer]) -> list[Layer]:
    merged: dict[tuple[str, frozenset[tuple[str, int]]], Layer] = {}
    for layer in layers:
        size = layer.operator, frozenset(layer.binding.items())
        known = merged.get(size)
        merged[size] = layer if known is None else replace(known, calls=known.calls + layer.calls)
    return list(merged.values())


@dataclass
class _Pending:
    number: int | None  # None for the baseline.
    layers: list[Layer] | None  # None for the whole network.
    params: dict[str, JSON]
    running: Running | None = None  # None before the start


class Tunings:
    """The tunings of one search.

    Args:
        choice: which trials are tuned, for which target, and how.
        name: the search's name.
        baseline_accuracy: accuracy of the network without an operator, from 0 to 1; None without a margin.
        space, log: the search's space and its records in the store.
        runner: runs the tunings, as jobs or in threads.
    """

    def __init__(
        self,
        choice: TuningChoice,
        name: str,
        baseline_accuracy: float | None,
        space: Space,
        log: SearchLog,
        runner: Runner,
    ) -> None:
        self.choice = choice
        self.least = 0.0
        if baseline_accuracy is not None and choice.within is not None:
            self.least = baseline_accuracy - choice.within / 100
        self.failed: dict[int, str] = {}
        self.baseline_ms: float | None = None
        self.baseline_layers: tuple[Measured, ...] = ()
        self.baseline_facts: Mapping[str, JSON] = {}
        self.baseline_reason = ""
        self._name, self._space, self._log, self._runner = name, space, log, runner
        self._latencies = log.milliseconds(choice.stored_as)
        self._accuracies: dict[int, float] = {}
        self._pending: list[_Pending] = []
        try:
            self._begin(None, None if choice.is_whole else baseline_layers(space.sites))
        except SpecError as error:
            self.baseline_reason = f"not tuned: {error}"

    def consider(self, number: int, ended: Outcome) -> None:
        """Tune a trial that has ended, if the trial is accurate enough and has no tuning for this target."""
        accuracy = ended.trained
        if accuracy is None or accuracy < self.least:
            return
        self._accuracies[number] = accuracy
        if self.is_settled(number) or any(entry.number == number for entry in self._pending):
            return
        operator = read_operator(self._log.trial(number).operator)
        layers = None if self.choice.is_whole else layers_of(operator, self._space.sites, self._space.strides)
        self._begin(number, layers)

    def is_settled(self, number: int) -> bool:
        """Whether the trial has a latency, or a reason for its absence."""
        return number in self._latencies or number in self.failed

    @property
    def futures(self) -> list[Future[dict[str, JSON]]]:
        """The futures of the running tunings."""
        return [entry.running.future for entry in self._pending if entry.running is not None]

    def look(self) -> None:
        """Store the latencies of tunings that have ended, and start the next waiting tuning."""
        for entry in [row for row in self._pending if row.running is not None and row.running.future.done()]:
            self._pending.remove(entry)
            self._ended(entry)
        self._go_on()

    def finish(self, report: Report, should_stop: Callable[[], bool]) -> bool:
        """Wait for all tunings; return False if ``should_stop`` returned True before their end."""
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
        """Return the latency of a tuned trial in milliseconds; None without a latency."""
        return self._latencies.get(number)

    def front(self) -> list[dict[str, float]]:
        """Return the tuned trials on the front of accuracy and latency, in the order of their numbers."""
        numbers = sorted(number for number in self._latencies if number in self._accuracies)
        points = [{"number": n, "accuracy": self._accuracies[n], "latency_ms": self._latencies[n]} for n in numbers]
        return [points[index] for index in pareto_front(points, maximise=["accuracy"], minimise=["latency_ms"])]

    def said(self) -> Tuned:
        """Return the data about the tunings for the search files."""
        return Tuned(
            target=self.choice.target,
            stored_as=self.choice.stored_as,
            of=WHOLE if self.choice.is_whole else OF,
            trials=self._trials,
            scheduler=self.choice.scheduler if self.choice.is_whole else "equal",
            within=self.choice.within,
            least_accuracy=self.least,
            tuned=len(self._latencies),
            under_way=tuple([entry.number for entry in self._pending if entry.number is not None]),
            failed={str(number): reason for number, reason in self.failed.items()},
            baseline_ms=self.baseline_ms,
            baseline_layers=self.baseline_layers,
            baseline_facts=self.baseline_facts,
            baseline_reason=self.baseline_reason,
            front=tuple(self.front()),
        )

    def line(self) -> str:
        """Return the state of the tunings in one line of text."""
        parts = [f"{len(self._latencies)} tuned"]
        if self._pending:
            parts[0] += f", {len(self._pending)} being tuned"
        if front := self.front():
            fastest = min(front, key=lambda point: point["latency_ms"])
            than = f" (baseline {self.baseline_ms:.4g} ms)" if self.baseline_ms is not None else ""
            title = "least whole network" if self.choice.is_whole else "least sum of layers"
            parts.append(f"{title} {fastest['latency_ms']:.4g} ms{than}: trial {fastest['number']}")
        if self.failed:
            number, reason = list(self.failed.items())[-1]
            parts.append(f"trial {number} was not tuned: {reason}")
        return "; ".join(parts)

    # -- within ------------------------------------------------------------------------------------------------------

    def _begin(self, number: int | None, layers: list[Layer] | None) -> None:
        self._pending.append(_Pending(number, layers, self._params(number, layers)))
        self._go_on()

    def _go_on(self) -> None:
        """Start all waiting tunings of layers, or the next tuning of a whole network if no other tuning runs."""
        for entry in [row for row in self._pending if row.running is None]:
            if self.choice.is_whole and self.futures:
                return
            title = "the baseline" if entry.number is None else f"trial {entry.number}"
            name = f"{self._name}: {title} on {self.choice.target}"
            entry.running = self._runner.find(name, entry.params) or self._runner.submit(name, entry.params)

    @property
    def _trials(self) -> int:
        return self.choice.trials or find_preset(self.choice.preset).trials

    def _params(self, number: int | None, layers: list[Layer] | None) -> dict[str, JSON]:
        choice = self.choice
        trials = self._trials
        params: dict[str, JSON] = {"target": choice.target, "preset": choice.preset, "trials": trials}
        if layers is None:
            operator = None if number is None else self._log.trial(number).operator
            request = msgspec.structs.replace(self._space.network, operator=operator)
            params |= {"network": request.to_dict(), "scheduler": choice.scheduler}
        else:
            params |= {"tasks": [layer.task for layer in layers], "deadline_s": enough_s(trials, len(layers))}
        if choice.tracker is not None:
            params |= {"tracker": choice.tracker, "key": choice.board_key}
        return params

    def _ended(self, tuning: _Pending) -> None:
        assert tuning.running is not None
        try:
            answer = tuning.running.future.result()
            result = answer if tuning.layers is None else summed(tuning.layers, answer)
        except CancelledError:
            self._failed(tuning.number, "its job was cancelled")
        except SynoError as error:  # the tuning of a layer, or the job itself, failed
            self._failed(tuning.number, str(error))
        else:
            if tuning.number is None:
                self.baseline_ms = finite(result["latency_ms"])
                if tuning.layers is None:
                    self.baseline_facts = result
                else:
                    self.baseline_layers = msgspec.convert(result["layers"], tuple[Measured, ...])
            else:
                self._log.record_latency(tuning.number, self.choice.stored_as, {**result, "job": tuning.running.job})
                self._latencies[tuning.number] = msgspec.convert(result["latency_ms"], float)

    def _failed(self, number: int | None, reason: str) -> None:
        if number is None:
            self.baseline_reason = reason
        else:
            self.failed[number] = reason
