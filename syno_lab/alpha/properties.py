"""Properties of subgraphs: shape, depth and mixing, as values with an order and a distance (αNAS, sections 3 and 4).

Values are inferred by abstract interpretation. The value after an operation follows from the value before it, and is a
lower bound of the true value (Definition 2.6). A subgraph has a value for each pair of an input and an output. A
*table* has a row for each input and a column for each output; None stands for any value. The shape of an output does
not depend on the input, so its table has one row.

Shapes of tensors are (batch, spatial…, channels): channels last.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import Operation
from syno_lab.alpha.pairings import axis_names, diagonal, nothing, repeated
from syno_lab.alpha.row import Shape
from syno_lab.alpha.table import STRIDES
from syno_lab.common.pairing import Pairing
from syno_lab.common.wants import RANK, Letter
from syno_lab.errors import SpecError
from syno_lab.inputs import positive, quoted

State = TypeVar("State")
Value = TypeVar("Value")
Table = tuple[tuple[Value | None, ...], ...]
#: The kind of the operation before a subgraph; the authors' published code needs this kind for the depth.
Producer = Literal["linear", "nonlinear"]


# -- mutations ---------------------------------------------------------------------------------------------------------

# A mutation only weakens the wanted shape and mixing; the wanted depth may also grow (section 5). The original subgraph
# still satisfies the mutated shape and mixing. The paper and its published code mutate differently; each is a preset.


def check_shares(rules: object, *names: str) -> None:
    """Raise SpecError where one of these attributes is no number from 0 to 1."""
    for name in names:
        value = vars(rules)[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            owner = type(rules).__name__
            raise SpecError(f"{owner}: {name}: expected a probability from 0 to 1, found {quoted(value)}")


@dataclass(frozen=True)
class Relax:
    """The probabilities with which properties are mutated.

    Attributes:
        shape: the probability that a wanted shape becomes None (any shape).
        mixing: the probability that an entry of a matrix becomes x, or with ``whole`` that a matrix becomes None.
        depth: the probability that a wanted depth changes, up or down with equal probability, never below 0.
        most: the largest change of a wanted depth.
        whole: whether a mutation removes a wanted matrix as a whole, rather than single entries.
        geometric: whether a change adds steps of 1, each with probability ``depth``, up to ``most``; otherwise all
            sizes from 1 to ``most`` have equal probability.

    Raises SpecError for a probability outside 0 to 1, and for a change that is no integer of 1 or more.
    """

    shape: float = 0.5
    mixing: float = 0.5
    depth: float = 0.5
    most: int = 2
    whole: bool = False
    geometric: bool = False

    def __post_init__(self) -> None:
        check_shares(self, "shape", "mixing", "depth")
        if positive(self.most) is None:
            raise SpecError(f"Relax: most: expected an integer of 1 or more, found {quoted(self.most)}")

    def change_of_depth(self, rng: random.Random) -> int:
        """Draw the change of one wanted depth."""
        if self.geometric:
            steps = 0
            while steps < self.most and rng.random() < self.depth:
                steps += 1
        else:
            steps = rng.randint(1, self.most) if rng.random() < self.depth else 0
        return steps if rng.random() < 0.5 else -steps


#: The presets: section 5 of the paper, and the published code with the options of its published runs.
RELAXATIONS = {"paper": Relax(), "code": Relax(shape=0.0, whole=True, geometric=True)}


def relax_of(rules: Relax | str) -> Relax:
    """Return the rules, or the preset of this name in :data:`RELAXATIONS`."""
    return RELAXATIONS[rules] if isinstance(rules, str) else rules


@dataclass(frozen=True)
class Property(Generic[State, Value]):
    """One property: how its values are computed, compared and, if wanted, relaxed.

    The *state* of a tensor determines the states after further operations; the value is computed from the state.

    Attributes:
        name: the name of the property.
        start: the state of an input of a shape, before any operation.
        after: the state after an operation, from the state of one input, the operation, the shapes of all inputs, and
            the number of that input.
        join: the state of a tensor, from its states along two paths.
        value: the value of a state.
        apart: the value for an input and an output that no path connects, from their shapes.
        distance: the distance of a value from the wanted value: 0 exactly if the value suffices, infinity if no chain
            of operations leads to the wanted value. With a true third argument, the distance is a share of the wanted
            value, as in the authors' published code; otherwise it is the paper's distance.
        weaker: a wanted value after a random mutation; None (any value) if the mutation removes the wanted value.
        has_inputs: whether the value of an output depends on the input from which it is computed.
    """

    name: str
    start: Callable[[Shape], State]
    after: Callable[[State, Operation, tuple[Shape, ...], int], State]
    join: Callable[[State, State], State]
    value: Callable[[State], Value]
    apart: Callable[[Shape, Shape], Value]
    distance: Callable[[Value, Value, bool], float]
    weaker: Callable[[Value, Relax, random.Random], Value | None]
    has_inputs: bool = True

    def infer(self, graph: Graph) -> Table[Value]:
        """Return the table of values of a graph."""
        rows = []
        for number, before in enumerate(graph.inputs[: None if self.has_inputs else 1]):
            states: dict[int, State] = {number: self.start(before)}
            for index, node in enumerate(graph.nodes):
                tensor, shapes = graph.tensor(index), graph.input_shapes(index)
                for position, input_tensor in enumerate(node.inputs):
                    if input_tensor in states:
                        state = self.after(states[input_tensor], node.operation, shapes, position)
                        states[tensor] = self.join(states[tensor], state) if tensor in states else state
            values = {tensor: self.value(state) for tensor, state in states.items() if tensor in graph.outputs}
            ends = [values[t] if t in values else self.apart(before, graph.shapes[t]) for t in graph.outputs]
            rows.append(tuple(ends))
        return tuple(rows)

    def relax(self, table: Table[Value], rules: Relax, rng: random.Random) -> Table[Value]:
        """Return a table of wanted values after a random mutation of each value."""
        return tuple(tuple(None if value is None else self.weaker(value, rules, rng) for value in row) for row in table)


# -- shape -----------------------------------------------------------------------------------------------------------


@lru_cache(1 << 14)
def _shape_distance(value: Shape, target: Shape, normalised: bool) -> float:
    if len(value) != len(target) or value[0] != target[0] or not _leads(value[1:-1], target[1:-1]):
        return inf
    if normalised:
        return sum(size != wanted for size, wanted in zip(value, target, strict=True)) / len(target)
    spatial = sum(size // wanted - 1 for size, wanted in zip(value[1:-1], target[1:-1], strict=True))
    return float(spatial + (value[-1] != target[-1]))


@lru_cache(1 << 14)
def _leads(axes: Shape, target: Shape) -> bool:
    """Return whether strides with whole quotients lead from ``axes`` to ``target``, or a pool over whole axes does."""
    if axes == target or not divides(axes, target):
        return axes == target
    fewer = {tuple(-(-size // stride) for size in axes) for stride in STRIDES} - {axes}
    return set(target) == {1} or any(divides(axes, smaller) and _leads(smaller, target) for smaller in fewer)


def divides(before: Shape, after: Shape) -> bool:
    """Return whether each axis of ``before`` is a multiple of the axis of ``after`` (section 4.4.4)."""
    return all(size % divisor == 0 for size, divisor in zip(before, after, strict=True))


#: The shape of an output (section 3.3); a shape satisfies only an equal wanted shape. The distance is Definition 4.13
#: with a_i/b_i - 1 instead of a_i/b_i, which is not 0 for equal shapes. As a share, it is the share of unequal axes.
SHAPE: Property[Shape, Shape] = Property(
    name="shape",
    start=lambda shape: shape,
    after=lambda state, operation, shapes, position: operation.shape(*shapes),
    join=lambda first, other: first,
    value=lambda state: state,
    apart=lambda before, after: after,
    distance=_shape_distance,
    weaker=lambda shape, rules, rng: None if rng.random() < rules.shape else shape,
    has_inputs=False,
)


# -- depth -----------------------------------------------------------------------------------------------------------


class Runs(NamedTuple):
    """The state of the depth: the number of linear and non-linear runs, and whether the last run is linear."""

    runs: int
    linear: bool | None


def _one_more(state: Runs, operation: Operation, shapes: tuple[Shape, ...], position: int) -> Runs:
    linear = operation.linear
    return state if linear in (None, state.linear) else Runs(state.runs + 1, linear)


def _depth_distance(value: int, target: int, normalised: bool) -> float:
    missing = max(0, target - value)
    return missing / target if normalised and missing else float(missing)


@cache
def depth_property(producer: Producer | None = None) -> Property[Runs, int]:
    """Return the depth property: the most alternating runs of linear and non-linear operations on a path (section 3.2).

    Args:
        producer: None to count runs, 0 without operations. The authors' published code counts changes between linear
            and non-linear instead, including a change from ``producer`` to the first operation. ``producer`` is the
            kind of the operation before the subgraph; an input of the network counts as non-linear.
    """
    return Property(
        name="depth",
        start=lambda shape: Runs(0, None if producer is None else producer == "linear"),
        after=_one_more,
        join=lambda first, other: max(first, other, key=lambda state: state.runs),
        value=lambda state: state.runs,
        apart=lambda before, after: 0,
        distance=_depth_distance,
        weaker=lambda value, rules, rng: max(0, value + rules.change_of_depth(rng)),
    )


DEPTH = depth_property()


# -- mixing ----------------------------------------------------------------------------------------------------------


@lru_cache(1 << 14)
def compose(after: Pairing, before: Pairing) -> Pairing:
    """Return ``after @ before``, cached because the same few matrices are composed again and again."""
    return after @ before


_LETTERS: dict[str, Letter] = {letter: letter for letter in RANK}


def pairing_of(rows: Sequence[Sequence[str]], columns: int) -> Pairing:
    """Return the pairing with these rows of marks and the names of a tensor's axes."""
    marks = tuple([tuple(map(_LETTERS.__getitem__, row)) for row in rows])
    return Pairing(axis_names(len(rows)), axis_names(columns), marks)


