"""Synthesis of a chain of operations that satisfies wanted properties (αNAS, section 4).

A *draft* is a chain with the values of its properties. Progressive synthesis appends operations that bring the draft
nearer to the wanted properties, and never removes an operation; its rivals are in :mod:`syno_lab.alpha.mutating`.

Operations with equal properties on a tensor of a shape form a *choice*. Synthesis evaluates only the first operation of
a choice, the *representative* (section 4.5). A second pass may exchange the operations of a choice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from math import inf, isinf, prod
from typing import TYPE_CHECKING, Any, Literal

from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import Operation, Rel, Shape, choices
from syno_lab.alpha.operator_node import suiting
from syno_lab.alpha.pairings import axis_names
from syno_lab.alpha.properties import MIXING, SHAPE, beyond, divides
from syno_lab.alpha.table import FEATURES
from syno_lab.alpha.wanted import Properties
from syno_lab.effort import Effort
from syno_lab.errors import SearchError, SpecError
from syno_lab.inputs import LARGEST_SIZE, quoted

Verdict = Literal["progress", "no progress", "infeasible", "represented", "refused"]
#: The limit of operations beyond the original's number before the paper's rule gives up (section 5).
SLACK = 2
#: The operations with an attribute for the number of output channels.
_SIZED = ("dense", "conv")
#: The probability that the second pass chooses an equivalent operator of another system, if one exists.
LENT = 0.5
#: The limit of drafts that an enumeration evaluates before it gives up.
MOST_EVALUATIONS = 20_000
#: Operations of one name whose properties on a tensor of one shape are equal. The first is the representative, which
#: synthesis evaluates.
Choice = tuple[Operation, ...]


@lru_cache(1 << 12)
def offered(shape: Shape, features: Shape = (), others: tuple[Shape, ...] = ()) -> tuple[Choice, ...]:
    """List the operations that may take a tensor of this shape; spatial axes may only shrink by whole factors.

    Operations of one name with equal properties are one choice (section 4.5). The pairing of an operation is computed
    once, because it does not depend on the number of output channels.

    Args:
        shape: the shape of the tensor.
        features: numbers of output channels to offer, besides multiples of the tensor's channels.
        others: shapes of the same tensor in other instances of a block. Each operation fits these shapes too, and all
            operations of a choice have the same result shapes.
    """
    if others:
        return _suiting(shape, features, others)
    factors = {**dict.fromkeys(FEATURES), **dict.fromkeys(Rel(number, shape[-1]) for number in features)}
    sizes = {r: shape[-1] * r.mul // r.div for r in factors if shape[-1] * r.mul % r.div == 0}
    groups_found: dict[tuple[object, ...], list[Operation]] = {}
    for op in _of_same_features():
        try:
            after, pairings = op.shape(shape), op.pairings(shape)
        except SpecError:
            continue
        if not divides(shape[1:-1], after[1:-1]):
            continue
        if op.name not in _SIZED:
            groups_found.setdefault((op.name, after, pairings), []).append(op)
            continue
        groups = op.at(shape)["groups"] if op.name == "conv" else 1
        for factor, size in sizes.items():
            if size % groups == 0 and prod(after[:-1]) * size <= LARGEST_SIZE:
                alike = groups_found.setdefault((op.name, (*after[:-1], size), pairings), [])
                alike.append(_with_features(op, factor))
    return tuple(map(tuple, groups_found.values()))


def _suiting(shape: Shape, features: Shape, others: tuple[Shape, ...]) -> tuple[Choice, ...]:
    """List the operations that fit several shapes; a choice is split where the result shapes of ``others`` differ."""
    results: list[Choice] = []
    for choice in offered(shape, features):
        alike: dict[tuple[Shape, ...], list[Operation]] = {}
        for op in choice:
            try:
                after = tuple([op.shape(other) for other in others])
            except SpecError:
                continue
            if all(divides(old[1:-1], new[1:-1]) for old, new in zip(others, after, strict=True)):
                alike.setdefault(after, []).append(op)
        results += map(tuple, alike.values())
    return tuple(results)


@cache
def _of_same_features() -> tuple[Operation, ...]:
    """Return the operations that synthesis may choose; dense layers and convolutions only with unchanged channels."""
    return tuple([op for op in choices() if op.name not in _SIZED or op["features"] == Rel()])


@lru_cache(1 << 14)
def _with_features(operation: Operation, features: Rel) -> Operation:
    return operation.replace(features=features)


@dataclass(frozen=True)
class Candidate:
    """An operation that may be appended to a draft.

    Attributes:
        operation: the operation to append.
        distances: the distances from the wanted properties after the operation, by the property's name.
        verdict: ``progress``, ``no progress``, ``infeasible`` (no operations after it lead to the wanted properties) or
            ``represented`` (another candidate has equal properties). With the user's own rules, a session also has
            ``refused``.
        reason: the reason for the verdict, in one line.
        draft: the draft after the operation.
        rule: the name of the user's rule that refuses the operation.
    """

    operation: Operation
    distances: dict[str, float] = field(compare=False)
    verdict: Verdict
    reason: str
    draft: Draft = field(repr=False)
    rule: str = ""

    @property
    def distance(self) -> float:
        """The sum of the distances from all wanted properties, after the operation."""
        return sum(self.distances.values())


@dataclass(frozen=True)
class Draft:
    """A chain of operations that is being built for wanted properties.

    Attributes:
        properties: the wanted properties, of one input and one output.
        input_shape: the shape of the chain's input.
        chain: the operations so far.
        others: for each other instance of the block, the input shape and the wanted output shape (None for any). One
            chain must fit all instances. Depth and mixing are wanted only for ``input_shape``.
        effort: the limits of time and memory of a search for a chain.

    Raises SpecError for an operation that does not fit its input, and for wanted properties of several inputs or
    outputs.
    """

    properties: Properties
    input_shape: Shape
    chain: tuple[Operation, ...] = ()
    others: tuple[tuple[Shape, Shape | None], ...] = ()
    #: For each property, the state after the chain; and the shapes after the chain.
    _states: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    shape: Shape = field(default=(), compare=False)
    other_shapes: tuple[Shape, ...] = field(default=(), compare=False)
    effort: Effort | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self._states:
            return
        self.properties.check_size(1, 1)
        rows, shape = self.properties.rows, self.input_shape
        states = tuple(row.start(shape) for row in rows)
        for operation in self.chain:
            states = tuple(row.after(state, operation, (shape,), 0) for row, state in zip(rows, states, strict=True))
            shape = operation.shape(shape)
        object.__setattr__(self, "_states", states)
        object.__setattr__(self, "shape", shape)
        others = [Graph.chain(other, self.chain).output_shapes[0] for other, _ in self.others]
        object.__setattr__(self, "other_shapes", tuple(others))

    def apply(self, operation: Operation) -> Draft:
        """Return the draft with one more operation. Raises SpecError if the operation does not fit an instance."""
        shape = operation.shape(self.shape)
        others = tuple([operation.shape(other) for other in self.other_shapes])
        rows = zip(self.properties.rows, self._states, strict=True)
        states = tuple([row.after(state, operation, (self.shape,), 0) for row, state in rows])
        chain = (*self.chain, operation)
        return Draft(self.properties, self.input_shape, chain, self.others, states, shape, others, self.effort)

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of the chain's properties, by the names of the properties."""
        return {row.name: row.value(state) for row, state in zip(self.properties.rows, self._states, strict=True)}

    @cached_property
    def distances(self) -> dict[str, float]:
        """The distance of each property from the wanted value, by name; for the shape, the largest of all instances."""
        wanted = self.properties
        distances = {row.name: wanted.apart(row, ((self.values[row.name],),)) for row in wanted.rows}
        for shape, (_, goal) in zip(self.other_shapes, self.others, strict=True):
            if goal is not None:
                distances[SHAPE.name] = max(distances[SHAPE.name], SHAPE.distance(shape, goal, wanted.normalised))
        return distances

    @cached_property
    def distance(self) -> float:
        """The sum of the distances from all wanted properties."""
        return sum(self.distances.values())

    @cached_property
    def nearness(self) -> tuple[float, ...]:
        """The value that a greedy method minimises: the distance, then the paper's distance.

        The paper's distance is needed because a normalised distance changes only after the last step to a wanted size.
        """
        if not self.properties.normalised:
            return (self.distance,)
        plain = replace(self, properties=replace(self.properties, normalised=False))
        return self.distance, plain.distance

    @property
    def is_complete(self) -> bool:
        """Whether all wanted properties are satisfied."""
        return self.distance == 0

    @cached_property
    def features(self) -> tuple[int, ...]:
        """The wanted numbers of channels, which are offered besides multiples of the tensor's channels."""
        return tuple([shape[-1] for row in self.properties.shape for shape in row if shape is not None])

    @property
    def offers(self) -> tuple[Choice, ...]:
        """The operations that the chain may get next (:func:`offered`). Raises EffortError if ``effort`` is used up."""
        if self.effort is not None:
            self.effort.look(f"looking at what follows {len(self.chain)} operations")
        return offered(self.shape, self.features, self.other_shapes)

    def drafts(self) -> Iterator[Draft]:
        """Yield the draft after each representative; a synthesis evaluates only these drafts."""
        return (self.apply(choice[0]) for choice in self.offers)

    def candidates(self, represented: bool = False) -> list[Candidate]:
        """List the operations to append, nearest first; with ``represented``, all operations of each choice."""
        items = []
        for choice in self.offers:
            draft = self.apply(choice[0])
            verdict, reason = self._verdict(draft)
            items.append(Candidate(choice[0], draft.distances, verdict, reason, draft))
            if represented:
                reason = f"same properties as {choice[0]} (representative)"
                items += [Candidate(one, draft.distances, "represented", reason, self.apply(one)) for one in choice[1:]]
        return sorted(items, key=lambda one: (one.distance, one.verdict == "represented"))

    def _verdict(self, draft: Draft) -> tuple[Verdict, str]:
        hopeless = [name for name, distance in draft.distances.items() if isinf(distance)]
        if hopeless:
            return "infeasible", f"cannot lead to the {' and the '.join(hopeless)}"
        pairs = [(name, self.distances[name], distance) for name, distance in draft.distances.items()]
        steps = [f"{name} {before:g} -> {after:g}" for name, before, after in pairs if before != after]
        changes = ", ".join(steps) or "all distances stay"
        return ("progress", changes) if draft.distance < self.distance else ("no progress", f"no progress: {changes}")

    def graph(self) -> Graph:
        """Return the chain as a graph."""
        return Graph.chain(self.input_shape, self.chain)

    if TYPE_CHECKING:  # syno_lab.alpha adds this method: the module that defines it imports drafts

        def explain_distance(self) -> str:
            """See :func:`syno_lab.alpha.menu.explain_distance`."""

    def exchanged(self, rng: random.Random, operators: Sequence[Operation] = ()) -> Draft:
        """Replace each operation by a random operation with equal properties (the second pass of section 4.5).

        With probability `LENT`, an equivalent operator of ``operators`` (:func:`.operator_node.operation_of`) replaces
        the operation.
        """
        draft = Draft(self.properties, self.input_shape, others=self.others)
        for operation in self.chain:
            lent = suiting(operators, operation, draft.shape, *draft.other_shapes) if operators else []
            alike = next((choice for choice in draft.offers if operation in choice), None)
            if lent and rng.random() < LENT:
                draft = draft.apply(rng.choice(lent))
            else:
                draft = draft.apply(rng.choice(alike) if alike else operation)
        return draft


