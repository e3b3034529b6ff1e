"""The types of the table of operations: attributes with checks, and rows with rules for shapes, pairings and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Literal, TypeGuard

import msgspec

from syno_lab.alpha.pairings import Pairing
from syno_lab.errors import SpecError
from syno_lab.inputs import positive, quoted

Shape = tuple[int, ...]
#: The role of an operation in synthesis. *chosen*: synthesis may add the operation. *structure*: the operation joins
#: branches; synthesis keeps such nodes and adds none. *kept*: synthesis never adds the operation.
Role = Literal["chosen", "structure", "kept"]

MOST_AXES = 8


class Rel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A size relative to an axis of an operation's first input: the size of the axis times ``mul`` divided by ``div``.

    Raises SpecError for a factor that is no positive integer, or an axis that is no integer.
    """

    mul: int = 1
    div: int = 1
    axis: int = -1

    def __post_init__(self) -> None:
        if positive(self.mul) is None or positive(self.div) is None:
            raise SpecError(f"expected positive integers, found {quoted(self.mul)} / {quoted(self.div)}")
        if not is_integer(self.axis) or not -MOST_AXES <= self.axis < MOST_AXES:
            raise SpecError(f"expected an axis from -{MOST_AXES} to {MOST_AXES - 1}, found {quoted(self.axis)}")
        common = gcd(self.mul, self.div)
        msgspec.structs.force_setattr(self, "mul", self.mul // common)
        msgspec.structs.force_setattr(self, "div", self.div // common)

    def of(self, shape: Shape) -> int:
        """Return the size as a number, for a first input of this shape.

        Raises SpecError where the axis is missing, or ``div`` does not divide the size.
        """
        if not -len(shape) <= self.axis < len(shape):
            raise SpecError(f"expected an input with an axis {self.axis}, found {list(shape)}")
        size = shape[self.axis] * self.mul
        if size % self.div:
            raise SpecError(f"expected {self} to be a whole number, found an axis of size {shape[self.axis]}")
        return size // self.div

    def __str__(self) -> str:
        """Return the size as text: ``C``, ``2*C`` or ``3*C/4`` of the channels, ``B`` of the batch, or ``axis 1``."""
        name = {-1: "C", 0: "B"}.get(self.axis, f"axis {self.axis}")
        return f"{f'{self.mul}*' if self.mul > 1 else ''}{name}{f'/{self.div}' if self.div > 1 else ''}"


#: The types of an attribute's value.
Value = bool | int | float | str | Rel | tuple[int | Rel, ...] | None


@dataclass(frozen=True)
class Attribute:
    """The definition of an attribute of operations.

    Attributes:
        expected: the allowed values in words, for messages.
        check: a function that returns whether a value is allowed.
        default: the default value; None where the attribute is required.
        choices: the values from which synthesis chooses; empty if synthesis uses the default.
        is_shown: whether the text of an operation contains the attribute.
    """

    expected: str
    check: Callable[[Value], bool]
    default: Value = None
    choices: tuple[int | Rel, ...] = ()
    is_shown: bool = True


@dataclass(frozen=True)
class Applied:
    """An operation on tensors of these shapes; in ``values`` each :class:`Rel` is replaced by a number."""

    values: Mapping[str, Any]
    shapes: tuple[Shape, ...]

    def __getitem__(self, name: str) -> Any:
        """Return the value of an attribute."""
        return self.values[name]

    @property
    def shape(self) -> Shape:
        """The shape of the first input."""
        return self.shapes[0]

    @property
    def channels(self) -> int:
        """The number of channels of the first input."""
        return self.shapes[0][-1]


@dataclass(frozen=True, eq=False)
class Row:
    """A row of :data:`.table.OPERATIONS`.

    Attributes:
        name: the name of the operation.
        shape: the rule for the shape of the result.
        pairing: the rule for the pairing of the result's axes (rows) with an input's axes (columns), by input number.
        attributes: the definitions of the attributes, by name.
        weights: the shapes of the weights, in the order of PyTorch's layers (:mod:`syno_lab.alpha.reference`).
        flops: the FLOPs for the given shapes, batch included.
        inputs: the number of input tensors; None: any number.
        linear: whether the operation counts as linear for the depth; None: the depth ignores the operation.
        role: see :data:`Role`.
        commutes: whether the order of the inputs does not matter.
        params: the number of weights, where the shapes ``weights`` do not determine this number.
    """

    name: str
    shape: Callable[[Applied], Shape]
    pairing: Callable[[Applied, int], Pairing]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    weights: Callable[[Applied], tuple[Shape, ...]] = lambda at: ()
    flops: Callable[[Applied], int] = lambda at: 0
    inputs: int | None = 1
    linear: bool | None = True
    role: Role = "chosen"
    commutes: bool = False
    params: Callable[[Applied], int] | None = None

    @property
    def choices(self) -> dict[str, tuple[int | Rel, ...]]:
        """The values from which synthesis chooses, by attribute; attributes that are not listed have their defaults."""
        return {name: attribute.choices for name, attribute in self.attributes.items() if attribute.choices}


def is_integer(value: Value) -> TypeGuard[int]:
    """Return whether a value is an integer and no boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_size(value: Value) -> bool:
    """Return whether a value is a positive integer or a :class:`Rel`."""
    return isinstance(value, Rel) or (is_integer(value) and positive(value) is not None)


def is_real(value: Value) -> TypeGuard[float]:
    """Return whether a value is a finite floating-point number."""
    return isinstance(value, float) and abs(value) < float("inf")


def size(default: int | Rel | None = None, choices: tuple[int | Rel, ...] = ()) -> Attribute:
    """Define an attribute that is a size."""
    return Attribute("a positive integer or a Rel", is_size, default, choices)


def count(default: int, choices: tuple[int, ...] = (), least: int = 1) -> Attribute:
    """Define an attribute that is an integer from ``least`` up."""

    def check(value: Value) -> bool:
        return is_integer(value) and (value == least or positive(value) is not None)

    return Attribute(f"an integer from {least} up", check, default, choices)


def flag(default: bool) -> Attribute:
    """Define an attribute that is true or false."""
    return Attribute("true or false", lambda v: isinstance(v, bool), default)


def rate(default: float) -> Attribute:
    """Define an attribute that is a probability below 1."""
    return Attribute("a number from 0.0 to below 1.0", lambda v: is_real(v) and 0.0 <= v < 1.0, default)


def tuple_of(
    expected: str, check: Callable[[Value], bool], all_of: Callable[[tuple[Value, ...]], bool] = lambda values: True
) -> Attribute:
    """Define a tuple of at most :data:`MOST_AXES` values; ``check`` checks each value, ``all_of`` the tuple."""

    def are_right(value: Value) -> bool:
        return isinstance(value, tuple) and len(value) <= MOST_AXES and all(map(check, value)) and all_of(value)

    return Attribute(expected, are_right)
