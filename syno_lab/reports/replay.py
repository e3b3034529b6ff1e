"""How a search found what it found: the tree of its trials, grown trial by trial.

The store keeps the steps of every trial in the order of asking, whatever the method of the search. So the operators
that were asked for up to a moment are a tree of their own, which only grows: a place keeps its number and its place
among its siblings. What a search has of its own beside it (estimates, places that it only looked at) is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syno_lab.reports.axes import axis_value, find_axis
from syno_lab.reports.rows import TrialRow
from syno_lab.reports.shown import usual_measure
from syno_lab.reports.trees import PlaceRecord, SearchTree


@dataclass(frozen=True)
class Moment:
    """A search after some of its trials.

    Attributes:
        tree: of these trials; a place's reward is the mean of its trials by :attr:`measure`.
        best: the keys from the first place to the operator of the best trial; empty before one has a value.
        measure: the axis by which trials are compared.
        words: what the last trial brought, and which is the best so far.
    """

    tree: SearchTree
    best: tuple[str, ...]
    measure: str
    words: str


def replayed(rows: Sequence[TrialRow]) -> tuple[TrialRow, ...]:
    """The trials of one search that can be replayed: those with steps, in the order of asking."""
    return tuple(sorted((row for row in rows if row.steps and not row.is_baseline), key=lambda row: row.number))


def improvements(trials: Sequence[TrialRow]) -> list[int]:
    """The trials, by their place from 1 on, that were better than all before them."""
    values = _values(trials, usual_measure(trials))
    found, most = [], -float("inf")
    for place, value in enumerate(values, 1):
        if value is not None and value > most:
            most = value
            found.append(place)
    return found


def moment(trials: Sequence[TrialRow], upto: int) -> Moment:
    """The search after its first ``upto`` of :func:`replayed` trials, at least one.

    Raises:
        ValueError: there are fewer.
    """
    if not 1 <= upto <= len(trials):
        raise ValueError(f"expected 1 to {len(trials)} trials, found {upto}")
    measure = usual_measure(trials)  # of all of them, so that it does not change on the way
    values = _values(trials, measure)[:upto]
    places = _Growing()
    ways = [places.add(row, value) for row, value in zip(trials, values, strict=False)]
    known = [number for number, value in enumerate(values) if value is not None]
    last, value = trials[upto - 1], values[upto - 1]
    words = f"After trial {upto} of {len(trials)}: {last.label}"
    words += f" with {measure} {value:.4g}" if value is not None else f", {last.state}, without {measure}"
    if not known:
        return Moment(places.tree(), (), measure, f"{words}; none has {measure} yet.")
    best = max(known, key=lambda number: values[number] or 0.0)
    came = "it is the best so far" if best == upto - 1 else f"the best so far is {trials[best].label}"
    most = "" if best == upto - 1 else f" with {values[best]:.4g}"
    return Moment(places.tree(), ways[best], measure, f"{words}; {came}{most}.")


def _values(trials: Sequence[TrialRow], measure: str) -> list[float | None]:
    axis = find_axis(measure)
    return [axis_value(row, axis) for row in trials]


class _Growing:
    """The places of a tree under way, in the order in which trials came through them first."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, str | None, int]] = [(-1, None, 0)]
        self._children: dict[tuple[int, str], int] = {}
        self._through: list[list[float | None]] = [[]]
        self._ends: set[int] = set()

    def add(self, row: TrialRow, value: float | None) -> tuple[str, ...]:
        """A trial; the keys of its places."""
        at, way = 0, [0]
        for step, length in zip(row.steps, row.lengths, strict=True):
            if (at, step) not in self._children:
                self._children[at, step] = len(self._steps)
                self._steps.append((at, step, length))
                self._through.append([])
            at = self._children[at, step]
            way.append(at)
        if row.operator:
            self._ends.add(at)
        for place in way:
            self._through[place].append(value)
        return tuple(map(str, way))

    def tree(self) -> SearchTree:
        return SearchTree([self._place(number) for number in range(len(self._steps))], in_order=True)

    def _place(self, number: int) -> PlaceRecord:
        parent, step, length = self._steps[number]
        known = [value for value in self._through[number] if value is not None]
        return PlaceRecord(
            number,
            parent,
            step,
            visits=len(known),
            outstanding=0,
            fruitless=len(self._through[number]) - len(known),
            mean=sum(known) / len(known) if known else None,
            best=max(known, default=None),
            is_complete=number in self._ends,
            is_closed=False,
            is_dead=False,
            steps=length,
        )
