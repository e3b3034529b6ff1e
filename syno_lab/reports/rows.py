"""The trials of a store as rows of one type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import FormatError
from syno_lab.inputs import count_of
from syno_lab.reports.marks import system_and_mark
from syno_lab.reports.rungs import OnRung, Trained, compared, names_of_rungs, on_rungs, read_trainings
from syno_lab.store.courses import read_course
from syno_lab.store.latencies import TORCH, is_of_network
from syno_lab.store.records import finite
from syno_lab.store.rungs import BASELINE, FINAL
from syno_lab.systems import find_system, format_of

if TYPE_CHECKING:
    from syno_lab.jobs import JobRecord
    from syno_lab.store import SearchLog, Store

#: The folder of the searches' files in a lab's folder (:mod:`syno_lab.experiments.watching`).
_SEARCHES, _STATUS, _RESULT = "searches", "status.json", "result.json"
_COSTS = ("flops", "params")


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
    settings: Mapping[str, Any]
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
    files = {} if set(log.name) & set("/\\") else _files(store.path.parent / _SEARCHES / log.name)
    by_number: dict[int, list[Trained]] = {}
    for one in trainings:
        by_number.setdefault(one.number, []).append(one)
    if trainings:
        baseline = _baseline_in_rungs(source, by_number.get(BASELINE, ()), files.get(_RESULT, {}), log.created)
    else:
        baseline = _baseline(source, log, files, jobs)
    rows = [] if baseline is None else [baseline]
    known, intervals = _known(files), _intervals(files.get(_RESULT, {}))
    for trial in log.trials():
        outcome = trial.outcome or {}
        probe = outcome.get("probe")
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
            finite(outcome.get("peak_mib")),
            {target: latency for target, latency in found if latency is not None},
            trial.wall_s,
            trial.ended or "",
            trial.job,
            trial.operator,
            trial.steps,
            trial.lengths,
            finite(probe.get("score")) if isinstance(probe, dict) else None,
            known=known.get(trial.number, ""),
        )
        rows.append(_in_rungs(row, by_number.get(trial.number, ()), intervals.get(trial.number)) if trainings else row)
    if baseline is not None:
        targets = sorted({*targets, *baseline.latencies})
    about = {target: tuned_how(target, measured.get(target, {}).values()) for target in targets}
    found_source = Source(source, log.name, log.created, log.settings, tuple(targets), baseline, trainings, about)
    return found_source, rows


def tuned_how(target: str, results: Iterable[Mapping[str, Any]]) -> str:
    """What latencies cover, where they were measured and how they were tuned.

    ``results`` are data of :func:`syno_lab.experiments.layers.summed` or of a whole network
    (:func:`syno_lab.tuning.network.facts_of`). ``the whole network through Relax on this machine, 320 candidates tried
    for 18 to 20 functions together``, or ``sum over the replaced layers, not the whole network, 48 to 64 candidates
    tried for each operator in 3 sizes of layers``.
    """
    given = list(results)
    trials = [count for one in given if isinstance(count := one.get("trials"), int)]
    if target == TORCH:
        return "the whole network as PyTorch runs it, in the process that trained it"
    if is_of_network(target):
        wheres = dict.fromkeys(str(one["where"]) for one in given if one.get("where"))
        where = f" on {', '.join(wheres)}" if wheres else ""
        functions = [count for one in given if isinstance(count := one.get("functions"), int)]
        tried = f", {_range(trials)} candidates tried" if trials else ""
        return (
            f"the whole network through Relax{where}{tried}"
            f"{f' for {_range(functions)} functions together' if functions and tried else ''}"
        )
    sizes = [len(layers) for one in given if isinstance(layers := one.get("layers"), list)]
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


def _baseline_in_rungs(
    source: str, trainings: Sequence[Trained], result: Mapping[str, Any], created: str
) -> TrialRow | None:
    """The network without an operator, once its costs are known; its accuracies on rungs are there too."""
    known = result.get("baseline")
    finals: list[Mapping[str, Any]] = [one._asdict() for one in trainings if one.rung == FINAL]
    finals += [known] if isinstance(known, dict) else []
    flops, params = (next((n for one in finals if isinstance(n := one.get(name), int)), None) for name in _COSTS)
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
    return max((one.memory_mib for one in trainings if one.rung == FINAL and one.memory_mib is not None), default=None)


def _known(files: Mapping[str, dict[str, Any]]) -> dict[int, str]:
    """The names of the known operators with which a search began, by the numbers of their trials."""
    status, result = (files.get(name, {}) for name in (_STATUS, _RESULT))
    given = status.get("known")
    found = dict(given) if isinstance(given, dict) else {}
    for points in (given, result.get("recorded"), result.get("known")):  # an untrained search has a list of points
        for one in points if isinstance(points, list) else []:
            if isinstance(one, dict):
                found[str(one.get("number"))] = one.get("known")
    return {int(number): name for number, name in found.items() if number.isdecimal() and isinstance(name, str)}


def _intervals(result: Mapping[str, Any]) -> dict[int, tuple[float, float]]:
    """The accuracies between which the finals leave each finalist, by its number."""
    found = {}
    for number, one in compared(result).items():
        wide = one.get("over_seeds") or one.get("interval")
        edges = [wide.get("low"), wide.get("high")] if isinstance(wide, dict) else []
        base, *ends = map(finite, (one.get("baseline"), *edges))
        if base is not None and len(ends) == 2 and None not in ends:
            low, high = sorted(base + end for end in ends if end is not None)
            found[number] = (exp(-high), exp(-low)) if one.get("measure") == "loss" else (low, high)
    return found


def _baseline(
    source: str, log: SearchLog, files: Mapping[str, dict[str, Any]], jobs: Iterable[JobRecord]
) -> TrialRow | None:
    """The network without an operator: the mean over the seeds on which the search trained it, and its tuned latency.

    While the search runs, its jobs give the baseline, afterwards its result does; a search in one process has only the
    result.
    """
    start = f"{log.name}: baseline, seed "
    trained = [
        job.result
        for job in jobs
        if job.kind == "train" and job.name.startswith(start) and job.state == "finished" and job.result
    ]
    known = files.get(_RESULT, {}).get("baseline")
    known = known if isinstance(known, dict) else {}
    accuracies = [a for one in trained if (a := finite(one.get("accuracy"))) is not None]
    accuracy = sum(accuracies) / len(accuracies) if accuracies else finite(known.get("accuracy"))
    flops = known.get("flops") or next((one.get("flops") for one in trained), None)
    params = known.get("params") or next((one.get("params") for one in trained), None)
    if accuracy is None or not isinstance(flops, int) or not isinstance(params, int):
        return None
    memory = [m for one in trained if (m := finite(one.get("peak_mib"))) is not None]
    tuning = files.get(_STATUS, {}).get("tuning") or files.get(_RESULT, {}).get("tuning") or {}
    latency = finite(tuning.get("baseline_ms")) if isinstance(tuning, dict) and "stored_as" in tuning else None
    latencies = {} if latency is None else {str(tuning["stored_as"]): latency}
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
        max(memory, default=None),
        latencies,
        sum(finite(one.get("wall_s")) or 0.0 for one in trained),
        log.created,
    )


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    found = {name: read_course(folder / name) for name in (_STATUS, _RESULT)}
    return {name: content for name, content in found.items() if isinstance(content, dict)}
