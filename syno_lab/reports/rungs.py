"""The trainings of a search in rungs, read for people.

Accuracies on different rungs are different measures: another network, other images, fewer steps. Only the finals, with
the full recipe and on the test images, compare with the baseline of a search without rungs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum
from typing import NamedTuple

from syno_lab.reports.searched import Epoch, Outcome, told
from syno_lab.store import SearchLog
from syno_lab.store.rungs import FINAL, TIMING, RungTraining

TRAINED = "finished"


class Trained(NamedTuple):
    """One training that has ended.

    Attributes:
        number: the trial's; :data:`.store.rungs.BASELINE` for the network without an operator.
        rung: the name of the rung; :data:`.store.rungs.FINAL` for the finals.
        seed: of the training.
        state: of its outcome.
        accuracy: from 0 to 1, on the rung's images; None where there is none.
        measure: what the rung ranks by, higher is better.
        wall_s: wall seconds.
        memory_mib: peak memory.
        flops, params: of the whole network on this rung.
        ended: when (ISO 8601, UTC).
        curve: its epochs.
    """

    number: int
    rung: str
    seed: int
    state: str
    accuracy: float | None
    measure: float | None
    wall_s: float
    memory_mib: float | None
    flops: int | None
    params: int | None
    ended: str
    curve: tuple[Epoch, ...]


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
    given = told(Outcome, one.outcome)
    return Trained(
        one.number,
        one.rung,
        one.seed,
        one.state,
        given.accuracy,
        one.measure,
        given.wall_s,
        given.peak_mib,
        given.flops,
        given.params,
        one.ended or "",
        given.curve,
    )
