"""Properties of subgraphs: shape, depth and mixing, as values with an order and a distance (αNAS, sections 3 and 4).

A property is interpreted abstractly: its value after an operation follows from the value before it, and is a lower
bound of what the subgraph really does (Definition 2.6). A subgraph with several inputs and outputs has a value for each
pair of them. A *table* has a row for each input and a column for each output; None in it is a value that nobody asks
for. A shape is the same from wherever one looks, so its table has one row.

Shapes are those of tensors, (batch, spatial…, channels): channels last.
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
#: What stands before a subgraph, where depth is counted as the authors' published code does.
Producer = Literal["linear", "nonlinear"]


# -- mutations ---------------------------------------------------------------------------------------------------------

# All wanted properties but the depth only become weaker (section 5), so the subgraph that they were inferred from still
# satisfies them, and there is always an answer. The paper and its published code differ; both are presets.


def check_shares(rules: object, *names: str) -> None:
    """Raise SpecError where one of these attributes is no number from 0 to 1."""
    for name in names:
        found = vars(rules)[name]
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 1:
            what = type(rules).__name__
            raise SpecError(f"{what}: {name}: expected a probability from 0 to 1, found {quoted(found)}")


@dataclass(frozen=True)
class Relax:
    """How likely each property is mutated.

    Attributes:
        shape: the probability that the shape of an output is no longer asked for.
        mixing: the probability that a pairing is no longer asked for; each entry of a matrix draws alone, or with
            ``whole`` each matrix.
        depth: the probability that a depth changes, upwards as often as downwards; it never falls below 0.
        most: the largest change of a depth.
        whole: whether a matrix loses all its pairings or none.
        geometric: a depth changes by one more with the probability ``depth`` each time, up to ``most``; otherwise by
            1 to ``most``, each as likely.

    Raises SpecError for a probability outside 0 to 1, and a change that is no integer of 1 or more.
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
        """By how much one depth changes."""
        if self.geometric:
            steps = 0
            while steps < self.most and rng.random() < self.depth:
                steps += 1
        else:
            steps = rng.randint(1, self.most) if rng.random() < self.depth else 0
        return steps if rng.random() < 0.5 else -steps


#: The presets: section 5 of the paper, and what the published code does in the published runs.
RELAXATIONS = {"paper": Relax(), "code": Relax(shape=0.0, whole=True, geometric=True)}


def relax_of(rules: Relax | str) -> Relax:
    """The rules, or the preset of this name, which is one of :data:`RELAXATIONS`."""
    return RELAXATIONS[rules] if isinstance(rules, str) else rules