# -- methods ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The result of a synthesis.

    Attributes:
        draft: a draft that satisfies the properties; None for a failure.
        evaluations: the number of evaluated drafts.
        reason: the reason for a failure; empty for a success.
    """

    draft: Draft | None
    evaluations: int
    reason: str = ""


#: A function that returns whether the user's own rules refuse an operation on a draft.
Refuses = Callable[["Draft", Operation], bool]


def _walked(
    start: Draft, rng: random.Random, refuses: Refuses | None, evaluations: int = 0, length: int | None = None
) -> Answer:
    """Append operations until all properties are satisfied: random operations up to ``length``, then the nearest.

    Without a length, all operations are the nearest, and each must reduce the distance.
    """
    draft = start
    while not draft.is_complete:
        done = len(draft.chain)
        if isinf(draft.distance):
            return Answer(None, evaluations, hopeless_words(draft))
        if length is not None and done >= length + SLACK:
            return Answer(None, evaluations, f"not satisfied after {done} operations")
        drafts = [option for option in draft.drafts() if refuses is None or not refuses(draft, option.chain[-1])]
        evaluations += len(drafts)
        feasible = [option for option in drafts if not isinf(option.distance)]
        if length is not None and not feasible:
            return Answer(None, evaluations, f"nothing leads on after {done} operations")
        if length is not None and done < length:
            draft = rng.choices(feasible, [1 / (1 + option.distance) for option in feasible])[0]
            continue
        nearest = min((option.nearness for option in feasible), default=(inf,))
        if length is None and nearest >= draft.nearness:
            return Answer(None, evaluations, f"no operation leads nearer after {done}")
        draft = rng.choice([option for option in feasible if option.nearness == nearest])
    return Answer(draft, evaluations)


def greedy(start: Draft, rng: random.Random, refuses: Refuses | None = None) -> Answer:
    """Append nearest operations, ties at random (Algorithm 1); their number is at most the paper's distance."""
    return _walked(start, rng, refuses)


