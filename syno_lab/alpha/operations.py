"""The operations of αNAS, each a row of :data:`OPERATIONS` (section 3.2, Table 3).

A tensor is (batch, spatial axes…, channels): channels last, any number of spatial axes. An :class:`Operation` is an
immutable value: the name of a row with attributes, such as ``operation("conv", features=Rel(2), kernel=3)``. A size may
be a :class:`Rel`, so that one operation fits inputs of several shapes. The methods :meth:`Operation.shape`,
:meth:`Operation.pairings`, :meth:`Operation.params` and :meth:`Operation.flops` take the input shapes, and raise
SpecError where the operation does not fit.

Every operation has one result. Windows (of convolutions and pools) are square. With ``padding="same"`` a result has ⌈n
/ stride⌉ positions along an axis of n. Each end of the axis gets half of the padding; the far end gets the odd
position, if any. A number as ``padding`` is the padding at each end. Normalisations (with scale and offset) and dropout
compute as in inference. Costs count 2 FLOPs for each multiply-add of dense layers, convolutions, products of tensors
and attention. Other operations count 0 FLOPs, as in :func:`syno_lab.models.layers.survey`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from syno_lab.alpha import operator_node
from syno_lab.alpha.pairings import Pairing
from syno_lab.alpha.row import MOST_AXES as MOST_AXES
from syno_lab.alpha.row import Applied, Row, Value
from syno_lab.alpha.row import Rel as Rel
from syno_lab.alpha.row import Shape as Shape
from syno_lab.alpha.table import OPAQUE as OPAQUE
from syno_lab.alpha.table import OPERATIONS as OPERATIONS
from syno_lab.errors import SpecError
from syno_lab.inputs import LARGEST_SIZE, quoted


@dataclass(frozen=True)
class Operation:
    """An operation with its attributes; missing attributes get their defaults.

    Attributes:
        name: the name of a row of :data:`OPERATIONS`.
        attributes: names and values, in the order of the row.

    Raises SpecError for an operation or attribute that does not exist, and a value that the row does not allow.
    """

    name: str
    attributes: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        row = OPERATIONS.get(self.name) if isinstance(self.name, str) else None
        if row is None:
            raise SpecError(f"expected an operation ({', '.join(OPERATIONS)}), found {quoted(self.name)}")
        values_given = dict(self.attributes)
        for name in values_given:
            if name not in row.attributes:
                expected = ", ".join(row.attributes) or "none"
                raise SpecError(f"{self.name}: expected attributes among these: {expected}; found {quoted(name)}")
        values = {name: values_given.get(name, attribute.default) for name, attribute in row.attributes.items()}
        for name, attribute in row.attributes.items():
            if not attribute.check(values[name]):
                raise SpecError(f"{self.name}: {name}: expected {attribute.expected}, found {quoted(values[name])}")
        object.__setattr__(self, "attributes", tuple(values.items()))
        object.__setattr__(self, "_hash", hash((self.name, self.attributes)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def __getitem__(self, name: str) -> Any:
        """Return the value of an attribute."""
        return dict(self.attributes)[name]

    @property
    def row(self) -> Row:
        """The row of :data:`OPERATIONS`."""
        return OPERATIONS[self.name]

    @property
    def linear(self) -> bool | None:
        """Whether the operation counts as linear for the depth property; None where the depth ignores the operation."""
        return operator_node.is_linear(self["file"]) if self.name == operator_node.NAME else self.row.linear

    def on(self, *shapes: Shape) -> Applied:
        """Return the operation for inputs of these shapes, with each :class:`Rel` as a number, without checks."""

        def plain(value: Value) -> Value:
            if isinstance(value, tuple):
                return tuple(map(plain, value))  # type: ignore[arg-type]  # of sizes
            if not isinstance(value, Rel):
                return value
            if not shapes:
                raise SpecError(f"expected a number for an operation without inputs, found {value}")
            return value.of(shapes[0])

        return Applied({name: plain(value) for name, value in self.attributes}, shapes)

    def at(self, *shapes: Shape) -> Operation:
        """Return the operation with each :class:`Rel` as a number, for inputs of these shapes."""
        return Operation(self.name, tuple(self.on(*shapes).values.items()))

    def replace(self, **attributes: Value) -> Operation:
        """Return the operation with other values of some attributes."""
        return Operation(self.name, tuple((dict(self.attributes) | attributes).items()))

    def shape(self, *shapes: Shape) -> Shape:
        """Return the shape of the result for inputs of these shapes.

        Raises SpecError where the operation does not fit; so do :meth:`pairings`, :meth:`params` and :meth:`flops`.
        """
        result = _shape(self, shapes)
        if isinstance(result, str):
            raise SpecError(result)
        return result

    def pairings(self, *shapes: Shape) -> tuple[Pairing, ...]:
        """Return a pairing for each input: rows are the result's axes, columns the input's axes (section 3.1).

        The pairings are exact (Definitions 3.4 and 3.5), for generic weights.
        """
        self.shape(*shapes)
        return _pairings(self, shapes)

    def params(self, *shapes: Shape) -> int:
        """Return the number of weights."""
        self.shape(*shapes)
        at = self.on(*shapes)
        return sum(map(prod, self.row.weights(at))) if self.row.params is None else self.row.params(at)

    def weights(self, *shapes: Shape) -> tuple[Shape, ...]:
        """Return the shapes of the weights (:mod:`.reference`). Raises SpecError for an opaque node with weights."""
        return self.row.weights(self.on(*shapes))

    def flops(self, *shapes: Shape) -> int:
        """Return the FLOPs for inputs of these shapes, batch included; 2 for each multiply-add."""
        self.shape(*shapes)
        return self.row.flops(self.on(*shapes))

    def __str__(self) -> str:
        args = []
        for name, value in self.attributes:
            if self.row.attributes[name].is_shown and value != self.row.attributes[name].default:
                args.append(f"{name}=[{', '.join(map(str, value))}]" if isinstance(value, tuple) else f"{name}={value}")
        if self.name == operator_node.NAME:
            args.insert(0, operator_node.said(self["file"]))
        return f"{self.name}({', '.join(args)})" if args else self.name


def operation(name: str, **attributes: Value) -> Operation:
    """Make an ``Operation`` from keyword attributes: ``operation("conv", features=64, kernel=3)``."""
    return Operation(name, tuple(attributes.items()))


def choices() -> tuple[Operation, ...]:
    """Return the 1,402 operations that synthesis may choose in any network (section 4.5)."""
    return tuple(
        [
            Operation(row.name, tuple(zip(row.choices, values, strict=True)))
            for row in OPERATIONS.values()
            if row.role == "chosen"
            for values in product(*row.choices.values())
        ]
    )


@lru_cache(maxsize=1 << 16)
def _shape(operation: Operation, shapes: tuple[Shape, ...]) -> Shape | str:
    """Return the shape of the result, or the message of an error, because the cache would not store an exception."""
    if operation.row.inputs is not None and len(shapes) != operation.row.inputs:
        return f"{operation}: expected {operation.row.inputs} inputs, found {len(shapes)}"
    try:
        result = operation.row.shape(operation.on(*shapes))
    except SpecError as error:
        return f"{operation} of {', '.join(map(str, map(list, shapes)))}: {error}"
    if len(result) > MOST_AXES or prod(result) > LARGEST_SIZE:
        return f"{operation}: expected a result of at most {MOST_AXES} axes and {LARGEST_SIZE} elements"
    return result


@lru_cache(maxsize=1 << 14)
def _pairings(operation: Operation, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    at = operation.on(*shapes)
    return tuple([operation.row.pairing(at, number) for number in range(len(shapes))])
