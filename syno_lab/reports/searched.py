"""The content of a search's file ``status.json`` or ``result.json`` as one value, for writing and reading.

A foreign lab's files may have any content: a field with a value of the wrong type counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from syno_lab.inputs import count_of, is_plain_name
from syno_lab.protocol import SearchStep
from syno_lab.store.courses import read_course
from syno_lab.store.latencies import Times
from syno_lab.store.outcomes import Comparison, Measure
from syno_lab.store.verdicts import EQUAL_WITHIN
from syno_lab.versioned import JSON

STATUS, RESULT = "status.json", "result.json"
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Count | Annotated[float, msgspec.Meta(ge=0)]
Kind = TypeVar("Kind", bound=msgspec.Struct)
#: The value of a field that a kind of search does not have. The files leave the field out.
NOT_SAID: Any = msgspec.UNSET
#: The fields of the files, in order. First the fields of a result: in rungs, with trainings in the network itself, and
#: without training. Then the fields of a status of each kind of search.
IN_RUNGS = (
    *("settings", "trials", "states", "trials_per_hour", "end", "plan", "uses_probe", "evidence", "funnel", "time"),
    "baseline",
    *("best", "finalists", "comparisons", "not_compared", "rivals", "verdict", "front", "recorded", "folder"),
)
STANDING = (
    *("trials", "states", "trials_per_hour", "pruned_share", "best", "known", "search_s", "training_s", "asking_s"),
    *("store_s", "held_s", "overhead_s_per_trial", "overhead_share", "idle_share", "last_failure"),
)
TRAINED = (*STANDING, "settings", "end", "baseline", "comparisons", "front", "recorded", "tuning", "lowered", "folder")
EXAMINED = ("examined", "funnel", "search_s", "cpu_s", "examined_per_cpu_s", "elites", "end", "front", "known")
UNTRAINED = (*EXAMINED, "untrained", "settings", "baseline", "picture", "folder")
RUNGS_STATUS = ("phase", "plan", "uses_probe", "evidence", "funnel", "known", "search_s", "begun_at", "end", "verdict")
TRAINED_STATUS = ("phase", "under_way", "end", "lowered", "tuning", *STANDING)
UNTRAINED_STATUS = ("phase", *EXAMINED)
_LATER = ("verdict", "evidence", "lowered", "tuning")


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A trial in a list of a result.

    Attributes:
        number: the trial's number; None for a trial that is not stored yet.
        score: the probe's score, in a search without training.
        accuracy: the accuracy from 0 to 1, or None.
        flops_ratio: FLOPs of the whole network divided by the baseline's FLOPs.
        replaced_ratio: FLOPs of the operator in all slots divided by the replaced layers' FLOPs; None in a search of
            whole networks.
        params: parameters of the network.
        known: the name of the operator, if it is known.
        system: the title of the operator's system.
        operator: the operator's JSON.
    """

    number: int | None = None
    score: float = NOT_SAID
    accuracy: float | None = None
    flops_ratio: float = 0.0
    replaced_ratio: float | None = None
    params: Count = 0
    known: str | None = None
    system: str = ""
    operator: str = NOT_SAID

    @property
    def ratio(self) -> float:
        """The share of FLOPs to which the search's limit applies."""
        return self.flops_ratio if self.replaced_ratio is None else self.replaced_ratio


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A trial in short form, for simulations and comparisons of searches.

    ``taken`` are the steps that built the operator, ``steps`` their names; ``rungs`` has the measure on each rung.
    """

    number: int | None = None
    steps: tuple[str, ...] = ()
    taken: tuple[SearchStep, ...] = ()
    state: str = ""
    reward: float | None = None
    flops: Count = 0
    params: Count = 0
    accuracy: float | None = NOT_SAID
    replaced_ratio: float | None = NOT_SAID
    known: str | None = None
    system: str = ""
    wall_s: float = NOT_SAID
    latency_ms: float | None = NOT_SAID
    rungs: dict[str, float] = NOT_SAID


class Epoch(msgspec.Struct, frozen=True):
    """An epoch of a training: accuracy from 0 to 1, losses in nats."""

    epoch: float | None = None
    accuracy: float | None = None
    train_loss: float | None = None
    test_loss: float | None = None


class Probe(msgspec.Struct, frozen=True):
    """The score of an operator by a probe."""

    score: float | None = None


class Outcome(msgspec.Struct, frozen=True):
    """The fields of a stored :class:`.TrialOutcome` that the reports read, and fields that a search adds.

    Attributes:
        state, reason: the state at the end, and its reason.
        accuracy: the accuracy from 0 to 1; on a rung, the accuracy on the rung's images.
        flops, params: FLOPs and parameters of the whole trained network.
        peak_mib: peak memory in MiB.
        wall_s: wall seconds.
        latency_ms: the network's latency in PyTorch; ``network_ms``: its latency in TVM, where it is an objective.
        probe: the probe's score without training.
        curve: the epochs.
    """

    state: str = ""
    reason: str | None = None
    accuracy: float | None = None
    flops: int | None = None
    params: int | None = None
    peak_mib: float | None = None
    wall_s: float = 0.0
    latency_ms: float | None = None
    network_ms: float | None = None
    probe: Probe = Probe()
    curve: tuple[Epoch, ...] = ()

    @property
    def trained(self) -> float | None:
        """The accuracy of a finished training; None for any other training."""
        return self.accuracy if self.state == "finished" else None


class Baseline(msgspec.Struct, frozen=True):
    """The network without an operator; ``accuracies`` and ``wall_s`` of its trainings are in the order of seeds.

    ``times`` are its times in turns with the finalists'.
    """

    flops: int | None = None
    params: int | None = None
    accuracy: float | None = None
    accuracies: tuple[float, ...] | None = None
    wall_s: tuple[float, ...] = NOT_SAID
    times: Times = NOT_SAID


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the baseline's trainings, before operators are trained.

    Attributes:
        measure: ``accuracy``, or ``loss`` (of a text, in nats); ``value``: its mean; ``chance``: a guess's value.
        gain: how much the measure still improved in the last third of the training; None for fewer than 3 epochs.
        least: the least difference that the finals detect with a probability of 80 %.
        examples, seeds: test examples and seeds of the finals; ``trainings``: the baseline's trainings so far.
    """

    measure: Literal["accuracy", "loss"] = "accuracy"
    value: float
    chance: float
    is_at_chance: bool = False
    gain: float | None = None
    least: float
    examples: Count
    seeds: Count
    trainings: Count

    @property
    def is_finished(self) -> bool:
        """Whether the measure hardly improved at the end of the training; False where ``gain`` is unknown."""
        return self.gain is not None and 100 * self.gain <= EQUAL_WITHIN

    def __str__(self) -> str:
        scale, digits, unit = (100, 1, "points") if self.measure == "accuracy" else (1, 3, "nats")
        length = "finished at this length"
        if self.gain is None:
            length = "too few epochs to tell whether it is finished"
        elif not self.is_finished:
            length = f"not finished: {scale * self.gain:+.{digits}f} {unit} in the last third of its epochs"
        return (
            f"the baseline: {self.measure} {self.value:.3f} of {count_of(self.trainings, 'training')}, chance "
            f"{self.chance:.3f}; {length}; {count_of(self.examples, 'test example')} and "
            f"{count_of(self.seeds, 'seed')} can tell {scale * self.least:.{digits}f} {unit}"
        )


