"""The trials of a store as rows of one type, and the trainings of a search in rungs.

Accuracies on different rungs are different measures: another network, other images, fewer steps. Only the finals, with
the full recipe and on the test images, compare with the baseline of a search without rungs.
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
from syno_lab.store.latencies import TORCH, is_of_network
from syno_lab.store.records import finite
from syno_lab.store.rungs import BASELINE, FINAL, TIMING, RungTraining
from syno_lab.systems import find_system, format_of
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.jobs import JobRecord
    from syno_lab.store import SearchLog, Store

TRAINED = "finished"


class Trained(Outcome, frozen=True, kw_only=True):
    """One training that has ended.

    Attributes:
        number: the trial's; :data:`.store.rungs.BASELINE` for the network without an operator.
        rung: the name of the rung; :data:`.store.rungs.FINAL` for the finals.
        seed: of the training.
        measure: what the rung ranks by, higher is better.
        ended: when (ISO 8601, UTC).
    """

    number: int
    rung: str
    seed: int
    measure: float | None
    ended: str


class OnRung(NamedTuple):
    """The trainings of one operator on one rung.

    Attributes:
        rung: its name.
        seeds: how many trainings ended.
        accuracy, measure: means over the seeds; None where one did not finish.
        state: ``finished``, or the outcome of the first training that did not finish.
        wall_s: seconds of all of them.
    """

    rung: str
    seeds: int
    accuracy: float | None
    measure: float | None
    state: str
    wall_s: float


def read_trainings(log: SearchLog) -> tuple[Trained, ...]:
    """The trainings of a search in rungs that have ended, in the order of queueing; none of a search without rungs."""
    return tuple(_trained(one) for one in log.rungs.trainings() if one.is_ended and one.rung != TIMING)


def names_of_rungs(trainings: Iterable[Trained]) -> tuple[str, ...]:
    """The rungs in the order in which they began, the finals last."""
    found = dict.fromkeys(one.rung for one in trainings)
    return tuple(sorted(found, key=lambda name: name == FINAL))


def on_rungs(trainings: Sequence[Trained]) -> tuple[OnRung, ...]:
    """The trainings of one operator, put together by rung."""
    found = []
    for rung in names_of_rungs(trainings):
        mine = [one for one in trainings if one.rung == rung]
        state = next((one.state for one in mine if one.state != TRAINED), TRAINED)
        accuracy = _mean([one.accuracy for one in mine], state)
        measure = _mean([one.measure for one in mine], state)
        found.append(OnRung(rung, len(mine), accuracy, measure, state, fsum(one.wall_s for one in mine)))
    return tuple(found)


def _mean(values: Sequence[float | None], state: str) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if state == TRAINED and known and len(known) == len(values) else None


def _trained(one: RungTraining) -> Trained:
    return Trained(
        **msgspec.structs.asdict(told(Outcome, one.outcome)),
        number=one.number,
        rung=one.rung,
        seed=one.seed,
        measure=one.measure,
        ended=one.ended or "",
    )


#: The name of the accuracy on a rung is ``accuracy@RUNG``; that of the finals is ``accuracy``.
RUNG = "accuracy@"
#: The name of the latency on a target is ``latency_ms@TARGET``; :mod:`syno_lab.store.latencies` says what it is of.
LATENCY = "latency_ms@"


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial: an operator with all its results.

    Attributes:
        key: its unique name in the lab: ``search:NAME#12``; that of a baseline is
            ``search:NAME#baseline``.
        source: the key of its :class:`Source`.
        number: in the order of asking, from 0 on; -1 for the baseline of a search.
        label: its name for people.
        fingerprint: the operator's; empty for the network without an operator.
        is_baseline: whether the source's other trials are compared with it.
        state: the state of its training: ``waiting``, ``finished``, ``pruned``, ….
        reason: why the training did not finish, in one line.
        accuracy: from 0 to 1 (for text exp(-loss)); None where there is none. Of a search in rungs that of the finals
            alone: those of rungs are other measures, and ``rungs`` has them.
        flops: FLOPs of the whole network.
        params: parameters, likewise.
        memory_mib: peak memory of its training in MiB; None where it was not measured.
        latencies: milliseconds by target, as the search defines them.
        wall_s: wall seconds of its training.
        ended: the time of its end (ISO 8601, UTC); empty where it is not known.
        job: the number of the job that trained it.
        operator: the operator's JSON; empty for the network without an operator.
        steps: the steps by which a search built the operator, from the output on; ``lengths``: how many of the
            operator's steps each of them is.
        probe: the score of the operator's probe, by which it is ranked without training; None where it was not probed.
        rungs: the trainings of a search in rungs, the cheapest rung first; else none.
        known: the name of the known operator with which the search began; empty for a discovered one.
        interval: the accuracies between which the finals leave the operator: the baseline's mean, and the interval of
            the difference from it; None before they are compared.
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

    @property
    def rung(self) -> str:
        """The last rung on which it was trained; empty in a search without rungs."""
        return self.rungs[-1].rung if self.rungs else ""

    def accuracy_on(self, rung: str) -> float | None:
        """Its accuracy on a rung, the mean over the seeds; None where it has none there."""
        return next((one.accuracy for one in self.rungs if one.rung == rung), None)

    def value(self, name: str) -> Cell:
        """What a column has of it: a field, its accuracy on a rung (:data:`RUNG`) or a latency (:data:`LATENCY`)."""
        if name.startswith(RUNG):
            return self.accuracy_on(name.removeprefix(RUNG))
        found: Cell = self.latencies.get(name.removeprefix(LATENCY)) if "@" in name else getattr(self, name)
        return found

    @property
    def system(self) -> str:
        """The title of the operator's system; empty without an operator, and where no system reads it."""
        return system_and_mark(self.operator)[0]

    @property
    def primitives(self) -> str:
        """The operator in a few words, as its system writes it: for a pGraph ``REDUCE SHARE UNFOLD``.

        Empty for the network without an operator, and for JSON that no system reads.
        """
        try:
            return find_system(format_of(self.operator)).summary(self.operator) if self.operator else ""
        except FormatError:
            return ""


