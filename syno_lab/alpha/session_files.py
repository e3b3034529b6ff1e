"""The places of αNAS's sessions as records for a file (:mod:`syno_lab.sessions.text`).

What is wanted stands as the text of a properties file, an operator that was given as that of its own file.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from syno_lab.alpha.changes import Change
from syno_lab.alpha.files import NodeRecord, operation_of, record_of_operation
from syno_lab.alpha.operations import Operation
from syno_lab.alpha.operator import NetworkOperator
from syno_lab.alpha.operator import from_json as read_operator
from syno_lab.alpha.synthesis import Candidate, Draft
from syno_lab.alpha.wanted import Properties
from syno_lab.errors import FormatError
from syno_lab.inputs import positive, quoted
from syno_lab.sessions.construction import Construction, Place, Reader
from syno_lab.sessions.text import check_operator


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
    """See :class:`.text.PlaceRecord`: behind ``parent`` by an operation or a change, or a beginning with an aim."""

    parent: int | None = None
    operation: NodeRecord | None = None
    change: _Change | None = None
    aim: _Aim | None = None
    note: str = ""
    operator: str | None = None
    comment: str = ""


def record(entry: Place[Draft, Operation | Change]) -> PlaceRecord:
    """The record of a place but for its parent, its note and its comment."""
    found = PlaceRecord(operator=None if entry.operator is None else entry.operator.to_json())
    step, state = entry.step, entry.state
    if step is None:
        others = [(list(shape), None if goal is None else list(goal)) for shape, goal in state.others]
        found.aim = _Aim(state.properties.to_json(), list(state.input_shape), others)
    elif isinstance(step, Change):
        found.change = _Change(step.name, list(step.value) if isinstance(step.value, tuple) else step.value, step.entry)
    else:
        found.operation = record_of_operation(step)
    return found


def reader(construction: Construction[Draft, Operation | Change, Candidate]) -> Reader[Draft, Operation | Change]:
    """See :meth:`.Construction.reader`."""

    def read(
        one: PlaceRecord, before: Sequence[Place[Draft, Operation | Change]], where: str
    ) -> Place[Draft, Operation | Change]:
        given = [part for part in (one.operation, one.change, one.aim) if part is not None]
        if len(given) != 1 or (one.parent is None and one.aim is None):
            raise FormatError(f"session: {where}: expected one of an operation, a change and an aim, the first an aim")
        step: Operation | Change | None = None
        if one.aim is not None:
            state = _draft(one.aim, where)
        else:
            if one.change is not None:
                value = one.change.value
                step = Change(one.change.name, tuple(value) if isinstance(value, list) else value, one.change.entry)  # type: ignore[arg-type]  # checked by apply
            else:
                assert one.operation is not None
                step = operation_of(one.operation)
            state = construction.apply(before[one.parent or 0].state, step)
        return Place(construction, state, step, operator=_operator(one, state, where))

    return read


def _draft(aim: _Aim, where: str) -> Draft:
    for shape in (aim.input_shape, *(one for pair in aim.others for one in pair if one is not None)):
        if len(shape) < 2 or not all(map(positive, shape)):
            raise FormatError(f"session: {where}: expected a shape such as [1, 8, 8, 16], found {quoted(shape)}")
    others = tuple([(tuple(shape), None if goal is None else tuple(goal)) for shape, goal in aim.others])
    return Draft(Properties.from_json(aim.properties), tuple(aim.input_shape), others=others)


def _operator(record: PlaceRecord, state: Draft, where: str) -> NetworkOperator | None:
    """The operator that was given, if it is the chain that leads here."""
    if record.operator is None:
        return None
    operator = read_operator(record.operator)
    graph = operator.graph
    chain = tuple([node.operation for node in graph.nodes])
    check_operator(graph.is_chain and (graph.inputs[0], chain) == (state.input_shape, state.chain), where)
    return operator
