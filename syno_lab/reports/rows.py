"""The trials of a store as rows of one Python type, and the trainings of a search in rungs.

Accuracies on different rungs are different measures, because the network, images and steps differ. Only the finals
(full recipe, test images) can be compared with the baseline of a search without rungs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, fsum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from syno_lab.errors import FormatError
from syno_lab.inputs import count_of
from syno_lab.reports.marks import system_and_mark
from syno_lab.reports.searched import RESULT, STATUS, Baseline, Outcome, Searched, read_said, searched, told
from syno_lab.reports.text_tables import Cell
from syno_lab.store import SearchLog
from syno_lab.store.latencies import TIMES, TORCH, is_of_network
from syno_lab.store.records import finite
from syno_lab.store.rungs import BASELINE, FINAL, RIVALS, TIMING, RungTraining
from syno_lab.store.searches import Layers
from syno_lab.systems import find_system, format_of
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.jobs import JobRecord
    from syno_lab.store import SearchLog, Store

TRAINED = "finished"


class Trained(Outcome, frozen=True, kw_only=True):
    """One training that has ended.

    Attributes:
        number: the trial's number; :data:`.store.rungs.BASELINE` for the network without an operator.
        rung: the name of the rung; :data:`.store.rungs.FINAL` for the finals.
        seed: the seed of the training.
        measure: the value by which the rung ranks operators, higher is better.
        ended: the time of the end (ISO 8601, UTC).
    """

    number: int
    rung: str
    seed: int
    measure: float | None
    ended: str


class OnRung(NamedTuple):
    """The trainings of one operator on one rung.

    Attributes:
        rung: the name of the rung.
        seeds: the number of trainings that ended.
        accuracy, measure: means over the seeds; None where a training did not finish.
        state: ``finished``, or the outcome of the first training that did not finish.
        wall_s: the wall seconds of all these trainings.
    """

    rung: str
    seeds: int
    accuracy: float | None
    measure: float | None
    state: str
    wall_s: float


def read_trainings(log: SearchLog) -> tuple[Trained, ...]:
    """Return the ended trainings of a search in rungs, in the order of the queue; empty for a search without rungs."""
    return tuple(_trained(row) for row in log.rungs.trainings() if row.is_ended and row.part not in (RIVALS, TIMING))


def names_of_rungs(trainings: Iterable[Trained]) -> tuple[str, ...]:
    """Return the rungs in the order in which they began, the finals last."""
    names = dict.fromkeys(training.rung for training in trainings)
    return tuple(sorted(names, key=lambda name: name == FINAL))


def on_rungs(trainings: Sequence[Trained]) -> tuple[OnRung, ...]:
    """Group the trainings of one operator by rung."""
    grouped = []
    for rung in names_of_rungs(trainings):
        group = [training for training in trainings if training.rung == rung]
        state = next((training.state for training in group if training.state != TRAINED), TRAINED)
        accuracy = _mean([training.accuracy for training in group], state)
        measure = _mean([training.measure for training in group], state)
        grouped.append(OnRung(rung, len(group), accuracy, measure, state, fsum(item.wall_s for item in group)))
    return tuple(grouped)


def _mean(values: Sequence[float | None], state: str) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if state == TRAINED and known and len(known) == len(values) else None


def _trained(training: RungTraining) -> Trained:
    return Trained(
        **msgspec.structs.asdict(told(Outcome, training.outcome)),
        number=training.number,
        rung=training.rung,
        seed=training.seed,
        measure=training.measure,
        ended=training.ended or "",
    )


#: The name of the accuracy on a rung is ``accuracy@RUNG``; the name of the finals' accuracy is ``accuracy``.
RUNG = "accuracy@"
#: The name of the latency on a target is ``latency_ms@TARGET``; see :mod:`syno_lab.store.latencies`.
LATENCY = "latency_ms@"


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial: an operator with all its results.

    Attributes:
        key: the trial's unique name in the lab: ``search:NAME#12``; for a baseline ``search:NAME#baseline``.
        source: the key of its :class:`Source`.
        number: the trial's number in the order of proposal, from 0 on; -1 for the baseline of a search.
        label: the trial's name for people.
        fingerprint: the operator's fingerprint; empty for the network without an operator.
        is_baseline: whether the source's other trials are compared with this trial.
        state: the state of its training: ``waiting``, ``finished``, ``pruned``, ….
        reason: why the training did not finish, in one line.
        accuracy: the accuracy from 0 to 1 (for text exp(-loss)), or None. In a search in rungs, this is the accuracy of
            the finals, and ``rungs`` has the accuracies of the rungs, which are other measures.
        flops: FLOPs of the whole network.
        params: parameters of the whole network.
        memory_mib: peak memory of the trial's training in MiB; None where it was not measured.
        latencies: latency in ms by target; the search defines what a latency covers.
        wall_s: wall seconds of the training.
        ended: the time at which the training ended (ISO 8601, UTC); empty where it is unknown.
        job: the number of the job that trained the trial.
        operator: the operator's JSON; empty for the network without an operator.
        steps: the steps by which a search built the operator, from the output on; ``lengths``: the operator's steps in
            each.
        probe: the probe's score, which ranks operators without training; None where the operator was not probed.
        rungs: the trainings of a search in rungs, the cheapest rung first; else empty.
        known: the name of the operator, if the search began with it; empty for a discovered operator.
        interval: the interval of the accuracy in the finals: the baseline's mean plus the interval of the difference,
            or None.
        layers: the layers that the operator replaces; empty for a whole network, and in a store without sizes.
    """

    key: str
    source: str
    number: int
    label: str
    fingerprint: str
    is_baseline: bool
    state: str
    reason: str
    accuracy: float | None
    flops: int
    params: int
    memory_mib: float | None = None
    latencies: Mapping[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    ended: str = ""
    job: int | None = None
    operator: str = ""
    steps: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    probe: float | None = None
    rungs: tuple[OnRung, ...] = ()
    known: str = ""
    interval: tuple[float, float] | None = None
    layers: Layers = ()

    @property
    def places(self) -> list[tuple[str, dict[str, int]]]:
        """The replaced layers of each size, the most FLOPs first: a name, and the sizes of the operator's variables."""
        more = {one.name: f" and {one.number - 1} more like it" if one.number > 1 else "" for one in self.layers}
        return [(one.name + more[one.name], one.binding) for one in self.layers]

    @property
    def rung(self) -> str:
        """The last rung on which the operator was trained; empty in a search without rungs."""
        return self.rungs[-1].rung if self.rungs else ""

    @property
    def worth(self) -> tuple[float, ...]:
        """The order of results: the finals' accuracy, the number of rungs, the accuracy on the last one, the probe."""
        accuracy = -1.0 if self.accuracy is None else self.accuracy
        return accuracy, len(self.rungs), self.accuracy_on(self.rung) or 0.0, self.probe or 0.0

    def accuracy_on(self, rung: str) -> float | None:
        """Return the accuracy on a rung, the mean over the seeds; None without a training."""
        return next((entry.accuracy for entry in self.rungs if entry.rung == rung), None)

    def value(self, name: str) -> Cell:
        """Return a column's value: a field, an accuracy on a rung (:data:`RUNG`) or a latency (:data:`LATENCY`)."""
        if name.startswith(RUNG):
            return self.accuracy_on(name.removeprefix(RUNG))
        cell: Cell = self.latencies.get(name.removeprefix(LATENCY)) if "@" in name else getattr(self, name)
        return cell

    @property
    def system(self) -> str:
        """The title of the operator's system; empty without an operator, and if no system can read the operator."""
        return system_and_mark(self.operator)[0]

    @property
    def primitives(self) -> str:
        """A short summary of the operator by its system: for a pGraph ``REDUCE SHARE UNFOLD``.

        Empty for the network without an operator, and for JSON that no system can read.
        """
        try:
            return find_system(format_of(self.operator)).summary(self.operator) if self.operator else ""
        except FormatError:
            return ""


@dataclass(frozen=True, slots=True)
class Source:
    """A search of a store: its ``key`` is ``search:NAME``.

    ``trainings`` are the ended trainings of a search in rungs, in the order of the queue. ``measured`` describes the
    latencies on each target, and with how many schedules the operators were tuned.
    """

    key: str
    name: str
    created: str
    settings: Mapping[str, JSON]
    targets: tuple[str, ...]
    baseline: TrialRow | None
    trainings: tuple[Trained, ...] = ()
    measured: Mapping[str, str] = field(default_factory=dict)

    @property
    def rungs(self) -> tuple[str, ...]:
        """The rungs of a search in rungs, the cheapest first and the finals last."""
        return names_of_rungs(self.trainings)


def rungs_among(rows: Iterable[TrialRow]) -> tuple[str, ...]:
    """Return the rungs on which these trials were trained, the cheapest first, without the finals."""
    return tuple(dict.fromkeys(entry.rung for row in rows for entry in row.rungs if entry.rung != FINAL))


def read_search(log: SearchLog, store: Store, jobs: Iterable[JobRecord]) -> tuple[Source, list[TrialRow]]:
    """Read a search and its trials as rows, in the order of proposal; the baseline is first if its costs are known."""
    source = f"search:{log.name}"
    query = (
        "SELECT DISTINCT target FROM syno_search_latencies JOIN syno_searches USING (search) WHERE name=? ORDER BY 1"
    )
    targets = store.database.column(query, (log.name,))
    measured = {target: log.latencies(target) for target in targets}
    trainings = read_trainings(log)
    status, result = (searched(read_said(store.path.parent, log.name, file)) for file in (STATUS, RESULT))
    by_number: dict[int, list[Trained]] = {}
    for training in trainings:
        by_number.setdefault(training.number, []).append(training)
    if trainings:
        baseline = _baseline_in_rungs(source, by_number.get(BASELINE, ()), result.baseline, log.created)
    else:
        baseline = _baseline(source, log, status, result, jobs)
    rows = [] if baseline is None else [baseline]
    known, intervals, sizes = status.known_names | result.known_names, _intervals(result), log.sizes()
    for trial in log.trials():
        outcome = told(Outcome, trial.outcome)
        pairs = ((target, finite(measured[target].get(trial.number, {}).get("latency_ms"))) for target in targets)
        row = TrialRow(
            f"{source}#{trial.number}",
            source,
            trial.number,
            f"trial {trial.number}",
            trial.fingerprint,
            False,
            trial.state,
            trial.reason,
            trial.accuracy,
            trial.flops,
            trial.params,
            outcome.peak_mib,
            {target: latency for target, latency in pairs if latency is not None},
            trial.wall_s,
            trial.ended or "",
            trial.job,
            trial.operator,
            trial.steps,
            trial.lengths,
            outcome.probe.score,
            known=known.get(trial.number, ""),
            layers=sizes.get(trial.number, ()),
        )
        rows.append(_in_rungs(row, by_number.get(trial.number, ()), intervals.get(trial.number)) if trainings else row)
    if baseline is not None:
        targets = sorted({*targets, *baseline.latencies})
    texts = {target: tuned_how(target, measured.get(target, {}).values()) for target in targets}
    search = Source(source, log.name, log.created, log.settings, tuple(targets), baseline, trainings, texts)
    return search, rows


class _How(msgspec.Struct):
    """How a latency was tuned and measured: the data in the store, in which fields may be missing."""

    trials: int | None = None
    functions: int | None = None
    where: str = ""
    layers: tuple[Any, ...] | None = None


def tuned_how(target: str, results: Iterable[Mapping[str, JSON]]) -> str:
    """Describe what latencies cover, where they were measured and how they were tuned.

    ``results`` are data of :func:`syno_lab.experiments.tunings.summed` or of a whole network
    (:class:`.network.NetworkFacts`). Examples: ``the whole network through Relax on this machine, 320 candidates tried
    for 18 to 20 functions together``; ``sum over the replaced layers, not the whole network, 48 to 64 candidates tried
    for each operator in 3 sizes of layers``.
    """
    records = [told(_How, result) for result in results]
    trials = [record.trials for record in records if record.trials is not None]
    if target == TORCH:
        return "the whole network as PyTorch runs it, in the process that trained it"
    if target in TIMES:
        return "the whole network as PyTorch runs it, in turns with the baseline and the other finalists"
    if is_of_network(target):
        wheres = dict.fromkeys(record.where for record in records if record.where)
        where = f" on {', '.join(wheres)}" if wheres else ""
        functions = [record.functions for record in records if record.functions is not None]
        tried = f", {_range(trials)} candidates tried" if trials else ""
        return (
            f"the whole network through Relax{where}{tried}"
            f"{f' for {_range(functions)} functions together' if functions and tried else ''}"
        )
    sizes = [len(record.layers) for record in records if record.layers is not None]
    tried = f", {_range(trials)} candidates tried for each operator" if trials else ""
    scope = "sum over the replaced layers, not the whole network"
    return f"{scope}{tried}{f' in {_range(sizes)} sizes of layers' if sizes else ''}"


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _in_rungs(row: TrialRow, trainings: Sequence[Trained], interval: tuple[float, float] | None) -> TrialRow:
    """Return the row of a trial in rungs. The trial's outcome in the store is only for the first rung."""
    rungs = on_rungs(trainings)
    return replace(
        row,
        state=rungs[-1].state if rungs else row.state,
        reason=next((ended.reason for ended in trainings if ended.state != TRAINED and ended.reason), row.reason),
        accuracy=next((entry.accuracy for entry in rungs if entry.rung == FINAL), None),
        memory_mib=_memory(trainings),
        wall_s=sum(entry.wall_s for entry in rungs),
        ended=max((training.ended for training in trainings), default=""),
        rungs=rungs,
        interval=interval,
    )


def _baseline_in_rungs(source: str, trainings: Sequence[Trained], known: Baseline, created: str) -> TrialRow | None:
    """Return the row of the network without an operator, with accuracies on rungs; None while its costs are unknown."""
    sources: list[Trained | Baseline] = [*(training for training in trainings if training.rung == FINAL), known]
    flops = next((entry.flops for entry in sources if entry.flops is not None), None)
    params = next((entry.params for entry in sources if entry.params is not None), None)
    if flops is None or params is None:
        return None
    row = TrialRow(f"{source}#baseline", source, -1, "baseline", "", True, "finished", "", None, flops, params)
    row = replace(_in_rungs(row, trainings, None), ended=created, latencies=known.times or {})
    seeds = next((entry.seeds for entry in row.rungs if entry.rung == FINAL), 0)
    return replace(row, reason=_mean_of(seeds)) if seeds else row


def _mean_of(seeds: int) -> str:
    return f"mean of {count_of(seeds, 'seed')}"


def _memory(trainings: Sequence[Trained]) -> float | None:
    """Return the peak memory of the full network, which the finals train."""
    return max((row.peak_mib for row in trainings if row.rung == FINAL and row.peak_mib is not None), default=None)


def _intervals(result: Searched) -> dict[int, tuple[float, float]]:
    """Return the interval of each finalist's accuracy in the finals, by the trial's number."""
    intervals = {}
    for number, comparison in result.finals.items():
        if comparison.baseline is not None and comparison.by is not None:
            low, high = sorted((comparison.baseline + comparison.by.low, comparison.baseline + comparison.by.high))
            intervals[number] = (exp(-high), exp(-low)) if comparison.measure == "loss" else (low, high)
    return intervals


def _baseline(
    source: str, log: SearchLog, status: Searched, result: Searched, jobs: Iterable[JobRecord]
) -> TrialRow | None:
    """Return the row of the network without an operator: the mean over the search's seeds, and its tuned latency.

    The data are in the search's jobs, and after the end in the result. A search in one process has no jobs.
    """
    start = f"{log.name}: baseline, seed "
    outcomes = [
        told(Outcome, job.result)
        for job in jobs
        if job.kind == "train" and job.name.startswith(start) and job.state == "finished" and job.result
    ]
    known = result.baseline
    accuracies = [outcome.accuracy for outcome in outcomes if outcome.accuracy is not None]
    accuracy = sum(accuracies) / len(accuracies) if accuracies else known.accuracy
    flops = known.flops or next((outcome.flops for outcome in outcomes), None)
    params = known.params or next((outcome.params for outcome in outcomes), None)
    if accuracy is None or flops is None or params is None:
        return None
    tuned = status.tuning or result.tuning
    return TrialRow(
        f"{source}#baseline",
        source,
        -1,
        "baseline",
        "",
        True,
        "finished",
        _mean_of(len(accuracies)) if accuracies else "",
        accuracy,
        flops,
        params,
        max((outcome.peak_mib for outcome in outcomes if outcome.peak_mib is not None), default=None),
        (known.times or {})
        | ({} if tuned is None or tuned.baseline_ms is None else {tuned.stored_as: tuned.baseline_ms}),
        sum(outcome.wall_s for outcome in outcomes),
        log.created,
    )