class Counts(msgspec.Struct, frozen=True):
    """The numbers of operators that began a rung, finished all trainings on it, or failed, and the worker seconds."""

    begun: Count = 0
    trained: Count = 0
    failed: Count = 0
    seconds: Amount = 0.0


class Funnel(msgspec.Struct):
    """The number of draws for each name in :data:`.progress.DRAWS`, their CPU seconds, and the counts of each rung."""

    draws: dict[str, Amount] = msgspec.field(default_factory=dict)
    rungs: dict[str, Counts] = msgspec.field(default_factory=dict)


class PlanPart(msgspec.Struct, frozen=True):
    """A part of the plan: ``trainings`` of ``each_s`` worker seconds each (0 for drawing), ``seconds`` in all.

    ``measure`` is the measure by which a rung ranks operators; other parts have no measure.
    """

    name: str
    trainings: Count = 0
    each_s: Amount = 0.0
    seconds: Amount = 0.0
    measure: Measure | None = NOT_SAID


class Plan(msgspec.Struct, frozen=True):
    """The plan of a search in rungs: total minutes with all workers busy, number of workers, and parts in order."""

    minutes: Amount | None = None
    workers: Count = 1
    parts: tuple[PlanPart, ...] = ()

    def part(self, name: str) -> PlanPart:
        """Return the part of the plan with this name."""
        return next(part for part in self.parts if part.name == name)


