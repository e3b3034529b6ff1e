"""What a search says of itself in its files ``status.json`` and ``result.json``, as one value: written and read here.

The files may be of somebody else's lab and hold anything: a field that is not of the kind that it has here counts as
not said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from syno_lab.inputs import is_plain_name
from syno_lab.models.rungs import Measure
from syno_lab.protocol import SearchStep
from syno_lab.store.courses import read_course
from syno_lab.store.outcomes import Comparison
from syno_lab.versioned import JSON

STATUS, RESULT = "status.json", "result.json"
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Count | Annotated[float, msgspec.Meta(ge=0)]
Kind = TypeVar("Kind", bound=msgspec.Struct)
#: The value of a field that a kind of search has not: it is left out of the files.
NOT_SAID: Any = msgspec.UNSET
#: What the files say, in this order: results in rungs, of searches that train each operator in the network itself, and
#: of searches without training, and what each of them says of itself while it runs.
IN_RUNGS = (
    *("settings", "trials", "states", "trials_per_hour", "end", "plan", "uses_probe", "funnel", "time", "baseline"),
    *("best", "finalists", "comparisons", "not_compared", "verdict", "front", "recorded", "folder"),
)
STANDING = (
    *("trials", "states", "trials_per_hour", "pruned_share", "best", "known", "search_s", "training_s", "asking_s"),
    *("store_s", "held_s", "overhead_s_per_trial", "overhead_share", "idle_share", "last_failure"),
)
TRAINED = (*STANDING, "settings", "end", "baseline", "comparisons", "front", "recorded", "tuning", "lowered", "folder")
EXAMINED = ("examined", "funnel", "search_s", "cpu_s", "examined_per_cpu_s", "elites", "end", "front", "known")
UNTRAINED = (*EXAMINED, "untrained", "settings", "baseline", "picture", "folder")
RUNGS_STATUS = ("phase", "plan", "uses_probe", "funnel", "known", "search_s", "end", "verdict")
TRAINED_STATUS = ("phase", "under_way", "end", "lowered", "tuning", *STANDING)
UNTRAINED_STATUS = ("phase", *EXAMINED)
_LATER = ("verdict", "lowered", "tuning")


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A trial among several of a result.

    Attributes:
        number: of the trial; None for one that is not stored yet.
        score: of a probe, in a search without training.
        accuracy: from 0 to 1; None where there is none.
        flops_ratio: FLOPs of the whole network over the baseline's.
        replaced_ratio: those of the operator in all its slots over those of the layers that it replaces; None in a
            search of whole networks.
        params: parameters of the network.
        known: the name of the known operator that it is.
        system: the title of the operator's system.
        operator: its JSON.
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
        """The share of FLOPs that the search's limit is about."""
        return self.flops_ratio if self.replaced_ratio is None else self.replaced_ratio


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A trial in short, for simulations and comparisons of searches.

    ``taken`` are the steps by which it was built, ``steps`` their names; ``rungs`` has its measure on each rung that it
    passed.
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
    """The score that a probe gives an operator."""

    score: float | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What is read of the stored outcome of a training (:class:`.TrialOutcome`), and of what a search adds to it.

    Attributes:
        state, reason: how it ended, and why.
        accuracy: from 0 to 1; of a training on a rung on the rung's images.
        flops, params: of the whole network that was trained.
        peak_mib: peak memory.
        wall_s: wall seconds.
        latency_ms: of the network in PyTorch; ``network_ms``: through TVM, where it is an objective.
        probe: its score without training.
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
        """The accuracy of a training that finished; None of any other."""
        return self.accuracy if self.state == "finished" else None


class Baseline(msgspec.Struct, frozen=True):
    """The network without an operator; ``accuracies`` and ``wall_s`` of its trainings by seed."""

    flops: int | None = None
    params: int | None = None
    accuracy: float | None = None
    accuracies: tuple[float, ...] | None = None
    wall_s: tuple[float, ...] = NOT_SAID


class Counts(msgspec.Struct, frozen=True):
    """Operators on a rung: that began, that have all their trainings, and that failed; and worker seconds."""

    begun: Count = 0
    trained: Count = 0
    failed: Count = 0
    seconds: Amount = 0.0


class Funnel(msgspec.Struct):
    """What was drawn, by the names of :data:`.progress.DRAWS`, with CPU seconds, and each rung."""

    draws: dict[str, Amount] = msgspec.field(default_factory=dict)
    rungs: dict[str, Counts] = msgspec.field(default_factory=dict)


class PlanPart(msgspec.Struct, frozen=True):
    """A part of the plan: ``trainings`` of ``each_s`` worker seconds each (0 for drawing), ``seconds`` in all.

    ``measure`` is what a rung ranks by; other parts have none.
    """

    name: str
    trainings: Count = 0
    each_s: Amount = 0.0
    seconds: Amount = 0.0
    measure: Measure | None = NOT_SAID


class Plan(msgspec.Struct, frozen=True):
    """The plan of a search in rungs: its minutes in all with all workers busy, its workers, and its parts in order."""

    minutes: Amount | None = None
    workers: Count = 1
    parts: tuple[PlanPart, ...] = ()

    def part(self, name: str) -> PlanPart:
        """The part of this name."""
        return next(part for part in self.parts if part.name == name)


class Taken(msgspec.Struct, frozen=True):
    """Seconds of the whole search.

    Attributes:
        wall_s: wall time.
        cpu_s: CPU seconds by purpose; ``search_process_s``: those of the search's own process.
        idle: the share of the workers' wall time in which they trained nothing, whatever else the machine did.
        shares: of ``workers`` x wall time by purpose; ``rest`` is what is left for the store, the jobs, the estimate
            and idle workers.
    """

    wall_s: Amount = 0.0
    cpu_s: dict[str, Amount] = {}
    search_process_s: float = 0.0
    idle: float = 0.0
    shares: dict[str, float] = {}