def progressive(start: Draft, rng: random.Random, length: int | None = None, refuses: Refuses | None = None) -> Answer:
    """Append random operations with weights 1/(1 + distance) up to ``length``, then the nearest (section 5).

    ``length`` is the number of operations of the original; None: the properties' length, or else the greedy answer's. A
    chain with more than `SLACK` extra operations is a failure.
    """
    length, evaluations = start.properties.length if length is None else length, 0
    if length is None:
        shortest = greedy(start, rng, refuses)
        if shortest.draft is None:
            return shortest
        length, evaluations = len(shortest.draft.chain), shortest.evaluations
    return _walked(start, rng, refuses, evaluations, length)


def enumerative(start: Draft, rng: random.Random, most: int = MOST_EVALUATIONS) -> Answer:
    """Try all chains in order of length, at random within a length, at most ``most`` drafts (section 6.2.2)."""
    if start.is_complete:
        return Answer(start, 0)
    level, evaluations = [start], 0
    while level:
        longer: list[Draft] = []
        rng.shuffle(level)
        for draft in level:
            drafts = list(draft.drafts())
            rng.shuffle(drafts)
            for longer_draft in drafts:
                evaluations += 1
                if longer_draft.is_complete:
                    return Answer(longer_draft, evaluations)
                if evaluations >= most:
                    return Answer(None, evaluations, f"none among {most} drafts")
            longer += drafts
        level = longer
    return Answer(None, evaluations, "no operation applies")


