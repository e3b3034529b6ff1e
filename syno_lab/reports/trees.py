"""The tree of a search: read from the file of a Monte Carlo tree search, or made by a replay of any search's trials.

A search writes its whole tree at most once a second (:mod:`syno_lab.experiments.watching`); its trials are in the
store. A node does not store its pGraph; the pGraph is derived from an operator below the node.

The store has the steps of every trial in the order of proposal, for every search method. So the operators that were
proposed up to a given trial form a tree too (:func:`moment`). A tree of a replay only grows: a node keeps its number
and its index among its siblings. A replayed tree has no estimates and no nodes without a trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from syno_lab.errors import FormatError, StoreError
from syno_lab.inputs import count_of, integer, quoted, read_bytes
from syno_lab.reports.axes import axis_value, find_axis
from syno_lab.reports.rows import TrialRow
from syno_lab.reports.shown import usual_measure
from syno_lab.search.branches import Branch, Kind
from syno_lab.versioned import read_versioned

FORMAT, VERSION, MAX_BYTES = "syno-lab search tree", 1, 1 << 28
_FILE = Path("searches")
_NAME = "tree.json"


class PlaceRecord(msgspec.Struct, frozen=True):
    """A node as the file stores it; see :class:`syno_lab.search.tree.Place`."""

    number: int
    parent: int
    step: str | None
    visits: int
    outstanding: int
    fruitless: int
    mean: float | None
    best: float | None
    is_complete: bool
    is_closed: bool
    is_dead: bool
    steps: int
    distance: int | None = None


class _File(msgspec.Struct, frozen=True):
    format: str
    version: int
    places: list[PlaceRecord]


class SearchTree:
    """The tree of a search (:class:`.icicle.Branching`); its keys are the numbers of the nodes.

    Children are sorted with the most searched first, or by their numbers if ``in_order``.
    """

    def __init__(self, places: Sequence[PlaceRecord], text: str = "output", *, in_order: bool = False) -> None:
        self._places = places
        self._text = text
        self._children: list[list[int]] = [[] for _ in places]
        for place in places[1:]:
            self._children[place.parent].append(place.number)
        for children in self._children:
            children.sort(key=lambda number: (0 if in_order else -self._searches(number), number))

    def __len__(self) -> int:
        return len(self._places)

    @property
    def root(self) -> str:
        """The key of the root node, which has the output's coordinates and no step."""
        return "0"

    def branch(self, key: str) -> Branch:
        """Return the data of a node. Raises KeyError for an unknown node."""
        place = self._places[self._number(key)]
        kind: Kind = "open"
        if place.is_dead:
            kind = "dead end"
        elif place.is_complete:
            kind = "operator"
        elif place.is_closed:
            kind = "done"
        return Branch(
            key,
            self._text if place.step is None else place.step,
            kind,
            place.visits,
            place.outstanding,
            place.fruitless,
            place.mean,
            place.best,
            place.distance,
            "no operator can be completed from here" if place.is_dead else "",
        )

    def above(self, key: str) -> str | None:
        """Return the parent of a node; None for the root."""
        number = self._number(key)
        return None if number == 0 else str(self._places[number].parent)

    def below(self, key: str) -> Sequence[str]:
        """Return the children of a node, the most searched first."""
        return [str(number) for number in self._children[self._number(key)]]

    def weight(self, key: str) -> float:
        """Return the number of searches through a node."""
        return float(self._searches(self._number(key)))

    def names(self, key: str) -> tuple[str, ...]:
        """Return the steps that lead to a node, by the search's names."""
        return tuple([place.step or "" for place in self._way(key)])

    def steps_taken(self, key: str) -> int:
        """Return the number of an operator's steps that lead to a node."""
        return sum([place.steps for place in self._way(key)])

    def _way(self, key: str) -> list[PlaceRecord]:
        """Return the nodes from the root to a node, without the root."""
        path = []
        number = self._number(key)
        while number:
            path.append(self._places[number])
            number = path[-1].parent
        return path[::-1]

    def summary(self) -> str:
        """Return the counts of the tree in one line."""
        first = self._places[0]
        kinds = [(place.is_dead, place.is_complete) for place in self._places]
        text = f"{first.visits + first.outstanding + first.fruitless} searches, {len(self)} places"
        operators = sum(complete for _, complete in kinds)
        text += f", {count_of(operators, 'operator')}"
        dead = sum(is_dead for is_dead, _ in kinds)
        text += f", {count_of(dead, 'dead end')}"
        if first.mean is not None and first.best is not None:
            text += f"; mean reward {first.mean:.4g}, best {first.best:.4g}"
        return text + "."

    def _searches(self, number: int) -> int:
        place = self._places[number]
        return place.visits + place.outstanding + place.fruitless

    def _number(self, key: str) -> int:
        number = integer(key)
        if number is None or number >= len(self._places):
            raise KeyError(key)
        return number


