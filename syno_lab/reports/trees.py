"""The tree of a search: of a Monte Carlo tree search from its files, of any search grown again trial by trial.

A search writes its tree whole, at most once a second (:mod:`syno_lab.experiments.watching`); its trials are in
the store. A place has no pGraph of its own: it is derived from an operator that was found below the place.

The store keeps the steps of every trial in the order of asking, whatever the method of the search. So the operators
that were asked for up to a moment are a tree too (:func:`moment`), which only grows: a place keeps its number and its
place among its siblings. What a search has of its own beside it (estimates, places that it only looked at) is left out.
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
    """One place of the file; see :class:`syno_lab.search.tree.Place`."""

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
    """The tree of a search (:class:`.icicle.Branching`); its keys are the numbers of the places.

    Children stand with the most searched first, or ``in_order`` of their numbers.
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
        """The key of the root, which has the output's coordinates and no step."""
        return "0"

    def branch(self, key: str) -> Branch:
        """The data of a place. Raises KeyError for an unknown place."""
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
        """The parent of a place; None for the root."""
        number = self._number(key)
        return None if number == 0 else str(self._places[number].parent)

    def below(self, key: str) -> Sequence[str]:
        """The children of a place, the most searched first."""
        return [str(number) for number in self._children[self._number(key)]]

    def weight(self, key: str) -> float:
        """The number of searches that went through a place."""
        return float(self._searches(self._number(key)))

    def names(self, key: str) -> tuple[str, ...]:
        """The steps that lead to a place, as the search names them."""
        return tuple([place.step or "" for place in self._way(key)])

    def steps_taken(self, key: str) -> int:
        """The number of an operator's steps that lead to a place."""
        return sum([place.steps for place in self._way(key)])

    def _way(self, key: str) -> list[PlaceRecord]:
        """The places from the root to a place, without the root."""
        way = []
        number = self._number(key)
        while number:
            way.append(self._places[number])
            number = way[-1].parent
        return way[::-1]

    def summary(self) -> str:
        """The counts of the tree, in one line."""
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
    """The tree file of the search of this name in a lab's folder. Raises StoreError for a name with a path in it."""
    if set(name) & set("/\\") or name in ("", ".", ".."):
        raise StoreError(f"the search {quoted(name)} has no folder of its own")
    return lab / _FILE / name / _NAME


def read_tree(file: Path) -> SearchTree:
    """Read the tree in a file.

    Raises StoreError where the file is missing (only Monte Carlo tree searches write one), damaged or of another kind.
    """
    try:
        content = read_bytes(file, MAX_BYTES)
    except OSError as error:
        if error.strerror is None:  # not a regular file, or too large
            raise StoreError(str(error)) from None
        raise StoreError(f"{file}: {error.strerror}; only Monte Carlo tree searches have a tree") from None
    try:
        found = read_versioned(content, _File, what=str(file), name=FORMAT, version=VERSION, most=MAX_BYTES)
    except FormatError as error:
        raise StoreError(str(error)) from None
    for number, place in enumerate(found.places):
        if place.number != number or not (-1 if number == 0 else 0) <= place.parent < number:
            raise StoreError(
                f"{file}: place {number}: expected its number and a parent before it, found {quoted(place)}"
            )
    if not found.places:
        raise StoreError(f"{file}: expected at least one place, found none")
    return SearchTree(found.places)


def trial_below(rows: Iterable[TrialRow], names: tuple[str, ...]) -> TrialRow | None:
    """The trial with the highest accuracy whose operator was built through the place that these steps lead to.

    Of trials in rungs without finals the one that came farthest, and of those the one with the highest accuracy there.
    """
    found = [row for row in rows if row.operator and row.steps and row.steps[: len(names)] == names]

    def worth(row: TrialRow) -> tuple[float, ...]:
        accuracy = -1.0 if row.accuracy is None else row.accuracy
        return accuracy, len(row.rungs), row.accuracy_on(row.rung) or 0.0, -row.number

    return max(found, key=worth, default=None)


@dataclass(frozen=True)
class Moment:
    """A search after some of its trials; ``words`` say what the last one brought, and which is the best so far.

    A place's reward in the ``tree`` is the mean of its trials by the axis ``measure``. ``best`` has the keys from the
    first place to the operator of the best trial; it is empty before one has a value.
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

    Raises ValueError where there are fewer.
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
