"""The step-by-step synthesis of αNAS's chains, for the sessions of all systems (:mod:`syno_lab.sessions`).

A step appends an operation or changes the wanted properties (:mod:`.changes`). Steps of both kinds can be undone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from math import isinf
from typing import Any, ClassVar

import msgspec

from syno_lab.alpha import drawing, files
from syno_lab.alpha import menu as listing
from syno_lab.alpha.changes import Change, change_of, plain
from syno_lab.alpha.edits import Variant, words
from syno_lab.alpha.files import NodeRecord, operation_of, record_of_operation
from syno_lab.alpha.graph import Graph
from syno_lab.alpha.known import KNOWN
from syno_lab.alpha.operations import Operation
from syno_lab.alpha.operator import FORMAT, NetworkOperator, from_json
from syno_lab.alpha.operator import from_json as read_operator
from syno_lab.alpha.synthesis import Answer, Candidate, Draft, greedy, progressive
from syno_lab.alpha.wanted import Properties
from syno_lab.drawing.course import courses_svg
from syno_lab.effort import Effort, Stop
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.inputs import positive, quoted
from syno_lab.protocol import TracedStep
from syno_lab.sessions.construction import Aiming, Beginning, Construction, Labels, Patience, Place, Reader, Records
from syno_lab.sessions.own_rule import OwnRule, refusing
from syno_lab.sessions.shown import Node, Picture
from syno_lab.sessions.text import SessionRecord, check_operator


class _Aim(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.Draft`."""

    properties: str
    input_shape: list[int]
    others: list[tuple[list[int], list[int] | None]] = []


