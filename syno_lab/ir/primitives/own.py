"""Primitives that a user adds: a function of ``+ - * // %`` maps a coordinate to a coordinate of the same size.

The rest of the engine needs no change for a primitive of the user's own. The sizes stay the same, so the shape
distance, the budgets and the match with the input stay valid. The index stays inside its domain, so no bound is added.
The reference, PyTorch, TVM, fingerprints and receptive fields evaluate the function itself. A primitive that changes
sizes, sums over a coordinate or drops one affects the shape distance's proof and the bounds of budgets. A primitive of
these kinds must be a class in :mod:`syno_lab.ir.primitives.table`, with its cases in the package ``synthesis``.

An operator's file has the primitive's name and a digest of what the function computes, but no code. A process can read
the file if it has added a primitive with the same name and digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from operator import add, floordiv, mod, mul, sub
from typing import Any

import numpy as np

from syno_lab.common.size import Size
from syno_lab.errors import PrimitiveError
from syno_lab.inputs import quoted
from syno_lab.ir.primitives.base import Card, Primitive
from syno_lab.ir.primitives.table import PRIMITIVES
from syno_lab.ir.spec import Spec

#: ``index(i, n)``: the index of the element that is read for ``0 <= i < n``, inside ``[0, n)``.
Index = Callable[[Any, Any], Any]

#: The sizes for which a new function is tested; the digest is made of the function's values for these sizes.
TRIED = range(1, 65)
#: The largest size of a coordinate for which a step with the primitive tests the function.
MOST_TRIED = 1 << 16
_LETTERS = range(2, 13)
_DIGEST = 12
#: Forbidden names, because they have another meaning in pictures, files and limits.
_TAKEN = ("INPUT", "OUTPUT", "WEIGHT", "CONTRACTION", "COORDINATE", "PRIMITIVE", "TENSOR", "FLOP", "PARAM")

#: The digest of each name that this process has used, because operators are cached by the name.
_MEANINGS: dict[str, str] = {}


class OwnPrimitive(Primitive):
    """A primitive of the user's own.

    Attributes:
        function: the user's function.
        meaning: a digest of what the function computes for the sizes in :data:`TRIED`.
    """

    operands = ("main",)
    example = (("N",), None)

    def __init__(self, name: str, function: Index) -> None:
        self.name = name
        self.function = function
        self.result_sizes = lambda sizes, parameter: sizes
        self.index = lambda args, sizes, parameter: (function(args[0], sizes[0]),)
        tables = [self._table(n) for n in TRIED]
        self.is_one_to_one = all(len(set(table)) == len(table) for table in tables)
        self.meaning = hashlib.sha256(repr(tables).encode()).hexdigest()[:_DIGEST]
        lines = (function.__doc__ or "").strip().splitlines()
        kind = "A bijection of the user's own." if self.is_one_to_one else "A view of the user's own."
        self.card = Card(
            name,
            f"view({name!r}, main)",
            "[i]: [N]",
            f"[{function.__name__}(i, N)]: [N]",
            lines[0] if lines else "the dimension is read in another order",
            kind,
            ("a coordinate that is fixed", "a coordinate that has left the data tensor"),
            f"the user's own function {function.__name__}, {self.meaning}",
        )

    def check(self, sizes: tuple[Size, ...], parameter: Size | None, spec: Spec) -> None:
        """Check that the function stays inside the domain under every binding."""
        for binding in spec.binding_maps:
            if (number := sizes[0].at(binding)) <= MOST_TRIED and number not in TRIED:
                self._table(number)

    def _table(self, number: int) -> list[int]:
        """Return the index that is read for every position of a dimension with ``number`` elements.

        Raises PrimitiveError if the function fails, reads outside the domain, or returns other values for an array.
        """
        try:
            table = [self.function(_Watched(i), _Watched(number)) for i in range(number)]
            at_once = np.broadcast_to(self.function(np.arange(number), number), (number,)).tolist()
        except Exception as error:  # noqa: BLE001 - the user's function may raise any error
            why = f"{type(error).__name__}: {error}"
            self.refuse(f"expected a function of + - * // % alone, found one that fails for a size of {number}: {why}")
        for position, value in enumerate(table):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < number:
                self.refuse(
                    f"expected a position from 0 to {number - 1}, found {quoted(value)} for position {position} of "
                    f"{number}"
                )
        if at_once != table:
            self.refuse(f"expected a function of + - * // % alone, found one that treats arrays otherwise ({number})")
        return list(map(int, table))


def _watched(operation: Callable[[int, int], int]) -> Callable[..., _Watched]:
    """Return the operation as a method of :class:`_Watched`, with a :class:`_Watched` as result."""
    return lambda number, other: _Watched(operation(int(number), int(other)))


def _divided(operation: Callable[[int, int], int]) -> Callable[..., _Watched]:
    """Return a division that refuses operands for which C, a language of generated code, rounds unlike Python."""

    def divide(number: int, by: int) -> int:
        if number < 0 or by <= 0:
            raise ValueError(f"{number} is divided by {by}; add the size first, as in (i + n - 1) % n")
        return operation(number, by)

    return _watched(divide)


class _Watched(int):
    """An integer that checks the operations on it."""

    __add__ = __radd__ = _watched(add)
    __mul__ = __rmul__ = _watched(mul)
    __sub__, __rsub__ = _watched(sub), _watched(lambda number, other: other - number)
    __floordiv__, __mod__ = _divided(floordiv), _divided(mod)


def add_primitive(name: str, index: Index) -> OwnPrimitive:
    """Add a primitive of your own to this process, as in ``add_primitive("FLIP", lambda i, n: n - 1 - i)``.

    The primitive then works as a step in sessions, searches, generated code, pictures and files. Adding the same
    function again has no effect.

    Args:
        name: 2 to 12 capital letters.
        index: a function of a coordinate and its size, with only ``+ - * // %``. It returns the index of the read
            element, ``0 <= index(i, n) < n``. The first line of its docstring describes the effect on the tensor.

    Raises PrimitiveError with one line if the name is invalid or taken, or if ``index`` is no such function.
    """
    if not (isinstance(name, str) and name.isascii() and name.isalpha() and name.isupper() and len(name) in _LETTERS):
        raise PrimitiveError(f"expected a name of 2 to 12 capital letters for a primitive, found {quoted(name)}")
    if name in _TAKEN or (name in PRIMITIVES and not is_own(name)):
        raise PrimitiveError(f"expected a name that no primitive has, found {quoted(name)}")
    primitive = OwnPrimitive(name, index)
    if _MEANINGS.setdefault(name, primitive.meaning) != primitive.meaning:
        raise PrimitiveError(
            f"{name} has meant another function in this process, and operators with it are remembered: take another "
            "name, or restart the kernel"
        )
    PRIMITIVES[name] = primitive
    return primitive


def remove_primitive(name: str) -> None:
    """Remove a primitive of your own from this process. Raises PrimitiveError if no primitive has this name."""
    if not is_own(name):
        known = ", ".join(own.name for own in own_primitives()) or "none"
        raise PrimitiveError(f"expected a primitive of your own, one of {known}, found {quoted(name)}")
    del PRIMITIVES[name]


def own_primitives() -> tuple[OwnPrimitive, ...]:
    """Return the primitives of the user's own, in the order in which they were added."""
    return tuple([primitive for primitive in PRIMITIVES.values() if isinstance(primitive, OwnPrimitive)])


def is_own(name: str) -> bool:
    """Return whether a primitive of this name is the user's own."""
    return isinstance(PRIMITIVES.get(name), OwnPrimitive)
