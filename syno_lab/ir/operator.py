"""A complete pGraph: a linear operator as an immutable value (Syno, sections 4 and 5).

What it costs, what it computes and how it is shown are methods too, declared in :mod:`.late` and bound in
``syno_lab.api``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import msgspec

from syno_lab.common.size import value
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.keys import Key, canonical_key
from syno_lab.ir.late import OperatorMethods
from syno_lab.ir.spec import Binding, Spec
from syno_lab.ir.state import State, Step, Weight

FORMAT = "syno-lab-operator"


@dataclass(frozen=True, eq=False)
class Operator(OperatorMethods):
    """``Y[output] = sum over reductions of X[inputs] * W1[...] * ...``, zero where an UNFOLD is out of bounds.

    Attributes:
        state: the complete state it was read from.
        inputs: the coordinate that indexes each axis of the input.
    """

    format: ClassVar[str] = FORMAT

    state: State
    inputs: tuple[Coordinate, ...]

    @property
    def spec(self) -> Spec:
        """The spec it was built for."""
        return self.state.spec

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the spec's variables, primaries first."""
        return self.spec.symbols.names

    @property
    def output(self) -> tuple[Coordinate, ...]:
        """The output iterators, one for each axis."""
        return self.state.output

    @property
    def reductions(self) -> tuple[Coordinate, ...]:
        """The reduction iterators."""
        return self.state.reductions

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The weights, in the order in which :meth:`reference` and the modules take them."""
        return self.state.weights

    @property
    def expanded(self) -> tuple[Coordinate, ...]:
        """The coordinates dropped by EXPAND."""
        return self.state.expanded

    @property
    def steps(self) -> tuple[Step, ...]:
        """How it was built, bottom-up."""
        return self.state.steps

    def complete_binding(self, binding: Binding | None = None) -> dict[str, int]:
        """``binding`` completed by the spec's defaults; None takes the spec's first binding."""
        if binding is None and self.spec.bindings:
            return dict(self.spec.bindings[0])
        return self.spec.complete_binding(binding or {})

    def input_sizes(self, binding: Binding | None = None) -> tuple[int, ...]:
        """The input's shape for a binding."""
        bound = self.complete_binding(binding)
        return tuple(c.size.at(bound) for c in self.inputs)

    def output_sizes(self, binding: Binding | None = None) -> tuple[int, ...]:
        """The output's shape for a binding."""
        bound = self.complete_binding(binding)
        return tuple(c.size.at(bound) for c in self.output)

    def weight_sizes(self, binding: Binding | None = None) -> tuple[tuple[int, ...], ...]:
        """The weights' shapes for a binding."""
        bound = self.complete_binding(binding)
        return tuple(tuple(size.at(bound) for size in weight.shape) for weight in self.weights)

    def params(self, binding: Binding | None = None) -> int:
        """The number of weight elements for a binding."""
        bound = self.complete_binding(binding)
        return sum(value(weight.shape, bound) for weight in self.weights)

    def to_json(self) -> str:
        """As JSON text with a version number; :meth:`from_json` reads it back."""
        from syno_lab.ir.files import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> Operator:
        """Read :meth:`to_json`'s text.

        Raises:
            FormatError: for another format or version, missing fields or junk.
            PrimitiveError: when its steps are not legal.
        """
        from syno_lab.ir.files import from_json

        return from_json(text)

    @cached_property
    def key(self) -> Key:
        """Equal for equal pGraphs with the same matching of input axes."""
        return canonical_key(self.state, self.inputs, ordered=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operator):
            return NotImplemented
        return self is other or (self.state.signature == other.state.signature and self.key == other.key)

    def __hash__(self) -> int:
        # Of its bytes, because Python's hash of tuples does not tell -1 from -2, and exponents are just that.
        return hash(msgspec.msgpack.encode(self.key))

    def __str__(self) -> str:
        def shape(coordinates: tuple[Coordinate, ...]) -> str:
            return "[" + ", ".join(str(c.size) for c in coordinates) + "]"

        weights = ", ".join(shape(w.coordinates) for w in self.weights) or "no weights"
        return f"{shape(self.inputs)} -> {shape(self.output)} with {weights}, {len(self.steps)} steps"

    def __repr__(self) -> str:
        return f"<Operator {self}>"
