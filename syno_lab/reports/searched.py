"""What a search says of itself in its files ``status.json`` and ``result.json``, as one value.

The files may be of somebody else's lab and hold anything: a field that is not of the kind that it has here counts as
not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from syno_lab.inputs import is_plain_name
from syno_lab.store.courses import read_course

STATUS, RESULT = "status.json", "result.json"
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Kind = TypeVar("Kind", bound=msgspec.Struct)


class Difference(msgspec.Struct, frozen=True):
    """The operator's measure minus the baseline's, with the ends of its interval."""

    difference: float
    low: float
    high: float
    confidence: float = 0.95


class Final(msgspec.Struct, frozen=True):
    """An operator of the finals against the baseline, as :class:`syno_lab.trial.compare.Comparison` wrote it."""

    measure: str = "accuracy"
    baseline: float | None = None
    operator: float | None = None
    interval: Difference | None = None
    over_seeds: Difference | None = None
    seeds: tuple[int, ...] = ()
    verdict: str = ""

    @property
    def by(self) -> Difference | None:
        """The difference, over seeds and images where there are several seeds."""
        return self.over_seeds or self.interval

    @property
    def is_accuracy(self) -> bool:
        """Whether it is measured by the accuracy, else by the loss, in nats: less is better."""
        return self.measure == "accuracy"

    @property
    def texts(self) -> tuple[str | None, str | None]:
        """The difference in percentage points or nats, and its interval; None where they are not known."""
        if self.by is None:
            return None, None
        scale, digits, unit = (100, 1, "points") if self.is_accuracy else (1, 3, "nats")
        by, low, high = (f"{scale * end:+.{digits}f}" for end in (self.by.difference, self.by.low, self.by.high))
        return f"{by} {unit}", f"{low} to {high}"


class Point(msgspec.Struct, frozen=True):
    """A trial among several of a result; ``known`` is the name of the known operator that it is."""

    number: int | None = None
    known: str | None = None
    system: str = ""
    accuracy: float | None = None
    replaced_ratio: float | None = None
    params: Count = 0


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
    """What is shown of the outcome of a training.

    Attributes:
        accuracy: from 0 to 1; of a training on a rung on the rung's images.
        flops, params: of the whole network that was trained.
        peak_mib: peak memory.
        wall_s: wall seconds.
        probe: its score without training.
        curve: the epochs.
    """

    accuracy: float | None = None
    flops: int | None = None
    params: int | None = None
    peak_mib: float | None = None
    wall_s: float = 0.0
    probe: Probe = Probe()
    curve: tuple[Epoch, ...] = ()


class Baseline(msgspec.Struct, frozen=True):
    """The network without an operator; ``accuracies`` by seed."""

    flops: int | None = None
    params: int | None = None
    accuracy: float | None = None
    accuracies: tuple[float, ...] | None = None


class Counts(msgspec.Struct, frozen=True):
    """Operators on a rung, and worker seconds."""

    begun: Count = 0
    trained: Count = 0
    failed: Count = 0
    seconds: Amount = 0.0


class Funnel(msgspec.Struct, frozen=True):
    """What was drawn, by the names of :data:`.progress.DRAWS`, and each rung."""

    draws: dict[str, Amount] = {}
    rungs: dict[str, Counts] = {}


class PlanPart(msgspec.Struct, frozen=True):
    """A part of the plan: ``trainings`` of ``each_s`` worker seconds each (0 for drawing), ``seconds`` in all."""

    name: str
    trainings: Count = 0
    each_s: Amount = 0.0
    seconds: Amount = 0.0


class Plan(msgspec.Struct, frozen=True):
    """The plan of a search in rungs."""

    parts: tuple[PlanPart, ...] = ()
    minutes: Amount | None = None
    workers: Count = 1


class Taken(msgspec.Struct, frozen=True):
    """Seconds of the whole search."""

    wall_s: Amount = 0.0


class Settings(msgspec.Struct, frozen=True):
    """What is read of the settings: the systems, with commas between them."""

    system: str = ""


class Tuned(msgspec.Struct, frozen=True):
    """The latency of the baseline, and the target that it is stored as."""

    stored_as: str
    baseline_ms: float | None = None


class Searched(msgspec.Struct, frozen=True):
    """A status or a result; a search of another kind has not all of it.

    Attributes:
        phase: the part that it is doing; of a result empty.
        search_s: wall seconds so far; a result in rungs has ``time`` instead.
        funnel: None for a search that has none.
        finalists: the numbers of the operators in the finals, by what they are the best of; ``best`` likewise.
        comparisons: the finals by the same names, ``not_compared``: why there is none.
        known: the known operators with which it began: names by numbers, or points.
        recorded: all trials in short.
    """

    phase: str | None = None
    search_s: Amount | None = None
    time: Taken = Taken()
    plan: Plan | None = None
    funnel: Funnel | None = None
    verdict: str = ""
    baseline: Baseline = Baseline()
    front: tuple[Point, ...] = ()
    best: dict[str, Point | None] = {}
    finalists: dict[str, int] = {}
    comparisons: dict[str, Final] = {}
    not_compared: dict[str, str] = {}
    known: dict[str, str | None] | list[Point] = []
    recorded: tuple[Point, ...] = ()
    tuning: Tuned | None = None
    settings: Settings = Settings()

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of the operators in the finals, by what they are the best of."""
        best = {name: one.number for name, one in self.best.items() if one is not None and one.number is not None}
        return self.finalists | {name: number for name, number in best.items() if name not in self.finalists}

    @property
    def finals(self) -> dict[int, Final]:
        """The comparisons by the numbers of the finalists."""
        return {number: self.comparisons[name] for name, number in self.numbers.items() if name in self.comparisons}

    @property
    def known_names(self) -> dict[int, str]:
        """The names of the known operators with which the search began, by the numbers of their trials."""
        points = [*self.recorded, *(self.known if isinstance(self.known, list) else ())]
        found = dict(self.known) if isinstance(self.known, dict) else {}
        found |= {str(one.number): one.known for one in points}
        return {int(number): name for number, name in found.items() if number.isdecimal() and name}


def told(kind: type[Kind], said: Mapping[str, Any] | None) -> Kind:
    """A value from plain data; a field that is missing, or of another kind, has its default.

    Of a list or a mapping the items of their kind are taken. Raises TypeError where a field without default is missing.
    """
    given = {field.name: _as(field.type, (said or {}).get(field.name)) for field in msgspec.structs.fields(kind)}
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


def searched(said: Mapping[str, Any] | None) -> Searched:
    """The content of a status or a result as a value."""
    return told(Searched, said)


def finalists(result: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of the operators in the finals of a result, by what they are the best of."""
    return searched(result).numbers


def read_said(lab: Path, search: str, file: str) -> dict[str, Any] | None:
    """A status or a result in the lab's folder; None where there is none, or none that can be read."""
    found = read_course(lab / "searches" / search / file) if is_plain_name(search) else None
    return found if isinstance(found, dict) else None