class Taken(msgspec.Struct, frozen=True):
    """The time of the whole search in seconds.

    Attributes:
        wall_s: wall seconds.
        cpu_s: CPU seconds by purpose; ``search_process_s``: CPU seconds of the search's own process.
        idle: the share of the workers' wall time without a training, independent of other load on the machine.
        shares: by purpose, shares of ``workers`` x wall time; ``rest`` is for store, jobs, surrogate and idle workers.
    """

    wall_s: Amount = 0.0
    cpu_s: dict[str, Amount] = {}
    search_process_s: float = 0.0
    idle: float = 0.0
    shares: dict[str, float] = {}


class Settings(msgspec.Struct, frozen=True):
    """The settings that the reports read: the name, the systems separated by commas, and the kind of search."""

    name: str = ""
    system: str = ""
    rungs: bool = False
    untrained: bool = False


class Measured(msgspec.Struct, frozen=True):
    """Tuned layers of one size: the name of the first layer, the number of layers, their sizes and latency in ms."""

    name: str
    calls: int
    binding: dict[str, int]
    latency_ms: float


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """The tunings of a search.

    Attributes:
        target: the target of the tunings; ``stored_as``: the target of the latencies in the store.
        of: a description of what a latency covers.
        trials: the number of schedules in a tuning; ``scheduler``: how functions share these schedules.
        within, least_accuracy: the limits that select the tuned trials.
        tuned: the number of tuned trials; ``under_way``: the numbers of the trials that are being tuned; ``failed``:
            the reasons of failed tunings by number.
        baseline_ms: the baseline's latency, None (with a reason) if unknown; ``baseline_layers``: each replaced layer;
            ``baseline_facts``: :class:`syno_lab.tuning.network.NetworkFacts` of the whole network, as data.
        front: ``number``, ``accuracy`` and ``latency_ms`` of the trials on the front of accuracy and latency.
    """

    target: str = ""
    stored_as: str
    of: str = ""
    trials: int = 0
    scheduler: str = ""
    within: float | None = None
    least_accuracy: float = 0.0
    tuned: int = 0
    under_way: tuple[int, ...] = ()
    failed: dict[str, str] = {}
    baseline_ms: float | None = None
    baseline_layers: tuple[Measured, ...] = ()
    baseline_facts: Any = {}
    baseline_reason: str = ""
    front: tuple[dict[str, Amount], ...] = ()


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """A status or a result of a search. Each kind of search fills some of the fields.

    Attributes:
        phase: the current part of the search; empty in a result.
        settings: the settings of the search; a file has all settings, but only :class:`Settings` are read.
        trials: the number of trials whose results the search has; ``states``: the number of trials in each state.
        end: why the search ended.
        pruned_share: the share of pruned trials.
        search_s: wall seconds so far; a result in rungs has ``time`` instead. ``cpu_s``: CPU seconds.
        training_s, asking_s, store_s, held_s: see :class:`syno_lab.experiments.standing.Times`; ``overhead_share`` is
            ``held_s`` over the time of all trainings.
        idle_share: the share of the workers' time without a training: proposing, starting processes, loading data.
        last_failure: the last trial that ended without an accuracy, and the reason.
        uses_probe: whether the probe's score chooses the proposed operators.
        begun_at: the length of the queue when the ended search was continued with more minutes; else 0.
        evidence: what the baseline's first trainings show; None before their end, and without finals.
        funnel: the funnel, or None.
        best: the best discovered operator within each share of FLOPs.
        finalists: the trial numbers of the operators in the finals, by the category that each operator won.
        comparisons: the finals by the same categories, ``not_compared``: the reasons for missing comparisons.
        rivals: the comparisons of the rivals with the baseline, on one seed, by the rivals' titles.
        known: the known operators with which the search began: names by trial numbers, or points of a front.
        recorded: all trials in short form, in the order of proposal.
        lowered: the trials after which the limit of FLOPs was lowered (``number``), and the new limit
            (``replaced_ratio``); None where the limit is fixed, or in a status before it was lowered.
        examined, elites: the number of operators with a score, and of elites; ``picture``: the file of the front.
    """

    phase: str = ""
    settings: Settings = Settings()
    trials: Count = 0
    states: dict[str, Count] = {}
    trials_per_hour: Amount = 0.0
    under_way: tuple[int, ...] = ()
    end: str = ""
    pruned_share: Amount = 0.0
    search_s: Amount = 0.0
    cpu_s: Amount = 0.0
    training_s: Amount = 0.0
    asking_s: Amount = 0.0
    store_s: Amount = 0.0
    held_s: Amount = 0.0
    overhead_s_per_trial: Amount = 0.0
    overhead_share: Amount = 0.0
    idle_share: Amount = 0.0
    last_failure: str = ""
    time: Taken = Taken()
    plan: Plan | None = None
    uses_probe: bool = True
    evidence: Evidence | None = None
    begun_at: Count = 0
    funnel: Funnel | None = None
    verdict: str = ""
    baseline: Baseline = Baseline()
    front: tuple[Point, ...] = ()
    best: dict[str, Point | None] = {}
    finalists: dict[str, int] = {}
    comparisons: dict[str, Comparison] = {}
    not_compared: dict[str, str] = {}
    rivals: dict[str, Comparison] = {}
    known: dict[str, str | None] | list[Point] = []
    recorded: tuple[Recorded, ...] = ()
    tuning: Tuned | None = None
    lowered: tuple[dict[str, Amount], ...] | None = None
    examined: Count = 0
    examined_per_cpu_s: Amount = 0.0
    elites: Count = 0
    untrained: bool = False
    picture: str = ""
    folder: str = ""

    def said(self, names: Sequence[str]) -> dict[str, JSON]:
        """Return these fields as plain data, as in a file, without empty fields about the end and the tunings."""
        plain: dict[str, JSON] = msgspec.json.decode(msgspec.json.encode(self))
        return {name: plain[name] for name in names if name not in _LATER or plain[name] not in ("", None)}

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of the operators in the finals, by the category that each operator won."""
        best = {name: item.number for name, item in self.best.items() if item is not None and item.number is not None}
        return self.finalists | {name: number for name, number in best.items() if name not in self.finalists}

    @property
    def finals(self) -> dict[int, Comparison]:
        """The comparisons, by the trial numbers of the finalists."""
        return {number: self.comparisons[name] for name, number in self.numbers.items() if name in self.comparisons}

    @property
    def known_names(self) -> dict[int, str]:
        """The names of the known operators with which the search began, by trial number."""
        points = [*self.recorded, *(self.known if isinstance(self.known, list) else ())]
        names = dict(self.known) if isinstance(self.known, dict) else {}
        names |= {str(point.number): point.known for point in points}
        return {int(number): name for number, name in names.items() if number.isdecimal() and name}


def told(kind: type[Kind], said: Mapping[str, JSON] | None) -> Kind:
    """Convert plain data to a value. A field that is missing or of another type gets its default.

    Items of another type are removed from lists and mappings. Raises TypeError if a field without default is missing.
    """
    data, fields = said or {}, msgspec.structs.fields(kind)
    values = {field.name: _as(field.type, data.get(field.name, msgspec.UNSET)) for field in fields}
    return kind(**{name: value for name, value in values.items() if value is not msgspec.UNSET})


def _as(kind: Any, value: Any) -> Any:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(value, kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(value, list) and parts[1:] == (...,):
        return tuple(item for item in (_as(parts[0], part) for part in value) if item is not msgspec.UNSET)
    if origin is dict and isinstance(value, dict):
        named = {name: _as(parts[1], item) for name, item in value.items()}
        return {name: item for name, item in named.items() if item is not msgspec.UNSET}
    struct = parts[0] if origin is UnionType else kind
    if isinstance(value, dict) and isinstance(struct, type) and issubclass(struct, msgspec.Struct):
        with suppress(TypeError):
            return told(struct, value)
    return msgspec.UNSET


def searched(said: Mapping[str, JSON] | None) -> Searched:
    """Convert the content of a status or a result to a value."""
    return told(Searched, said)


def read_said(lab: Path, search: str, file: str) -> dict[str, JSON] | None:
    """Read a status or a result in the lab's folder; None where the file is missing or not readable."""
    content = read_course(lab / "searches" / search / file) if is_plain_name(search) else None
    return content if isinstance(content, dict) else None