@dataclass(frozen=True)
class Property(Generic[State, Value]):
    """One property: how its value comes about, how values are compared, and how a wanted one is relaxed.

    A *state* is what must be known of the operations so far in order to go on; the value is read from it.

    Attributes:
        name: of the property.
        start: the state of the identity of a tensor of a shape.
        after: the state after an operation, from the state of one of its inputs, the operation, the shapes of all its
            inputs, and the number of that one.
        join: the state of a tensor that is reached in two ways.
        value: the value in a state.
        apart: the value where no path leads from an input to an output of two shapes.
        distance: how far a value is from being at least the wanted one: 0 exactly when it is, infinity where no chain
            of operations leads there. The third argument says whether it is a share of the wanted value, as in the
            authors' published code, or the paper's.
        weaker: a wanted value after a mutation by chance, None where it is no longer asked for.
        has_inputs: whether the values depend on the input, too.
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
        """The values of a graph, for each of its inputs and outputs."""
        found = []
        for number, before in enumerate(graph.inputs[: None if self.has_inputs else 1]):
            states: dict[int, State] = {number: self.start(before)}
            for index, node in enumerate(graph.nodes):
                tensor, shapes = graph.tensor(index), graph.input_shapes(index)
                for position, taken in enumerate(node.inputs):
                    if taken in states:
                        state = self.after(states[taken], node.operation, shapes, position)
                        states[tensor] = self.join(states[tensor], state) if tensor in states else state
            values = {tensor: self.value(state) for tensor, state in states.items() if tensor in graph.outputs}
            ends = [values[t] if t in values else self.apart(before, graph.shapes[t]) for t in graph.outputs]
            found.append(tuple(ends))
        return tuple(found)

    def relax(self, table: Table[Value], rules: Relax, rng: random.Random) -> Table[Value]:
        """Wanted values after a mutation by chance."""
        return tuple(tuple(None if one is None else self.weaker(one, rules, rng) for one in row) for row in table)


# -- shape -----------------------------------------------------------------------------------------------------------


@lru_cache(1 << 14)
def _shape_distance(value: Shape, target: Shape, normalised: bool) -> float:
    if len(value) != len(target) or value[0] != target[0] or not _leads(value[1:-1], target[1:-1]):
        return inf
    if normalised:
        return sum(mine != wanted for mine, wanted in zip(value, target, strict=True)) / len(target)
    spatial = sum(mine // wanted - 1 for mine, wanted in zip(value[1:-1], target[1:-1], strict=True))
    return float(spatial + (value[-1] != target[-1]))


@lru_cache(1 << 14)
def _leads(axes: Shape, target: Shape) -> bool:
    """Whether strides make the one of the other by steps that the target divides, or a pool over whole axes does."""
    if axes == target or not divides(axes, target):
        return axes == target
    fewer = {tuple(-(-size // stride) for size in axes) for stride in STRIDES} - {axes}
    return set(target) == {1} or any(divides(axes, each) and _leads(each, target) for each in fewer)


def divides(before: Shape, after: Shape) -> bool:
    """Whether every axis of the one is a whole number of times that of the other (section 4.4.4)."""
    return all(mine % other == 0 for mine, other in zip(before, after, strict=True))


#: The shape of an output (section 3.3), ordered by equality. The distance is Definition 4.13 with a_i/b_i - 1 in place
#: of a_i/b_i, which is not 0 for equal shapes; as a share it is that of the axes that differ.
SHAPE: Property[Shape, Shape] = Property(
    name="shape",
    start=lambda shape: shape,
    after=lambda state, operation, shapes, position: operation.shape(*shapes),
    join=lambda one, other: one,
    value=lambda state: state,
    apart=lambda before, after: after,
    distance=_shape_distance,
    weaker=lambda shape, rules, rng: None if rng.random() < rules.shape else shape,
    has_inputs=False,
)


# -- depth -----------------------------------------------------------------------------------------------------------


class Runs(NamedTuple):
    """The state of the depth: runs of operations that are all linear or all not, and the kind of the last one."""

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
    """The most runs of alternately linear and non-linear operations on a path (section 3.2); 0 without operations.

    Args:
        producer: None counts runs. The authors' published code counts changes, the one from what stands before the
            subgraph to its first operation among them; this says of what kind that is. An input of the network counts
            as non-linear.
    """
    return Property(
        name="depth",
        start=lambda shape: Runs(0, None if producer is None else producer == "linear"),
        after=_one_more,
        join=lambda one, other: max(one, other, key=lambda state: state.runs),
        value=lambda state: state.runs,
        apart=lambda before, after: 0,
        distance=_depth_distance,
        weaker=lambda value, rules, rng: max(0, value + rules.change_of_depth(rng)),
    )


DEPTH = depth_property()


# -- mixing ----------------------------------------------------------------------------------------------------------


@lru_cache(1 << 14)
def compose(after: Pairing, before: Pairing) -> Pairing:
    """``after @ before``, kept: the same few matrices meet again and again."""
    return after @ before


_LETTERS: dict[str, Letter] = {letter: letter for letter in RANK}


def pairing_of(rows: Sequence[Sequence[str]], columns: int) -> Pairing:
    """The matrix of these marks, with the axes of tensors as names."""
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
    """The entries of a wanted matrix that no operations after this value lead to, both of as many axes."""
    most = compose(_all_mixed(len(value.rows)), value).marks
    entries = ((out, axis) for out in range(len(target.rows)) for axis in range(len(target.columns)))
    return [(out, axis) for out, axis in entries if RANK[target.marks[out][axis]] > RANK[most[out][axis]]]


@cache
def _all_mixed(axes: int) -> Pairing:
    """The matrix that no chain of operations exceeds and one reaches: each element reads all but other examples."""
    return diagonal((2,) * axes, ["o", *repeated("a", axes - 1)])


def _fewer_pairings(matrix: Pairing, rules: Relax, rng: random.Random) -> Pairing | None:
    if rules.whole:
        return None if rng.random() < rules.mixing else matrix
    marks = [["x" if mark == "x" or rng.random() < rules.mixing else mark for mark in row] for row in matrix.marks]
    return pairing_of(marks, len(matrix.columns))


#: Which input axis is paired with which output axis, and how locally (section 3.1), composed as matrices are (Lemma
#: 3.6). The distance counts the entries that are too small (Definition 4.9); its share is that of the wanted pairings.
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

#: A row for each property, in the order in which they are shown.
PROPERTIES: tuple[Property[Any, Any], ...] = (SHAPE, DEPTH, MIXING)
