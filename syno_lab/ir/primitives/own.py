"""Primitives of the user's own: a coordinate becomes another of the same size, by a function of ``+ - * // %``.

So much can be added from outside, because nothing else in the engine has to know more: the sizes stay, so the shape
distance, the budgets and the match with the input hold as they are; the index stays inside its domain, so no bound is
added; and the reference, PyTorch, TVM, fingerprints and receptive fields evaluate the function itself. A primitive that
changes sizes, sums, or drops a coordinate changes the shape distance's proof and the bounds of budgets: it is a file in
this folder, and its cases in the room ``synthesis``.

A file of an operator has the name of such a primitive and a digest of what its function computes; it has no code. It is
read where a primitive of that name and digest was added before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from syno_lab.common.size import Size
from syno_lab.errors import PrimitiveError
from syno_lab.inputs import quoted
from syno_lab.ir.primitives.base import Card, Primitive
from syno_lab.ir.spec import Spec

#: ``index(i, n)``: the element that is read for ``0 <= i < n``, inside ``[0, n)``.
Index = Callable[[Any, Any], Any]

#: Sizes on which a function is tried when it is added; their values make the digest.
TRIED = range(1, 65)
#: The largest size of a layer on which it is tried when a step is taken.
MOST_TRIED = 1 << 16
_LETTERS = range(2, 13)
_DIGEST = 12
#: Names that stand for something else in pictures, files and limits.
_TAKEN = ("INPUT", "OUTPUT", "WEIGHT", "CONTRACTION", "COORDINATE", "PRIMITIVE", "TENSOR", "FLOP", "PARAM")

#: What each name has meant in this process: what is remembered of operators is remembered by the name.
_MEANINGS: dict[str, str] = {}


class OwnPrimitive(Primitive):
    """One primitive of the user's own.

    Attributes:
        function: the user's.
        meaning: a digest of what it computes for the sizes of :data:`TRIED`.
    """

    operands = ("main",)
    example = (("N",), None)

    def __init__(self, name: str, function: Index) -> None:
        self.name = name  # type: ignore[misc]  # of this primitive alone
        self.function = function
        tables = [self._table(n) for n in TRIED]
        self.is_one_to_one = all(len(set(table)) == len(table) for table in tables)  # type: ignore[misc]
        self.meaning = hashlib.sha256(repr(tables).encode()).hexdigest()[:_DIGEST]
        said = (function.__doc__ or "").strip().splitlines()
        kind = "A bijection of the user's own." if self.is_one_to_one else "A view of the user's own."
        self.card = Card(  # type: ignore[misc]
            name,
            f"view({name!r}, main)",
            "[i]: [N]",
            f"[{function.__name__}(i, N)]: [N]",
            said[0] if said else "the dimension is read in another order",
            kind,
            ("a coordinate that is fixed", "a coordinate that has left the data tensor"),
            f"the user's own function {function.__name__}, {self.meaning}",
        )

    def check(self, sizes: tuple[Size, ...], parameter: Size | None, spec: Spec) -> None:
        """The function stays inside the domain under every binding."""
        for binding in spec.binding_maps:
            if (number := sizes[0].at(binding)) <= MOST_TRIED and number not in TRIED:
                self._table(number)

    def result_sizes(self, sizes: tuple[Size, ...], parameter: Size | None) -> tuple[Size, ...]:
        """``[N]``."""
        return sizes

    def index(self, args: tuple[Any, ...], sizes: tuple[Any, ...], parameter: Any) -> tuple[Any, ...]:
        """The function of the coordinate and its size."""
        return (self.function(args[0], sizes[0]),)

    def _table(self, number: int) -> list[int]:
        """What it reads for every position of a dimension of so many.

        Raises:
            PrimitiveError: the function fails, reads outside the domain, or computes another thing for arrays.
        """
        try:
            found = [self.function(_Watched(i), _Watched(number)) for i in range(number)]
            at_once = np.broadcast_to(self.function(np.arange(number), number), (number,)).tolist()
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises
            said = f"{type(error).__name__}: {error}"
            self.refuse(f"expected a function of + - * // % alone, found one that fails for a size of {number}: {said}")
        for position, value in enumerate(found):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < number:
                self.refuse(
                    f"expected a position from 0 to {number - 1}, found {quoted(value)} for position {position} of "
                    f"{number}"
                )
        if at_once != found:
            self.refuse(f"expected a function of + - * // % alone, found one that treats arrays otherwise ({number})")
        return list(map(int, found))


class _Watched(int):
    """A number that refuses to divide where C, which generated code may be written in, rounds otherwise than Python."""

    def __add__(self, other: int) -> _Watched:
        return _Watched(int(self) + int(other))

    def __sub__(self, other: int) -> _Watched:
        return _Watched(int(self) - int(other))

    def __mul__(self, other: int) -> _Watched:
        return _Watched(int(self) * int(other))

    def __radd__(self, other: int) -> _Watched:
        return _Watched(int(other) + int(self))

    def __rsub__(self, other: int) -> _Watched:
        return _Watched(int(other) - int(self))

    def __rmul__(self, other: int) -> _Watched:
        return _Watched(int(other) * int(self))

    def __floordiv__(self, other: int) -> _Watched:
        return _Watched(_non_negative(self, other) // int(other))

    def __mod__(self, other: int) -> _Watched:
        return _Watched(_non_negative(self, other) % int(other))


def _non_negative(number: int, by: int) -> int:
    if number < 0 or by <= 0:
        raise ValueError(f"{int(number)} is divided by {int(by)}; add the size first, as in (i + n - 1) % n")
    return int(number)


def add_to(table: dict[str, Primitive], name: str, function: Index) -> OwnPrimitive:
    """Add a primitive of the user's own to the table of all, and return it.

    Raises:
        PrimitiveError: for a name that is taken or no word of capitals, and for a function that is none of
            ``+ - * // %`` from ``[0, N)`` to ``[0, N)``.
    """
    if not (isinstance(name, str) and name.isascii() and name.isalpha() and name.isupper() and len(name) in _LETTERS):
        raise PrimitiveError(f"expected a name of 2 to 12 capital letters for a primitive, found {quoted(name)}")
    if name in _TAKEN or (name in table and not isinstance(table[name], OwnPrimitive)):
        raise PrimitiveError(f"expected a name that no primitive has, found {quoted(name)}")
    made = OwnPrimitive(name, function)
    if _MEANINGS.setdefault(name, made.meaning) != made.meaning:
        raise PrimitiveError(
            f"{name} has meant another function in this process, and operators with it are remembered: take another "
            "name, or restart the kernel"
        )
    table[name] = made
    return made


def own_in(table: dict[str, Primitive]) -> Iterator[OwnPrimitive]:
    """The primitives of the user's own in a table, in the order in which they were added."""
    for primitive in table.values():
        if isinstance(primitive, OwnPrimitive):
            yield primitive
