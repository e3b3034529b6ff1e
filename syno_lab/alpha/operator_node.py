"""Operators of other systems as operations of a network: the row ``operator``, which αNAS's paper lacks.

αNAS chooses the node of the operation; a pGraph or a Canvas kernel computes the result. The operation contains the
operator's file, so a network with it is still one file. A tensor is (batch, rows, columns, channels), as everywhere in
αNAS; the operator itself has the channels as the second axis. The operator's system computes the operation's pairing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from syno_lab.alpha.pairings import Pairing
from syno_lab.alpha.row import Applied, Attribute, Rel, Row, Shape, Value, size
from syno_lab.errors import FormatError, SpecError
from syno_lab.protocol import Mixing, OfNetworks

if TYPE_CHECKING:
    from syno_lab.alpha.operations import Operation
    from syno_lab.protocol import Operator, System

Cost = TypeVar("Cost")
NAME = "operator"
MOST_BYTES = 1 << 18
_LAST = (0, 2, 3, 1)  # for each of αNAS's axes, the operator's axis


@lru_cache(maxsize=256)
def read(text: str) -> Operator:
    """Read the operator of a file. Raises FormatError in one line, also for a whole network."""
    from syno_lab.systems import read_operator

    operator = read_operator(text)
    if isinstance(system(operator), OfNetworks):
        raise FormatError("operator: expected an operator for layers, found a whole network")
    return operator


def operation_of(operator: Operator) -> Operation:
    """Wrap an operator in an operation that keeps the channels. Raises SpecError for a whole network or a long file."""
    from syno_lab.alpha.operations import operation

    return operation(NAME, file=operator.to_json())


def system(operator: Operator) -> System:
    """Return the system of an operator."""
    from syno_lab.systems import system_of

    return system_of(operator)


def is_linear(text: str) -> bool:
    """Return whether an operator is linear. A non-linear operator counts as one run (a lower bound)."""
    operator = read(text)
    its_system = system(operator)
    return not isinstance(its_system, Mixing) or its_system.is_linear(operator)


@lru_cache(maxsize=256)
def said(text: str) -> str:
    """Describe an operator in a few words: its system, and its name if the system knows it."""
    operator = read(text)
    its_system = system(operator)
    return f"{its_system.title} {its_system.recognise(operator) or its_system.summary(text)}"


def placed(at: Applied) -> tuple[Operator, dict[str, int]]:
    """Return an operation's operator and its binding for the input. Raises SpecError if the operator does not fit."""
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
    sizes = operator.output_sizes(bound)
    return tuple([sizes[axis] for axis in _LAST])


def _pairing(at: Applied, number: int) -> Pairing:
    operator, bound = placed(at)
    its_system = system(operator)
    if not isinstance(its_system, Mixing):
        raise SpecError(f"mixing: expected a system that computes it for its operators, found {its_system.title}")
    mixing = its_system.mixing(operator, bound)
    marks = tuple(tuple(mixing.marks[row][column] for column in _LAST) for row in _LAST)
    rows, columns = (tuple(axes[axis] for axis in _LAST) for axes in (mixing.rows, mixing.columns))
    return Pairing(rows, columns, marks)


def _of(cost: Callable[[Operator, dict[str, int]], Cost]) -> Callable[[Applied], Cost]:
    return lambda at: cost(*placed(at))


def _is_file(value: Value) -> bool:
    if not isinstance(value, str) or len(value) > MOST_BYTES:
        return False
    try:
        read(value)
    except FormatError:
        return False
    return True


def row(features: Rel) -> Row:
    """Return the row ``operator`` of the table; ``features`` is the default number of output channels."""
    file = Attribute("the text of an operator file for layers", _is_file, is_shown=False)
    attributes = {"file": file, "features": size(features)}
    # Operation.linear gets the linearity from the operator itself.
    weights = _of(lambda operator, bound: operator.weight_sizes(bound))
    flops, params = (
        _of(lambda operator, bound: operator.flops(bound)),
        _of(lambda operator, bound: operator.params(bound)),
    )
    return Row(NAME, _shape, _pairing, attributes, weights, flops, linear=None, role="kept", params=params)


def suiting(operators: Sequence[Operation], like: Operation, *shapes: Shape) -> list[Operation]:
    """Return the operators with the result shape, pairing and linearity of ``like`` for inputs of each of these shapes.

    ``shapes`` are the shapes of one tensor in several blocks of a type.
    """
    features = dict(like.attributes).get("features")
    matches = []
    for operator in operators:
        candidate = operator if features is None else operator.replace(features=features)
        try:
            fits = candidate.linear is like.linear and all(
                candidate.shape(shape) == like.shape(shape) and candidate.pairings(shape) == like.pairings(shape)
                for shape in shapes
            )
        except SpecError:
            continue
        if fits:
            matches.append(candidate)
    return matches
