"""An atlas of operators: known and discovered ones on one plane, near each other where they do alike.

The distance of two operators is the Euclidean distance of their traits (:meth:`syno_lab.protocol.System.traits`, by
which searches compare operators too) at the sizes of one layer, :data:`LAYER`: what the output element in the middle
reads of each axis, the effective ranks of the kernel, multiply-adds and parameters, mostly as logarithms to the base 2;
a word that only one of the two has counts as 0 in the other. It is a metric on traits; 0 says that no trait tells two
operators apart. Systems have words of their own, so operators of two systems are farther apart than what they do says.

The plane is that of classical multidimensional scaling (Torgerson, Psychometrika 17, 1952): of all planes the one that
keeps most of the squared distances, and :attr:`Atlas.kept` says how much. It has no random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from syno_lab.effort import Stop, end_if
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.protocol import Operator
from syno_lab.reports.axes import axis_value, find_axis
from syno_lab.reports.rows import TrialRow
from syno_lab.reports.shown import usual_measure
from syno_lab.systems import all_systems, read_operator, system_of

#: The layer at whose sizes operators are compared: a 3x3 convolution in the middle of a residual network.
LAYER: Mapping[str, int] = {"N": 1, "C_in": 64, "C_out": 64, "H": 28, "W": 28, "s": 1, "window_h": 3, "window_w": 3}
_SHAPE = (1, 64, 28, 28)
#: How many operators of a lab an atlas has at most; those with the best results come first.
MOST = 300
#: Two operators whose places are nearer than this are drawn at one place.
_SAME = 1e-6


@dataclass(frozen=True)
class Placed:
    """One operator in an atlas.

    Attributes:
        key: of its trial, or ``known:NAME``.
        name: for people.
        operator: the operator.
        x, y: its place, in units of the distance.
        known: whether it is a known operator.
        value: the result by the atlas's measure; None where there is none.
        row: its trial, or None.
    """

    key: str
    name: str
    operator: Operator
    x: float
    y: float
    known: bool
    value: float | None
    row: TrialRow | None


@dataclass(frozen=True)
class Atlas:
    """Operators on a plane.

    Attributes:
        places: the operators, known ones first.
        measure: the axis by which results are compared.
        kept: the share of the squared distances that the plane keeps, from 0 to 1.
        left_out: how many operators do not fit :data:`LAYER`, or have no traits there.
        more: how many operators of the lab are not in it because it has its :data:`MOST`.
    """

    places: tuple[Placed, ...]
    measure: str
    kept: float
    left_out: int
    more: int

    @property
    def words(self) -> str:
        """The atlas in a few sentences."""
        known = sum(one.known for one in self.places)
        text = f"{known} known and {len(self.places) - known} discovered operators by the distance of their traits; "
        text += f"the plane keeps {100 * self.kept:.0f} % of the squared distances."
        if self.left_out:
            text += f" {self.left_out} do not fit a convolution's layer."
        if self.more:
            text += f" {self.more} with lesser results are not in it."
        return text


def atlas(
    rows: Sequence[TrialRow] = (), *, known: bool = True, most: int = MOST, should_stop: Stop | None = None
) -> Atlas:
    """The atlas of the operators of a lab's trials, beside the known ones.

    Args:
        rows: trials; of several with one operator the one with the best result counts.
        known: whether the known operators of all systems are in it.
        most: the most operators of trials.
        should_stop: asked after each operator.

    Raises:
        SpecError: none of them fits.
        StoppedError: when it was told to stop.
    """
    measure = usual_measure(rows)
    found: list[tuple[str, str, Operator, float | None, TrialRow | None]] = []
    if known:
        found += [(f"known:{name}", name, operator, None, None) for name, operator in _known()]
    trials = _trials(rows, measure)
    found += [(row.key, row.label, operator, value, row) for operator, row, value in trials[:most]]
    words: list[Mapping[str, int]] = []
    fitting = []
    for one in found:
        end_if(should_stop, "comparing the traits of operators")
        traits = traits_of(one[2])
        if traits is not None:
            words.append(traits)
            fitting.append(one)
    if not fitting:
        raise SpecError("atlas: expected an operator that fits a convolution's layer, found none")
    places, kept = plane(words)
    return Atlas(
        tuple(
            [
                Placed(key, name, operator, x, y, row is None, value, row)
                for (key, name, operator, value, row), (x, y) in zip(fitting, places, strict=True)
            ]
        ),
        measure,
        kept,
        len(found) - len(fitting),
        max(0, len(trials) - most),
    )


def _known() -> Iterable[tuple[str, Operator]]:
    return ((name, make()) for system in all_systems() for name, make in system.known().items())


def _trials(rows: Iterable[TrialRow], measure: str) -> list[tuple[Operator, TrialRow, float | None]]:
    """Operators with their best trials, the best first."""
    axis = find_axis(measure)
    best: dict[str, tuple[TrialRow, float | None]] = {}
    for row in rows:
        if not row.operator or row.is_baseline:
            continue
        value = axis_value(row, axis)
        if row.operator not in best or _more(value, best[row.operator][1]):
            best[row.operator] = row, value
    found = []
    for text, (row, value) in best.items():
        try:
            found.append((read_operator(text), row, value))
        except FormatError:  # of a system that nobody knows here
            continue
    found.sort(key=lambda one: (one[2] is None, -(one[2] or 0.0), one[1].number))
    return found


def _more(value: float | None, than: float | None) -> bool:
    return value is not None and (than is None or value > than)


def traits_of(operator: Operator) -> Mapping[str, int] | None:
    """The traits of an operator at :data:`LAYER`; None where it does not fit, or nothing is known of it."""
    system = system_of(operator)
    try:
        bound = {**system.example_binding(operator), **system.binding_for(operator, LAYER, _SHAPE, _SHAPE)}
        return system.traits(operator, operator.complete_binding(bound)) or None
    except SynoError:
        return None


def distance(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """The distance of two operators by their traits."""
    return float(sum((one.get(word, 0) - other.get(word, 0)) ** 2 for word in {*one, *other}) ** 0.5)


def plane(traits: Sequence[Mapping[str, int]]) -> tuple[list[tuple[float, float]], float]:
    """A place for each of these traits, and the share of the squared distances that the places keep."""
    import numpy as np
    from sklearn.manifold import ClassicalMDS

    words = sorted({word for one in traits for word in one})
    points = np.array([[float(one.get(word, 0)) for word in words] for one in traits])
    whole = float(((points - points.mean(axis=0)) ** 2).sum())
    if whole < _SAME:
        return [(0.0, 0.0)] * len(traits), 1.0
    found = ClassicalMDS(n_components=min(2, len(traits))).fit_transform(points)
    found = np.column_stack([found, np.zeros(len(found))])[:, :2]
    return [(float(x), float(y)) for x, y in found], min(1.0, float((found**2).sum()) / whole)


class ShownPlace(msgspec.Struct, frozen=True):
    """A place on a page: ``mark`` is of its system, ``text`` all of it in a line, ``page`` its address, or empty."""

    key: str
    name: str
    system: str
    mark: str
    x: float
    y: float
    known: bool
    value: float | None
    text: str
    page: str


class ShownAtlas(msgspec.Struct, frozen=True):
    """An atlas on a page: the title of the ``measure``, and the lowest and highest result."""

    words: str
    measure: str
    low: float
    high: float
    places: list[ShownPlace]


def shown_atlas(found: Atlas, pages: Mapping[str, str] | None = None) -> ShownAtlas:
    """An atlas for a page.

    Args:
        found: the atlas.
        pages: the address of an operator's page by its key, where it has one.
    """
    axis = find_axis(found.measure)
    values = [one.value for one in found.places if one.value is not None]
    places = []
    for one in found.places:
        system = system_of(one.operator)
        result = f"{axis.title} {one.value:.4g}" if one.value is not None else "no result"
        text = f"{one.name} ({system.title}): {'known operator' if one.known else result}"
        x, y, page = round(one.x, 4), round(one.y, 4), (pages or {}).get(one.key, "")
        about = (one.key, one.name, system.title, system.mark, x, y, one.known, one.value, text, page)
        places.append(ShownPlace(*about))
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    return ShownAtlas(found.words, axis.title, low, high, places)
