"""Synthesis of a chain of operations that satisfies wanted properties (αNAS, section 4).

A *draft* is a chain with the values of its properties. Progressive synthesis appends operations that bring the draft
nearer to what is wanted, and never takes one back; its rivals are in :mod:`syno_lab.alpha.mutating`.

Operations whose effect on a tensor of this shape is the same are one *choice*: only its first, the representative, is
looked at (section 4.5); a second pass puts any of them in its place.
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
#: By how much the paper's rule may make a chain longer than the original before it gives up (section 5).
SLACK = 2
#: The operations that make a number of channels.
_SIZED = ("dense", "conv")
#: How often an operator of another system is taken where one does the same.
LENT = 0.5
#: How many drafts an enumeration looks at before it gives up.
MOST_EVALUATIONS = 20_000
#: Operations of one type that do the same to a tensor of one shape, as far as properties can tell; the first is the
#: representative, which is looked at.
Choice = tuple[Operation, ...]


@lru_cache(1 << 12)
def offered(shape: Shape, features: Shape = (), others: tuple[Shape, ...] = ()) -> tuple[Choice, ...]:
    """What can follow on a tensor of this shape; nothing that divides an axis by a number that is not whole.

    Operations of one name that no property tells apart are one choice (section 4.5). An operation is looked at once for
    all its features, which its pairing does not depend on.

    Args:
        shape: of the tensor.
        features: numbers of channels that are offered beside the multiples of the tensor's own.
        others: shapes of the same tensor in other instances: what is offered applies to them too, and the operations of
            one choice make the same shapes of them.
    """
    if others:
        return _suiting(shape, features, others)
    relative = {**dict.fromkeys(FEATURES), **dict.fromkeys(Rel(number, shape[-1]) for number in features)}
    sizes = {one: shape[-1] * one.mul // one.div for one in relative if shape[-1] * one.mul % one.div == 0}
    found: dict[tuple[object, ...], list[Operation]] = {}
    for one in _of_same_features():
        try:
            after, pairings = one.shape(shape), one.pairings(shape)
        except SpecError:
            continue
        if not divides(shape[1:-1], after[1:-1]):
            continue
        if one.name not in _SIZED:
            found.setdefault((one.name, after, pairings), []).append(one)
            continue
        groups = one.at(shape)["groups"] if one.name == "conv" else 1
        for each, size in sizes.items():
            if size % groups == 0 and prod(after[:-1]) * size <= LARGEST_SIZE:
                alike = found.setdefault((one.name, (*after[:-1], size), pairings), [])
                alike.append(_with_features(one, each))
    return tuple(map(tuple, found.values()))


def _suiting(shape: Shape, features: Shape, others: tuple[Shape, ...]) -> tuple[Choice, ...]:
    """What can follow on tensors of several shapes; a choice of the first is several where the others tell."""
    found: list[Choice] = []
    for choice in offered(shape, features):
        alike: dict[tuple[Shape, ...], list[Operation]] = {}
        for one in choice:
            try:
                after = tuple([one.shape(other) for other in others])
            except SpecError:
                continue
            if all(divides(old[1:-1], new[1:-1]) for old, new in zip(others, after, strict=True)):
                alike.setdefault(after, []).append(one)
        found += map(tuple, alike.values())
    return tuple(found)


@cache
def _of_same_features() -> tuple[Operation, ...]:
    """All that may be chosen; of those that make a number of channels the ones that keep it."""
    return tuple([one for one in choices() if one.name not in _SIZED or one["features"] == Rel()])


@lru_cache(1 << 14)
def _with_features(operation: Operation, features: Rel) -> Operation:
    return operation.replace(features=features)


@dataclass(frozen=True)
class Candidate:
    """An operation that may be appended to a draft.

    Attributes:
        operation: what is appended.
        distances: from what is wanted after it, by the name of the property.
        verdict: ``progress``, ``no progress``, ``infeasible`` (nothing leads to what is wanted from there) or
            ``represented`` (it does the same as another candidate); in a session with rules of the user's own also
            ``refused``.
        reason: a line for people.
        draft: what it leads to.
        rule: the name of the user's rule that refuses it.
    """

    operation: Operation
    distances: dict[str, float] = field(compare=False)
    verdict: Verdict
    reason: str
    draft: Draft = field(repr=False)
    rule: str = ""

    @property
    def distance(self) -> float:
        """The sum of the distances."""
        return sum(self.distances.values())


@dataclass(frozen=True)
class Draft:
    """A chain of operations on its way to wanted properties.

    Attributes:
        properties: what is wanted, of one input and one output.
        input_shape: of the chain.
        chain: the operations so far.
        others: the input shapes of other instances, each with the shape that is wanted of it, None for any. One chain
            must suit all instances: each is to have its shape, the first alone the depth and the mixing too.
        effort: what looking for a chain may take.

    Raises SpecError when an operation does not apply to the tensor before it, or properties of several inputs or
    outputs are wanted.
    """

    properties: Properties
    input_shape: Shape
    chain: tuple[Operation, ...] = ()
    others: tuple[tuple[Shape, Shape | None], ...] = ()
    #: The states of the properties and the shapes after the chain.
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
        """The draft with one more operation. Raises SpecError where it does not apply in one of the instances."""
        shape = operation.shape(self.shape)
        others = tuple([operation.shape(other) for other in self.other_shapes])
        rows = zip(self.properties.rows, self._states, strict=True)
        states = tuple([row.after(state, operation, (self.shape,), 0) for row, state in rows])
        chain = (*self.chain, operation)
        return Draft(self.properties, self.input_shape, chain, self.others, states, shape, others, self.effort)

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of the properties, by their names."""
        return {row.name: row.value(state) for row, state in zip(self.properties.rows, self._states, strict=True)}

    @cached_property
    def distances(self) -> dict[str, float]:
        """How far each property is from what is wanted, by its name; the shape as far as in the farthest instance."""
        wanted = self.properties
        found = {row.name: wanted.apart(row, ((self.values[row.name],),)) for row in wanted.rows}
        for shape, (_, goal) in zip(self.other_shapes, self.others, strict=True):
            if goal is not None:
                found[SHAPE.name] = max(found[SHAPE.name], SHAPE.distance(shape, goal, wanted.normalised))
        return found

    @cached_property
    def distance(self) -> float:
        """The sum of the distances."""
        return sum(self.distances.values())

    @cached_property
    def nearness(self) -> tuple[float, ...]:
        """What a greedy method minimises: the distance, then the paper's.

        A share of a target (``normalised``) stays the same where only some of the steps to a shape are taken.
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
        """Numbers of channels that are offered beside multiples of the tensor's own: the wanted one."""
        return tuple([shape[-1] for row in self.properties.shape for shape in row if shape is not None])

    @property
    def offers(self) -> tuple[Choice, ...]:
        """What can follow, see :func:`offered`. Raises EffortError where looking takes more than it may."""
        if self.effort is not None:
            self.effort.look(f"looking at what follows {len(self.chain)} operations")
        return offered(self.shape, self.features, self.other_shapes)

    def drafts(self) -> Iterator[Draft]:
        """What the representatives lead to: all that a synthesis looks at."""
        return (self.apply(choice[0]) for choice in self.offers)

    def candidates(self, represented: bool = False) -> list[Candidate]:
        """What may be appended, the nearest first; ``represented``: those too that do the same as a representative."""
        found = []
        for choice in self.offers:
            draft = self.apply(choice[0])
            verdict, reason = self._verdict(draft)
            found.append(Candidate(choice[0], draft.distances, verdict, reason, draft))
            if represented:
                reason = f"same properties as {choice[0]} (representative)"
                found += [Candidate(one, draft.distances, "represented", reason, self.apply(one)) for one in choice[1:]]
        return sorted(found, key=lambda one: (one.distance, one.verdict == "represented"))

    def _verdict(self, draft: Draft) -> tuple[Verdict, str]:
        hopeless = [name for name, distance in draft.distances.items() if isinf(distance)]
        if hopeless:
            return "infeasible", f"cannot lead to the {' and the '.join(hopeless)}"
        pairs = [(name, self.distances[name], distance) for name, distance in draft.distances.items()]
        steps = [f"{name} {before:g} -> {after:g}" for name, before, after in pairs if before != after]
        changes = ", ".join(steps) or "all distances stay"
        return ("progress", changes) if draft.distance < self.distance else ("no progress", f"no progress: {changes}")

    def graph(self) -> Graph:
        """The chain as a graph."""
        return Graph.chain(self.input_shape, self.chain)

    if TYPE_CHECKING:  # bound in syno_lab.alpha: the words are above drafts

        def explain_distance(self) -> str:
            """See :func:`syno_lab.alpha.menu.explain_distance`."""

    def exchanged(self, rng: random.Random, operators: Sequence[Operation] = ()) -> Draft:
        """The second pass of section 4.5: each operation by chance any that it represents; the properties stay.

        Where one of ``operators`` (:func:`.operator_node.operation_of`) does the same, it stands for it half of the
        time.
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
    """What a synthesis came to.

    Attributes:
        draft: that satisfies the properties; None where none was found.
        evaluations: how many drafts were looked at.
        reason: why there is none; empty otherwise.
    """

    draft: Draft | None
    evaluations: int
    reason: str = ""


#: Whether rules of the user's own refuse an operation on a draft.
Refuses = Callable[["Draft", Operation], bool]


def _walked(
    start: Draft, rng: random.Random, refuses: Refuses | None, evaluations: int = 0, length: int | None = None
) -> Answer:
    """One operation after another until all is satisfied: the nearest, before ``length`` by chance.

    Without a length each operation must lead nearer.
    """
    draft = start
    while not draft.is_complete:
        done = len(draft.chain)
        if isinf(draft.distance):
            return Answer(None, evaluations, hopeless_words(draft))
        if length is not None and done >= length + SLACK:
            return Answer(None, evaluations, f"not satisfied after {done} operations")
        drafts = [one for one in draft.drafts() if refuses is None or not refuses(draft, one.chain[-1])]
        evaluations += len(drafts)
        feasible = [one for one in drafts if not isinf(one.distance)]
        if length is not None and not feasible:
            return Answer(None, evaluations, f"nothing leads on after {done} operations")
        if length is not None and done < length:
            draft = rng.choices(feasible, [1 / (1 + one.distance) for one in feasible])[0]
            continue
        nearest = min((one.nearness for one in feasible), default=(inf,))
        if length is None and nearest >= draft.nearness:
            return Answer(None, evaluations, f"no operation leads nearer after {done}")
        draft = rng.choice([one for one in feasible if one.nearness == nearest])
    return Answer(draft, evaluations)


def greedy(start: Draft, rng: random.Random, refuses: Refuses | None = None) -> Answer:
    """Algorithm 1: always the nearest, by chance among several; no more operations than the paper's distance."""
    return _walked(start, rng, refuses)


