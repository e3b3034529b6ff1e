"""Read the tree of a Monte Carlo tree search from its files, during the search and afterwards.

A search writes its tree whole, at most once a second (:mod:`syno_lab.experiments.watching`); its trials are in
the store. A place has no pGraph of its own: it is derived from an operator that was found below the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from syno_lab.errors import FormatError, StoreError
from syno_lab.inputs import count_of, integer, quoted, read_bytes
from syno_lab.reports.rows import TrialRow
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

    Raises:
        StoreError: the file is missing (only Monte Carlo tree searches write one), damaged or of another kind.
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
