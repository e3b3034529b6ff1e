"""Operators of other systems as operations of a network: the row ``operator`` (our own; αNAS has none).

αNAS decides what stands where, and a pGraph or a kernel of Canvas does it. The operation holds the operator's file, so
a network with it is one file too. A tensor is (batch, rows, columns, channels), as everywhere in αNAS; the operator
itself has the channels in the second place. What it pairs is the matrix of its own system.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from syno_lab.alpha.pairings import Pairing
from syno_lab.alpha.row import Applied, Attribute, Rel, Row, Shape, Value, size
from syno_lab.errors import FormatError, SpecError
from syno_lab.protocol import Mixing, OfNetworks

if TYPE_CHECKING:
    from syno_lab.alpha.operations import Operation
    from syno_lab.protocol import Operator, System

NAME = "operator"
MOST_BYTES = 1 << 18
_LAST = (0, 2, 3, 1)  # the operator's axes in the order of a tensor's


@lru_cache(maxsize=256)
def read(text: str) -> Operator:
    """The operator of a file. Raises FormatError, one line, also for a whole network, which is no operation."""
    from syno_lab.systems import read_operator

    found = read_operator(text)
    if isinstance(system(found), OfNetworks):
        raise FormatError("operator: expected an operator for layers, found a whole network")
    return found


def operation_of(operator: Operator) -> Operation:
    """An operator as an operation, which keeps the channels. Raises SpecError for one of networks, and a long file."""
    from syno_lab.alpha.operations import operation

    return operation(NAME, file=operator.to_json())


def system(operator: Operator) -> System:
    """The system of an operator."""
    from syno_lab.systems import system_of

    return system_of(operator)


def is_linear(text: str) -> bool:
    """Whether an operator is linear. One that is not counts as one non-linear run, which it has at least."""
    operator = read(text)
    its = system(operator)
    return not isinstance(its, Mixing) or its.is_linear(operator)


@lru_cache(maxsize=256)
def said(text: str) -> str:
    """A few words about an operator: its system, and its name if it is known there."""
    operator = read(text)
    its = system(operator)
    return f"{its.title} {its.recognise(operator) or its.summary(text)}"


def placed(at: Applied) -> tuple[Operator, dict[str, int]]:
    """The operator of an operation, and its sizes for the tensor. Raises SpecError where it does not fit."""
    from syno_lab.systems import binding_for

    if len(at.shape) != 4:
        raise SpecError("expected 4 axes: batch, rows, columns and channels")
    (batch, rows, columns, channels), features = at.shape, at["features"]
    operator = read(at["file"])
    named = {"N": batch, "C_in": channels, "C_out": features, "H": rows, "W": columns, "s": 1}
    named |= {"window_h": 3, "window_w": 3}
    before, after = (batch, channels, rows, columns), (batch, features, rows, columns)
    return operator, binding_for(operator, named, before, after)


def _shape(at: Applied) -> Shape:
    operator, bound = placed(at)
    found = operator.output_sizes(bound)
    return tuple([found[axis] for axis in _LAST])


def _pairing(at: Applied, number: int) -> Pairing:
    operator, bound = placed(at)
    its = system(operator)
    if not isinstance(its, Mixing):
        raise SpecError(f"mixing: expected a system that can tell it of its operators, found {its.title}")
    found = its.mixing(operator, bound)
    marks = tuple(tuple(found.marks[row][column] for column in _LAST) for row in _LAST)
    rows, columns = (tuple(axes[axis] for axis in _LAST) for axes in (found.rows, found.columns))
    return Pairing(rows, columns, marks)


def _weights(at: Applied) -> tuple[Shape, ...]:
    operator, bound = placed(at)
    return operator.weight_sizes(bound)


def _params(at: Applied) -> int:
    operator, bound = placed(at)
    return operator.params(bound)


def _flops(at: Applied) -> int:
    operator, bound = placed(at)
    return operator.flops(bound)


def _is_file(value: Value) -> bool:
    if not isinstance(value, str) or len(value) > MOST_BYTES:
        return False
    try:
        read(value)
    except FormatError:
        return False
    return True


def row(features: Rel) -> Row:
    """The row of the table; ``features`` is the number of channels unless given."""
    file = Attribute("the text of an operator file for layers", _is_file, is_shown=False)
    attributes = {"file": file, "features": size(features)}
    # Whether it is linear the operator itself says: Operation.linear.
    return Row(NAME, _shape, _pairing, attributes, _weights, _flops, linear=None, role="kept", params=_params)


def suiting(operators: Sequence[Operation], like: Operation, *shapes: Shape) -> list[Operation]:
    """Those that do as ``like`` does to tensors of all these shapes, by their shapes and pairings, with its features.

    ``shapes`` are those of one tensor in several instances of a block.
    """
    features = dict(like.attributes).get("features")
    found = []
    for each in operators:
        one = each if features is None else each.replace(features=features)
        try:
            fits = one.linear is like.linear and all(
                one.shape(shape) == like.shape(shape) and one.pairings(shape) == like.pairings(shape)
                for shape in shapes
            )
        except SpecError:
            continue
        if fits:
            found.append(one)
    return found