def random_subgraph(start: Draft, rng: random.Random, more: float = 0.5, attempts: int = 100) -> Answer:
    """Append a random operation, then with probability ``more`` another, and so on; only the shape must be satisfied.

    The paper (A.2) ignores all properties, with 0.2, 0.5 and 0.75 for ``more``. In the lab, a chain with another result
    shape could not replace the original. So at most ``attempts`` chains are drawn until one has the wanted shape.
    """
    evaluations = 0
    for _ in range(attempts):
        draft = start
        while True:
            if not (offers := draft.offers):
                break
            draft = draft.apply(rng.choice(rng.choice(offers)))
            evaluations += 1
            if rng.random() >= more:
                break
        if draft.chain != start.chain and not draft.distances["shape"]:
            return Answer(draft, evaluations)
    return Answer(None, evaluations, f"none of {attempts} chains has the shape")


def hopeless_words(draft: Draft) -> str:
    """Name the wanted properties, and the entries of mixing, that no further operations can satisfy."""
    names = [name for name, distance in draft.distances.items() if isinf(distance)]
    wanted = draft.properties.mixing[0][0] if MIXING.name in names else None
    value = draft.values[MIXING.name]
    if wanted is not None and len(wanted.columns) != len(value.columns):
        wanted_axes, axes = len(wanted.columns), len(value.columns)
        names[names.index(MIXING.name)] = f"mixing of an input with {wanted_axes} axes, found one with {axes}"
    elif wanted is not None and len(wanted.rows) == len(value.rows):
        ins, outs = axis_names(len(wanted.columns)), axis_names(len(wanted.rows))
        entries = [f"{ins[axis]}->{outs[out]}>={wanted.marks[out][axis]}" for out, axis in beyond(value, wanted)]
        names[names.index(MIXING.name)] = f"mixing {', '.join(entries)}"
    return f"nothing leads to the {' and the '.join(names)}"


#: The methods of synthesis by name; only ``progressive`` uses the length of the original.
METHODS: dict[str, Callable[[Draft, random.Random, int | None], Answer]] = {
    "progressive": progressive,
    "greedy": lambda start, rng, length: greedy(start, rng),
    "enumerative": lambda start, rng, length: enumerative(start, rng),
    "random": lambda start, rng, length: random_subgraph(start, rng),
}


def synthesise(
    properties: Properties,
    input_shape: Shape,
    method: str = "progressive",
    seed: int | random.Random = 0,
    *,
    length: int | None = None,
    second_pass: bool = True,
    others: Sequence[tuple[Shape, Shape | None]] = (),
    operators: Sequence[Operation] = (),
) -> Graph | None:
    """Return a chain that satisfies the properties, or None (:meth:`Draft.explain_distance` helps to find out why).

    Args:
        properties: the wanted properties, of one input and one output.
        input_shape: (batch, spatial…, channels).
        method: one of `METHODS`.
        seed: a seed or a random generator; equal seeds give equal chains.
        length: the number of operations of the original, for the method ``progressive``; see :func:`progressive`.
        second_pass: whether a random operation with equal properties replaces each operation of the chain.
        others: other instances of the block that the chain must fit; see :class:`Draft`.
        operators: operators of other systems, for the second pass (:meth:`Draft.exchanged`).

    Raises SpecError for properties of several inputs or outputs; SearchError for an unknown method.
    """
    if method not in METHODS:
        raise SearchError(f"synthesise: method: expected one of {', '.join(METHODS)}, found {quoted(method)}")
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)  # noqa: S311 - for choices
    draft = METHODS[method](Draft(properties, input_shape, others=tuple(others)), rng, length).draft
    if draft is None:
        return None
    return (draft.exchanged(rng, operators) if second_pass else draft).graph()
