"""Algorithm 1, lines 6 to 9: tune the trials about as accurate as the baseline, while the search continues.

Each trial within the margin becomes a job of kind ``tune`` in the search's lab, and its latency goes to the store when
the job ends: that of the whole network through Relax, on the target (:mod:`syno_lab.tuning.job`), or, as a
quick estimate, the sum over the replaced layers alone, for one example: calls x milliseconds of the operator in each
layer. There the rest of the network, a stride's pooling and a bias are left out, which cost the same for every
operator, and layers of one size are one task. Where the latency is an objective of the search, every trained trial is
tuned. A tuning that fails does not end the search: the reason stays with its job and is shown with the trial. Whole
networks are tuned one after another: they share records, and would disturb each other.
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

#: The word that the store keeps for what a latency covers.
OF = "replaced layers"


@dataclass(frozen=True)
class Layer:
    """An operator in all layers of one size: the first layer's ``name``, the ``binding``, the sum of ``calls``."""

    name: str
    operator: str
    binding: dict[str, int]
    calls: int

    @property
    def task(self) -> dict[str, JSON]:
        """The task of a job of kind ``tune``."""
        builder = builder_of(self.operator)
        return {"label": self.name, "operator": self.operator, "binding": self.binding, "builder": builder}


def layers_of(operator: Operator, sites: Sequence[Site], strides: Strides) -> list[Layer]:
    """``operator`` in all ``sites``. Raises SpecError where it does not fit one."""
    text = operator.to_json()
    found = []
    for site, place in zip(sites, system_of(operator).placement(operator, sites, strides).places, strict=True):
        if place.binding is None:
            raise SpecError(f"{place.name}: {place.reason}")
        found.append(Layer(site.name, text, place.binding, site.calls))
    return _merged(found)


def baseline_layers(sites: Iterable[Site]) -> list[Layer]:
    """The layers at the ``sites`` as operators. Raises SpecError for a layer for which no system has an operator."""
    found = ((site, *operator_for(site)) for site in sites)
    return _merged(Layer(site.name, operator.to_json(), sizes, site.calls) for site, operator, sizes in found)


class _Result(msgspec.Struct):
    label: str
    latency_ms: float
    trials: int
    preset: str
    conditions: str
    tvm_version: str


class _Answer(msgspec.Struct):
    """What is read of the result of a job of kind ``tune``."""

    results: tuple[_Result, ...]
    failed: dict[str, str]


def summed(layers: Sequence[Layer], answer: Mapping[str, JSON]) -> dict[str, JSON]:
    """Sum the latencies of ``layers`` from the result of a job of kind ``tune``, for the store.

    Raises TuningError: a layer has no latency; the message has the reason.
    """
    found = msgspec.convert(answer, _Answer)
    for name, reason in found.failed.items():
        raise TuningError(f"{name}: {reason}")
    results = {result.label: result for result in found.results}
    parts = [Measured(one.name, one.calls, one.binding, results[one.name].latency_ms) for one in layers]
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
    for one in layers:
        size = one.operator, frozenset(one.binding.items())
        known = merged.get(size)
        merged[size] = one if known is None else replace(known, calls=known.calls + one.calls)
    return list(merged.values())


@dataclass
class _Pending:
    number: int | None  # None: the baseline
    layers: list[Layer] | None  # None: the whole network
    params: dict[str, JSON]
    running: Running | None = None  # None: waits for its turn


class Tunings:
    """The tunings of one search.

    Args:
        choice: which trials are tuned, for which target, and how.
        name: the search's name.
        baseline_accuracy: accuracy of the network without an operator, from 0 to 1; None where no margin asks for it.
        space, log: the search's space and its records in the store.
        runner: runs the tunings.
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
        """Tune a trial that has ended, if it is accurate enough and was not tuned for this target before."""
        accuracy = ended.trained
        if accuracy is None or accuracy < self.least:
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
    def futures(self) -> list[Future[dict[str, JSON]]]:
        """Of the tunings under way."""
        return [one.running.future for one in self._pending if one.running is not None]

    def look(self) -> None:
        """Record the tunings that have ended, and begin the next one that waits."""
        for one in [one for one in self._pending if one.running is not None and one.running.future.done()]:
            self._pending.remove(one)
            self._ended(one)
        self._go_on()

    def finish(self, report: Report, should_stop: Callable[[], bool]) -> bool:
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

    def front(self) -> list[dict[str, float]]:
        """The tuned trials on the front of accuracy and latency, in the order of asking."""
        numbers = sorted(number for number in self._latencies if number in self._accuracies)
        points = [{"number": n, "accuracy": self._accuracies[n], "latency_ms": self._latencies[n]} for n in numbers]
        return [points[place] for place in pareto_front(points, maximise=["accuracy"], minimise=["latency_ms"])]

    def said(self) -> Tuned:
        """What the files of the search say of its tunings."""
        return Tuned(
            target=self.choice.target,
            stored_as=self.choice.stored_as,
            of=WHOLE if self.choice.is_whole else OF,
            trials=self._trials,
            scheduler=self.choice.scheduler if self.choice.is_whole else "equal",
            within=self.choice.within,
            least_accuracy=self.least,
            tuned=len(self._latencies),
            under_way=tuple([one.number for one in self._pending if one.number is not None]),
            failed={str(number): reason for number, reason in self.failed.items()},
            baseline_ms=self.baseline_ms,
            baseline_layers=self.baseline_layers,
            baseline_facts=self.baseline_facts,
            baseline_reason=self.baseline_reason,
            front=tuple(self.front()),
        )

    def line(self) -> str:
        """The state of the tunings in one line of text."""
        parts = [f"{len(self._latencies)} tuned"]
        if self._pending:
            parts[0] += f", {len(self._pending)} being tuned"
        if front := self.front():
            fastest = min(front, key=lambda point: point["latency_ms"])
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
            one.running = self._runner.find(name, one.params) or self._runner.submit(name, one.params)

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
                self.baseline_ms = finite(found["latency_ms"])
                if one.layers is None:
                    self.baseline_facts = found
                else:
                    self.baseline_layers = msgspec.convert(found["layers"], tuple[Measured, ...])
            else:
                self._log.record_latency(one.number, self.choice.stored_as, {**found, "job": one.running.job})
                self._latencies[one.number] = msgspec.convert(found["latency_ms"], float)

    def _failed(self, number: int | None, reason: str) -> None:
        if number is None:
            self.baseline_reason = reason
        else:
            self.failed[number] = reason