@dataclass(frozen=True, slots=True)
class Source:
    """A search of a store: its ``key`` is ``search:NAME``.

    ``trainings`` are those of a search in rungs that have ended, in the order of queueing. ``measured`` says for each
    target what its latencies are and with how many candidates they were tuned.
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
    """The rungs on which these trials were trained, the cheapest first, without the finals."""
    return tuple(dict.fromkeys(one.rung for row in rows for one in row.rungs if one.rung != FINAL))


def read_search(log: SearchLog, store: Store, jobs: Iterable[JobRecord]) -> tuple[Source, list[TrialRow]]:
    """Read a search and its trials as rows, in the order of asking, the baseline first if it is known."""
    source = f"search:{log.name}"
    query = (
        "SELECT DISTINCT target FROM syno_search_latencies JOIN syno_searches USING (search) WHERE name=? ORDER BY 1"
    )
    targets = store.database.column(query, (log.name,))
    measured = {target: log.latencies(target) for target in targets}
    trainings = read_trainings(log)
    status, result = (searched(read_said(store.path.parent, log.name, file)) for file in (STATUS, RESULT))
    by_number: dict[int, list[Trained]] = {}
    for one in trainings:
        by_number.setdefault(one.number, []).append(one)
    if trainings:
        baseline = _baseline_in_rungs(source, by_number.get(BASELINE, ()), result.baseline, log.created)
    else:
        baseline = _baseline(source, log, status, result, jobs)
    rows = [] if baseline is None else [baseline]
    known, intervals = status.known_names | result.known_names, _intervals(result)
    for trial in log.trials():
        outcome = told(Outcome, trial.outcome)
        found = ((target, finite(measured[target].get(trial.number, {}).get("latency_ms"))) for target in targets)
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
            {target: latency for target, latency in found if latency is not None},
            trial.wall_s,
            trial.ended or "",
            trial.job,
            trial.operator,
            trial.steps,
            trial.lengths,
            outcome.probe.score,
            known=known.get(trial.number, ""),
        )
        rows.append(_in_rungs(row, by_number.get(trial.number, ()), intervals.get(trial.number)) if trainings else row)
    if baseline is not None:
        targets = sorted({*targets, *baseline.latencies})
    about = {target: tuned_how(target, measured.get(target, {}).values()) for target in targets}
    found_source = Source(source, log.name, log.created, log.settings, tuple(targets), baseline, trainings, about)
    return found_source, rows


class _How(msgspec.Struct):
    """How a latency was tuned and measured, as far as its record in the store says it."""

    trials: int | None = None
    functions: int | None = None
    where: str = ""
    layers: tuple[Any, ...] | None = None


def tuned_how(target: str, results: Iterable[Mapping[str, JSON]]) -> str:
    """What latencies cover, where they were measured and how they were tuned.

    ``results`` are data of :func:`syno_lab.experiments.tunings.summed` or of a whole network
    (:class:`.network.NetworkFacts`). ``the whole network through Relax on this machine, 320 candidates tried for 18 to
    20 functions together``, or ``sum over the replaced layers, not the whole network, 48 to 64 candidates tried for
    each operator in 3 sizes of layers``.
    """
    given = [told(_How, one) for one in results]
    trials = [one.trials for one in given if one.trials is not None]
    if target == TORCH:
        return "the whole network as PyTorch runs it, in the process that trained it"
    if is_of_network(target):
        wheres = dict.fromkeys(one.where for one in given if one.where)
        where = f" on {', '.join(wheres)}" if wheres else ""
        functions = [one.functions for one in given if one.functions is not None]
        tried = f", {_range(trials)} candidates tried" if trials else ""
        return (
            f"the whole network through Relax{where}{tried}"
            f"{f' for {_range(functions)} functions together' if functions and tried else ''}"
        )
    sizes = [len(one.layers) for one in given if one.layers is not None]
    tried = f", {_range(trials)} candidates tried for each operator" if trials else ""
    what = "sum over the replaced layers, not the whole network"
    return f"{what}{tried}{f' in {_range(sizes)} sizes of layers' if sizes else ''}"


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _in_rungs(row: TrialRow, trainings: Sequence[Trained], interval: tuple[float, float] | None) -> TrialRow:
    """The row of a trial in rungs: what its outcome in the store has is of the first rung alone."""
    rungs = on_rungs(trainings)
    return replace(
        row,
        state=rungs[-1].state if rungs else row.state,
        accuracy=next((one.accuracy for one in rungs if one.rung == FINAL), None),
        memory_mib=_memory(trainings),
        wall_s=sum(one.wall_s for one in rungs),
        ended=max((one.ended for one in trainings), default=""),
        rungs=rungs,
        interval=interval,
    )


def _baseline_in_rungs(source: str, trainings: Sequence[Trained], known: Baseline, created: str) -> TrialRow | None:
    """The network without an operator, once its costs are known; its accuracies on rungs are there too."""
    given: list[Trained | Baseline] = [*(one for one in trainings if one.rung == FINAL), known]
    flops = next((one.flops for one in given if one.flops is not None), None)
    params = next((one.params for one in given if one.params is not None), None)
    if flops is None or params is None:
        return None
    row = TrialRow(f"{source}#baseline", source, -1, "baseline", "", True, "finished", "", None, flops, params)
    row = replace(_in_rungs(row, trainings, None), ended=created)
    seeds = next((one.seeds for one in row.rungs if one.rung == FINAL), 0)
    return replace(row, reason=_mean_of(seeds)) if seeds else row


def _mean_of(seeds: int) -> str:
    return f"mean of {count_of(seeds, 'seed')}"


def _memory(trainings: Sequence[Trained]) -> float | None:
    """The peak memory of the network itself, as the finals train it."""
    return max((one.peak_mib for one in trainings if one.rung == FINAL and one.peak_mib is not None), default=None)


def _intervals(result: Searched) -> dict[int, tuple[float, float]]:
    """The accuracies between which the finals leave each finalist, by its number."""
    found = {}
    for number, one in result.finals.items():
        if one.baseline is not None and one.by is not None:
            low, high = sorted((one.baseline + one.by.low, one.baseline + one.by.high))
            found[number] = (exp(-high), exp(-low)) if one.measure == "loss" else (low, high)
    return found


def _baseline(
    source: str, log: SearchLog, status: Searched, result: Searched, jobs: Iterable[JobRecord]
) -> TrialRow | None:
    """The network without an operator: the mean over the seeds on which the search trained it, and its tuned latency.

    While the search runs, its jobs give the baseline, afterwards its result does; a search in one process has only the
    result.
    """
    start = f"{log.name}: baseline, seed "
    trained = [
        told(Outcome, job.result)
        for job in jobs
        if job.kind == "train" and job.name.startswith(start) and job.state == "finished" and job.result
    ]
    known = result.baseline
    accuracies = [one.accuracy for one in trained if one.accuracy is not None]
    accuracy = sum(accuracies) / len(accuracies) if accuracies else known.accuracy
    flops = known.flops or next((one.flops for one in trained), None)
    params = known.params or next((one.params for one in trained), None)
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
        max((one.peak_mib for one in trained if one.peak_mib is not None), default=None),
        {} if tuned is None or tuned.baseline_ms is None else {tuned.stored_as: tuned.baseline_ms},
        sum(one.wall_s for one in trained),
        log.created,
    )
