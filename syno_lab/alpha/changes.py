"""Changes of one entry of a chain's wanted properties by hand, with the effect of each change on a draft."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isinf
from typing import Any, Literal

from syno_lab.alpha.operations import Shape
from syno_lab.alpha.pairings import nothing
from syno_lab.alpha.properties import MIXING, SHAPE, pairing_of
from syno_lab.alpha.synthesis import Draft
from syno_lab.common.pairing import WORDS, Pairing
from syno_lab.common.wants import RANK, Letter
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted

Kind = Literal["weaker", "stricter", "other"]


@dataclass(frozen=True)
class Change:
    """A change of one wanted property, or of one entry of the wanted matrix of mixing.

    Attributes:
        name: the name of the property.
        value: the new wanted value: a shape or None (any shape), a depth, or a letter of mixing.
        entry: the output axis and the input axis of an entry of mixing; None for other properties.
    """

    name: str
    value: Shape | int | Letter | None
    entry: tuple[int, int] | None = None

    @property
    def key(self) -> str:
        """The identifier of the change on a page: ``mixing-1-2-m``, ``depth-3``, ``shape-8x16x16x32``."""
        value = "x".join(map(str, self.value)) if isinstance(self.value, tuple) else self.value
        return "-".join(map(str, (self.name, *(self.entry or ()), value)))

    def words(self, draft: Draft) -> str:
        """Describe in a few words the wanted value after the change; ``draft`` is the draft after the change."""
        if self.entry is None:
            return f"{self.name} {said(self.value)} is wanted"
        matrix = wanted_mixing(draft)
        out, axis = self.entry
        return f"mixing {matrix.columns[axis]}->{matrix.rows[out]} {self.value} is wanted"

    def apply(self, draft: Draft) -> Draft:
        """Return the draft with the same chain and the changed wanted value.

        Raises SpecError for an unknown property, entry or value.
        """
        value: Any = self.value
        if self.name == MIXING.name:
            value = self._marks(wanted_mixing(draft))
        elif self.name not in ("shape", "depth") or self.entry is not None or (value is None and self.name == "depth"):
            raise SpecError(f"expected a change of a shape, a depth or an entry of mixing, found {quoted(self.key)}")
        changed: dict[str, Any] = {self.name: None if value is None else ((value,),)}
        properties = replace(draft.properties, **changed)
        # The draft keeps the chain's values, which do not depend on the wanted properties.
        return replace(draft, properties=properties)

    def _marks(self, matrix: Pairing) -> Pairing:
        rows, columns = len(matrix.marks), len(matrix.marks[0])
        out, axis = self.entry or (-1, -1)
        if not 0 <= out < rows or not 0 <= axis < columns or self.value not in RANK:
            expected = f"a letter ({', '.join(RANK)}) for one of {rows} x {columns} entries"
            raise SpecError(f"expected {expected}, found {quoted(self.key)}")
        marks = [list(row) for row in matrix.marks]
        marks[out][axis] = self.value
        return pairing_of(marks, columns)


@dataclass(frozen=True)
class Possible:
    """A change that a user may choose.

    Attributes:
        change: the change.
        kind: whether the new value is weaker or stricter; ``other`` for a change between two shapes.
        effect: one line: the draft's distance before and after the change, or that no step leads to the value.
        is_feasible: whether steps may lead to the wanted value.
    """

    change: Change
    kind: Kind
    effect: str
    is_feasible: bool


def possible(draft: Draft, name: str, entry: tuple[int, int] | None = None) -> list[Possible]:
    """List the changes of a property, or of an entry of mixing, that a user may choose."""
    return [_judged(draft, Change(name, value, entry), kind) for value, kind in _values(draft, name, entry)]


def change_of(draft: Draft, key: str) -> Change:
    """Return the change with this key. Raises SpecError where no change has the key."""
    name, *where = key.split("-")
    entry = (int(where[0]), int(where[1])) if len(where) == 3 and all(part.isdecimal() for part in where[:2]) else None
    if name in ("shape", "depth", "mixing") and (entry is None) == (name != "mixing"):
        changes = (Change(name, value, entry) for value, _ in _values(draft, name, entry))
        if change := next((option for option in changes if option.key == key), None):
            return change
    raise SpecError(f"expected a change of what is wanted, found {quoted(key)}")


def _values(draft: Draft, name: str, entry: tuple[int, int] | None) -> Iterator[tuple[Any, Kind]]:
    if name == "mixing":
        matrix = wanted_mixing(draft)
        out, axis = entry or (0, 0)
        if out < len(matrix.marks) and axis < len(matrix.marks[0]):
            now = matrix.marks[out][axis]
            yield from ((mark, _kind(RANK[mark], RANK[now])) for mark in RANK if mark != now)
    elif name == "depth":
        depth = wanted(draft, name) or 0
        yield from ((value, _kind(value, depth)) for value in (depth - 1, depth + 1) if value >= 0)
    else:
        yield from _shapes(draft)


def _shapes(draft: Draft) -> Iterator[tuple[Shape | None, Kind]]:
    """Yield None (any shape), the chain's present shape, and the wanted shape with one axis halved or doubled."""
    now = wanted(draft, "shape")
    shapes: dict[Shape, None] = {} if now == draft.shape else {draft.shape: None}
    if now is not None:
        yield None, "weaker"
        for axis in range(1, len(now)):
            sizes = [now[axis] // 2] if now[axis] % 2 == 0 else []
            shapes |= {(*now[:axis], size, *now[axis + 1 :]): None for size in (*sizes, 2 * now[axis])}
    for shape in shapes:
        yield shape, "other" if now is not None else "stricter"


def _kind(value: int, now: int) -> Kind:
    return "weaker" if value < now else "stricter"


def _judged(draft: Draft, change: Change, kind: Kind) -> Possible:
    after = change.apply(draft)
    distance = after.distances[change.name]
    if isinf(distance):
        return Possible(change, kind, f"infeasible: nothing leads to this {change.name} from here", False)
    before = draft.distances[change.name]
    how = "stays" if before == distance else f"{plain(before)} → {plain(distance)}"
    return Possible(change, kind, f"feasible: distance of {change.name} {how}", True)


def wanted(draft: Draft, name: str) -> Any:
    """Return the wanted value of a property; None where the draft has no wanted value."""
    table = draft.properties.table(name)
    return table[0][0] if table else None


def wanted_mixing(draft: Draft) -> Pairing:
    """Return the wanted matrix; without a wanted matrix, a matrix of marks x for the wanted shape, else the present."""
    matrix: Pairing | None = wanted(draft, MIXING.name)
    if matrix is None:
        return nothing(wanted(draft, SHAPE.name) or draft.shape, draft.input_shape)
    return pairing_of(matrix.marks, len(matrix.columns))


def said(value: Shape | int | str | None) -> str:
    """Return a value of a property in a few words."""
    if value is None:
        return "any"
    if isinstance(value, str):
        return f"{value}: {WORDS[value]}" if value in WORDS else value
    return str(list(value)) if isinstance(value, tuple) else str(value)


def plain(distance: float) -> Any:
    """Return a distance as a page shows it: a whole number without a point, infinity in words."""
    if isinf(distance):
        return "out of reach"
    return int(distance) if distance == int(distance) else round(distance, 3)