def progressive(start: Draft, rng: random.Random, length: int | None = None, refuses: Refuses | None = None) -> Answer:
    """The rule of section 5: by chance with weights 1/(1 + distance), and greedily from the original's length on.

    ``length`` is that of the original; where None its properties', or that of the greedy answer where they have none. A
    chain of more than `SLACK` above it is given up.
    """
    length, evaluations = start.properties.length if length is None else length, 0
    if length is None:
        shortest = greedy(start, rng, refuses)
        if shortest.draft is None:
            return shortest
        length, evaluations = len(shortest.draft.chain), shortest.evaluations
    return _walked(start, rng, refuses, evaluations, length)


def enumerative(start: Draft, rng: random.Random, most: int = MOST_EVALUATIONS) -> Answer:
    """All chains in order of their length, by chance in one (section 6.2.2): the first of ``most`` that satisfies."""
    if start.is_complete:
        return Answer(start, 0)
    level, evaluations = [start], 0
    while level:
        longer: list[Draft] = []
        rng.shuffle(level)
        for draft in level:
            drafts = list(draft.drafts())
            rng.shuffle(drafts)
            for one in drafts:
                evaluations += 1
                if one.is_complete:
                    return Answer(one, evaluations)
                if evaluations >= most:
                    return Answer(None, evaluations, f"none among {most} drafts")
            longer += drafts
        level = longer
    return Answer(None, evaluations, "no operation applies")