class _Change(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.Change`."""

    name: str
    value: list[int] | int | str | None
    entry: tuple[int, int] | None = None


class PlaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A :class:`.text.PlaceRecord`: an operation or a change after ``parent``, or the aim at a beginning."""

    parent: int | None = None
    operation: NodeRecord | None = None
    change: _Change | None = None
    aim: _Aim | None = None
    note: str = ""
    operator: str | None = None
    comment: str = ""


def record(entry: Place[Draft, Operation | Change]) -> PlaceRecord:
    """Return the record of a place; the caller sets the fields for parent, note and comment."""
    saved = PlaceRecord(operator=None if entry.operator is None else entry.operator.to_json())
    step, state = entry.step, entry.state
    if step is None:
        others = [(list(shape), None if goal is None else list(goal)) for shape, goal in state.others]
        saved.aim = _Aim(state.properties.to_json(), list(state.input_shape), others)
    elif isinstance(step, Change):
        saved.change = _Change(step.name, list(step.value) if isinstance(step.value, tuple) else step.value, step.entry)
    else:
        saved.operation = record_of_operation(step)
    return saved


def reader(
    construction: Construction[Draft, Operation | Change, Candidate], record: SessionRecord[Any]
) -> Reader[Draft, Operation | Change]:
    """See :meth:`.Construction.reader`."""

    def read(
        entry: PlaceRecord, before: Sequence[Place[Draft, Operation | Change]], where: str
    ) -> Place[Draft, Operation | Change]:
        contents = [part for part in (entry.operation, entry.change, entry.aim) if part is not None]
        if len(contents) != 1 or (entry.parent is None and entry.aim is None):
            raise FormatError(f"session: {where}: expected one of an operation, a change and an aim, the first an aim")
        step: Operation | Change | None = None
        if entry.aim is not None:
            state = _draft(entry.aim, where)
        else:
            if entry.change is not None:
                value = entry.change.value
                step = Change(entry.change.name, tuple(value) if isinstance(value, list) else value, entry.change.entry)  # type: ignore[arg-type]  # checked by apply
            else:
                assert entry.operation is not None
                step = operation_of(entry.operation)
            state = construction.apply(before[entry.parent or 0].state, step)
        return Place(construction, state, step, operator=_operator(entry, state, where))

    return read


def _draft(aim: _Aim, where: str) -> Draft:
    for shape in (aim.input_shape, *(s for pair in aim.others for s in pair if s is not None)):
        if len(shape) < 2 or not all(map(positive, shape)):
            raise FormatError(f"session: {where}: expected a shape such as [1, 8, 8, 16], found {quoted(shape)}")
    others = tuple([(tuple(shape), None if goal is None else tuple(goal)) for shape, goal in aim.others])
    return Draft(Properties.from_json(aim.properties), tuple(aim.input_shape), others=others)


def _operator(record: PlaceRecord, state: Draft, where: str) -> NetworkOperator | None:
    """Return the record's operator. Raises FormatError unless the operator is the chain of the state."""
    if record.operator is None:
        return None
    operator = read_operator(record.operator)
    graph = operator.graph
    chain = tuple([node.operation for node in graph.nodes])
    check_operator(graph.is_chain and (graph.inputs[0], chain) == (state.input_shape, state.chain), where)
    return operator


#: The limit of draws of a chain by the paper's rule; a draw fails in one of six cases (section 5).
ATTEMPTS = 30
Taken = Operation | Change
PlaceOf = Place[Draft, Taken]


class ChainConstruction(Construction[Draft, Taken, Candidate], Aiming[Draft, Taken]):
    """The construction of chains; a session begins with a draft, or a graph, variant or operator that is a chain.

    A session from a chain begins after the chain's last operation, and the wanted properties are those of the chain.
    """

    labels = Labels(
        groups="What is missing",
        reached="all satisfied",
        suggest="The operation that brings the chain nearest (greedy)",
        finish="Append the nearest operation each time until all is satisfied (greedy), and play that",
        random="Append operations drawn by the paper's rule, the nearer the likelier, and play that",
        reset="Begin again with the input and the same properties wanted; Undo brings back what was",
        more="of the same operation",
        none="Nothing can be appended here.",
        way="looking for the nearest operations",
        random_way="drawing operations",
        strip="Distances",
        offered="offered",
        refused="left out",
        progress="Undo the operations that made no progress",
        graph="chain of operations",
    )

    known: ClassVar[Mapping[str, Callable[[], Any]]] = {
        name: make
        for name, make in KNOWN.items()
        if make().graph.is_chain  # sessions support chains only
    }

    # -- states and steps --------------------------------------------------------------------------------------------

    def knows(self, start: Any) -> bool:
        """Return whether a start is a draft, a graph, or a variant."""
        return isinstance(start, Draft | Graph | Variant)

    def begin(self, start: Draft | Graph | Variant | NetworkOperator) -> Beginning[Draft, Taken]:
        """Return the empty draft, and the chain's operations as steps. Raises SpecError for a graph with branches."""
        if isinstance(start, Draft):
            return Beginning(Draft(start.properties, start.input_shape, others=start.others), start.chain)
        operator = _operator_of(start)
        graph = operator.graph
        steps = tuple([node.operation for node in graph.nodes])
        return Beginning(Draft(Properties.of(graph), graph.inputs[0]), steps, operator)

    def step(self, state: Draft, given: Any) -> Taken:
        """Return an operation, a candidate's operation, or a change. Raises SpecError for any other value."""
        step = given.operation if isinstance(given, Candidate) else given
        if not isinstance(step, Operation | Change):
            raise SpecError(f"expected an operation, a candidate or a change, found {quoted(given)}")
        return step

    def apply(self, state: Draft, step: Taken) -> Draft:
        """Return the draft with one more operation, or with other wanted properties."""
        return step.apply(state) if isinstance(step, Change) else state.apply(step)

    def operator(self, state: Draft) -> NetworkOperator:
        """Return the chain as a network. Raises SynoError if the chain does not satisfy the wanted properties."""
        if not state.is_complete:
            raise SynoError(f"no operator yet: {listing.status(state)}")
        return NetworkOperator.of_graph(state.graph())

    def distance(self, state: Draft, effort: Effort | None = None) -> float | None:
        """Return the sum of the distances from the wanted properties; None if the sum is infinite."""
        return None if isinf(state.distance) else float(plain(state.distance))

    def candidates(
        self, state: Draft, rules: Sequence[OwnRule], should_stop: Stop | None = None
    ) -> Sequence[Candidate]:
        """Return all operations (:meth:`.Draft.candidates`), also operations with the verdict ``represented``."""

        def judged(option: Candidate) -> Candidate:
            rule = refusing(rules, state, option.operation) if option.verdict not in listing.LEFT_OUT else None
            return option if rule is None else replace(option, verdict="refused", reason=rule.reason, rule=rule.name)

        return list(map(judged, state.candidates(represented=True)))

    def way(
        self, state: Draft, rules: Sequence[OwnRule], patience: Patience, rng: random.Random | None = None
    ) -> tuple[Taken, ...]:
        """Return steps of :func:`.greedy`; with ``rng``, of :func:`.progressive` (section 5), if a draw fits."""
        effort = Effort(should_stop=patience.should_stop)
        refuses = lambda at, step: refusing(rules, at, step) is not None  # noqa: E731
        chance = rng or random.Random(0)  # noqa: S311 - equal states get equal suggestions
        shortest = _steps(state, greedy(state, chance, refuses=refuses))
        length = max(state.properties.length or 0, len(state.chain) + len(shortest))
        for _ in range(ATTEMPTS if rng else 0):
            effort.look("drawing operations")
            answer = progressive(state, chance, length, refuses)
            if answer.draft is not None:
                return _steps(state, answer)
        return shortest

    def aimed(self, state: Draft, choice: str) -> Change:
        """See :func:`syno_lab.alpha.changes.change_of`."""
        return change_of(state, choice)

    def is_aim(self, step: Taken) -> bool:
        """Return whether the step is a :class:`.Change`."""
        return isinstance(step, Change)

    # -- as text -----------------------------------------------------------------------------------------------------

    format = "syno-lab-alpha-session"
    record = SessionRecord[PlaceRecord]
    readers: ClassVar[Mapping[str, Callable[[str], Any]]] = {FORMAT: from_json, files.FORMAT: files.from_json}

    def records(self, places: Sequence[PlaceOf]) -> Records:
        """See :func:`.record`."""
        return Records([], list(map(record, places)))

    reader = reader

    # -- pictures and texts ------------------------------------------------------------------------------------------

    def picture(self, place: PlaceOf) -> Picture:
        """Draw the chain, the last operation highlighted, with the distance of each property after each operation."""
        draft = place.state
        graph, last = draft.graph(), len(draft.chain) - 1
        part, notes = self.begin(draft).state, {}
        for number, operation in enumerate((*draft.chain, None)):
            notes[number] = [", ".join(f"{name} {plain(far)}" for name, far in part.distances.items())]
            if operation is not None:
                part = part.apply(operation)
        svg, ends = drawing.svg(graph, highlight=[last] if draft.chain else [], notes=notes), listing.ends(draft)
        parts = drawing.parts(graph, notes).items()
        return Picture(svg, drawing.describe(graph), {name: Node(*shown, name in ends) for name, shown in parts})

    def describe(self, state: Draft, step: Taken) -> str:
        """Describe a step in words: the operation, or the wanted value after a change."""
        return step.words(state) if isinstance(step, Change) else str(step)

    def status(self, place: PlaceOf, name: str | None, effort: Effort | None) -> str:
        """See :func:`.menu.status`; ``effort`` is not needed, because the facts are fast to compute."""
        return listing.status(place.state)

    def course(self, places: Sequence[PlaceOf], here: int, first: int) -> str:
        """Draw the distance of each property at the places, as one line for each property."""
        lines = {
            name: [None if isinf(far := place.state.distances[name]) else far for place in places]
            for name in listing.NAMES
        }
        return courses_svg(lines, here, first)

    strip = staticmethod(listing.strip)
    explain = staticmethod(listing.explain)
    why = staticmethod(listing.why)
    menu = staticmethod(listing.menu)


def _operator_of(start: Graph | Variant | NetworkOperator) -> NetworkOperator:
    if isinstance(start, Graph):
        start = NetworkOperator.of_graph(start)
    operator = NetworkOperator(start) if isinstance(start, Variant) else start
    if not operator.graph.is_chain:
        raise SpecError(
            "αNAS: expected a chain of operations to step through, found a graph with branches; begin with "
            "Draft(Properties.of(graph), shape) to synthesise a chain in its place"
        )
    return operator


def _steps(state: Draft, answer: Answer) -> tuple[Operation, ...]:
    """Return the operations that a synthesis appends. Raises SynoError for a failure and for a complete draft."""
    if answer.draft is None:
        raise SynoError(f"no operations lead to what is wanted from here: {answer.reason}; undo some steps")
    if state.is_complete:
        raise SynoError("nothing to append: all that is wanted is satisfied already")
    return answer.draft.chain[len(state.chain) :]


def traces(values: Sequence[Any]) -> list[list[TracedStep]]:
    """Return the operations of each network or draft in order, with keys that show equal operations.

    An edit changes the results of later operations, but not these operations. Networks are compared as sequences:
    matching operations of the first network and another network, in the same order and with equal result shapes, get
    equal keys.
    """
    graphs: list[Graph] = [value.graph() if isinstance(value, Draft) else value.graph for value in values]
    texts = [[_text(graph, number) for number in range(len(graph.nodes))] for graph in graphs]
    traced, fresh = [], len(texts[0]) if texts else 0
    for graph, own in zip(graphs, texts, strict=True):
        keys = list(range(fresh, fresh + len(own)))
        fresh += len(own)
        for at, to, length in SequenceMatcher(None, texts[0], own, autojunk=False).get_matching_blocks():
            keys[to : to + length] = range(at, at + length)
        kinds = [node.operation.name for node in graph.nodes]
        traced.append(
            [
                TracedStep(kind, text, key, ids=(f"n{number}",))
                for number, (kind, text, key) in enumerate(zip(kinds, own, keys, strict=True))
            ]
        )
    return traced


def _text(graph: Graph, number: int) -> str:
    """Return an operation and the shape of its result as text."""
    text = words(graph.subgraph([number]))
    return f"{text} gives [{', '.join(map(str, graph.shapes[graph.tensor(number)]))}]"


CONSTRUCTION = ChainConstruction()
