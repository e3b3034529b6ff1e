"""The tree of a Monte Carlo tree search as its files have it, while it grows and afterwards.

A search writes its tree whole, at most once a second (:mod:`syno_lab.evaluate.searching.watching`); its trials are in
the store. A place has no pGraph of its own: it is read off an operator that was asked for below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from syno_lab.errors import StoreError
from syno_lab.evaluate.reading.icicle import Branch, Kind
from syno_lab.evaluate.reading.rows import TrialRow

FORMAT, VERSION, MAX_BYTES = "syno-lab search tree", 1, 1 << 28
_FILE = Path("searches")
_NAME = "tree.json"
#: A part of the name of a step (:mod:`syno_lab.search.space`): what is done, and for REDUCEs how often.
_ACTION = re.compile(r"([A-Z]+)\([^()]*\)(?:x(\d+))?")


class _Place(msgspec.Struct, frozen=True):
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
    distance: int | None = None


class _File(msgspec.Struct, frozen=True):
    format: str
    version: int
    places: list[_Place]


class SearchTree:
    """The tree of a search (:class:`.icicle.Branching`): the keys are the numbers of its places."""

    def __init__(self, places: Sequence[_Place], text: str = "output") -> None:
        self._places = places
        self._text = text
        self._children: list[list[int]] = [[] for _ in places]
        for place in places[1:]:
            self._children[place.parent].append(place.number)
        for children in self._children:
            children.sort(key=lambda number: (-self._searches(number), number))

    def __len__(self) -> int:
        return len(self._places)

    @property
    def root(self) -> str:
        """The output's coordinates alone."""
        return "0"

    def branch(self, key: str) -> Branch:
        """What is known of a place. Raises KeyError for one that is not there."""
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
        """The place before; None for the first."""
        number = self._number(key)
        return None if number == 0 else str(self._places[number].parent)

    def below(self, key: str) -> Sequence[str]:
        """The places right behind it, the most searched first."""
        return [str(number) for number in self._children[self._number(key)]]

    def weight(self, key: str) -> float:
        """How many searches went through it."""
        return float(self._searches(self._number(key)))

    def names(self, key: str) -> tuple[str, ...]:
        """The steps that lead to a place, as the search names them."""
        found: list[str] = []
        number = self._number(key)
        while number:
            found.append(self._places[number].step or "")
            number = self._places[number].parent
        return tuple(found[::-1])

    def summary(self) -> str:
        """What there is, in one line."""
        first = self._places[0]
        kinds = [(place.is_dead, place.is_complete) for place in self._places]
        text = f"{first.visits + first.outstanding + first.fruitless} searches, {len(self)} places"
        operators = sum(complete for _, complete in kinds)
        text += f", {operators} {'operator' if operators == 1 else 'operators'}"
        dead = sum(is_dead for is_dead, _ in kinds)
        text += f", {dead} dead {'end' if dead == 1 else 'ends'}"
        if first.mean is not None and first.best is not None:
            text += f"; mean reward {first.mean:.4g}, best {first.best:.4g}"
        return text + "."

    def _searches(self, number: int) -> int:
        place = self._places[number]
        return place.visits + place.outstanding + place.fruitless

    def _number(self, key: str) -> int:
        if not key.isdecimal() or int(key) >= len(self._places):
            raise KeyError(key)
        return int(key)


def tree_file(lab: Path, name: str) -> Path:
    """Where the search of this name in a lab's folder has its tree. Raises StoreError for a name with a path in it."""
    if set(name) & set("/\\") or name in ("", ".", ".."):
        raise StoreError(f"the search {name!r} has no folder of its own")
    return lab / _FILE / name / _NAME


def read_tree(file: Path) -> SearchTree:
    """The tree in a file.

    Raises:
        StoreError: when there is none (only Monte Carlo tree searches have one), or it is damaged or foreign.
    """
    try:
        if file.stat().st_size > MAX_BYTES:
            raise StoreError(f"{file}: expected a search tree of at most {MAX_BYTES} bytes, found more")
        content = file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}; only Monte Carlo tree searches have a tree") from None
    try:
        found = msgspec.json.decode(content, type=_File)
    except msgspec.DecodeError as error:
        raise StoreError(f"{file}: expected a search tree as a search writes it: {error}") from None
    if found.format != FORMAT or found.version != VERSION:
        raise StoreError(
            f"{file}: expected {FORMAT!r} of version {VERSION}, found {found.format!r} of version {found.version}"
        )
    for number, place in enumerate(found.places):
        if place.number != number or not (-1 if number == 0 else 0) <= place.parent < number:
            raise StoreError(f"{file}: place {number}: expected its number and a parent before it, found {place}")
    if not found.places:
        raise StoreError(f"{file}: expected at least one place, found none")
    return SearchTree(found.places)


def trial_below(rows: Iterable[TrialRow], names: tuple[str, ...]) -> TrialRow | None:
    """The trial with the highest accuracy whose operator was built through the place that these steps lead to."""
    found = [row for row in rows if row.operator and row.steps and row.steps[: len(names)] == names]
    return max(found, key=lambda row: (-1.0 if row.accuracy is None else row.accuracy, -row.number), default=None)


def steps_taken(names: Iterable[str]) -> int:
    """How many steps of an operator these steps of a search are.

    Several REDUCEs are one step of a search, and a contraction may be two: what it gives away, and what it shares.
    """
    taken = 0
    for name in names:
        actions = _ACTION.findall(name.partition(" @")[0])
        if actions and actions[0][0] == "REDUCE":
            taken += sum(int(times or 1) for _, times in actions)
        elif actions and actions[0][0] != "GIVE":
            taken += 1
    return taken