def random_subgraph(start: Draft, rng: random.Random, more: float = 0.5, attempts: int = 100) -> Answer:
    """One operation, and one more with the probability ``more`` each time; of the properties only the shape counts.

    The paper (A.2) ignores all of them, and has 0.2, 0.5 and 0.75 for ``more``; a chain of another shape could not take
    the place of the original, so up to ``attempts`` are drawn until one has it.
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
    """Why nothing leads to what is wanted: the properties, and of mixing the entries."""
    said = [name for name, distance in draft.distances.items() if isinf(distance)]
    wanted = draft.properties.mixing[0][0] if MIXING.name in said else None
    value = draft.values[MIXING.name]
    if wanted is not None and len(wanted.columns) != len(value.columns):
        wished, found = len(wanted.columns), len(value.columns)
        said[said.index(MIXING.name)] = f"mixing of an input with {wished} axes, found one with {found}"
    elif wanted is not None and len(wanted.rows) == len(value.rows):
        ins, outs = axis_names(len(wanted.columns)), axis_names(len(wanted.rows))
        entries = [f"{ins[axis]}->{outs[out]}>={wanted.marks[out][axis]}" for out, axis in beyond(value, wanted)]
        said[said.index(MIXING.name)] = f"mixing {', '.join(entries)}"
    return f"nothing leads to the {' and the '.join(said)}"


#: A row for each method; the length of the original is for one alone.
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
    """A chain that satisfies the properties; None where the method finds none (``Draft.explain_distance`` says why).

    Args:
        properties: what is wanted, of one input and one output.
        input_shape: (batch, spatial…, channels).
        method: one of `METHODS`.
        seed: the same gives the same.
        length: of the original, for the method ``progressive``, see there.
        second_pass: whether each operation is exchanged by chance for one that does the same, as far as the properties
            can tell.
        others: other instances that the chain must suit, see :class:`Draft`.
        operators: of other systems, for the second pass (:meth:`Draft.exchanged`).

    Raises SpecError for properties of several inputs or outputs; SearchError for a method that is none.
    """
    if method not in METHODS:
        raise SearchError(f"synthesise: method: expected one of {', '.join(METHODS)}, found {quoted(method)}")
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)  # noqa: S311 - for choices
    draft = METHODS[method](Draft(properties, input_shape, others=tuple(others)), rng, length).draft
    if draft is None:
        return None
    return (draft.exchanged(rng, operators) if second_pass else draft).graph()