@lru_cache(1 << 10)
def _identity(shape: Shape) -> Pairing:
    return diagonal(shape, repeated("o", len(shape)))


@lru_cache(1 << 14)
def _mixing_distance(value: Pairing, target: Pairing, normalised: bool) -> float:
    axes = len(value.rows)
    if (axes, len(value.columns)) != (len(target.rows), len(target.columns)):
        return inf
    missing = value.excess(target)
    if missing and beyond(value, target):
        return inf
    share = sum(mark != "x" for row in target.marks for mark in row) if normalised and missing else 1
    return missing / share


def beyond(value: Pairing, target: Pairing) -> list[tuple[int, int]]:
    """Return the entries of ``target`` that no further operations after ``value`` can reach; the axes must agree."""
    most = compose(_all_mixed(len(value.rows)), value).marks
    entries = ((out, axis) for out in range(len(target.rows)) for axis in range(len(target.columns)))
    return [(out, axis) for out, axis in entries if RANK[target.marks[out][axis]] > RANK[most[out][axis]]]


@cache
def _all_mixed(axes: int) -> Pairing:
    """Return the largest pairing that a chain of operations has: each element reads all of its example in the batch."""
    return diagonal((2,) * axes, ["o", *repeated("a", axes - 1)])


def _fewer_pairings(matrix: Pairing, rules: Relax, rng: random.Random) -> Pairing | None:
    if rules.whole:
        return None if rng.random() < rules.mixing else matrix
    marks = [["x" if mark == "x" or rng.random() < rules.mixing else mark for mark in row] for row in matrix.marks]
    return pairing_of(marks, len(matrix.columns))


#: The mixing property: how locally input and output axes are paired (section 3.1). Pairings compose as matrices (Lemma
#: 3.6). The distance is the number of too small entries (Definition 4.9), or their share of the wanted pairings.
MIXING: Property[Pairing, Pairing] = Property(
    name="mixing",
    start=_identity,
    after=lambda state, operation, shapes, position: compose(operation.pairings(*shapes)[position], state),
    join=Pairing.__or__,
    value=lambda state: state,
    apart=lambda before, after: nothing(after, before),
    distance=_mixing_distance,
    weaker=_fewer_pairings,
)

#: A row for each property, in the order of display.
PROPERTIES: tuple[Property[Any, Any], ...] = (SHAPE, DEPTH, MIXING)