def tree_file(lab: Path, name: str) -> Path:
    """Return the path of a search's tree file in a lab's folder. Raises StoreError for a name with a path in it."""
    if set(name) & set("/\\") or name in ("", ".", ".."):
        raise StoreError(f"the search {quoted(name)} has no folder of its own")
    return lab / _FILE / name / _NAME


def read_tree(file: Path) -> SearchTree:
    """Read the tree in a file.

    Raises StoreError where the file is missing (only Monte Carlo tree searches have it), damaged or of another kind.
    """
    try:
        content = read_bytes(file, MAX_BYTES)
    except OSError as error:
        if error.strerror is None:  # the path is no regular file, or the file is too large
            raise StoreError(str(error)) from None
        raise StoreError(f"{file}: {error.strerror}; only Monte Carlo tree searches have a tree") from None
    try:
        tree = read_versioned(content, _File, what=str(file), name=FORMAT, version=VERSION, most=MAX_BYTES)
    except FormatError as error:
        raise StoreError(str(error)) from None
    for number, place in enumerate(tree.places):
        if place.number != number or not (-1 if number == 0 else 0) <= place.parent < number:
            raise StoreError(
                f"{file}: place {number}: expected its number and a parent before it, found {quoted(place)}"
            )
    if not tree.places:
        raise StoreError(f"{file}: expected at least one place, found none")
    return SearchTree(tree.places)


def trial_below(rows: Iterable[TrialRow], names: tuple[str, ...]) -> TrialRow | None:
    """Return the most accurate of the trials whose operators were built by these steps and further steps.

    Trials in rungs without finals are compared by their number of rungs, then by the accuracy on the last rung.
    """
    trials = [row for row in rows if row.operator and row.steps and row.steps[: len(names)] == names]
    return max(trials, key=lambda row: (*row.worth, -row.number), default=None)


@dataclass(frozen=True)
class Moment:
    """A search after some of its trials; ``words`` describe the last trial and name the best trial so far.

    A node's reward in the ``tree`` is the mean of its trials by the axis ``measure``. ``best`` has the keys of the
    nodes from the root to the best trial's operator; empty before a trial has a value.
    """

    tree: SearchTree
    best: tuple[str, ...]
    measure: str
    words: str


def replayed(rows: Sequence[TrialRow]) -> tuple[TrialRow, ...]:
    """Return the trials of one search that can be replayed: the trials with steps, in the order of proposal."""
    return tuple(sorted((row for row in rows if row.steps and not row.is_baseline), key=lambda row: row.number))


def improvements(trials: Sequence[TrialRow]) -> list[int]:
    """Return the positions, counted from 1, of the trials that were better than all earlier trials."""
    values = _values(trials, usual_measure(trials))
    positions, most = [], -float("inf")
    for position, value in enumerate(values, 1):
        if value is not None and value > most:
            most = value
            positions.append(position)
    return positions


def moment(trials: Sequence[TrialRow], upto: int) -> Moment:
    """Return the search after the first ``upto`` (1 or more) of its :func:`replayed` trials.

    Raises ValueError where there are fewer trials.
    """
    if not 1 <= upto <= len(trials):
        raise ValueError(f"expected 1 to {len(trials)} trials, found {upto}")
    measure = usual_measure(trials)  # the measure of all trials, so that it does not depend on `upto`
    values = _values(trials, measure)[:upto]
    places = _Growing()
    paths = [places.add(row, value) for row, value in zip(trials, values, strict=False)]
    known = [number for number, value in enumerate(values) if value is not None]
    last, value = trials[upto - 1], values[upto - 1]
    words = f"After trial {upto} of {len(trials)}: {last.label}"
    words += f" with {measure} {value:.4g}" if value is not None else f", {last.state}, without {measure}"
    if not known:
        return Moment(places.tree(), (), measure, f"{words}; none has {measure} yet.")
    best = max(known, key=lambda number: values[number] or 0.0)
    comparison = "it is the best so far" if best == upto - 1 else f"the best so far is {trials[best].label}"
    most = "" if best == upto - 1 else f" with {values[best]:.4g}"
    return Moment(places.tree(), paths[best], measure, f"{words}; {comparison}{most}.")


def _values(trials: Sequence[TrialRow], measure: str) -> list[float | None]:
    axis = find_axis(measure)
    return [axis_value(row, axis) for row in trials]


class _Growing:
    """A growing tree, with its nodes in the order in which trials first reached them."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, str | None, int]] = [(-1, None, 0)]
        self._children: dict[tuple[int, str], int] = {}
        self._through: list[list[float | None]] = [[]]
        self._ends: set[int] = set()

    def add(self, row: TrialRow, value: float | None) -> tuple[str, ...]:
        """Add a trial; return the keys of its nodes."""
        at, path = 0, [0]
        for step, length in zip(row.steps, row.lengths, strict=True):
            if (at, step) not in self._children:
                self._children[at, step] = len(self._steps)
                self._steps.append((at, step, length))
                self._through.append([])
            at = self._children[at, step]
            path.append(at)
        if row.operator:
            self._ends.add(at)
        for node in path:
            self._through[node].append(value)
        return tuple(map(str, path))

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