class Settings(msgspec.Struct, frozen=True):
    """What is read of the settings: the name, the systems with commas between them, and the kind of search."""

    name: str = ""
    system: str = ""
    rungs: bool = False
    untrained: bool = False


class Measured(msgspec.Struct, frozen=True):
    """Layers of one size that were tuned: the name of the first, how many they are, their sizes, and milliseconds."""

    name: str
    calls: int
    binding: dict[str, int]
    latency_ms: float


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """The tunings of a search.

    Attributes:
        target: that was tuned for; ``stored_as``: the target under which the store has the latencies.
        of: what a latency is of.
        trials: candidates of a tuning; ``scheduler``: how functions share them.
        within, least_accuracy: which trials are tuned.
        tuned: how many are; ``under_way``: the numbers of those whose tuning has not ended; ``failed``: reasons by the
            others' numbers.
        baseline_ms: the baseline's latency, None (with a reason) if unknown; ``baseline_layers``: the replaced layers
            one by one; ``baseline_facts``: :class:`syno_lab.tuning.network.NetworkFacts` of the whole network, as data.
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
    """A status or a result; a search of another kind has not all of it.

    Attributes:
        phase: the part that it is doing; of a result empty.
        settings: all of them in a file; see :class:`Settings`.
        trials: how many were told, ``states`` by their states.
        end: why it ended.
        pruned_share: of the trials.
        search_s: wall seconds so far; a result in rungs has ``time`` instead. ``cpu_s``: CPU seconds.
        training_s, asking_s, store_s, held_s: see :class:`syno_lab.experiments.standing.Times`; ``overhead_share`` is
            ``held_s`` over the time of all trainings.
        idle_share: the share of the workers' time without a training: choosing, starting processes, loading data.
        last_failure: the last trial that ended without an accuracy, and why.
        uses_probe: whether the score of the probe chooses what is asked.
        funnel: None for a search that has none.
        best: by shares of FLOPs the best discovered operator within each.
        finalists: the numbers of the operators in the finals, by what they are the best of.
        comparisons: the finals by the same names, ``not_compared``: why there is none.
        known: the known operators with which it began: names by numbers, or points.
        recorded: all trials in short, in the order of asking.
        lowered: the trials for which the limit was lowered (``number``), and the limit since then (``replaced_ratio``);
            None where it may not be, and in a status none yet.
        examined: operators with a score; ``elites``: those that are kept; ``picture``: the file of the front.
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
    funnel: Funnel | None = None
    verdict: str = ""
    baseline: Baseline = Baseline()
    front: tuple[Point, ...] = ()
    best: dict[str, Point | None] = {}
    finalists: dict[str, int] = {}
    comparisons: dict[str, Comparison] = {}
    not_compared: dict[str, str] = {}
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
        """These fields as plain data, as a file has them; what is not known yet of its end and tunings is left out."""
        plain: dict[str, JSON] = msgspec.json.decode(msgspec.json.encode(self))
        return {name: plain[name] for name in names if name not in _LATER or plain[name] not in ("", None)}

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of the operators in the finals, by what they are the best of."""
        best = {name: one.number for name, one in self.best.items() if one is not None and one.number is not None}
        return self.finalists | {name: number for name, number in best.items() if name not in self.finalists}

    @property
    def finals(self) -> dict[int, Comparison]:
        """The comparisons by the numbers of the finalists."""
        return {number: self.comparisons[name] for name, number in self.numbers.items() if name in self.comparisons}

    @property
    def known_names(self) -> dict[int, str]:
        """The names of the known operators with which the search began, by the numbers of their trials."""
        points = [*self.recorded, *(self.known if isinstance(self.known, list) else ())]
        found = dict(self.known) if isinstance(self.known, dict) else {}
        found |= {str(one.number): one.known for one in points}
        return {int(number): name for number, name in found.items() if number.isdecimal() and name}


def told(kind: type[Kind], said: Mapping[str, JSON] | None) -> Kind:
    """A value from plain data; a field that is missing, or of another kind, has its default.

    Of a list or a mapping the items of their kind are taken. Raises TypeError where a field without default is missing.
    """
    found, fields = said or {}, msgspec.structs.fields(kind)
    given = {field.name: _as(field.type, found.get(field.name, msgspec.UNSET)) for field in fields}
    return kind(**{name: value for name, value in given.items() if value is not msgspec.UNSET})


def _as(kind: Any, value: Any) -> Any:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(value, kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(value, list) and parts[1:] == (...,):
        return tuple(item for item in (_as(parts[0], one) for one in value) if item is not msgspec.UNSET)
    if origin is dict and isinstance(value, dict):
        named = {name: _as(parts[1], item) for name, item in value.items()}
        return {name: item for name, item in named.items() if item is not msgspec.UNSET}
    struct = parts[0] if origin is UnionType else kind
    if isinstance(value, dict) and isinstance(struct, type) and issubclass(struct, msgspec.Struct):
        with suppress(TypeError):
            return told(struct, value)
    return msgspec.UNSET


def searched(said: Mapping[str, JSON] | None) -> Searched:
    """The content of a status or a result as a value."""
    return told(Searched, said)


def finalists(result: Mapping[str, JSON]) -> dict[str, int]:
    """The numbers of the operators in the finals of a result, by what they are the best of."""
    return searched(result).numbers


def read_said(lab: Path, search: str, file: str) -> dict[str, JSON] | None:
    """A status or a result in the lab's folder; None where there is none, or none that can be read."""
    found = read_course(lab / "searches" / search / file) if is_plain_name(search) else None
    return found if isinstance(found, dict) else None
